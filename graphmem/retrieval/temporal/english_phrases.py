"""English phrases of time that combine the expressions of `english`. Pure.

Parts ("early May", "the second weekend of June"), ranges ("from May to July"), borders ("before July 2023", "since
May") and distances from a date ("two weeks after 1 May").
"""

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

# Characters of a query that are read: a longer text is no question, and its dates are not asked about.
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
_SAME_TIME = re.compile(r"(?:,|'s)?(?: (?:of|in|on|at|during|around|the))*\s?", re.IGNORECASE)


def plain_text(query: str) -> str:
    """Returns the first `MAX_CHARS` characters of a query with plain apostrophes and single spaces."""
    return " ".join(query[:MAX_CHARS].replace("’", "'").split())


def find_expressions(text: str, today: date) -> list[TimeExpression]:
    """Returns the expressions of time in a text as `plain_text` returns it, each with all words that belong to it."""
    expressions = scan(text, today, rules())
    expressions = join_pairs(text, expressions, _weekday_of_date)
    for pattern, apply in ((_PART, _part), (_NTH, _nth), (_WEEK_OF, _week_of)):
        expressions = with_prefix(text, expressions, pattern, apply)
    expressions = join_pairs(text, expressions, _same_time)
    expressions = with_prefix(text, expressions, _DISTANCE, _distance)
    expressions = join_pairs(text, expressions, lambda left, right, words: _range(text, today, (left, right), words))
    return with_prefix(text, expressions, _BORDER, _border)


def _weekday_of_date(left: TimeExpression, right: TimeExpression, words: str) -> list[TimeExpression] | None:
    """Joins a weekday and its date: leaves only "7 May" of "Friday, 7 May"."""
    is_weekday = left.period.days == 1 and not left.period.is_exact and left.build is None
    if is_weekday and right.period.days == 1 and right.period.is_exact and _SAME_TIME.fullmatch(words):
        return [right]
    return None


def _part(expression: TimeExpression, match: re.Match[str]) -> TimeExpression:
    word = (match["part"] or match["of"]).casefold()
    return expression.map_period(lambda whole: periods.part(whole, PARTS.get(word, word)))


def _nth(expression: TimeExpression, match: re.Match[str]) -> TimeExpression:
    number_in_period, unit = NTH[match["nth"].casefold()], match["unit"].casefold()
    return expression.map_period(lambda whole: periods.nth(whole, number_in_period, unit))


def _week_of(expression: TimeExpression, match: re.Match[str]) -> TimeExpression | None:
    if expression.period.days > 1:
        return None
    unit = match["unit"].casefold()
    return expression.map_period(lambda whole: periods.calendar(unit, whole.first, 0))


def _same_time(left: TimeExpression, right: TimeExpression, words: str) -> list[TimeExpression] | None:
    if _SAME_TIME.fullmatch(words):
        return combine_with_year(left, right)
    return share_year(left, right) if _LISTED.fullmatch(words) or _TO.fullmatch(words) else None


def _distance(expression: TimeExpression, match: re.Match[str]) -> TimeExpression:
    unit = match["unit"].casefold().replace("night", "day")
    back = match["side"].casefold() in ("before", "prior to")
    if unit in periods.WEEKDAYS:
        return expression.map_period(lambda whole: _nearest(whole, periods.WEEKDAYS.index(unit), back=back))
    count = number(match["count"])
    return expression.map_period(lambda whole: periods.offset(whole, -count if back else count, unit))


def _nearest(whole: Period, weekday: int, *, back: bool) -> Period:
    """Returns the first such weekday (0 is Monday) after a period, as for "the Friday after 10 July".

    With `back`, as for "the Friday before 15 July", returns the days from the last such weekday before the period to
    the last day of the period, because a message that mentions the event may have been written on any of these days.
    """
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


def _border(expression: TimeExpression, match: re.Match[str]) -> TimeExpression:
    side = match["side"].casefold()
    if side in ("after", "since"):
        return TimeExpression(0, expression.end, periods.after(expression.period, since=side == "since"))
    return TimeExpression(
        0, expression.end, periods.before(expression.period, through=side not in ("before", "prior to"))
    )
