"""A MultilingualEmbedder of two models: one for the texts that it reads, one for all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from graphmem.concurrency import Pool
from graphmem.errors import StoreUnavailable
from graphmem.models.loading import PerProcess
from graphmem.plugins import Embedded, EmbeddedQuestion, LocatingEmbedder, Matrix

T = TypeVar("T")


class SentenceEncoder(Protocol):
    """Turns texts of several languages into unit vectors of one space. `model` names the model and its revision."""

    @property
    def model(self) -> str: ...

    @property
    def dims(self) -> int: ...

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Returns a matrix (texts x dims, float32, unit rows); a row does not depend on the other texts.

        Raises EmbeddingError.
        """
        ...

    def ranking_vector(self, vector: Matrix) -> Matrix:
        """Returns the unit vector whose cosines with vectors of texts rank them for a question with this vector.

        Raises EmbeddingError.
        """
        ...


class TwoSpaceEmbedder:
    """Embeds every text in the multilingual space, and those for which `reads` returns True with `own` as well."""

    def __init__(self, own: LocatingEmbedder, multilingual: SentenceEncoder, reads: Callable[[str], bool]) -> None:
        self._own = own
        self._multilingual = multilingual
        self._reads = reads
        self.model, self.dims = own.model, own.dims
        self.token_form, self.token_dims = own.token_form, own.token_dims
        self.multilingual_form, self.multilingual_dims = multilingual.model, multilingual.dims

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        """Returns the vectors of the first model, of texts that it does not read as well."""
        return self._own.embed(texts)

    def embed_query(self, text: str) -> Matrix:
        """Returns a question's vector of the first model."""
        return self._own.embed_query(text)

    def embed_tokens(self, texts: Sequence[str]) -> list[Embedded]:
        if not texts:
            return []
        encode = _begin(partial(self._multilingual.encode, texts))
        read = [text for text in texts if self._reads(text)]
        own = dict(zip(read, self._own.embed_tokens(read), strict=True))
        unread = Embedded(np.empty((0, self.dims), np.float32), ())
        return [
            Embedded((embedded := own.get(text, unread)).vectors, embedded.tokens, vector)
            for text, vector in zip(texts, encode(), strict=True)
        ]

    def embed_question(self, text: str) -> EmbeddedQuestion:
        if not self._reads(text):
            vector, ranking = self._read_multilingual(text)
            return EmbeddedQuestion(None, np.empty((0, self.token_dims), np.float32), (), vector, ranking)
        read_multilingual = _begin(partial(self._read_multilingual, text))
        own = self._own.embed_question(text)
        vector, ranking = read_multilingual()
        return EmbeddedQuestion(own.vector, own.tokens, own.words, vector, ranking)

    def _read_multilingual(self, text: str) -> tuple[Matrix, Matrix]:
        """Returns a question's vector, and the one that ranks texts for it."""
        vector = self._multilingual.encode([text])[0]
        return vector, self._multilingual.ranking_vector(vector)

    def token_places(self, text: str) -> Sequence[Sequence[int]]:
        return self._own.token_places(text)


# Both models read at the same time, so that a search and an addition wait for the slower one only. More threads than
# cores would read no faster.
_readers = PerProcess(lambda: Pool(os.cpu_count() or 1, "graphmem-reader"))


def _begin(read: Callable[[], T]) -> Callable[[], T]:
    """Begins to read in a thread, and returns what waits for the result: `read` itself if no thread can be started."""
    try:
        return _readers.get().submit(read).result
    except StoreUnavailable:
        return read
