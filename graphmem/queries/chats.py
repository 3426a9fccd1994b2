"""Reads by which the messages of a chat are recognised: those that are stored last, and the ids that are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphmem.model import Scope
from graphmem.stores.ledger import Ledger, sessions, tombstones


def last_turns(ledger: Ledger, scope: Scope, limit: int) -> list[dict[str, Any]]:
    """Returns the last `limit` messages that are stored under exactly this scope, oldest first, as plain messages.

    They have their words alone, as a client sends them.
    """
    with ledger.read() as connection:
        records = sessions.last_episodes(connection, scope, limit)
    return [{"role": record.role, "name": record.actor_id, "content": record.message().content} for record in records]


def known_message_ids(ledger: Ledger, scope: Scope, ids: Iterable[str]) -> frozenset[str]:
    """Returns those of these message ids under which a message of the scope was stored, also if it was erased since."""
    key_of = {id_: ledger.digests.key_by_id(id_, scope) for id_ in ids}
    with ledger.read() as connection:
        stored = tombstones.stored_keys(connection, key_of.values())
    return frozenset(id_ for id_, key in key_of.items() if key in stored)
