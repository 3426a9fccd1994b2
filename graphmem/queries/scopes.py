"""Reads the users, agents and runs of which a ledger holds memories."""

from __future__ import annotations

from graphmem.model import View
from graphmem.stores.ledger import Ledger, integrity
from graphmem.stores.ledger.integrity import ScopeCount


def list_scopes(ledger: Ledger, view: View, limit: int) -> list[ScopeCount]:
    """Returns the first `limit` users, agents and runs with the number of their memories that a list of the view has.

    Users come first, each by id.
    """
    with ledger.read() as connection:
        return integrity.scope_counts(connection, view, limit)
