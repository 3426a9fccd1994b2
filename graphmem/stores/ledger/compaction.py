"""The number of commits that erased words since the ledger was last compacted."""

from __future__ import annotations

from sqlalchemy import Connection, select

from graphmem.stores.ledger.schema import ledger


def count_erasure(connection: Connection) -> None:
    """Counts one more commit that erased words."""
    connection.execute(ledger.update().values(erasures=ledger.c.erasures + 1))


def erasures(connection: Connection) -> int:
    """Returns the number of commits that erased words since the last compaction."""
    return connection.scalar(select(ledger.c.erasures)) or 0


def subtract_erasures(connection: Connection, count: int) -> None:
    """Takes the erasures before a compaction off the count; others that came during it stay counted."""
    connection.execute(ledger.update().values(erasures=ledger.c.erasures - count))
