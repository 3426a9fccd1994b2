"""Reads and writes the tables of the service: its settings that change while it runs, and the keys of its clients.

A setting is of a user or of all users; of a key's secret there is only the digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from graphmem.escapes import json_text
from graphmem.model import from_micros, micros, optional_from_micros, optional_micros
from graphmem.stores.ledger.schema import api_keys, settings
from graphmem.stores.ledger.sql import decoding, upsert

# The `user_id` of settings of all users. No user has an empty id.
ALL_USERS = ""
# Built once: every request that recalls runs it.
_OF_USER = select(settings).where(settings.c.user_id == bindparam("user_id")).order_by(settings.c.name)


@dataclass(frozen=True, slots=True)
class StoredSetting:
    """The last change of a setting: its value (None: it was removed), when, and by whom (the id of a key)."""

    name: str
    value: Any
    at: datetime
    changed_by: str


def settings_of_user(connection: Connection, user_id: str | None) -> list[StoredSetting]:
    """Returns the changes of a user's settings, or (None) of those of all users, by name."""
    rows = connection.execute(_OF_USER, {"user_id": ALL_USERS if user_id is None else user_id})
    return [_decode_setting(row) for row in rows]


def all_settings(connection: Connection) -> Iterator[tuple[str | None, StoredSetting]]:
    """Yields the changes of all settings with their user, or (None) for all users, in the order of both names."""
    for row in connection.execute(select(settings).order_by(settings.c.user_id, settings.c.name)):
        yield (None if row.user_id == ALL_USERS else row.user_id), _decode_setting(row)


def put_setting(connection: Connection, user_id: str | None, setting: StoredSetting) -> None:
    """Writes a setting over an earlier one."""
    value = None if setting.value is None else json_text(json.dumps(setting.value, ensure_ascii=False))
    values = {"value": value, "changed_by": setting.changed_by, "at": micros(setting.at)}
    key = {"user_id": ALL_USERS if user_id is None else user_id, "name": setting.name}
    statement = upsert(connection, settings).values(**key, **values)
    connection.execute(
        statement.on_conflict_do_update(index_elements=[settings.c.user_id, settings.c.name], set_=values)
    )


def delete_settings(connection: Connection, user_id: str) -> int:
    """Deletes the settings of a user; returns their number."""
    return connection.execute(settings.delete().where(settings.c.user_id == user_id)).rowcount


@decoding
def _decode_setting(row: Any) -> StoredSetting:
    value = None if row.value is None else json.loads(row.value)
    return StoredSetting(row.name, value, from_micros(row.at), row.changed_by)


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


def insert_key(connection: Connection, key: ApiKey, secret_hash: bytes) -> None:
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


def find_key(connection: Connection, key_id: str) -> tuple[ApiKey, bytes] | None:
    """Returns a key, also one that is no longer valid, with the digest of its secret; None for an unknown id."""
    row = connection.execute(select(api_keys).where(api_keys.c.id == key_id)).one_or_none()
    return None if row is None else (_decode_key(row), row.hash)


def list_keys(connection: Connection) -> list[ApiKey]:
    """Returns all keys, oldest first."""
    return [
        _decode_key(row) for row in connection.execute(select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id))
    ]


def revoke_key(connection: Connection, key_id: str, now: datetime) -> bool:
    """Revokes a key; a revoked one stays as it is. Returns False for an unknown id."""
    statement = update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
    if connection.execute(statement.values(revoked_at=micros(now))).rowcount:
        return True
    return find_key(connection, key_id) is not None


def record_key_uses(connection: Connection, key_ids: Sequence[str], now: datetime) -> None:
    """Records that keys were used."""
    connection.execute(update(api_keys).where(api_keys.c.id.in_(key_ids)).values(last_used_at=micros(now)))


def _decode_key(row: Row[Any]) -> ApiKey:
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
