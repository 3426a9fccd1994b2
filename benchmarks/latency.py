"""How long a search takes, and how fast messages are added, with many memories in one partition.

    python benchmarks/latency.py locomo10.json --memories 10000 > benchmarks/results/latency-10k.json

The memories are the turns of the conversations, repeated as often as it takes: each time by other people, some years
later, with one word in eight replaced by another of their words. So the words, the entities and the sessions are as
many and as unlike each other as in that many real turns, and no two texts share an embedding.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import count, islice
from pathlib import Path
from typing import Any

from graphmem import Memory
from graphmem.evaluation.datasets import POOLED, Dataset, Message, pooled
from graphmem.evaluation.environment import environment
from graphmem.evaluation.locomo import load
from graphmem.evaluation.runner import SEARCH_FUNCTIONS, TOP_K, latencies, store
from graphmem.settings import Settings

SEED = 0
REPLACED = 8
MEASURED = ("full", "flat")
LATER = timedelta(days=1000)
NAMES = """
    Ada Alan Amir Anja Arno Astrid Bela Boris Carla Cesar Clara Dario Diana Dora Edgar Elena Elif Emil Enzo Esther Fatma
    Felix Fiona Frida Gita Greta Hana Hugo Ida Igor Ines Ivan Jana Jonas Judith Karim Katya Kenji Lara Leon Lina Luca
    Maja Marek Mira Nadia Nils Noor Olga Oscar Paula Pavel Petra Ravi Rosa Samir Selma Sven Tara Theo Ulla Vera Yara Zoe
""".split()


def enlarge(original: Dataset, memories: int) -> Dataset:
    """A data set with this many messages in one partition; the first ones, and the questions, are the original's."""
    messages = original.partitions[POOLED]
    return replace(original, partitions={POOLED: tuple(islice(_repeated(messages), memories))})


def _repeated(messages: Sequence[Message]) -> Iterator[Message]:
    yield from messages
    chance = random.Random(SEED)  # noqa: S311  (figures that can be repeated, no secrets)
    words = [word for message in messages for word in message["content"].split()]
    people = sorted({message["name"] for message in messages})
    for copy in count(1):
        cast = {name: NAMES[(copy * len(people) + place) % len(NAMES)] for place, name in enumerate(people)}
        for message in messages:
            yield _reword(message, copy, cast, words, chance)


def _reword(
    message: Message, copy: int, cast: Mapping[str, str], words: Sequence[str], chance: random.Random
) -> Message:
    text = " ".join(
        chance.choice(words) if chance.randrange(REPLACED) == 0 else word for word in message["content"].split()
    )
    for name, other in cast.items():
        text = text.replace(name, other)
    return {
        **message,
        "id": f"{copy}:{message['id']}",
        "name": cast[message["name"]],
        "content": text,
        "timestamp": (datetime.fromisoformat(message["timestamp"]) + copy * LATER).isoformat(),
    }


def measure(dataset: Dataset) -> dict[str, Any]:
    """The figures, ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="graphmem-") as folder, Memory(folder, settings=Settings()) as memory:
        stored = store(memory, dataset, _print_progress)
        figures = latencies(memory, dataset.cases, {name: SEARCH_FUNCTIONS[name] for name in MEASURED}, _print_progress)
    return {
        "benchmark": "latency",
        **environment(),
        "data": {"files": [asdict(source) for source in dataset.sources], "memories": dataset.messages, "seed": SEED},
        "adding": {"seconds": round(stored.seconds, 1), "per_second": round(stored.messages / stored.seconds, 1)},
        "latency": {
            name: {"top_k": TOP_K, "questions": one.questions, "p50_ms": round(one.p50, 1), "p95_ms": round(one.p95, 1)}
            for name, one in figures.items()
        },
    }


def _print_progress(label: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{label}: {done} of {total} ", end="", file=sys.stderr, flush=True)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locomo", type=Path, help="a file in the form of LOCOMO's locomo10.json")
    parser.add_argument("--memories", type=int, default=10_000, help="how many (default: 10000)")
    arguments = parser.parse_args()
    if arguments.memories < 1:
        parser.error("--memories must be at least 1")
    print(json.dumps(measure(enlarge(pooled([load(arguments.locomo)]), arguments.memories)), indent=2))


if __name__ == "__main__":
    main()
