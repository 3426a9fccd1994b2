"""A million memories in a folder, in many partitions or in one: what storing, opening, searching and adding cost.

    nice -n 19 python benchmarks/million.py --memories 1000000 --partitions 10000 --home /var/tmp/million
    nice -n 19 python benchmarks/million.py --memories 1000000 --partitions 1 --home /var/tmp/million

Everything passes the public door. The embedder is given and returns seeded random unit vectors, and nothing is
extracted: what is measured is storage and search, and no model. The texts are twelve words of a vocabulary with Zipf
frequencies, in sessions of twenty. Of a search in many partitions two kinds are told apart: the first one of a
partition since the start, and later ones. The folder holds the memories until the end and is deleted then; it has no
default, as it should be on the disk that is meant. Beside the seconds, which other work on the machine lengthens, stand
the seconds of CPU of this process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from process_sample import sample_process

from graphmem import Memory
from graphmem.evaluation.environment import environment
from graphmem.settings import Settings

SEED, DIMS = 0, 384
SESSION, WORDS, VOCABULARY = 20, 12, 30_000
MINUTE, START = 60, 1_600_000_000
LIST, PARTS = 500, 10
QUESTIONS, ADDITIONS = 300, 100
TOP_K = 10


class SeededVectors:
    """An embedder: the vector of a text is drawn at random, seeded by the text."""

    model, dims = "seeded-unit-vectors", DIMS

    def embed(self, texts: list[str]) -> list[Any]:
        return [self.embed_query(text)[None] for text in texts]

    def embed_query(self, text: str) -> Any:
        seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
        vector = np.random.default_rng(seed).standard_normal(DIMS, dtype=np.float32)
        return vector / np.linalg.norm(vector)


class MadeUpTexts:
    """Texts of words with Zipf frequencies, all from one seed."""

    def __init__(self) -> None:
        self.chance = np.random.default_rng(SEED)
        weights = 1 / np.arange(1, VOCABULARY + 1)
        self._cumulated = np.cumsum(weights / weights.sum())

    def text(self, words: int = WORDS) -> str:
        return " ".join(f"w{word}" for word in np.searchsorted(self._cumulated, self.chance.random(words)))

    def messages(self, first: int, number: int) -> list[dict[str, Any]]:
        """The messages from the one with this number on: a minute apart, and an hour more after each session."""
        return [
            {"role": "user", "content": self.text(), "timestamp": START + row * MINUTE + row // SESSION * 60 * MINUTE}
            for row in range(first, first + number)
        ]


def user_of(partition: int) -> str:
    """Returns the user whose partition this is."""
    return f"user{partition}"


def store(memory: Memory, texts: MadeUpTexts, memories: int, partitions: int) -> list[dict[str, Any]]:
    """Stores the memories; returns the figures of each tenth of them."""
    each, figures, stored = memories // partitions, list[dict[str, Any]](), 0
    begin, cpu = time.perf_counter(), time.process_time()
    for partition in range(partitions):
        for first in range(0, each, LIST):
            memory.add(texts.messages(first, min(LIST, each - first)), user_id=user_of(partition), infer=False)
            stored += min(LIST, each - first)
            if stored * PARTS // memories > len(figures):
                now, used = time.perf_counter(), time.process_time()
                per_second = memories / PARTS / (now - begin)
                milliseconds = 1000 * (used - cpu) * PARTS / memories
                figures.append(
                    {
                        "memories": stored,
                        "per_second": round(per_second, 1),
                        "cpu_ms_each": round(milliseconds, 3),
                        **sample_process(),
                    }
                )
                print(json.dumps(figures[-1]), file=sys.stderr, flush=True)
                begin, cpu = now, used
    memory.flush()
    return figures


def times_of(calls: Iterator[Callable[[], Any]]) -> dict[str, Any]:
    """Makes the calls one after the other; returns percentiles of their milliseconds, and the CPU's mean of one."""
    times, cpu = list[float](), time.process_time()
    for call in calls:
        begin = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begin))
    if not times:
        return {"calls": 0}
    return {
        "calls": len(times),
        **{f"p{percent}_ms": round(float(np.percentile(times, percent)), 1) for percent in (50, 95, 99)},
        "max_ms": round(max(times), 1),
        "cpu_ms_each": round(1000 * (time.process_time() - cpu) / len(times), 1),
    }


def measure_calls(memory: Memory, texts: MadeUpTexts, partitions: int) -> dict[str, Any]:
    """Measures searches of partitions that were not read yet, and again; then single additions."""
    asked = texts.chance.permutation(partitions)[:QUESTIONS].tolist()
    begin, cpu = time.perf_counter(), time.process_time()
    memory.search(texts.text(), user_id=user_of(partitions), top_k=TOP_K)  # a user without memories
    first = {"seconds": round(time.perf_counter() - begin, 2), "cpu_seconds": round(time.process_time() - cpu, 2)}

    def searches(number: int) -> Iterator[Callable[[], Any]]:
        for turn in range(number):
            user, question = user_of(asked[turn % len(asked)]), texts.text(5)
            yield lambda user=user, question=question: memory.search(question, user_id=user, top_k=TOP_K)

    def additions() -> Iterator[Callable[[], Any]]:
        for turn in range(ADDITIONS):
            user, text = user_of(asked[turn % len(asked)]), texts.text()
            yield lambda user=user, text=text: memory.add(text, user_id=user, infer=False)

    return {
        "first_call": first,
        "first_search_of_a_partition": times_of(searches(len(asked))),
        "later_search": times_of(searches(QUESTIONS)),
        "add_one": times_of(additions()),
        "search_after_adding": times_of(searches(QUESTIONS)),
        **sample_process(),
    }


def bytes_of(home: Path) -> dict[str, int]:
    """Returns the bytes on the disk of each file or folder in the home folder."""
    sizes = dict[str, int]()
    for path in home.rglob("*"):
        if path.is_file():
            name = path.relative_to(home).parts[0]
            sizes[name] = sizes.get(name, 0) + 512 * path.stat().st_blocks
    return dict(sorted(sizes.items()))


def measure(home: Path, memories: int, partitions: int) -> dict[str, Any]:
    """The figures, ready for JSON."""
    settings = Settings.from_dict({"extractor": {"provider": "none"}})
    texts, embedder = MadeUpTexts(), SeededVectors()
    with Memory(home, settings=settings, embedder=embedder) as memory:
        storing = store(memory, texts, memories, partitions)
    size = bytes_of(home)
    begin = time.perf_counter()
    with Memory(home, settings=settings, embedder=embedder) as memory:
        opened = round(time.perf_counter() - begin, 2)
        calls = measure_calls(memory, texts, partitions)
        report = memory.stats()
    return {
        "benchmark": "million",
        **environment(),
        "memories": memories // partitions * partitions,
        "partitions": partitions,
        "stored": report["memories"],
        "storing": storing,
        "bytes": size,
        "bytes_each": round(sum(size.values()) / memories),
        "opened_seconds": opened,
        **calls,
    }


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--home", type=Path, required=True, help="a new folder, which is deleted at the end")
    arguments = parser.parse_args()
    if arguments.home.exists():
        parser.error("--home: the folder exists already; name a new one")
    if not 1 <= arguments.partitions <= arguments.memories:
        parser.error("--partitions must be from 1 to --memories")
    try:
        print(json.dumps(measure(arguments.home, arguments.memories, arguments.partitions), indent=2))
    finally:
        shutil.rmtree(arguments.home, ignore_errors=True)


if __name__ == "__main__":
    main()
