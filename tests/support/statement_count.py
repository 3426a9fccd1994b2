"""Counts the statements that a memory sends to its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from sqlalchemy import Engine, event


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Counts the transactions and other statements of the process, and the writes among these."""
    counts, lock = {"statements": 0, "transactions": 0, "writes": 0}, Lock()

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        with lock:
            counts["transactions" if statement.startswith("BEGIN") else "statements"] += 1
            counts["writes"] += statement.startswith(("INSERT", "UPDATE", "DELETE"))

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield counts
    finally:
        event.remove(Engine, "before_cursor_execute", count)
