"""Writing the entity-relation graph: what a memory mentions and states, and taking it back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects.sqlite import insert as upsert

from graphmem.model import Extraction, MemoryRecord, Mention, Scope, Statement, micros
from graphmem.stores.ledger import log
from graphmem.stores.ledger.memories import new_row
from graphmem.stores.ledger.schema import entities, mentions, relations, supports


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What taking a memory out of the graph removed, for receipts."""

    mentions: int = 0
    entities: int = 0
    relations: int = 0


def add(connection: Connection, record: MemoryRecord, space: int, found: Extraction) -> None:
    """Adds what a text mentions and states. The memory has nothing in the graph before this."""
    rows = _mentions(connection, record, space, found.mentions)
    for statement in found.statements:
        _support(connection, record, space, rows[statement.subject], rows[statement.object], statement)


def _mentions(connection: Connection, record: MemoryRecord, space: int, found: Sequence[Mention]) -> dict[str, int]:
    """Counts one more mention of each entity, making those that are new; returns their rows by key."""
    if not found:
        return {}
    counted = upsert(entities).on_conflict_do_update(
        index_elements=[entities.c.space, entities.c.key], set_={"mentions": entities.c.mentions + 1}
    )
    named = [{"space": space, "key": m.key, "name": m.name, "type": m.type.value, "mentions": 1} for m in found]
    connection.execute(counted, named)
    known = select(entities.c.key, entities.c.id).where(
        entities.c.space == space, entities.c.key.in_([mention.key for mention in found])
    )
    rows: dict[str, int] = dict(connection.execute(known).all())
    at = micros(record.at)
    held = [{"memory": record.row, "entity": rows[m.key], "kind": int(m.kind), "at": at} for m in found]
    connection.execute(mentions.insert(), held)
    return rows


def _support(
    connection: Connection, record: MemoryRecord, space: int, subject: int, target: int, said: Statement
) -> None:
    relation = _relation(connection, record, space, subject, said.predicate, target)
    there = select(supports.c.fact).where(supports.c.relation == relation, supports.c.memory == record.row)
    if connection.scalar(there) is not None:
        return  # one text says it twice: the first sentence stands for it
    invalid = None if record.valid_to is None else micros(record.valid_to)
    connection.execute(
        supports.insert().values(
            relation=relation,
            memory=record.row,
            fact=said.fact,
            valid_at=micros(record.valid_from),
            invalid_at=invalid,
            confidence=said.confidence,
        )
    )


def _relation(
    connection: Connection, record: MemoryRecord, space: int, subject: int, predicate: str, target: int
) -> int:
    change, at = log.next_change(connection), micros(record.at)
    known = connection.execute(
        relations.update()
        .where(
            relations.c.space == space,
            relations.c.subject == subject,
            relations.c.predicate == predicate,
            relations.c.object == target,
        )
        .values(change=change, at=func.max(relations.c.at, at))
        .returning(relations.c.id)
    ).scalar()
    if known is not None:
        return int(known)
    made = connection.execute(
        relations.insert().values(
            uid=str(uuid4()), space=space, subject=subject, predicate=predicate, object=target, at=at, change=change
        )
    )
    return new_row(made)


def withdraw(connection: Connection, record: MemoryRecord, now: datetime) -> Withdrawn:
    """Takes out exactly what this memory supports; what others support stays."""
    relation_rows = list(connection.scalars(select(supports.c.relation).where(supports.c.memory == record.row)))
    connection.execute(supports.delete().where(supports.c.memory == record.row))
    gone = sum(_settle(connection, row, record.space, now) for row in relation_rows)
    entity_rows = list(connection.scalars(select(mentions.c.entity).where(mentions.c.memory == record.row)))
    connection.execute(mentions.delete().where(mentions.c.memory == record.row))
    return Withdrawn(len(entity_rows), _release(connection, entity_rows), gone)


def _settle(connection: Connection, row: int, space: str, now: datetime) -> int:
    """Touches a relation that lost a support, or buries it with its last one. Returns how many were buried."""
    newest = connection.scalar(select(func.max(supports.c.valid_at)).where(supports.c.relation == row))
    change = log.next_change(connection)
    mine = relations.c.id == row
    if newest is not None:
        connection.execute(relations.update().where(mine).values(change=change, at=newest))
        return 0
    uid = connection.scalar(relations.delete().where(mine).returning(relations.c.uid))
    log.bury(connection, "relation", str(uid), space, Scope(), now, change)
    return 1


def _release(connection: Connection, rows: Iterable[int]) -> int:
    mine = entities.c.id.in_(list(rows))
    connection.execute(entities.update().where(mine).values(mentions=entities.c.mentions - 1))
    return connection.execute(entities.delete().where(mine, entities.c.mentions <= 0)).rowcount


def date_supports(connection: Connection, record: MemoryRecord) -> None:
    """Gives a memory's supports its dates of validity, and their relations the next change numbers."""
    invalid = None if record.valid_to is None else micros(record.valid_to)
    mine = supports.c.memory == record.row
    connection.execute(supports.update().where(mine).values(valid_at=micros(record.valid_from), invalid_at=invalid))
    for row in list(connection.scalars(select(supports.c.relation).where(mine))):
        change = log.next_change(connection)
        connection.execute(relations.update().where(relations.c.id == row).values(change=change))
