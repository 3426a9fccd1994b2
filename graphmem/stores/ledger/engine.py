"""Opening the database: pragmas, transactions, permissions. SQLite in WAL mode; PostgreSQL by the same code later.

`synchronous=FULL`: every commit is synced before it is acknowledged, so a power cut costs nothing acknowledged (as far
as the disk keeps its word). NORMAL would be about three times faster per single commit, but could lose the last ones;
next to the milliseconds an embedding takes, that is not worth a promise.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from threading import RLock
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, exc
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from graphmem.errors import StoreError, StoreUnavailable

# How long a writer waits for another process's transaction before giving up.
BUSY_SECONDS = 30
# Marks the file as ours in SQLite's own header ("gmem").
APPLICATION_ID = 0x676D656D
ROLLED_BACK = "; the transaction was rolled back, what was stored before stands"
_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",
    "PRAGMA foreign_keys=ON",
    "PRAGMA cache_size=-65536",
    "PRAGMA temp_store=MEMORY",
)


class Database:
    """One engine with a reading and a writing door. Errors leave as ours.

    Threads of one process take turns at writing by a lock, so that they never meet SQLite's busy handler, which sleeps
    and can starve one of them; processes meet at BEGIN IMMEDIATE. An in-memory database has one connection only, so
    there the readers take turns too.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._engine = _memory_engine() if path is None else _file_engine(path)
        self._writing = RLock()
        self._reading = self._writing if path is None else nullcontext()
        self._closed = False
        event.listen(self._engine, "checkin", self._returned)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection whose reads all see one snapshot."""
        with self._reading, _our_errors(self.path), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: committed at the end, rolled back by any exception."""
        with self._writing, _our_errors(self.path, ROLLED_BACK), self._engine.connect() as connection:
            writing = connection.execution_options(graphmem_begin="BEGIN IMMEDIATE")
            with writing.begin():
                yield writing

    def compact(self) -> None:
        """Rewrites the file without its free pages."""
        with self._writing, _our_errors(self.path), self._engine.connect() as connection:
            connection.connection.cursor().execute("VACUUM")

    def close(self) -> None:
        """Truncates the write-ahead log, so that deleted words are in no file, and lets go of the file."""
        if self.path is not None:
            with self._writing, _our_errors(self.path), self._engine.connect() as connection:
                connection.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.release()

    def release(self) -> None:
        """Lets go of the file as it is; a connection still in use is closed when it comes back."""
        self._closed = True
        self._engine.dispose()

    def _returned(self, _dbapi: Any, record: ConnectionPoolEntry) -> None:
        # A disposed engine forgets the connections that are in use, and gives new ones to whoever asks later.
        if self._closed:
            record.invalidate()


def _file_engine(path: Path) -> Engine:
    private_folder(path.parent)
    new = _is_new(path)
    try:
        # Made before SQLite does, which would give it the process's default mode; -wal and -shm take the file's mode.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreUnavailable(f"cannot open {str(path)!r}: {error.strerror}; check the path and its rights") from error
    engine = create_engine(
        f"sqlite:///{path}", connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False}, pool_size=16
    )
    if new:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as first:
            first.execute(f"PRAGMA application_id={APPLICATION_ID}")
    return _prepared(engine)


def _is_new(path: Path) -> bool:
    """Whether there is no database yet. One that is not ours is refused untouched: opening it in WAL mode writes."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise StoreUnavailable(f"cannot read {str(path)!r}: {error.strerror}; check the path and its rights") from error
    if header and int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreError(
            f"history_db_path: {str(path)!r} is not a graphmem ledger (mem0's history.db is another format); "
            "name a file of its own"
        )
    return not header


def _memory_engine() -> Engine:
    engine = create_engine("sqlite://", connect_args={"check_same_thread": False}, poolclass=StaticPool)
    return _prepared(engine)


def _prepared(engine: Engine) -> Engine:
    @event.listens_for(engine, "connect")
    def connected(dbapi: sqlite3.Connection, _record: Any) -> None:
        dbapi.isolation_level = None  # the driver's own implicit BEGIN would not cover reads
        for pragma in _PRAGMAS:
            dbapi.execute(pragma)

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("graphmem_begin", "BEGIN"))

    return engine


def private_folder(path: Path) -> None:
    """Makes the folder, readable by its owner only; one that exists keeps its mode unless it is ours to set.

    Raises StoreUnavailable when it cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot make the folder {str(path)!r}: {error.strerror}; choose another") from error


@contextmanager
def _our_errors(path: Path | None, consequence: str = "") -> Iterator[None]:
    """The driver's errors as ours, with its own message only: SQLAlchemy's adds values, which are memory text."""
    where = "the in-memory ledger" if path is None else f"the ledger {str(path)!r}"
    try:
        yield
    except exc.SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or type(error).__name__
        raise StoreUnavailable(f"{where} failed: {reason}{consequence}") from error
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{where} failed: {error}{consequence}") from error
