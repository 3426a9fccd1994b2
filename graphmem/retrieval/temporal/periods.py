"""Stretches of the calendar, in days of UTC: what an expression of time comes to. Pure.

What a function cannot put between the years 1 and 9999 raises ValueError or OverflowError, as `datetime` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeAlias

BEGINNING = datetime.min.replace(tzinfo=UTC)
END = datetime.max.replace(tzinfo=UTC)
DAY = timedelta(days=1)
HALF_YEAR = 6
# Days of a unit when nothing is counted by the calendar.
LENGTH = {"day": 1, "week": 7, "weekend": 7, "month": 30, "season": 91, "year": 365}
PARTS = {
    "early": (0.0, 1 / 3),
    "mid": (1 / 3, 2 / 3),
    "late": (2 / 3, 1.0),
    "first half": (0.0, 0.5),
    "second half": (0.5, 1.0),
}
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True, slots=True)
class Period:
    """Half-open time in UTC; an open end is `BEGINNING` or `END`.

    `is_yearly`: these days of any year; `start` and `end` are those of the latest year in which they have begun.
    `is_exact`: named by its month ("May", "7 May 2023"), so that nothing outside the months it lies in belongs to it.
    """

    start: datetime
    end: datetime
    is_yearly: bool = False
    is_exact: bool = False

    @property
    def first(self) -> date:
        """Its first day."""
        return self.start.date()

    @property
    def last(self) -> date:
        """Its last day."""
        return (self.end - timedelta(microseconds=1)).date()

    @property
    def days(self) -> int:
        """How many days it has."""
        return (self.last - self.first).days + 1


# What has a place in every year: the period, from the year.
Yearly: TypeAlias = Callable[[int], Period]


def days(first: date, count: int = 1, *, dated: bool = False) -> Period:
    """`count` days from `first` on."""
    start = datetime.combine(first, time(), UTC)
    return Period(start, start + count * DAY, is_exact=dated)


def until(first: date, after: date, *, dated: bool = False) -> Period:
    """From `first` up to, without, `after`."""
    return days(first, max(1, (after - first).days), dated=dated)


def month(year: int, number: int) -> Period:
    """A month as its name says it; `number` is 1..12."""
    first = date(year, number, 1)
    return until(first, plus_months(first, 1), dated=True)


def months(year: int, number: int, count: int) -> Period:
    """Months in a row as one stretch, a season for example."""
    first = date(year, number, 1)
    return until(first, plus_months(first, count))


def year(number: int) -> Period:
    """A calendar year."""
    return until(date(number, 1, 1), date(number + 1, 1, 1))


def plus_months(day: date, count: int) -> date:
    """The same day some months later, or the last one that month has."""
    place = day.year * 12 + day.month - 1 + count
    following = date((place + 1) // 12, (place + 1) % 12 + 1, 1)
    return min(date(place // 12, place % 12 + 1, 1) + (day.day - 1) * DAY, following - DAY)


def monday(day: date) -> date:
    """The first day of its week."""
    return day - day.weekday() * DAY


def calendar(unit: str, today: date, count: int) -> Period:
    """The week, weekend, month or year that is `count` after today's own one (before it, if negative)."""
    if unit == "week":
        return days(monday(today) + 7 * count * DAY, 7)
    if unit == "weekend":
        return days(monday(today) + (7 * count + 5) * DAY, 2)
    if unit == "month":
        first = plus_months(today.replace(day=1), count)
        return until(first, plus_months(first, 1))
    return year(today.year + count)


def counted_ago(today: date, count: int | None, unit: str, *, vague: bool) -> Period:
    """So many units before today; None is half of one, and a vague count ("a few") may be one less or two more."""
    if count is None:
        return ago(today, LENGTH[unit] // 2, "day")
    if not vague:
        return ago(today, count, unit)
    return span(ago(today, count + 2, unit), ago(today, count - 1, unit))


def ago(today: date, count: float, unit: str) -> Period:
    """The day, or about the week, month or year, that lies `count` units back (ahead, if negative)."""
    if unit == "weekend":
        return calendar("weekend", today, -int(count))
    centre = plus_months(today, -int(count)) if unit == "month" else today - count * LENGTH[unit] * DAY
    reach = LENGTH[unit] // 2
    return days(centre - reach * DAY, 2 * reach + 1)


def past_units(today: date, count: int, unit: str) -> Period:
    """The past `count` units, today included."""
    return until(today - count * LENGTH[unit] * DAY, today + DAY)


def latest(build: Yearly, today: date) -> Period:
    """The latest that has begun: of "in May", when no year is given."""
    this = build(today.year)
    return replace(this if this.first <= today else build(today.year - 1), is_yearly=True)


def select_period(build: Yearly, today: date, which: str) -> Period:
    """The "last" is the latest that is over, the "next" the first to begin, "this" that of this year."""
    this = build(today.year)
    if which == "last":
        return this if this.last < today else latest_finished(build, today)
    if which == "next":
        return this if this.first > today else build(today.year + 1)
    # A winter that is asked about in its second half has begun a year ago.
    return build(today.year - 1) if this.last.year > today.year and today.month <= HALF_YEAR else this


def latest_finished(build: Yearly, today: date) -> Period:
    """The latest that was over before this year's began: a winter may still go on."""
    before = build(today.year - 1)
    return before if before.last < today else build(today.year - 2)


def weekday(today: date, number: int, which: str) -> Period:
    """A day of the week (0 is Monday): the "last" before today, the "next" after it, "this" week's, or the latest."""
    if which == "this":
        return days(monday(today) + number * DAY)
    if which == "next":
        return days(today + ((number - today.weekday() - 1) % 7 + 1) * DAY)
    back = (today.weekday() - number) % 7
    return days(today - (back or (7 if which == "last" else 0)) * DAY)


def part(whole: Period, name: str) -> Period:
    """A part of a period by its name in `PARTS`; it has whole days."""
    begin, end = (round(whole.days * share) for share in PARTS[name])
    return replace(whole, start=whole.start + begin * DAY, end=whole.start + max(end, begin + 1) * DAY)


def nth(whole: Period, number: int, unit: str) -> Period:
    """The `number`-th (-1: the last) week, weekend or day of the week in a period."""
    length = {"week": 7, "weekend": 2}.get(unit, 1)
    if unit == "week":
        first = whole.first if number > 0 else whole.last - 6 * DAY
    else:
        wanted = WEEKDAYS.index("saturday" if unit == "weekend" else unit)
        first = whole.first + (wanted - whole.first.weekday()) % 7 * DAY
        if number < 0:
            first = whole.last - (whole.last.weekday() - wanted) % 7 * DAY
    first += (max(number, 1) - 1) * 7 * DAY
    if first > whole.last:
        raise ValueError(number)
    return replace(days(first, length), is_yearly=whole.is_yearly, is_exact=whole.is_exact)


def span(one: Period, other: Period) -> Period:
    """From the beginning of one to the end of the other, whichever comes first."""
    return Period(
        min(one.start, other.start),
        max(one.end, other.end),
        is_yearly=one.is_yearly and other.is_yearly,
        is_exact=one.is_exact and other.is_exact,
    )


def before(limit: Period, *, through: bool = False) -> Period:
    """All time before a period begins, or (`through`) before it ends; there is none before the first day."""
    end = limit.end if through else limit.start
    if end == BEGINNING:
        raise ValueError(end)
    return Period(BEGINNING, end)


def after(limit: Period, *, since: bool = False) -> Period:
    """All time after a period has ended, or (`since`) begun."""
    return Period(limit.start if since else limit.end, END)


def offset(anchor: Period, count: int, unit: str) -> Period:
    """The time `count` units after a period, or before it if negative.

    Days and weeks before reach up to the period: what happened then is told at some time in between.
    """
    reach, shift = LENGTH[unit] // 2 * DAY, abs(count) * LENGTH[unit] * DAY
    if count > 0:
        return Period(anchor.end + shift - reach - DAY, anchor.end + shift + reach)
    told = anchor.end if LENGTH[unit] <= LENGTH["week"] else anchor.start - shift + reach + DAY
    return Period(anchor.start - shift - reach, told)
