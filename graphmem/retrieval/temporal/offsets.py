"""Queries that count from an event ("two weeks before the wedding"): the event's words and the distance. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from graphmem.retrieval.temporal import chinese, english, english_phrases, periods
from graphmem.retrieval.temporal.periods import Period

MAX_ANCHOR_CHARS = 80
HALF_UNIT = 0.5
UNITS = "day|night|evening|morning|weekend|week|month|year"

_ENGLISH = re.compile(
    rf"\b(?:(?P<definite>the|that|last) |{english.COUNT} )(?P<unit>{UNITS})s? "
    rf"(?P<side>before|prior to|after|following) (?P<anchor>[^?.!;,]{{1,{MAX_ANCHOR_CHARS}}})",
    re.IGNORECASE | re.ASCII,
)
# The question that follows the event's words: "the day after the race what did she eat".
_QUESTION = re.compile(r" (?:what|who|whom|whose|where|which|how|why)\b.*$", re.IGNORECASE)
# "The week before last" is a week of the calendar.
_NO_EVENT = re.compile(r"last$", re.IGNORECASE)
_PRONOUN = re.compile(r"(?:that|this|it|then|they|he|she|him|her)\b[^\w]*$", re.IGNORECASE)
_CHINESE = re.compile(
    rf"(?P<anchor>[^,，。？?！!、；;]{{2,30}}?)(?P<of>[的之以]?)(?P<side>前|后)的?"
    rf"(?P<count>{chinese.NUMBER}){chinese.UNIT}"
)
# Whether an anchor is a date does not depend on today, so any day serves.
_ANY_DAY = date(2000, 1, 1)
_CLEAR_COUNT = re.compile(r"[\d一三四五六七八九十]")


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
    text = english_phrases.plain_text(query)
    match = _ENGLISH.search(text)
    if match is not None:
        return _english(match)
    if chinese.is_chinese(text) and (match := _CHINESE.search(chinese.simplify(text))) is not None:
        return _chinese(match)
    return None


def _english(match: re.Match[str]) -> EventOffset | None:
    anchor = _QUESTION.sub("", match["anchor"]).strip()
    if (
        not anchor
        or _PRONOUN.match(anchor)
        or _NO_EVENT.match(anchor)
        or english_phrases.find_expressions(anchor, _ANY_DAY)
    ):
        return None
    unit = match["unit"].casefold()
    unit = unit if unit in periods.LENGTH else "day"
    count = HALF_UNIT if match["definite"] and unit != "day" else english.number(match["count"])
    sign = -1 if match["side"].casefold() in ("before", "prior to") else 1
    return _offset(anchor, sign * count, unit, vague=match["count"] in english.VAGUE)


def _chinese(match: re.Match[str]) -> EventOffset | None:
    anchor = match["anchor"].rpartition("在")[2]
    is_clear = match["of"] or _CLEAR_COUNT.match(match["count"]) or chinese.EVENT.search(anchor)
    if not anchor or not is_clear or chinese.find_expressions(anchor + match["side"], _ANY_DAY):
        return None
    unit, sign = chinese.UNITS[match["unit"]], -1 if match["side"] == "前" else 1
    count = HALF_UNIT if match["count"] == "半" else chinese.number(match["count"])
    return _offset(anchor, sign * count, unit, vague=match["count"] in chinese.VAGUE)


def _offset(anchor: str, count: float, unit: str, *, vague: bool) -> EventOffset:
    length = timedelta(days=periods.LENGTH[unit])
    tolerance = max(timedelta(days=1), length / 2) + (2 * length if vague else timedelta(0))
    return EventOffset(anchor, count * length, tolerance)
