"""What a question asks for, as far as its words show. Pure. The classes are the measured recipe's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from graphmem.model import Tells, from_micros, micros
from graphmem.recall.relevance import words_asked
from graphmem.recall.when import Offset, Period, asked_about, closeness, relative, without_times
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
# A question for what the assistant said calls it so, or "you" (in languages that have a word of their own for that);
# "can you tell me" asks the one who answers now, "what did I tell you" for what the user said.
_ASSISTANT = re.compile(
    r"\b(?:you(?:rs?)?|(?:the|my) (?:assistant|chatbot|bot)|du|dir|dich|dein\w*|tu|toi|vous|votre|usted)\b"
    r"|\b(?:ты|тебе|твой|вы|вам|ваш)\b|\b[tm]'as\b|[你您]|助手",
    re.IGNORECASE,
)
_NOT_IT = re.compile(
    r"\b(?:can|could|would|will|do|if|are) you\b|\b(?:tell|remind|show) me\b|\b(?:thank you|you know)\b"
    r"|\bI (?:\w+ )?(?:told|tell|gave|asked|showed|sent|mention(?:ed)? to) you\b"
    r"|[请請][你您]|[你您](?:能|可以|还?[记記]得|還記得|知道)|我[^，。？?]{0,4}[跟和给給对對告][诉訴]?[你您]",
    re.IGNORECASE,
)
# Signs of a full name without spaces, of which friends leave the first out.
FULL_NAME = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """`tells`: what an answer would tell (nothing: not known); `periods`: the times that are named, by the clock of
    whoever asks, which is `zone` ahead of UTC; `offset`: a distance from an event, if the question counts from one.
    `of_assistant`: whether it asks for what the assistant said. `only_times`: whether it asks for all that was said in
    these periods ("What did we do last Friday?").
    """

    text: str
    words: frozenset[str]
    tells: Tells
    periods: tuple[Period, ...]
    offset: Offset | None
    zone: timedelta = timedelta(0)
    of_assistant: bool = False
    only_times: bool = False

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

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The times that are named, in microseconds from and until; of what comes every year the latest."""
        return [(micros(one.start) - self._ahead, micros(one.end) - self._ahead) for one in self.periods]

    @property
    def _ahead(self) -> int:
        return self.zone // timedelta(microseconds=1)

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
    clock = _by_clock(now.astimezone(UTC), zone)
    periods = asked_about(question, clock)
    return Asked(
        text=question,
        words=frozenset(re.findall(r"\w+", question.casefold())),
        tells=next((tells for pattern, tells in _ASKS if pattern.search(question)), Tells(0)),
        periods=periods,
        offset=relative(question),
        zone=zone,
        of_assistant=bool(_ASSISTANT.search(_NOT_IT.sub(" ", question))),
        only_times=bool(periods) and not words_asked(without_times(question, clock)),
    )


def _by_clock(moment: datetime, zone: timedelta) -> datetime:
    """What the clock in a zone shows, as if it were UTC."""
    try:
        return moment + zone
    except OverflowError:  # on the first or last day there is
        return moment
