"""Words compared in their context: for each token of the question the nearest token of a memory (max-sim). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log

import numpy as np
import numpy.typing as npt

from graphmem.text import term_id, tokens

Row = npt.NDArray[np.float64]
# Unit rows are kept as bytes, times 127.
_SCALE = 127.0


@dataclass(slots=True)
class Matches:
    """How well each token of a question is matched by memories: a row (0..1 for each token) by memory.

    `weights` says how much each token tells; they sum to 1. A memory without tokens matches nothing.
    """

    question: npt.NDArray[np.float32]
    weights: Row
    _rows: dict[str, Row] = field(default_factory=dict)

    def add(self, matrices: Mapping[str, Sequence[npt.NDArray[np.int8]]]) -> None:
        """Compares memories, given by the token matrices of their windows."""
        flat = [(uid, matrix) for uid, windows in matrices.items() for matrix in windows if len(matrix)]
        if not flat or not len(self.question):
            return
        stacked = np.concatenate([matrix for _, matrix in flat]).astype(np.float32)
        near = (self.question / _SCALE) @ stacked.T
        starts = np.cumsum([0, *(len(matrix) for _, matrix in flat[:-1])])
        best = np.clip(np.maximum.reduceat(near, starts, axis=1), 0.0, 1.0).T.astype(np.float64) ** 2
        for (uid, _), row in zip(flat, best, strict=True):
            self._rows[uid] = np.maximum(self._rows[uid], row) if uid in self._rows else row

    def of(self, uid: str) -> Row:
        """A memory's row."""
        row = self._rows.get(uid)
        return np.zeros(len(self.weights)) if row is None else row

    def matrix(self, ids: Iterable[str | None]) -> npt.NDArray[np.float64]:
        """The rows of these memories (None: nothing), one below the other."""
        rows = [self.of(uid) if uid is not None else np.zeros(len(self.weights)) for uid in ids]
        return np.array(rows).reshape(len(rows), len(self.weights))

    def holds(self, uid: str) -> bool:
        """Whether a memory has tokens."""
        return uid in self._rows


def terms_of(words: Iterable[str]) -> dict[str, list[int]]:
    """The terms that each word counts as in the statistics; none for stop words and signs."""
    return {word: [term_id(token) for token in tokens(word)] for word in dict.fromkeys(words)}


def weights(words: Sequence[str], size: int, frequencies: Mapping[int, int]) -> Row:
    """How much each token of a question tells: ln(1 + n / (df + 1)), summing to 1.

    `words` gives each token's word, `frequencies` the df of terms. A stop word counts as held by every memory.
    """
    terms = terms_of(words)

    def df(word: str) -> int:
        return min((frequencies.get(term, 0) for term in terms[word]), default=size)

    found = np.array([log(1 + max(size, 1) / (df(word) + 1)) for word in words])
    return found / found.sum() if len(found) else found
