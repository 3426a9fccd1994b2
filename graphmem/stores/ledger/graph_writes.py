"""Writes the entity-relation graph: adds and removes the mentions, entities, relations and supports of a memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Row, bindparam, func, or_, select

from graphmem.digests import Digests
from graphmem.folding import fold
from graphmem.model import Extraction, MemoryRecord, Scope, Statement, micros, optional_micros
from graphmem.stores.ledger import entity_names, outbox, tombstones
from graphmem.stores.ledger.entity_names import MentionedEntities
from graphmem.stores.ledger.schema import entities, memories, mentions, relations, supports
from graphmem.stores.ledger.sql import larger, upsert_for
from graphmem.text import bare_key, entity_id, words_of

# Memories that are read to see whether one of them still has the name of an entity.
NAMED_BY = 100
# Built once: each of these runs for every write.
_SET_TYPE = (
    entities.update()
    .where(entities.c.partition == bindparam("in_partition"), entities.c.key == bindparam("with_key"))
    .values(type=bindparam("new_type"))
)


@lru_cache(maxsize=2)
def _insert_or_count_entity(dialect: str) -> Any:
    statement = upsert_for(dialect, entities)
    increased = {"mentions": entities.c.mentions + statement.excluded.mentions}
    statement = statement.on_conflict_do_update(index_elements=[entities.c.partition, entities.c.key], set_=increased)
    return statement.returning(*entities.c, entity_names.lacks_seq())


@lru_cache(maxsize=2)
def _insert_or_touch_relation(dialect: str) -> Any:
    statement = upsert_for(dialect, relations)
    touched = {"seq": statement.excluded.seq, "at": larger(relations.c.at, statement.excluded.at)}
    r = relations.c
    statement = statement.on_conflict_do_update(
        index_elements=[r.partition, r.subject, r.predicate, r.object], set_=touched
    )
    return statement.returning(r.seq, r.id)


@lru_cache(maxsize=2)
def _insert_support(dialect: str) -> Any:
    return upsert_for(dialect, supports).on_conflict_do_nothing()


class GraphAddition(NamedTuple):
    """What is added to the graph for a memory: the mentions and statements in its text. `partition` is a row id."""

    record: MemoryRecord
    partition: int
    extraction: Extraction


@dataclass(frozen=True, slots=True)
class GraphRemoval:
    """How many mentions, entities and relations left the graph with one memory."""

    mentions: int = 0
    entities: int = 0
    relations: int = 0


def count_relations(stated: Iterable[tuple[int, Extraction]]) -> int:
    """Returns how many relations texts state, as pairs of the partition's row id and the text's extraction."""
    return len({(partition, one.subject, one.predicate, one.object) for partition, e in stated for one in e.statements})


def add(
    connection: Connection, additions: Sequence[GraphAddition], seqs: Sequence[int]
) -> dict[int, MentionedEntities]:
    """Adds the mentions and statements of memories' texts to the graph; an earlier one names a new entity.

    The memories must have no mentions yet. `seqs` are new sequence numbers, at least one for each of the relations
    (`count_relations`). Returns the entities that they mention, by partition.
    """
    mentioned = [
        (addition.record, addition.partition, mention)
        for addition in additions
        for mention in addition.extraction.mentions
    ]
    if not mentioned:
        return {}
    new_entities: dict[tuple[int, str], dict[str, Any]] = {}
    for _, partition, m in mentioned:
        new = {
            "partition": partition, "key": m.key, "name": m.name, "type": m.type.value, "mentions": 0,
            "bare_key": bare_key(m.key),
        }  # fmt: skip
        new_entities.setdefault((partition, m.key), new)["mentions"] += 1
    decided_types: list[dict[str, Any]] = [
        {"in_partition": addition.partition, "with_key": mention.key, "new_type": mention.type.value}
        for addition in additions
        for mention in addition.extraction.mentions
        if mention.key in addition.extraction.decided_types
    ]
    if decided_types:  # delivered with the memories, whose mentions carry the types of their entities
        connection.execute(_SET_TYPE, decided_types)
        for one in decided_types:
            new_entities[one["in_partition"], one["with_key"]]["type"] = one["new_type"]
    rows: dict[int, list[Row[Any]]] = {}
    statement = _insert_or_count_entity(connection.dialect.name)
    for row in connection.execute(statement, list(new_entities.values())):
        rows.setdefault(row.partition, []).append(row)
    found = {
        partition: entity_names.mentioned_entities(connection, partition, its_rows)
        for partition, its_rows in sorted(rows.items())
    }
    entity_rows = {(partition, key): row for partition, its in found.items() for key, row in its.rows.items()}
    new_mentions = [
        {"memory": record.row, "entity": entity_rows[partition, m.key], "kind": int(m.kind), "at": micros(record.at)}
        for record, partition, m in mentioned
    ]
    connection.execute(mentions.insert(), new_mentions)
    _add_supports(connection, additions, entity_rows, seqs)
    return found


def _add_supports(
    connection: Connection,
    additions: Sequence[GraphAddition],
    entity_rows: Mapping[tuple[int, str], int],
    new_seqs: Sequence[int],
) -> None:
    """Inserts new relations, moves the others to their newest statement, and adds the supports of all."""
    stated = [
        (addition.record, _Relation.of(addition.partition, statement, entity_rows), statement)
        for addition in additions
        for statement in addition.extraction.statements
    ]
    if not stated:
        return
    newest: dict[_Relation, int] = {}
    for record, relation, _ in stated:
        newest[relation] = max(newest.get(relation, micros(record.at)), micros(record.at))
    seqs = dict(zip(newest, new_seqs[: len(newest)], strict=True))
    new_relations = [
        {"uid": str(uuid4()), **relation._asdict(), "at": at, "seq": seqs[relation]} for relation, at in newest.items()
    ]
    statement = _insert_or_touch_relation(connection.dialect.name)
    rows: dict[int, int] = dict(connection.execute(statement, new_relations).all())
    new_supports = [
        {
            "relation": rows[seqs[relation]],
            "memory": record.row,
            "fact": said.fact,
            "valid_at": optional_micros(said.valid_at or (None if said.is_past else record.valid_from)),
            "invalid_at": optional_micros(said.invalid_at or record.valid_to),
            "confidence": said.confidence,
        }
        for record, relation, said in stated
    ]
    # Of a text that states a relation twice the first sentence is kept.
    connection.execute(_insert_support(connection.dialect.name), new_supports)


class _Relation(NamedTuple):
    """The columns that identify a relation: row ids, and the predicate."""

    partition: int
    subject: int
    predicate: str
    object: int

    @classmethod
    def of(cls, partition: int, statement: Statement, entity_rows: Mapping[tuple[int, str], int]) -> _Relation:
        """Returns the relation that a statement is about."""
        subject, target = entity_rows[partition, statement.subject], entity_rows[partition, statement.object]
        return cls(partition, subject, statement.predicate, target)


def remove(connection: Connection, record: MemoryRecord, now: datetime, digests: Digests) -> GraphRemoval:
    """Deletes a memory's mentions and supports, with the entities and relations that no other memory holds.

    Writes tombstones dated `now`, from which the projections learn it; `digests` encrypts the ids of entities in them.
    """
    relation_rows = list(connection.scalars(select(supports.c.relation).where(supports.c.memory == record.row)))
    connection.execute(supports.delete().where(supports.c.memory == record.row))
    deleted_relations = sum(_update_or_delete_relation(connection, row, record.partition, now) for row in relation_rows)
    entity_rows = list(connection.scalars(select(mentions.c.entity).where(mentions.c.memory == record.row)))
    connection.execute(mentions.delete().where(mentions.c.memory == record.row))
    lost_mention = entities.c.id.in_(entity_rows)
    connection.execute(entities.update().where(lost_mention).values(mentions=entities.c.mentions - 1))
    unmentioned = entities.delete().where(lost_mention, entities.c.mentions <= 0)
    deleted_entities = connection.execute(unmentioned.returning(entities.c.key, entities.c.seq)).all()
    for key, seq in deleted_entities:
        if seq is not None:  # it has an alias or a chosen name, so projections may hold a node of it
            uid, new_seq = digests.encrypt(entity_id(record.partition, key)), outbox.next_seq(connection)
            tombstones.add_tombstone(connection, "entity", uid, record.partition, Scope(), now, new_seq)
    _rename_after(connection, entity_rows)
    return GraphRemoval(len(entity_rows), len(deleted_entities), deleted_relations)


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


def _rename_after(connection: Connection, row_ids: Iterable[int]) -> None:
    """Gives entities that lost a mention another name if the one that they have was that mention's alone.

    A name may have words that its key leaves out ("very old car" of the key "old car"); these would stay when the
    memory that they come from is erased. One of the memories left is delivered anew, with the name.
    """
    named = select(entities.c.id, entities.c.key, entities.c.name).where(entities.c.id.in_(list(row_ids)))
    for row_id, key, name in connection.execute(named).all():
        if set(words_of(name)) <= set(words_of(key)):
            continue
        mentioning = (
            select(memories.c.id, memories.c.speaker, memories.c.text)
            .join(mentions, mentions.c.memory == memories.c.id)
            .where(mentions.c.entity == row_id)
            .limit(NAMED_BY)
        )
        left = connection.execute(mentioning).all()
        if any(fold(name) in fold(f"{speaker}: {text}") for _, speaker, text in left):
            continue
        new_name = key.title() if name[:1].isupper() else key
        connection.execute(entities.update().where(entities.c.id == row_id).values(name=new_name))
        for memory, *_ in left[:1]:
            redelivered = memories.update().where(memories.c.id == memory)
            connection.execute(redelivered.values(seq=outbox.next_seq(connection)))


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
