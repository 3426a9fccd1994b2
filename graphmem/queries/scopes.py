"""Reads the users, agents and runs of which a ledger holds memories."""

from __future__ import annotations

from datetime import UTC, datetime

from graphmem.stores.ledger import Ledger, scope_counts
from graphmem.stores.ledger.scope_counts import ScopeCount


def list_scopes(ledger: Ledger, limit: int) -> list[ScopeCount]:
    """Returns the first `limit` users, agents and runs with the number of their memories: users first, each by id."""
    with ledger.read() as connection:
        return scope_counts.scope_counts(connection, datetime.now(UTC), limit)
