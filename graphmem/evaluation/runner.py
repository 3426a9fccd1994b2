"""Runs a benchmark: stores its messages by `Memory.add`, asks every question in every configuration, measures time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphmem.errors import StoreError, ValidationError
from graphmem.evaluation.configurations import Measurement, SearchFunction
from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset, Message
from graphmem.memory import Memory

ProgressCallback = Callable[[str, int, int], None]
"""Called with (name of the work, items done, items in all)."""

# Hits of a ranking: more than fit into the largest budget of tokens.
DEPTH = 200
# Latency is measured for searches with the default `top_k`, over at most so many questions.
TOP_K, TIMED_QUESTIONS = 10, 200
# Messages in one call of `Memory.add`.
BATCH_SIZE = 200


@dataclass(frozen=True, slots=True)
class StoredMessages:
    """The stored messages: message ids by memory id; number and seconds of those added now (0: none were new)."""

    keys: Mapping[str, str]
    messages: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Latency:
    """The median and the 95th percentile of the time of `questions` searches, in milliseconds."""

    questions: int
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """Measurements of a run. `scores` has, by configuration, the measures of each question, in order."""

    stored: StoredMessages
    scores: Mapping[str, Sequence[Mapping[str, float]]]
    latency: Mapping[str, Latency]


def run(memory: Memory, dataset: Dataset, measurement: Measurement, progress: ProgressCallback) -> RunResult:
    """Stores the messages, asks the questions in each search of the measurement, and measures latency.

    Raises ValidationError if a partition holds other memories, StoreError for a degraded search or pending messages.
    """
    stored = store(memory, dataset, progress)
    words = {
        partition: {key: len(message["content"].split()) for key, message in messages.items()}
        for partition, messages in dataset.messages_by_id().items()
    }
    measures: dict[str, list[Mapping[str, float]]] = {name: [] for name in measurement.searches}
    for number, case in enumerate(dataset.cases, 1):
        for name, search in measurement.searches.items():
            ranking = [stored.keys[memory_id] for memory_id in search(memory, case, DEPTH)]
            measures[name].append(measurement.scores(ranking, case.gold, words[case.partition]))
        progress("questions", number, len(dataset.cases))
    return RunResult(stored, measures, latencies(memory, dataset.cases, measurement.searches, progress))


def store(memory: Memory, dataset: Dataset, progress: ProgressCallback) -> StoredMessages:
    """Adds the messages that are not stored yet, as they were said, and waits until all are in the projections.

    Raises StoreError if projections stay pending, ValidationError if a partition holds other memories.
    """
    keys: dict[str, str] = {}
    started, added = time.perf_counter(), 0
    for partition, messages in dataset.partitions.items():
        for start in range(0, len(messages), BATCH_SIZE):
            progress("messages", len(keys), dataset.messages)
            batch = messages[start : start + BATCH_SIZE]
            # The questions name messages, not facts that a configured language model would draw from them.
            results = memory.add(batch, user_id=partition, infer=False)["results"]
            keys.update((item["id"], message["id"]) for item, message in zip(results, batch, strict=True))
            added += sum(item["event"] == "ADD" for item in results)
    progress("messages", len(keys), dataset.messages)
    if pending := memory.flush()["pending"]:
        raise StoreError(f"the messages are stored, but not yet in {' and '.join(pending)}; see 'graphmem verify'")
    seconds = time.perf_counter() - started
    _check_no_other_memories(memory, dataset.partitions)
    return StoredMessages(keys, added, seconds if added else 0.0)


def _check_no_other_memories(memory: Memory, partitions: Mapping[str, Sequence[Message]]) -> None:
    for partition, messages in partitions.items():
        if (total := memory.get_all(user_id=partition, limit=1)["total"]) != len(messages):
            raise ValidationError(
                f"user {partition!r} has {total} memories here, the data {len(messages)} messages; "
                "name an empty folder, or leave --home out"
            )


def latencies(
    memory: Memory,
    cases: Sequence[BenchmarkQuestion],
    configurations: Mapping[str, SearchFunction],
    progress: ProgressCallback,
) -> dict[str, Latency]:
    """Measures latency by configuration, over questions spread evenly; a first search of each is not counted."""
    sample = cases[:: -(-len(cases) // TIMED_QUESTIONS)]
    milliseconds: dict[str, list[float]] = {name: [] for name in configurations}
    for number, case in enumerate([sample[0], *sample]):
        for name, search in configurations.items():
            started = time.perf_counter()
            search(memory, case, TOP_K)
            if number:
                milliseconds[name].append(1000 * (time.perf_counter() - started))
        progress("latency", number, len(sample))
    return {
        name: Latency(len(times), *(float(np.percentile(times, percent)) for percent in (50, 95)))
        for name, times in milliseconds.items()
    }
