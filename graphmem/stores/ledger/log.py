"""The log: change numbers, events, tombstones, tasks, cursors. The log is the outbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects.sqlite import insert as upsert

from graphmem.model import Event, MemoryRecord, Scope, from_micros, micros
from graphmem.stores.ledger.schema import (
    cursors,
    events,
    ledger,
    memories,
    messages,
    set_aside,
    tasks,
    tombstones,
)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is no more."""

    uid: str
    kind: str
    space: str
    scope: Scope
    change: int


def next_change(connection: Connection) -> int:
    """The next change number; it is taken inside the write transaction, so that numbers commit in order."""
    return int(connection.scalar(ledger.update().values(change=ledger.c.change + 1).returning(ledger.c.change)))


def last_change(connection: Connection) -> int:
    """The last change number given out."""
    return connection.scalar(select(ledger.c.change)) or 0


def add_event(
    connection: Connection,
    event: str,
    record: MemoryRecord,
    *,
    now: datetime,
    old: str | None = None,
    new: str | None = None,
    before: Mapping[str, Any] | None = None,
    reason: str | None = None,
) -> None:
    """Writes a line of history; mere sources of facts have none."""
    if record.source_only:
        return
    connection.execute(
        events.insert().values(
            uid=str(uuid4()),
            memory=record.id,
            event=event,
            old_text=old,
            new_text=new,
            before=None if before is None else dict(before),
            reason=reason,
            actor_id=record.actor_id,
            role=record.role,
            memory_created_at=micros(record.created_at),
            at=micros(now),
            change=record.change,
        )
    )


def history(connection: Connection, uid: str) -> list[Event]:
    """The events of a memory, oldest first."""
    rows = connection.execute(select(events).where(events.c.memory == uid).order_by(events.c.id)).mappings()
    return [
        Event(
            id=row["uid"],
            memory_id=row["memory"],
            event=row["event"],
            old_text=row["old_text"],
            new_text=row["new_text"],
            created_at=from_micros(row["memory_created_at"]),
            updated_at=from_micros(row["at"]),
            is_deleted=row["event"] == "DELETE",
            actor_id=row["actor_id"],
            role=row["role"],
            reason=row["reason"],
            before=row["before"],
        )
        for row in rows
    ]


def forget_content(connection: Connection, uid: str) -> None:
    """Takes the words out of a memory's history and of the messages it came from; that they were stays."""
    connection.execute(
        events.update().where(events.c.memory == uid).values(old_text=None, new_text=None, before=None, reason=None)
    )
    connection.execute(messages.update().where(messages.c.memory == uid).values(words=None))


def bury(connection: Connection, kind: str, uid: str, space: str, scope: Scope, now: datetime, change: int) -> None:
    """Leaves a tombstone, for the projections and against replays."""
    connection.execute(
        tombstones.insert().values(
            uid=uid,
            kind=kind,
            space=space,
            user_id=scope.user_id,
            agent_id=scope.agent_id,
            run_id=scope.run_id,
            at=micros(now),
            change=change,
        )
    )


def tombstone(connection: Connection, uid: str) -> Tombstone | None:
    """The tombstone of a memory or relation."""
    row = connection.execute(select(tombstones).where(tombstones.c.uid == uid)).mappings().first()
    return None if row is None else _tombstone_of(row)


def buried(connection: Connection, after: int, limit: int, space: str | None = None) -> list[Tombstone]:
    """Tombstones whose change number is past `after`, in its order."""
    statement = select(tombstones).where(tombstones.c.change > after).order_by(tombstones.c.change).limit(limit)
    if space is not None:
        statement = statement.where(tombstones.c.space == space)
    return [_tombstone_of(row) for row in connection.execute(statement).mappings()]


def _tombstone_of(row: Any) -> Tombstone:
    scope = Scope(row["user_id"], row["agent_id"], row["run_id"])
    return Tombstone(uid=row["uid"], kind=row["kind"], space=row["space"], scope=scope, change=row["change"])


def said_before(connection: Connection, key: str) -> tuple[str, str | None] | None:
    """The memory that a message became and the hash of its words (None: erased), or None for a new message."""
    row = connection.execute(select(messages.c.memory, messages.c.words).where(messages.c.key == key)).first()
    return None if row is None else (row[0], row[1])


def note_message(connection: Connection, key: str, memory: str, words: str) -> None:
    """Remembers that a message was stored."""
    connection.execute(messages.insert().values(key=key, memory=memory, words=words))


def owe(connection: Connection, row: int, version: int) -> None:
    """Records that a memory has to be enriched."""
    statement = upsert(tasks).values(memory=row, kind="enrich", version=version, attempts=0)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[tasks.c.memory, tasks.c.kind], set_={"version": version, "attempts": 0, "error": None}
        )
    )


def owed(connection: Connection, limit: int, rows: Sequence[int] | None = None) -> list[int]:
    """Rows of memories that wait for enrichment, those tried least first; all of them, or those among `rows`."""
    statement = select(tasks.c.memory).order_by(tasks.c.attempts, tasks.c.memory).limit(limit)
    if rows is not None:
        statement = statement.where(tasks.c.memory.in_(rows))
    return list(connection.scalars(statement))


def owed_uids(connection: Connection, uids: Iterable[str]) -> list[str]:
    """Which of these memories still wait for enrichment."""
    statement = select(memories.c.uid).join(tasks).where(memories.c.uid.in_(list(uids)))
    return list(connection.scalars(statement))


def count_owed(connection: Connection) -> int:
    """How many tasks there are."""
    return connection.scalar(select(func.count()).select_from(tasks)) or 0


def paid(connection: Connection, row: int, version: int) -> bool:
    """Takes a task off the list; False if it is not there any more, or for another version of the text."""
    done = connection.execute(tasks.delete().where(tasks.c.memory == row, tasks.c.version == version))
    return bool(done.rowcount)


def failed(connection: Connection, rows: Sequence[int], error: str) -> None:
    """Notes a failed attempt."""
    attempts = tasks.update().where(tasks.c.memory.in_(rows)).values(attempts=tasks.c.attempts + 1, error=error)
    connection.execute(attempts)


def epoch(connection: Connection) -> int:
    """How often this ledger was reset."""
    return connection.scalar(select(ledger.c.epoch)) or 0


def cursor(connection: Connection, projection: str) -> int | None:
    """How far a shared projection is; None if nothing is known of what it holds."""
    return connection.scalar(select(cursors.c.change).where(cursors.c.projection == projection))


def drop_cursor(connection: Connection, projection: str) -> None:
    """Forgets how far a projection is: it will be emptied and filled again."""
    connection.execute(cursors.delete().where(cursors.c.projection == projection))


def move_cursor(connection: Connection, projection: str, change: int) -> None:
    """Moves a projection's cursor; to be called only after the store has made the batch durable."""
    statement = upsert(cursors).values(projection=projection, change=change)
    connection.execute(statement.on_conflict_do_update(index_elements=[cursors.c.projection], set_={"change": change}))


def refuse(connection: Connection, projection: str, refused: Mapping[str, str], change: int) -> None:
    """Sets rows aside that a store refused: {memory id: error}."""
    for memory, error in refused.items():
        statement = upsert(set_aside).values(projection=projection, memory=memory, change=change, error=error)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=[set_aside.c.projection, set_aside.c.memory], set_={"change": change, "error": error}
            )
        )


def refused(connection: Connection, projection: str) -> dict[str, str]:
    """What is set aside: {memory id: error}."""
    statement = select(set_aside.c.memory, set_aside.c.error).where(set_aside.c.projection == projection)
    return dict(connection.execute(statement).all())


def accept(connection: Connection, projection: str, memories: Iterable[str] | None = None) -> None:
    """Takes rows back that were set aside: these, or all."""
    statement = set_aside.delete().where(set_aside.c.projection == projection)
    if memories is not None:
        statement = statement.where(set_aside.c.memory.in_(list(memories)))
    connection.execute(statement)
