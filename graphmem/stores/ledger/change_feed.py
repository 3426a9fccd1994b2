"""What changed since a cursor, as current state: what the projections are given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from sqlalchemy import Column, ColumnElement, Connection, RowMapping, Select, Table, select

from graphmem.digests import Digests
from graphmem.model import Entity, EntityType, MemoryRecord, MentionKind, Relation, from_micros
from graphmem.stores.ledger import candidate_rows, entity_names, graph_reads, memories, outbox
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.schema import aliases as links_table
from graphmem.stores.ledger.schema import entities, partitions, relations, supports
from graphmem.stores.ledger.schema import memories as memories_table
from graphmem.stores.ledger.tombstones import Tombstone, tombstones_after
from graphmem.stores.protocols import EntityState, MemoryState, Point, RelationState, Support
from graphmem.text import bm25_weights, entity_id, term_counts


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """One batch, in the order of the log: what there is, what is gone, and the sequence number it reaches to."""

    upto: int
    records: tuple[MemoryRecord, ...]
    relations: tuple[str, ...]
    entities: tuple[int, ...]
    tombstones: tuple[Tombstone, ...]

    @property
    def all_ids(self) -> list[str]:
        """The ids of everything in the batch."""
        return [*(record.id for record in self.records), *self.relations, *(stone.uid for stone in self.tombstones)]

    def tombstones_of_kind(self, kind: str) -> list[str]:
        """The ids of what is gone, of a kind of tombstone."""
        return [stone.uid for stone in self.tombstones if stone.kind == kind]


def since(
    connection: Connection, digests: Digests, after: int, limit: int, partition: str | None = None
) -> ChangeBatch:
    """The next batch of changes, of one partition or of all; what is not in it, up to where it
    reaches, has no change.
    """
    last = outbox.last_change(connection)
    row = None if partition is None else memories.partition_row(connection, partition)
    if partition is not None and row is None:
        return ChangeBatch(last, (), (), (), ())
    records = memories.changed_after(connection, after, limit, row)
    gone = tombstones_after(connection, after, limit, partition)
    related = _changed(connection, relations, relations.c.uid, after, limit, row)
    told = _changed(connection, entities, entities.c.id, after, limit, row)
    heads = [
        [record.seq for record in records],
        [stone.seq for stone in gone],
        [seq for _, seq in related],
        [seq for _, seq in told],
    ]
    # A full list may go on past its end: the batch reaches only as far as every list is complete. If all are, it
    # reaches the last number given out, whatever that was for: a cursor that is there has nothing to ask for.
    upto = min((changes[-1] for changes in heads if len(changes) == limit), default=last)
    return ChangeBatch(
        upto=upto,
        records=tuple(record for record in records if record.seq <= upto),
        relations=tuple(relation for relation, seq in related if seq <= upto),
        entities=tuple(entity for entity, seq in told if seq <= upto),
        tombstones=tuple(_opened(stone, digests) for stone in gone if stone.seq <= upto),
    )


def _opened(stone: Tombstone, digests: Digests) -> Tombstone:
    return replace(stone, uid=digests.decrypt(stone.uid)) if stone.kind == "entity" else stone


def states_of(connection: Connection, ids: Sequence[str]) -> ChangeBatch:
    """These memories and relations as a batch, wherever the log is: to mend what a store has lost."""
    records = memories.records(connection, ids)
    related = connection.scalars(select(relations.c.uid).where(relations.c.uid.in_(list(ids))))
    told = [row for row, state in _told(connection, partitions.c.id.is_not(None)) if state.id in set(ids)]
    return ChangeBatch(outbox.last_change(connection), tuple(records.values()), tuple(related), tuple(told), ())


def _changed(
    connection: Connection, table: Table, name: Column[Any], after: int, limit: int, partition: int | None
) -> list[tuple[Any, int]]:
    statement = select(name, table.c.seq).where(table.c.seq > after).order_by(table.c.seq).limit(limit)
    if partition is not None:
        statement = statement.where(table.c.partition == partition)
    return [(named, seq) for named, seq in connection.execute(statement)]


def points(connection: Connection, model: str, records: Sequence[MemoryRecord]) -> list[Point]:
    """The points of those records that are enriched."""
    held, vectors = candidate_rows.vectors_of(connection, model, [record.row for record in records])
    counts = Counter(held)
    windows = dict(zip(counts, np.split(vectors, list(accumulate(counts.values()))[:-1]), strict=True)) if held else {}
    return [
        Point(record, windows[record.row], bm25_weights(term_counts(record.embedded_text)))
        for record in records
        if record.row in windows
    ]


def memory_states(connection: Connection, records: Sequence[MemoryRecord]) -> list[MemoryState]:
    """The records with what they mention and their predecessors."""
    mentioned: dict[str, list[tuple[Entity, MentionKind]]] = {}
    for uid, entity, kind in graph_reads.mentions_of(connection, [record.id for record in records]):
        mentioned.setdefault(uid, []).append((entity, kind))
    rows = [record.row for record in records]
    before = {
        row: previous for row, previous, _ in graph_reads.session_neighbours(connection, rows) if previous is not None
    }
    ids = memories.ids_of(connection, before.values())
    bases = memories.link_targets_of(connection, rows)
    return [
        MemoryState(
            record,
            tuple(mentioned.get(record.id, ())),
            ids.get(before.get(record.row, 0)),
            drawn_from=tuple(bases.get((record.row, "drawn_from"), ())),
            replaces=tuple(bases.get((record.row, "replaces"), ())),
        )
        for record in records
    ]


def entity_states(connection: Connection, rows: Sequence[int]) -> list[EntityState]:
    """Entities of which something is said beyond the texts."""
    return [state for _, state in _told(connection, entities.c.id.in_(rows))] if rows else []


def _told(connection: Connection, which: ColumnElement[bool]) -> list[tuple[int, EntityState]]:
    own, other = entity_names.chosen_name(entities), _linked().subquery()
    statement = (
        select(entities, partitions.c.key.label("partition_key"), own.label("called"), other.c.other)
        .join(partitions, partitions.c.id == entities.c.partition)
        .outerjoin(other, (other.c.partition == entities.c.partition) & (other.c.key == entities.c.key))
        .where(entities.c.seq.is_not(None), which)
        .order_by(entities.c.seq, other.c.other)
    )
    found: dict[int, list[RowMapping]] = {}
    for row in connection.execute(statement).mappings():
        found.setdefault(row["id"], []).append(row)
    return [(row, _entity_state(lines)) for row, lines in found.items()]


def _linked() -> Select[Any]:
    """Links whose other end is there: one of which nothing is mentioned at the moment comes back with its mention."""
    there = entities.alias("there")
    return (
        select(links_table.c.partition, links_table.c.key, links_table.c.other)
        .join(there, (there.c.partition == links_table.c.partition) & (there.c.key == links_table.c.other))
        .where(links_table.c.negated.is_(False))
    )


@decoding
def _entity_state(lines: list[RowMapping]) -> EntityState:
    row = lines[0]
    return EntityState(
        id=entity_id(row["partition_key"], row["key"]),
        partition=row["partition_key"],
        key=row["key"],
        name=row["called"],
        type=EntityType(row["type"]),
        seq=row["seq"],
        same_as=tuple(line["other"] for line in lines if line["other"] is not None),
    )


def relation_states(connection: Connection, ids: Iterable[str]) -> list[RelationState]:
    """Relations with all their supports, whoever may see them: projections hold everything, views choose."""
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
    found = connection.execute(statement).mappings().all()
    said = _supports(connection, [row["id"] for row in found])
    return [_relation_state(row, said[row["id"]]) for row in found]


def _supports(connection: Connection, rows: Sequence[int]) -> dict[int, list[RowMapping]]:
    """What memories say of these relations, the newest first."""
    statement = (
        select(supports, memories_table.c.uid)
        .join(memories_table, memories_table.c.id == supports.c.memory)
        .where(in_array(supports.c.relation, "wanted"))
        .order_by(supports.c.valid_at.desc(), supports.c.memory)
    )
    found: dict[int, list[RowMapping]] = {}
    for line in connection.execute(statement, {"wanted": list(rows)}).mappings():
        found.setdefault(line["relation"], []).append(line)
    return found


@decoding
def _relation_state(row: RowMapping, said: Sequence[RowMapping]) -> RelationState:
    ended = [line["invalid_at"] for line in said]
    relation = Relation(
        id=row["uid"],
        source=row["source"],
        source_name=row["source_name"],
        predicate=row["predicate"],
        target=row["target"],
        target_name=row["target_name"],
        memory_ids=tuple(line["uid"] for line in said),
        facts=tuple(dict.fromkeys(line["fact"] for line in said)),
        valid_at=from_micros(min(line["valid_at"] for line in said)),
        invalid_at=None if None in ended else from_micros(max(ended)),
        confidence=max(line["confidence"] for line in said),
    )
    supported = tuple(Support(line["uid"], line["fact"], line["valid_at"], line["invalid_at"]) for line in said)
    return RelationState(relation, row["partition_key"], row["seq"], supported)


def expected_points(connection: Connection, wanted: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
    """What a vector index should hold: (memory id, version, windows)."""
    m = memories_table.c
    statement = select(m.uid, m.seq, m.windows).where(m.windows > 0)
    if wanted is not None:
        statement = statement.join(partitions).where(partitions.c.key.in_(list(wanted)))
    yield from connection.execute(statement)


def expected_nodes(connection: Connection, wanted: Sequence[str] | None = None) -> Iterator[tuple[str, int]]:
    """What a graph copy should hold: (id, version) of memories, relations and told-of entities."""
    for table in (memories_table, relations):
        statement = select(table.c.uid, table.c.seq)
        if wanted is not None:
            statement = statement.join(partitions).where(partitions.c.key.in_(list(wanted)))
        yield from connection.execute(statement)
    told = select(entities.c.key, entities.c.seq, partitions.c.key).join(partitions).where(entities.c.seq.is_not(None))
    if wanted is not None:
        told = told.where(partitions.c.key.in_(list(wanted)))
    for key, seq, partition in connection.execute(told):
        yield entity_id(partition, key), seq
