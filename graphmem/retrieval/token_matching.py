"""Token matches (max-sim): for each token of the query, the nearest token of a memory. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, repeat
from math import log
from typing import Self

import numpy as np
import numpy.typing as npt

from graphmem.text import term_id, tokens

Row = npt.NDArray[np.float64]
# Token vectors are unit rows stored as int8, multiplied by 127.
_SCALE = 127.0
# The factor of matches that a memory only repeats, in `MatchMatrix.gain`.
REPEAT_WEIGHT = 0.1
# See `length_penalty`. From 64 tokens on it would cost passages 1.5 points of R@5, from 128 on nothing
# (benchmarks/ABLATIONS.md, "Chats with an assistant").
LONG_TOKENS, LENGTH_EXPONENT = 128, 0.4


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
        memory_tokens = np.frombuffer(matrix, np.int8).reshape(-1, self.query_tokens.shape[1]).astype(np.float32)
        cosines = memory_tokens @ (self.query_tokens / _SCALE).T
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
