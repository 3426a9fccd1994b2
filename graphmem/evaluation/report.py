"""Builds the report of a benchmark run as JSON data: figures, differences, latency, and how they were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from graphmem.evaluation import metrics
from graphmem.evaluation.datasets import Dataset, QuestionGroup
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import DEPTH, TOP_K, Measurement, RunResult, StoredMessages

DECIMALS = 4
Rows = Sequence[Mapping[str, float]]
"""The measures of each question."""
Scores = Mapping[str, Rows]
"""The measures of each question by search."""


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
