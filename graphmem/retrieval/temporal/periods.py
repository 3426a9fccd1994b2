"""Periods of the calendar, in whole days of UTC, that expressions of time name. Pure.

Functions whose result would not lie between the years 1 and 9999 raise ValueError or OverflowError, as `datetime` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeAlias

BEGINNING = datetime.min.replace(tzinfo=UTC)
END = datetime.max.replace(tzinfo=UTC)
DAY = timedelta(days=1)
HALF_YEAR = 6
# Days of a unit where nothing is counted by the calendar.
LENGTH = {"day": 1, "week": 7, "weekend": 7, "month": 30, "season": 91, "year": 365}
# The start and end of a part of a period, as shares of its length.
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
    """A half-open time span in UTC; an open start is `BEGINNING`, an open end is `END`.

    `is_yearly`: these days of every year; `start` and `end` are those of the latest year in which they have begun.
    `is_exact`: named by its month ("May", "7 May 2023"), so that days outside its months do not belong to it.
    `is_about`: counted back in units longer than a day ("a month ago"), so that its days are not exact.
    """

    start: datetime
    end: datetime
    is_yearly: bool = False
    is_exact: bool = False
    is_about: bool = field(default=False, compare=False)

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
        """Its number of days."""
        return (self.last - self.first).days + 1


# Builds a period that exists in every year (a month, a holiday) from the year.
Yearly: TypeAlias = Callable[[int], Period]


def days(first: date, count: int = 1, *, dated: bool = False) -> Period:
    """Returns the period of `count` days from `first` on; `dated` makes it exact."""
    start = datetime.combine(first, time(), UTC)
    return Period(start, start + count * DAY, is_exact=dated)


def on_date(month: int, day: int, count: int = 1) -> Yearly:
    """Returns what makes the `count` days of a year from a date on."""
    return lambda year: days(date(year, month, day), count)


def easter(year: int) -> date:
    """Returns Easter Sunday, by the anonymous Gregorian algorithm."""
    century, rest = divmod(year, 100)
    epact = (19 * (year % 19) + century - century // 4 - (century - (century + 8) // 25 + 1) // 3 + 15) % 30
    ahead = (32 + 2 * (century % 4) + 2 * (rest // 4) - epact - rest % 4) % 7
    late = (year % 19 + 11 * epact + 22 * ahead) // 451
    month, day = divmod(epact + ahead - 7 * late + 114, 31)
    return date(year, month, day + 1)


def orthodox_easter(year: int) -> date:
    """Returns the Easter Sunday of the Orthodox churches, by Meeus's Julian algorithm; of the years 1900 to 2099."""
    epact = (19 * (year % 19) + 15) % 30
    ahead = (2 * (year % 4) + 4 * (year % 7) - epact + 34) % 7
    month, day = divmod(epact + ahead + 114, 31)
    return date(year, month, day + 1) + timedelta(13)


def until(first: date, after: date, *, dated: bool = False) -> Period:
    """Returns the period from `first` to the day before `after`, at least one day."""
    return days(first, max(1, (after - first).days), dated=dated)


def month(year: int, number: int) -> Period:
    """Returns a calendar month as an exact period; `number` is 1..12."""
    first = date(year, number, 1)
    return until(first, plus_months(first, 1), dated=True)


def months(year: int, number: int, count: int) -> Period:
    """Returns `count` consecutive months from month `number` (1..12) on as one period, such as a season."""
    first = date(year, number, 1)
    return until(first, plus_months(first, count))


def year(number: int) -> Period:
    """Returns a calendar year."""
    return until(date(number, 1, 1), date(number + 1, 1, 1))


def plus_months(day: date, count: int) -> date:
    """Returns the same day of the month `count` months later, or that month's last day if it is shorter."""
    month_number = day.year * 12 + day.month - 1 + count
    following = date((month_number + 1) // 12, (month_number + 1) % 12 + 1, 1)
    return min(date(month_number // 12, month_number % 12 + 1, 1) + (day.day - 1) * DAY, following - DAY)


def monday(day: date) -> date:
    """Returns the Monday of a day's week."""
    return day - day.weekday() * DAY


def calendar(unit: str, today: date, count: int) -> Period:
    """Returns the week, weekend, month or year `count` units after today's (before it if negative)."""
    if unit == "week":
        return days(monday(today) + 7 * count * DAY, 7)
    if unit == "weekend":
        return days(monday(today) + (7 * count + 5) * DAY, 2)
    if unit == "month":
        first = plus_months(today.replace(day=1), count)
        return until(first, plus_months(first, 1))
    return year(today.year + count)


def count_ago(today: date, count: int | None, unit: str, *, vague: bool) -> Period:
    """Returns the period `count` units before today (see `ago`); None means half a unit.

    A vague count ("a few") may be one unit less or two more.
    """
    if count is None:
        return replace(ago(today, LENGTH[unit] // 2, "day"), is_about=unit != "day")
    if not vague:
        return ago(today, count, unit)
    return span(ago(today, count + 2, unit), ago(today, count - 1, unit))


def ago(today: date, count: float, unit: str) -> Period:
    """Returns a period of about one unit around the day `count` units back (ahead if negative); of days that day."""
    if unit == "weekend":
        return replace(calendar("weekend", today, -int(count)), is_about=True)
    centre = plus_months(today, -int(count)) if unit == "month" else today - count * LENGTH[unit] * DAY
    half_length = LENGTH[unit] // 2
    return replace(days(centre - half_length * DAY, 2 * half_length + 1), is_about=unit != "day")


def past_units(today: date, count: int, unit: str) -> Period:
    """Returns the past `count` units, today included."""
    return until(today - count * LENGTH[unit] * DAY, today + DAY)


def latest(build: Yearly, today: date) -> Period:
    """Returns the latest of the periods that has begun, as a yearly one: for "in May" without a year."""
    this_year = build(today.year)
    return replace(this_year if this_year.first <= today else build(today.year - 1), is_yearly=True)


def select_period(build: Yearly, today: date, which: str) -> Period:
    """Returns the "last" (the latest that is over), the "next" (the first to begin) or "this" year's period."""
    this_year = build(today.year)
    if which == "last":
        return this_year if this_year.last < today else latest_finished(build, today)
    if which == "next":
        return this_year if this_year.first > today else build(today.year + 1)
    # A winter that is named in its second half has begun in the year before.
    return build(today.year - 1) if this_year.last.year > today.year and today.month <= HALF_YEAR else this_year


def latest_finished(build: Yearly, today: date) -> Period:
    """Returns the period of the year before, or of two years before if that is not over yet, such as a winter."""
    last_year = build(today.year - 1)
    return last_year if last_year.last < today else build(today.year - 2)


def weekday(today: date, number: int, which: str) -> Period:
    """Returns a day of the week (0 is Monday).

    `which`: "last" is before today, "next" after today, "this" in this week, "" the latest one, today included.
    """
    if which == "this":
        return days(monday(today) + number * DAY)
    if which == "next":
        return days(today + ((number - today.weekday() - 1) % 7 + 1) * DAY)
    back = (today.weekday() - number) % 7
    return days(today - (back or (7 if which == "last" else 0)) * DAY)


def part(whole: Period, name: str) -> Period:
    """Returns a part of a period by its name in `PARTS`, rounded to whole days, at least one."""
    begin, end = (round(whole.days * share) for share in PARTS[name])
    return replace(whole, start=whole.start + begin * DAY, end=whole.start + max(end, begin + 1) * DAY)


def nth(whole: Period, number: int, unit: str) -> Period:
    """Returns the `number`-th (-1: the last) "week", "weekend" or weekday (a name in `WEEKDAYS`) of a period.

    Weeks are counted in sevens from the period's first day. Raises ValueError if the period has fewer.
    """
    length = {"week": 7, "weekend": 2}.get(unit, 1)
    if unit == "week":
        first = whole.first if number > 0 else whole.last - 6 * DAY
    else:
        weekday_number = WEEKDAYS.index("saturday" if unit == "weekend" else unit)
        first = whole.first + (weekday_number - whole.first.weekday()) % 7 * DAY
        if number < 0:
            first = whole.last - (whole.last.weekday() - weekday_number) % 7 * DAY
    first += (max(number, 1) - 1) * 7 * DAY
    if first > whole.last:
        raise ValueError(number)
    return replace(days(first, length), is_yearly=whole.is_yearly, is_exact=whole.is_exact)


def span(left: Period, right: Period) -> Period:
    """Returns the period from the earlier start to the later end of two periods."""
    return Period(
        min(left.start, right.start),
        max(left.end, right.end),
        is_yearly=left.is_yearly and right.is_yearly,
        is_exact=left.is_exact and right.is_exact,
        is_about=left.is_about or right.is_about,
    )


def before(limit: Period, *, through: bool = False) -> Period:
    """Returns all time before a period begins, or (`through`) before it ends.

    Raises ValueError for a limit that begins at `BEGINNING`.
    """
    end = limit.end if through else limit.start
    if end == BEGINNING:
        raise ValueError(end)
    return Period(BEGINNING, end)


def after(limit: Period, *, since: bool = False) -> Period:
    """Returns the open-ended period from the end of a period, or with `since` from its start."""
    return Period(limit.start if since else limit.end, END)


def offset(anchor: Period, count: int, unit: str) -> Period:
    """Returns the period `count` units after the period `anchor`, or before it if negative.

    A period some days or weeks before reaches up to the end of `anchor`, because a message that mentions the event may
    have been written on any of these days.
    """
    half_length, shift = LENGTH[unit] // 2 * DAY, abs(count) * LENGTH[unit] * DAY
    if count > 0:
        return Period(anchor.end + shift - half_length - DAY, anchor.end + shift + half_length)
    end = anchor.end if LENGTH[unit] <= LENGTH["week"] else anchor.start - shift + half_length + DAY
    return Period(anchor.start - shift - half_length, end)
