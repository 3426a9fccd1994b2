"""Reads and writes the table `items`: exact values under a namespace and a key, for adapters of agent frameworks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, not_, or_, select

from graphmem.escapes import json_text
from graphmem.model import SCOPE_NAMES, Item, Scope, from_micros, micros, optional_from_micros, optional_micros
from graphmem.stores.ledger.memories import exact_scope
from graphmem.stores.ledger.schema import items, memories
from graphmem.stores.ledger.sql import decoding, in_array
from graphmem.text import content_hash

_ITEM = select(items, memories.c.uid.label("memory_uid")).outerjoin(memories, memories.c.id == items.c.memory)
_BY_DIGEST = _ITEM.where(items.c.digest == bindparam("item"))
_BY_ROW = _ITEM.where(in_array(items.c.id, "row_ids"))
# The first label of the namespaces in which answers of the service's proxy wait: no adapter's.
PROXY_ANSWERS = "graphmem-proxy-answers"
# Likewise of those in which judgements of memories are.
JUDGEMENTS = "graphmem-judgements"
OWN_LABELS = (PROXY_ANSWERS, JUDGEMENTS)
# Items that a listing reads at once: a page has ten, and a value up to ten million characters.
BATCH = 50


def encode_namespace(labels: Sequence[str]) -> str:
    """Returns a namespace as text: a JSON array without its closing bracket, with a comma after each label.

    The text of a namespace begins with that of each namespace above it, and what follows begins with a quote. So a
    range of texts holds all namespaces below one, and nothing else, whatever characters the labels have.
    """
    return "[" + "".join(f"{json_text(json.dumps(label, ensure_ascii=False))}," for label in labels)


@decoding
def decode_namespace(text: str) -> tuple[str, ...]:
    """Returns the labels of an encoded namespace."""
    return tuple(json.loads(f"{text.removesuffix(',')}]"))


def _below(labels: Sequence[str]) -> list[ColumnElement[bool]]:
    """Returns the conditions for items in a namespace or below it; none for the empty one."""
    if not labels:
        return []
    prefix, namespace = encode_namespace(labels), items.c.namespace
    return [or_(namespace == prefix, (namespace >= f'{prefix}"') & (namespace < f"{prefix}#"))]


def _digest(scope: Scope, namespace: Sequence[str], key: str) -> str:
    parts = [*(getattr(scope, name) for name in SCOPE_NAMES), encode_namespace(namespace), key]
    return content_hash(scope.partition, json.dumps(parts))


def _carrying(scope: Scope) -> list[ColumnElement[bool]]:
    return [items.c[name] == value for name, value in scope.parts.items()]


def _unexpired(now: datetime) -> ColumnElement[bool]:
    return or_(items.c.expires_at.is_(None), items.c.expires_at > micros(now))


# --- reading ------------------------------------------------------------------------------------------------------


def find(connection: Connection, scope: Scope, namespace: Sequence[str], key: str, now: datetime) -> Item | None:
    """Returns the item under a namespace and a key of exactly this scope; None if it is absent or expired."""
    row = find_row(connection, scope, namespace, key)
    return None if row is None or is_expired(row, now) else decode_item(row)


def find_row(connection: Connection, scope: Scope, namespace: Sequence[str], key: str) -> Row[Any] | None:
    """Returns the row of an item, expired or not, for the handlers of commands."""
    return connection.execute(_BY_DIGEST, {"item": _digest(scope, namespace, key)}).first()


def is_expired(row: Row[Any], now: datetime) -> bool:
    """Tells whether the time of an item is over."""
    return row.expires_at is not None and row.expires_at <= micros(now)


def latest(connection: Connection, scope: Scope, namespace: Sequence[str], now: datetime) -> Iterator[Item]:
    """Yields the items of a scope in a namespace or below it, last changed first, then by key.

    The items of a scope are those that carry its ids, without those in graphmem's own namespaces. Their values are
    read in batches, as far as the caller iterates; no statement stays open in between.
    """
    order = (items.c.updated_at.desc(), items.c.key, items.c.namespace, items.c.id)
    ids = connection.scalars(select(items.c.id).where(*_seen(scope, namespace, now)).order_by(*order)).all()
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        rows = {row.id: row for row in connection.execute(_BY_ROW, {"row_ids": batch})}
        yield from (decode_item(rows[row_id]) for row_id in batch)


def _seen(scope: Scope, namespace: Sequence[str], now: datetime) -> list[ColumnElement[bool]]:
    """Returns the conditions for the items of adapters that carry a scope's ids, in a namespace or below it."""
    own = (condition for label in OWN_LABELS for condition in _below([label]))
    return [*_carrying(scope), *_below(namespace), _unexpired(now), *map(not_, own)]


def last_stored(
    connection: Connection, scope: Scope, namespace: Sequence[str], now: datetime, limit: int | None
) -> list[Item]:
    """Returns the items of exactly this scope and namespace in the order in which they were stored.

    With a `limit`, the last ones.
    """
    at = [*exact_scope(items, scope), items.c.namespace == encode_namespace(namespace), _unexpired(now)]
    newest_first = _ITEM.where(*at).order_by(items.c.id.desc()).limit(limit)
    return list(_items(connection, newest_first))[::-1]


def of_memories(
    connection: Connection, scope: Scope, namespace: Sequence[str], memory_ids: Sequence[str], now: datetime
) -> Iterator[Item]:
    """Yields the items of a scope in a namespace or below it whose memories have these ids."""
    statement = _ITEM.where(*_seen(scope, namespace, now), in_array(memories.c.uid, "uids"))
    yield from _items(connection, statement, {"uids": list(memory_ids)})


def memories_below(
    connection: Connection, scope: Scope, namespace: Sequence[str], memory_ids: Sequence[str], now: datetime
) -> set[str]:
    """Returns those of these memories (ids) that belong to items of a scope in a namespace or below it."""
    among = select(memories.c.uid).join(items, items.c.memory == memories.c.id)
    statement = among.where(*_seen(scope, namespace, now), in_array(memories.c.uid, "uids"))
    return set(connection.scalars(statement, {"uids": list(memory_ids)}))


def namespaces(connection: Connection, scope: Scope, namespace: Sequence[str], now: datetime) -> list[tuple[str, ...]]:
    """Returns the namespaces of a scope's items, from a namespace on downwards, each once."""
    statement = select(items.c.namespace).where(*_seen(scope, namespace, now)).distinct()
    return [decode_namespace(text) for text in connection.scalars(statement)]


def places(connection: Connection, scope: Scope, namespace: Sequence[str]) -> list[tuple[tuple[str, ...], str]]:
    """Returns namespace and key of the items, expired or not, of exactly this scope in a namespace or below it."""
    statement = select(items.c.namespace, items.c.key).where(*exact_scope(items, scope), *_below(namespace))
    return [(decode_namespace(row.namespace), row.key) for row in connection.execute(statement)]


def changed_before(connection: Connection, namespace: Sequence[str], end: datetime) -> list[Item]:
    """Returns the items of all scopes in a namespace or below it that were last changed up to `end`, earliest first."""
    statement = _ITEM.where(*_below(namespace), items.c.updated_at <= micros(end))
    return list(_items(connection, statement.order_by(items.c.updated_at, items.c.id)))


def of_memories_below(scope: Scope, namespace: Sequence[str]) -> Select[Any]:
    """Returns the statement that finds the items which carry a scope's ids, in a namespace or below it, and have a
    memory.
    """
    return _ITEM.where(*_carrying(scope), *_below(namespace), items.c.memory.is_not(None))


def all_items(connection: Connection, scope: Scope | None) -> Iterator[Item]:
    """Yields the items that carry a scope's ids (None: all), expired ones included, in the order they were stored."""
    within = [] if scope is None else _carrying(scope)
    yield from _items(connection, _ITEM.where(*within).order_by(items.c.id))


def expired(connection: Connection, now: datetime, limit: int) -> list[Row[Any]]:
    """Returns the row id (`id`) and the id of the memory (`memory_uid`) of items whose time is over, earliest first."""
    columns = select(items.c.id, memories.c.uid.label("memory_uid"))
    statement = (
        columns.outerjoin(memories, memories.c.id == items.c.memory)
        .where(items.c.expires_at <= micros(now))
        .order_by(items.c.expires_at)
        .limit(limit)
    )
    return list(connection.execute(statement))


def _items(connection: Connection, statement: Select[Any], values: dict[str, Any] | None = None) -> Iterator[Item]:
    yield from map(decode_item, connection.execute(statement, values or {}))


@decoding
def decode_item(row: Row[Any]) -> Item:
    """Returns a row as an item."""
    return Item(
        scope=Scope(row.user_id, row.agent_id, row.run_id),
        namespace=decode_namespace(row.namespace),
        key=row.key,
        value=row.value,
        created_at=from_micros(row.created_at),
        updated_at=from_micros(row.updated_at),
        memory_id=row.memory_uid,
        ttl_minutes=row.ttl_minutes,
        expires_at=optional_from_micros(row.expires_at),
    )


# --- writing ------------------------------------------------------------------------------------------------------


def expiration(now: datetime, ttl_minutes: float | None) -> datetime | None:
    """Returns the moment at which an item accessed now expires."""
    return None if ttl_minutes is None else now + timedelta(minutes=ttl_minutes)


def insert(connection: Connection, item: Item, memory_row: int | None) -> None:
    """Inserts an item, with the row of its memory in place of its id."""
    scope = {name: getattr(item.scope, name) for name in SCOPE_NAMES}
    connection.execute(
        items.insert().values(
            digest=_digest(item.scope, item.namespace, item.key),
            **scope,
            namespace=encode_namespace(item.namespace),
            key=item.key,
            memory=memory_row,
            created_at=micros(item.created_at),
            **_changing_columns(item),
        )
    )


def put(connection: Connection, stored: Row[Any] | None, item: Item, memory_row: int | None) -> None:
    """Inserts an item, or replaces the value of the one that is `stored` under its key: that keeps its place and the
    time of its creation.
    """
    if stored is None:
        insert(connection, item, memory_row)
        return
    values = {"memory": memory_row, **_changing_columns(item)}
    connection.execute(items.update().where(items.c.id == stored.id).values(**values))


def _changing_columns(item: Item) -> dict[str, Any]:
    return {
        "value": item.value,
        "updated_at": micros(item.updated_at),
        "ttl_minutes": item.ttl_minutes,
        "expires_at": optional_micros(item.expires_at),
    }


def set_expiration(connection: Connection, row: int, expires_at: datetime) -> None:
    """Changes the time at which an item expires."""
    connection.execute(items.update().where(items.c.id == row).values(expires_at=micros(expires_at)))


def delete(connection: Connection, rows: Iterable[int]) -> None:
    """Deletes items by row."""
    connection.execute(items.delete().where(in_array(items.c.id, "row_ids")), {"row_ids": list(rows)})


def delete_of_memory(connection: Connection, memory_row: int) -> int:
    """Deletes the items of a memory; returns their number."""
    return connection.execute(items.delete().where(items.c.memory == memory_row)).rowcount


def delete_below(connection: Connection, scope: Scope, namespace: Sequence[str]) -> int:
    """Deletes the items that carry a scope's ids, in a namespace or below it; returns their number."""
    within = [*_carrying(scope), *_below(namespace)]
    return connection.execute(items.delete().where(*within)).rowcount
