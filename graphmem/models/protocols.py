"""Interfaces of embedders and language models, with their data types. Implementations are thread-safe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphmem.model import EmbeddingSpec

Matrix: TypeAlias = npt.NDArray[np.float32]
Tokens: TypeAlias = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A text's vectors (windows x dims, float32, unit rows) and one token matrix for each window.

    A token matrix is (tokens x token dims, int8): unit rows times 127. Embedders without tokens leave `tokens` empty.
    `multilingual` is the whole text's vector in the multilingual space (multilingual dims, unit length), None without
    such a space. With one, a text that the embedder reads in no other space has no `vectors` (0 x dims) and no tokens.
    """

    vectors: Matrix
    tokens: tuple[Tokens, ...]
    multilingual: Matrix | None = None

    @property
    def windows(self) -> int:
        """The number of the text's points in a vector index: one for each window, at least one."""
        return max(1, len(self.vectors))


@dataclass(frozen=True, slots=True)
class EmbeddedQuestion:
    """A question's vector (dims,), its token vectors (tokens x token dims, unit rows) and the word of each token.

    `multilingual` is its vector in the multilingual space, None without such a space. With one, `vector` is None, and
    there are no tokens, if the embedder reads the question in no other space.
    """

    vector: Matrix | None
    tokens: Matrix
    words: tuple[str, ...]
    multilingual: Matrix | None = None


class Embedder(Protocol):
    """Turns texts into unit-length vectors.

    `model` names the model and its revision: vectors of different names are never compared. `dims` is the vectors'
    length.
    """

    @property
    def model(self) -> str: ...

    @property
    def dims(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> list[Matrix]:
        """Returns one matrix (windows x dims, float32, unit rows) for each text, in order.

        A matrix has one row unless the text is long. A text's rows do not depend on the other texts of the call.
        Raises EmbeddingError when the model fails.
        """
        ...

    def embed_query(self, text: str) -> Matrix:
        """Returns a question's unit vector (dims,). Raises EmbeddingError."""
        ...


@runtime_checkable
class TokenEmbedder(Embedder, Protocol):
    """An Embedder that also returns a vector for each token of a text, for comparing words in their context."""

    @property
    def token_form(self) -> str:
        """The embedding form of token matrices, such as "tokens-128"; different forms are never compared."""
        ...

    @property
    def token_dims(self) -> int:
        """The length of a token vector."""
        ...

    def embed_tokens(self, texts: Sequence[str]) -> list[Embedded]:
        """Returns each text's vectors, as `embed` does, and the token matrix of each window. Raises EmbeddingError."""
        ...

    def embed_question(self, text: str) -> EmbeddedQuestion:
        """Returns a question's vector, as `embed_query` does, and its tokens. Raises EmbeddingError."""
        ...


@runtime_checkable
class LocatingEmbedder(TokenEmbedder, Protocol):
    """A TokenEmbedder with the tokens' offsets in the text, for showing the matching part of a long text."""

    def token_places(self, text: str) -> Sequence[Sequence[int]]:
        """Returns, for each window of `embed_tokens`, the character offset of each token. Raises EmbeddingError."""
        ...


@runtime_checkable
class MultilingualEmbedder(TokenEmbedder, Protocol):
    """A TokenEmbedder with a second space, in which texts of several languages are compared.

    Every text has a vector there, and only those that the first model reads have vectors and tokens of their own.
    """

    @property
    def multilingual_form(self) -> str:
        """The embedding form of the vectors in the multilingual space, named after their model and its revision."""
        ...

    @property
    def multilingual_dims(self) -> int:
        """The length of a vector in the multilingual space."""
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """The consumption of language model calls: tokens as the endpoint counts them (0 if it reports none), seconds.

    `cached_tokens` are among `prompt_tokens`. `cost` is money by the configured prices, 0 without prices.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to a language model.

    `operation` names the request in usage statistics. `system` comes first and stays the same between requests, because
    endpoints cache a common beginning; `user` varies. `schema` is the JSON Schema of the answer, strict: every property
    required, no others allowed; None asks for plain text. `timeout` is a limit for the whole request in seconds; it
    takes effect only if it is below the configured timeout. `images` are URLs or data: URLs, which go with `user`.
    """

    operation: str
    system: str
    user: str
    schema: Mapping[str, Any] | None = None
    timeout: float | None = None
    images: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: the JSON value (not validated against the schema), or text if the prompt has no schema."""

    value: Any
    usage: Usage


class LanguageModel(Protocol):
    """Answers prompts. `name` is the model's name."""

    @property
    def name(self) -> str: ...

    def answer(self, prompt: Prompt) -> Reply:
        """Returns one complete answer.

        Retries by itself where that may help; callers do not. Raises a subclass of LLMError (`graphmem.errors`).
        """
        ...

    def close(self) -> None:
        """Closes the connections. A second call does nothing; a later `answer` raises LLMUnavailable."""
        ...


@runtime_checkable
class Closeable(Protocol):
    """A model with connections, or another object with work that has to end before the stores are closed."""

    def close(self) -> None:
        """Closes the connections and ends the work, within a time limit. A second call does nothing."""
        ...


def embedding_spec_of(embedder: Embedder) -> EmbeddingSpec:
    """Returns the kinds of embeddings that are stored for each text with this embedder."""
    if isinstance(embedder, MultilingualEmbedder):
        return EmbeddingSpec(
            embedder.model,
            embedder.dims,
            embedder.token_form,
            embedder.token_dims,
            embedder.multilingual_form,
            embedder.multilingual_dims,
        )
    if isinstance(embedder, TokenEmbedder):
        return EmbeddingSpec(embedder.model, embedder.dims, embedder.token_form, embedder.token_dims)
    return EmbeddingSpec(embedder.model, embedder.dims)


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is said in a sound, "" for nothing."""

    text: str
    usage: Usage


class Transcriber(Protocol):
    """Writes down what is said in sounds. `name` is the model's name."""

    @property
    def name(self) -> str: ...

    def transcribe(self, data: bytes, mime: str | None) -> Transcript:
        """Returns what is said in a sound of this media type (None: unknown).

        Retries by itself where that may help; callers do not. Raises a subclass of LLMError (`graphmem.errors`).
        """
        ...

    def close(self) -> None:
        """Closes the connections. A second call does nothing."""
        ...
