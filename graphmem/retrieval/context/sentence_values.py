"""How much each sentence of the memories found is worth in a context: one logistic model of hit and sentence. Pure.

Fitted on the evidence of LOCOMO's development conversations and of MuSiQue (benchmarks/sentence_values.py). The values
compare sentences of one question; whether a memory belongs in its context at all is told by its relevance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from operator import mul
from typing import TYPE_CHECKING

from graphmem.model import AnswerType, Kind, MemoryRecord
from graphmem.retrieval.sentence_matching import Span, sentences
from graphmem.retrieval.temporal import periods_in
from graphmem.text import READ_CHARS, body_start, is_question, split_title, tokens

if TYPE_CHECKING:
    from graphmem.retrieval.query_analysis import AnalyzedQuery
    from graphmem.retrieval.types import Hit

# The logarithm of the odds that a sentence answers, by feature (`features_of`). "fact" is set by hand, as the data has
# no facts: a fact says it shorter than its source, and as it is now.
COEFFICIENTS: Mapping[str, float] = {
    "constant": -5.1075,
    "relevance": 0.1717,
    "score": 2.4045,
    "rank": -1.1743,
    "similarity": -3.5576,
    "fact": 3.0,
    "named": 0.0382,
    "match": 2.4307,
    "share": 1.5873,
    "length": 0.3884,
    "question": -0.6931,
    "social": -0.7405,
    "picture": -0.3355,
    "first": 0.7269,
    "only": 0.2834,
    "time": 0.7289,
}
# Those that are a sentence's own, the rest are of its memory.
SENTENCE_FEATURES = ("match", "share", "length", "question", "social", "picture", "first", "only", "time")
_SENTENCE_WEIGHTS = tuple(COEFFICIENTS[name] for name in SENTENCE_FEATURES)
# Relevances nearer to 0 or 1 than this count as this.
MARGIN = 1e-4
# Fewer characters count alike.
MIN_CHARS = 8
# A sentence of at most so many characters that greets, thanks or exclaims tells little.
SOCIAL_CHARS = 40
# A fact says a sentence of its source if it has this part of its words; what it does not say counts less than it.
SAID, SOURCE_FACTOR = 0.8, 0.5
_SOCIAL = re.compile(
    r"^\W*(?:hi|hey|hello|thanks?|thank you|wow|great|nice|cool|awesome|bye|yeah|yes|sure|congrats"
    r"|你好|您好|谢谢|謝謝|哇|好的|太好了|再见|晚安|早上好)\b|!\s*$|！\s*$",
    re.IGNORECASE,
)
_PICTURE = re.compile(r"^\s*[\[(].*[\])]\s*$")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a memory found: its place in the text, and its value in a context, 0 to 1.

    `number` counts the memory's sentences from 0. `question`: the words of somebody else to which the memory replies.
    """

    record: MemoryRecord
    number: int
    span: Span
    value: float
    question: str = ""

    @property
    def text(self) -> str:
        return self.record.text[self.span[0] : self.span[1]]


def weigh_sentences(query: AnalyzedQuery, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Returns the hits (best first) with their sentences: with those of a fact's sources that say more."""
    return tuple(
        replace(hit, sentences=(*_weighed(query, hit, rank), *_unsaid(query, hit, rank)))
        for rank, hit in enumerate(hits)
    )


def _weighed(query: AnalyzedQuery, hit: Hit, rank: int) -> Iterator[Sentence]:
    of_hit = COEFFICIENTS["constant"]
    of_hit += sum(COEFFICIENTS[name] * value for name, value in _of_hit(query, hit, rank).items())
    for number, (span, values) in enumerate(_of_sentences(query, hit)):
        value = 1 / (1 + exp(-of_hit - sum(map(mul, _SENTENCE_WEIGHTS, values))))
        yield Sentence(hit.record, number, span, value, hit.question)


def _unsaid(query: AnalyzedQuery, hit: Hit, rank: int) -> Iterator[Sentence]:
    """Yields the sentences of a fact's source messages that say more than the fact; they are worth less than it."""
    fact_words = set(tokens(hit.record.text)) if hit.sources else set()
    for source in hit.sources:
        for sentence in _weighed(query, replace(hit, record=source, sources=(), sentence_match=None), rank):
            words = set(tokens(sentence.text))
            if len(words & fact_words) < SAID * len(words):
                yield replace(sentence, value=SOURCE_FACTOR * sentence.value)


def features_of(query: AnalyzedQuery, hit: Hit, rank: int) -> Iterator[tuple[Span, Mapping[str, float]]]:
    """Yields the span of each sentence of a hit with its features; `rank` counts the hits from 0."""
    of_hit = _of_hit(query, hit, rank)
    return (
        (span, {**of_hit, **dict(zip(SENTENCE_FEATURES, values, strict=True))})
        for span, values in _of_sentences(query, hit)
    )


def _of_hit(query: AnalyzedQuery, hit: Hit, rank: int) -> Mapping[str, float]:
    relevance = min(max(hit.relevance, MARGIN), 1 - MARGIN)
    return {
        "relevance": log(relevance / (1 - relevance)),
        "score": hit.score,
        "rank": log(1 + rank),
        "similarity": hit.similarity,
        "fact": float(hit.record.kind is not Kind.EPISODE),
        "named": float(bool(query.speakers_named([hit.record.speaker or split_title(hit.record.text)[0] or None]))),
    }


def _of_sentences(query: AnalyzedQuery, hit: Hit) -> Iterator[tuple[Span, tuple[float, ...]]]:
    """Yields the span of each sentence, a title left out, with its values of `SENTENCE_FEATURES`."""
    text, match = hit.record.text, hit.sentence_match
    body = body_start(text)
    all_spans = match.spans if match else sentences(text[:READ_CHARS])
    spans: Sequence[Span] = [span for span in all_spans if span[0] >= body] or [(0, min(len(text), READ_CHARS))]
    shares = dict(zip(match.spans, (match.scores / match.scores.max()).tolist(), strict=True)) if match else {}
    matches = dict(zip(match.spans, match.tokens.tolist(), strict=True)) if match and match.tokens.any() else {}
    asks_when = bool(query.answer_types & AnswerType.WHEN)
    for place, span in enumerate(spans):
        words = text[span[0] : span[1]]
        yield (
            span,
            (
                matches.get(span, hit.token_match),
                shares.get(span, 1.0),
                log(max(len(words.strip()), MIN_CHARS)),
                is_question(words),
                len(words) <= SOCIAL_CHARS and _SOCIAL.search(words) is not None,
                _PICTURE.match(words) is not None,
                place == 0,
                len(spans) == 1,
                asks_when and bool(periods_in(words, hit.record.said_at)),
            ),
        )
