"""Tombstones of what was erased (memories, relations, entities, a user's settings), and message keys, which recognise a
repeated message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, or_, select

from graphmem.model import Scope, from_micros, micros
from graphmem.stores.ledger.outbox import IS_OF_PROJECTION
from graphmem.stores.ledger.schema import cursors, messages
from graphmem.stores.ledger.schema import tombstones as tombstones_table
from graphmem.stores.ledger.sql import decoding, in_array, upsert

# Built once: every write runs these.
_MESSAGES = select(messages.c.key, messages.c.memory, messages.c.content_digest).where(in_array(messages.c.key, "keys"))
_KNOWN_KEYS = select(messages.c.key).where(in_array(messages.c.key, "keys"))
_TOMBSTONE = select(tombstones_table).where(tombstones_table.c.uid == bindparam("uid"))


@dataclass(frozen=True, slots=True)
class Tombstone:
    """An erased memory, relation, entity or (of a user) all settings: its `kind`. `at` is the time of its erasure."""

    uid: str
    kind: str
    partition: str
    scope: Scope
    at: datetime
    seq: int


def add_tombstone(
    connection: Connection, kind: str, uid: str, partition: str, scope: Scope, now: datetime, seq: int
) -> None:
    """Stores a tombstone: projections delete the item, and an import leaves it out unless asked to restore it.

    An entity's `uid` is its encrypted id (`Digests.encrypt`), a different one at each deletion. A tombstone that exists
    already gets the new time and sequence number.
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
    renewed = {"at": micros(now), "seq": seq}
    connection.execute(statement.on_conflict_do_update(index_elements=[tombstones_table.c.uid], set_=renewed))


def prune_tombstones(connection: Connection, seqs: Sequence[int] | None = None) -> None:
    """Deletes the tombstones of entities that every projection has received; with `seqs` only those with these seqs.

    All, if no projection has a cursor: the next one begins with nothing.
    """
    received = select(func.min(cursors.c.seq)).where(IS_OF_PROJECTION).scalar_subquery()
    statement = tombstones_table.delete().where(
        tombstones_table.c.kind == "entity", or_(received.is_(None), tombstones_table.c.seq <= received)
    )
    if seqs is not None:
        statement = statement.where(tombstones_table.c.seq.in_(seqs))
    connection.execute(statement)


def find_tombstone(connection: Connection, uid: str) -> Tombstone | None:
    """Returns the tombstone of a memory or relation, or None."""
    row = connection.execute(_TOMBSTONE, {"uid": uid}).mappings().first()
    return None if row is None else _decode_tombstone(row)


def add_settings_tombstone(connection: Connection, user_id: str, now: datetime, seq: int) -> None:
    """Stores that the settings of a user were erased."""
    scope = Scope(user_id=user_id)
    add_tombstone(connection, "settings", _settings_uid(user_id), scope.partition, scope, now, seq)


def settings_erased_at(connection: Connection, user_id: str) -> datetime | None:
    """Returns when the settings of a user were last erased; None if they never were."""
    tombstone = find_tombstone(connection, _settings_uid(user_id))
    return None if tombstone is None else tombstone.at


def _settings_uid(user_id: str) -> str:
    """Returns a uid that is none of a memory, which is a UUID, nor of another tombstone, which has no blank."""
    return f"settings of {user_id}"


def remove_tombstone(connection: Connection, uid: str) -> None:
    """Deletes the tombstone of a memory that an import restores."""
    connection.execute(
        tombstones_table.delete().where(tombstones_table.c.uid == uid, tombstones_table.c.kind == "memory")
    )


def tombstones_after(connection: Connection, after: int, limit: int, partition: str | None = None) -> list[Tombstone]:
    """Returns up to `limit` tombstones with a sequence number above `after`, in its order."""
    statement = (
        select(tombstones_table).where(tombstones_table.c.seq > after).order_by(tombstones_table.c.seq).limit(limit)
    )
    if partition is not None:
        statement = statement.where(tombstones_table.c.partition == partition)
    return tombstones_of(connection, statement)


def tombstones_of(connection: Connection, statement: Select[Any]) -> list[Tombstone]:
    """Returns the tombstones that a statement selects."""
    return [_decode_tombstone(row) for row in connection.execute(statement).mappings().all()]


@decoding
def _decode_tombstone(row: Any) -> Tombstone:
    return Tombstone(
        uid=row["uid"],
        kind=row["kind"],
        partition=row["partition"],
        scope=Scope(row["user_id"], row["agent_id"], row["run_id"]),
        at=from_micros(row["at"]),
        seq=row["seq"],
    )


def stored_messages(connection: Connection, keys: Iterable[str]) -> dict[str, tuple[str, str | None]]:
    """Returns the ids of messages' memories and the digests of their contents (None once erased), by message key.

    New messages are left out.
    """
    rows = connection.execute(_MESSAGES, {"keys": list(keys)})
    return {key: (memory, content_digest) for key, memory, content_digest in rows}


def stored_keys(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Returns those of these keys under which a message was stored, also if it was erased since."""
    return set(connection.scalars(_KNOWN_KEYS, {"keys": list(keys)}))


def add_message_keys(connection: Connection, added: Sequence[tuple[str, str, str]]) -> None:
    """Records the keys of stored messages, each with the id of its memory and the digest of its content."""
    rows = [{"key": key, "memory": memory, "content_digest": digest} for key, memory, digest in added]
    connection.execute(messages.insert(), rows)


def restore_message_key(connection: Connection, key: str, memory: str, content_digest: str | None) -> None:
    """Records the key of an imported message, which the ledger may have already.

    With a `content_digest` it replaces an existing entry, such as that of an erased message. Without one (None) the
    message is an erased one, and an existing entry is kept.
    """
    statement = upsert(connection, messages).values(key=key, memory=memory, content_digest=content_digest)
    if content_digest is None:
        connection.execute(statement.on_conflict_do_nothing())
        return
    restored = {"memory": memory, "content_digest": content_digest}
    connection.execute(statement.on_conflict_do_update(index_elements=[messages.c.key], set_=restored))
