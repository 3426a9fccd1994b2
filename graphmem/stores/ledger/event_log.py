"""The log: sequence numbers, events, tombstones, tasks, cursors. The log is the outbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection, RowMapping, Select, bindparam, func, or_, select

from graphmem.model import Event, MemoryRecord, Scope, from_micros, micros
from graphmem.stores.ledger.array_parameters import in_array
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.dialects import now_micros, upsert
from graphmem.stores.ledger.schema import (
    cursors,
    events,
    leases,
    ledger,
    memories,
    messages,
    tasks,
    tombstones,
)
from graphmem.stores.ledger.schema import (
    dead_letters as dead_letters_table,
)

# Built once: every write asks these.
_NEXT_SEQ = ledger.update().values(seq=ledger.c.seq + 1).returning(ledger.c.seq)
_SAID = select(messages.c.memory, messages.c.content_digest).where(messages.c.key == bindparam("said"))
_TOMBSTONE = select(tombstones).where(tombstones.c.uid == bindparam("gone"))
_USED = select(events.c.uid).where(in_array(events.c.uid, "wanted"))
_PAID = tasks.delete().where(tasks.c.memory == bindparam("row"), tasks.c.version == bindparam("of"))
_HISTORIES = select(events).where(in_array(events.c.memory, "wanted")).order_by(events.c.id)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is no more, since `at`."""

    uid: str
    kind: str
    partition: str
    scope: Scope
    at: datetime
    seq: int


class CursorState(NamedTuple):
    """Where a projection stands: how often the ledger was reset, its last sequence number, and the cursor (see it)."""

    epoch: int
    last: int
    cursor: int | None


# One statement: every search asks it of each projection.
_STANDING = select(
    ledger.c.epoch,
    ledger.c.seq,
    select(cursors.c.seq).where(cursors.c.projection == bindparam("projection")).scalar_subquery(),
)


def next_seq(connection: Connection) -> int:
    """The next sequence number; it is taken inside the write transaction, so that numbers commit in order."""
    return int(connection.scalar(_NEXT_SEQ))


def last_change(connection: Connection) -> int:
    """The last sequence number given out."""
    return connection.scalar(select(ledger.c.seq)) or 0


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
    connection.execute(events.insert(), line)


def history(connection: Connection, uid: str) -> list[Event]:
    """The events of a memory, oldest first."""
    return history_of_all(connection, [uid])


def find_event(connection: Connection, uid: str) -> Event | None:
    """One event by its id."""
    memory = connection.scalar(select(events.c.memory).where(events.c.uid == uid))
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
    connection.execute(events.insert(), lines)


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
    connection.execute(events.delete().where(events.c.memory == uid))


def erase_content(connection: Connection, uid: str) -> None:
    """Takes the words out of a memory's history and of the messages it came from; that they were stays."""
    connection.execute(
        events.update()
        .where(events.c.memory == uid)
        .values(old_text=None, new_text=None, previous_state=None, reason=None)
    )
    connection.execute(messages.update().where(messages.c.memory == uid).values(content_digest=None))


def add_tombstone(
    connection: Connection, kind: str, uid: str, partition: str, scope: Scope, now: datetime, seq: int
) -> None:
    """Leaves a tombstone, for the projections and against replays.

    That of an entity has its id sealed (`Digests.encrypt`), which is another one each time it dies.
    """
    statement = upsert(connection, tombstones).values(
        uid=uid,
        kind=kind,
        partition=partition,
        user_id=scope.user_id,
        agent_id=scope.agent_id,
        run_id=scope.run_id,
        at=micros(now),
        seq=seq,
    )
    again = {"at": micros(now), "seq": seq}
    connection.execute(statement.on_conflict_do_update(index_elements=[tombstones.c.uid], set_=again))


def prune_tombstones(connection: Connection, numbers: Sequence[int] | None = None) -> None:
    """Takes away entities' tombstones that every projection has heard of: all, or those with these sequence numbers."""
    heard = select(func.min(cursors.c.seq)).scalar_subquery()
    statement = tombstones.delete().where(tombstones.c.kind == "entity", tombstones.c.seq <= heard)
    if numbers is not None:
        statement = statement.where(tombstones.c.seq.in_(numbers))
    connection.execute(statement)


def find_tombstone(connection: Connection, uid: str) -> Tombstone | None:
    """The tombstone of a memory or relation."""
    row = connection.execute(_TOMBSTONE, {"gone": uid}).mappings().first()
    return None if row is None else _tombstone_of(row)


def remove_tombstone(connection: Connection, uid: str) -> None:
    """Takes the tombstone of a memory away: it is there again."""
    connection.execute(tombstones.delete().where(tombstones.c.uid == uid, tombstones.c.kind == "memory"))


def tombstones_after(connection: Connection, after: int, limit: int, partition: str | None = None) -> list[Tombstone]:
    """Tombstones whose sequence number is past `after`, in its order."""
    statement = select(tombstones).where(tombstones.c.seq > after).order_by(tombstones.c.seq).limit(limit)
    if partition is not None:
        statement = statement.where(tombstones.c.partition == partition)
    return tombstones_of(connection, statement)


def tombstones_of(connection: Connection, statement: Select[Any]) -> list[Tombstone]:
    """The tombstones that a statement selects."""
    return [_tombstone_of(row) for row in connection.execute(statement).mappings()]


@decoding
def _tombstone_of(row: Any) -> Tombstone:
    return Tombstone(
        uid=row["uid"],
        kind=row["kind"],
        partition=row["partition"],
        scope=Scope(row["user_id"], row["agent_id"], row["run_id"]),
        at=from_micros(row["at"]),
        seq=row["seq"],
    )


def message_lookup(connection: Connection, key: str) -> tuple[str, str | None] | None:
    """The memory that a message became and the hash of its words (None: erased), or None for a new message."""
    row = connection.execute(_SAID, {"said": key}).first()
    return None if row is None else (row[0], row[1])


def add_message_key(connection: Connection, key: str, memory: str, content_digest: str) -> None:
    """Remembers that a message was stored."""
    connection.execute(messages.insert(), {"key": key, "memory": memory, "content_digest": content_digest})


def restore_message_key(connection: Connection, key: str, memory: str, content_digest: str | None) -> None:
    """The same for a message that may be known: as erased, if it is restored now (`content_digest`)."""
    statement = upsert(connection, messages).values(key=key, memory=memory, content_digest=content_digest)
    if content_digest is None:
        connection.execute(statement.on_conflict_do_nothing())
        return
    said = {"memory": memory, "content_digest": content_digest}
    connection.execute(statement.on_conflict_do_update(index_elements=[messages.c.key], set_=said))


def enqueue(connection: Connection, row: int, version: int) -> None:
    """Records that a memory has to be enriched."""
    statement = upsert(connection, tasks).values(memory=row, kind="enrich", version=version, attempts=0)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[tasks.c.memory, tasks.c.kind], set_={"version": version, "attempts": 0, "error": None}
        )
    )


def pending(connection: Connection, limit: int, rows: Sequence[int] | None = None) -> list[int]:
    """Rows of memories that wait for enrichment, those tried least first; all of them, or those among `rows`."""
    statement = select(tasks.c.memory).order_by(tasks.c.attempts, tasks.c.memory).limit(limit)
    if rows is not None:
        statement = statement.where(tasks.c.memory.in_(rows))
    return list(connection.scalars(statement))


def pending_ids(connection: Connection, uids: Iterable[str]) -> list[str]:
    """Which of these memories still wait for enrichment."""
    statement = select(memories.c.uid).join(tasks).where(memories.c.uid.in_(list(uids)))
    return list(connection.scalars(statement))


def count_pending(connection: Connection) -> int:
    """How many tasks there are."""
    return connection.scalar(select(func.count()).select_from(tasks)) or 0


def complete(connection: Connection, row: int, version: int) -> bool:
    """Takes a task off the list; False if it is not there any more, or for another version of the text."""
    return bool(connection.execute(_PAID, {"row": row, "of": version}).rowcount)


def record_failure(connection: Connection, rows: Sequence[int], error: str) -> None:
    """Notes a failed attempt."""
    attempts = tasks.update().where(tasks.c.memory.in_(rows)).values(attempts=tasks.c.attempts + 1, error=error)
    connection.execute(attempts)


def epoch(connection: Connection) -> int:
    """How often this ledger was reset."""
    return connection.scalar(select(ledger.c.epoch)) or 0


def cursor_state(connection: Connection, projection: str) -> CursorState:
    """Where a projection stands."""
    return CursorState(*connection.execute(_STANDING, {"projection": projection}).one())


def cursor(connection: Connection, projection: str) -> int | None:
    """How far a shared projection is; None if nothing is known of what it holds."""
    return connection.scalar(select(cursors.c.seq).where(cursors.c.projection == projection))


def delete_cursor(connection: Connection, projection: str) -> None:
    """Forgets how far a projection is: it will be emptied and filled again."""
    connection.execute(cursors.delete().where(cursors.c.projection == projection))


def move_cursor(connection: Connection, projection: str, seq: int) -> None:
    """Moves a projection's cursor; to be called only after the store has made the batch durable."""
    statement = upsert(connection, cursors).values(projection=projection, seq=seq)
    connection.execute(statement.on_conflict_do_update(index_elements=[cursors.c.projection], set_={"seq": seq}))


def rewind_cursor(connection: Connection, projection: str, seq: int) -> None:
    """Turns a cursor back, so that what follows is delivered again."""
    mine = cursors.c.projection == projection, cursors.c.seq > seq
    connection.execute(cursors.update().where(*mine).values(seq=seq))


def acquire_lease(connection: Connection, projection: str, holder: str, seconds: float) -> bool:
    """Makes `holder` the one who delivers, for so long; False while somebody else is.

    One that would last longer than any is given is from before the clock was set back, and holds nobody up.
    """
    now = now_micros()
    until = now + int(seconds * 1_000_000)
    said = {"holder": holder, "until": until}
    over = ~leases.c.until.between(now, until)
    free = or_(leases.c.holder.is_(None), leases.c.holder == holder, over)
    statement = upsert(connection, leases).values(projection=projection, **said)
    statement = statement.on_conflict_do_update(index_elements=[leases.c.projection], set_=said, where=free)
    return bool(connection.scalar(statement.returning(leases.c.holder)) == holder)


def holds_lease(connection: Connection, projection: str, holder: str) -> bool:
    """Whether nobody else has taken over."""
    return connection.scalar(select(leases.c.holder).where(leases.c.projection == projection)) == holder


def release_lease(connection: Connection, projection: str, holder: str) -> None:
    """Lets others deliver."""
    mine = leases.c.projection == projection, leases.c.holder == holder
    connection.execute(leases.update().where(*mine).values(holder=None))


def add_dead_letters(connection: Connection, projection: str, refused: Mapping[str, str], seq: int) -> None:
    """Sets rows aside that a store refused: {memory id: error}."""
    for memory, error in refused.items():
        statement = upsert(connection, dead_letters_table).values(
            projection=projection, memory=memory, seq=seq, error=error
        )
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=[dead_letters_table.c.projection, dead_letters_table.c.memory],
                set_={"seq": seq, "error": error},
            )
        )


def dead_letters(connection: Connection, projection: str) -> dict[str, str]:
    """What is set aside: {memory id: error}."""
    statement = select(dead_letters_table.c.memory, dead_letters_table.c.error).where(
        dead_letters_table.c.projection == projection
    )
    return dict(connection.execute(statement).all())


def remove_dead_letters(connection: Connection, projection: str, memories: Iterable[str] | None = None) -> None:
    """Takes rows back that were set aside: these, or all."""
    statement = dead_letters_table.delete().where(dead_letters_table.c.projection == projection)
    if memories is not None:
        statement = statement.where(dead_letters_table.c.memory.in_(list(memories)))
    connection.execute(statement)
