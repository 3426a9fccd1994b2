"""Mixed load on a memory in a folder for a long time: whether latency, memory, descriptors and threads stay flat.

    python benchmarks/soak.py benchmarks/chats --minutes 60 --rate 4 --home /var/tmp/soak > benchmarks/results/soak.json

Of a hundred calls sixty search, twenty-five add, ten list and five erase what was added first: the number of memories
levels off, so that what goes on growing is not the data. The calls come evenly, `rate` a second, from four threads. The
first tenth of the time is left out: models and caches are filled in it. `growth` compares the last fifth of the samples
of this process with the first one.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from statistics import mean, median
from typing import Any

from process_sample import sample_process

from graphmem import Memory
from graphmem.evaluation.chats import load
from graphmem.evaluation.datasets import Dataset
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import store
from graphmem.settings import Settings

SEED, THREADS, SAMPLE_SECONDS, KEPT = 0, 4, 5.0, 200
MIX = {"search": 60, "add": 25, "list": 10, "erase": 5}
PARTS = 5


class MixedLoad:
    """Calls of all kinds on one memory; `seconds` are those of each call, with the time at which it began."""

    def __init__(self, memory: Memory, data: Dataset) -> None:
        self._memory, self._cases = memory, data.cases
        self._chance, self._added = random.Random(SEED), deque[str]()  # noqa: S311  (a load)
        self.seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def call(self, number: int) -> None:
        """Makes a call, and erases as many memories as are above the number that is kept."""
        kind = self._chance.choices(list(MIX), list(MIX.values()))[0]
        case, begin = self._chance.choice(self._cases), time.monotonic()
        match kind:
            case "search":
                self._memory.search(case.question, user_id=case.partition)
            case "add":
                text = f"Note {number}: {case.question} I was asked this again."
                added = self._memory.add(text, user_id=case.partition, infer=False)
                self._added += [one["id"] for one in added["results"]]
            case "list":
                self._memory.get_all(user_id=case.partition, limit=20)
            case _:
                while len(self._added) > KEPT:
                    self._memory.delete(self._added.popleft())
        self.seconds[kind].append((begin, time.monotonic() - begin))


def run(memory: Memory, data: Dataset, minutes: float, rate: float) -> dict[str, Any]:
    """Runs the load; returns its figures, ready for JSON."""
    load_of, samples = MixedLoad(memory, data), list[dict[str, Any]]()
    begin = time.monotonic()
    end, next_sample = begin + 60 * minutes, begin
    with ThreadPoolExecutor(THREADS) as pool:
        number, calls = 0, []
        while (now := time.monotonic()) < end:
            calls.append(pool.submit(load_of.call, number))
            number += 1
            if now >= next_sample:
                next_sample += SAMPLE_SECONDS
                samples.append({"seconds": round(now - begin), **sample_process()})
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
        wait(calls)
    for one in calls:
        one.result()
    kept = [one for one in samples if one["seconds"] >= 6 * minutes]
    size = max(1, len(kept) // PARTS)
    ends = {"first": kept[:size], "last": kept[-size:]}
    growth = {
        name: {which: round(mean(one[name] for one in some), 1) for which, some in ends.items()}
        for name in ("rss_mb", "descriptors", "threads")
    }
    return {"calls": number, "growth": growth, "latency": _latency(load_of, begin, minutes), "samples": samples}


def _latency(load_of: MixedLoad, begin: float, minutes: float) -> dict[str, Any]:
    """Returns the median milliseconds of each kind in each fifth of the time that counts."""
    first, length = begin + 6 * minutes, 54 * minutes / PARTS
    figures: dict[str, Any] = {}
    for kind, calls in load_of.seconds.items():
        parts = [
            [seconds for at, seconds in calls if first + part * length <= at < first + (part + 1) * length]
            for part in range(PARTS)
        ]
        figures[kind] = [round(1000 * median(part), 1) if part else None for part in parts]
    return figures


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chats", type=Path, help="a folder or file of chats in the form of benchmarks/chats")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=4.0, help="calls a second (default: 4)")
    parser.add_argument("--home", type=Path, required=True, help="a new folder, which is deleted at the end")
    arguments = parser.parse_args()
    if arguments.home.exists():
        parser.error("--home: the folder exists already; name a new one")
    data = load(arguments.chats)
    try:
        with Memory(arguments.home, settings=Settings()) as memory:
            store(memory, data, lambda *_: None)
            figures = run(memory, data, arguments.minutes, arguments.rate)
    finally:
        shutil.rmtree(arguments.home, ignore_errors=True)
    settings = {"minutes": arguments.minutes, "rate": arguments.rate, "memories": data.messages}
    json.dump({"benchmark": "soak", **environment(), "settings": settings, **figures}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
