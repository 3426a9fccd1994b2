"""Long memories: which of their sentences match the question."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphmem.errors import ModelError
from graphmem.model import MemoryRecord
from graphmem.models.protocols import Embedder, LocatingEmbedder
from graphmem.retrieval import character_matching
from graphmem.retrieval.character_matching import CharacterMatches
from graphmem.retrieval.token_matching import Row, TokenMatches
from graphmem.text import query_term_counts, term_counts

# Characters up to which a memory is shown whole, and of what is shown of a longer one.
UNSPLIT_CHARS, CONTEXT_CHARS = 600, 400
# Sentences of one memory that are compared by their words.
MAX_SENTENCES = 2_000

# A line, or a sentence of one with its end.
_SENTENCE = re.compile(
    r"[^\n.!?。！？।؟۔]*(?:[.!?](?![\"”’)*_]*(?:\s|$))[^\n.!?。！？।؟۔]*)*(?:[.!?。！？।؟۔]+[\"”’)*_]*|\n|$)"
)
# A full stop that ends no sentence: behind the number of an item or a day, an initial, an abbreviation.
_NO_END = re.compile(
    r"(?:^|[\s(\"“„])(?:\d{1,3}|[^\W\d_]|Dr|Mr|Mrs|Ms|Prof|St|Fa|Nr|No|Hr|Fr|ca|vs|bzw|usw|approx|e\.g|i\.e)\.$",
    re.IGNORECASE,
)

Span = tuple[int, int]


def sentences(text: str) -> list[Span]:
    """Where the sentences of a text begin and end; lines without any word belong to none.

    One of more than `CONTEXT_CHARS` characters is parted, between words where it has any.
    """
    found = (piece for whole in _whole(text) for piece in _pieces(text, *whole))
    return [(start, end) for start, end in found if any(map(str.isalnum, text[start:end]))]


def _whole(text: str) -> Iterator[Span]:
    begun = None
    for match in _SENTENCE.finditer(text):
        start = match.start() if begun is None else begun
        begun = start if _NO_END.search(match.group()) and match.end() < len(text) else None
        if begun is None:
            yield start, match.end()


def _pieces(text: str, start: int, end: int) -> Iterator[Span]:
    while end - start > CONTEXT_CHARS:
        cut = _cut(text, start, CONTEXT_CHARS)
        yield start, cut
        start = cut
    yield start, end


def _cut(text: str, start: int, room: int) -> int:
    """Where a piece of at most so many characters ends."""
    return text.rfind(" ", start + 1, start + room) + 1 or start + room


@dataclass(frozen=True, slots=True)
class SentenceMatch:
    """A memory's sentences, with how well each matches a question (0 and more)."""

    text: str
    spans: Sequence[Span]
    scores: Row

    @property
    def best(self) -> Span:
        """The sentence that matches best."""
        return self.spans[int(np.argmax(self.scores))]

    def excerpt_within(self, room: int) -> Span:
        """The sentence that matches best with those beside it, as far as there is room for so many characters.

        One that is longer is cut, between words where it has any.
        """
        first = last = int(np.argmax(self.scores))
        start, end = self.best
        if end - start > room:
            return start, _cut(self.text, start, room)
        while True:
            beside = [place for place in (last + 1, first - 1) if 0 <= place < len(self.spans)]
            fitting = [
                place for place in beside if self.spans[max(last, place)][1] - self.spans[min(first, place)][0] <= room
            ]
            if not fitting:
                return self.spans[first][0], self.spans[last][1]
            better = max(fitting, key=lambda place: float(self.scores[place]))
            first, last = min(first, better), max(last, better)

    @property
    def excerpt(self) -> str:
        """What `explanation` shows of it."""
        start, end = self.excerpt_within(CONTEXT_CHARS)
        return self.text[start:end].strip()


@dataclass(frozen=True, slots=True)
class SentenceMatcher:
    """Compares sentences with one question: by words, and by tokens if the embedder tells where they stand."""

    question: str
    matches: TokenMatches | CharacterMatches | None
    embedder: Embedder

    def match(self, record: MemoryRecord, windows: Sequence[bytes]) -> SentenceMatch | None:
        """The sentences of a memory, given the token matrices of its windows; None if none matches.

        Tokens and words count alike: by tokens alone a sentence of common words may come before the only one that has
        the word asked for.
        """
        spans = sentences(record.text)
        if not spans:
            return None
        by_words = self._by_words([record.text[start:end] for start, end in spans])
        scores = _shares(by_words) + _shares(self._by_tokens(record, windows, spans))
        return SentenceMatch(record.text, spans, scores) if scores.any() else None

    def _by_words(self, said: Sequence[str]) -> Row:
        """How much of the question's words each sentence has; a word tells the more, the fewer of them have it."""
        found = np.zeros(len(said))
        compared = said[:MAX_SENTENCES]
        asked = query_term_counts(self.question)
        held = Counter(term for one in compared for term in term_counts(one).keys() & asked.keys())
        matches = character_matching.character_matches(self.question, len(compared), held)
        if matches is not None:
            found[: len(compared)] = matches.nearest(compared) @ matches.weights
        return found

    def _by_tokens(self, record: MemoryRecord, windows: Sequence[bytes], spans: Sequence[Span]) -> Row:
        """How near each sentence is; zeros without tokens, or if they are not those that the embedder makes."""
        found = np.zeros(len(spans))
        matches, embedder = self.matches, self.embedder
        if not windows or not isinstance(matches, TokenMatches) or not isinstance(embedder, LocatingEmbedder):
            return found
        length = matches.question.shape[1]
        try:
            places = embedder.token_places(record.embedded_text)
        except ModelError:
            return found
        if [len(window) / length for window in windows] != [len(window) for window in places]:
            return found
        before = len(record.embedded_text) - len(record.text)
        starts = [start for start, _ in spans]
        owner = np.array([bisect_right(starts, at - before) - 1 for window in places for at in window])
        order = np.argsort(owner, kind="stable")
        order = order[owner[order] >= 0]  # in front of the first are the speaker's name and signs
        if len(order):
            rows = np.frombuffer(b"".join(windows), np.int8).reshape(-1, length)[order]
            held, firsts = np.unique(owner[order], return_index=True)
            found[held] = matches.nearest(rows.tobytes(), firsts) @ matches.weights
        return found


def _shares(scores: Row) -> Row:
    return scores / scores.max() if scores.any() else scores
