"""What a question asks for, as far as its words show. Pure. The classes are the measured recipe's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from graphmem.model import Tells, from_micros
from graphmem.recall.when import Offset, Period, asked_about, closeness, relative
from graphmem.text import is_unspaced

# The first that fits.
_ASKS: tuple[tuple[re.Pattern[str], Tells], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), tells)
    for pattern, tells in (
        (r"\bhow (?:long|old)\b|多久|多大|几岁", Tells.DURATION),
        (r"\bwhen\b|\b(?:what|which) (?:date|day|year|month)\b|什么时候|何时|哪天|哪年|几月|几号", Tells.WHEN),
        (r"\bhow (?:many|much|often)\b|多少|几个|几次", Tells.NUMBER),
        (r"\bwhere\b|\b(?:what|which) (?:city|country|state)\b|哪里|哪儿|什么地方|哪个城市", Tells.PLACE),
        (r"\bwho(?:m|se)?\b|谁", Tells.PERSON),
    )
)
# A question about what the assistant said calls it "you"; "can you tell me" asks the one who answers now.
_YOU = re.compile(r"\byou(?:rs?)?\b|你|您", re.IGNORECASE)
_POLITE = re.compile(
    r"\b(?:can|could|would|will|do|if) you\b|\b(?:tell|remind|show) me\b"
    r"|[请請][你您]|[你您](?:能|可以|还记得|還記得|知道)",
    re.IGNORECASE,
)
# Signs of a full name without spaces, of which friends leave the first out.
FULL_NAME = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """`tells`: what an answer would tell (nothing: not known); `periods`: the times that are named, by the clock of
    whoever asks, which is `zone` ahead of UTC; `offset`: a distance from an event, if the question counts from one.
    `of_assistant`: whether it asks for what the assistant said.
    """

    text: str
    words: frozenset[str]
    tells: Tells
    periods: tuple[Period, ...]
    offset: Offset | None
    zone: timedelta = timedelta(0)
    of_assistant: bool = False

    def names(self, speakers: Iterable[str | None]) -> set[str]:
        """Those of the speakers whose first name stands in the question."""
        return {name for name in speakers if name and self._names(name)}

    def _names(self, name: str) -> bool:
        if is_unspaced(name):
            return name in self.text or (len(name) >= FULL_NAME and name[1:] in self.text)
        return name.split(maxsplit=1)[0].casefold() in self.words

    def closeness(self, at: int) -> float:
        """How well an observation time, in microseconds, fits the times that are named, 0 to 1."""
        return closeness(self.periods, _by_clock(from_micros(at), self.zone)) if self.periods else 0.0

    def counted_from(self, events: Iterable[int]) -> Asked:
        """The same question, with the times that its offset means if the event was at one of these moments."""
        if self.offset is None:
            return self
        meant = []
        for event in events:
            try:
                meant.append(self.offset.counted_from(_by_clock(from_micros(event), self.zone)))
            except OverflowError:  # a thousand years before the wedding
                continue
        return replace(self, periods=(*self.periods, *meant))


def asked(question: str, now: datetime) -> Asked:
    """Reads a question that is asked at `now` (aware)."""
    zone = now.utcoffset() or timedelta(0)
    return Asked(
        text=question,
        words=frozenset(re.findall(r"\w+", question.casefold())),
        tells=next((tells for pattern, tells in _ASKS if pattern.search(question)), Tells(0)),
        periods=asked_about(question, _by_clock(now.astimezone(UTC), zone)),
        offset=relative(question),
        zone=zone,
        of_assistant=bool(_YOU.search(_POLITE.sub(" ", question))),
    )


def _by_clock(moment: datetime, zone: timedelta) -> datetime:
    """What the clock in a zone shows, as if it were UTC."""
    try:
        return moment + zone
    except OverflowError:  # on the first or last day there is
        return moment
