"""The outbox: sequence numbers, and the cursors, leases and dead letters of projections.

Every change takes a sequence number in its transaction; projections read the rows above their cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Executable, bindparam, func, or_, select

from graphmem.model import EmbedderId, EventType
from graphmem.stores.ledger.schema import cursors, leases, ledger, tombstones
from graphmem.stores.ledger.schema import dead_letters as dead_letters_table
from graphmem.stores.ledger.sequence import Extent, seq_extent
from graphmem.stores.ledger.sql import now_micros, upsert

# How the cursors, leases and dead letters of followers begin (`event_log`); all others are projections'.
FOLLOWERS = "event:"
IS_OF_PROJECTION = ~cursors.c.projection.startswith(FOLLOWERS)


def follower(event_type: EventType, name: str) -> str:
    """Returns what identifies the cursor, lease and dead letters of a name that follows the events of a type."""
    return f"{FOLLOWERS}{event_type.value}@{name}"


def is_followed(event_type: EventType) -> ColumnElement[bool]:
    """SQL: whether anybody follows the events of a type."""
    return select(cursors.c.seq).where(cursors.c.projection.startswith(follower(event_type, ""))).exists()


# With the sequence numbers, so that no change pays a statement to know whether to record when its session ends, and
# whether the ledger's vectors are of the configured embedder.
_BESIDE_SEQS = (
    is_followed(EventType.SESSION_END), ledger.c.embedder, ledger.c.embedder_dims, ledger.c.multilingual
)  # fmt: skip
# Built once: every write runs one of these.
_NEXT_SEQS: Mapping[str, Executable] = {
    "sqlite": ledger.update().values(seq=ledger.c.seq + bindparam("number")).returning(ledger.c.seq, *_BESIDE_SEQS),
    "postgresql": select(func.next_seqs(bindparam("number")), *_BESIDE_SEQS).select_from(ledger),
}


class RecordedSpaces(NamedTuple):
    """The embedder whose vectors a ledger holds, and the form of those in the multilingual space.

    The form is None unless all embedded texts have such a vector. Both are None before the first vectors.
    """

    embedder: EmbedderId | None
    multilingual: str | None

    @classmethod
    def of(cls, model: str | None, dims: int, multilingual: str | None) -> RecordedSpaces:
        """Makes it of the ledger's columns."""
        return cls(None if model is None else EmbedderId(model, dims), multilingual)


class CursorState(NamedTuple):
    """A projection's cursor (None: its content is unknown), beside what the ledger knows of itself.

    `epoch` counts the resets of the ledger, `extent` are its sequence numbers, `last_tombstone` is that of its newest
    tombstone (0: it has none), `embedder` the one whose vectors it holds (None before the first).
    """

    epoch: int
    extent: Extent
    last_tombstone: int
    embedder: EmbedderId | None
    cursor: int | None


# One statement: every search runs it for each projection.
_CURSOR_STATE = select(
    ledger.c.epoch,
    seq_extent(),
    select(func.max(tombstones.c.seq)).scalar_subquery(),
    ledger.c.embedder,
    ledger.c.embedder_dims,
    select(cursors.c.seq).where(cursors.c.projection == bindparam("projection")).scalar_subquery(),
)


def next_seq(connection: Connection) -> int:
    """Takes the next sequence number of a write transaction."""
    return next_seqs(connection, 1)[0]


def next_seqs(connection: Connection, number: int) -> Sequence[int]:
    """Takes the next `number` sequence numbers, as `next_seq` does."""
    return take_seqs(connection, number).seqs if number else ()


class TakenSeqs(NamedTuple):
    """Sequence numbers, beside whether anybody follows the ends of sessions and what the ledger's vectors are of."""

    seqs: Sequence[int]
    is_followed: bool
    spaces: RecordedSpaces


def take_seqs(connection: Connection, number: int) -> TakenSeqs:
    """Takes the next `number` sequence numbers, at least one, as `next_seq` does."""
    statement = _NEXT_SEQS[connection.dialect.name]
    last, is_followed, *spaces = connection.execute(statement, {"number": number}).one()
    return TakenSeqs(range(last - number + 1, last + 1), bool(is_followed), RecordedSpaces.of(*spaces))


def extent(connection: Connection) -> Extent:
    """Returns the sequence numbers whose rows this snapshot shows."""
    return connection.execute(select(seq_extent())).scalar_one()


def epoch(connection: Connection) -> int:
    """Returns how often this ledger was reset."""
    return connection.scalar(select(ledger.c.epoch)) or 0


def cursor_state(connection: Connection, projection: str) -> CursorState:
    """Returns a projection's cursor beside what the ledger knows of itself."""
    row = connection.execute(_CURSOR_STATE, {"projection": projection}).one()
    epoch, extent, last_tombstone, model, dims, position = row
    embedder = None if model is None else EmbedderId(model, dims)
    return CursorState(epoch, extent, last_tombstone or 0, embedder, position)


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
