"""How English expressions of time combine: parts, ranges, borders, distances from a date."""

from __future__ import annotations

import re
from datetime import date, timedelta

from graphmem.retrieval.temporal import periods
from graphmem.retrieval.temporal.english import COUNT, WEEKDAY, number, rules
from graphmem.retrieval.temporal.expressions import (
    MAX_GAP,
    TimeExpression,
    combine_with_year,
    join_pairs,
    scan,
    share_year,
    with_prefix,
)
from graphmem.retrieval.temporal.periods import Period

# What is longer is no question but a text, and its dates are not what is asked about.
MAX_CHARS = 1_000
PARTS = {"middle": "mid", "beginning": "early", "start": "early", "end": "late"}
NTH = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4, "last": -1}

_PART = re.compile(
    r"\b(?:(?P<part>early|mid|late)(?: in)?(?: the)?[ -]|(?:the )?"
    r"(?P<of>beginning|start|middle|end|first half|second half) of (?:the )?)$",
    re.IGNORECASE,
)
_NTH = re.compile(
    rf"\b(?:the )?(?P<nth>{'|'.join(NTH)}) (?P<unit>weekend|week|{WEEKDAY}) (?:of|in) (?:the )?(?:month of )?$",
    re.IGNORECASE,
)
_WEEK_OF = re.compile(r"\b(?:the )?(?P<unit>weekend|week) of (?:the )?$", re.IGNORECASE)
_DISTANCE = re.compile(
    rf"\b(?:(?:the|last|{COUNT}) )?(?P<unit>day|night|weekend|week|month|year|{WEEKDAY})s? "
    r"(?P<side>before|prior to|after|following) (?:the )?$",
    re.IGNORECASE,
)
_BORDER = re.compile(
    r"\b(?P<side>before|prior to|until|till|up to|by|after|since)(?: about| around| the)? $", re.IGNORECASE
)
_BETWEEN = re.compile(r"\b(?:between|from)(?: the)? $", re.IGNORECASE)
_TO = re.compile(r"\s?(?P<word>and|to|-|–|until|till|through)\s?(?:the )?", re.IGNORECASE)
_LISTED = re.compile(r",? (?:and|or) (?:in |on )?(?:the )?|, ", re.IGNORECASE)
_SAME = re.compile(r"(?:,|'s)?(?: (?:of|in|on|at|during|around|the))*\s?", re.IGNORECASE)


def find_expressions(text: str, today: date) -> list[TimeExpression]:
    """The expressions of time in a text, each as far as its words belong together."""
    atoms = scan(text, today, rules())
    atoms = join_pairs(text, atoms, _weekday_of_date)
    for pattern, act in ((_PART, _part), (_NTH, _nth), (_WEEK_OF, _week_of)):
        atoms = with_prefix(text, atoms, pattern, act)
    atoms = join_pairs(text, atoms, _same)
    atoms = with_prefix(text, atoms, _DISTANCE, _distance)
    atoms = join_pairs(text, atoms, lambda one, other, words: _range(text, today, (one, other), words))
    return with_prefix(text, atoms, _BORDER, _border)


def _weekday_of_date(one: TimeExpression, other: TimeExpression, words: str) -> list[TimeExpression] | None:
    """The date alone, of "Friday, 7 May"."""
    is_weekday = one.period.days == 1 and not one.period.is_exact and one.build is None
    if is_weekday and other.period.days == 1 and other.period.is_exact and _SAME.fullmatch(words):
        return [other]
    return None


def _part(atom: TimeExpression, match: re.Match[str]) -> TimeExpression:
    word = (match["part"] or match["of"]).casefold()
    return atom.map_period(lambda whole: periods.part(whole, PARTS.get(word, word)))


def _nth(atom: TimeExpression, match: re.Match[str]) -> TimeExpression:
    place, unit = NTH[match["nth"].casefold()], match["unit"].casefold()
    return atom.map_period(lambda whole: periods.nth(whole, place, unit))


def _week_of(atom: TimeExpression, match: re.Match[str]) -> TimeExpression | None:
    if atom.period.days > 1:
        return None
    unit = match["unit"].casefold()
    return atom.map_period(lambda whole: periods.calendar(unit, whole.first, 0))


def _same(one: TimeExpression, other: TimeExpression, words: str) -> list[TimeExpression] | None:
    if _SAME.fullmatch(words):
        return combine_with_year(one, other)
    return share_year(one, other) if _LISTED.fullmatch(words) or _TO.fullmatch(words) else None


def _distance(atom: TimeExpression, match: re.Match[str]) -> TimeExpression:
    unit = match["unit"].casefold().replace("night", "day")
    back = match["side"].casefold() in ("before", "prior to")
    if unit in periods.WEEKDAYS:
        return atom.map_period(lambda whole: _nearest(whole, periods.WEEKDAYS.index(unit), back=back))
    count = number(match["count"])
    return atom.map_period(lambda whole: periods.offset(whole, -count if back else count, unit))


def _nearest(whole: Period, weekday: int, *, back: bool) -> Period:
    """The day of the week before a period and up to it (told then), or after it."""
    if back:
        day = periods.weekday(whole.first, weekday, "last")
        return periods.until(day.first, whole.last + timedelta(1))
    return periods.weekday(whole.last, weekday, "next")


def _range(
    text: str, today: date, ends: tuple[TimeExpression, TimeExpression], words: str
) -> list[TimeExpression] | None:
    match = _TO.fullmatch(words)
    begin = ends[0].begin
    if match is None or (
        match["word"].casefold() == "and" and not _BETWEEN.search(text[max(0, begin - MAX_GAP) : begin])
    ):
        return None
    return [ends[0].range_to(ends[1], today)]


def _border(atom: TimeExpression, match: re.Match[str]) -> TimeExpression:
    side = match["side"].casefold()
    if side in ("after", "since"):
        return TimeExpression(0, atom.end, periods.after(atom.period, since=side == "since"))
    return TimeExpression(0, atom.end, periods.before(atom.period, through=side not in ("before", "prior to")))
