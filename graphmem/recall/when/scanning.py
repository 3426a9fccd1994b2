"""What the languages share: expressions of time where they stand in a text, and joining those that belong together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TypeAlias

from graphmem.recall.when import periods
from graphmem.recall.when.periods import Period, Yearly

# How far back a text is looked at for words that belong to an expression.
REACH = 60
# There is no 31 February, no day 999 years before the year 900, and no count of "s\u0130x", which matches "six".
NO_DATE = (ValueError, OverflowError, LookupError)


@dataclass(frozen=True, slots=True)
class Atom:
    """An expression between two places of a text; `build` gives its period of another year, if it names none."""

    begin: int
    end: int
    period: Period
    build: Yearly | None = None

    @property
    def is_year(self) -> bool:
        """Whether it is a whole calendar year."""
        return self.build is None and self.period == _year_of(self.period)

    def to(self, other: Atom, period: Period) -> Atom:
        """One atom from the beginning of this to the end of the other."""
        return Atom(min(self.begin, other.begin), max(self.end, other.end), period)

    def cut(self, act: Callable[[Period], Period]) -> Atom:
        """Of this period what `act` makes of it, in every year."""
        build = self.build
        of_year = None if build is None else lambda number: act(build(number))
        return replace(self, period=act(self.period), build=of_year)

    def through(self, other: Atom, today: date) -> Atom:
        """The time from this to the other one, in every year if neither names one."""
        begin, end = min(self.begin, other.begin), max(self.end, other.end)
        one, two = self.build, other.build
        if one is None or two is None:
            return Atom(begin, end, periods.joined(self.period, other.period))

        def build(number: int) -> Period:
            ahead = two(number)
            return periods.joined(one(number), ahead if ahead.end > one(number).start else two(number + 1))

        return Atom(begin, end, periods.latest(build, today), build)


Read: TypeAlias = Callable[[re.Match[str], date], Period | tuple[Period, Yearly] | None]
Rule: TypeAlias = tuple[re.Pattern[str], Read]


def scan(text: str, today: date, rules: Iterable[Rule]) -> list[Atom]:
    """The expressions that the rules find, in the order of the text; where two overlap the earlier rule's holds."""
    found: list[Atom] = []
    for pattern, read in rules:
        for match in pattern.finditer(text):
            if not any(match.start() < atom.end and atom.begin < match.end() for atom in found):
                found.extend(_read(match, today, read))
    return sorted(found, key=lambda atom: atom.begin)


def named(build: Yearly, today: date, which: str | None, year: int | None) -> tuple[Period, Yearly] | Period:
    """Something with a place in every year, of the year that is said or meant."""
    if year is not None:
        return build(year)
    if which:
        return periods.chosen(build, today, which)
    return periods.latest(build, today), build


def pairs(text: str, atoms: Sequence[Atom], join: Callable[[Atom, Atom, str], list[Atom] | None]) -> list[Atom]:
    """Each two neighbours as `join` puts them, given the words between them; None leaves them as they are."""
    done: list[Atom] = []
    for atom in atoms:
        made = _joined(join, done[-1], atom, text) if done else None
        done = [*done, atom] if made is None else [*done[:-1], *made]
    return done


def led(
    text: str, atoms: Sequence[Atom], pattern: re.Pattern[str], act: Callable[[Atom, re.Match[str]], Atom | None]
) -> list[Atom]:
    """Each atom with the words before it that match; atoms that those words hold themselves are none."""
    done: list[Atom] = []
    for atom in atoms:
        start = max(0, atom.begin - REACH)
        match = pattern.search(text[start : atom.begin])
        made = _acted(act, atom, match) if match else None
        if made is None or match is None:
            done.append(atom)
        else:
            made = replace(made, begin=start + match.start())
            done = [*(each for each in done if each.end <= made.begin), made]
    return done


def of_year(one: Atom, other: Atom) -> list[Atom] | None:
    """Of "May" and "last year", in either order, one."""
    for build, said in ((one.build, other), (other.build, one)):
        if build is not None and said.is_year:
            return [one.to(other, build(said.period.first.year))]
    return None


def share_year(one: Atom, other: Atom) -> list[Atom] | None:
    """Of "May" and "June 2023" the first in the year of the second, or the year before."""
    if one.build is None or other.build is not None or not other.period.dated:
        return None
    before = one.build(other.period.first.year)
    if before.start > other.period.start:
        before = one.build(other.period.first.year - 1)
    return [replace(one, period=before, build=None), other]


def _year_of(period: Period) -> Period | None:
    return periods.year(period.first.year) if period.first.year < periods.END.year else None


def _read(match: re.Match[str], today: date, read: Read) -> list[Atom]:
    try:
        meant = read(match, today)
    except NO_DATE:
        return []
    if meant is None:
        return []
    period, build = meant if isinstance(meant, tuple) else (meant, None)
    return [Atom(match.start(), match.end(), period, build)]


def _acted(act: Callable[[Atom, re.Match[str]], Atom | None], atom: Atom, match: re.Match[str]) -> Atom | None:
    try:
        return act(atom, match)
    except NO_DATE:
        return None


def _joined(
    join: Callable[[Atom, Atom, str], list[Atom] | None], one: Atom, other: Atom, text: str
) -> list[Atom] | None:
    try:
        return join(one, other, text[one.end : other.begin])
    except NO_DATE:
        return None
