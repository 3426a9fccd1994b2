"""Checks the vectors that a function or an endpoint returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphmem.errors import EmbeddingError
from graphmem.plugins import Matrix


def unit_rows(vectors: Any, count: int, dims: int, *, source: str, remedy: str) -> Matrix:
    """Returns one vector for each of `count` texts as a matrix (count x dims, float32, unit rows).

    Raises EmbeddingError, which begins with `source`, "the embedding model" for example, and says what came in place of
    what. For vectors of another length it ends with `remedy`, in which "{length}" stands for that length.
    """
    try:
        returned = len(vectors)
        rows = [np.asarray(vector, dtype=np.float32) for vector in vectors]
    except Exception:  # noqa: BLE001  (any type may come; the error's text may quote it)
        raise EmbeddingError(f"{source} returned something else than a vector of numbers for each text") from None
    if returned != count:
        raise EmbeddingError(f"{source} returned {returned} vectors for {count} texts")
    lengths = sorted({row.shape for row in rows})
    if lengths != [(dims,)]:
        if any(len(shape) != 1 for shape in lengths):
            raise EmbeddingError(f"{source} returned something else than a vector of numbers for each text")
        found = " and ".join(str(length) for (length,) in lengths)
        advice = f"; {remedy.format(length=found)}" if len(lengths) == 1 else ""
        raise EmbeddingError(f"{source} returned vectors of {found} numbers where {dims} are expected{advice}")
    matrix = np.stack(rows)
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    unusable = int((~np.isfinite(norms) | (norms == 0)).sum())
    if unusable:
        raise EmbeddingError(
            f"{source} returned {unusable} of {count} vectors with numbers that are not finite, or with zeros alone"
        )
    return np.asarray(matrix / norms, dtype=np.float32)
