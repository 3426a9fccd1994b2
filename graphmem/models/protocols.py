"""What graphmem asks of models. Implementations are safe to call from several threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphmem.model import EmbeddingSpec

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
    """A question's vector (dims,), its tokens' vectors (tokens x token dims, unit rows), and the word of each token."""

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


@runtime_checkable
class LocatingEmbedder(TokenEmbedder, Protocol):
    """A TokenEmbedder that tells where its tokens stand, so that the part of a long text that matches can be shown."""

    def token_places(self, text: str) -> Sequence[Sequence[int]]:
        """For each window that `embed_tokens` makes of a text, where its tokens begin. Raises EmbeddingError."""
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls of a language model took: tokens as the endpoint counts them (0 where it does not say), seconds.

    `cost` is money by the configured prices, 0 without.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request: `system` comes first and is the same each time (endpoints cache what begins alike), `user` varies.

    `schema` is the JSON Schema of the answer, strict: every property required, nothing else allowed; None asks for
    plain text. `timeout` in seconds, if it is to be less than the configured one.
    """

    operation: str
    system: str
    user: str
    schema: Mapping[str, Any] | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: the JSON value that was asked for (as it came, not checked against the schema), or text."""

    value: Any
    usage: Usage


class LanguageModel(Protocol):
    """Answers prompts. `name` is the model's."""

    @property
    def name(self) -> str: ...

    def answer(self, prompt: Prompt) -> Reply:
        """One answer, whole.

        Raises LLMError by name (`graphmem.errors`); it has tried again itself where that helps.
        """
        ...

    def close(self) -> None:
        """Lets go of connections. A second call does nothing; a prompt that comes after it raises LLMUnavailable."""
        ...


@runtime_checkable
class Closeable(Protocol):
    """A model that holds connections."""

    def close(self) -> None:
        """Lets go of them. A second call does nothing."""
        ...


def embedding_spec_of(embedder: Embedder) -> EmbeddingSpec:
    """What is kept of each text that this embedder reads."""
    if isinstance(embedder, TokenEmbedder):
        return EmbeddingSpec(embedder.model, embedder.token_form, embedder.token_dims)
    return EmbeddingSpec(embedder.model)
