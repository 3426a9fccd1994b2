"""Runs a benchmark: stores its messages by `Memory.add`, asks every question in every search configuration that is
compared, and measures time; builds the report of it as JSON data.

The configurations are functions from a question to ranked memory ids. A `Measurement` says which of them a benchmark
asks, by which measures, and which differences it reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

import numpy as np

from graphmem.errors import StoreError, ValidationError
from graphmem.evaluation import metrics
from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset, QuestionGroup
from graphmem.evaluation.environment import environment
from graphmem.memory import Memory
from graphmem.model import Scope, View
from graphmem.retrieval.arms import encode, retrieve
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.query_analysis import analyze_query
from graphmem.retrieval.types import SearchQuery
from graphmem.retrieval.weights import CONFIGURATIONS, SearchWeights

SearchFunction = Callable[[Memory, BenchmarkQuestion, int], list[str]]
"""Takes (memory, case, top_k); returns at most top_k different memory ids, best first."""
ScoreFunction = Callable[[Sequence[str], Collection[str], Mapping[str, int]], Mapping[str, float]]
"""Takes the arguments of `metrics.scores`; returns every measure of one question by name."""

ProgressCallback = Callable[[str, int, int], None]
# Hits of a ranking: more than fit into the largest budget of tokens.
DEPTH = 200
# Latency is measured for searches with the default `top_k`, over at most so many questions.
TOP_K, TIMED_QUESTIONS = 10, 200
# Messages in one call of `Memory.add`.
BATCH_SIZE = 200
DECIMALS = 4
Rows = Sequence[Mapping[str, float]]
"""The measures of each question."""
Scores = Mapping[str, Rows]
"""The measures of each question by search."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a benchmark measures: the searches by name, and the measures of each question.

    Each of `pairs` names two searches whose difference (first minus second) is reported, by the measures `compared`.
    """

    searches: Mapping[str, SearchFunction]
    pairs: Sequence[tuple[str, str]]
    scores: ScoreFunction = metrics.scores
    compared: Sequence[str] = ("recall@10", "all@10")


def _search_as_users_do(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
    """Searches by `Memory.search`. Raises StoreError for a degraded search."""
    answer = memory.search(case.question, user_id=case.partition, top_k=top_k, reference_date=case.query_time)
    refuse_degraded(answer.get("degraded", ()))
    return [hit["id"] for hit in answer["results"]]


def _search_with(weights: SearchWeights) -> SearchFunction:
    """Returns a search with other weights, which may leave out arms. It raises StoreError for a degraded search."""

    def search_with_weights(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
        deps = memory.engine.search_deps
        outcome = search(_query(case, top_k), deps, weights)
        refuse_degraded(outcome.degraded)
        return [hit.record.id for hit in outcome.hits]

    return search_with_weights


def _arm_alone(name: str) -> SearchFunction:
    """Returns a search that ranks what the arms of a name find by their own scores: cosines of both spaces, or words.

    It raises StoreError for a degraded search. `_search_with` the weight of one arm would have what the arm does not
    find follow in the order of storing, and no cosines in a script that the embedder does not read.
    """

    def search_arm(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
        query = _query(case, top_k)
        analysis = analyze_query(query.text, query.now or query.view.moment)
        deps = memory.engine.search_deps
        retrieved = retrieve(query, analysis, deps.pool.submit(encode, query.text, deps), deps)
        refuse_degraded(sorted(retrieved.degraded))
        return [memory_id for memory_id, _ in retrieved.of(name)[:top_k]]

    return search_arm


def _query(case: BenchmarkQuestion, top_k: int) -> SearchQuery:
    scope = Scope(user_id=case.partition)
    view = View(scope, datetime.now(UTC), partition=scope.partition)
    return SearchQuery(case.question, view, top_k, now=case.query_time)


def refuse_degraded(arms: Sequence[str]) -> None:
    """Raises StoreError if arms were left out of a search: its figures would not be those of the configuration."""
    if arms:
        raise StoreError(
            f"a search was answered without {', '.join(arms)}; figures of it would mean nothing, "
            "run the benchmark again"
        )


SEARCH_FUNCTIONS: Mapping[str, SearchFunction] = {
    "full": _search_as_users_do,
    **{name: _search_with(CONFIGURATIONS[name]) for name in CONFIGURATIONS if name != "full"},
}
# Everything, and what it is made of. The pairs: the gain of everything over dense and BM25, the gain of order and graph
# over the best flat hybrid, the gain of the graph.
EVERYTHING = Measurement(SEARCH_FUNCTIONS, (("full", "hybrid"), ("full", "flat"), ("full", "order")))
# The search, and its arms as somebody has them who does without the rest.
ARMS_ALONE: Mapping[str, SearchFunction] = {
    "full": _search_as_users_do,
    "cosine": _arm_alone("dense"),
    "bm25": _arm_alone("keyword"),
}


"""Called with (name of the work, items done, items in all)."""


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
        for name, ask in measurement.searches.items():
            ranking = [stored.keys[memory_id] for memory_id in ask(memory, case, DEPTH)]
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
    for partition, messages in dataset.partitions.items():
        if (total := memory.get_all(user_id=partition, limit=1)["total"]) != len(messages):
            raise ValidationError(
                f"user {partition!r} has {total} memories here, the data {len(messages)} messages; "
                "name an empty folder, or leave --home out"
            )
    return StoredMessages(keys, added, seconds if added else 0.0)


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
        for name, ask in configurations.items():
            started = time.perf_counter()
            ask(memory, case, TOP_K)
            if number:
                milliseconds[name].append(1000 * (time.perf_counter() - started))
        progress("latency", number, len(sample))
    return {
        name: Latency(len(times), *(float(np.percentile(times, percent)) for percent in (50, 95)))
        for name, times in milliseconds.items()
    }


def build_report(
    dataset: Dataset, outcome: RunResult, measurement: Measurement, models: Mapping[str, str]
) -> dict[str, Any]:
    """Returns all measurements of a run and their circumstances, ready for JSON.

    `models` names the embedder and the extractor.
    """
    scores_by_group = {
        group: {name: [scores[index] for index in cases] for name, scores in outcome.scores.items()}
        for group, cases in _cases_by_group(dataset)
    }
    return {
        "benchmark": dataset.name,
        **environment(),
        "models": dict(models),
        "arguments": {
            "depth": DEPTH,
            "tokens_per_word": metrics.TOKENS_PER_WORD,
            "resamples": metrics.RESAMPLES,
            "seed": metrics.SEED,
            "interval_percent": metrics.CONFIDENCE_LEVEL,
        },
        "data": {
            "files": [asdict(source) for source in dataset.sources],
            "partitions": len(dataset.partitions),
            "messages": dataset.messages,
            "questions": len(dataset.cases),
            "left_out": dict(dataset.left_out),
        },
        "adding": _adding_speed(outcome.stored, dataset.messages),
        "latency": {
            configuration: {
                "top_k": TOP_K,
                "questions": latency.questions,
                "p50_ms": round(latency.p50, 1),
                "p95_ms": round(latency.p95, 1),
            }
            for configuration, latency in outcome.latency.items()
        },
        "figures": [
            _figure(group, scores, measurement) | _minus_baseline(group, dataset, scores_by_group, measurement)
            for group, scores in scores_by_group.items()
        ],
    }


def _adding_speed(stored: StoredMessages, messages: int) -> dict[str, float] | None:
    """Returns {"messages": number, "seconds": time to store them, "per_second": rate}.

    Returns None if some of the `messages` messages were stored before this run, so that the rate would be wrong.
    """
    if stored.messages < messages:
        return None
    rate = round(stored.messages / stored.seconds, 1)
    return {"messages": stored.messages, "seconds": round(stored.seconds, 2), "per_second": rate}


def _cases_by_group(dataset: Dataset) -> Iterator[tuple[QuestionGroup, list[int]]]:
    """Yields each group with the indices of its questions; a whole data set comes before its divisions."""
    indices: dict[QuestionGroup, list[int]] = {}
    for index, case in enumerate(dataset.cases):
        for group in case.groups:
            indices.setdefault(group, []).append(index)
    order = sorted(indices, key=lambda group: (group.data != "pooled", group.data, group.by != "all", group))
    return ((group, indices[group]) for group in order)


def _figure(group: QuestionGroup, scores: Scores, measurement: Measurement) -> dict[str, Any]:
    any_search = next(iter(scores.values()))
    return {
        **asdict(group),
        "n": len(any_search),
        "measures": {
            name: {measure: round(fmean(row[measure] for row in rows), DECIMALS) for measure in rows[0]}
            for name, rows in scores.items()
        },
        "differences": [
            {"of": [first, second], **_differences(scores[first], scores[second], measurement)}
            for first, second in measurement.pairs
        ],
    }


def _minus_baseline(
    group: QuestionGroup, dataset: Dataset, scores_by_group: Mapping[QuestionGroup, Scores], measurement: Measurement
) -> dict[str, Any]:
    """Returns the differences of each search between a group and its baseline; an empty object for one without."""
    if (baseline := dataset.baselines.get(group)) is None:
        return {}
    scores = scores_by_group[group]
    differences = {
        name: _differences(scores[name], rows, measurement) for name, rows in scores_by_group[baseline].items()
    }
    return {"baseline": baseline.value, "minus_baseline": differences}


def _differences(first: Rows, second: Rows, measurement: Measurement) -> dict[str, Any]:
    """Returns the mean of first − second and its interval, by each of the measures that are compared."""
    differences = {
        measure: metrics.paired_difference([row[measure] for row in first], [row[measure] for row in second])
        for measure in measurement.compared
    }
    return {
        measure: {name: None if value is None else round(value, DECIMALS) for name, value in asdict(one).items()}
        for measure, one in differences.items()
    }
