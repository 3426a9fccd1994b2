"""The embedded graph: the `Graph` protocol over the ledger's own tables and the columns of them in memory.

It is no copy, so it is always up to date and needs no cursor and no delivery. It reads the bounded neighbourhood of a
search's seeds from columns in memory if the partition has them, else from the ledger's tables.

`_best_mentions` reads the best mentions of many entities at once, as one UNION of limited reads of a covering index:
`row_number() OVER (PARTITION BY entity)` would read every hub entity whole (15 to 82 ms instead of 0.1), and one
statement per entity would cost a round trip each on a server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import CompoundSelect, Connection, Select, and_, bindparam, select, union_all

from graphmem.model import CandidateRow, GraphBounds, MentionEdge, MentionKind, Seeds, Subgraph, View
from graphmem.stores.ledger import visibility
from graphmem.stores.ledger.columns import VisibleColumns
from graphmem.stores.ledger.memories import partition_row
from graphmem.stores.ledger.schema import entities, memories, mentions
from graphmem.stores.ledger.sql import in_array, mention_kind

if TYPE_CHECKING:
    from graphmem.stores.ledger import Ledger

# Entities read by one UNION; shorter lists are padded with `_NO_ENTITY`.
UNION_SIZE = 16
_NO_ENTITY = -1


class EmbeddedGraph:
    """The `Graph` of a ledger without a graph server."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def neighbourhood(self, view: View, seeds: Seeds, limits: GraphBounds) -> Subgraph:
        with self._ledger.read() as connection:
            columns = self._ledger.columns.visible(connection, view)
            return neighbourhood(connection, view, seeds, limits, columns)


def neighbourhood(
    connection: Connection, view: View, seeds: Seeds, limits: GraphBounds, columns: VisibleColumns | None = None
) -> Subgraph:
    """Returns the bounded neighbourhood of seeds in `view.partition`; `graphmem.plugins.Graph` defines it.

    Reads the partition's columns if they are given, as the view shows them.
    """
    query: _Neighbourhood
    if columns is not None:
        query = _ColumnNeighbourhood(columns)
    else:
        partition = partition_row(connection, view.partition or "")
        if partition is None:
            return Subgraph()
        query = _TableNeighbourhood(connection, view, partition)
    seed_entities = query.entity_rows(seeds.entities)
    seed_memories = query.visible_seeds(seeds.memories)
    mentioning = query.best_mentions(seed_entities, limits.seed_mentions)
    frontier = query.rarest_entities([*seed_memories, *mentioning], limits.frontier, seed_entities)
    beyond = query.best_mentions(frontier, limits.frontier_mentions)
    in_session = query.session_rows(seed_memories, limits.steps)
    row_ids = dict.fromkeys([*seed_memories, *in_session, *mentioning, *beyond])
    return query.subgraph(list(row_ids)[: limits.memories], seed_entities)


def next_pairs(connection: Connection, view: View, uids: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the pairs of consecutive memories of a session, by id, with at least one of these memories.

    Both memories of a pair are inside the view, whose partition is ignored.
    """
    row_ids = list(connection.scalars(select(memories.c.id).where(memories.c.uid.in_(uids))))
    return list(_TableNeighbourhood(connection, replace(view, partition=None), 0).visible_pairs(row_ids))


class _SessionRow(NamedTuple):
    """A memory with the row ids before and after it in its session."""

    id: str
    before: int | None
    after: int | None


_MISSING = _SessionRow("", None, None)


class _Neighbourhood(ABC):
    """Builds one neighbourhood and keeps the session rows that were read for it, and which of them are visible."""

    def __init__(self) -> None:
        self._loaded: dict[int, _SessionRow | CandidateRow] = {}
        self._visible: set[int] = set()

    @abstractmethod
    def entity_rows(self, keys: Sequence[str]) -> list[int]:
        """Returns the rows of the entities with these keys, in their order."""

    @abstractmethod
    def visible_seeds(self, uids: Sequence[str]) -> list[int]:
        """Returns the rows of those of these memories that are inside the view, in their order."""

    @abstractmethod
    def _read_session_rows(self, row_ids: Sequence[int]) -> None:
        """Loads the session rows of those of these memories that are there, and notes which are inside the view."""

    @abstractmethod
    def rarest_entities(self, row_ids: Sequence[int], limit: int, without: Iterable[int]) -> list[int]:
        """Returns the entities that these memories share with others, those with the fewest memories first."""

    @abstractmethod
    def best_mentions(self, entity_rows: Sequence[int], limit: int) -> list[int]:
        """Returns up to `limit` visible memories for each entity, the best mentions first (kind, then newest)."""

    @abstractmethod
    def _mentions_of(self, row_ids: Sequence[int]) -> Sequence[tuple[int, int, int, str, int]]:
        """Returns the mentions of memories as (row, kind, and the entity's row, key, document frequency)."""

    def _load(self, row_ids: Iterable[int]) -> None:
        """Reads the session rows of those memories that were not read before."""
        new = [row_id for row_id in row_ids if row_id not in self._loaded]
        if new:
            self._loaded.update(dict.fromkeys(new, _MISSING))
            self._read_session_rows(new)

    def session_rows(self, start: Sequence[int], steps: int) -> list[int]:
        """Returns the visible memories up to `steps` before or after these in the session, the nearest first.

        A hidden memory counts as a step.
        """
        reached, ends = dict.fromkeys(start), list(start)
        for _ in range(steps if start else 0):
            neighbours = sorted({row_id for pair in self._next_pairs(ends) for row_id in pair})
            ends = [row_id for row_id in neighbours if row_id not in reached]
            reached.update(dict.fromkeys(ends))
        added = list(reached)[len(start) :]
        self._load(added)
        return [row_id for row_id in added if row_id in self._visible]

    def _next_pairs(self, row_ids: Sequence[int]) -> set[tuple[int, int]]:
        self._load(row_ids)
        rows = {row_id: self._loaded[row_id] for row_id in row_ids}
        before = {(row.before, row_id) for row_id, row in rows.items() if row.before is not None}
        after = {(row_id, row.after) for row_id, row in rows.items() if row.after is not None}
        return before | after

    def subgraph(self, row_ids: list[int], seed_entities: Sequence[int]) -> Subgraph:
        self._load(row_ids)
        uids = {row_id: self._loaded[row_id].id for row_id in row_ids}
        mentioned = self._mentions_of(row_ids)
        seeds = set(seed_entities)
        shared = sorted((row, kind, key, df) for row, kind, entity, key, df in mentioned if df > 1 or entity in seeds)
        unshared = Counter(
            (uids[row], kind) for row, kind, entity, _, df in mentioned if df <= 1 and entity not in seeds
        )
        return Subgraph(
            memories=tuple(uids.values()),
            frequencies={key: df for _, _, key, df in shared},
            mentions=tuple([MentionEdge(uids[row], key, kind) for row, kind, key, _ in shared]),
            unshared_mentions=unshared,
            next_pairs=self.visible_pairs(row_ids),
        )

    def visible_pairs(self, row_ids: Sequence[int]) -> tuple[tuple[str, str], ...]:
        """Returns the pairs of consecutive memories, by id, with at least one of these and both inside the view."""
        pairs = self._next_pairs(row_ids)
        self._load({row_id for pair in pairs for row_id in pair})
        inside = (pair for pair in pairs if self._visible.issuperset(pair))
        return tuple(sorted((self._loaded[before].id, self._loaded[after].id) for before, after in inside))


class _TableNeighbourhood(_Neighbourhood):
    """Reads the ledger's tables, by the row of the view's partition."""

    def __init__(self, connection: Connection, view: View, partition: int) -> None:
        super().__init__()
        self._connection = connection
        self._partition = partition
        self._shape = visibility.shape(view)
        self._view_values = visibility.values(view, partition)

    def _execute(self, statement: Any, **values: Any) -> Sequence[Any]:
        return self._connection.execute(statement, {**self._view_values, **values}).all()

    def entity_rows(self, keys: Sequence[str]) -> list[int]:
        values = {"partition": self._partition, "keys": list(keys)}
        row_by_key: dict[str, int] = dict(self._connection.execute(_entity_rows_by_key(), values).all())
        return [row_by_key[key] for key in keys if key in row_by_key]

    def visible_seeds(self, uids: Sequence[str]) -> list[int]:
        if not uids:
            return []
        row_by_id = dict(self._execute(_visible_rows_by_id(self._shape), uids=list(uids)))
        return [row_by_id[uid] for uid in uids if uid in row_by_id]

    def _read_session_rows(self, row_ids: Sequence[int]) -> None:
        for row_id, *columns, is_visible in self._execute(_select_session_rows(self._shape), row_ids=row_ids):
            self._loaded[row_id] = _SessionRow(*columns)
            if is_visible:
                self._visible.add(row_id)

    def rarest_entities(self, row_ids: Sequence[int], limit: int, without: Iterable[int]) -> list[int]:
        if not row_ids:
            return []
        values = {"row_ids": list(row_ids), "without": list(without), "limit": limit}
        return list(self._connection.scalars(_rarest_entities(), values).all())

    def best_mentions(self, entity_rows: Sequence[int], limit: int) -> list[int]:
        row_ids: list[int] = []
        for start in range(0, len(entity_rows), UNION_SIZE):
            block = [*entity_rows[start : start + UNION_SIZE], *[_NO_ENTITY] * UNION_SIZE][:UNION_SIZE]
            values = {f"entity_{slot}": entity for slot, entity in enumerate(block)}
            row_ids.extend(row_id for (row_id,) in self._execute(_best_mentions(self._shape), limit=limit, **values))
        return row_ids

    def _mentions_of(self, row_ids: Sequence[int]) -> Sequence[tuple[int, int, int, str, int]]:
        mentioned = self._connection.execute(_mentions_of_memories(), {"row_ids": row_ids}).all()
        for kind in {kind for _, kind, *_ in mentioned}:
            mention_kind(kind)  # raises for a corrupt kind; the edges keep the numbers
        return [tuple(row) for row in mentioned]


class _ColumnNeighbourhood(_Neighbourhood):
    """Reads a partition's columns."""

    def __init__(self, visible: VisibleColumns) -> None:
        super().__init__()
        self._shown = visible
        self._columns = visible.columns

    def entity_rows(self, keys: Sequence[str]) -> list[int]:
        rows = self._columns.entity_rows
        return [rows[key] for key in keys if key in rows]

    def visible_seeds(self, uids: Sequence[str]) -> list[int]:
        return [candidate.row for candidate in self._shown.by_id(uids)]

    def _read_session_rows(self, row_ids: Sequence[int]) -> None:
        self._loaded.update(self._columns.candidates_of(row_ids))
        self._visible.update(self._shown.shown(row_ids))

    def rarest_entities(self, row_ids: Sequence[int], limit: int, without: Iterable[int]) -> list[int]:
        linked = {entity for _, _, entity, _, _ in self._mentions_of(row_ids)}.difference(without)
        shared = [(self._columns.entities[entity], entity) for entity in linked]
        ranked = sorted((frequency, key, entity) for (key, frequency), entity in shared if frequency > 1)
        return [entity for _, _, entity in ranked[:limit]]

    def best_mentions(self, entity_rows: Sequence[int], limit: int) -> list[int]:
        rows: list[int] = []
        for entity in entity_rows:
            postings = self._columns.postings.get(entity, ())
            mentioning = (row for kind, _, row in postings if kind < MentionKind.COMMON_NOUN)
            rows.extend(islice(self._shown.shown(mentioning), limit))
        return rows

    def _mentions_of(self, row_ids: Sequence[int]) -> Sequence[tuple[int, int, int, str, int]]:
        mentioned, entities = self._columns.mentioned, self._columns.entities
        return [
            (row, kind, entity, *entities[entity])
            for row in row_ids
            for entity, kind in mentioned.get(row, ())
            if kind < MentionKind.COMMON_NOUN
        ]


@lru_cache(maxsize=1)
def _entity_rows_by_key() -> Select[Any]:
    return select(entities.c.key, entities.c.id).where(
        entities.c.partition == bindparam("partition"), in_array(entities.c.key, "keys")
    )


@lru_cache(maxsize=128)
def _visible_rows_by_id(shape: visibility.ViewShape) -> Select[Any]:
    return select(memories.c.uid, memories.c.id).where(
        in_array(memories.c.uid, "uids"), *visibility.conditions(shape, by_id=True)
    )


@lru_cache(maxsize=1)
def _rarest_entities() -> Select[Any]:
    linked = select(mentions.c.entity).where(
        in_array(mentions.c.memory, "row_ids"), mentions.c.kind < MentionKind.COMMON_NOUN
    )
    return (
        select(entities.c.id)
        .where(entities.c.id.in_(linked), ~in_array(entities.c.id, "without"), entities.c.mentions > 1)
        .order_by(entities.c.mentions, entities.c.key)
        .limit(bindparam("limit"))
    )


@lru_cache(maxsize=1)
def _mentions_of_memories() -> Select[Any]:
    return (
        select(mentions.c.memory, mentions.c.kind, entities.c.id, entities.c.key, entities.c.mentions)
        .join(entities)
        .where(in_array(mentions.c.memory, "row_ids"), mentions.c.kind < MentionKind.COMMON_NOUN)
    )


@lru_cache(maxsize=128)
def _select_session_rows(shape: visibility.ViewShape) -> Select[Any]:
    after = memories.alias("after")
    return (
        select(memories.c.id, memories.c.uid, memories.c.previous, after.c.id, and_(*visibility.conditions(shape)))
        .outerjoin(after, after.c.previous == memories.c.id)
        .where(in_array(memories.c.id, "row_ids"))
    )


@lru_cache(maxsize=128)
def _best_mentions(shape: visibility.ViewShape) -> CompoundSelect[Any]:
    def of_entity(slot: int) -> Select[Any]:
        return (
            select(mentions.c.memory)
            .join(memories, memories.c.id == mentions.c.memory)
            .where(
                mentions.c.entity == bindparam(f"entity_{slot}"),
                mentions.c.kind < MentionKind.COMMON_NOUN,
                *visibility.conditions(shape),
            )
            .order_by(mentions.c.kind, mentions.c.at.desc(), mentions.c.memory)
            .limit(bindparam("limit"))
        )

    return union_all(*(select(of_entity(slot).subquery()) for slot in range(UNION_SIZE)))
