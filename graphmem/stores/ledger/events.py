"""The history of memories: their events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, RowMapping, select

from graphmem.model import Event, MemoryRecord, from_micros, micros
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.schema import events as events_table
from graphmem.stores.ledger.schema import messages

_USED = select(events_table.c.uid).where(in_array(events_table.c.uid, "wanted"))
_HISTORIES = select(events_table).where(in_array(events_table.c.memory, "wanted")).order_by(events_table.c.id)


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
    line = {
        "uid": str(uuid4()),
        "memory": record.id,
        "event": event,
        "old_text": old,
        "new_text": new,
        "previous_state": None if before is None else dict(before),
        "reason": reason,
        "actor_id": record.actor_id,
        "role": record.role,
        "memory_created_at": micros(record.created_at),
        "at": micros(now),
        "seq": record.seq,
    }
    connection.execute(events_table.insert(), line)


def history(connection: Connection, uid: str) -> list[Event]:
    """The events of a memory, oldest first."""
    return history_of_all(connection, [uid])


def find_event(connection: Connection, uid: str) -> Event | None:
    """One event by its id."""
    memory = connection.scalar(select(events_table.c.memory).where(events_table.c.uid == uid))
    return None if memory is None else next(one for one in history(connection, memory) if one.id == uid)


def history_of_all(connection: Connection, uids: Sequence[str]) -> list[Event]:
    """The events of several memories, oldest first."""
    return [_event_of(row) for row in connection.execute(_HISTORIES, {"wanted": list(uids)}).mappings()]


@decoding
def _event_of(row: RowMapping) -> Event:
    return Event(
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
        previous_state=row["previous_state"],
    )


def insert_history(connection: Connection, found: Sequence[Event], seq: int) -> None:
    """Writes lines of a history that began elsewhere. An id that is another event's here is replaced."""
    if not found:
        return
    used = set(connection.scalars(_USED, {"wanted": [event.id for event in found]}))
    lines = []
    for event in found:
        lines.append(_line_of(event, str(uuid4()) if event.id in used else event.id, seq))
        used.add(event.id)
    connection.execute(events_table.insert(), lines)


def _line_of(event: Event, uid: str, seq: int) -> dict[str, Any]:
    return {
        "uid": uid,
        "memory": event.memory_id,
        "event": event.event,
        "old_text": event.old_text,
        "new_text": event.new_text,
        "previous_state": None if event.previous_state is None else dict(event.previous_state),
        "reason": event.reason,
        "actor_id": event.actor_id,
        "role": event.role,
        "memory_created_at": micros(event.created_at),
        "at": micros(event.updated_at),
        "seq": seq,
    }


def delete_history(connection: Connection, uid: str) -> None:
    """Takes the events of a memory out, for its whole history to be written anew."""
    connection.execute(events_table.delete().where(events_table.c.memory == uid))


def erase_content(connection: Connection, uid: str) -> None:
    """Takes the words out of a memory's history and of the messages it came from; that they were stays."""
    connection.execute(
        events_table.update()
        .where(events_table.c.memory == uid)
        .values(old_text=None, new_text=None, previous_state=None, reason=None)
    )
    connection.execute(messages.update().where(messages.c.memory == uid).values(content_digest=None))
