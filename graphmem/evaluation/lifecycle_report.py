"""Builds the report of simulated years (`lifecycle.run`) as JSON data: what was measured against the bars, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from graphmem.evaluation.environment import environment
from graphmem.evaluation.lifecycle import EQUAL, OFF, ON, TOP_K, Arguments
from graphmem.evaluation.year import GONE, NEEDED, Texts

WAYS = (ON, OFF, EQUAL)
# The bars of LIFECYCLE §17: growth of these sizes in the months from GROWTH_FROM on, in percent.
GROWING, GROWTH_FROM = ("visible", "memories", "rows", "bytes"), 7
RECALL_BAR, BEHIND_BAR, GROWTH_BAR, COMPRESSION_BAR, P99_BAR, RATIO_BAR = 85.0, 3.0, 5.0, 3.0, 100.0, 1.2


def build_report(
    texts: Sequence[Texts], outcomes: Sequence[Mapping[str, Any]], arguments: Arguments, models: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the bars, the figures of all persons together and of each language, and the outcome of each person."""
    languages = dict.fromkeys(one["language"] for one in outcomes)
    figures = {"all": _figures(outcomes)}
    for language in languages if len(languages) > 1 else ():
        figures[language] = _figures([one for one in outcomes if one["language"] == language])
    persons = []
    for one in outcomes:  # with percentiles in place of the single times
        times = {name: _times([one["nights"][name]]) for name in ("cycle_ms", "during_ms", "alone_ms")}
        persons.append({**one, "nights": {**one["nights"], **times}})
    return {
        "benchmark": "lifecycle",
        **environment(),
        "models": dict(models),
        "arguments": {**asdict(arguments), "top_k": TOP_K},
        "data": {
            "files": [asdict(one.source) for one in texts],
            "persons": len(outcomes),
            "messages": sum(one["months"][-1]["told"] for one in outcomes),
            "questions": sum(
                counts["asked"] for one in outcomes for month in one["months"] for counts in month["classes"].values()
            ),
            "seconds": round(sum(one["seconds"] for one in outcomes), 1),
        },
        "bars": list(_bars(figures["all"])),
        "figures": figures,
        "persons": persons,
    }


def _figures(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    classes: dict[str, Counter[str]] = {}
    for one in outcomes:
        for month in one["months"]:
            for name, counts in month["classes"].items():
                classes.setdefault(name, Counter()).update(counts)
    months = [_month(month) for month in zip(*(one["months"] for one in outcomes), strict=True)]
    for earlier, later in pairwise(months):
        for way in (ON, OFF):
            later["growth"][way] = {
                name: round(100 * (later[way][name] / earlier[way][name] - 1), 2) for name in GROWING
            }
    nights = [one["nights"] for one in outcomes]
    return {
        "needed": _shares(_total(counts for name, counts in classes.items() if name in NEEDED)),
        "recognised": _shares(_total(month["recognised"] for one in outcomes for month in one["months"])),
        "classes": {name: _shares(classes[name]) for name in (*NEEDED, GONE) if name in classes},
        "lost": dict(_total(month["lost"] for one in outcomes for month in one["months"])),
        "months": months,
        "nights": dict(_total(night["counts"] for night in nights)),
        "forgotten": dict(_total(night["reasons"] for night in nights)),
        "compression": {
            "made": _ratio([night["made"] for night in nights], "sources"),
            "merged": _ratio(nights, "taken_in"),
        },
        "milliseconds": {
            name: _times(night[f"{name}_ms"] for night in nights) for name in ("cycle", "during", "alone")
        },
    }


def _month(persons: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the sizes and shares of a month, of all persons together."""
    sizes = {way: dict(_total(_numbers(month[way]) for month in persons)) for way in (ON, OFF)}
    needed = _total(counts for month in persons for name, counts in month["classes"].items() if name in NEEDED)
    model = dict(_total(month["model"] for month in persons))
    return {"month": persons[0]["month"], **sizes, "growth": {}, "needed": _shares(needed), "model": model}


def _numbers(size: Mapping[str, Any]) -> dict[str, int]:
    return {name: number for name, number in size.items() if isinstance(number, int)} | dict(size.get("layers", {}))


def _shares(counts: Mapping[str, int]) -> dict[str, Any]:
    """Returns how many questions were asked, and what share of them found an answer, in percent (None: of none)."""
    asked = counts.get("asked", 0)
    names = dict.fromkeys((*WAYS, *sorted(name for name in counts if name != "asked")))
    return {"asked": asked} | {name: round(100 * counts.get(name, 0) / asked, 1) if asked else None for name in names}


def _ratio(parts: Sequence[Mapping[str, Any]], of: str) -> dict[str, Any]:
    sums = {name: _total(part[name] for part in parts) for name in (of, "results")}
    ratio = {
        name: round(sums[of][name] / number, 2) if (number := sums["results"][name]) else None
        for name in ("memories", "bytes")
    }
    return {**{name: dict(counts) for name, counts in sums.items()}, "ratio": ratio}


def _times(lists: Iterable[Sequence[float]]) -> dict[str, float | int]:
    times = [time for one in lists for time in one]
    percentiles = np.percentile(times, (50, 95, 99)) if times else (0.0, 0.0, 0.0)
    named = zip(("p50", "p95", "p99"), percentiles, strict=True)
    return {"number": len(times), **{name: round(float(value), 1) for name, value in named}}


def _bars(figures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields each bar with what was measured, and whether it is met; None: there was nothing to measure."""
    needed, milliseconds = figures["needed"], figures["milliseconds"]
    during, alone = milliseconds["during"]["p99"], milliseconds["alone"]["p99"]
    yield _bar(f"recall@{TOP_K} of what is needed, %", needed[ON], RECALL_BAR, above=True)
    yield _bar("points behind no lifecycle", round(needed[OFF] - needed[ON], 1), BEHIND_BAR, or_equal=True)
    for name in GROWING:
        grown = [month["growth"][ON][name] for month in figures["months"][GROWTH_FROM - 1 :]]
        yield _bar(f"growth of {name} from month {GROWTH_FROM}, highest, %", max(grown, default=None), GROWTH_BAR)
    for name, ratio in figures["compression"]["made"]["ratio"].items():
        yield _bar(f"compression of {name}, : 1", ratio, COMPRESSION_BAR, above=True)
    yield _bar("search P99 during cycles, ms", during, P99_BAR)
    yield _bar("P99 during cycles / without", round(during / alone, 2) if alone else None, RATIO_BAR)


def _bar(
    name: str, value: float | None, limit: float, *, above: bool = False, or_equal: bool = False
) -> dict[str, Any]:
    is_met = None if value is None else value > limit if above else value < limit or (or_equal and value == limit)
    return {
        "bar": name,
        "value": value,
        "limit": f"{'>' if above else '<=' if or_equal else '<'} {limit:g}",
        "met": is_met,
    }


def _total(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Returns the sums; of no counts, zeros for any name."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total
