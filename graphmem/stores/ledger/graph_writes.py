"""Writes the entity-relation graph: adds and removes the mentions, entities, relations and supports of a memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, bindparam, func, or_, select

from graphmem.digests import Digests
from graphmem.model import Extraction, MemoryRecord, Mention, Scope, Statement, micros, optional_micros
from graphmem.stores.ledger import entity_names, outbox, tombstones
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.dialects import larger, upsert_for
from graphmem.stores.ledger.memories import inserted_row
from graphmem.stores.ledger.schema import entities, memories, mentions, relations, supports
from graphmem.text import bare_key, entity_id

# Built once: each of these runs for every memory that is written.
_ENTITIES_OF_MEMORY = select(mentions.c.entity).where(mentions.c.memory == bindparam("row_id")).limit(1)
_ENTITY_ROWS_BY_KEY = select(entities.c.key, entities.c.id).where(
    entities.c.partition == bindparam("partition"), in_array(entities.c.key, "keys")
)
_SET_TYPE = entities.update().where(entities.c.id == bindparam("row_id")).values(type=bindparam("new_type"))
_SUPPORT = select(supports.c.fact).where(
    supports.c.relation == bindparam("relation"), supports.c.memory == bindparam("memory")
)
_TOUCH_RELATION = (
    relations.update()
    .where(
        relations.c.partition == bindparam("in_partition"),
        relations.c.subject == bindparam("subject_row"),
        relations.c.predicate == bindparam("with_predicate"),
        relations.c.object == bindparam("object_row"),
    )
    .values(seq=bindparam("new_seq"), at=larger(relations.c.at, bindparam("moment")))
    .returning(relations.c.id)
)


@lru_cache(maxsize=2)
def _insert_or_count_entity(dialect: str) -> Any:
    incremented = {"mentions": entities.c.mentions + 1}
    statement = upsert_for(dialect, entities)
    return statement.on_conflict_do_update(index_elements=[entities.c.partition, entities.c.key], set_=incremented)


@dataclass(frozen=True, slots=True)
class GraphRemoval:
    """How many mentions, entities and relations left the graph with one memory."""

    mentions: int = 0
    entities: int = 0
    relations: int = 0


def add(connection: Connection, record: MemoryRecord, partition: int, extraction: Extraction) -> None:
    """Adds the mentions and statements of a memory's text to the graph.

    The memory must have no mentions yet (see `has_mentions`). `partition` is a row id.
    """
    entity_rows = _add_mentions(connection, record, partition, extraction.mentions)
    for mention in extraction.mentions:
        if mention.key in extraction.decided_types:
            # Delivered with the memory, whose mentions carry the types of their entities.
            values = {"row_id": entity_rows[mention.key], "new_type": mention.type.value}
            connection.execute(_SET_TYPE, values)
    for statement in extraction.statements:
        ends = entity_rows[statement.subject], entity_rows[statement.object]
        _add_support(connection, record, partition, *ends, statement)


def has_mentions(connection: Connection, row_id: int) -> bool:
    """Returns whether a memory has mentions. An imported memory may have brought its own."""
    return connection.scalar(_ENTITIES_OF_MEMORY, {"row_id": row_id}) is not None


def _add_mentions(
    connection: Connection, record: MemoryRecord, partition: int, extracted: Sequence[Mention]
) -> dict[str, int]:
    """Inserts new entities, counts one more mention of the others; returns the row ids of all, by key."""
    if not extracted:
        return {}
    entity_values = [
        {
            "partition": partition, "key": m.key, "name": m.name, "type": m.type.value, "mentions": 1,
            "bare_key": bare_key(m.key),
        }
        for m in extracted
    ]  # fmt: skip
    connection.execute(_insert_or_count_entity(connection.dialect.name), entity_values)
    values = {"partition": partition, "keys": [mention.key for mention in extracted]}
    entity_rows: dict[str, int] = dict(connection.execute(_ENTITY_ROWS_BY_KEY, values).all())
    entity_names.assign_missing_seqs(connection, partition, list(entity_rows))
    at = micros(record.at)
    rows = [{"memory": record.row, "entity": entity_rows[m.key], "kind": int(m.kind), "at": at} for m in extracted]
    connection.execute(mentions.insert(), rows)
    return entity_rows


def _add_support(
    connection: Connection, record: MemoryRecord, partition: int, subject: int, target: int, statement: Statement
) -> None:
    relation = _ensure_relation(connection, record, partition, subject, statement.predicate, target)
    if connection.scalar(_SUPPORT, {"relation": relation, "memory": record.row}) is not None:
        return  # a text that states the relation twice: the first sentence is kept
    valid_at = statement.valid_at or (None if statement.is_past else record.valid_from)
    invalid_at = statement.invalid_at or record.valid_to
    support = {
        "relation": relation,
        "memory": record.row,
        "fact": statement.fact,
        "valid_at": optional_micros(valid_at),
        "invalid_at": optional_micros(invalid_at),
        "confidence": statement.confidence,
    }
    connection.execute(supports.insert(), support)


def _ensure_relation(
    connection: Connection, record: MemoryRecord, partition: int, subject: int, predicate: str, target: int
) -> int:
    seq, at = outbox.next_seq(connection), micros(record.at)
    values = {
        "in_partition": partition, "subject_row": subject, "with_predicate": predicate, "object_row": target,
        "new_seq": seq, "moment": at,
    }  # fmt: skip
    existing = connection.scalar(_TOUCH_RELATION, values)
    if existing is not None:
        return int(existing)
    new = {
        "uid": str(uuid4()), "partition": partition, "subject": subject, "predicate": predicate, "object": target,
        "at": at, "seq": seq,
    }  # fmt: skip
    return inserted_row(connection.execute(relations.insert(), new))


def remove(connection: Connection, record: MemoryRecord, now: datetime, digests: Digests) -> GraphRemoval:
    """Deletes a memory's mentions and supports, with the entities and relations that no other memory holds.

    Writes tombstones dated `now`, from which the projections learn it; `digests` encrypts the ids of entities in them.
    """
    relation_rows = list(connection.scalars(select(supports.c.relation).where(supports.c.memory == record.row)))
    connection.execute(supports.delete().where(supports.c.memory == record.row))
    deleted_relations = sum(_update_or_delete_relation(connection, row, record.partition, now) for row in relation_rows)
    entity_rows = list(connection.scalars(select(mentions.c.entity).where(mentions.c.memory == record.row)))
    connection.execute(mentions.delete().where(mentions.c.memory == record.row))
    deleted_entities = _uncount_entities(connection, entity_rows, record.partition, now, digests)
    return GraphRemoval(len(entity_rows), deleted_entities, deleted_relations)


def _update_or_delete_relation(connection: Connection, row_id: int, partition_key: str, now: datetime) -> int:
    """Updates a relation that lost a support, or deletes it if that was the last. Returns the number deleted."""
    stated = supports.join(memories, memories.c.id == supports.c.memory)
    last_stated = select(func.max(memories.c.at)).select_from(stated).where(supports.c.relation == row_id)
    newest = connection.scalar(last_stated)
    seq = outbox.next_seq(connection)
    is_relation = relations.c.id == row_id
    if newest is not None:
        connection.execute(relations.update().where(is_relation).values(seq=seq, at=newest))
        return 0
    uid = connection.scalar(relations.delete().where(is_relation).returning(relations.c.uid))
    tombstones.add_tombstone(connection, "relation", str(uid), partition_key, Scope(), now, seq)
    return 1


def _uncount_entities(
    connection: Connection, row_ids: Iterable[int], partition_key: str, now: datetime, digests: Digests
) -> int:
    """Counts one mention less of each entity and deletes those without any. Returns the number deleted."""
    lost_mention = entities.c.id.in_(list(row_ids))
    connection.execute(entities.update().where(lost_mention).values(mentions=entities.c.mentions - 1))
    unmentioned = entities.delete().where(lost_mention, entities.c.mentions <= 0)
    deleted = connection.execute(unmentioned.returning(entities.c.key, entities.c.seq)).all()
    for key, seq in deleted:
        if seq is not None:  # it has an alias or a chosen name, so projections may hold a node of it
            encrypted_id = digests.encrypt(entity_id(partition_key, key))
            tombstones.add_tombstone(
                connection, "entity", encrypted_id, partition_key, Scope(), now, outbox.next_seq(connection)
            )
    return len(deleted)


def end_supports(connection: Connection, record: MemoryRecord, at: datetime) -> None:
    """Ends the supports of a retired memory at `at`, unless they ended earlier."""
    end = micros(at)
    outlasts_memory = or_(supports.c.invalid_at.is_(None), supports.c.invalid_at > end)
    _set_invalid_at(connection, record, outlasts_memory, end)


def reopen_supports(connection: Connection, record: MemoryRecord, at: datetime) -> None:
    """Undoes `end_supports`: removes the end of those supports of a memory that ended at `at`."""
    _set_invalid_at(connection, record, supports.c.invalid_at == micros(at), None)


def _set_invalid_at(
    connection: Connection, record: MemoryRecord, condition: ColumnElement[bool], invalid_at: int | None
) -> None:
    of_memory = supports.c.memory == record.row
    connection.execute(supports.update().where(of_memory, condition).values(invalid_at=invalid_at))
    for row_id in list(connection.scalars(select(supports.c.relation).where(of_memory))):
        seq = outbox.next_seq(connection)
        connection.execute(relations.update().where(relations.c.id == row_id).values(seq=seq))
