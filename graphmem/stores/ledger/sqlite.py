"""The ledger in an SQLite file, in WAL mode, or in memory.

`synchronous=FULL`: every commit is synced before it is acknowledged, so a power cut costs nothing acknowledged (as far
as the disk keeps its word). NORMAL would be about three times faster per single commit, but could lose the last ones;
next to the milliseconds an embedding takes, that is not worth a promise.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from graphmem.errors import StoreError, StoreUnavailable
from graphmem.stores.ledger.database import BUSY_SECONDS, Database
from graphmem.stores.ledger.decoding import decoding

# Marks the file as ours in SQLite's own header ("gmem").
APPLICATION_ID = 0x676D656D
_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",
    "PRAGMA foreign_keys=ON",
    "PRAGMA cache_size=-65536",
    "PRAGMA temp_store=MEMORY",
)
# Of tables and columns that migrations have made: their names in the file have changed.
_NOT_AS_MADE = ("no such column", "no such table")
MOVED = (
    "{name} is no longer the one that was opened: its file {part!r} was moved, replaced or removed meanwhile, so "
    "nothing can be stored or found there; put back what is to be kept, then close this Memory and open it again"
)
# Seconds after which a read looks whether the file is still the one at its path.
_LOOK_AGAIN = 1.0
# How often this process has each file open, by device and inode, and what its parent had open at a fork.
#
# POSIX takes a process's locks on a file away as soon as it closes any descriptor of it. So nobody but SQLite may open
# a file that SQLite has open here: another process would find it free, and remove the write-ahead log under us.
# In a forked child SQLite's notes on such files came along, but not the locks they speak of: they cannot be used there.
_open: Counter[tuple[int, int]] = Counter()
_inherited: set[tuple[int, int]] = set()
_turn = Lock()
_json = decoding(json.loads)


class SqliteDatabase(Database):
    """A file, or (path None) memory.

    Processes meet at BEGIN IMMEDIATE; threads must not, for SQLite's busy handler sleeps and can starve one of them.
    An in-memory database has one connection only, so there the readers take turns too.
    """

    reading = "BEGIN"
    writing = "BEGIN IMMEDIATE"
    failure = sqlite3.Error

    def __init__(self, path: Path | None) -> None:
        # Absolute, for to SQLite a name that begins with "file:" may be a URL.
        self._path = None if path is None else path.absolute()
        self._file: tuple[int, int] | None = None
        self._log: tuple[int, int] | None = None
        self._connections: set[int] = set()
        self._looked = 0.0
        if self._path is None:
            super().__init__("the in-memory ledger", _memory_engine(), one_connection=True)
            return
        super().__init__(f"the ledger {str(path)!r}", _file_engine(self._path))
        event.listen(self._engine, "do_connect", self._connecting)
        event.listen(self._engine, "connect", self._connected)
        event.listen(self._engine, "close", self._closing)
        with _turn:
            _make_ready(self._path)
            self._file = file_identity(self._path)
            self._log_path = _log_of(self._path)
            _open[self._file] += 1

    def _connecting(self, *_: Any) -> None:
        # Where the file is gone SQLite would make a new one.
        self._check_place()

    def _connected(self, dbapi: sqlite3.Connection, _record: Any) -> None:
        # Once something was read the log is there; it stays the same file as long as any connection is open.
        dbapi.execute("SELECT 1 FROM sqlite_master").fetchall()
        self._connections.add(id(dbapi))
        if self._log is None:
            with suppress(OSError):
                self._log = file_identity(self._log_path)

    def _closing(self, dbapi: sqlite3.Connection, _record: Any) -> None:
        self._connections.discard(id(dbapi))
        if not self._connections:
            self._log = None

    def _check_place(self, *, now_and_then: bool = False) -> None:
        """By device and inode: a folder that was renamed, removed or put back from a backup takes its words along."""
        now = monotonic()
        if self._path is None or self._file is None or (now_and_then and now - self._looked < _LOOK_AGAIN):
            return
        for place, known in ((self._path, self._file), (self._log_path, self._log)):
            try:
                is_same = known is None or file_identity(place) == known
            except OSError:
                is_same = False
            if not is_same:
                self._looked = 0.0
                raise StoreUnavailable(MOVED.format(name=self._name, part=place.name))
        self._looked = now

    def size(self) -> int:
        if self._path is None:
            return 0
        self._check_place()
        try:
            return self._path.stat().st_size
        except OSError as error:
            raise StoreUnavailable(f"{self._name} cannot be looked at: {error.strerror}") from error

    def check(self) -> list[str]:
        with self._alone() as cursor:
            found = [line for (line,) in cursor.execute("PRAGMA integrity_check(10)")]
        return [] if found == ["ok"] else found

    def _damage(self, error: Exception) -> str | None:
        cause = getattr(error, "orig", error)
        if "UTF-8" in str(cause):  # the message goes on with the text itself
            return "a text in it is not UTF-8"
        # Extended codes have the plain one in their lowest byte.
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        is_damage = code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB} or str(cause).startswith(_NOT_AS_MADE)
        return str(cause) if is_damage else None

    def compact(self) -> None:
        """Rewrites the file without its free pages."""
        with self._alone() as cursor:
            cursor.execute("VACUUM")

    def close(self) -> None:
        """Truncates the write-ahead log, so that deleted words are in no file, and lets go of the file.

        A file that is no longer at its path is left as it is.
        """
        try:
            if self._path is not None and self._is_in_place():
                with self._alone() as cursor:
                    cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self.release()

    def _is_in_place(self) -> bool:
        try:
            self._check_place()
        except StoreUnavailable:
            return False
        return True

    def release(self) -> None:
        super().release()
        with _turn:
            if self._file is not None:
                _open[self._file] -= 1
                self._file = None


def _make_ready(path: Path) -> None:
    """Makes the file if there is none; one that is not ours is refused untouched: opening it in WAL mode writes."""
    private_folder(path.parent)
    try:
        known = file_identity(path) if path.exists() else None
        if known in _inherited:
            raise StoreUnavailable(
                f"the process that this one was forked from has {str(path)!r} open; let it close that before it forks, "
                "or start processes without forking (spawn)"
            )
        if known is not None and _open[known]:
            return
        # Made before SQLite does, which would give it the process's default mode; -wal and -shm take the file's mode.
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            header = os.read(descriptor, 100)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreUnavailable(f"cannot open {str(path)!r}: {error.strerror}; check the path and its rights") from error
    if header and int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreError(
            f"history_db_path: {str(path)!r} is not a graphmem ledger; name a file of its own "
            "(a history.db of mem0's is for `graphmem migrate mem0`)"
        )
    if not header:
        try:
            with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as first:
                first.execute(f"PRAGMA application_id={APPLICATION_ID}")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"cannot write {str(path)!r}: {error}; check the path and its rights") from error


def file_identity(path: Path) -> tuple[int, int]:
    """Which file or folder is at a path, by device and inode. Raises OSError."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _log_of(path: Path) -> Path:
    """The write-ahead log, which lies beside the file itself, not beside a link to it."""
    real = Path(os.path.realpath(path))
    return real.with_name(f"{real.name}-wal")


def _file_engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),  # not as a text: a "?" or "%" in it would be no part of the path
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        pool_size=16,
        hide_parameters=True,
        json_deserializer=_json,
    )
    return _prepared(engine)


def _memory_engine() -> Engine:
    engine = create_engine(
        "sqlite://",
        connect_args={"check_same_thread": False},
        poolclass=StaticPool,
        hide_parameters=True,
        json_deserializer=_json,
    )
    return _prepared(engine)


def _prepared(engine: Engine) -> Engine:
    @event.listens_for(engine, "connect")
    def connected(dbapi: sqlite3.Connection, _record: Any) -> None:
        dbapi.isolation_level = None  # the driver's own implicit BEGIN would not cover reads
        for pragma in _PRAGMAS:
            dbapi.execute(pragma)

    return engine


def private_folder(path: Path) -> None:
    """Makes the folder, readable by its owner only; one that exists keeps its mode unless it is ours to set.

    Raises StoreUnavailable when it cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot make the folder {str(path)!r}: {error.strerror}; choose another") from error


def _fork() -> None:
    global _turn  # noqa: PLW0603
    _turn = Lock()  # whoever held it is not in this process
    _inherited.update(file for file, times in _open.items() if times)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork)
