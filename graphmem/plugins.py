"""The interfaces of the parts that can be replaced, with their data types: models, rerankers, vector indexes, graphs.

`graphmem.wiring` opens what the configuration names. Implementations are thread-safe.

Vector indexes and graphs are projections. A projection owns no data: it can be dropped and rebuilt from the ledger. It
is delivered by state: each call passes the current state of every row that changed, tombstones included, so that a
state delivered twice, late or again after a crash leads to the same contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphmem.errors import StoreUnavailable
from graphmem.model import (
    EmbeddingSpec,
    Entity,
    EntityType,
    GraphBounds,
    Kind,
    MemoryRecord,
    MentionEdge,
    MentionKind,
    Relation,
    Scope,
    Seeds,
    Subgraph,
    View,
)

__all__ = [
    "Closeable",
    "Embedded",
    "EmbeddedQuestion",
    "Embedder",
    "EmbeddingSpec",
    "Entity",
    "EntityState",
    "EntityType",
    "Graph",
    "GraphBounds",
    "GraphIndex",
    "Kind",
    "LanguageModel",
    "LocatingEmbedder",
    "Matrix",
    "MemoryRecord",
    "MemoryState",
    "MentionEdge",
    "MentionKind",
    "MultilingualEmbedder",
    "Point",
    "Prompt",
    "Relation",
    "RelationState",
    "Reply",
    "Reranker",
    "Scope",
    "Seeds",
    "StoreLost",
    "Subgraph",
    "Support",
    "TokenEmbedder",
    "Tokens",
    "Transcriber",
    "Transcript",
    "Usage",
    "VectorIndex",
    "VectorSearch",
    "View",
    "embedding_spec_of",
]

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
    there are no tokens, if the embedder reads the question in no other space. `multilingual_ranking` is the unit vector
    whose cosines with memories' multilingual vectors rank them; None: `multilingual` itself.
    """

    vector: Matrix | None
    tokens: Matrix
    words: tuple[str, ...]
    multilingual: Matrix | None = None
    multilingual_ranking: Matrix | None = None


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


@runtime_checkable
class Closeable(Protocol):
    """A model with connections, or another object with work that has to end before the stores are closed."""

    def close(self) -> None:
        """Closes the connections and ends the work, within a time limit. A second call does nothing."""
        ...


class Reranker(Protocol):
    """Tells how well texts answer a query; any such function is one."""

    def __call__(self, query: str, texts: list[str], /) -> Sequence[float]:
        """Returns one finite score for each text, in order: the higher the better, of any range.

        Whatever it raises leaves the search with its own order. The log has the class of the error, and the text of a
        ModelError, which may quote neither the query nor a text.
        """
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


class StoreLost(StoreUnavailable):
    """The store answers, but its contents are gone; the projection has to be rebuilt."""


@dataclass(frozen=True, slots=True)
class Point:
    """A memory as written to a vector index: its record, one vector per window, its BM25 weights by term.

    `multilingual` is the whole text's vector in the multilingual space, if there is one. A memory that has it alone has
    no `vectors` (0 x dims) and one point. The index stores `record.seq` with each point.
    """

    record: MemoryRecord
    vectors: Matrix
    weights: Mapping[int, float]
    multilingual: Matrix | None = None

    @property
    def windows(self) -> int:
        """The number of points in the index."""
        return max(1, len(self.vectors))


@dataclass(frozen=True, slots=True)
class MemoryState:
    """A memory as written to a graph: its record, its mentions and its links to other memories.

    All links are memory ids: `previous` is the episode before it in its session, `drawn_from` the sources of a fact or
    summary, `replaces` the memories that it retired, `compresses` the forgotten ones that were merged into it,
    `abstracts` those that it was abstracted from.
    """

    record: MemoryRecord
    mentions: tuple[tuple[Entity, MentionKind], ...]
    previous: str | None
    drawn_from: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    compresses: tuple[str, ...] = ()
    abstracts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RelationState:
    """A relation as written to a graph, whole, from the supports that are left of it."""

    relation: Relation
    partition: str
    seq: int
    supports: tuple[Support, ...]


@dataclass(frozen=True, slots=True)
class EntityState:
    """The name and the aliases of an entity, for the few entities that have a chosen name or an alias.

    `id` is a hash of its partition and key (`graphmem.text.entity_id`), `same_as` the keys that mean the same entity.
    A graph writes the state whole. The state may arrive before the first memory that mentions the entity, or after the
    last one is gone.
    """

    id: str
    partition: str
    key: str
    name: str
    type: EntityType
    seq: int
    same_as: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Support:
    """One memory's statement of a relation: the memory's id, the words, and the time in microseconds."""

    memory: str
    fact: str
    valid_at: int | None
    invalid_at: int | None


class VectorSearch(Protocol):
    """Searches memories by vector and by words. Errors are those of `VectorIndex`."""

    def dense(self, view: View, vector: Matrix, limit: int) -> list[tuple[str, float]]:
        """Returns (memory id, cosine) of the nearest memories in the view, best first, each by its best window."""
        ...

    def multilingual(
        self, view: View, vector: Matrix, limit: int, *, without_dense: bool = False
    ) -> list[tuple[str, float]]:
        """Returns (memory id, cosine) of the nearest memories in the multilingual space, in the view, best first.

        `without_dense`: only of memories that have no vector in the other space. Nothing from an index that was made
        without the multilingual space.
        """
        ...

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> list[tuple[str, float]]:
        """Returns (memory id, score) of the memories in the view with the highest scores above 0, best first.

        The score is the dot product of `weights` and the memory's weights.
        """
        ...


class VectorIndex(VectorSearch, Protocol):
    """Points, searched by vector and by words. Thread-safe; only one thread delivers at a time.

    All methods raise StoreUnavailable when the store is out of reach (StoreLost when it answers, but empty) and
    StoreError when it refuses the request. An index on a server connects at its first use, and has a method `check()`
    that only connects; `check()` raises ConfigError if nothing but another configuration can help. An index may have an
    attribute `place`, a name for where its contents are: a ledger remembers for each place what it has delivered there.
    The contents are of one ledger; before another one delivers, it wipes them.
    """

    def upsert(self, points: Sequence[Point]) -> None:
        """Writes points whole, replacing all windows of those memories. Durable after the next `flush`."""
        ...

    def delete(self, ids: Sequence[str]) -> int:
        """Removes memories and returns the number of points removed. Ignores unknown ids.

        Durable after the next `flush`.
        """
        ...

    def flush(self) -> None:
        """Makes durable what was written and removed; does nothing where that is durable when it returns."""
        ...

    def count(self) -> int:
        """Returns the number of points."""
        ...

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        """Yields (memory id, seq, number of windows) of these partitions, or of all, for `verify`."""
        ...

    def wipe(self) -> None:
        """Removes everything that graphmem wrote, and nothing else."""
        ...

    def close(self) -> None:
        """Releases files, locks and connections. Later calls, and calls in progress, raise StoreUnavailable."""
        ...


class Graph(Protocol):
    """Reads the entity-relation graph."""

    def neighbourhood(self, view: View, seeds: Seeds, limits: GraphBounds) -> Subgraph:
        """Returns the bounded neighbourhood of the seeds in `view.partition`, which must be set.

        Applies the view before each limit. Collects, in this order and at most `limits.memories` in all:

        1. the seed memories;
        2. the memories up to `limits.steps` before and after them in their session;
        3. for each seed entity its best `limits.seed_mentions` memories: by kind of mention, then newest first;
        4. for each frontier entity its best `limits.frontier_mentions` memories. The frontier are the
           `limits.frontier` entities with the fewest memories among those that the memories of 1 and 3 mention;
           seed entities and entities of a single memory are not part of it.

        A mention of kind `MentionKind.COMMON_NOUN` links nothing. Raises StoreUnavailable.
        """
        ...


@runtime_checkable
class GraphIndex(Graph, Protocol):
    """A graph that is a projection, filled by delivery. Errors and `check()` are those of `VectorIndex`."""

    def upsert(
        self,
        memories: Sequence[MemoryState] = (),
        relations: Sequence[RelationState] = (),
        entities: Sequence[EntityState] = (),
    ) -> None:
        """Writes each state whole, in the order of the arguments. Durable when it returns.

        Skips a state older than the stored one. Raises StoreError, having written nothing, if the store refuses one.
        """
        ...

    def delete(self, memories: Sequence[str], relations: Sequence[str] = (), entities: Sequence[str] = ()) -> int:
        """Removes memories, relations, the states of entities, and then entities that nothing mentions any more.

        Returns the number of nodes and edges removed. Ignores unknown ids.
        """
        ...

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int]]:
        """Yields (id, seq) of the memories, relations and entity states of these partitions, or of all."""
        ...

    def count(self) -> int:
        """Returns the number of memories."""
        ...

    def wipe(self) -> None:
        """Removes everything that graphmem wrote, and nothing else."""
        ...

    def close(self) -> None:
        """Releases connections. Later calls, and calls in progress, raise StoreUnavailable."""
        ...
