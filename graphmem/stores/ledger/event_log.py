"""The log that followers read: the history of memories, and what else happened, for those who follow it.

A follower is a name under which a program is told of all events of one type, in order and at least once. Its cursor,
lease and dead letters are rows beside those of projections (`outbox.follower`). A cursor is a row of the table that has
the events: `events` for memories that were added or changed, else `occurrences`. The history of memories is kept as
long as they are; an occurrence is recorded only where somebody follows, and goes after `KEPT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, func, select

from graphmem.model import EventType, MemoryEvent, Scope, from_micros, micros
from graphmem.stores.ledger import events as history
from graphmem.stores.ledger.outbox import FOLLOWERS, IS_OF_PROJECTION, follower, is_followed
from graphmem.stores.ledger.schema import cursors, dead_letters, events, leases, memories, occurrences
from graphmem.stores.ledger.sequence import first_open_seq
from graphmem.stores.ledger.sql import decoding, now_micros, upsert

# How long an occurrence is kept for a follower that no process serves.
KEPT = timedelta(days=30)


class LoggedEvent(NamedTuple):
    """An event, and its row in the table that has it."""

    row: int
    event: MemoryEvent


def name_of(place: str) -> tuple[str, str]:
    """Returns the type of the events and the name that an `outbox.follower` was made of."""
    event_type, _, name = place.removeprefix(FOLLOWERS).partition("@")
    return event_type, name


def follow(connection: Connection, event_type: EventType, name: str) -> None:
    """Lets a name follow the events of a type from now on, unless it does already."""
    last = last_row(connection, event_type)
    statement = upsert(connection, cursors).values(projection=follower(event_type, name), seq=last)
    connection.execute(statement.on_conflict_do_nothing(index_elements=[cursors.c.projection]))


def last_row(connection: Connection, event_type: EventType) -> int:
    """Returns the last row of the table that has the events of a type, whatever event it is; 0 for none.

    Rows of transactions that are open may have lower numbers than rows that are there: these count as not there.
    """
    table = events if event_type is EventType.MEMORY_ADDED else occurrences
    return connection.scalar(select(func.max(table.c.id)).where(table.c.id < first_open_seq())) or 0


def unfollow(connection: Connection, name: str) -> list[str]:
    """Deletes all that is kept for a name; returns the types of events that it followed, sorted."""
    followers = [follower(event_type, name) for event_type in EventType]
    for table in (leases, dead_letters):
        connection.execute(table.delete().where(table.c.projection.in_(followers)))
    statement = cursors.delete().where(cursors.c.projection.in_(followers)).returning(cursors.c.projection)
    return sorted(name_of(one)[0] for one in connection.scalars(statement))


class DeadEvent(NamedTuple):
    """An event that a follower did not take, its name, and why. `event` None: it is in no log any more."""

    event_id: str
    event_type: str
    name: str
    error: str
    event: MemoryEvent | None


_IS_OF_FOLLOWER = dead_letters.c.projection.startswith(FOLLOWERS)


def dead_events(connection: Connection, limit: int, offset: int) -> list[DeadEvent]:
    """Returns the events that followers did not take, in order of their types, names and rows."""
    letters = dead_letters.c
    statement = select(dead_letters).where(_IS_OF_FOLLOWER).order_by(letters.projection, letters.seq, letters.memory)
    return [_decode_dead(connection, row) for row in connection.execute(statement.limit(limit).offset(offset)).all()]


def find_dead(connection: Connection, name: str, event_id: str) -> DeadEvent | None:
    """Returns the event with an id that a name did not take, None if there is none."""
    places = [follower(event_type, name) for event_type in EventType]
    is_it = dead_letters.c.projection.in_(places), dead_letters.c.memory == event_id
    row = connection.execute(select(dead_letters).where(*is_it)).first()
    return None if row is None else _decode_dead(connection, row)


def count_dead(connection: Connection) -> dict[str, int]:
    """Returns the numbers of events that followers did not take, by their names."""
    statement = select(dead_letters.c.projection, func.count()).where(_IS_OF_FOLLOWER)
    counts: dict[str, int] = {}
    for place, number in connection.execute(statement.group_by(dead_letters.c.projection)):
        name = name_of(place)[1]
        counts[name] = counts.get(name, 0) + number
    return counts


def delays(connection: Connection) -> dict[str, float]:
    """Returns how many seconds ago the oldest event happened that a name was not told yet, 0 for none, by the names."""
    now, found = connection.scalar(select(now_micros())) or 0, dict[str, float]()
    places = connection.execute(select(cursors.c.projection, cursors.c.seq).where(~IS_OF_PROJECTION)).all()
    for place, row in places:
        event_type, name = name_of(place)
        waiting = after(connection, EventType(event_type), row, 1)
        seconds = (now - micros(waiting[0].event.timestamp)) / 1_000_000 if waiting else 0.0
        found[name] = max(found.get(name, 0.0), seconds)
    return found


def _decode_dead(connection: Connection, row: Row[Any]) -> DeadEvent:
    event_type, name = name_of(row.projection)
    event = find(connection, EventType(event_type), row.memory)
    return DeadEvent(row.memory, event_type, name, row.error, event)


def advance(connection: Connection, place: str, row: int) -> None:
    """Moves a follower's cursor forward to a row; it stays away if it was deleted meanwhile."""
    is_behind = cursors.c.projection == place, cursors.c.seq < row
    connection.execute(cursors.update().where(*is_behind).values(seq=row))


def append(connection: Connection, event: MemoryEvent) -> None:
    """Records an event that is in no memory's history, in the transaction of what it is about, if anybody follows it.

    Deletes what has been recorded for longer than `KEPT`.
    """
    if not connection.scalar(select(is_followed(EventType(event.event_type)))):
        return
    row = {
        "uid": event.payload["event_id"],
        "event": event.event_type,
        "user_id": event.user_id,
        "payload": dict(event.payload),
        "at": micros(event.timestamp),
    }
    connection.execute(occurrences.insert(), row)
    kept = KEPT // timedelta(microseconds=1)
    outdated = select(occurrences.c.id).where(occurrences.c.at < now_micros() - kept)
    # Another writer may be deleting them.
    outdated = outdated.with_for_update(skip_locked=True)
    connection.execute(occurrences.delete().where(occurrences.c.id.in_(outdated)))


def after(connection: Connection, event_type: EventType, row: int, limit: int) -> Sequence[LoggedEvent]:
    """Returns the first events of a type after a row, in order; those of memories that were erased are left out.

    So are those above `last_row`, of transactions that are open and of those that have overtaken them.
    """
    if event_type is EventType.MEMORY_ADDED:
        statement = _CHANGES.where(events.c.id > row, events.c.id < first_open_seq()).order_by(events.c.id).limit(limit)
        return [_decode_change(found) for found in connection.execute(statement)]
    of_type = occurrences.c.event == event_type.value, occurrences.c.id > row, occurrences.c.id < first_open_seq()
    statement = select(occurrences).where(*of_type).order_by(occurrences.c.id).limit(limit)
    return [_decode_occurrence(found) for found in connection.execute(statement)]


def find(connection: Connection, event_type: EventType, event_id: str) -> MemoryEvent | None:
    """Returns the event with an id; None if it is not in the log any more."""
    if event_type is EventType.MEMORY_ADDED:
        change = connection.execute(_CHANGES.where(events.c.uid == event_id)).first()
        return None if change is None else _decode_change(change).event
    occurrence = connection.execute(select(occurrences).where(occurrences.c.uid == event_id)).first()
    return None if occurrence is None else _decode_occurrence(occurrence).event


_CHANGES: Select[Any] = (
    select(
        events.c.id,
        events.c.uid,
        events.c.event,
        events.c.memory,
        events.c.at,
        memories.c.user_id,
        memories.c.agent_id,
        memories.c.run_id,
    )
    .join(memories, memories.c.uid == events.c.memory)
    .where(events.c.event != history.ERASED)
)


@decoding
def _decode_change(row: Row[Any]) -> LoggedEvent:
    scope = Scope(row.user_id, row.agent_id, row.run_id)
    return LoggedEvent(row.id, MemoryEvent.added(row.uid, row.event, row.memory, scope, from_micros(row.at)))


@decoding
def _decode_occurrence(row: Row[Any]) -> LoggedEvent:
    return LoggedEvent(row.id, MemoryEvent(row.event, row.user_id, row.payload, from_micros(row.at)))
