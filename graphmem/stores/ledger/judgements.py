"""Stores judgements as items of a namespace that is graphmem's own, so that they are exported and erased as items are.

An item goes with the judged memory: who erases that, erases what was said of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, func, select

from graphmem.model import Item, Judgement, Scope, Verdict
from graphmem.stores.ledger import items
from graphmem.stores.ledger.schema import items as items_table
from graphmem.text import content_hash


def _namespace(query: str | None) -> tuple[str, ...]:
    """Returns the namespace of the judgements on a question, or that above all of these."""
    return (items.JUDGEMENTS,) if query is None else (items.JUDGEMENTS, content_hash("question", query))


def encode(judgement: Judgement) -> Item:
    """Returns the item that keeps a judgement, at the same place for the same question and memory."""
    return Item(
        judgement.scope,
        _namespace(judgement.query),
        judgement.memory_id,
        json.dumps({"query": judgement.query, "verdict": judgement.verdict}, ensure_ascii=False),
        created_at=judgement.at,
        updated_at=judgement.at,
        memory_id=judgement.memory_id,
    )


def find(connection: Connection, scope: Scope, query: str | None, limit: int, offset: int) -> Iterator[Judgement]:
    """Yields the judgements that carry a scope's ids, on one question or (None) all, the latest first: of these `limit`
    from `offset` on.
    """
    statement = items.of_memories_below(scope, _namespace(query)).order_by(
        items_table.c.updated_at.desc(), items_table.c.id.desc()
    )
    for row in connection.execute(statement.limit(limit).offset(offset)):
        judgement = decode(items.decode_item(row))
        if judgement is not None:
            yield judgement


def count(connection: Connection, scope: Scope, query: str | None) -> int:
    """Returns the number of these judgements."""
    found = items.of_memories_below(scope, _namespace(query)).subquery()
    return int(connection.scalar(select(func.count()).select_from(found)) or 0)


def is_judgement(item: Item) -> bool:
    """Tells whether an item stands where judgements are."""
    return item.namespace[:1] == (items.JUDGEMENTS,)


def decode(item: Item) -> Judgement | None:
    """Returns the judgement of an item; None if its values are those of none."""
    values: Any = json.loads(item.value)
    if item.memory_id is None or not isinstance(values, dict) or not isinstance(values.get("query"), str):
        return None
    # A list and not a set: what is looked for may be any JSON.
    if values.get("verdict") not in list(Verdict):
        return None
    return Judgement(item.scope, values["query"], item.memory_id, Verdict(values["verdict"]), item.updated_at)
