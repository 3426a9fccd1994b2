"""What changed since a cursor, as current state: what the projections are given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, select

from graphmem.model import Entity, MemoryRecord, MentionKind, Relation, from_micros
from graphmem.stores.base import MemoryState, Point, RelationState, Support
from graphmem.stores.ledger import glimpses, log, memories, reading
from graphmem.stores.ledger.schema import entities, relations, spaces, supports
from graphmem.stores.ledger.schema import memories as memories_table
from graphmem.text import bm25_weights, term_counts


@dataclass(frozen=True, slots=True)
class Changes:
    """One batch, in the order of the log: what there is, what is gone, and the change number it reaches to."""

    upto: int
    records: tuple[MemoryRecord, ...]
    relations: tuple[str, ...]
    gone: tuple[log.Tombstone, ...]

    @property
    def named(self) -> list[str]:
        """The ids of everything in the batch."""
        return [*(record.id for record in self.records), *self.relations, *(stone.uid for stone in self.gone)]

    @property
    def gone_memories(self) -> list[str]:
        return [stone.uid for stone in self.gone if stone.kind == "memory"]

    @property
    def gone_relations(self) -> list[str]:
        return [stone.uid for stone in self.gone if stone.kind == "relation"]


def since(connection: Connection, after: int, limit: int, space: str | None = None) -> Changes | None:
    """The next batch of changes, of one space or of all; None when there is nothing new."""
    row = None if space is None else memories.space_row(connection, space)
    if space is not None and row is None:
        return None
    records = memories.changed(connection, after, limit, row)
    gone = log.buried(connection, after, limit, space)
    related = _changed_relations(connection, after, limit, row)
    heads = [
        [record.change for record in records],
        [stone.change for stone in gone],
        [change for _, change in related],
    ]
    # A full list may go on past its end: the batch reaches only as far as every list is complete.
    full = [changes[-1] for changes in heads if len(changes) == limit]
    seen = [change for changes in heads for change in changes]
    if not seen:
        return None
    upto = min(full) if full else max(seen)
    return Changes(
        upto=upto,
        records=tuple(record for record in records if record.change <= upto),
        relations=tuple(relation for relation, change in related if change <= upto),
        gone=tuple(stone for stone in gone if stone.change <= upto),
    )


def of(connection: Connection, ids: Sequence[str]) -> Changes:
    """These memories and relations as a batch, wherever the log is: to mend what a store has lost."""
    records = memories.records(connection, ids)
    related = connection.scalars(select(relations.c.uid).where(relations.c.uid.in_(list(ids))))
    return Changes(log.last_change(connection), tuple(records.values()), tuple(related), ())


def _changed_relations(connection: Connection, after: int, limit: int, space: int | None) -> list[tuple[str, int]]:
    statement = (
        select(relations.c.uid, relations.c.change)
        .where(relations.c.change > after)
        .order_by(relations.c.change)
        .limit(limit)
    )
    if space is not None:
        statement = statement.where(relations.c.space == space)
    return [(uid, change) for uid, change in connection.execute(statement)]


def points(connection: Connection, model: str, records: Sequence[MemoryRecord]) -> list[Point]:
    """The points of those records that are enriched."""
    vectors = glimpses.vectors_of(connection, model, [record.row for record in records])
    return [
        Point(record, vectors[record.row], bm25_weights(term_counts(record.embedded_text)))
        for record in records
        if record.row in vectors
    ]


def memory_states(connection: Connection, records: Sequence[MemoryRecord]) -> list[MemoryState]:
    """The records with what they mention and their predecessors."""
    mentioned: dict[str, list[tuple[Entity, MentionKind]]] = {}
    for uid, entity, kind in reading.mentions_of(connection, [record.id for record in records]):
        mentioned.setdefault(uid, []).append((entity, kind))
    return [
        MemoryState(record, tuple(mentioned.get(record.id, ())), _previous(connection, record)) for record in records
    ]


def _previous(connection: Connection, record: MemoryRecord) -> str | None:
    if record.kind != "episode":
        return None
    space = memories.space_row(connection, record.space)
    before = None if space is None else memories.neighbour(connection, record, space, later=False)
    return None if before is None else before.id


def relation_states(connection: Connection, ids: Iterable[str]) -> list[RelationState]:
    """Relations with all their supports, whoever may see them: projections hold everything, views choose."""
    subject, target = entities.alias("subject"), entities.alias("object")
    statement = (
        select(
            relations,
            spaces.c.key.label("space_key"),
            subject.c.key.label("source"),
            subject.c.name.label("source_name"),
            target.c.key.label("target"),
            target.c.name.label("target_name"),
        )
        .select_from(relations)
        .join(spaces, spaces.c.id == relations.c.space)
        .join(subject, subject.c.id == relations.c.subject)
        .join(target, target.c.id == relations.c.object)
        .where(relations.c.uid.in_(list(ids)))
    )
    return [_relation_state(connection, row) for row in connection.execute(statement).mappings()]


def _relation_state(connection: Connection, row: RowMapping) -> RelationState:
    said = (
        select(memories_table.c.uid, supports.c.fact, supports.c.valid_at, supports.c.invalid_at)
        .join(memories_table, memories_table.c.id == supports.c.memory)
        .where(supports.c.relation == row["id"])
        .order_by(supports.c.valid_at.desc(), supports.c.memory)
    )
    supported = tuple(Support(*line) for line in connection.execute(said))
    ended = [support.invalid_at for support in supported]
    relation = Relation(
        id=row["uid"],
        source=row["source"],
        source_name=row["source_name"],
        predicate=row["predicate"],
        target=row["target"],
        target_name=row["target_name"],
        memory_ids=tuple(support.memory for support in supported),
        facts=tuple(dict.fromkeys(support.fact for support in supported)),
        valid_at=from_micros(min(support.valid_at for support in supported)),
        invalid_at=None if None in ended else from_micros(max(filter(None, ended))),
    )
    return RelationState(relation, row["space_key"], row["change"], supported)


def expected_points(connection: Connection, wanted: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
    """What a vector index should hold: (memory id, version, windows)."""
    m = memories_table.c
    statement = select(m.uid, m.change, m.windows).where(m.windows > 0)
    if wanted is not None:
        statement = statement.join(spaces).where(spaces.c.key.in_(list(wanted)))
    yield from connection.execute(statement)


def expected_nodes(connection: Connection, wanted: Sequence[str] | None = None) -> Iterator[tuple[str, int]]:
    """What a graph copy should hold: (memory or relation id, version)."""
    for table in (memories_table, relations):
        statement = select(table.c.uid, table.c.change)
        if wanted is not None:
            statement = statement.join(spaces).where(spaces.c.key.in_(list(wanted)))
        yield from connection.execute(statement)
