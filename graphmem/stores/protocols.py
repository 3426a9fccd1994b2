"""What graphmem asks of its projections. The contract tests in `tests/stores` say the same as running code.

A projection holds nothing of its own: it can be thrown away and filled again from the ledger. It is filled by state:
what it is given is the current state of whatever changed, tombstones included, and being given it twice, late or after
a crash leads to the same contents.
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
    """The store is there, but what it held is gone; it has to be filled again."""


@dataclass(frozen=True, slots=True)
class Point:
    """A memory as a vector index takes it: its record, one vector for each window, its BM25 weights by term.

    `record.change` is the version that the index keeps with it.
    """

    record: MemoryRecord
    vectors: Matrix
    weights: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class MemoryState:
    """A memory as a graph takes it: what it mentions, the episode before it in its session, and what it stands on.

    `drawn_from` are the sources of a fact or summary, `replaces` what it retired: memory ids.
    """

    record: MemoryRecord
    mentions: tuple[tuple[Entity, MentionKind], ...]
    previous: str | None
    drawn_from: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RelationState:
    """A relation as a graph takes it: written whole from its living supports."""

    relation: Relation
    partition: str
    seq: int
    supports: tuple[Support, ...]


@dataclass(frozen=True, slots=True)
class EntityState:
    """An entity of which something is said beyond the texts: what it is called, and the keys that mean the same.

    `id` is a hash of its partition and key (`graphmem.text.entity_id`). A graph takes it whole. It may come before any
    memory that mentions it, or after the last one went.
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
    """What one memory says of a relation. Times are microseconds."""

    memory: str
    fact: str
    valid_at: int
    invalid_at: int | None


class VectorIndex(Protocol):
    """Points by nearness. Calls may come from several threads; only one of them delivers at a time.

    All methods raise StoreUnavailable when the store is out of reach (StoreLost when it answers, but empty), StoreError
    when it refuses. One on a server connects when it is first asked; its method `check()` does that and nothing else,
    raising ConfigError for what only another configuration helps.
    """

    def upsert(self, points: Sequence[Point]) -> None:
        """Writes points whole, over whatever those memories had; durable when it returns."""
        ...

    def delete(self, ids: Sequence[str]) -> int:
        """Removes memories; returns how many points that were. Unknown ids are no error. Durable when it returns."""
        ...

    def dense(self, view: View, vector: Matrix, limit: int) -> list[tuple[str, float]]:
        """The nearest memories in the view: (id, cosine), best first, each by its best window."""
        ...

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> list[tuple[str, float]]:
        """The memories in the view with the highest sum of products of weights: (id, score > 0), best first."""
        ...

    def count(self) -> int:
        """How many points there are."""
        ...

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        """What is held, (memory id, version, windows), of these partitions or of all: for `verify`."""
        ...

    def wipe(self) -> None:
        """Removes everything that graphmem put there, and nothing else."""
        ...

    def close(self) -> None:
        """Lets go of files, locks and connections. Calls that come later, or are under way, raise StoreUnavailable."""
        ...


class Graph(Protocol):
    """The entity-relation graph, read."""

    def neighbourhood(self, view: View, seeds: Seeds, limits: GraphBounds) -> Subgraph:
        """The bounded neighbourhood of some seeds, in one call.

        `view.partition` is set; the view is applied before each limit. Taken are: the seed memories in the view, with
        those up to `steps` before and after them in the session; the best `seed_mentions` memories of each seed entity
        (kind, then newest); of the other entities of both, but for those of one memory only, the `frontier` that
        fewest memories hold, and the best `frontier_mentions` memories of each; up to `memories` in all, in that
        order. A THING links nothing. Raises StoreUnavailable.
        """
        ...


@runtime_checkable
class GraphIndex(Graph, Protocol):
    """A graph that is a copy and has to be filled. Errors, and `check()`, as a `VectorIndex`'s."""

    def upsert(
        self,
        memories: Sequence[MemoryState] = (),
        relations: Sequence[RelationState] = (),
        entities: Sequence[EntityState] = (),
    ) -> None:
        """Writes each whole, in this order; durable when it returns. What is older than what is held changes nothing.

        Raises StoreError, and has written nothing then, when the store refuses one of them.
        """
        ...

    def delete(self, memories: Sequence[str], relations: Sequence[str] = (), entities: Sequence[str] = ()) -> int:
        """Removes memories and relations, what was said of entities, and entities that nothing mentions any more.

        Returns how many nodes and edges that were; unknown ids are no error.
        """
        ...

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int]]:
        """What is held, (id, version) of memories, relations and told-of entities, of these partitions or all."""
        ...

    def count(self) -> int:
        """How many memories there are."""
        ...

    def wipe(self) -> None:
        """Removes everything that graphmem put there, and nothing else."""
        ...

    def close(self) -> None:
        """Lets go of connections. Calls that come later, or are under way, raise StoreUnavailable."""
        ...
