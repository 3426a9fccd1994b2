"""The ledger in an SQLite file, in WAL mode, or in memory.

`synchronous=FULL` syncs a commit to disk before it is acknowledged, so a power cut loses no acknowledged commit, unless
the disk reports a sync that it did not do. With NORMAL a commit is only written, and synced with the next FULL one or
before a checkpoint; a power cut leaves the log up to some commit, in order. So it is enough for rows that are derived
from others, in the commit that removes the recorded task to derive them (`Ledger.write_derived`).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock, RLock
from time import monotonic, sleep
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from graphmem.errors import StoreError, StoreUnavailable
from graphmem.folding import fold, without_marks
from graphmem.stores.ledger.database import BUSY_SECONDS, DAMAGED, Database
from graphmem.stores.ledger.sql import decoding

logger = logging.getLogger("graphmem")
# The file of the secret key, beside the ledger's.
KEY_FILE = "secret.key"
# The application id in SQLite's header of a ledger file ("gmem").
APPLICATION_ID = 0x676D656D
_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA secure_delete=ON",
    "PRAGMA foreign_keys=ON",
    "PRAGMA cache_size=-65536",
    "PRAGMA temp_store=MEMORY",
)
# SQLite's messages about a table or column that a migration created and whose name in the file is damaged.
_DAMAGED_SCHEMA = ("no such column", "no such table", "has no column named")
# Primary error codes of damage. A write checks inside its transaction all that a constraint could refuse: only damaged
# rows break one.
_DAMAGE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}
# Primary error codes with what helps.
_REMEDIES = {
    sqlite3.SQLITE_FULL: "; make room on its disk",
    sqlite3.SQLITE_IOERR: "; make room on its disk, or check whether the disk works and whether files may grow",
    sqlite3.SQLITE_READONLY: "; let this process write the file and its folder",
}
# Error numbers of a full disk, or of a quota that is used up.
_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
MOVED = (
    "{name} is no longer the one that was opened: its file {part!r} was moved, replaced or removed meanwhile, so "
    "nothing can be stored or found there; put back the file to be kept, then close this Memory and open it again"
)
_EMPTIED = "it is empty, and {other!r} beside it says that it was in use"
# Seconds in which a process that has created a file writes its header.
_HEADER_SECONDS = 0.5
_CHECK_PATH = "; check the path and its rights"
# Seconds after which a read checks again whether the file is still the one at its path.
_CHECK_INTERVAL = 1.0
# Files by (device, inode): how often this process has each open, and those that its parent had open at a fork.
#
# POSIX releases a process's locks on a file as soon as it closes any descriptor of it. So only SQLite may open a file
# that SQLite has open in this process: another process would get the lock and remove the write-ahead log in use here.
# A forked child inherits SQLite's records of such files but not the locks, so it cannot use them.
_open_files: Counter[tuple[int, int]] = Counter()
_inherited_files: set[tuple[int, int]] = set()
_files_lock = Lock()
_decode_json = decoding(json.loads)


class SqliteDatabase(Database):
    """An SQLite file, or a database in memory (`path` None).

    Processes wait for each other at BEGIN IMMEDIATE. Threads wait at a lock instead, as SQLite's busy handler sleeps
    and can starve one of them. A database in memory has a single connection, so its readers take turns too.
    """

    begin_read = "BEGIN"
    begin_statement = ""
    driver_error = sqlite3.Error

    def __init__(self, path: Path | None) -> None:
        self._write_lock = RLock()
        # Absolute, because SQLite may read a name that begins with "file:" as a URL.
        self._path = None if path is None else path.absolute()
        # (device, inode) of the file and of its write-ahead log.
        self._file: tuple[int, int] | None = None
        self._log: tuple[int, int] | None = None
        self._connections: set[int] = set()  # by id() of the driver's connection
        self._checked_at = 0.0
        if self._path is None:
            super().__init__("the in-memory ledger", _engine(None), read_lock=self._write_lock)
            return
        super().__init__(f"the ledger {str(path)!r}", _engine(self._path))
        # SQLite would create a new file in place of a missing one.
        event.listen(self._engine, "do_connect", lambda *_: self._check_not_moved())
        event.listen(self._engine, "connect", self._after_connect)
        event.listen(self._engine, "close", self._before_close)
        with _files_lock:
            _prepare_file(self._path)
            self._file = file_identity(self._path)
            self._log_path = _log_path(self._path)
            _open_files[self._file] += 1

    def _after_connect(self, dbapi: sqlite3.Connection, _record: Any) -> None:
        # The first read creates the log; it stays the same file as long as any connection is open.
        dbapi.execute("SELECT 1 FROM sqlite_master").fetchall()
        self._connections.add(id(dbapi))
        if self._log is None:
            with suppress(OSError):
                self._log = file_identity(self._log_path)

    def _before_close(self, dbapi: sqlite3.Connection, _record: Any) -> None:
        self._connections.discard(id(dbapi))
        if not self._connections:
            self._log = None

    def _check_not_moved(self, *, unless_recent: bool = False) -> None:
        """Compares device and inode: after a folder is renamed, removed or restored, its path names other files."""
        now = monotonic()
        if self._path is None or self._file is None or (unless_recent and now - self._checked_at < _CHECK_INTERVAL):
            return
        for path, identity in ((self._path, self._file), (self._log_path, self._log)):
            try:
                is_same = identity is None or file_identity(path) == identity
            except OSError:
                is_same = False
            if not is_same:
                self._checked_at = 0.0
                raise StoreUnavailable(MOVED.format(name=self._name, part=path.name))
        self._checked_at = now

    @contextmanager
    def turn_to_write(self, _of: Collection[str] | None) -> Iterator[str]:
        with self._write_lock:
            yield "BEGIN IMMEDIATE"

    def size(self) -> int:
        if self._path is None:
            return 0
        self._check_not_moved()
        try:
            return self._path.stat().st_size
        except OSError as error:
            raise StoreUnavailable(f"{self._name} cannot be read: {error.strerror}") from error

    def _set_synced(self, connection: Connection, *, synced: bool) -> None:
        # By the driver, since this is no statement of a transaction; every write says it, so no mode is left over.
        driver = connection.connection.driver_connection
        if driver is not None:
            driver.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")

    def check(self) -> list[str]:
        with self._driver_cursor() as cursor:
            lines = [line for (line,) in cursor.execute("PRAGMA integrity_check(10)")]
        return [] if lines == ["ok"] else lines

    def _damage_message(self, error: Exception) -> str | None:
        if isinstance(error, UnicodeDecodeError):  # the driver, quoting a damaged schema in its own message
            return type(error).__name__
        cause = getattr(error, "orig", error)
        if "UTF-8" in str(cause):  # the rest of the message quotes the text
            return "a text in it is not UTF-8; `graphmem verify` names the memory"
        is_damage = _primary_code(error) in _DAMAGE_CODES or str(cause).startswith(_DAMAGED_SCHEMA)
        return str(cause) if is_damage else None

    def _remedy(self, error: Exception) -> str:
        return _REMEDIES.get(_primary_code(error), "")

    def _is_lock_timeout(self, error: Exception) -> bool:
        return _primary_code(error) == sqlite3.SQLITE_BUSY

    def compact(self) -> None:
        """Rewrites the file without its free pages and without unused space in pages.

        `secure_delete` overwrites deleted rows, but not the copies that SQLite leaves in a page's unused space when it
        moves rows to a neighbouring page: about one of 3,000 deleted rows has such a copy.
        """
        with self._driver_cursor() as cursor:
            cursor.execute("VACUUM")

    def close(self) -> None:
        """Empties the write-ahead log, so that no file contains deleted text, and closes the file.

        Leaves a file that is no longer at its path as it is. Logs a warning for a damaged file, whose log cannot be
        emptied.
        """
        try:
            if self.is_file_in_place():
                with self._driver_cursor() as cursor:
                    cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except StoreUnavailable as error:
            if not self.is_damage(error):
                raise
            logger.warning("closed without emptying the write-ahead log: %s", error)
        finally:
            self.release()

    def is_file_in_place(self) -> bool:
        if self._path is None:
            return False
        try:
            self._check_not_moved()
        except StoreUnavailable:
            return False
        return True

    def release(self) -> None:
        super().release()
        with _files_lock:
            if self._file is not None:
                _open_files[self._file] -= 1
                self._file = None


def _primary_code(error: Exception) -> int:
    """Returns the primary code of an error of SQLite: the lowest byte of its code; 0 for others."""
    return int(getattr(getattr(error, "orig", error), "sqlite_errorcode", 0)) & 0xFF


def _prepare_file(path: Path) -> None:
    """Creates a missing ledger file. Raises StoreError for another application's file, and does not change that one.

    The file's header is read here because SQLite, in WAL mode, writes to a file when it opens it. Raises
    StoreUnavailable for an empty file in a place that was in use: a new ledger there would hide that all is lost.
    """
    private_folder(path.parent)
    try:
        identity = file_identity(path) if path.exists() else None
        if identity in _inherited_files:
            raise StoreUnavailable(
                f"the process that this one was forked from has {str(path)!r} open; let it close that before it forks, "
                "or start processes without forking (spawn)"
            )
        if identity is not None and _open_files[identity]:
            return
        # Created here because SQLite would use the process's default mode; -wal and -shm get the mode of this file.
        header = _read_header(path, os.O_CREAT)
        if identity is not None and not header and (other := sign_of_use(path)) is not None:
            header = _await_header(path)
            if not header:
                damage = DAMAGED.format(reason=_EMPTIED.format(other=other.name))
                raise StoreUnavailable(f"the ledger {str(path)!r}{damage}; to begin anew, remove the whole folder")
    except OSError as error:
        remedy = _REMEDIES[sqlite3.SQLITE_FULL] if error.errno in _FULL else _CHECK_PATH
        raise StoreUnavailable(f"cannot open {str(path)!r}: {error.strerror}{remedy}") from error
    if header and int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreError(
            f"history_db_path: {str(path)!r} is not a graphmem ledger; name another file "
            "(import mem0's history.db with `graphmem migrate mem0`)"
        )
    if not header:
        _write_header(path, is_new=identity is None)


def _read_header(path: Path, flags: int = 0) -> bytes:
    descriptor = os.open(path, os.O_RDWR | flags, 0o600)
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def _await_header(path: Path) -> bytes:
    """Returns the header of a file that another process may have created a moment ago; b"" if it stays empty."""
    end = monotonic() + _HEADER_SECONDS
    while not (header := _read_header(path)) and monotonic() < end:
        sleep(0.05)
    return header


def _write_header(path: Path, *, is_new: bool) -> None:
    """Makes an empty file a ledger's. If that fails, removes a file that this process has created (`is_new`)."""
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    except sqlite3.Error as error:
        with suppress(OSError):
            if is_new and not path.stat().st_size:
                path.unlink()
        remedy = _REMEDIES.get(_primary_code(error), _CHECK_PATH)
        raise StoreUnavailable(f"cannot write {str(path)!r}: {error}{remedy}") from error


def sign_of_use(path: Path) -> Path | None:
    """Returns a file beside a ledger's that is there only once the ledger was in use; None without one."""
    others = (path.with_name(KEY_FILE), _log_path(path))
    return next((other for other in others if other.is_file() and other.stat().st_size), None)


def file_identity(path: Path) -> tuple[int, int]:
    """Returns (device, inode) of the file or folder at a path. Raises OSError."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _log_path(path: Path) -> Path:
    """Returns the path of the write-ahead log: beside the file itself, not beside a link to it."""
    real_path = Path(os.path.realpath(path))
    return real_path.with_name(f"{real_path.name}-wal")


def _engine(path: Path | None) -> Engine:
    options: dict[str, Any] = {"hide_parameters": True, "json_deserializer": _decode_json}
    if path is None:
        engine = create_engine("sqlite://", connect_args={"check_same_thread": False}, poolclass=StaticPool, **options)
    else:
        url = URL.create("sqlite", database=str(path))  # not a string: "?" and "%" belong to the path
        arguments = {"timeout": BUSY_SECONDS, "check_same_thread": False}
        engine = create_engine(url, connect_args=arguments, pool_size=16, **options)

    @event.listens_for(engine, "connect")
    def on_connect(dbapi: sqlite3.Connection, _record: Any) -> None:
        dbapi.isolation_level = None  # the driver's implicit BEGIN would not cover reads
        for pragma in _PRAGMAS:
            dbapi.execute(pragma)
        dbapi.create_function("contains_word", 4, _contains_word, deterministic=True)

    return engine


def _contains_word(text: str, word: str, _others: str, _letters: str) -> bool:
    return word in without_marks(fold(text))


def private_folder(path: Path) -> None:
    """Creates a folder that only its owner can read; an existing folder keeps its mode.

    Raises StoreUnavailable if it cannot be created.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot make the folder {str(path)!r}: {error.strerror}; choose another") from error


def _after_fork() -> None:
    global _files_lock  # noqa: PLW0603
    _files_lock = Lock()  # the thread that held it is not in this process
    _inherited_files.update(file for file, count in _open_files.items() if count)
    _open_files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
