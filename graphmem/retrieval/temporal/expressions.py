"""Expressions of time at their places in a text, and how neighbouring ones are joined; for all languages. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from typing import TypeAlias

from graphmem.retrieval.temporal import periods
from graphmem.retrieval.temporal.periods import Period, Yearly

# Characters before an expression that may hold words belonging to it.
MAX_GAP = 60
# Errors of a match that is no date: 31 February, 999 years before the year 900, and the count "s\u0130x", which matches
# "six" but is no key of the numbers.
NO_DATE = (ValueError, OverflowError, LookupError)


@dataclass(frozen=True, slots=True)
class TimeExpression:
    """An expression of time and its period; `begin` and `end` (exclusive) are its place in the text.

    `build` returns its period in another year; None if the expression names its year.
    """

    begin: int
    end: int
    period: Period
    build: Yearly | None = None

    @property
    def is_year(self) -> bool:
        """Whether it is a whole calendar year."""
        year = self.period.first.year
        return self.build is None and year < periods.END.year and self.period == periods.year(year)

    def merged(self, other: TimeExpression, period: Period) -> TimeExpression:
        """Returns one expression with this period, from the earlier begin to the later end of both."""
        return TimeExpression(min(self.begin, other.begin), max(self.end, other.end), period)

    def map_period(self, transform: Callable[[Period], Period]) -> TimeExpression:
        """Returns the expression with its period transformed, also that of other years."""
        build = self.build
        transformed_build = None if build is None else lambda year: transform(build(year))
        return replace(self, period=transform(self.period), build=transformed_build)

    def range_to(self, other: TimeExpression, today: date) -> TimeExpression:
        """Returns the range from this expression to the other; a yearly one if neither names its year.

        If the other would end before this begins, it is that of the next year ("from November to March"), and a weekday
        is the first one afterwards: on a Tuesday, "from Monday to Wednesday" ends tomorrow.
        """
        begin, end = min(self.begin, other.begin), max(self.end, other.end)
        day, first_day = other.period, self.period.first
        if other.build is None and not day.is_exact and day.first == day.last < first_day:
            return TimeExpression(begin, end, periods.days(first_day, 1 + (day.first - first_day).days % 7))
        build_first, build_last = self.build, other.build
        if build_first is None or build_last is None:
            return TimeExpression(begin, end, periods.span(self.period, other.period))

        def build(year: int) -> Period:
            last = build_last(year)
            return periods.span(build_first(year), last if last.end > build_first(year).start else build_last(year + 1))

        return TimeExpression(begin, end, periods.latest(build, today), build)


# Turns a match into its period (with its `Yearly` if it names no year); None if the match is no expression of time.
RuleBuilder: TypeAlias = Callable[[re.Match[str], date], Period | tuple[Period, Yearly] | None]
Rule: TypeAlias = tuple[re.Pattern[str], RuleBuilder]
# Joins two neighbouring expressions, given the words between them; None leaves them as they are.
Join: TypeAlias = Callable[[TimeExpression, TimeExpression, str], list[TimeExpression] | None]
# Applies the words before an expression; None leaves it as it is.
PrefixRule: TypeAlias = Callable[[TimeExpression, re.Match[str]], TimeExpression | None]


def scan(text: str, today: date, rules: Iterable[Rule]) -> list[TimeExpression]:
    """Returns the expressions that the rules find, in the order of the text; of overlapping ones the earlier rule's."""
    found = _Places()
    for pattern, build in rules:
        for match in pattern.finditer(text):
            if not found.has_room(*match.span()):
                continue
            with suppress(*NO_DATE):
                if (result := build(match, today)) is not None:
                    period, build_period = result if isinstance(result, tuple) else (result, None)
                    found.add(TimeExpression(match.start(), match.end(), period, build_period))
    return found.expressions


class _Places:
    """Expressions of which no two share a character, in the order of the text."""

    def __init__(self) -> None:
        self.expressions: list[TimeExpression] = []
        self._begins: list[int] = []

    def _place(self, end: int) -> int:
        return bisect_left(self._begins, end)

    def has_room(self, begin: int, end: int) -> bool:
        """Whether no expression shares a character with this part of the text."""
        place = self._place(end)
        return place == 0 or self.expressions[place - 1].end <= begin

    def add(self, one: TimeExpression) -> None:
        """Adds an expression for which there is room."""
        place = self._place(one.end)
        self._begins.insert(place, one.begin)
        self.expressions.insert(place, one)


def apart(expressions: Iterable[TimeExpression]) -> list[TimeExpression]:
    """Returns the expressions that share no character with an earlier one of these, in the order of the text."""
    found = _Places()
    for one in expressions:
        if found.has_room(one.begin, one.end):
            found.add(one)
    return found.expressions


def union(first: Sequence[TimeExpression], others: Iterable[TimeExpression]) -> list[TimeExpression]:
    """Returns expressions, and of others those that overlap none of them, in the order of the text.

    Neither the first nor the others overlap among themselves.
    """
    return apart([*first, *others])


def named_period(build: Yearly, today: date, which: str | None, year: int | None) -> tuple[Period, Yearly] | Period:
    """Returns the period of the given year, else the one selected by `which`, else the latest with its `Yearly`.

    `which` is as in `periods.select_period`.
    """
    if year is not None:
        return build(year)
    if which:
        return periods.select_period(build, today, which)
    return periods.latest(build, today), build


def join_pairs(text: str, expressions: Sequence[TimeExpression], join: Join) -> list[TimeExpression]:
    """Joins each expression with the one before it, from left to right, where `join` returns a result."""
    joined: list[TimeExpression] = []
    for expression in expressions:
        replacement = None
        if joined:
            with suppress(*NO_DATE):
                replacement = join(joined[-1], expression, text[joined[-1].end : expression.begin])
        if replacement is None:
            joined.append(expression)
        else:
            joined[-1:] = replacement
    return joined


def with_prefix(
    text: str, expressions: Sequence[TimeExpression], pattern: re.Pattern[str], apply: PrefixRule
) -> list[TimeExpression]:
    """Applies the words before each expression that match the pattern, and makes them part of the expression.

    Drops earlier expressions that overlap these words.
    """
    prefixed: list[TimeExpression] = []
    for expression in expressions:
        start = max(0, expression.begin - MAX_GAP)
        match = pattern.search(text[start : expression.begin])
        replacement = None
        if match:
            with suppress(*NO_DATE):
                replacement = apply(expression, match)
        if replacement is None or match is None:
            prefixed.append(expression)
        else:
            replacement = replace(replacement, begin=start + match.start())
            prefixed = [*(earlier for earlier in prefixed if earlier.end <= replacement.begin), replacement]
    return prefixed


def combine_with_year(left: TimeExpression, right: TimeExpression) -> list[TimeExpression] | None:
    """Merges an expression without a year and a year, in either order, such as "May" and "last year"."""
    for build, expression in ((left.build, right), (right.build, left)):
        if build is not None and expression.is_year:
            return [left.merged(right, build(expression.period.first.year))]
    return None


def share_year(left: TimeExpression, right: TimeExpression) -> list[TimeExpression] | None:
    """Gives the first the year of the second ("May and June 2023"), or the year before if it would begin later."""
    if left.build is None or right.build is not None or not right.period.is_exact:
        return None
    period = left.build(right.period.first.year)
    if period.start > right.period.start:
        period = left.build(right.period.first.year - 1)
    return [replace(left, period=period, build=None), right]
