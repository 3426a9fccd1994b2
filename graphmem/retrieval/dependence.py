"""Tells whether a query can be understood without the conversation before it, by English and Chinese words. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from graphmem.extraction.language_detection import is_english
from graphmem.retrieval.temporal import names_nothing, periods_in, strip_times
from graphmem.retrieval.term_overlap import EMPTY_UNSPACED_WORDS, query_words
from graphmem.text import FUNCTION_CHARACTERS, is_unspaced

# Words that only react to what was said, and those that ask for advice on it ("Any ideas?"); they name nothing.
_REACTIONS = frozenset(
    "ok okay hm hmm well thank great cool nice wow fine alright right sound haha lol hi hello hey sorri exact inde"
    " interest agre continu idea tip suggest advic opinion option recommend".split()
)
# English forms of the words below that refer to nothing: "Is there …?", "Is it safe to …?", "this week", "worth it".
_NO_REFERENCE = re.compile(
    r"\b(?:is|are|was|were|will|be|isn['’]t|aren['’]t) there\b|\bthere(?:['’]s| is| are| was| were)\b"
    r"|\bis it (?:\w+ ){1,2}(?:to|that)\b|\bworth it\b"
    r"|\bth(?:is|ese) (?:morning|afternoon|evening|weekend|weeks?|months?|years?|days?|spring|summer|autumn|fall|winter"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b",
    re.IGNORECASE,
)
# Pronouns of a person or thing that the query itself may name before them, and what names one: "my son", "the van", a
# name. After "of" and "about" they mean another one ("the name of her dog").
_PRONOUN = re.compile(r"(?<!\bof )(?<!\babout )\b(?:he|his|she|her|they|their|its?)\b", re.IGNORECASE)
_ANTECEDENT = re.compile(r"\b(?:my|our|your|the|an?) \w|(?<=[\w,] )[A-Z]\w|^[A-Z]\w+['’]s\b")
# "that" is a pronoun at the start, before a full stop, and after these words; elsewhere it opens a clause ("a wine that
# goes with fish").
_REFERENCE = re.compile(
    r"\b(?:he|him|himself|his|she|hers?|herself|they|them|themselves|theirs?|its?|itself|this|these|those|there|then)\b"
    r"|(?:^|[,.;:!?]\s*|\b(?:about|of|from|with|for|like|after|before|to|on|at|by|than|did|does|do|is|was|are|were|has"
    r"|have|had|can|could|will|would|should|and|but|so|why|how|what|who|when|where|remember)\s+)that\b"
    r"|\bthat\s*[?.!]*$"
    r"|\b(?:the|that|which|other|another|first|second|last)\s+ones?\b|\bthe (?:others?|same|latter|former)\s*[?.!]*$"
    r"|\bsince(?: when)?\s*[?.!]*$"
    r"|^(?:and|but|or|so|what about|how about)(?:\s+\S+){1,3}$",
    re.IGNORECASE,
)
_CHINESE_REFERENCE = re.compile(
    r"[他她它牠]|[这這那][个個件事些样樣次家边邊里裡儿兒时時么麼位种種是]|^那|另一|另外|其他|其中|其它"
    r"|^然[后後]|^[后後][来來]|^[结結]果|^最[后後]|^真的|^[还還]有"
)
# Chinese words that name nothing in a question, besides those of `term_overlap`.
_EMPTY_CHINESE = re.compile(
    "|".join(
        sorted(
            {*EMPTY_UNSPACED_WORDS, *"如何 怎么办 怎麼辦 怎么做 怎麼做 件事 主意 建议 建議 该 該".split()},
            key=len,
            reverse=True,
        )
    )
)
# Words (in Chinese characters) that name something: a Chinese query with fewer names nothing; a query with more says
# itself what its "that" is.
MIN_CHARACTERS, MAX_WITH_REFERENCE = 2, 4
# Whether words are a time does not depend on today, so any day serves.
_ANY_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)
_HAN = re.compile(r"[\u4e00-\u9fff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7ff]")


def depends_on_conversation(query: str) -> bool:
    """Whether a query may mean something said before it ("And where does she do that?", "那件事后来怎么样了？").

    True for a query with a word that refers to nothing in it, and for one without a word that names something. One in
    another language than English and Chinese is not judged, and True, unless it asks for all of a time ("Was habe ich
    gestern gemacht?").
    """
    if not is_unspaced(query):
        if not is_english(query):
            return not _asks_for_time(query)
        query = query.strip()
        naming = sum(word not in _REACTIONS for word in query_words(query))
        if not naming:  # "may" and "yesterday" are words that name nothing but a time; "today" names not even that
            times = periods_in(query, _ANY_MOMENT)
            naming = sum(one.is_exact or not one.start <= _ANY_MOMENT < one.end for one in times)
        if not 0 < naming <= MAX_WITH_REFERENCE:
            return not naming
        antecedent = _ANTECEDENT.search(query)
        end = len(query) if antecedent is None else antecedent.end()
        outward = query[:end] + _PRONOUN.sub("", query[end:])
        return _REFERENCE.search(_NO_REFERENCE.sub(" ", outward).strip()) is not None
    if _HAN.search(query) is None or _KANA_OR_HANGUL.search(query) is not None:  # not Chinese
        return not _asks_for_time(query)
    naming = sum(char.isalnum() and char not in FUNCTION_CHARACTERS for char in _EMPTY_CHINESE.sub("", query))
    refers = _CHINESE_REFERENCE.search(query) is not None
    return naming < MIN_CHARACTERS or (refers and naming <= MAX_WITH_REFERENCE)


def _asks_for_time(query: str) -> bool:
    return names_nothing(query, strip_times(query, _ANY_MOMENT))
