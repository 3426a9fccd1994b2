"""Transactions and errors of the ledger's database. `sqlite` and `postgres` implement `Database`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from threading import local
from typing import Any

from sqlalchemy import Connection, Engine, event, exc
from sqlalchemy.pool import ConnectionPoolEntry

from graphmem.errors import CLOSED, GraphmemError, StoreLocked, StoreUnavailable
from graphmem.stores.ledger.sql import CorruptValue

# How long a writer waits for another process's transaction before it fails.
BUSY_SECONDS = 30
ROLLED_BACK = "; the transaction was rolled back, earlier ones are kept"
DAMAGED = (
    " cannot be read ({reason}): it is damaged. Keep a copy of it as it is; then put a backup of the file in its "
    "place, with nothing left of its -wal and -shm, or import your last export into a new home (`graphmem import`)"
)
LOCKED = (
    " is locked: another process, or a program that looks into it, has held its lock for more than {seconds} seconds; "
    "let that end its transaction, and try again. Nothing was written"
)
COMMIT_UNKNOWN = "; if it broke during the commit, the change may be stored or not, else nothing of it is"


class Database(ABC):
    """A database with read and write transactions. Driver errors are raised as graphmem errors.

    Locks of the process let threads wait for each other neither in the database nor with a connection of it. The
    statement that begins a write transaction lets one process write at a time, or one in the same place.
    """

    # The SQL that begins a read transaction (takes a snapshot), and what is to come before a read of one statement (""
    # for nothing).
    begin_read: str
    begin_statement: str
    # The base class of the driver's errors, raised where SQLAlchemy does not wrap them.
    driver_error: type[Exception]

    def __init__(self, name: str, engine: Engine, read_lock: AbstractContextManager[Any] | None = None) -> None:
        self._name = name
        self._engine = engine
        self._read_lock = read_lock or nullcontext()
        self._thread = local()
        self._closed = False
        event.listen(engine, "begin", _execute_begin)
        event.listen(engine, "checkin", self._on_checkin)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Opens a snapshot to read from; inside another read of the same thread, yields that one's connection."""
        if (outer := getattr(self._thread, "connection", None)) is not None:
            yield outer
            return
        self._check_not_moved(unless_recent=True)
        with self._read_lock, self._convert_errors(), self._transaction(self.begin_read) as connection:
            self._thread.connection = connection
            try:
                yield connection
            finally:
                self._thread.connection = None

    @contextmanager
    def read_once(self) -> Iterator[Connection]:
        """Opens a read of one statement, or of several that may see different states; inside another, shares that."""
        if (outer := getattr(self._thread, "connection", None)) is not None:
            yield outer
            return
        self._check_not_moved(unless_recent=True)
        with self._read_lock, self._convert_errors(), self._transaction(self.begin_statement) as connection:
            yield connection

    @contextmanager
    def write(self, of: Collection[str] | None = None, *, synced: bool = True) -> Iterator[Connection]:
        """Opens a write transaction: committed at the end, rolled back by any exception.

        `of` names what it writes (None: it writes alone), as in `Ledger.write`. Without `synced`, a power cut may lose
        it after its commit, until a later commit is synced.

        Rows in a file that was moved away would be lost. So the file is checked before the commit, and after it, as it
        may have been moved in between.
        """
        with self.turn_to_write(of) as begin:
            with self._convert_errors(ROLLED_BACK), self._transaction(begin, synced=synced) as connection:
                yield connection
                self._check_not_moved()
            self._check_not_moved()

    @abstractmethod
    def turn_to_write(self, of: Collection[str] | None) -> AbstractContextManager[str]:
        """Waits until this thread may write; gives the SQL that begins the transaction once other processes let it."""

    @abstractmethod
    def size(self) -> int:
        """Returns the size on disk in bytes."""

    @abstractmethod
    def check(self) -> list[str]:
        """Returns the errors in the database's file, at most ten lines; none for a server, which has its own checks."""

    def is_file_in_place(self) -> bool:
        """Returns whether the database is a file that is still at its path."""
        return False

    @abstractmethod
    def compact(self) -> None:
        """Frees the space of deleted rows."""

    def close(self) -> None:
        """Closes the database after a last clean-up of its files."""
        self.release()

    def release(self) -> None:
        """Closes the database as it is. Connections in use are closed on return to the pool; no new one is opened."""
        self._closed = True
        with self._read_lock:  # a single connection is closed at once, so it must not be in use
            self._engine.dispose()

    def _on_checkin(self, _dbapi: Any, record: ConnectionPoolEntry) -> None:
        # A disposed engine leaves connections that are in use open, and opens new ones for later callers.
        if self._closed:
            record.invalidate()

    @abstractmethod
    def _check_not_moved(self, *, unless_recent: bool = False) -> None:
        """Raises StoreUnavailable if the open file is no longer the one at its path; does nothing on a server.

        With `unless_recent`, does nothing shortly after an earlier check.
        """

    @contextmanager
    def _transaction(self, begin: str, *, synced: bool | None = None) -> Iterator[Connection]:
        if self._closed:
            raise StoreUnavailable(CLOSED)
        with self._engine.connect() as connection:
            connection.execution_options(graphmem_begin=begin)
            if synced is not None:
                self._set_synced(connection, synced=synced)
            try:
                transaction = connection.begin()
            except exc.DBAPIError as error:
                # A connection that broke while idle is replaced, as are all others that broke with it.
                if not error.connection_invalidated:
                    raise
                transaction = connection.begin()
            with transaction:
                yield connection

    @abstractmethod
    def _set_synced(self, connection: Connection, *, synced: bool) -> None:
        """Has the next commit of a connection wait until it is on the disk, or not."""

    @contextmanager
    def _driver_cursor(self) -> Iterator[Any]:
        """Yields a cursor of the driver's outside of any transaction, while no other thread of the process writes."""
        self._check_not_moved()
        with (
            self.turn_to_write(None),
            self._convert_errors(),
            self._engine.connect() as connection,
            # After an error, an open one would keep SQLite's files open until the garbage collector runs.
            closing(connection.connection.cursor()) as cursor,
        ):
            yield cursor

    @contextmanager
    def _convert_errors(self, consequence: str = "") -> Iterator[None]:
        """Raises errors of the driver as StoreUnavailable (StoreLocked), with the driver's message and `consequence`.

        SQLAlchemy's own message is left out: it quotes values, which are memory text. Other errors pass, since the
        caller's code inside the transaction may raise them.
        """
        try:
            yield
        except CorruptValue as error:
            raise StoreUnavailable(self._name + DAMAGED.format(reason=error)) from error
        except GraphmemError:
            raise
        except (exc.SQLAlchemyError, self.driver_error, UnicodeDecodeError) as error:
            if (damage := self._damage_message(error)) is not None:
                raise StoreUnavailable(self._name + DAMAGED.format(reason=damage)) from error
            if self._is_lock_timeout(error):
                raise StoreLocked(self._name + LOCKED.format(seconds=BUSY_SECONDS)) from error
            if consequence and getattr(error, "connection_invalidated", False):
                consequence = COMMIT_UNKNOWN
            message = f"{self._name} failed: {_driver_message(error)}{self._remedy(error)}{consequence}"
            raise StoreUnavailable(message) from error

    def is_configuration_error(self, _error: StoreUnavailable) -> bool:
        """Returns whether an error at opening means that the configuration can never work."""
        return False

    def is_damage(self, error: StoreUnavailable) -> bool:
        """Returns whether an error means that the file is damaged."""
        # Without a variable for the cause: its traceback would hold this frame, and both keep a connection open.
        return isinstance(error.__cause__, Exception) and self._damage_message(error.__cause__) is not None

    @abstractmethod
    def _is_lock_timeout(self, error: Exception) -> bool:
        """Returns whether an error of the driver means that a lock was not free for `BUSY_SECONDS`."""

    def _remedy(self, _error: Exception) -> str:
        """Returns what helps against an error of the driver, after a semicolon; "" if only its message is known."""
        return ""

    def _damage_message(self, _error: Exception) -> str | None:
        """Returns the reason if an error means that the file is damaged, else None."""
        return None


def _execute_begin(connection: Connection) -> None:
    if begin := connection.get_execution_options()["graphmem_begin"]:
        connection.exec_driver_sql(begin)


def _driver_message(error: Exception) -> str:
    cause = getattr(error, "orig", None) if isinstance(error, exc.SQLAlchemyError) else error
    # PostgreSQL's primary message, since its details quote rows; the driver's message if no server was reached.
    message = getattr(getattr(cause, "diag", None), "message_primary", None) or cause or type(error).__name__
    return " ".join(str(message).split())
