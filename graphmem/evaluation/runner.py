"""Runs a benchmark: stores its messages through the public door, asks every configuration every question."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphmem.errors import StoreError, ValidationError
from graphmem.evaluation.configurations import SearchFunction
from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset, Message
from graphmem.evaluation.metrics import scores
from graphmem.memory import Memory

ProgressCallback = Callable[[str, int, int], None]
"""Is told (of what, how many are done, of how many)."""

# How much of a ranking is kept: more than fit into the largest budget of tokens.
DEPTH = 200
# Latencies are those of a search for so many, as it is without further arguments, over at most so many questions.
TOP_K, TIMED_QUESTIONS = 10, 200
BATCH = 200


@dataclass(frozen=True, slots=True)
class StoredMessages:
    """The key of each memory by its id, and how many messages were added in how many seconds (0: all were there)."""

    keys: Mapping[str, str]
    messages: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Of `questions` searches: the median and the time that 95 % stay below, in milliseconds."""

    questions: int
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run measured: by configuration, `scores` has a mapping of measures for each case, in order."""

    stored: StoredMessages
    scores: Mapping[str, Sequence[Mapping[str, float]]]
    latency: Mapping[str, Latency]


def run(memory: Memory, dataset: Dataset, finders: Mapping[str, SearchFunction], told: ProgressCallback) -> RunResult:
    """Stores, asks, times. Raises ValidationError for a partition that holds other memories already, StoreError."""
    stored = store(memory, dataset, told)
    words = {
        partition: {message["id"]: len(message["content"].split()) for message in said}
        for partition, said in dataset.partitions.items()
    }
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in finders}
    for place, case in enumerate(dataset.cases, 1):
        for name, finder in finders.items():
            ids = finder(memory, case, DEPTH)
            found[name].append(scores([stored.keys[uid] for uid in ids], case.gold, words[case.partition]))
        told("questions", place, len(dataset.cases))
    return RunResult(stored, found, latencies(memory, dataset.cases, finders, told))


def store(memory: Memory, dataset: Dataset, told: ProgressCallback) -> StoredMessages:
    """Adds every message and waits until all of them can be found. Messages that are there already are not added."""
    keys: dict[str, str] = {}
    begun, added = time.perf_counter(), 0
    for partition, messages in dataset.partitions.items():
        for start in range(0, len(messages), BATCH):
            batch = messages[start : start + BATCH]
            results = memory.add(batch, user_id=partition)["results"]
            keys.update((one["id"], message["id"]) for one, message in zip(results, batch, strict=True))
            added += sum(one["event"] == "ADD" for one in results)
            told("messages", len(keys), dataset.messages)
    if pending := memory.flush()["pending"]:
        raise StoreError(f"the messages are stored, but not yet in {' and '.join(pending)}; see 'graphmem verify'")
    seconds = time.perf_counter() - begun
    _check_alone(memory, dataset.partitions)
    return StoredMessages(keys, added, seconds if added else 0.0)


def _check_alone(memory: Memory, partitions: Mapping[str, Sequence[Message]]) -> None:
    for partition, messages in partitions.items():
        if (total := memory.get_all(user_id=partition, limit=1)["total"]) != len(messages):
            raise ValidationError(
                f"user {partition!r} has {total} memories here, the data {len(messages)} messages; "
                "name an empty folder, or leave --home out"
            )


def latencies(
    memory: Memory, cases: Sequence[BenchmarkQuestion], finders: Mapping[str, SearchFunction], told: ProgressCallback
) -> dict[str, Latency]:
    """By configuration, over questions from everywhere in the data; the first search of each is not counted."""
    chosen = cases[:: -(-len(cases) // TIMED_QUESTIONS)]
    taken: dict[str, list[float]] = {name: [] for name in finders}
    for place, case in enumerate([chosen[0], *chosen]):
        for name, finder in finders.items():
            begun = time.perf_counter()
            finder(memory, case, TOP_K)
            if place:
                taken[name].append(1000 * (time.perf_counter() - begun))
        told("latency", place, len(chosen))
    return {
        name: Latency(len(times), *(float(np.percentile(times, share)) for share in (50, 95)))
        for name, times in taken.items()
    }
