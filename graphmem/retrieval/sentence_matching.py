"""Sentences of long memories and how well each matches a query, for contexts and explanations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphmem.errors import ModelError
from graphmem.model import MemoryRecord
from graphmem.plugins import Embedder, LocatingEmbedder
from graphmem.retrieval import matching
from graphmem.retrieval.matching import CharacterMatches, Row, TokenMatches
from graphmem.text import READ_CHARS

# Characters up to which a memory is shown whole, and of the excerpt of a longer one.
UNSPLIT_CHARS, CONTEXT_CHARS = 600, 400
# Sentences of one memory that are compared by their words.
MAX_SENTENCES = 2_000

# A sentence with its end, or the rest of a line.
_SENTENCE = re.compile(
    r"[^\n.!?。！？।؟۔]*(?:[.!?](?![\"”’)*_]*(?:\s|$))[^\n.!?。！？।؟۔]*)*(?:[.!?。！？।؟۔]+[\"”’)*_]*|\n|$)"
)
# A full stop that ends no sentence: after the number of an item or a day, an initial, an abbreviation. So many
# characters hold each of these with what stands before it.
NO_END_CHARS = 12
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
        end = match.end()
        is_open = text[end - 1 : end] == "." and _NO_END.search(text[max(match.start(), end - NO_END_CHARS) : end])
        unfinished_start = start if is_open and end < len(text) else None
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

    def match(
        self, divided: Sequence[tuple[MemoryRecord, Sequence[Span]]], windows: Mapping[int, Sequence[bytes]]
    ) -> dict[str, SentenceMatch]:
        """Returns the scored sentences of memories by id, without those of which none matches.

        `divided` has each memory with the spans of its sentences, `windows` the token matrices (int8) of memories by
        row. Word and token scores are each divided by their maximum in the memory and added: by tokens alone, a
        sentence of common words may come before the only one that has the word asked for. A word of the query weighs
        more, the fewer of the sentences have it. A memory of more than `READ_CHARS` characters, of which only the
        beginning is divided, has the sentences of its best parts instead (`_of_best_windows`), without token scores.
        """
        divided = [
            (record, spans if len(record.text) <= READ_CHARS else self._of_best_windows(record, windows) or spans)
            for record, spans in divided
        ]
        parts = matching.parts_of(self.query)
        token_scores = self._token_scores(divided, windows)
        found: dict[str, SentenceMatch] = {}
        for (record, spans), by_tokens in zip(divided, token_scores, strict=True):
            texts = [record.text[start:end] for start, end in spans]
            compared = matching.match_among(parts, texts[:MAX_SENTENCES])
            by_words = np.concatenate([compared, np.zeros(len(texts) - len(compared))])
            scores = _divided_by_max(by_words) + _divided_by_max(by_tokens)
            if scores.any():
                found[record.id] = SentenceMatch(record.text, spans, scores, by_tokens)
        return found

    def _of_best_windows(self, record: MemoryRecord, windows: Mapping[int, Sequence[bytes]]) -> list[Span]:
        """Returns the spans of the sentences where a long memory's tokens match best; none if it has no tokens.

        All windows have the same number of tokens, so that their places among the characters are told by proportion,
        with a window before and behind.
        """
        text, own = record.text, windows.get(record.row, ())
        if not isinstance(self.matches, TokenMatches) or not own:
            return []
        sizes = np.array([len(window) // self.matches.query_tokens.shape[1] for window in own])
        scores = self.matches.nearest(b"".join(own), np.cumsum(sizes) - sizes) @ self.matches.weights
        chars, most = len(text) / len(own), READ_CHARS * len(own) // (3 * len(text))
        best = np.argsort(-scores, kind="stable")[: max(1, most)]
        read = np.unique(np.concatenate([best - 1, best, best + 1]))
        spans = list[Span]()
        for run in np.split(read, np.flatnonzero(np.diff(read) > 1) + 1):
            begin, end = max(int(run[0] * chars), 0), int((run[-1] + 1) * chars)
            whole = sentences(text[begin:end])
            # The first and the last one may be cut.
            whole = whole[begin > 0 : -1 if end < len(text) else None] or whole
            spans += [(begin + start, begin + stop) for start, stop in whole]
        return spans

    def _token_scores(
        self, divided: Sequence[tuple[MemoryRecord, Sequence[Span]]], windows: Mapping[int, Sequence[bytes]]
    ) -> list[Row]:
        """Scores sentences: each query token's similarity to its nearest token there, summed by the tokens' weights.

        Zeros for a memory whose stored tokens are not those of this embedder. All are compared at once: the texts
        stand one behind the other, each begun by a section for what is before its first sentence, the speaker's name.
        """
        matches, embedder = self.matches, self.embedder
        scores = [np.zeros(len(spans)) for _, spans in divided]
        if not isinstance(matches, TokenMatches) or not isinstance(embedder, LocatingEmbedder):
            return scores
        dims = matches.query_tokens.shape[1]
        section_starts, token_places, matrices, sections = (
            list[int](),
            list[int](),
            list[bytes](),
            list[tuple[int, int]](),
        )
        begin = 0
        for number, (record, spans) in enumerate(divided):
            text = record.embedded_text
            own = windows.get(record.row, ()) if len(record.text) <= READ_CHARS else ()
            try:
                places = embedder.token_places(text) if own else ()
            except ModelError:
                continue
            if not own or [len(window) / dims for window in own] != [len(window) for window in places]:
                continue
            prefix = begin + len(text) - len(record.text)
            section_starts += [begin - 1, *(prefix + start for start, _ in spans)]
            sections += [(number, place) for place in range(-1, len(spans))]
            token_places += [begin + at for window in places for at in window]
            matrices += own
            begin += len(text) + 1
        if not token_places:
            return scores
        section_of = np.searchsorted(section_starts, token_places, side="right") - 1
        order = np.argsort(section_of, kind="stable")
        section_of = section_of[order]
        firsts = np.flatnonzero(np.diff(section_of, prepend=-1))
        tokens = np.frombuffer(b"".join(matrices), np.int8).reshape(-1, dims)[order]
        for section, score in zip(
            section_of[firsts].tolist(), matches.nearest(tokens.tobytes(), firsts) @ matches.weights, strict=True
        ):
            number, place = sections[section]
            if place >= 0:
                scores[number][place] = score
        return scores


def _divided_by_max(scores: Row) -> Row:
    return scores / scores.max() if scores.any() else scores
