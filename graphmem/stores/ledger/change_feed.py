"""Batches of changes for the projections: the current state of the rows that changed since a cursor."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sqlalchemy import Column, ColumnElement, Connection, RowMapping, Select, Table, func, or_, select, union_all

from graphmem.digests import Digests
from graphmem.model import (
    VECTOR,
    EmbeddingSpec,
    Entity,
    EntityType,
    MemoryRecord,
    MentionKind,
    Relation,
    SpaceVector,
    from_micros,
    optional_from_micros,
)
from graphmem.plugins import EntityState, MemoryState, Point, RelationState, Support
from graphmem.stores.ledger import embeddings, entity_names, graph_reads, memories, outbox
from graphmem.stores.ledger.schema import aliases, entities, partitions, relations, supports
from graphmem.stores.ledger.schema import memories as memories_table
from graphmem.stores.ledger.schema import tombstones as tombstones_table
from graphmem.stores.ledger.sql import decoding, in_array
from graphmem.stores.ledger.tombstones import Tombstone, tombstones_after
from graphmem.text import bm25_weights, entity_id, term_counts


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changed rows and tombstones, each in order of sequence number: all up to `upto` that the snapshot shows.

    `relations` are ids, `entities` are rows.
    """

    upto: int
    records: tuple[MemoryRecord, ...]
    relations: tuple[str, ...]
    entities: tuple[int, ...]
    tombstones: tuple[Tombstone, ...]

    @property
    def all_ids(self) -> list[str]:
        """The ids of the batch's memories, relations and tombstones."""
        erased = (tombstone.uid for tombstone in self.tombstones)
        return [*(record.id for record in self.records), *self.relations, *erased]

    def tombstones_of_kind(self, kind: str) -> list[str]:
        """Returns the ids of the erased memories, relations or entities."""
        return [tombstone.uid for tombstone in self.tombstones if tombstone.kind == kind]


def since(
    connection: Connection,
    digests: Digests,
    after: int,
    state: outbox.CursorState,
    limit: int,
    partition: str | None = None,
    *,
    with_graph: bool = True,
) -> ChangeBatch:
    """Returns the next changes above sequence number `after`, of one partition or of all.

    `state` was read in the same snapshot. The batch is complete: no other row that it shows changed between `after` and
    its `upto`; up to `state.extent.last` none ever will have. Without `with_graph` it has no relations and no entities.
    """
    row = None if partition is None else memories.partition_row(connection, partition)
    if partition is not None and row is None:
        return ChangeBatch(state.extent.newest, (), (), (), ())
    records = memories.changed_after(connection, after, limit, row)
    tombstones = tombstones_after(connection, after, limit, partition) if state.last_tombstone > after else []
    changed_relations = _changed(connection, relations, relations.c.uid, after, limit, row) if with_graph else []
    changed_entities = _changed(connection, entities, entities.c.id, after, limit, row) if with_graph else []
    seq_lists = [
        [record.seq for record in records],
        [tombstone.seq for tombstone in tombstones],
        [seq for _, seq in changed_relations],
        [seq for _, seq in changed_entities],
    ]
    # A list of `limit` rows may be cut off: the batch ends where the first such list ends. Without one it ends at the
    # newest sequence number, even if no changed row has it: a cursor at that number has nothing left to read.
    upto = min((seqs[-1] for seqs in seq_lists if len(seqs) == limit), default=state.extent.newest)
    return ChangeBatch(
        upto=upto,
        records=tuple(record for record in records if record.seq <= upto),
        relations=tuple(relation for relation, seq in changed_relations if seq <= upto),
        entities=tuple(entity for entity, seq in changed_entities if seq <= upto),
        tombstones=tuple(
            replace(tombstone, uid=digests.decrypt(tombstone.uid)) if tombstone.kind == "entity" else tombstone
            for tombstone in tombstones
            if tombstone.seq <= upto
        ),
    )


def has_changes(connection: Connection, after: int, partitions_read: Sequence[str], but: Collection[int] = ()) -> bool:
    """Returns whether a row or tombstone of these partitions has a sequence number above `after`, and none of `but`."""
    rows = select(partitions.c.id).where(partitions.c.key.in_(partitions_read)).scalar_subquery()
    changed = [
        _numbers(table, after, but).where(table.c.partition.in_(rows)).exists()
        for table in (memories_table, relations, entities)
    ]
    erased = _numbers(tombstones_table, after, but).where(tombstones_table.c.partition.in_(partitions_read))
    return bool(connection.scalar(select(or_(*changed, erased.exists())), {"but": list(but)} if but else {}))


def count_changes(connection: Connection, after: int, but: Collection[int] = ()) -> int:
    """Returns how many rows and tombstones have a sequence number above `after`, and none of `but`."""
    tables = (memories_table, relations, entities, tombstones_table)
    numbers = union_all(*(_numbers(table, after, but) for table in tables)).subquery()
    statement = select(func.count()).select_from(numbers)
    return connection.scalar(statement, {"but": list(but)} if but else {}) or 0


def _numbers(table: Table, after: int, but: Collection[int]) -> Select[Any]:
    numbers = select(table.c.seq).where(table.c.seq > after)
    return numbers.where(~in_array(table.c.seq, "but")) if but else numbers


def states_of(connection: Connection, ids: Sequence[str]) -> ChangeBatch:
    """Returns these memories, relations and entities as a batch, to repair a store that lost them."""
    records = memories.records(connection, ids)
    relation_ids = connection.scalars(select(relations.c.uid).where(relations.c.uid.in_(list(ids))))
    named_entities = _entity_states_where(connection, partitions.c.id.is_not(None))
    entity_rows = tuple(row for row, state in named_entities if state.id in set(ids))
    return ChangeBatch(outbox.extent(connection).newest, tuple(records.values()), tuple(relation_ids), entity_rows, ())


def _changed(
    connection: Connection, table: Table, id_column: Column[Any], after: int, limit: int, partition: int | None
) -> list[tuple[Any, int]]:
    statement = select(id_column, table.c.seq).where(table.c.seq > after).order_by(table.c.seq).limit(limit)
    if partition is not None:
        statement = statement.where(table.c.partition == partition)
    return [(row_id, seq) for row_id, seq in connection.execute(statement)]


def points(connection: Connection, spec: EmbeddingSpec, records: Sequence[MemoryRecord]) -> list[Point]:
    """Returns the points of the records that are enriched; the others have none yet."""
    stored = embeddings.vectors_by_row(connection, spec, [record.row for record in records])
    return [_point(record, spec, stored[record.row]) for record in records if record.row in stored]


def _point(record: MemoryRecord, spec: EmbeddingSpec, vectors: Sequence[SpaceVector]) -> Point:
    windows = [vector.vector for vector in vectors if vector.space == VECTOR]
    return Point(
        record,
        np.stack(windows) if windows else np.empty((0, spec.dims), np.float32),
        bm25_weights(term_counts(record.embedded_text)),
        next((vector.vector for vector in vectors if vector.space != VECTOR), None),
    )


def memory_states(connection: Connection, records: Sequence[MemoryRecord]) -> list[MemoryState]:
    """Returns the records with their mentions, preceding episodes and links."""
    mentions: dict[str, list[tuple[Entity, MentionKind]]] = {}
    for uid, entity, kind in graph_reads.mentions_of(connection, [record.id for record in records]):
        mentions.setdefault(uid, []).append((entity, kind))
    rows = [record.row for record in records]
    previous_rows = {
        row: previous for row, previous, _ in graph_reads.session_neighbours(connection, rows) if previous is not None
    }
    ids = memories.ids_of(connection, previous_rows.values())
    targets = memories.linked_ids(connection, rows)
    return [
        MemoryState(
            record,
            tuple(mentions.get(record.id, ())),
            ids.get(previous_rows.get(record.row, 0)),
            drawn_from=tuple(targets.get((record.row, "drawn_from"), ())),
            replaces=tuple(targets.get((record.row, "replaces"), ())),
            compresses=tuple(targets.get((record.row, "compresses"), ())),
            abstracts=tuple(targets.get((record.row, "abstracts"), ())),
        )
        for record in records
    ]


def entity_states(connection: Connection, rows: Sequence[int]) -> list[EntityState]:
    """Returns the entities in these rows that have aliases or a chosen name."""
    return [state for _, state in _entity_states_where(connection, entities.c.id.in_(rows))] if rows else []


def _entity_states_where(connection: Connection, condition: ColumnElement[bool]) -> list[tuple[int, EntityState]]:
    there = entities.alias("there")
    # Only aliases of which the other entity is mentioned now; the rest apply again with its next mention.
    alias = (
        select(aliases.c.partition, aliases.c.key, aliases.c.other)
        .join(there, (there.c.partition == aliases.c.partition) & (there.c.key == aliases.c.other))
        .where(aliases.c.negated.is_(False))
        .subquery()
    )
    statement = (
        select(entities, partitions.c.key.label("partition_key"), alias.c.other)
        .join(partitions, partitions.c.id == entities.c.partition)
        .outerjoin(alias, (alias.c.partition == entities.c.partition) & (alias.c.key == entities.c.key))
        .where(entities.c.seq.is_not(None), condition)
        .order_by(entities.c.seq, alias.c.other)
    )
    lines_by_entity: dict[int, list[RowMapping]] = {}
    for row in connection.execute(statement).mappings():
        lines_by_entity.setdefault(row["id"], []).append(row)
    partition_rows = {lines[0]["partition"] for lines in lines_by_entity.values()}
    names = {row: entity_names.names_to_show(connection, row) for row in partition_rows}
    return [(row, _entity_state(lines, names[lines[0]["partition"]])) for row, lines in lines_by_entity.items()]


@decoding
def _entity_state(lines: list[RowMapping], names: Mapping[str, str]) -> EntityState:
    row = lines[0]
    return EntityState(
        id=entity_id(row["partition_key"], row["key"]),
        partition=row["partition_key"],
        key=row["key"],
        name=names.get(row["key"], row["name"]),
        type=EntityType(row["type"]),
        seq=row["seq"],
        same_as=tuple(line["other"] for line in lines if line["other"] is not None),
    )


def relation_states(connection: Connection, ids: Iterable[str]) -> list[RelationState]:
    """Returns relations with all their supports: projections hold those of every scope, reads filter by view."""
    subject, target = entities.alias("subject"), entities.alias("object")
    statement = (
        select(
            relations,
            partitions.c.key.label("partition_key"),
            subject.c.key.label("source"),
            subject.c.name.label("source_name"),
            target.c.key.label("target"),
            target.c.name.label("target_name"),
        )
        .select_from(relations)
        .join(partitions, partitions.c.id == relations.c.partition)
        .join(subject, subject.c.id == relations.c.subject)
        .join(target, target.c.id == relations.c.object)
        .where(relations.c.uid.in_(list(ids)))
    )
    rows = connection.execute(statement).mappings().all()
    supported = (
        select(supports, memories_table.c.uid)
        .join(memories_table, memories_table.c.id == supports.c.memory)
        .where(in_array(supports.c.relation, "rows"))
        .order_by(func.coalesce(supports.c.valid_at, memories_table.c.at).desc(), supports.c.memory)
    )
    newest_first: dict[int, list[RowMapping]] = {}
    for support in connection.execute(supported, {"rows": [row["id"] for row in rows]}).mappings():
        newest_first.setdefault(support["relation"], []).append(support)
    return [_relation_state(row, newest_first[row["id"]]) for row in rows]


@decoding
def _relation_state(row: RowMapping, support_rows: Sequence[RowMapping]) -> RelationState:
    ends = [support["invalid_at"] for support in support_rows]
    begins = [support["valid_at"] for support in support_rows if support["valid_at"] is not None]
    relation = Relation(
        id=row["uid"],
        source=row["source"],
        source_name=row["source_name"],
        predicate=row["predicate"],
        target=row["target"],
        target_name=row["target_name"],
        memory_ids=tuple(support["uid"] for support in support_rows),
        facts=tuple(dict.fromkeys(support["fact"] for support in support_rows)),
        valid_at=optional_from_micros(min(begins, default=None)),
        invalid_at=None if None in ends else from_micros(max(ends)),
        confidence=max(support["confidence"] for support in support_rows),
    )
    states = tuple(
        Support(support["uid"], support["fact"], support["valid_at"], support["invalid_at"]) for support in support_rows
    )
    return RelationState(relation, row["partition_key"], row["seq"], states)


def expected_points(
    connection: Connection, partition_keys: Sequence[str] | None = None
) -> Iterator[tuple[str, int, int]]:
    """Yields (memory id, seq, number of windows) for all memories that a vector index should hold.

    With `partition_keys`, of these partitions only.
    """
    m = memories_table.c
    statement = select(m.uid, m.seq, m.windows).where(m.windows > 0)
    if partition_keys is not None:
        statement = statement.join(partitions).where(partitions.c.key.in_(list(partition_keys)))
    yield from connection.execute(statement)


def expected_nodes(connection: Connection, partition_keys: Sequence[str] | None = None) -> Iterator[tuple[str, int]]:
    """Yields (id, seq) of all memories, relations, and entities with aliases or a chosen name.

    These are the nodes that a graph copy should hold. With `partition_keys`, of these partitions only.
    """
    for table in (memories_table, relations):
        statement = select(table.c.uid, table.c.seq)
        if partition_keys is not None:
            statement = statement.join(partitions).where(partitions.c.key.in_(list(partition_keys)))
        yield from connection.execute(statement)
    named = select(entities.c.key, entities.c.seq, partitions.c.key).join(partitions)
    named = named.where(entities.c.seq.is_not(None))
    if partition_keys is not None:
        named = named.where(partitions.c.key.in_(list(partition_keys)))
    for key, seq, partition in connection.execute(named):
        yield entity_id(partition, key), seq
