"""Builds the report of a run from its results file as JSON data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from graphmem.errors import ValidationError
from graphmem.evaluation import metrics
from graphmem.evaluation.qa.results import Record, Recorded
from graphmem.evaluation.qa.scores import answer_f1, bleu_1, cohens_kappa
from graphmem.evaluation.qa.systems import SYSTEMS, WORDS

DECIMALS = 4
Answers = Sequence[Record]


def build_report(recorded: Recorded, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Returns the figures of each system, together and by category, and the circumstances; ready for JSON.

    Answers to the questions with the ids `leave_out` do not count. Raises ValidationError if none is left.
    """
    answers = [one for one in recorded.answers.values() if one["question_id"] not in leave_out]
    if not answers:
        raise ValidationError("report: the file holds no answers yet; run the command until it has some")
    systems = list(dict.fromkeys(one["system"] for one in answers))
    systems.sort(key=lambda name: (list(SYSTEMS).index(name) if name in SYSTEMS else len(SYSTEMS), name))
    judges = recorded.run["models"]["judges"]
    return {
        "benchmark": "qa",
        **{key: value for key, value in recorded.run.items() if key != "kind"},
        "arguments": {
            "resamples": metrics.RESAMPLES,
            "seed": metrics.SEED,
            "interval_percent": metrics.CONFIDENCE_LEVEL,
            "left_out": len({one["question_id"] for one in recorded.answers.values()} & set(leave_out)),
        },
        "questions": len({one["question_id"] for one in answers}),
        "conversations": len({one["conversation"] for one in answers}),
        "figures": [
            {"category": category, "name": name, "systems": _by_system(group, systems, recorded, judges)}
            for category, name, group in _groups(answers)
        ],
        "agreement": [
            _agreement(answers, (first, judges[first]), (second, judges[second]))
            for first, second in combinations(range(len(judges)), 2)
        ],
    }


def _groups(answers: Answers) -> Iterable[tuple[str, str, Answers]]:
    yield "all", "", answers
    categories = sorted({(one["category"], one["category_name"]) for one in answers})
    for category, name in categories:
        yield category, name, [one for one in answers if one["category"] == category]


def _by_system(
    answers: Answers, systems: Iterable[str], recorded: Recorded, judges: Sequence[str]
) -> dict[str, dict[str, Any]]:
    by_system = {name: [one for one in answers if one["system"] == name] for name in systems}
    return {name: _figures(name, rows, recorded, judges) for name, rows in by_system.items() if rows}


def _figures(system: str, rows: Answers, recorded: Recorded, judges: Sequence[str]) -> dict[str, Any]:
    answer_tokens = [_tokens(one["usage"]) for one in rows]
    return {
        "n": len(rows),
        "failed": sum(one["failure"] is not None for one in rows),
        "f1": _mean(rows, _f1),
        "bleu_1": _mean(rows, lambda one: bleu_1(one["answer"], one["right_answer"])),
        "right": [_mean(rows, partial(_is_right, place)) for place in range(len(judges))],
        "unjudged": [sum(_is_right(place, one) is None for one in rows) for place in range(len(judges))],
        "evidence_recall": _mean(rows, lambda one: one["evidence_recall"]),
        "search_ms": _percentiles([one["seconds"]["search"] for one in rows]),
        "total_ms": _percentiles([sum(one["seconds"].values()) for one in rows]),
        "tokens_per_question": round(fmean(answer_tokens)),
        "tokens_per_conversation": _stored_tokens(system, {one["conversation"] for one in rows}, recorded),
        "cost": round(sum(one["usage"]["cost"] for one in rows), 6),
    }


def _f1(one: Record) -> float:
    return answer_f1(one["answer"], one["right_answer"], one["category"], is_answerable=one["is_answerable"])


def _is_right(place: int, one: Record) -> bool | None:
    """Returns what the judge at a place says of an answer."""
    verdict: bool | None = one["verdicts"][place]["is_right"]
    return verdict


def _mean(rows: Answers, measure: Callable[[Record], float | None]) -> dict[str, Any] | None:
    """Returns the mean, its interval by conversation and the number of rows with a value; None if no row has one."""
    clusters: dict[str, list[float]] = {}
    for one in rows:
        if (value := measure(one)) is not None:
            clusters.setdefault(one["conversation"], []).append(float(value))
    values = [value for cluster in clusters.values() for value in cluster]
    if not values:
        return None
    low, high = metrics.clustered_interval(list(clusters.values())) or (None, None)
    bounds = {name: None if bound is None else round(bound, DECIMALS) for name, bound in (("low", low), ("high", high))}
    return {"mean": round(fmean(values), DECIMALS), **bounds, "n": len(values)}


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    return {f"p{percent}": round(1000 * float(np.percentile(seconds, percent)), 1) for percent in (50, 95)}


def _tokens(usage: Mapping[str, Any]) -> int:
    return int(usage["prompt_tokens"] + usage["completion_tokens"])


def _stored_tokens(system: str, conversations: Collection[str], recorded: Recorded) -> int:
    """Returns the mean tokens that the memory's model took to store a conversation, 0 for a system without one."""
    memory = SYSTEMS[system].memory if system in SYSTEMS else WORDS
    stored = [recorded.stored.get((memory, name)) for name in conversations]
    return round(fmean(0 if one is None else _tokens(one["usage"]) for one in stored))


def _agreement(answers: Answers, first: tuple[int, str], second: tuple[int, str]) -> dict[str, Any]:
    """Returns how often two judges, each (place, model), agree on the answers that both have judged."""
    verdicts = [[_is_right(place, one) for place, _ in (first, second)] for one in answers]
    pairs = [(one, other) for one, other in verdicts if one is not None and other is not None]
    kappa = cohens_kappa(pairs) if pairs else None
    return {
        "judges": [first[1], second[1]],
        "n": len(pairs),
        "agree": round(fmean(one == other for one, other in pairs), DECIMALS) if pairs else None,
        "kappa": None if kappa is None else round(kappa, DECIMALS),
    }
