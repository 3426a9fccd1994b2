"""The embedder that calls a function supplied by the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphmem.errors import EmbeddingError
from graphmem.models.vectors import unit_rows
from graphmem.plugins import Matrix


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
            vectors = self._embed(list(texts))
        except Exception as error:
            # The error of an HTTP client carries a status.
            holders = error, getattr(error, "response", None)
            statuses = [status for one in holders if isinstance(status := getattr(one, "status_code", None), int)]
            http = f" (HTTP {statuses[0]})" if statuses else ""
            raise EmbeddingError(f"the embedder function failed with {type(error).__name__}{http}") from error
        rows = unit_rows(
            vectors,
            len(texts),
            self.dims,
            source="the embedder function",
            remedy="embedder.config.embedding_dims: set it to {length}",
        )
        return list(rows[:, None, :])

    def embed_query(self, text: str) -> Matrix:
        return np.asarray(self.embed([text])[0][0])
