"""Long memories: which of their sentences match the question."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphmem.errors import ModelError
from graphmem.model import MemoryRecord
from graphmem.providers.base import Embedder, LocatingEmbedder
from graphmem.recall.signs import SignMatches
from graphmem.recall.tokens import Row, TokenMatches

# Characters up to which a memory is shown whole, and up to which sentences beside the matching one are taken along.
WHOLE, AROUND = 600, 400
# Sentences of one memory that are compared by their words.
MOST_COMPARED = 2_000

# A line, or a sentence of one with its end.
_SENTENCE = re.compile(
    r"[^\n.!?。！？।؟۔]*(?:[.!?](?![\"”’)*_]*(?:\s|$))[^\n.!?。！？।؟۔]*)*(?:[.!?。！？।؟۔]+[\"”’)*_]*|\n|$)"
)

Span = tuple[int, int]


def sentences(text: str) -> list[Span]:
    """Where the sentences of a text begin and end; lines without any word belong to none.

    One of more than `AROUND` characters is parted, between words where it has any.
    """
    found = (piece for match in _SENTENCE.finditer(text) for piece in _pieces(text, *match.span()))
    return [(start, end) for start, end in found if any(map(str.isalnum, text[start:end]))]


def _pieces(text: str, start: int, end: int) -> Iterator[Span]:
    while end - start > AROUND:
        cut = text.rfind(" ", start + 1, start + AROUND) + 1 or start + AROUND
        yield start, cut
        start = cut
    yield start, end


@dataclass(frozen=True, slots=True)
class Finder:
    """Compares sentences with one question: by tokens if the embedder tells where they stand, else by words."""

    matches: TokenMatches | SignMatches | None
    words: SignMatches | None
    embedder: Embedder

    def part(self, record: MemoryRecord, windows: Sequence[bytes]) -> str | None:
        """What matches best of a memory, given the token matrices of its windows; None if nothing tells."""
        spans = sentences(record.text)
        if not spans:
            return None
        scores = self._by_tokens(record, windows, spans)
        if scores is None and self.words is not None:
            said = [record.text[start:end] for start, end in spans[:MOST_COMPARED]]
            scores = np.zeros(len(spans))
            scores[: len(said)] = self.words.nearest(said) @ self.words.weights
        return None if scores is None or not scores.any() else around(record.text, spans, scores)

    def _by_tokens(self, record: MemoryRecord, windows: Sequence[bytes], spans: Sequence[Span]) -> Row | None:
        """How well each sentence matches; None without tokens, or if they are not those that the embedder makes."""
        matches, embedder = self.matches, self.embedder
        if not isinstance(matches, TokenMatches) or not isinstance(embedder, LocatingEmbedder):
            return None
        length = matches.question.shape[1]
        try:
            places = embedder.token_places(record.embedded_text)
        except ModelError:
            return None
        if not windows or [len(window) / length for window in windows] != [len(window) for window in places]:
            return None
        before = len(record.embedded_text) - len(record.text)
        starts = [start for start, _ in spans]
        owner = np.array([bisect_right(starts, at - before) - 1 for window in places for at in window])
        order = np.argsort(owner, kind="stable")
        order = order[owner[order] >= 0]  # in front of the first are the speaker's name and signs
        found = np.zeros(len(spans))
        if len(order):
            rows = np.frombuffer(b"".join(windows), np.int8).reshape(-1, length)[order]
            held, firsts = np.unique(owner[order], return_index=True)
            found[held] = matches.nearest(rows.tobytes(), firsts) @ matches.weights
        return found


def around(text: str, spans: Sequence[Span], scores: Row) -> str:
    """The sentence that matches best, with those beside it as far as there is room."""
    first = last = int(np.argmax(scores))
    while True:
        beside = [place for place in (first - 1, last + 1) if 0 <= place < len(spans)]
        room = [p for p in beside if spans[max(last, p)][1] - spans[min(first, p)][0] <= AROUND]
        if not room:
            return text[spans[first][0] : spans[last][1]].strip()
        better = max(room, key=lambda place: float(scores[place]))
        first, last = min(first, better), max(last, better)
