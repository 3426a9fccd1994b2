"""Backs up an SQLite ledger while processes use it: a copy of one moment, made without opening it as a `Ledger`.

So the copy is of the ledger as it is, also just before an upgrade: nothing is migrated, no model is loaded.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import IO

from sqlalchemy import URL

from graphmem import atomic_files
from graphmem.errors import ConfigError, StoreError
from graphmem.settings import Settings
from graphmem.stores.ledger.sqlite import APPLICATION_ID
from graphmem.transfer import jsonl
from graphmem.wiring import ledger_location, storage_paths


def back_up(settings: Settings, target: Path | IO[bytes]) -> int:
    """Writes a copy of the ledger to a path, which it replaces, or to an open file; returns the number of its bytes.

    It has what was committed when it began. The secret key and the projections are not in it. Raises ConfigError for a
    ledger on PostgreSQL, StoreError if there is no ledger, if it is damaged, or if the target cannot be written.
    """
    ledger = ledger_location(settings)
    if isinstance(ledger, URL):
        raise ConfigError("ledger_url: this ledger is on PostgreSQL; back it up with pg_dump --schema graphmem")
    try:
        if isinstance(target, Path):
            jsonl.check_target(target, storage_paths(settings))
            with atomic_files.new_file(target) as copy:
                _copy(ledger, copy)
            return target.stat().st_size
        # Beside the ledger, where there is room for it: a container's temporary folder may be memory.
        with atomic_files.temporary_file(ledger.parent) as copy:
            _copy(ledger, copy)
            with copy.open("rb") as file:
                shutil.copyfileobj(file, target)
            target.flush()
            return copy.stat().st_size
    except BrokenPipeError as error:
        raise StoreError("the reader of the backup has closed the pipe; the output is incomplete") from error
    except OSError as error:
        raise StoreError(f"the backup cannot be written ({error.strerror}); name a file on a disk with room") from error


def _copy(ledger: Path, copy: Path) -> None:
    """Copies a ledger to an empty file. VACUUM INTO reads one snapshot, and holds up neither readers nor writers."""
    if not ledger.is_file():
        raise StoreError(f"{str(ledger)!r}: there is no ledger to back up; name its folder (--home)")
    try:
        with closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=rw", uri=True)) as connection:
            if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                raise StoreError(f"{str(ledger)!r} is not a graphmem ledger; name the folder of one (--home)")
            connection.execute("VACUUM INTO ?", [str(copy)])
    except sqlite3.Error as error:
        raise StoreError(
            f"the ledger {str(ledger)!r} cannot be copied ({error}); make room where the backup is written, or, if it "
            "is damaged, restore an earlier backup"
        ) from error
