"""The outbox: sequence numbers, enrichment tasks, and the cursors, leases and dead letters of projections.

Every change takes a sequence number in its transaction; projections read the rows above their cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, or_, select

from graphmem.stores.ledger.dialects import now_micros, upsert
from graphmem.stores.ledger.schema import cursors, leases, ledger, memories, tasks
from graphmem.stores.ledger.schema import dead_letters as dead_letters_table

# Built once: every write runs these.
_NEXT_SEQ = ledger.update().values(seq=ledger.c.seq + 1).returning(ledger.c.seq)
_COMPLETE_TASK = tasks.delete().where(tasks.c.memory == bindparam("row"), tasks.c.version == bindparam("task_version"))


class CursorState(NamedTuple):
    """A projection's cursor (None: its content is unknown), beside the ledger's last sequence number and `epoch`.

    The epoch counts the resets of the ledger.
    """

    epoch: int
    last: int
    cursor: int | None


# One statement: every search runs it for each projection.
_CURSOR_STATE = select(
    ledger.c.epoch,
    ledger.c.seq,
    select(cursors.c.seq).where(cursors.c.projection == bindparam("projection")).scalar_subquery(),
)


def next_seq(connection: Connection) -> int:
    """Takes the next sequence number, inside the write transaction, so that numbers commit in order."""
    return int(connection.scalar(_NEXT_SEQ))


def last_seq(connection: Connection) -> int:
    """Returns the last sequence number taken."""
    return connection.scalar(select(ledger.c.seq)) or 0


def epoch(connection: Connection) -> int:
    """Returns how often this ledger was reset."""
    return connection.scalar(select(ledger.c.epoch)) or 0


def enqueue_enrichment(connection: Connection, row: int, version: int) -> None:
    """Records an enrichment task for a version of a memory's text; replaces the memory's earlier task."""
    statement = upsert(connection, tasks).values(memory=row, kind="enrich", version=version, attempts=0)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[tasks.c.memory, tasks.c.kind], set_={"version": version, "attempts": 0, "error": None}
        )
    )


class AwaitingRow(NamedTuple):
    """The row of a memory that waits for enrichment, the characters of its text, and its partition's row."""

    row: int
    chars: int
    partition: int


def rows_awaiting_enrichment(
    connection: Connection, limit: int, rows: Sequence[int] | None = None, after: int = 0
) -> list[AwaitingRow]:
    """Returns up to `limit` memories that wait for enrichment, fewest attempts first.

    With `rows` only those among them; only rows above `after`.
    """
    statement = (
        select(tasks.c.memory, func.length(memories.c.text), memories.c.partition)
        .join(memories)
        .where(tasks.c.memory > after)
        .order_by(tasks.c.attempts, tasks.c.memory)
        .limit(limit)
    )
    if rows is not None:
        statement = statement.where(tasks.c.memory.in_(rows))
    return [AwaitingRow(*row) for row in connection.execute(statement)]


def ids_awaiting_enrichment(connection: Connection, uids: Iterable[str]) -> list[str]:
    """Returns the ids among `uids` whose memories wait for enrichment."""
    statement = select(memories.c.uid).join(tasks).where(memories.c.uid.in_(list(uids)))
    return list(connection.scalars(statement))


def count_enrichment_tasks(connection: Connection) -> int:
    """Returns the number of enrichment tasks."""
    return connection.scalar(select(func.count()).select_from(tasks)) or 0


def complete_enrichment(connection: Connection, row: int, version: int) -> bool:
    """Deletes a memory's task. Returns False if it is gone already or is for another version of the text."""
    return bool(connection.execute(_COMPLETE_TASK, {"row": row, "task_version": version}).rowcount)


def record_enrichment_failure(connection: Connection, rows: Sequence[int], error: str) -> None:
    """Counts a failed attempt at enriching these memories, and keeps the error's name."""
    statement = tasks.update().where(tasks.c.memory.in_(rows)).values(attempts=tasks.c.attempts + 1, error=error)
    connection.execute(statement)


def cursor_state(connection: Connection, projection: str) -> CursorState:
    """Returns a projection's cursor beside the ledger's last sequence number and epoch."""
    return CursorState(*connection.execute(_CURSOR_STATE, {"projection": projection}).one())


def cursor(connection: Connection, projection: str) -> int | None:
    """Returns a projection's cursor; None if its content is unknown."""
    return connection.scalar(select(cursors.c.seq).where(cursors.c.projection == projection))


def delete_cursor(connection: Connection, projection: str) -> None:
    """Deletes a projection's cursor: the next delivery empties the projection and fills it again."""
    connection.execute(cursors.delete().where(cursors.c.projection == projection))


def move_cursor(connection: Connection, projection: str, seq: int) -> None:
    """Sets a projection's cursor. Call it only after the store has made the batch durable."""
    statement = upsert(connection, cursors).values(projection=projection, seq=seq)
    connection.execute(statement.on_conflict_do_update(index_elements=[cursors.c.projection], set_={"seq": seq}))


def rewind_cursor(connection: Connection, projection: str, seq: int) -> None:
    """Sets a cursor that is above `seq` back to it: later changes are delivered again."""
    is_ahead = cursors.c.projection == projection, cursors.c.seq > seq
    connection.execute(cursors.update().where(*is_ahead).values(seq=seq))


def acquire_lease(connection: Connection, projection: str, holder: str, seconds: float) -> bool:
    """Gives `holder` the lease of a projection, or renews it. Returns False while another holder has it.

    A lease that ends later than `seconds` from now dates from before the clock was set back, and counts as expired.
    """
    now = now_micros()
    expires_at = now + int(seconds * 1_000_000)
    lease = {"holder": holder, "expires_at": expires_at}
    is_expired = ~leases.c.expires_at.between(now, expires_at)
    is_free = or_(leases.c.holder.is_(None), leases.c.holder == holder, is_expired)
    statement = upsert(connection, leases).values(projection=projection, **lease)
    statement = statement.on_conflict_do_update(index_elements=[leases.c.projection], set_=lease, where=is_free)
    return bool(connection.scalar(statement.returning(leases.c.holder)) == holder)


def holds_lease(connection: Connection, projection: str, holder: str) -> bool:
    """Returns whether `holder` still has the lease, expired or not: nobody else has taken it over."""
    return connection.scalar(select(leases.c.holder).where(leases.c.projection == projection)) == holder


def release_lease(connection: Connection, projection: str, holder: str) -> None:
    """Gives up the lease if `holder` has it."""
    own_lease = leases.c.projection == projection, leases.c.holder == holder
    connection.execute(leases.update().where(*own_lease).values(holder=None))


def add_dead_letters(connection: Connection, projection: str, refused: Mapping[str, str], seq: int) -> None:
    """Records rows that a store refused, {id: error}, as dead letters; `seq` is the batch's last sequence number."""
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
    """Returns a projection's dead letters: {id: error}."""
    statement = select(dead_letters_table.c.memory, dead_letters_table.c.error).where(
        dead_letters_table.c.projection == projection
    )
    return dict(connection.execute(statement).all())


def count_dead_letters(connection: Connection, projection: str) -> int:
    """Returns the number of a projection's dead letters."""
    statement = select(func.count()).select_from(dead_letters_table)
    return connection.scalar(statement.where(dead_letters_table.c.projection == projection)) or 0


def remove_dead_letters(connection: Connection, projection: str, memories: Iterable[str] | None = None) -> None:
    """Deletes a projection's dead letters: those with these ids, or all."""
    statement = dead_letters_table.delete().where(dead_letters_table.c.projection == projection)
    if memories is not None:
        statement = statement.where(dead_letters_table.c.memory.in_(list(memories)))
    connection.execute(statement)
