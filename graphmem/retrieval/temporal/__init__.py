"""The times that a query names, how near to them a memory's observation time is, and events it counts from. Pure.

The grammar is our own, over a closed vocabulary of English and Chinese, and in `languages` over the CLDR's words for
thirteen further languages; a query takes .07 ms. dateparser 1.5
(`search_dates`; 10 MB with its dependencies) takes .2 to 9 ms and parsedatetime 2.6 .03 to 3, but both return a single
moment where "in May 2023" and "last week" are periods, read "may I", "the march" and "2000 dollars" as dates, and know
no seasons, holidays, weekends or ranges. Seasons are those of the northern hemisphere; weeks begin on Monday.
"""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from math import exp, sqrt

from graphmem.retrieval.temporal import chinese, english, languages, periods
from graphmem.retrieval.temporal.english import plain_text
from graphmem.retrieval.temporal.expressions import TimeExpression, union
from graphmem.retrieval.temporal.languages import names_nothing
from graphmem.retrieval.temporal.periods import Period

__all__ = [
    "EventOffset",
    "Period",
    "find_offset",
    "names_nothing",
    "periods_in",
    "proximity",
    "strip_all_times",
    "strip_times",
]

# Days outside a period over which the proximity falls by a factor e, before and after alike. People mostly mention an
# event after its day (31 of 45 events in four LOCOMO conversations; 11 on the day, 3 before), but a proximity that
# falls two or five times faster before the period changed no rank there.
DECAY_DAYS = 5.0
WEEK = 7
# The least proximity of the other days of the month when the query names a day.
SAME_MONTH = 0.6

# Of a query that counts from an event ("two weeks before the wedding").
MAX_ANCHOR_CHARS = 80
HALF_UNIT = 0.5
UNITS = "day|night|evening|morning|weekend|week|month|year"

_ENGLISH_OFFSET = re.compile(
    rf"\b(?:(?P<definite>the|that|last) |{english.COUNT} )(?P<unit>{UNITS})s? "
    rf"(?P<side>before|prior to|after|following) (?P<anchor>[^?.!;,]{{1,{MAX_ANCHOR_CHARS}}})",
    re.IGNORECASE | re.ASCII,
)
# The question that follows the event's words: "the day after the race what did she eat".
_NEXT_QUESTION = re.compile(r" (?:what|who|whom|whose|where|which|how|why)\b.*$", re.IGNORECASE)
# "The week before last" is a week of the calendar.
_NO_EVENT = re.compile(r"last$", re.IGNORECASE)
_PRONOUN = re.compile(r"(?:that|this|it|then|they|he|she|him|her)\b[^\w]*$", re.IGNORECASE)
_CHINESE_OFFSET = re.compile(
    rf"(?P<anchor>[^,，。？?！!、；;]{{2,30}}?)(?P<of>[的之以]?)(?P<side>前|后)的?"
    rf"(?P<count>{chinese.NUMBER}){chinese.UNIT}"
)
# Whether an anchor is a date does not depend on today, so any day serves.
_ANY_DAY = date(2000, 1, 1)
_CLEAR_COUNT = re.compile(r"[\d一三四五六七八九十]")


def periods_in(query: str, now: datetime) -> tuple[Period, ...]:
    """Returns the periods that a query names, in its order; `now` (aware) is the moment of asking. Never raises."""
    today = now.astimezone(UTC).date()
    text = plain_text(query)
    expressions = _spaced_expressions(text, today)
    if chinese.is_chinese(text):
        simplified = chinese.simplify(text)
        found = chinese.find_expressions(simplified, today)
        if languages.is_japanese(text):  # 去年の夏 names a summer alone.
            own = [one for one in found if chinese.is_time_in_japanese(simplified, one)]
            expressions = union(expressions, own)
        else:
            expressions = [*expressions, *found]
    return tuple(dict.fromkeys(expression.period for expression in expressions))


def strip_times(query: str, now: datetime) -> str:
    """Returns a query without its expressions of time but the Chinese ones; `now` (aware) is the moment of asking."""
    text = plain_text(query)
    return _without(text, _spaced_expressions(text, now.astimezone(UTC).date()))


def _spaced_expressions(text: str, today: date) -> list[TimeExpression]:
    """Returns the expressions of all languages but Chinese, in a text as `plain_text` returns it; in its order.

    An English one gives way to one of another time in its place ("8/5/2024" in a Spanish text) or around it:
    "September" to "am 7. September".
    """
    in_english, others = english.find_expressions(text, today), languages.find_expressions(text, today)
    return union([one for one in in_english if not any(_is_part(one, other) for other in others)], others)


def _is_part(one: TimeExpression, other: TimeExpression) -> bool:
    return other.begin <= one.begin and one.end <= other.end and other.period != one.period


def strip_all_times(query: str, now: datetime) -> str:
    """Returns a query without its expressions of time, those in Chinese included, as `strip_times` does.

    Chinese ones stay in a query with spaces, in which they have other places.
    """
    text, today = strip_times(query, now), now.astimezone(UTC).date()
    simplified = chinese.simplify(text)
    if not chinese.is_chinese(text) or len(simplified) != len(text):
        return text
    return _without(text, chinese.find_expressions(simplified, today))


def _without(text: str, expressions: Iterable[TimeExpression]) -> str:
    for expression in sorted(expressions, key=lambda expression: -expression.begin):
        text = f"{text[: expression.begin]} {text[expression.end :]}"
    return text


def proximity(periods: Iterable[Period], at: datetime) -> float:
    """Returns how near an observation time (aware) is to the nearest of the periods: 1 inside, falling to 0.

    With d days outside a period: exp(-d / `DECAY_DAYS`), falling more slowly for periods longer than a week (see
    `_decay_days`). For exact periods: 0 outside their months, else `SAME_MONTH` + (1 - `SAME_MONTH`) times that.
    """
    day = at.astimezone(UTC).date()
    return max(
        (_proximity(occurrence, day) for period in periods for occurrence in _occurrences(period, day)), default=0.0
    )


def _occurrences(period: Period, day: date) -> Iterable[tuple[date, date, bool]]:
    """Returns (first day, last day, is_exact) of a period; of a yearly one in the year of `day` and around it."""
    first, last = period.first, period.last
    if not period.is_yearly:
        return ((first, last, period.is_exact),)
    shifts = (day.year - first.year + shift for shift in (-1, 0, 1))
    return tuple((_plus_years(first, shift), _plus_years(last, shift), period.is_exact) for shift in shifts)


def _plus_years(day: date, years: int) -> date:
    year = min(max(day.year + years, date.min.year), date.max.year)
    return date(year, 2, 28) if (day.month, day.day) == (2, 29) and not isleap(year) else day.replace(year=year)


def _proximity(occurrence: tuple[date, date, bool], day: date) -> float:
    first, last, is_exact = occurrence
    days_outside = max((first - day).days, (day - last).days)
    if days_outside <= 0:
        return 1.0
    if not is_exact:
        return exp(-days_outside / _decay_days(first, last))
    if not _month_number(first) <= _month_number(day) <= _month_number(last):
        return 0.0
    return SAME_MONTH + (1 - SAME_MONTH) * exp(-days_outside / DECAY_DAYS)


def _decay_days(first: date, last: date) -> float:
    """Returns `DECAY_DAYS`, times the square root of the length in weeks for periods longer than a week.

    Periods with an open start or end count as short.
    """
    is_open = first == date.min or last == date.max
    return DECAY_DAYS * (1.0 if is_open else max(1.0, sqrt(((last - first).days + 1) / WEEK)))


def _month_number(day: date) -> int:
    return day.year * 12 + day.month


@dataclass(frozen=True, slots=True)
class EventOffset:
    """A distance from an event: `anchor` has the words for the event; `delta` is negative before it.

    The time that is meant lies within `tolerance` of the event's time plus `delta`.
    """

    anchor: str
    delta: timedelta
    tolerance: timedelta

    def period_from(self, event: datetime) -> Period:
        """Returns the period that is meant, given the event's time (aware).

        Raises OverflowError outside the years 1 to 9999.
        """
        centre = event.astimezone(UTC) + self.delta
        return Period(centre - self.tolerance, centre + self.tolerance)


def find_offset(query: str) -> EventOffset | None:
    """Returns the event from which a query counts and the distance; None without an event, or for a date instead."""
    text = english.plain_text(query)
    if (match := _ENGLISH_OFFSET.search(text)) is not None:
        anchor = _NEXT_QUESTION.sub("", match["anchor"]).strip()
        if (
            not anchor
            or _PRONOUN.match(anchor)
            or _NO_EVENT.match(anchor)
            or english.find_expressions(anchor, _ANY_DAY)
        ):
            return None
        unit = match["unit"].casefold()
        unit = unit if unit in periods.LENGTH else "day"
        count = HALF_UNIT if match["definite"] and unit != "day" else english.number(match["count"])
        sign, vague = -1 if match["side"].casefold() in ("before", "prior to") else 1, english.VAGUE
    elif chinese.is_chinese(text) and (match := _CHINESE_OFFSET.search(chinese.simplify(text))) is not None:
        anchor = match["anchor"].rpartition("在")[2]
        is_clear = match["of"] or _CLEAR_COUNT.match(match["count"]) or chinese.EVENT.search(anchor)
        if not anchor or not is_clear or chinese.find_expressions(anchor + match["side"], _ANY_DAY):
            return None
        unit, sign, vague = chinese.UNITS[match["unit"]], -1 if match["side"] == "前" else 1, chinese.VAGUE
        count = HALF_UNIT if match["count"] == "半" else chinese.number(match["count"])
    else:
        return None
    length = timedelta(days=periods.LENGTH[unit])
    tolerance = max(timedelta(days=1), length / 2) + (2 * length if match["count"] in vague else timedelta(0))
    return EventOffset(anchor, sign * count * length, tolerance)
