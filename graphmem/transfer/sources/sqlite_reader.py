"""SQLite files that are somebody else's: opened for reading, looked at before they are trusted."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from pathlib import Path

from graphmem.errors import StoreUnavailable, ValidationError

# Seconds to wait for whoever is writing.
TIMEOUT = 10


@contextmanager
def open_database(path: Path, table: str, columns: AbstractSet[str], option: str) -> Iterator[sqlite3.Connection]:
    """The database in a file, never written to.

    Raises ValidationError unless it has the table with these columns, StoreUnavailable if it cannot be read.
    """
    if not os.path.isfile(path):  # noqa: PTH113  (a name too long is none either)
        raise ValidationError(f"{option}={str(path)!r}: there is no such file")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=TIMEOUT)) as connection:
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            # A ledger of ours has a view of that name and with those columns, but not what belongs to it.
            kind = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            if kind != ("table",) or not columns <= there:
                missing = f"no table {table!r} with {', '.join(sorted(columns))}"
                raise ValidationError(f"{option}={str(path)!r}: is no database of mem0 ({missing})")
            yield connection
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(
            f"{option}={str(path)!r}: cannot be read ({error}); end what writes to it, or give a copy"
        ) from None
    except sqlite3.DatabaseError as error:
        raise ValidationError(f"{option}={str(path)!r}: cannot be read as SQLite ({error})") from None
