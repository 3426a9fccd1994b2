"""Sentences of long memories and how well each matches a query, for contexts and explanations."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphmem.errors import ModelError
from graphmem.model import MemoryRecord
from graphmem.plugins import Embedder, LocatingEmbedder
from graphmem.retrieval import character_matching
from graphmem.retrieval.character_matching import CharacterMatches
from graphmem.retrieval.token_matching import Row, TokenMatches
from graphmem.text import query_term_counts, term_counts

# Characters up to which a memory is shown whole, and of the excerpt of a longer one.
UNSPLIT_CHARS, CONTEXT_CHARS = 600, 400
# Sentences of one memory that are compared by their words.
MAX_SENTENCES = 2_000

# A sentence with its end, or the rest of a line.
_SENTENCE = re.compile(
    r"[^\n.!?。！？।؟۔]*(?:[.!?](?![\"”’)*_]*(?:\s|$))[^\n.!?。！？।؟۔]*)*(?:[.!?。！？।؟۔]+[\"”’)*_]*|\n|$)"
)
# A full stop that ends no sentence: after the number of an item or a day, an initial, an abbreviation.
_NO_END = re.compile(
    r"(?:^|[\s(\"“„])(?:\d{1,3}|[^\W\d_]|Dr|Mr|Mrs|Ms|Prof|St|Fa|Nr|No|Hr|Fr|ca|vs|bzw|usw|approx|e\.g|i\.e)\.$",
    re.IGNORECASE,
)

Span = tuple[int, int]


def sentences(text: str) -> list[Span]:
    """Returns the spans of a text's sentences in characters; lines without a letter or digit are left out.

    Sentences of more than `CONTEXT_CHARS` characters are split, between words if there is a space.
    """
    spans = (piece for sentence in _whole_sentences(text) for piece in _pieces(text, *sentence))
    return [(start, end) for start, end in spans if any(map(str.isalnum, text[start:end]))]


def _whole_sentences(text: str) -> Iterator[Span]:
    unfinished_start = None
    for match in _SENTENCE.finditer(text):
        start = match.start() if unfinished_start is None else unfinished_start
        unfinished_start = start if _NO_END.search(match.group()) and match.end() < len(text) else None
        if unfinished_start is None:
            yield start, match.end()


def _pieces(text: str, start: int, end: int) -> Iterator[Span]:
    while end - start > CONTEXT_CHARS:
        cut = _cut_position(text, start, CONTEXT_CHARS)
        yield start, cut
        start = cut
    yield start, end


def _cut_position(text: str, start: int, max_chars: int) -> int:
    """Returns the end of a piece of at most `max_chars` characters: after its last space, if it has one."""
    return text.rfind(" ", start + 1, start + max_chars) + 1 or start + max_chars


@dataclass(frozen=True, slots=True)
class SentenceMatch:
    """A memory's text, the spans of its sentences, and the score of each for a query (0 and more).

    `tokens` are the token matches of each, 0 to 1; zeros without tokens.
    """

    text: str
    spans: Sequence[Span]
    scores: Row
    tokens: Row

    @property
    def best(self) -> Span:
        """The span of the sentence with the highest score."""
        return self.spans[int(np.argmax(self.scores))]

    def excerpt_within(self, max_chars: int) -> Span:
        """Returns the span of the best sentence with as many adjacent sentences as `max_chars` allows.

        The adjacent sentence with the higher score comes first. A best sentence of more characters is cut, between
        words if it has a space.
        """
        first = last = int(np.argmax(self.scores))
        start, end = self.best
        if end - start > max_chars:
            return start, _cut_position(self.text, start, max_chars)
        while True:
            adjacent = [index for index in (last + 1, first - 1) if 0 <= index < len(self.spans)]
            fitting = [
                index
                for index in adjacent
                if self.spans[max(last, index)][1] - self.spans[min(first, index)][0] <= max_chars
            ]
            if not fitting:
                return self.spans[first][0], self.spans[last][1]
            added = max(fitting, key=lambda index: float(self.scores[index]))
            first, last = min(first, added), max(last, added)

    @property
    def excerpt(self) -> str:
        """The excerpt for explanations: at most `CONTEXT_CHARS` characters around the best sentence."""
        start, end = self.excerpt_within(CONTEXT_CHARS)
        return self.text[start:end].strip()


@dataclass(frozen=True, slots=True)
class SentenceMatcher:
    """Scores sentences for one query: by words, and by tokens if the embedder tells their places in the text."""

    query: str
    matches: TokenMatches | CharacterMatches | None
    embedder: Embedder

    def match(self, record: MemoryRecord, windows: Sequence[bytes]) -> SentenceMatch | None:
        """Returns the scored sentences of a memory; None if none matches. `windows` are its token matrices (int8).

        Word and token scores are each divided by their maximum and added: by tokens alone, a sentence of common words
        may come before the only one that has the word asked for.
        """
        spans = sentences(record.text)
        if not spans:
            return None
        word_scores = self._word_scores([record.text[start:end] for start, end in spans])
        token_scores = self._token_scores(record, windows, spans)
        scores = _divided_by_max(word_scores) + _divided_by_max(token_scores)
        return SentenceMatch(record.text, spans, scores, token_scores) if scores.any() else None

    def _word_scores(self, texts: Sequence[str]) -> Row:
        """Scores sentences by the query's words in them; a word weighs more, the fewer of the sentences have it."""
        scores = np.zeros(len(texts))
        compared = texts[:MAX_SENTENCES]
        query_terms = query_term_counts(self.query)
        frequencies = Counter(
            term for sentence in compared for term in term_counts(sentence).keys() & query_terms.keys()
        )
        matches = character_matching.character_matches(self.query, len(compared), frequencies)
        if matches is not None:
            scores[: len(compared)] = matches.nearest(compared) @ matches.weights
        return scores

    def _token_scores(self, record: MemoryRecord, windows: Sequence[bytes], spans: Sequence[Span]) -> Row:
        """Scores sentences: each query token's similarity to its nearest token there, summed by the tokens' weights.

        Zeros if the stored tokens are not those of this embedder.
        """
        scores = np.zeros(len(spans))
        matches, embedder = self.matches, self.embedder
        if not windows or not isinstance(matches, TokenMatches) or not isinstance(embedder, LocatingEmbedder):
            return scores
        dims = matches.query_tokens.shape[1]
        try:
            token_places = embedder.token_places(record.embedded_text)
        except ModelError:
            return scores
        if [len(window) / dims for window in windows] != [len(window) for window in token_places]:
            return scores
        prefix_chars = len(record.embedded_text) - len(record.text)
        starts = [start for start, _ in spans]
        sentence_of = np.array(
            [bisect_right(starts, at - prefix_chars) - 1 for window in token_places for at in window]
        )
        order = np.argsort(sentence_of, kind="stable")
        order = order[sentence_of[order] >= 0]  # tokens before the first sentence: the speaker's name and signs
        if len(order):
            tokens = np.frombuffer(b"".join(windows), np.int8).reshape(-1, dims)[order]
            with_tokens, firsts = np.unique(sentence_of[order], return_index=True)
            scores[with_tokens] = matches.nearest(tokens.tobytes(), firsts) @ matches.weights
        return scores


def _divided_by_max(scores: Row) -> Row:
    return scores / scores.max() if scores.any() else scores
