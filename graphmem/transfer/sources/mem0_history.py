"""Reads mem0's history database: the events of each memory, by its id. It does not record whose the memories were."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphmem.boundary import validation
from graphmem.transfer.sources.sqlite_reader import open_database

Row = dict[str, Any]
# The columns of every version of mem0, and those that later versions added.
_REQUIRED_COLUMNS = {"id", "memory_id", "old_memory", "new_memory", "event", "created_at"}
_OPTIONAL_COLUMNS = ("updated_at", "is_deleted", "actor_id", "role")
BATCH = 500


class History:
    """Reads rows of mem0's table `history` by memory, as dicts; a connection of None means a history without rows.

    Columns that this version of mem0 lacks are None.
    """

    def __init__(self, connection: sqlite3.Connection | None) -> None:
        self._connection = connection
        if connection is None:
            return
        connection.row_factory = sqlite3.Row
        present = {row["name"] for row in connection.execute("PRAGMA table_info(history)")}
        missing = [f"NULL AS {name}" for name in _OPTIONAL_COLUMNS if name not in present]
        self._columns = ", ".join(["history.*", "history.rowid AS place", *missing])
        # mem0's table has no index on memory_id, so without this one each page would scan the whole table. Rows are
        # ordered by rowid, the order of the events: their times are texts of various zones.
        connection.executescript(
            "PRAGMA temp_store = MEMORY;"
            "CREATE TEMP TABLE places AS SELECT memory_id, rowid AS place FROM history WHERE memory_id IS NOT NULL;"
            "CREATE INDEX temp.places_memory ON places (memory_id, place);"
        )

    def rows_of(self, ids: Sequence[str]) -> dict[str, list[Row]]:
        """Returns the rows of each memory, oldest first; an empty list for a memory without history."""
        rows_by_id: dict[str, list[Row]] = {uid: [] for uid in ids}
        if self._connection is None or not ids:
            return rows_by_id
        rows = self._connection.execute(
            f"SELECT {self._columns} FROM places JOIN history ON history.rowid = places.place"  # noqa: S608  (only our own names and placeholders)
            f" WHERE places.memory_id IN ({', '.join('?' * len(ids))}) ORDER BY places.place",
            ids,
        )
        for row in rows:
            rows_by_id[row["memory_id"]].append(dict(row))
        return rows_by_id

    def unknown_memories(self, known_ids: Collection[str]) -> Iterator[tuple[str, list[Row]]]:
        """Yields the id and rows of each memory that is not in `known_ids`, in the order of their first events."""
        if self._connection is None:
            return
        by_first_event = "SELECT memory_id FROM places GROUP BY memory_id ORDER BY min(place)"
        ids = [str(uid) for (uid,) in self._connection.execute(by_first_event) if uid not in known_ids]
        for start in range(0, len(ids), BATCH):
            yield from self.rows_of(ids[start : start + BATCH]).items()


@contextmanager
def open_history(path: Path | None) -> Iterator[History]:
    """Opens the history in a file; without a path, an empty one.

    Raises ValidationError if the file is no history of mem0, and StoreUnavailable if it cannot be read.
    """
    if path is None:
        yield History(None)
        return
    with open_database(validation.home(path, "--history"), "history", _REQUIRED_COLUMNS, "--history") as connection:
        yield History(connection)
