"""Builds the report of a benchmark run as JSON data: figures, differences, latency, and how they were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from graphmem.evaluation import metrics
from graphmem.evaluation.datasets import Dataset, QuestionGroup
from graphmem.evaluation.environment import environment
from graphmem.evaluation.runner import DEPTH, TOP_K, RunResult, StoredMessages

DECIMALS = 4
# The measures whose differences between two configurations are reported.
COMPARED_MEASURES = ("recall@10", "all@10")

Pair = tuple[str, str]


def build_report(
    dataset: Dataset, outcome: RunResult, pairs: Sequence[Pair], models: Mapping[str, str]
) -> dict[str, Any]:
    """Returns all measurements of a run and their circumstances, ready for JSON.

    Each of `pairs` names two configurations, whose difference (first minus second) is reported. `models` names the
    embedder and the extractor.
    """
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
        "figures": [_figure(group, cases, outcome, pairs) for group, cases in _cases_by_group(dataset)],
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


def _figure(group: QuestionGroup, cases: Sequence[int], outcome: RunResult, pairs: Sequence[Pair]) -> dict[str, Any]:
    group_scores = {name: [scores[index] for index in cases] for name, scores in outcome.scores.items()}
    return {
        **asdict(group),
        "n": len(cases),
        "measures": {
            name: {measure: round(fmean(row[measure] for row in scores), DECIMALS) for measure in scores[0]}
            for name, scores in group_scores.items()
        },
        "differences": [
            {
                "of": [first, second],
                **{
                    measure: _difference(group_scores[first], group_scores[second], measure)
                    for measure in COMPARED_MEASURES
                },
            }
            for first, second in pairs
        ],
    }


def _difference(
    first: Sequence[Mapping[str, float]], second: Sequence[Mapping[str, float]], measure: str
) -> dict[str, float | None]:
    difference = metrics.paired_difference([row[measure] for row in first], [row[measure] for row in second])
    return {name: None if value is None else round(value, DECIMALS) for name, value in asdict(difference).items()}
