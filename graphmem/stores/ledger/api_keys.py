"""Reads and writes the table `api_keys`: the keys of the service's clients, with digests of their secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select, update

from graphmem.model import from_micros, micros, optional_from_micros, optional_micros
from graphmem.stores.ledger.schema import api_keys


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret. `user_id` None: it reaches every user, or, for the role "metrics", none.

    `rate` is its rate limit (None: the configured one). `last_used_at` is at most a few minutes before its last use.
    """

    id: str
    label: str
    role: str
    user_id: str | None
    agent_id: str | None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rate: str | None = None
    last_used_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Returns False for a revoked or expired key."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def insert(connection: Connection, key: ApiKey, secret_hash: bytes) -> None:
    """Stores a key with the digest of its secret."""
    connection.execute(
        api_keys.insert().values(
            id=key.id,
            hash=secret_hash,
            label=key.label,
            role=key.role,
            user_id=key.user_id,
            agent_id=key.agent_id,
            created_at=micros(key.created_at),
            expires_at=optional_micros(key.expires_at),
            rate=key.rate,
        )
    )


def find(connection: Connection, key_id: str) -> tuple[ApiKey, bytes] | None:
    """Returns a key, also one that is no longer valid, with the digest of its secret; None for an unknown id."""
    row = connection.execute(select(api_keys).where(api_keys.c.id == key_id)).one_or_none()
    return None if row is None else (_decode(row), row.hash)


def list_keys(connection: Connection) -> list[ApiKey]:
    """Returns all keys, oldest first."""
    return [_decode(row) for row in connection.execute(select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id))]


def revoke(connection: Connection, key_id: str, now: datetime) -> bool:
    """Revokes a key; a revoked one stays as it is. Returns False for an unknown id."""
    statement = update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
    if connection.execute(statement.values(revoked_at=micros(now))).rowcount:
        return True
    return find(connection, key_id) is not None


def record_uses(connection: Connection, key_ids: Sequence[str], now: datetime) -> None:
    """Records that keys were used."""
    connection.execute(update(api_keys).where(api_keys.c.id.in_(key_ids)).values(last_used_at=micros(now)))


def _decode(row: Row[Any]) -> ApiKey:
    return ApiKey(
        row.id,
        row.label,
        row.role,
        row.user_id,
        row.agent_id,
        from_micros(row.created_at),
        optional_from_micros(row.expires_at),
        optional_from_micros(row.revoked_at),
        row.rate,
        optional_from_micros(row.last_used_at),
    )
