"""Words compared in their context: for each token of the question the nearest token of a memory (max-sim). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log

import numpy as np
import numpy.typing as npt

from graphmem.text import term_id, tokens

Row = npt.NDArray[np.float64]
# Unit rows are kept as bytes, times 127.
_SCALE = 127.0
# What a memory says again counts this much of what it adds.
REPEAT_WEIGHT = 0.1
# Tokens up to which a text is not too long, and what each doubling beyond costs it (`length_penalty`).
LONG_TOKENS, LENGTH_EXPONENT = 128, 0.4


@dataclass(slots=True)
class MatchMatrix:
    """How well each part of a question is matched by memories: a row (0..1 for each part) by memory.

    `weights` says how much each part tells; they sum to 1. A memory that was not added matches nothing.
    """

    weights: Row
    _places: dict[str | None, int] = field(default_factory=dict)
    _rows: npt.NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self._rows = np.zeros((1, len(self.weights)))  # the first is that of who has none

    def add_rows(self, ids: Collection[str], rows: npt.NDArray[np.float64], lengths: npt.ArrayLike) -> None:
        """Adds memories' rows; `lengths` are those of their texts in tokens. Long ones count less
        (`length_penalty`).
        """
        self._places.update(zip(ids, range(len(self._rows), len(self._rows) + len(ids)), strict=True))
        self._rows = np.concatenate([self._rows, rows / length_penalty(lengths)[:, None]])

    def row(self, uid: str) -> Row:
        """A memory's row."""
        return np.asarray(self._rows[self._places.get(uid, 0)])

    def matrix(self, ids: Iterable[str | None]) -> npt.NDArray[np.float64]:
        """The rows of these memories (None: nothing), one below the other."""
        return np.asarray(self._rows[[self._places.get(uid, 0) for uid in ids]])

    def gain(self, rows: npt.NDArray[np.float64], to: str) -> Row:
        """What each of the rows adds to what a memory matches, and a little of what it repeats."""
        return np.asarray(np.maximum(0.0, rows - self.row(to)) @ self.weights + REPEAT_WEIGHT * (rows @ self.weights))

    def contains(self, uid: str) -> bool:
        """Whether a memory was added."""
        return uid in self._places


@dataclass(slots=True)
class TokenMatches(MatchMatrix):
    """Max-sim: each token of the question (`question`: unit rows) with the nearest one of a memory."""

    question: npt.NDArray[np.float32] = field(kw_only=True)

    def add(self, ids: Sequence[str], windows: Sequence[bytes]) -> None:
        """Compares memories, given by the token matrices (int8) of their windows; those of a memory stand together."""
        length = self.question.shape[1]
        counts: dict[str, int] = {}
        for uid, window in zip(ids, windows, strict=True):
            if window:
                counts[uid] = counts.get(uid, 0) + len(window) // length
        if not counts or not len(self.question):
            return
        sizes = list(counts.values())
        starts = np.cumsum([0, *sizes])[:-1]
        self.add_rows(counts, self.nearest(b"".join(windows), starts), sizes)

    def nearest(self, matrix: bytes, starts: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """How near the nearest token of each part of a matrix is to each token of the question: cosine, squared.

        `matrix` are tokens (int8), `starts` where its parts begin. A row for each part, 0..1 for each token.
        """
        held = np.frombuffer(matrix, np.int8).reshape(-1, self.question.shape[1]).astype(np.float32)
        cosines = (self.question / _SCALE) @ held.T
        return np.clip(np.maximum.reduceat(cosines, np.asarray(starts), axis=1), 0.0, 1.0).T.astype(np.float64) ** 2


def length_penalty(lengths: npt.ArrayLike) -> Row:
    """What matches of texts of so many tokens are divided by: 1, and more beyond `LONG_TOKENS`.

    The longer a text is, the likelier any token of a question finds a near one in it by chance: without this the long
    replies of an assistant come before the turns that answer (`benchmarks/ABLATIONS.md`, "Chats with an assistant").
    """
    return np.asarray(
        1.0 + LENGTH_EXPONENT * np.log2(np.maximum(np.asarray(lengths, dtype=np.float64), LONG_TOKENS) / LONG_TOKENS)
    )


def relative_to_max(found: Mapping[str, float]) -> dict[str, float]:
    """Figures as shares of the greatest; none if that is 0."""
    most = max(found.values(), default=0.0)
    return {uid: value / most for uid, value in found.items()} if most > 0 else {}


def terms_of(words: Iterable[str]) -> dict[str, list[int]]:
    """The terms that each word counts as in the statistics; none for stop words and signs."""
    return {word: [term_id(token) for token in tokens(word)] for word in dict.fromkeys(words)}


def token_weights(words: Sequence[str], size: int, frequencies: Mapping[int, int]) -> Row:
    """How much each token of a question tells: ln(1 + n / (df + 1)), summing to 1.

    `words` gives each token's word, `frequencies` the df of terms. A stop word counts as held by every memory.
    """
    terms = terms_of(words)

    def df(word: str) -> int:
        return min((frequencies.get(term, 0) for term in terms[word]), default=size)

    found = np.array([log(1 + max(size, 1) / (df(word) + 1)) for word in words])
    return found / found.sum() if len(found) else found
