"""Totals of language model usage: calls, tokens, seconds and cost by operation, model and scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, select

from graphmem.model import SCOPE_NAMES, Scope
from graphmem.stores.ledger.dialects import upsert
from graphmem.stores.ledger.schema import usage

if TYPE_CHECKING:
    from graphmem.models.protocols import Usage

_SUMS = ("calls", "prompt_tokens", "completion_tokens", "cached_tokens", "seconds", "cost")
_KEYS = ("operation", "model", *SCOPE_NAMES)


def record_usage(connection: Connection, operation: str, model: str, scope: Scope, used: Usage) -> None:
    """Adds the usage of one or more calls to the totals."""
    keys = {"operation": operation, "model": model, **dict.fromkeys(SCOPE_NAMES, ""), **scope.parts}
    amounts = {name: getattr(used, name) for name in _SUMS}
    statement = upsert(connection, usage).values({**keys, **amounts})
    increased = {name: usage.c[name] + amounts[name] for name in _SUMS}
    connection.execute(
        statement.on_conflict_do_update(index_elements=[usage.c[name] for name in _KEYS], set_=increased)
    )


def usage_totals(connection: Connection, scope: Scope | None = None) -> list[dict[str, Any]]:
    """Returns the totals of each operation and model, over all scopes or for one."""
    sums = [func.sum(usage.c[name]).label(name) for name in _SUMS]
    statement = select(usage.c.operation, usage.c.model, *sums).group_by(usage.c.operation, usage.c.model)
    if scope is not None:
        statement = statement.where(*(usage.c[name] == value for name, value in scope.parts.items()))
    return [_with_integers(dict(row)) for row in connection.execute(statement.order_by(usage.c.operation)).mappings()]


def _with_integers(row: dict[str, Any]) -> dict[str, Any]:
    """Turns the sums of integer columns, which PostgreSQL returns as Decimal, into int."""
    return {name: int(value) if name.endswith(("calls", "tokens")) else value for name, value in row.items()}
