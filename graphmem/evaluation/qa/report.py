"""Builds the report of a run from its results file as JSON data, and writes it as Markdown and as a figure in SVG.

Texts of a results file are data: they are escaped. The measures of an answer by its words, and of the agreement of two
judges, are pure functions.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from statistics import fmean
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from graphmem.errors import ValidationError
from graphmem.evaluation import metrics
from graphmem.evaluation.qa.results import Record, Recorded
from graphmem.evaluation.qa.stemming import stem
from graphmem.evaluation.qa.systems import SYSTEMS, WORDS

DECIMALS = 4
Answers = Sequence[Record]
# Of LOCOMO: no other data has these names of categories.
_MULTI_HOP, _OPEN_DOMAIN = "1", "3"
# Words that LOCOMO leaves out, and those by which an answer says that nothing is told.
_LEFT_OUT = re.compile(r"\b(?:a|an|the|and)\b")
_NOT_TOLD = ("no information available", "not mentioned")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
# Of the figure, in pixels: height of a row, widths of the labels, of the axis and of the column of tokens, margins; and
# the characters of a judge's name that fit above the axis.
_ROW, _LABELS, _AXIS, _TOKENS, _MARGIN, _HEAD = 26, 150, 420, 110, 16, 44
_MAX_NAME = 40
_BAR, _INK, _GRID = "#4c78a8", "#222", "#ddd"

DIFFERENT_QUESTIONS = "The systems have answered different questions: their figures cannot be compared."
# What the columns of a report are; `benchmarks/qa/README.md` says more.
_MEANINGS = (
    "*right*: the judge says so; an answer that *failed* (refused, empty, cut off) is wrong without a judge, one that",
    "is *unjudged* has no readable verdict and does not count. *F1*: of the stems of words, by category as LOCOMO's",
    "evaluation has it. *BLEU-1*: precision of the words times the brevity penalty. All in percent. *evidence*: share",
    "of the evidence that is in the notes, - where notes do not tell their sources. *search*: making the notes;",
    "*total*: with the answer. *tokens/question*: request and answer as the endpoint counts them, - if it does not;",
    "*tokens/conversation*: those of the memory's model to store it. Money is by the prices that the run was given, 0",
    "without them.",
)


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
        "same_questions": len({frozenset(asked) for asked in _asked(answers).values()}) == 1,
        "figures": [
            {"category": category, "name": name, "systems": _by_system(group, systems, recorded, judges)}
            for category, name, group in _groups(answers)
        ],
        "spent": _spent(answers, recorded, judges),
        "agreement": [
            _agreement(answers, (first, judges[first]), (second, judges[second]))
            for first, second in combinations(range(len(judges)), 2)
        ],
    }


def _asked(answers: Answers) -> dict[str, set[str]]:
    """Returns the ids of the questions that each system has answered."""
    asked: dict[str, set[str]] = {}
    for one in answers:
        asked.setdefault(one["system"], set()).add(one["question_id"])
    return asked


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
    memory = SYSTEMS[system].memory if system in SYSTEMS else WORDS
    stored = [recorded.stored.get((memory, name)) for name in {one["conversation"] for one in rows}]
    return {
        "n": len(rows),
        "failed": sum(one["failure"] is not None for one in rows),
        "f1": _mean(rows, _f1),
        "bleu_1": _mean(rows, _bleu_1),
        "right": [_mean(rows, partial(_is_right, place)) for place in range(len(judges))],
        "unjudged": [sum(_is_right(place, one) is None for one in rows) for place in range(len(judges))],
        "evidence_recall": _mean(rows, lambda one: one["evidence_recall"]),
        "search_ms": _percentiles([one["seconds"]["search"] for one in rows]),
        "total_ms": _percentiles([sum(one["seconds"].values()) for one in rows]),
        # None for an endpoint that counts none.
        "tokens_per_question": round(fmean(answer_tokens)) or None,
        # What the memory's model took to store one; 0 for a system without a memory.
        "tokens_per_conversation": round(fmean(0 if one is None else _tokens(one["usage"]) for one in stored)),
        "cost": round(sum(one["usage"]["cost"] for one in rows), 6),
    }


def _bleu_1(one: Record) -> float | None:
    return bleu_1(one["answer"], one["right_answer"]) if "right_answer" in one else None


def _f1(one: Record) -> float | None:
    """Returns the F1 of an answer, None if the file was published without the right one."""
    if "right_answer" not in one:
        return None
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


def _spent(answers: Answers, recorded: Recorded, judges: Sequence[str]) -> list[dict[str, Any]]:
    """Returns what each model of the run was asked for these answers, and for storing: calls, tokens and money."""
    models = recorded.run["models"]
    usages = [("answer", models["answer"], [one["usage"] for one in answers])]
    usages += [
        ("judge", name, [one["verdicts"][place]["usage"] for one in answers]) for place, name in enumerate(judges)
    ]
    usages += [("memory", models["memory"], [one["usage"] for one in recorded.stored.values()])]
    return [
        {
            "role": role,
            "model": model,
            **{key: sum(usage[key] for usage in given) for key in ("calls", "prompt_tokens", "completion_tokens")},
            "cost": round(sum(usage["cost"] for usage in given), 4),
        }
        for role, model, given in usages
        if any(usage["calls"] for usage in given)
    ]


def _agreement(answers: Answers, first: tuple[int, str], second: tuple[int, str]) -> dict[str, Any]:
    """Returns how often two judges, each (place, model), agree on the answers that both have judged.

    An answer that failed is wrong without a judge, so it says nothing of them.
    """
    judged = [one for one in answers if one["failure"] is None]
    verdicts = [[_is_right(place, one) for place, _ in (first, second)] for one in judged]
    pairs = [(one, other) for one, other in verdicts if one is not None and other is not None]
    kappa = cohens_kappa(pairs) if pairs else None
    return {
        "judges": [first[1], second[1]],
        "n": len(pairs),
        "agree": round(fmean(one == other for one, other in pairs), DECIMALS) if pairs else None,
        "kappa": None if kappa is None else round(kappa, DECIMALS),
    }


def answer_f1(given: str, right: str, category: str, *, is_answerable: bool) -> float:
    """Returns LOCOMO's measure of an answer, 0 to 1, as its published evaluation computes it by category.

    In category 1 the parts of the right answer between commas count alike, each by the best part of the given answer;
    in category 3 only what is before a semicolon counts. An answer to what nothing answers is 1 if it says so in
    LOCOMO's words. Every other is `token_f1` (Maharana et al., 2024, section 4.1; `task_eval/evaluation.py`).
    """
    if not is_answerable:
        return float(any(words in given.lower() for words in _NOT_TOLD))
    if category == _MULTI_HOP:
        return fmean(max(token_f1(one, part) for one in given.split(",")) for part in right.split(","))
    return token_f1(given, right.partition(";")[0] if category == _OPEN_DOMAIN else right)


def token_f1(given: str, right: str) -> float:
    """Returns the harmonic mean of precision and recall of the stems, repetitions counted; 0 if none is common."""
    ours, theirs = (Counter(stems(text)) for text in (given, right))
    common = (ours & theirs).total()
    return 2 * common / (ours.total() + theirs.total()) if common else 0.0


def stems(text: str) -> list[str]:
    """Returns the stems of a text in lower case without punctuation, articles and "and"."""
    return [*map(stem, _LEFT_OUT.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())]


def bleu_1(given: str, right: str) -> float:
    """Returns the precision of the words in lower case, times the brevity penalty (Papineni et al., 2002), 0 to 1.

    Words and signs are as they stand, without stemming, as in the figures published for LOCOMO. A word counts at most
    as often as it is in the right answer. The penalty for g words, fewer than the r of the right answer, is
    exp(1 - r/g).
    """
    ours, theirs = (_WORD_OR_SIGN.findall(text.lower()) for text in (given, right))
    if not ours:
        return 0.0
    precision = (Counter(ours) & Counter(theirs)).total() / len(ours)
    return precision * min(1.0, math.exp(1 - len(theirs) / len(ours)))


def cohens_kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """Returns the agreement of two judges beyond chance (Cohen, 1960), at most 1, for at least one pair.

    None if chance alone explains full agreement: both always gave one and the same verdict.
    """
    observed = fmean(first == second for first, second in pairs)
    first, second = (fmean(pair[place] for pair in pairs) for place in (0, 1))
    expected = first * second + (1 - first) * (1 - second)
    return None if expected == 1 else (observed - expected) / (1 - expected)


def markdown(report: Mapping[str, Any], figure: str) -> str:
    """Returns the report as a page; `figure` is the name of the file with the figure."""
    return "\n".join(_page(report, figure)) + "\n"


def _page(report: Mapping[str, Any], figure: str) -> Iterator[str]:
    data, models, judges = report["data"], report["models"], report["models"]["judges"]
    names = ", ".join(f"{_cell(source['name'])} (SHA-256 {source['sha256'][:12]}…)" for source in data["files"])
    yield f"# Answers: {_cell(data['name'])}"
    yield ""
    yield f"{report['questions']} questions about {report['conversations']} conversations of {names}."
    yield f"Answers by {_cell(models['answer'])}; judges: {', '.join(map(_cell, judges)) or 'none'};"
    yield f"the memory's model: {_cell(models['memory'] or 'none')}; embedder: {_cell(models['embedder'])}."
    yield f"In brackets the {report['arguments']['interval_percent']} % interval by conversation."
    if not report["same_questions"]:
        yield f"**{DIFFERENT_QUESTIONS}**"
    yield from ("", *_MEANINGS)
    yield ""
    yield f"![Shares of right answers by system]({figure})"
    for group in report["figures"]:
        title = "All questions" if group["category"] == "all" else f"Category {_cell(group['category'])}"
        yield from ("", f"## {title}{f' ({_cell(name)})' if (name := group['name']) else ''}", "")
        yield from _table(group["systems"], judges)
    yield from ("", "## Time and tokens", "")
    yield from _costs(report["figures"][0]["systems"])
    yield ""
    yield from _spending(report["spent"])
    for pair in report["agreement"]:
        kappa = "undefined" if pair["kappa"] is None else f"{pair['kappa']:.3f}"
        shared = "-" if pair["agree"] is None else f"{100 * pair['agree']:.1f} %"
        yield ""
        yield f"{_cell(pair['judges'][0])} and {_cell(pair['judges'][1])} agree on {shared} of {pair['n']} answers; "
        yield f"Cohen's kappa {kappa}."
    yield from ("", "## Circumstances", "")
    yield f"- {report['date']}, graphmem {report['versions']['graphmem']}, {_cell(report['machine']['model'])}, "
    yield f"  {report['machine']['cpus']} CPUs, Python {report['machine']['python']}"
    arguments = report["arguments"]
    yield f"- intervals: {arguments['resamples']:,} draws of conversations with seed {arguments['seed']}"
    yield from (f"- prompt {name}: SHA-256 {digest[:12]}…" for name, digest in report["prompts"].items())
    yield f"- left out by their label: {report['arguments']['left_out']}"
    yield from (f"- left out: {count} {_cell(reason)}" for reason, count in data["left_out"].items())


def _table(systems: Mapping[str, Any], judges: Sequence[str]) -> Iterator[str]:
    heads = ["system", "n", *(f"right ({_cell(judge)})" for judge in judges), "F1", "BLEU-1", "evidence", "unjudged"]
    yield _row(heads)
    yield _row(["---", *["---:"] * (len(heads) - 1)])
    for name, one in systems.items():
        shares = [interval(value) for value in (*one["right"], one["f1"], one["bleu_1"], one["evidence_recall"])]
        yield _row([_cell(name), str(one["n"]), *shares, "/".join(map(str, one["unjudged"])) or "-"])


def _costs(systems: Mapping[str, Any]) -> Iterator[str]:
    yield _row(
        ["system", "search p50", "p95", "total p50", "p95 (ms)", "tokens/question", "tokens/conversation", "failed"]
    )
    yield _row(["---", *["---:"] * 7])
    for name, one in systems.items():
        times = [f"{one[key][percent]:.1f}" for key in ("search_ms", "total_ms") for percent in ("p50", "p95")]
        counts = [
            "-" if one[key] is None else str(one[key])
            for key in ("tokens_per_question", "tokens_per_conversation", "failed")
        ]
        yield _row([_cell(name), *times, *counts])


def _spending(spent: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield _row(["asked in all", "model", "calls", "tokens in", "tokens out", "money"])
    yield _row(["---", "---", *["---:"] * 4])
    for one in spent:
        counts = [f"{one[key]:,}" for key in ("calls", "prompt_tokens", "completion_tokens")]
        yield _row([one["role"], _cell(one["model"]), *counts, f"{one['cost']:.4f}"])


def interval(value: Mapping[str, Any] | None) -> str:
    """Returns a mean between 0 and 1 in percent with its interval: "61.5 [58.0,64.9]"; "-" for None."""
    if value is None:
        return "-"
    bounds = "" if value["low"] is None else f" [{100 * value['low']:.1f},{100 * value['high']:.1f}]"
    return f"{100 * value['mean']:.1f}{bounds}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: object) -> str:
    """Returns a text of one line that is no markup in a table of Markdown."""
    line = " ".join(escape(str(text)).split())
    return "".join(f"\\{sign}" if sign in "|`*_[]\\" else sign for sign in line)


def svg(report: Mapping[str, Any]) -> str:
    """Returns a figure: for each system the share of right answers with its interval, and the tokens of a question.

    Right is what the first judge says, without a judge the F1.
    """
    systems = report["figures"][0]["systems"]
    judges = report["models"]["judges"]
    title = f"right answers by {_short(judges[0])}" if judges else "token F1"
    height = _HEAD + _ROW * len(systems) + 2 * _MARGIN
    width = _LABELS + _AXIS + _TOKENS + 2 * _MARGIN
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="{_INK}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(_LABELS, 18, f"{title}, %"),
        _text(_LABELS + _AXIS + _TOKENS, 18, "tokens/question", "end"),
    ]
    for percent in range(0, 101, 20):
        x = _x(percent / 100)
        parts.append(f'<line x1="{x}" y1="{_HEAD - 4}" x2="{x}" y2="{height - _MARGIN}" stroke="{_GRID}"/>')
        parts.append(_text(x, _HEAD - 8, str(percent), "middle"))
    for place, (name, one) in enumerate(systems.items()):
        parts += _bar(
            _HEAD + _ROW * place, name, (one["right"][0] if judges else one["f1"]), one["tokens_per_question"]
        )
    return "\n".join([*parts, "</svg>", ""])


def _bar(top: int, name: str, value: Mapping[str, Any] | None, tokens: int | None) -> Iterator[str]:
    middle = top + _ROW // 2
    yield _text(_LABELS - 8, middle + 4, name, "end")
    yield _text(_LABELS + _AXIS + _TOKENS, middle + 4, "-" if tokens is None else f"{tokens:,}", "end")
    if value is None:
        return
    length = _x(value["mean"]) - _LABELS
    yield f'<rect x="{_LABELS}" y="{top + 5}" width="{length:.1f}" height="{_ROW - 10}" fill="{_BAR}"/>'
    if value["low"] is not None:
        low, high = _x(value["low"]), _x(value["high"])
        yield f'<line x1="{low}" y1="{middle}" x2="{high}" y2="{middle}" stroke="{_INK}" stroke-width="2"/>'


def _short(name: str) -> str:
    """Returns a name, its end cut off if it does not fit above the axis."""
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def _x(share: float) -> float:
    return round(_LABELS + _AXIS * share, 1)


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(" ".join(words.split()))}</text>'
