"""Tombstones of erased memories, relations and entities, and the keys by which repeated messages are recognised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from graphmem.model import Scope, from_micros, micros
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.dialects import upsert
from graphmem.stores.ledger.schema import cursors, messages
from graphmem.stores.ledger.schema import tombstones as tombstones_table

_SAID = select(messages.c.memory, messages.c.content_digest).where(messages.c.key == bindparam("said"))
_TOMBSTONE = select(tombstones_table).where(tombstones_table.c.uid == bindparam("gone"))


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is no more, since `at`."""

    uid: str
    kind: str
    partition: str
    scope: Scope
    at: datetime
    seq: int


def add_tombstone(
    connection: Connection, kind: str, uid: str, partition: str, scope: Scope, now: datetime, seq: int
) -> None:
    """Leaves a tombstone, for the projections and against replays.

    That of an entity has its id sealed (`Digests.encrypt`), which is another one each time it dies.
    """
    statement = upsert(connection, tombstones_table).values(
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
    connection.execute(statement.on_conflict_do_update(index_elements=[tombstones_table.c.uid], set_=again))


def prune_tombstones(connection: Connection, numbers: Sequence[int] | None = None) -> None:
    """Takes away entities' tombstones that every projection has heard of: all, or those with these sequence numbers."""
    heard = select(func.min(cursors.c.seq)).scalar_subquery()
    statement = tombstones_table.delete().where(tombstones_table.c.kind == "entity", tombstones_table.c.seq <= heard)
    if numbers is not None:
        statement = statement.where(tombstones_table.c.seq.in_(numbers))
    connection.execute(statement)


def find_tombstone(connection: Connection, uid: str) -> Tombstone | None:
    """The tombstone of a memory or relation."""
    row = connection.execute(_TOMBSTONE, {"gone": uid}).mappings().first()
    return None if row is None else _tombstone_of(row)


def remove_tombstone(connection: Connection, uid: str) -> None:
    """Takes the tombstone of a memory away: it is there again."""
    connection.execute(
        tombstones_table.delete().where(tombstones_table.c.uid == uid, tombstones_table.c.kind == "memory")
    )


def tombstones_after(connection: Connection, after: int, limit: int, partition: str | None = None) -> list[Tombstone]:
    """Tombstones whose sequence number is past `after`, in its order."""
    statement = (
        select(tombstones_table).where(tombstones_table.c.seq > after).order_by(tombstones_table.c.seq).limit(limit)
    )
    if partition is not None:
        statement = statement.where(tombstones_table.c.partition == partition)
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
