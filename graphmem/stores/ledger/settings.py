"""Reads and writes the table `settings`: the settings that change while the service runs, of a user or of all users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select

from graphmem.escapes import json_text
from graphmem.model import from_micros, micros
from graphmem.stores.ledger.decoding import decoding
from graphmem.stores.ledger.dialects import upsert
from graphmem.stores.ledger.schema import settings

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


def of_user(connection: Connection, user_id: str | None) -> list[StoredSetting]:
    """Returns the changes of a user's settings, or (None) of those of all users, by name."""
    rows = connection.execute(_OF_USER, {"user_id": ALL_USERS if user_id is None else user_id})
    return [_decode(row) for row in rows]


def all_settings(connection: Connection) -> Iterator[tuple[str | None, StoredSetting]]:
    """Yields the changes of all settings with their user, or (None) for all users, in the order of both names."""
    for row in connection.execute(select(settings).order_by(settings.c.user_id, settings.c.name)):
        yield (None if row.user_id == ALL_USERS else row.user_id), _decode(row)


def put(connection: Connection, user_id: str | None, setting: StoredSetting) -> None:
    """Writes a setting over an earlier one."""
    value = None if setting.value is None else json_text(json.dumps(setting.value, ensure_ascii=False))
    values = {"value": value, "changed_by": setting.changed_by, "at": micros(setting.at)}
    key = {"user_id": ALL_USERS if user_id is None else user_id, "name": setting.name}
    statement = upsert(connection, settings).values(**key, **values)
    connection.execute(
        statement.on_conflict_do_update(index_elements=[settings.c.user_id, settings.c.name], set_=values)
    )


def delete(connection: Connection, user_id: str) -> int:
    """Deletes the settings of a user; returns their number."""
    return connection.execute(settings.delete().where(settings.c.user_id == user_id)).rowcount


@decoding
def _decode(row: Any) -> StoredSetting:
    value = None if row.value is None else json.loads(row.value)
    return StoredSetting(row.name, value, from_micros(row.at), row.changed_by)
