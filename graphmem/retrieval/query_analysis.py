"""Analyses a query's words: the kind of answer, the times, the speakers and whether the assistant is meant. Pure.

The patterns are part of the measured weights' features (`weights`): changing them means measuring again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo

from graphmem.folding import fold, typed_spellings
from graphmem.model import AnswerType, from_micros, micros
from graphmem.retrieval.temporal import (
    EventOffset,
    Period,
    find_offset,
    names_nothing,
    periods_in,
    proximity,
    strip_all_times,
    strip_times,
)
from graphmem.retrieval.temporal.chinese import simplify
from graphmem.retrieval.term_overlap import query_words
from graphmem.text import UNSPACED_RUN, is_question, is_unspaced, words_of
from graphmem.times import shown

# The first pattern that matches decides.
_ANSWER_TYPES: tuple[tuple[re.Pattern[str], AnswerType], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), answer_type)
    for pattern, answer_type in (
        (r"\bhow (?:long|old)\b|多久|多大|几岁", AnswerType.DURATION),
        (r"\bwhen\b|\b(?:what|which) (?:date|day|year|month)\b|什么时候|何时|哪天|哪年|几月|几号", AnswerType.WHEN),
        (r"\bhow (?:many|much|often)\b|多少|几个|几次", AnswerType.NUMBER),
        (r"\bwhere\b|\b(?:what|which) (?:city|country|state)\b|哪里|哪儿|什么地方|哪个城市", AnswerType.PLACE),
        (r"\bwho(?:m|se)?\b|谁", AnswerType.PERSON),
    )
)
# A query for the assistant's words names the assistant or says "you" (the familiar or formal word, where a language has
# one of its own).
_ASSISTANT = re.compile(
    r"\b(?:you(?:rs?)?|(?:the|my) (?:assistant|chatbot|bot)|du|dir|dich|dein\w*|tu|toi|vous|votre|usted)\b"
    r"|\b(?:ты|тебе|твой|вы|вам|ваш)\b|\b[tm]'as\b|[你您]|助手",
    re.IGNORECASE,
)
# Phrases in which "you" does not ask for the assistant's words: "can you tell me" addresses whoever answers now, "what
# did I tell you" asks for the user's words.
_NOT_ASSISTANT = re.compile(
    r"\b(?:can|could|would|will|do|if|are) you\b|\b(?:thank you|you know)\b"
    r"|\bI (?:\w+ )?(?:told|tell|gave|asked|showed|sent|mention(?:ed)? to) you\b"
    r"|[请請][你您]|[你您](?:能|可以|还?[记記]得|還記得|知道)|我[^，。？?]{0,4}[跟和给給对對告][诉訴]?[你您]",
    re.IGNORECASE,
)
# "You" (or the assistant) as the one who did, recommended or said something: in English, then in other languages.
_SAY = (
    r"(?:recommend|suggest|advis|propos|mention|sa(?:y|id)|t(?:ell|old)|explain|nam|list|wr[io]te|g[ia]ve|answer|describ"
    r"|warn|call|show|point)\w*"
)
_ASSISTANT_SAID = re.compile(
    r"\b(?:did|had|have) you\b"
    rf"|\b(?:you(?:['’]ve)?|(?:the|my) (?:assistant|chatbot|bot))(?: \w+){{0,2}}? {_SAY}"
    r"|\byour (?:\w+ ){0,2}(?:recommendations?|suggestions?|advice|tips?|proposals?|answers?|ideas?|words|list)\b"
    rf"|\b{_SAY} (?:to me )?by (?:you|(?:the|my) (?:assistant|chatbot|bot))\b"
    r"|\bdu\b.*\b(?:empfohlen|empfahlst|vorgeschlagen|gesagt|sagtest|geraten|erwähnt|genannt|erzählt|erklärt)\b"
    r"|\b(?:empfahlst|sagtest|nanntest|erwähntest) du\b"
    r"|\b(?:tu|vous|[tm]'as)\b.*\b(?:recommand|conseill|propos|suggér|mentionn|dit\b)"
    r"|\busted\b.*\b(?:recomend|sugiri|aconsej|mencion|dijo\b|propuso\b)"
    r"|\b(?:ты|вы)\b.*\b(?:посовет|порекоменд|рекоменд|предлож|сказал|упомян|назва)"
    r"|(?:[你您]|助手)[^，。？?！!]{0,10}?(?:推[荐薦]|建[议議]|[说說][过過的]|提[到过過议議]|告[诉訴]我|[讲講][过過的]|介[绍紹]|教我|首推)",
    re.IGNORECASE,
)
# What a Chinese query may have beside its times and ask for all that happened then: 我做了什么, 跟你说了啥.
_NAMES_NOTHING = re.compile(
    r"(?>我们?|咱们?|[你您妳]们?|大家|[跟和对给都又还也在是有了过的着呢吗嘛啊呀吧些]|干嘛|[做干说聊讲谈记]|发生|告诉|提到|[什甚]么|啥"
    r"|[哪有一]些|事情|事儿?|怎么?样|如何|那天|这天|\W)*+"
)
# A question also without a question mark.
_QUESTION = re.compile(
    r"^\W*(?:what|which|who|whom|whose|when|where|why|how|is|are|was|were|do|does|did|can|could|will|would|should|has|have"
    r"|had)(?:n['’]t|['’]s)?\b|[吗嗎呢谁誰哪]|什[么麼]|怎[么麼样樣]|几[个次点岁]|多[少久大]",
    re.IGNORECASE,
)
# The most words of a query of keywords, and the characters of a word in a script without spaces. What ends as a
# sentence does is none, but a task or small talk ("Flip a coin.", 写一封礼貌的投诉信。).
MAX_KEYWORDS, UNSPACED_WORD_CHARS = 3, 2
_ENDS_SENTENCE = re.compile(r"[.!。！…]\W*$")
# Characters from which on a name without spaces is a full name, whose first character (the surname) friends leave out.
MIN_FULL_NAME_CHARS = 3


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """A query's text, its folded words as they are typed without Latin marks, and what they ask for.

    `answer_types`: the kinds of answer (0: unknown). `periods`: the times that the query names, by the clock of whoever
    asks, in the time zone `zone`, written as if it were UTC. `offset`: the distance from an event, if the query
    counts from one. `asks_assistant`: whether it asks for the assistant's words. `is_only_temporal`: whether it has no
    other word that names something ("What did we do last Friday?"), so that it asks for everything from these periods;
    not if all of them are to come ("What shall we do next Friday?"), for nothing was said then.
    `text_without_times`: the text without the words that name the periods.
    `asks_assistant_said`: whether it asks for what the assistant recommended, said or the like. `is_question`: whether
    it begins with a question word or ends with a question mark. `proximities` are the values of `temporal_proximity`
    that were computed, by time: a search asks for each several times.
    """

    text: str
    words: frozenset[str]
    answer_types: AnswerType
    periods: tuple[Period, ...]
    offset: EventOffset | None
    zone: tzinfo = UTC
    asks_assistant: bool = False
    is_only_temporal: bool = False
    asks_assistant_said: bool = False
    is_question: bool = False
    text_without_times: str = ""
    proximities: dict[int, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_keywords(self) -> bool:
        """Whether the query is a few words that ask nothing ("Wałęsa", "gate code", 门禁密码)."""
        if self.is_question or _ENDS_SENTENCE.search(self.text):
            return False
        unspaced = sum(-(-len(run) // UNSPACED_WORD_CHARS) for run in UNSPACED_RUN.findall(self.text))
        return unspaced + len(words_of(UNSPACED_RUN.sub(" ", self.text))) <= MAX_KEYWORDS

    def speakers_named(self, speakers: Iterable[str | None]) -> set[str]:
        """Returns the speakers whose first name stands in the query."""
        return {name for name in speakers if name and self._names(name)}

    def _names(self, name: str) -> bool:
        if is_unspaced(name):
            name, text = fold(name), fold(self.text)
            return name in text or (len(name) >= MIN_FULL_NAME_CHARS and name[1:] in text)
        return not self.words.isdisjoint(typed_spellings(fold(name.split(maxsplit=1)[0])))

    def temporal_proximity(self, at: int) -> float:
        """Returns how near an observation time (microseconds since 1970, UTC) is to the query's periods, 0 to 1."""
        if not self.periods:
            return 0.0
        if (known := self.proximities.get(at)) is None:
            known = self.proximities[at] = proximity(self.periods, _by_clock(from_micros(at), self.zone))
        return known

    @property
    def period_bounds(self) -> list[tuple[int, int]]:
        """Start and end (exclusive) of each period in microseconds, UTC; of yearly periods the latest."""
        return [
            (micros(period.start.replace(tzinfo=self.zone)), micros(period.end.replace(tzinfo=self.zone)))
            for period in self.periods
        ]

    def is_inside_periods(self, text: str, at: int) -> bool:
        """Whether a text of this time (microseconds) names one inside the periods: "at Christmas", told in January."""
        told = periods_in(text, _by_clock(from_micros(at), self.zone))
        return any(period.start <= one.start and one.end <= period.end for one in told for period in self.periods)

    def resolve_offset(self, events: Iterable[int]) -> AnalyzedQuery:
        """Returns the query with the periods that its offset means if the event was at these times (microseconds)."""
        if self.offset is None:
            return self
        offset_periods = []
        for event in events:
            try:
                offset_periods.append(self.offset.period_from(_by_clock(from_micros(event), self.zone)))
            except OverflowError:  # "a thousand years before the wedding" is before the year 1
                continue
        return replace(self, periods=(*self.periods, *offset_periods), proximities={})


def analyze_query(query: str, now: datetime) -> AnalyzedQuery:
    """Analyses a query that is asked at `now` (aware), whose time zone is that of the query's times."""
    zone = now.tzinfo or UTC
    clock = _by_clock(now, zone)
    periods = periods_in(query, clock)
    without_times = strip_all_times(query, clock) if periods else query
    about_assistant = _NOT_ASSISTANT.sub(" ", query)
    return AnalyzedQuery(
        text=query,
        words=frozenset(word for spelling in typed_spellings(fold(query)) for word in words_of(spelling)),
        answer_types=next(
            (answer_type for pattern, answer_type in _ANSWER_TYPES if pattern.search(query)), AnswerType(0)
        ),
        periods=periods,
        offset=find_offset(query),
        zone=zone,
        asks_assistant=bool(_ASSISTANT.search(about_assistant)),
        is_only_temporal=any(period.start <= clock for period in periods)
        and (
            not query_words(strip_times(query, clock))
            or _NAMES_NOTHING.fullmatch(simplify(without_times)) is not None
            or names_nothing(query, without_times)
        ),
        asks_assistant_said=bool(_ASSISTANT_SAID.search(about_assistant)),
        is_question=is_question(query) or bool(_QUESTION.search(query)),
        text_without_times=without_times,
    )


def _by_clock(moment: datetime, zone: tzinfo) -> datetime:
    """Returns the local time of a zone, written as if it were UTC."""
    return shown(moment, zone).replace(tzinfo=UTC)
