"""Adds the dates of relative words to a remembered sentence: "yesterday [7 May]", "gestern [7 May]". Pure.

A block is read long after its words were said; with the date beside it nobody has to count back. What has no direction
("Friday", "in May") and what is near enough to the day of the line ("today", "this month") stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from graphmem.retrieval.temporal import WEEK, chinese, english, languages, periods
from graphmem.retrieval.temporal.expressions import MAX_GAP, TimeExpression, scan, union
from graphmem.retrieval.temporal.periods import BEGINNING, END, Period

# The expressions that get a date. Not "this morning", "tonight", "this month" and "this year", nor "like yesterday".
_ENGLISH = re.compile(
    r"yesterday|tomorrow|\bago\b|^(?:last|past|previous|next|coming) |^the (?:past|last) |^this (?!morning|afternoon"
    r"|evening|month|year)",
    re.IGNORECASE,
)
# A sentence without one of these words has none; the grammar of times takes long to find that out.
_ENGLISH_WORD = re.compile(r"yesterday|tomorrow|\b(?:ago|last|past|previous|next|coming|this)\b", re.IGNORECASE)
_FIGURATIVE = re.compile(r"\b(?:like|as if|if) (?:it (?:was|were) )?(?:only |just )?$", re.IGNORECASE)
_CHINESE = re.compile(r"[昨明前后後去]|上|下")
_POSSESSIVE = re.compile(r"['’]s\b")
# The longest periods, in days, that are shown by first and last day, by first and last month, as one counted year, and
# at all.
_DAYS, _MONTHS_LONG, _YEAR, _LONGEST = 16, 200, 370, 2000
# On a Sunday "last week" is the one that just ends as often as the one before, so the block names neither's days.
_SUNDAY = 6
# A counted month ("a year ago") is named up to so many days back, a year beyond.
_MONTH_KNOWN = 550


@dataclass(frozen=True, slots=True)
class RelativeDate:
    """The date of a relative word of time: the text in brackets, and the place in the sentence behind the word."""

    place: int
    text: str
    is_spaced: bool


def dates_of(text: str, said: date, year: int) -> list[RelativeDate]:
    """Returns the dates of the relative words of a text, in its order.

    `said` is the day of the words by the clock of whoever spoke; dates in `year` are written without it.
    """
    dates = list[RelativeDate]()
    about = "約" if languages.is_japanese(text) else "约" if chinese.is_chinese(text) else ""
    for expression in _relative_expressions(text, said):
        label = _label(expression.period, said, year, about=about)
        if label is not None:
            possessive = _POSSESSIVE.match(text, expression.end)
            dates.append(RelativeDate(possessive.end() if possessive else expression.end, label, not about))
    return dates


def insert_dates(text: str, dates: Iterable[RelativeDate], shown: set[str]) -> str:
    """Returns a text with its dates in square brackets; those in `shown` are not repeated, new ones are added to it."""
    parts, done = [], 0
    for one in dates:
        if one.text not in shown:
            shown.add(one.text)
            parts.append(f"{text[done : one.place]}{' ' if one.is_spaced else ''}[{one.text}]")
            done = one.place
    return "".join([*parts, text[done:]])


def _relative_expressions(text: str, said: date) -> list[TimeExpression]:
    """Returns the expressions that get a date, in the order of the text."""
    others = [one for one in languages.find_relative(text, said) if _tells_a_date(one.period, said)]
    if chinese.is_chinese(text):
        own = chinese.find_relative(text, said, is_japanese=languages.is_japanese(text))
        return union(others, [one for one in own if _CHINESE.search(text, one.begin, one.end)])
    own = scan(text, said, english.rules()) if _ENGLISH_WORD.search(text) else []
    return union(others, [one for one in own if _is_dated(text, one)])


def _tells_a_date(period: Period, said: date) -> bool:
    """Whether a period is not the day, month or year of the words."""
    return not period.first <= said <= period.last or 1 < period.days <= WEEK


def _is_dated(text: str, one: TimeExpression) -> bool:
    before = text[max(0, one.begin - MAX_GAP) : one.begin]
    return bool(_ENGLISH.search(text[one.begin : one.end])) and not _FIGURATIVE.search(before)


def _label(period: Period, said: date, year: int, *, about: str) -> str | None:
    """Returns the words of a period; None for one that is open, or so long that it says nothing.

    `about` is the sign for "about" in a text of Chinese signs, whose dates are written as 5月7日; "" for other texts.
    """
    first, last, days, is_about, is_chinese = period.first, period.last, period.days, period.is_about, bool(about)
    if not is_chinese and said.weekday() == _SUNDAY and period == periods.calendar("week", said, -1):
        return f"the week before {_range(said, said, year, is_chinese=False)}"
    if period.start == BEGINNING or period.end == END or days > _LONGEST:
        return None
    if days <= (WEEK if is_about else _DAYS) and not (is_about and days == 1):
        return _range(first, last, year, is_chinese=is_chinese)
    middle = date.fromordinal((first.toordinal() + last.toordinal()) // 2)
    if is_about and days <= _YEAR:
        is_far = abs((said - middle).days) > _MONTH_KNOWN
        name = (
            _years(middle, middle, is_chinese=is_chinese) if is_far else _months(middle, middle, is_chinese=is_chinese)
        )
    elif days <= _MONTHS_LONG:
        name = _months(first, last, is_chinese=is_chinese)
    else:
        name = _years(first, last, is_chinese=is_chinese)
    if not is_about:
        return name
    return f"{about or 'about '}{name}"


def _months(first: date, last: date, *, is_chinese: bool) -> str:
    """Returns the words of a span of months: "May 2023", "June–August 2022", "December 2022–February 2023"."""
    is_one, is_one_year = (first.year, first.month) == (last.year, last.month), first.year == last.year
    if is_chinese:
        end = f"{last.month}月" if is_one_year else f"{last.year}年{last.month}月"
        return f"{first.year}年{first.month}月" + ("" if is_one else f"–{end}")
    end = f"{english.MONTH_NAMES[last.month - 1]} {last.year}"
    if is_one:
        return end
    return f"{english.MONTH_NAMES[first.month - 1]}{'' if is_one_year else f' {first.year}'}–{end}"


def _years(first: date, last: date, *, is_chinese: bool) -> str:
    return f"{first.year}{'' if first.year == last.year else f'–{last.year}'}{'年' if is_chinese else ''}"


def _range(first: date, last: date, year: int, *, is_chinese: bool) -> str:
    """Returns the words of a day or a few days: "7 May", "28 April–4 May", with the year if it is not `year`."""
    if is_chinese:
        start = f"{first.month}月{first.day}日" if first.year == year else f"{first.year}年{first.month}月{first.day}日"
        if first == last:
            return start
        return f"{start}–{last.day}日" if first.month == last.month else f"{start}–{last.month}月{last.day}日"
    end = f"{last.day} {english.MONTH_NAMES[last.month - 1]}" + ("" if last.year == year else f" {last.year}")
    if first == last:
        return end
    month = "" if first.month == last.month else f" {english.MONTH_NAMES[first.month - 1]}"
    return f"{first.day}{month}–{end}"
