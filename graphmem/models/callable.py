"""The embedder that calls a function supplied by the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphmem.errors import EmbeddingError
from graphmem.models.protocols import Matrix


class CallableEmbedder:
    """An Embedder around a function that returns one vector for each text; scales the vectors to unit length.

    Its methods raise EmbeddingError when the function fails, or does not return `dims` finite numbers, not all zero,
    for each text.
    """

    def __init__(self, embed: Callable[[list[str]], Sequence[Sequence[float]]], dims: int, model: str) -> None:
        self._embed = embed
        self.dims = dims
        self.model = model

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        if not texts:
            return []
        try:
            vectors = np.asarray(self._embed(list(texts)), dtype=np.float32)
        except Exception as error:
            raise EmbeddingError(f"the embedder function failed with {type(error).__name__}") from error
        if vectors.shape != (len(texts), self.dims):
            raise EmbeddingError(
                f"the embedder function returned shape {vectors.shape} for {len(texts)} texts; "
                f"expected ({len(texts)}, {self.dims}): check embedding_dims"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(vectors).all() or (lengths == 0).any():
            raise EmbeddingError("the embedder function returned a vector that is not finite, or all zeros")
        return list((vectors / lengths)[:, None, :])

    def embed_query(self, text: str) -> Matrix:
        return np.asarray(self.embed([text])[0][0])
