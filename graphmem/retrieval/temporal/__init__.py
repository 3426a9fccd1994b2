"""What time a question asks about, and how near to it something was said. Pure.

The grammar is our own, over a closed vocabulary of English and Chinese; a question takes .07 ms. dateparser 1.5
(`search_dates`; 10 MB with what it needs) takes .2 to 9 ms and parsedatetime 2.6 .03 to 3, but both give one moment
where "in May 2023" and "last week" are stretches of time, read "may I", "the march" and "2000 dollars" as dates, and
know no seasons, feasts, weekends or ranges. Seasons are those of the northern hemisphere; weeks begin on Monday.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Iterable
from datetime import UTC, date, datetime
from math import exp, sqrt

from graphmem.retrieval.temporal import chinese, english_phrases
from graphmem.retrieval.temporal.offsets import EventOffset, find_offset
from graphmem.retrieval.temporal.periods import Period

__all__ = ["EventOffset", "Period", "find_offset", "periods_in", "proximity", "strip_times"]

# Days outside a period in which closeness falls by a factor e. Both sides are alike: people tell of a day afterwards
# (31 of 45 events in four LOCOMO conversations, 11 on the day, 3 before), but a side before that falls two or five
# times faster changed no rank there.
DECAY_DAYS = 5.0
WEEK = 7
# What every day of the month has of which a question names another day.
SAME_MONTH = 0.6


def periods_in(question: str, now: datetime) -> tuple[Period, ...]:
    """The periods that a question names, in its order; `now` (aware) is the moment it is asked from. Never raises."""
    today = now.astimezone(UTC).date()
    text = _plain(question)
    atoms = english_phrases.find_expressions(text, today)
    if chinese.is_chinese(text):
        atoms = [*atoms, *chinese.find_expressions(chinese.simplify(text), today)]
    return tuple(dict.fromkeys(atom.period for atom in atoms))


def strip_times(question: str, now: datetime) -> str:
    """A question without the English expressions of time in it."""
    text = _plain(question)
    for atom in sorted(
        english_phrases.find_expressions(text, now.astimezone(UTC).date()), key=lambda atom: -atom.begin
    ):
        text = f"{text[: atom.begin]} {text[atom.end :]}"
    return text


def _plain(question: str) -> str:
    return " ".join(question[: english_phrases.MAX_CHARS].replace("’", "'").split())


def proximity(periods: Iterable[Period], at: datetime) -> float:
    """How well an observation time (aware) fits what a question asks about: 1 inside a period, down to 0."""
    day = at.astimezone(UTC).date()
    return max((_closeness(each, day) for period in periods for each in _of_years(period, day)), default=0.0)


def _of_years(period: Period, day: date) -> Iterable[tuple[date, date, bool]]:
    """First and last day, and whether it is dated; of what comes every year those around `day`."""
    first, last = period.first, period.last
    if not period.is_yearly:
        return ((first, last, period.is_exact),)
    years = (day.year - first.year + shift for shift in (-1, 0, 1))
    return tuple((_moved(first, shift), _moved(last, shift), period.is_exact) for shift in years)


def _moved(day: date, years: int) -> date:
    year = min(max(day.year + years, date.min.year), date.max.year)
    return date(year, 2, 28) if (day.month, day.day) == (2, 29) and not isleap(year) else day.replace(year=year)


def _closeness(days: tuple[date, date, bool], day: date) -> float:
    first, last, dated = days
    beyond = max((first - day).days, (day - last).days)
    if beyond <= 0:
        return 1.0
    if not dated:
        return exp(-beyond / _softness(first, last))
    if not _month_number(first) <= _month_number(day) <= _month_number(last):
        return 0.0
    return SAME_MONTH + (1 - SAME_MONTH) * exp(-beyond / DECAY_DAYS)


def _softness(first: date, last: date) -> float:
    """Grows with the root of the length from a week on."""
    is_open = first == date.min or last == date.max
    return DECAY_DAYS * (1.0 if is_open else max(1.0, sqrt(((last - first).days + 1) / WEEK)))


def _month_number(day: date) -> int:
    return day.year * 12 + day.month
