"""The history of memories: writes, reads and erases their events."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple, cast
from uuid import uuid4

from sqlalchemy import Connection, RowMapping, and_, or_, select

from graphmem.model import (
    COMPOSING_EVENTS,
    EVENTS,
    Event,
    MemoryRecord,
    Scope,
    from_micros,
    micros,
    optional_from_micros,
)
from graphmem.stores.ledger import attachments, visibility
from graphmem.stores.ledger.schema import OPTIONAL_TIME_COLUMNS, TIME_COLUMNS, memories, messages, tombstones
from graphmem.stores.ledger.schema import events as events_table
from graphmem.stores.ledger.sql import DECODING_ERRORS, FEW, CorruptValue, in_array, readable_rows

# The event of a memory that was erased.
ERASED = "DELETE"
# What an event's digest is of.
_DIGESTED = tuple(column.name for column in events_table.c if column.name not in {"id", "digest"})
# What of an event is erased with its memory.
_WORDS = ("old_text", "new_text", "previous_state", "reason")
# Built once, not at every call.
_USED_IDS = select(events_table.c.uid).where(in_array(events_table.c.uid, "uids"))
_HISTORY = select(events_table).where(in_array(events_table.c.memory, "memory_ids")).order_by(events_table.c.id)

# Events by their rows, for `is_intact`.
BY_ROW = select(events_table).where(in_array(events_table.c.id, "rows"))


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
    batch: str | None = None,
) -> str | None:
    """Writes one event of a memory and returns its id; none for a source message, which has no history.

    `before` is the memory's whole state before the change (`memories.encode_record`): undo restores it.
    `batch` is the id of the cycle that the event is part of.
    """
    if record.source_only:
        return None
    row = {
        **_event_row(event, record, now),
        "old_text": old,
        "new_text": new,
        "previous_state": None if before is None else dict(before),
        "reason": reason,
        "batch": batch,
    }
    connection.execute(events_table.insert(), _with_digest(row))
    return str(row["uid"])


def add_first_events(
    connection: Connection, records: Sequence[MemoryRecord], *, now: datetime
) -> list[tuple[str, MemoryRecord]]:
    """Writes the ADD events of new memories, in order; none for source messages, which have no history.

    Returns the id of each event, with its memory.
    """
    with_history = [record for record in records if not record.source_only]
    rows = [{**_event_row("ADD", record, now), "new_text": record.text} for record in with_history]
    if rows:
        connection.execute(events_table.insert(), list(map(_with_digest, rows)))
    return [(row["uid"], record) for row, record in zip(rows, with_history, strict=True)]


def _event_row(event: str, record: MemoryRecord, now: datetime) -> dict[str, Any]:
    return {
        "uid": str(uuid4()),
        "memory": record.id,
        "event": event,
        "actor_id": record.actor_id,
        "role": record.role,
        "memory_created_at": micros(record.created_at),
        "at": micros(now),
        "seq": record.seq,
    }


def _with_digest(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "digest": _digest(row)}


def _digest(row: RowMapping | Mapping[str, Any]) -> bytes:
    """Returns the digest of all that an event says. Without a key: it tells damage, not forgery."""
    said = json.dumps([row.get(name) for name in _DIGESTED])
    return blake2b(said.encode(), digest_size=16).digest()


def first_after(connection: Connection, seq: int) -> datetime | None:
    """Returns the time of the first event above a sequence number; None without one. Reads the whole table."""
    statement = select(events_table.c.at).where(events_table.c.seq > seq).order_by(events_table.c.id).limit(1)
    found = connection.scalar(statement)
    return None if found is None else from_micros(found)


def history(connection: Connection, uid: str) -> list[Event]:
    """Returns the events of a memory, oldest first."""
    return history_of_all(connection, [uid])


def each_event(connection: Connection, uid: str) -> Generator[Event]:
    """Yields the events of a memory, oldest first and without the states before them, while their rows are fetched."""
    statement = select(*(column for column in events_table.c if column is not events_table.c.previous_state))
    statement = statement.where(events_table.c.memory == uid).order_by(events_table.c.id)
    with connection.execute(statement, execution_options=FEW) as rows:
        for row in rows.mappings():
            yield _decode_event({**row, "previous_state": None})


def find_event(connection: Connection, uid: str) -> Event | None:
    """Returns the event with this id, or None."""
    memory = connection.scalar(select(events_table.c.memory).where(events_table.c.uid == uid))
    return None if memory is None else next(event for event in history(connection, memory) if event.id == uid)


class CycleEvent(NamedTuple):
    """An event of a cycle, its memory's id, and whether that memory was erased since."""

    id: str
    memory: str
    is_erased: bool


def events_of_cycle(connection: Connection, batch: str, scope: Scope | None) -> list[CycleEvent]:
    """Returns the events of a cycle, newest first: those of memories of a scope (None: of all), erased ones too."""
    e, m, t = events_table.c, memories.c, tombstones.c
    is_erased = m.id.is_(None)
    statement = (
        select(e.uid, e.memory, is_erased)
        .join_from(events_table, memories, m.uid == e.memory, isouter=True)
        .join(tombstones, t.uid == e.memory, isouter=True)
        .where(e.batch == batch)
        .order_by(e.id.desc())
    )
    if scope is not None:
        was_in_scope = (t[name] == value for name, value in scope.parts.items())
        in_scope = or_(and_(~is_erased, *visibility.scope_conditions(scope)), and_(is_erased, *was_in_scope))
        statement = statement.where(in_scope)
    return [CycleEvent(uid, memory, bool(erased)) for uid, memory, erased in connection.execute(statement)]


def last_of_type(connection: Connection, uids: Sequence[str], event: str) -> dict[str, tuple[str, str]]:
    """Returns the id and the reason of the last event of a type of each memory that has one, by the memory's id."""
    statement = _HISTORY.where(events_table.c.event == event).with_only_columns(
        events_table.c.memory, events_table.c.uid, events_table.c.reason
    )
    found = connection.execute(statement, {"memory_ids": list(uids)})
    return {memory: (uid, reason or "") for memory, uid, reason in found}


def was_composed(connection: Connection, uid: str) -> bool:
    """Returns whether a memory was made of others (see `graphmem.model.COMPOSING_EVENTS`)."""
    composing = events_table.c.memory == uid, events_table.c.event.in_(COMPOSING_EVENTS)
    return connection.scalar(select(events_table.c.id).where(*composing).limit(1)) is not None


def history_of_all(connection: Connection, uids: Sequence[str]) -> list[Event]:
    """Returns the events of several memories in the order in which they were stored, not grouped by memory."""
    return [_decode_event(row) for row in connection.execute(_HISTORY, {"memory_ids": list(uids)}).mappings().all()]


def _decode_event(row: RowMapping | Mapping[str, Any]) -> Event:
    """Returns a row as an event. Raises CorruptValue, which names the memory."""
    try:
        if row["event"] not in EVENTS:
            raise ValueError
        return Event(
            id=row["uid"],
            memory_id=row["memory"],
            event=row["event"],
            old_text=_optional_text(row["old_text"]),
            new_text=_optional_text(row["new_text"]),
            created_at=from_micros(row["memory_created_at"]),
            updated_at=from_micros(row["at"]),
            is_deleted=row["event"] == ERASED,
            actor_id=_optional_text(row["actor_id"]),
            role=_optional_text(row["role"]),
            reason=_optional_text(row["reason"]),
            previous_state=_checked_state(row["previous_state"]),
            batch=_optional_text(row["batch"]),
        )
    except DECODING_ERRORS as error:
        raise CorruptValue(f"the history of memory {row['memory']!r:.80}, which can be deleted") from error


def _optional_text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError
    return value


def _checked_state(state: Any) -> Mapping[str, Any] | None:
    """Returns the state of a memory before an event, if it can be read; raises one of DECODING_ERRORS."""
    if state is not None:
        _optional_text(state["text"])
        for name in TIME_COLUMNS:
            from_micros(state[name])
        for name in OPTIONAL_TIME_COLUMNS:
            optional_from_micros(state.get(name))
        for one in state.get("attachments") or ():
            attachments.decode(one)
    return cast("Mapping[str, Any] | None", state)


def is_intact(row: RowMapping) -> bool:
    """Returns whether an event can be read and says what was written. One that was erased has no digest."""
    try:
        _decode_event(row)
        if row["digest"] is None:
            return all(row[name] is None for name in _WORDS)
        return bool(row["digest"] == _digest(row))
    except (CorruptValue, *DECODING_ERRORS):
        return False


def insert_history(connection: Connection, events: Sequence[Event], seq: int) -> list[str]:
    """Writes imported events and returns their ids. An id that an event of this ledger already has is replaced by a
    new one.
    """
    if not events:
        return []
    used_ids = set(connection.scalars(_USED_IDS, {"uids": [event.id for event in events]}))
    rows: list[dict[str, Any]] = []
    for event in events:
        rows.append(
            {
                "uid": str(uuid4()) if event.id in used_ids else event.id,
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
                "batch": event.batch,
            }
        )
        used_ids.add(event.id)
    connection.execute(events_table.insert(), list(map(_with_digest, rows)))
    return [row["uid"] for row in rows]


def delete_history(connection: Connection, uid: str) -> None:
    """Deletes the events of a memory: one that was erased to make room, or whose whole history is imported anew."""
    connection.execute(events_table.delete().where(events_table.c.memory == uid))


def erase_content(connection: Connection, uid: str) -> None:
    """Erases the texts in a memory's events and the content digests of its messages; the rows themselves stay.

    Damaged ones go, since an export of what was erased could not read them.
    """
    of_memory = events_table.c.memory == uid
    connection.execute(events_table.update().where(of_memory).values(**dict.fromkeys(_WORDS), digest=None))
    connection.execute(messages.update().where(messages.c.memory == uid).values(content_digest=None))
    rows = set(connection.scalars(select(events_table.c.id).where(of_memory)))
    damaged = rows - {row["id"] for row in readable_rows(connection, BY_ROW, rows) if is_intact(row)}
    if damaged:
        connection.execute(events_table.delete().where(in_array(events_table.c.id, "rows")), {"rows": list(damaged)})
