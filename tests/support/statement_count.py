"""Counts the statements that a memory sends to its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from sqlalchemy import Engine, event


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Counts the statements of the process, and the transactions among them."""
    counts, lock = {"statements": 0, "transactions": 0}, Lock()

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        with lock:
            counts["transactions" if statement.startswith("BEGIN") else "statements"] += 1

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield counts
    finally:
        event.remove(Engine, "before_cursor_execute", count)
