"""Writing the entity-relation graph: what a memory mentions and states, and taking it back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, bindparam, func, or_, select

from graphmem.digests import Digests
from graphmem.model import Extraction, MemoryRecord, Mention, Scope, Statement, micros
from graphmem.stores.ledger import entity_names, outbox, tombstones
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.dialects import larger, upsert_for
from graphmem.stores.ledger.memories import inserted_row
from graphmem.stores.ledger.schema import entities, mentions, relations, supports
from graphmem.text import entity_id

# Built once: every memory that is written asks these.
_HELD = select(mentions.c.entity).where(mentions.c.memory == bindparam("row")).limit(1)
_KNOWN = select(entities.c.key, entities.c.id).where(
    entities.c.partition == bindparam("partition"), in_array(entities.c.key, "keys")
)
_SUPPORTED = select(supports.c.fact).where(
    supports.c.relation == bindparam("relation"), supports.c.memory == bindparam("memory")
)
_STATED_AGAIN = (
    relations.update()
    .where(
        relations.c.partition == bindparam("in_partition"),
        relations.c.subject == bindparam("from"),
        relations.c.predicate == bindparam("how"),
        relations.c.object == bindparam("to"),
    )
    .values(seq=bindparam("now"), at=larger(relations.c.at, bindparam("moment")))
    .returning(relations.c.id)
)


@lru_cache(maxsize=2)
def _one_more(dialect: str) -> Any:
    counted = {"mentions": entities.c.mentions + 1}
    statement = upsert_for(dialect, entities)
    return statement.on_conflict_do_update(index_elements=[entities.c.partition, entities.c.key], set_=counted)


@dataclass(frozen=True, slots=True)
class GraphRemoval:
    """What taking a memory out of the graph removed, for receipts."""

    mentions: int = 0
    entities: int = 0
    relations: int = 0


def add(connection: Connection, record: MemoryRecord, partition: int, found: Extraction) -> None:
    """Adds what a text mentions and states. The memory has nothing in the graph before this (see `has_mentions`)."""
    rows = _mentions(connection, record, partition, found.mentions)
    for statement in found.statements:
        _support(connection, record, partition, rows[statement.subject], rows[statement.object], statement)


def has_mentions(connection: Connection, row: int) -> bool:
    """Whether a memory mentions anything: one that was imported may have brought its mentions with it."""
    return connection.scalar(_HELD, {"row": row}) is not None


def _mentions(connection: Connection, record: MemoryRecord, partition: int, found: Sequence[Mention]) -> dict[str, int]:
    """Counts one more mention of each entity, making those that are new; returns their rows by key."""
    if not found:
        return {}
    named = [{"partition": partition, "key": m.key, "name": m.name, "type": m.type.value, "mentions": 1} for m in found]
    connection.execute(_one_more(connection.dialect.name), named)
    known = {"partition": partition, "keys": [mention.key for mention in found]}
    rows: dict[str, int] = dict(connection.execute(_KNOWN, known).all())
    entity_names.touch_new_entities(connection, partition, list(rows))
    at = micros(record.at)
    held = [{"memory": record.row, "entity": rows[m.key], "kind": int(m.kind), "at": at} for m in found]
    connection.execute(mentions.insert(), held)
    return rows


def _support(
    connection: Connection, record: MemoryRecord, partition: int, subject: int, target: int, said: Statement
) -> None:
    relation = _relation(connection, record, partition, subject, said.predicate, target)
    if connection.scalar(_SUPPORTED, {"relation": relation, "memory": record.row}) is not None:
        return  # one text says it twice: the first sentence stands for it
    invalid = said.invalid_at or record.valid_to
    support = {
        "relation": relation,
        "memory": record.row,
        "fact": said.fact,
        "valid_at": micros(said.valid_at or record.valid_from),
        "invalid_at": None if invalid is None else micros(invalid),
        "confidence": said.confidence,
    }
    connection.execute(supports.insert(), support)


def _relation(
    connection: Connection, record: MemoryRecord, partition: int, subject: int, predicate: str, target: int
) -> int:
    seq, at = outbox.next_seq(connection), micros(record.at)
    stated = {"in_partition": partition, "from": subject, "how": predicate, "to": target, "now": seq, "moment": at}
    known = connection.scalar(_STATED_AGAIN, stated)
    if known is not None:
        return int(known)
    new = {
        "uid": str(uuid4()), "partition": partition, "subject": subject, "predicate": predicate, "object": target,
        "at": at, "seq": seq,
    }  # fmt: skip
    return inserted_row(connection.execute(relations.insert(), new))


def remove(connection: Connection, record: MemoryRecord, now: datetime, digests: Digests) -> GraphRemoval:
    """Takes out exactly what this memory supports; what others support stays."""
    relation_rows = list(connection.scalars(select(supports.c.relation).where(supports.c.memory == record.row)))
    connection.execute(supports.delete().where(supports.c.memory == record.row))
    gone = sum(_settle(connection, row, record.partition, now) for row in relation_rows)
    entity_rows = list(connection.scalars(select(mentions.c.entity).where(mentions.c.memory == record.row)))
    connection.execute(mentions.delete().where(mentions.c.memory == record.row))
    return GraphRemoval(len(entity_rows), _release(connection, entity_rows, record.partition, now, digests), gone)


def _settle(connection: Connection, row: int, partition: str, now: datetime) -> int:
    """Touches a relation that lost a support, or buries it with its last one. Returns how many were buried."""
    newest = connection.scalar(select(func.max(supports.c.valid_at)).where(supports.c.relation == row))
    seq = outbox.next_seq(connection)
    mine = relations.c.id == row
    if newest is not None:
        connection.execute(relations.update().where(mine).values(seq=seq, at=newest))
        return 0
    uid = connection.scalar(relations.delete().where(mine).returning(relations.c.uid))
    tombstones.add_tombstone(connection, "relation", str(uid), partition, Scope(), now, seq)
    return 1


def _release(connection: Connection, rows: Iterable[int], partition: str, now: datetime, digests: Digests) -> int:
    mine = entities.c.id.in_(list(rows))
    connection.execute(entities.update().where(mine).values(mentions=entities.c.mentions - 1))
    unmentioned = entities.delete().where(mine, entities.c.mentions <= 0)
    gone = connection.execute(unmentioned.returning(entities.c.key, entities.c.seq)).all()
    for key, told in gone:
        if told is not None:
            sealed = digests.encrypt(entity_id(partition, key))
            tombstones.add_tombstone(connection, "entity", sealed, partition, Scope(), now, outbox.next_seq(connection))
    return len(gone)


def end_supports(connection: Connection, record: MemoryRecord, at: datetime) -> None:
    """What a memory that is retired states ends with it, unless it says itself that it ended before."""
    end = micros(at)
    open_ = or_(supports.c.invalid_at.is_(None), supports.c.invalid_at > end)
    _date_supports(connection, record, open_, end)


def reopen_supports(connection: Connection, record: MemoryRecord, at: datetime) -> None:
    """What ended with the memory at that moment is so again."""
    _date_supports(connection, record, supports.c.invalid_at == micros(at), None)


def _date_supports(connection: Connection, record: MemoryRecord, which: ColumnElement[bool], end: int | None) -> None:
    mine = supports.c.memory == record.row
    connection.execute(supports.update().where(mine, which).values(invalid_at=end))
    for row in list(connection.scalars(select(supports.c.relation).where(mine))):
        seq = outbox.next_seq(connection)
        connection.execute(relations.update().where(relations.c.id == row).values(seq=seq))
