"""What the models took: calls, tokens, seconds and money by operation and scope, added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, select

from graphmem.model import SCOPE_NAMES, Scope
from graphmem.stores.ledger.dialects import upsert
from graphmem.stores.ledger.schema import usage

if TYPE_CHECKING:
    from graphmem.models.protocols import Usage

_COUNTED = ("calls", "prompt_tokens", "completion_tokens", "cached_tokens", "seconds", "cost")
_NAMED = ("operation", "model", *SCOPE_NAMES)


def record_usage(connection: Connection, operation: str, model: str, scope: Scope, used: Usage) -> None:
    """Adds what a call took."""
    named = {"operation": operation, "model": model, **dict.fromkeys(SCOPE_NAMES, ""), **scope.parts}
    counted = {name: getattr(used, name) for name in _COUNTED}
    statement = upsert(connection, usage).values({**named, **counted})
    more = {name: usage.c[name] + counted[name] for name in _COUNTED}
    connection.execute(statement.on_conflict_do_update(index_elements=[usage.c[name] for name in _NAMED], set_=more))


def usage_totals(connection: Connection, scope: Scope | None = None) -> list[dict[str, Any]]:
    """What each operation of each model took, in all or by what was done for a scope."""
    sums = [func.sum(usage.c[name]).label(name) for name in _COUNTED]
    statement = select(usage.c.operation, usage.c.model, *sums).group_by(usage.c.operation, usage.c.model)
    if scope is not None:
        statement = statement.where(*(usage.c[name] == value for name, value in scope.parts.items()))
    return [_plain(dict(row)) for row in connection.execute(statement.order_by(usage.c.operation)).mappings()]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """PostgreSQL sums whole numbers to decimals."""
    return {name: int(value) if name.endswith(("calls", "tokens")) else value for name, value in row.items()}
