"""What graphmem asks of models. Implementations are safe to call from several threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphmem.model import Extraction, Forms, Mention, Utterance

Matrix: TypeAlias = npt.NDArray[np.float32]
Tokens: TypeAlias = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A text's vectors (windows x dims, float32, unit rows) and, for each window, its tokens' vectors.

    A token matrix is (tokens x token dims, int8): unit rows times 127.
    """

    vectors: Matrix
    tokens: tuple[Tokens, ...]


@dataclass(frozen=True, slots=True)
class EmbeddedQuestion:
    """A question's vector (dims,), its tokens' vectors (tokens x token dims, unit rows), and the word of each token.

    No tokens: the model does not know the question's language well enough to compare words.
    """

    vector: Matrix
    tokens: Matrix
    words: tuple[str, ...]


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


@runtime_checkable
class TokenEmbedder(Embedder, Protocol):
    """An Embedder that also gives a vector for each token of a text, to compare words in their context."""

    @property
    def token_form(self) -> str:
        """The name token matrices are filed under: those of different names are never compared."""
        ...

    @property
    def token_dims(self) -> int:
        """The length of a token's vector."""
        ...

    def embed_tokens(self, texts: Sequence[str]) -> list[Embedded]:
        """`embed`, with each window's tokens. Raises EmbeddingError."""
        ...

    def embed_question(self, text: str) -> EmbeddedQuestion:
        """`embed_query`, with the question's tokens. Raises EmbeddingError."""
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


def forms_of(embedder: Embedder) -> Forms:
    """What is kept of each text that this embedder reads."""
    if isinstance(embedder, TokenEmbedder):
        return Forms(embedder.model, embedder.token_form, embedder.token_dims)
    return Forms(embedder.model)
