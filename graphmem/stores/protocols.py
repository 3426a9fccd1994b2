"""The interfaces of vector indexes and graphs, and the states that delivery writes to them.

Implementations live beside this module; `graphmem.wiring` chooses one. The contract classes in `tests/stores` are the
executable form of these docstrings, and every implementation runs them.

A projection owns no data: it can be dropped and rebuilt from the ledger. It is delivered by state: each call passes the
current state of every row that changed, tombstones included, so that a state delivered twice, late or again after a
crash leads to the same contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from graphmem.errors import StoreUnavailable
from graphmem.model import Entity, EntityType, GraphBounds, MemoryRecord, MentionKind, Relation, Seeds, Subgraph, View

if TYPE_CHECKING:
    from graphmem.models.protocols import Matrix


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


class VectorIndex(Protocol):
    """Points, searched by vector and by words. Thread-safe; only one thread delivers at a time.

    All methods raise StoreUnavailable when the store is out of reach (StoreLost when it answers, but empty) and
    StoreError when it refuses the request. An index on a server connects at its first use, and has a method `check()`
    that only connects; `check()` raises ConfigError if nothing but another configuration can help.
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
