"""Matches of a query with memories: of its tokens, or of its characters and words. Pure.

Token matches (max-sim) take for each token of the query the nearest token of a memory. For scripts that the embedder
does not read, matches of characters and words replace them. In a script without spaces each character of the query
matches a memory that has it next to the same character as the query does, and partly one that has it anywhere. In other
scripts each word of the query matches itself and partly, as endings change, words with the same beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise, repeat
from math import log
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from graphmem.folding import fold, typed_spellings
from graphmem.text import (
    FUNCTION_CHARACTERS,
    READ_CHARS,
    UNSPACED_RUN,
    approximate_length,
    bare_terms,
    term_id,
    tokens,
    tokens_with_and_without_marks,
)

Row = npt.NDArray[np.float64]
# Token vectors are unit rows stored as int8, multiplied by 127.
_SCALE = 127.0
# The factor of matches that a memory only repeats, in `MatchMatrix.gain`.
REPEAT_WEIGHT = 0.1
# See `length_penalty`. From 64 tokens on it would cost passages 1.5 points of R@5, from 128 on nothing
# (benchmarks/ABLATIONS.md, "Chats with an assistant").
LONG_TOKENS, LENGTH_EXPONENT = 128, 0.4
# The match of a character without its neighbour, of a word in another spelling. Chinese chats, R@10: .3 51.4, .7 59.9,
# .85 58.7 (benchmarks/ABLATIONS.md, "Scripts that are not read").
PARTIAL_WEIGHT = 0.7
# A word between spaces weighs as much as this many characters, the usual length of a word in scripts without spaces.
CHARACTERS_PER_WORD = 2
# The least letters of a word's beginning, and its share of the word's letters.
MIN_STEM, STEM_SHARE = 4, 2 / 3
# Parts of a query that are compared.
MAX_PARTS = 64
# Token vectors that are compared at once: as floats they stay in the processor's cache.
BLOCK_TOKENS = 4096
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MatchMatrix:
    """How well memories match the parts of a query (its tokens, or its characters and words).

    One row (parts,) of 0..1 for each memory; memories that are not there have zeros. `weights` (parts,) weigh the parts
    by rarity and sum to 1. `places` are the rows' numbers, by id; row 0 stands for memories that are not there.
    """

    weights: Row
    places: Mapping[str | None, int] = field(default_factory=dict)
    rows: npt.NDArray[np.float64] | None = None

    def with_rows(self, ids: Collection[str], rows: npt.NDArray[np.float64], lengths: npt.ArrayLike) -> Self:
        """Returns these matches with memories' rows (ids x parts), divided by the `length_penalty` of their lengths.

        The lengths are in tokens.
        """
        former = np.zeros((1, len(self.weights))) if self.rows is None else self.rows
        places = dict(self.places)
        places.update(zip(ids, count(len(former)), strict=False))
        return replace(self, places=places, rows=np.concatenate([former, rows / length_penalty(lengths)[:, None]]))

    def row(self, uid: str) -> Row:
        """Returns a memory's row (parts,)."""
        return np.asarray(self.matrix([uid])[0])

    def matrix(self, ids: Iterable[str | None]) -> npt.NDArray[np.float64]:
        """Returns the rows of these memories (ids x parts); zeros for None."""
        numbers = list(map(self.places.get, ids, repeat(0)))
        return np.zeros((len(numbers), len(self.weights))) if self.rows is None else np.asarray(self.rows[numbers])

    def totals(self, ids: Sequence[str]) -> dict[str, float]:
        """Returns the weighted matches of memories, 0..1, by id."""
        return dict(zip(ids, (self.matrix(ids) @ self.weights).tolist(), strict=True))

    def gain(self, rows: npt.NDArray[np.float64], over: str) -> Row:
        """Returns for each of the rows the weighted matches beyond those of the memory `over`.

        Plus `REPEAT_WEIGHT` times the row's own weighted matches.
        """
        return np.asarray(np.maximum(0.0, rows - self.row(over)) @ self.weights + REPEAT_WEIGHT * (rows @ self.weights))

    def contains(self, uid: str) -> bool:
        """Whether a memory is there."""
        return uid in self.places


@dataclass(frozen=True, slots=True)
class TokenMatches(MatchMatrix):
    """Max-sim of the query's tokens, `query_tokens` (tokens x token dims, unit rows), with those of memories."""

    query_tokens: npt.NDArray[np.float32] = field(kw_only=True)

    def with_windows(self, ids: Sequence[str], windows: Sequence[bytes]) -> TokenMatches:
        """Returns these matches with memories, by the token matrices (int8) of their windows.

        `ids` is parallel to `windows`; the windows of one memory stand together. Memories without tokens are left out.
        """
        dims = self.query_tokens.shape[1]
        sizes: dict[str, int] = {}
        for uid, window in zip(ids, windows, strict=True):
            if window:
                sizes[uid] = sizes.get(uid, 0) + len(window)
        if not sizes or not len(self.query_tokens):
            return self
        lengths = np.array(list(sizes.values())) // dims
        starts = np.cumsum(lengths) - lengths
        return self.with_rows(sizes, self.nearest(b"".join(windows), starts), lengths)

    def nearest(self, matrix: bytes, starts: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Returns the squared cosine of each query token with the nearest token of each section of a matrix.

        `matrix` has tokens as int8 rows; `starts` are the row numbers at which its sections begin, ascending. The
        result is (sections x query tokens), 0..1.
        """
        memory_tokens = np.frombuffer(matrix, np.int8).reshape(-1, self.query_tokens.shape[1])
        asked = (self.query_tokens / _SCALE).T
        cosines = np.empty((len(memory_tokens), asked.shape[1]), np.float32)
        for start in range(0, len(memory_tokens), BLOCK_TOKENS):
            block = memory_tokens[start : start + BLOCK_TOKENS].astype(np.float32)
            np.matmul(block, asked, out=cosines[start : start + BLOCK_TOKENS])
        return np.clip(np.maximum.reduceat(cosines, np.asarray(starts), axis=0), 0.0, 1.0).astype(np.float64) ** 2


def length_penalty(lengths: npt.ArrayLike) -> Row:
    """Returns the divisors of matches for texts of these lengths in tokens.

    1 up to `LONG_TOKENS`, then 1 + `LENGTH_EXPONENT` · log2(length / `LONG_TOKENS`).

    The longer a text is, the likelier any token of a query finds a near one in it by chance: without this an
    assistant's long replies come before the messages that answer (benchmarks/ABLATIONS.md, "Chats with an assistant").
    """
    return np.asarray(
        1.0 + LENGTH_EXPONENT * np.log2(np.maximum(np.asarray(lengths, dtype=np.float64), LONG_TOKENS) / LONG_TOKENS)
    )


def relative_to_max(values: Mapping[str, float]) -> dict[str, float]:
    """Returns the values divided by the greatest one; an empty dict if none is positive."""
    greatest = max(values.values(), default=0.0)
    return {uid: value / greatest for uid, value in values.items()} if greatest > 0 else {}


def terms_of(words: Iterable[str]) -> dict[str, list[int]]:
    """Returns the term ids of each distinct word as the text statistics count them; none for stop words and signs."""
    return {word: [term_id(token) for token in tokens(word)] for word in dict.fromkeys(words)}


def token_weights(
    words: Sequence[str], size: int, frequencies: Mapping[int, int], ignored: Collection[str] = ()
) -> Row:
    """Returns the weight of each token of a query by the rarity of its word: ln(1 + n / (df + 1)), summing to 1.

    `words` has the word of each token; n is `size`, the partition's number of memories; df is the least document
    frequency of the word's terms, or n for stop words. Document frequencies of words serve as well as those of word
    pieces (benchmarks/ABLATIONS.md, "Kept"). Words whose tokens (`text.tokens`) are among the `ignored` weigh nothing,
    unless no other word is left.
    """
    terms = terms_of(words)

    def df(word: str) -> int:
        return min((frequencies.get(term, 0) for term in terms[word]), default=size)

    weights = np.array([log(1 + max(size, 1) / (df(word) + 1)) for word in words])
    if ignored:
        kept = np.array([not (parts := set(tokens(word))) or not parts.issubset(ignored) for word in words])
        weights = weights * kept if kept.any() else weights
    return weights / weights.sum() if len(weights) else weights


@dataclass(frozen=True, slots=True)
class QueryPart:
    """A character or word of a query: any of `whole` in a text is a full match, `prefix` a partial one ("": none).

    For a character, `whole` has the pairs of characters in which it stands, and `prefix` is the character. For a word,
    `whole` has the word as `text.tokens` gives it, `bare` its terms without marks, and `prefix` is its beginning; a
    text with the word has one of the `traces`.
    """

    whole: tuple[str, ...]
    prefix: str
    is_word: bool = False
    bare: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CharacterMatches(MatchMatrix):
    """The matches of a query's characters and words with memories."""

    parts: Sequence[QueryPart] = field(kw_only=True)

    def with_texts(self, ids: Sequence[str], texts: Sequence[str]) -> CharacterMatches:
        """Returns these matches with memories, by their texts."""
        return self.with_rows(ids, self.nearest(texts), [approximate_length(text) for text in texts]) if ids else self

    def nearest(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Returns how well each text matches each part of the query: (texts x parts), 0..1."""
        return _rows(self.parts, [_read(self.parts, text) for text in texts])


class _Read(NamedTuple):
    """The characters and pairs of a text, its words and those without marks; empty where no part asks for them."""

    characters: frozenset[str]
    words: frozenset[str]
    bare_words: frozenset[str]


def _read(parts: Sequence[QueryPart], text: str) -> _Read:
    folded = fold(text[:READ_CHARS])
    has_characters = any(not part.is_word for part in parts)
    characters = frozenset([*folded, *map("".join, pairwise(folded))]) if has_characters else _NOTHING
    # Splitting a text into words is slow, so it is left out for a text that contains no word of the query, not even
    # without its last letter. Words with the same beginning are missed in such a text.
    spellings = typed_spellings(folded)
    may_match = any(trace in spelling for part in parts for trace in part.traces for spelling in spellings)
    words, bare_words = map(frozenset, tokens_with_and_without_marks(folded)) if may_match else (_NOTHING, _NOTHING)
    return _Read(characters, words, bare_words)


def _rows(parts: Sequence[QueryPart], texts: Sequence[_Read]) -> npt.NDArray[np.float64]:
    rows = [[_match(part, text) for part in parts] for text in texts]
    return np.array(rows).reshape(len(texts), len(parts))


def _match(part: QueryPart, text: _Read) -> float:
    if not part.is_word:
        if any(pair in text.characters for pair in part.whole):
            return 1.0
        return PARTIAL_WEIGHT if part.prefix in text.characters else 0.0
    if not text.words:
        return 0.0
    if part.whole[0] in text.words:
        return 1.0
    if not text.bare_words.isdisjoint(part.bare):
        return PARTIAL_WEIGHT
    return PARTIAL_WEIGHT if part.prefix and any(word.startswith(part.prefix) for word in text.words) else 0.0


def character_matches(query: str, size: int, frequencies: Mapping[int, int]) -> CharacterMatches | None:
    """Returns the weighted parts of a query, with no memories added yet; None for a query without parts.

    A character weighs ln(1 + n / (df + 1)), as a token does, and a word `CHARACTERS_PER_WORD` times that. n is `size`,
    the number of memories in the partition; df is the least of the `frequencies` (by term id) of `QueryPart.whole`.
    Beyond `MAX_PARTS` only the heaviest parts are kept.
    """
    parts, weights = _heaviest(parts_of(query), size, lambda term: frequencies.get(term_id(term), 0))
    return CharacterMatches(weights / weights.sum(), parts=parts) if parts else None


def match_among(parts: Sequence[QueryPart], texts: Sequence[str]) -> Row:
    """Returns how well each of some texts matches the parts of a query (`parts_of`), 0..1.

    The parts are weighed as in `character_matches`, by their frequencies among these texts.
    """
    read = [_read(parts, text) for text in texts]

    def frequency(term: str) -> int:
        if set(term) <= FUNCTION_CHARACTERS:
            return 0
        return sum(term in text.words or term in text.bare_words or term in text.characters for text in read)

    heaviest, weights = _heaviest(parts, len(texts), frequency)
    return np.asarray(_rows(heaviest, read) @ weights / weights.sum()) if heaviest else np.zeros(len(texts))


def _heaviest(
    parts: Sequence[QueryPart], size: int, frequency: Callable[[str], int]
) -> tuple[Sequence[QueryPart], Row]:
    """Returns the `MAX_PARTS` heaviest parts with their weights."""

    def weight(part: QueryPart) -> float:
        df = min(map(frequency, part.whole), default=size)
        return log(1 + max(size, 1) / (df + 1)) * (CHARACTERS_PER_WORD if part.is_word else 1)

    weights = {part: weight(part) for part in parts}
    heaviest = sorted(weights, key=lambda part: -weights[part])[:MAX_PARTS]
    return heaviest, np.array([weights[part] for part in heaviest])


def parts_of(query: str) -> list[QueryPart]:
    """Returns the characters and words of a query that are compared."""
    return list(_parts(fold(query)))


def _parts(query: str) -> Iterator[QueryPart]:
    for match in UNSPACED_RUN.finditer(query):
        run = match.group()
        for position, character in enumerate(run):
            if character not in FUNCTION_CHARACTERS:
                pairs = (run[start : start + 2] for start in (position - 1, position) if 0 <= start < len(run) - 1)
                yield QueryPart(tuple(pairs) or (character,), character)
    for word in tokens(UNSPACED_RUN.sub(" ", query)):
        traces = tuple(spelling[:-1] for spelling in typed_spellings(word))
        yield QueryPart((word,), stem_prefix(word), is_word=True, bare=bare_terms(word), traces=traces)


def stem_prefix(word: str) -> str:
    """Returns the beginning that a word shares with its inflected forms; "" for a word too short to cut."""
    beginning = word[: max(MIN_STEM, round(STEM_SHARE * len(word)))]
    return beginning if len(beginning) < len(word) else ""
