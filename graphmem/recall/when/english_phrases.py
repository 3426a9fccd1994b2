"""How English expressions of time combine: parts, ranges, borders, distances from a date."""

from __future__ import annotations

import re
from datetime import date, timedelta

from graphmem.recall.when import periods
from graphmem.recall.when.english import COUNT, WEEKDAY, number, rules
from graphmem.recall.when.periods import Period
from graphmem.recall.when.scanning import REACH, Atom, led, of_year, pairs, scan, share_year

# What is longer is no question but a text, and its dates are not what is asked about.
LONGEST = 1_000
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


def found(text: str, today: date) -> list[Atom]:
    """The expressions of time in a text, each as far as its words belong together."""
    atoms = scan(text, today, rules())
    atoms = pairs(text, atoms, _weekday_of_date)
    for pattern, act in ((_PART, _part), (_NTH, _nth), (_WEEK_OF, _week_of)):
        atoms = led(text, atoms, pattern, act)
    atoms = pairs(text, atoms, _same)
    atoms = led(text, atoms, _DISTANCE, _distance)
    atoms = pairs(text, atoms, lambda one, other, words: _range(text, today, (one, other), words))
    return led(text, atoms, _BORDER, _border)


def _weekday_of_date(one: Atom, other: Atom, words: str) -> list[Atom] | None:
    """The date alone, of "Friday, 7 May"."""
    is_weekday = one.period.days == 1 and not one.period.dated and one.build is None
    if is_weekday and other.period.days == 1 and other.period.dated and _SAME.fullmatch(words):
        return [other]
    return None


def _part(atom: Atom, match: re.Match[str]) -> Atom:
    word = (match["part"] or match["of"]).casefold()
    return atom.cut(lambda whole: periods.part(whole, PARTS.get(word, word)))


def _nth(atom: Atom, match: re.Match[str]) -> Atom:
    place, unit = NTH[match["nth"].casefold()], match["unit"].casefold()
    return atom.cut(lambda whole: periods.nth(whole, place, unit))


def _week_of(atom: Atom, match: re.Match[str]) -> Atom | None:
    if atom.period.days > 1:
        return None
    unit = match["unit"].casefold()
    return atom.cut(lambda whole: periods.calendar(unit, whole.first, 0))


def _same(one: Atom, other: Atom, words: str) -> list[Atom] | None:
    if _SAME.fullmatch(words):
        return of_year(one, other)
    return share_year(one, other) if _LISTED.fullmatch(words) or _TO.fullmatch(words) else None


def _distance(atom: Atom, match: re.Match[str]) -> Atom:
    unit = match["unit"].casefold().replace("night", "day")
    back = match["side"].casefold() in ("before", "prior to")
    if unit in periods.WEEKDAYS:
        return atom.cut(lambda whole: _nearest(whole, periods.WEEKDAYS.index(unit), back=back))
    count = number(match["count"])
    return atom.cut(lambda whole: periods.offset(whole, -count if back else count, unit))


def _nearest(whole: Period, weekday: int, *, back: bool) -> Period:
    """The day of the week before a period and up to it (told then), or after it."""
    if back:
        day = periods.weekday(whole.first, weekday, "last")
        return periods.until(day.first, whole.last + timedelta(1))
    return periods.weekday(whole.last, weekday, "next")


def _range(text: str, today: date, ends: tuple[Atom, Atom], words: str) -> list[Atom] | None:
    match = _TO.fullmatch(words)
    begin = ends[0].begin
    if match is None or (
        match["word"].casefold() == "and" and not _BETWEEN.search(text[max(0, begin - REACH) : begin])
    ):
        return None
    return [ends[0].through(ends[1], today)]


def _border(atom: Atom, match: re.Match[str]) -> Atom:
    side = match["side"].casefold()
    if side in ("after", "since"):
        return Atom(0, atom.end, periods.after(atom.period, since=side == "since"))
    return Atom(0, atom.end, periods.before(atom.period, through=side not in ("before", "prior to")))
