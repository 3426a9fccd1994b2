"""What a question asks for, as far as its words show. Pure. The classes are the measured recipe's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from graphmem.model import AnswerType, from_micros, micros
from graphmem.retrieval.temporal import EventOffset, Period, find_offset, periods_in, proximity, strip_times
from graphmem.retrieval.term_overlap import query_words
from graphmem.text import is_unspaced

# The first that fits.
_ASKS: tuple[tuple[re.Pattern[str], AnswerType], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), tells)
    for pattern, tells in (
        (r"\bhow (?:long|old)\b|多久|多大|几岁", AnswerType.DURATION),
        (r"\bwhen\b|\b(?:what|which) (?:date|day|year|month)\b|什么时候|何时|哪天|哪年|几月|几号", AnswerType.WHEN),
        (r"\bhow (?:many|much|often)\b|多少|几个|几次", AnswerType.NUMBER),
        (r"\bwhere\b|\b(?:what|which) (?:city|country|state)\b|哪里|哪儿|什么地方|哪个城市", AnswerType.PLACE),
        (r"\bwho(?:m|se)?\b|谁", AnswerType.PERSON),
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
MAX_NAME_WORDS = 3


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """`answer_types`: what an answer would tell (nothing: not known); `periods`: the times that are named, by the clock
    of whoever asks, which is `zone` ahead of UTC; `offset`: a distance from an event, if the question counts from one.
    `asks_assistant`: whether it asks for what the assistant said. `is_only_temporal`: whether it asks for all that was
    said in these periods ("What did we do last Friday?").
    """

    text: str
    words: frozenset[str]
    answer_types: AnswerType
    periods: tuple[Period, ...]
    offset: EventOffset | None
    zone: timedelta = timedelta(0)
    asks_assistant: bool = False
    is_only_temporal: bool = False

    def speakers_named(self, speakers: Iterable[str | None]) -> set[str]:
        """Those of the speakers whose first name stands in the question."""
        return {name for name in speakers if name and self._names(name)}

    def _names(self, name: str) -> bool:
        if is_unspaced(name):
            return name in self.text or (len(name) >= MAX_NAME_WORDS and name[1:] in self.text)
        return name.split(maxsplit=1)[0].casefold() in self.words

    def temporal_proximity(self, at: int) -> float:
        """How well an observation time, in microseconds, fits the times that are named, 0 to 1."""
        return proximity(self.periods, _by_clock(from_micros(at), self.zone)) if self.periods else 0.0

    @property
    def period_bounds(self) -> list[tuple[int, int]]:
        """The times that are named, in microseconds from and until; of what comes every year the latest."""
        return [(micros(one.start) - self._ahead, micros(one.end) - self._ahead) for one in self.periods]

    @property
    def _ahead(self) -> int:
        return self.zone // timedelta(microseconds=1)

    def resolve_offset(self, events: Iterable[int]) -> AnalyzedQuery:
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


def analyze_query(question: str, now: datetime) -> AnalyzedQuery:
    """Reads a question that is asked at `now` (aware)."""
    zone = now.utcoffset() or timedelta(0)
    clock = _by_clock(now.astimezone(UTC), zone)
    periods = periods_in(question, clock)
    return AnalyzedQuery(
        text=question,
        words=frozenset(re.findall(r"\w+", question.casefold())),
        answer_types=next((tells for pattern, tells in _ASKS if pattern.search(question)), AnswerType(0)),
        periods=periods,
        offset=find_offset(question),
        zone=zone,
        asks_assistant=bool(_ASSISTANT.search(_NOT_IT.sub(" ", question))),
        is_only_temporal=bool(periods) and not query_words(strip_times(question, clock)),
    )


def _by_clock(moment: datetime, zone: timedelta) -> datetime:
    """What the clock in a zone shows, as if it were UTC."""
    try:
        return moment + zone
    except OverflowError:  # on the first or last day there is
        return moment
