"""Sequence numbers, tasks, cursors, leases, dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, or_, select

from graphmem.stores.ledger.dialects import now_micros, upsert
from graphmem.stores.ledger.schema import cursors, leases, ledger, memories, tasks
from graphmem.stores.ledger.schema import dead_letters as dead_letters_table

_NEXT_SEQ = ledger.update().values(seq=ledger.c.seq + 1).returning(ledger.c.seq)
_PAID = tasks.delete().where(tasks.c.memory == bindparam("row"), tasks.c.version == bindparam("of"))


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


def epoch(connection: Connection) -> int:
    """How often this ledger was reset."""
    return connection.scalar(select(ledger.c.epoch)) or 0


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
