"""What graphmem asks of models. Implementations are safe to call from several threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from graphmem.model import Extraction, Mention, Utterance

Matrix: TypeAlias = npt.NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into unit-length vectors.

    `model` names the model and its revision: vectors of different names are never compared. `dims` is their length.
    """

    @property
    def model(self) -> str: ...

    @property
    def dims(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        """One matrix (windows x dims, float32, unit rows) for each text, in order; one row unless the text is long.

        Raises EmbeddingError when the model fails. The same text gives the same rows whatever it is batched with.
        """
        ...

    def embed_query(self, text: str) -> Matrix:
        """One unit vector (dims,) for a question. Raises EmbeddingError."""
        ...


class Extractor(Protocol):
    """Finds entities and the relations between them without a language model."""

    @property
    def name(self) -> str: ...

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        """One extraction for each utterance, in order. "I" and "my" are the speaker. Raises ModelError."""
        ...

    def keys(self, question: str) -> list[Mention]:
        """What a question names, by the same rules, as one mention for each key. Raises ModelError."""
        ...
