"""mem0's history database: what became of each memory, by its id. Whose they were is not in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphmem.boundary import validation
from graphmem.transfer.sources.sqlite_reader import open_database

Row = dict[str, Any]
# The columns that every version of mem0 has had, and those that came later.
_NEEDED = {"id", "memory_id", "old_memory", "new_memory", "event", "created_at"}
_LATER = ("updated_at", "is_deleted", "actor_id", "role")
BATCH = 500


class History:
    """The rows of the history, each as a dict; None instead of a database has none."""

    def __init__(self, connection: sqlite3.Connection | None) -> None:
        self._connection = connection
        if connection is None:
            return
        connection.row_factory = sqlite3.Row
        there = {row["name"] for row in connection.execute("PRAGMA table_info(history)")}
        missing = [f"NULL AS {name}" for name in _LATER if name not in there]
        self._columns = ", ".join(["history.*", "history.rowid AS place", *missing])
        # mem0's table has no index on the memory: without this each page would read all of it. The order of rows is
        # that of events, whatever the zones of their times.
        connection.executescript(
            "PRAGMA temp_store = MEMORY;"
            "CREATE TEMP TABLE places AS SELECT memory_id, rowid AS place FROM history WHERE memory_id IS NOT NULL;"
            "CREATE INDEX temp.places_memory ON places (memory_id, place);"
        )

    def rows_of(self, ids: Sequence[str]) -> dict[str, list[Row]]:
        """The rows of some memories, oldest first."""
        found: dict[str, list[Row]] = {uid: [] for uid in ids}
        if self._connection is None or not ids:
            return found
        rows = self._connection.execute(
            f"SELECT {self._columns} FROM places JOIN history ON history.rowid = places.place"  # noqa: S608  (our own names and marks)
            f" WHERE places.memory_id IN ({', '.join('?' * len(ids))}) ORDER BY places.place",
            ids,
        )
        for row in rows:
            found[row["memory_id"]].append(dict(row))
        return found

    def unknown_memories(self, known: Collection[str]) -> Iterator[tuple[str, list[Row]]]:
        """The memories that are not among the `known`, by their first event, with their rows."""
        if self._connection is None:
            return
        first = "SELECT memory_id FROM places GROUP BY memory_id ORDER BY min(place)"
        ids = [str(uid) for (uid,) in self._connection.execute(first) if uid not in known]
        for start in range(0, len(ids), BATCH):
            yield from self.rows_of(ids[start : start + BATCH]).items()


@contextmanager
def open_history(path: Path | None) -> Iterator[History]:
    """The history in a file, or none. Raises ValidationError for a file that is something else, StoreUnavailable."""
    if path is None:
        yield History(None)
        return
    with open_database(validation.home(path, "--history"), "history", _NEEDED, "--history") as connection:
        yield History(connection)
