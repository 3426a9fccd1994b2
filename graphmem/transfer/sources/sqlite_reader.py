"""Opens SQLite files of other programs, read-only and after a check of their tables."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from pathlib import Path

from graphmem.errors import StoreUnavailable, ValidationError

# Seconds to wait for a lock that another process holds.
TIMEOUT = 10


@contextmanager
def open_database(path: Path, table: str, columns: AbstractSet[str], option: str) -> Iterator[sqlite3.Connection]:
    """Opens the database in a file, read-only. `option` is the command-line option that errors name.

    Raises ValidationError unless the database has the table with these columns, StoreUnavailable if it cannot be read.
    """
    if not os.path.isfile(path):  # noqa: PTH113  (unlike Path.is_file, it returns False for a name that is too long)
        raise ValidationError(f"{option}={str(path)!r}: there is no such file")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=TIMEOUT)) as connection:
            present = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            # graphmem's own ledger has a view `history` with these columns, which is no history of mem0.
            kind = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            if kind != ("table",) or not columns <= present:
                missing = f"no table {table!r} with {', '.join(sorted(columns))}"
                raise ValidationError(f"{option}={str(path)!r}: is no database of mem0 ({missing})")
            yield connection
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(
            f"{option}={str(path)!r}: cannot be read ({error}); stop the program that writes to it, or give a copy"
        ) from None
    except sqlite3.DatabaseError as error:
        raise ValidationError(f"{option}={str(path)!r}: cannot be read as SQLite ({error})") from None
