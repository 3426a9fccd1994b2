"""What the languages share: expressions of time where they stand in a text, and joining those that belong together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TypeAlias

from graphmem.retrieval.temporal import periods
from graphmem.retrieval.temporal.periods import Period, Yearly

# How far back a text is looked at for words that belong to an expression.
MAX_GAP = 60
# There is no 31 February, no day 999 years before the year 900, and no count of "s\u0130x", which matches "six".
NO_DATE = (ValueError, OverflowError, LookupError)


@dataclass(frozen=True, slots=True)
class TimeExpression:
    """An expression between two places of a text; `build` gives its period of another year, if it names none."""

    begin: int
    end: int
    period: Period
    build: Yearly | None = None

    @property
    def is_year(self) -> bool:
        """Whether it is a whole calendar year."""
        return self.build is None and self.period == _year_of(self.period)

    def merged(self, other: TimeExpression, period: Period) -> TimeExpression:
        """One atom from the beginning of this to the end of the other."""
        return TimeExpression(min(self.begin, other.begin), max(self.end, other.end), period)

    def map_period(self, act: Callable[[Period], Period]) -> TimeExpression:
        """Of this period what `act` makes of it, in every year."""
        build = self.build
        of_year = None if build is None else lambda number: act(build(number))
        return replace(self, period=act(self.period), build=of_year)

    def range_to(self, other: TimeExpression, today: date) -> TimeExpression:
        """The time from this to the other one, in every year if neither names one."""
        begin, end = min(self.begin, other.begin), max(self.end, other.end)
        one, two = self.build, other.build
        if one is None or two is None:
            return TimeExpression(begin, end, periods.span(self.period, other.period))

        def build(number: int) -> Period:
            ahead = two(number)
            return periods.span(one(number), ahead if ahead.end > one(number).start else two(number + 1))

        return TimeExpression(begin, end, periods.latest(build, today), build)


RuleBuilder: TypeAlias = Callable[[re.Match[str], date], Period | tuple[Period, Yearly] | None]
Rule: TypeAlias = tuple[re.Pattern[str], RuleBuilder]


def scan(text: str, today: date, rules: Iterable[Rule]) -> list[TimeExpression]:
    """The expressions that the rules find, in the order of the text; where two overlap the earlier rule's holds."""
    found: list[TimeExpression] = []
    for pattern, read in rules:
        for match in pattern.finditer(text):
            if not any(match.start() < atom.end and atom.begin < match.end() for atom in found):
                found.extend(_read(match, today, read))
    return sorted(found, key=lambda atom: atom.begin)


def named_period(build: Yearly, today: date, which: str | None, year: int | None) -> tuple[Period, Yearly] | Period:
    """Something with a place in every year, of the year that is said or meant."""
    if year is not None:
        return build(year)
    if which:
        return periods.select_period(build, today, which)
    return periods.latest(build, today), build


def join_pairs(
    text: str,
    atoms: Sequence[TimeExpression],
    join: Callable[[TimeExpression, TimeExpression, str], list[TimeExpression] | None],
) -> list[TimeExpression]:
    """Each two neighbours as `join` puts them, given the words between them; None leaves them as they are."""
    done: list[TimeExpression] = []
    for atom in atoms:
        made = _joined(join, done[-1], atom, text) if done else None
        done = [*done, atom] if made is None else [*done[:-1], *made]
    return done


def with_prefix(
    text: str,
    atoms: Sequence[TimeExpression],
    pattern: re.Pattern[str],
    act: Callable[[TimeExpression, re.Match[str]], TimeExpression | None],
) -> list[TimeExpression]:
    """Each atom with the words before it that match; atoms that those words hold themselves are none."""
    done: list[TimeExpression] = []
    for atom in atoms:
        start = max(0, atom.begin - MAX_GAP)
        match = pattern.search(text[start : atom.begin])
        made = _acted(act, atom, match) if match else None
        if made is None or match is None:
            done.append(atom)
        else:
            made = replace(made, begin=start + match.start())
            done = [*(each for each in done if each.end <= made.begin), made]
    return done


def combine_with_year(one: TimeExpression, other: TimeExpression) -> list[TimeExpression] | None:
    """Of "May" and "last year", in either order, one."""
    for build, said in ((one.build, other), (other.build, one)):
        if build is not None and said.is_year:
            return [one.merged(other, build(said.period.first.year))]
    return None


def share_year(one: TimeExpression, other: TimeExpression) -> list[TimeExpression] | None:
    """Of "May" and "June 2023" the first in the year of the second, or the year before."""
    if one.build is None or other.build is not None or not other.period.is_exact:
        return None
    before = one.build(other.period.first.year)
    if before.start > other.period.start:
        before = one.build(other.period.first.year - 1)
    return [replace(one, period=before, build=None), other]


def _year_of(period: Period) -> Period | None:
    return periods.year(period.first.year) if period.first.year < periods.END.year else None


def _read(match: re.Match[str], today: date, read: RuleBuilder) -> list[TimeExpression]:
    try:
        meant = read(match, today)
    except NO_DATE:
        return []
    if meant is None:
        return []
    period, build = meant if isinstance(meant, tuple) else (meant, None)
    return [TimeExpression(match.start(), match.end(), period, build)]


def _acted(
    act: Callable[[TimeExpression, re.Match[str]], TimeExpression | None], atom: TimeExpression, match: re.Match[str]
) -> TimeExpression | None:
    try:
        return act(atom, match)
    except NO_DATE:
        return None


def _joined(
    join: Callable[[TimeExpression, TimeExpression, str], list[TimeExpression] | None],
    one: TimeExpression,
    other: TimeExpression,
    text: str,
) -> list[TimeExpression] | None:
    try:
        return join(one, other, text[one.end : other.begin])
    except NO_DATE:
        return None
