"""The doors of a database, one for reading and one for writing. `sqlite` and `postgres` are the two that have them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import RLock, local
from typing import Any

from sqlalchemy import Connection, Engine, Transaction, event, exc
from sqlalchemy.pool import ConnectionPoolEntry

from graphmem.errors import CLOSED, GraphmemError, StoreUnavailable
from graphmem.stores.ledger.decoding import CorruptValue

# How long a writer waits for another process's transaction before giving up.
BUSY_SECONDS = 30
ROLLED_BACK = "; the transaction was rolled back, what was stored before stands"
DAMAGED = (
    " cannot be read ({reason}): it is damaged. Keep a copy of it as it is; then put a backup of the file in its "
    "place, with nothing left of its -wal and -shm, or import your last export into a new home (`graphmem import`)"
)
COMMIT_UNKNOWN = "; if that was while it was stored, it may be stored or not, else nothing of it is"


class Database(ABC):
    """One engine with a reading and a writing door. Errors leave as ours.

    Threads of one process take turns at writing by a lock, so that they wait neither in the database nor with its
    connections; processes take turns by what a transaction begins with.
    """

    # What the two kinds of transactions begin with: a snapshot to read from, and the turn to write.
    reading: str
    writing: str
    # What the driver raises where SQLAlchemy is not in between.
    failure: type[Exception]

    def __init__(self, name: str, engine: Engine, *, one_connection: bool = False) -> None:
        self._name = name
        self._engine = engine
        self._turn = RLock()
        self._reading = self._turn if one_connection else nullcontext()
        self._mine = local()
        self._closed = False
        event.listen(engine, "begin", _begin)
        event.listen(engine, "checkin", self._returned)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection whose reads all see one snapshot: inside another read of this thread, that one's."""
        if (outer := getattr(self._mine, "reading", None)) is not None:
            yield outer
            return
        self._check_place(now_and_then=True)
        with self._reading, self._our_errors(), self._transaction(self.reading) as connection:
            self._mine.reading = connection
            try:
                yield connection
            finally:
                self._mine.reading = None

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: committed at the end, rolled back by any exception.

        What is stored where nobody will look for it is not stored: the place is looked at before the commit, and after
        it, for it may have gone in between.
        """
        with self._turn:
            with self._our_errors(ROLLED_BACK), self._transaction(self.writing) as connection:
                yield connection
                self._check_place()
            self._check_place()

    @abstractmethod
    def size(self) -> int:
        """How many bytes it takes on the disk."""

    @abstractmethod
    def check(self) -> list[str]:
        """What is wrong with how it is stored: at most ten lines; nothing where a server sees to that."""

    @abstractmethod
    def compact(self) -> None:
        """Gives back the room of what was deleted."""

    def close(self) -> None:
        """Lets go of it in good order."""
        self.release()

    def release(self) -> None:
        """Lets go of it as it is; a connection still in use is closed when it comes back, and no other is opened."""
        self._closed = True
        with self._reading:  # where there is one connection only, it is closed at once, and must not be in use
            self._engine.dispose()

    def _returned(self, _dbapi: Any, record: ConnectionPoolEntry) -> None:
        # A disposed engine forgets the connections that are in use, and gives new ones to whoever asks later.
        if self._closed:
            record.invalidate()

    @abstractmethod
    def _check_place(self, *, now_and_then: bool = False) -> None:
        """Raises StoreUnavailable where what is open is no longer what its name leads to; nothing on a server.

        `now_and_then`: only if it was not looked at just before.
        """

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        if self._closed:
            raise StoreUnavailable(CLOSED)
        with self._engine.connect() as connection:
            connection.execution_options(graphmem_begin=begin)
            with _begun(connection):
                yield connection

    @contextmanager
    def _alone(self) -> Iterator[Any]:
        """A cursor of the driver's, outside of any transaction, while no other thread writes."""
        self._check_place()
        with self._turn, self._our_errors(), self._engine.connect() as connection:
            yield connection.connection.cursor()

    @contextmanager
    def _our_errors(self, consequence: str = "") -> Iterator[None]:
        """The driver's errors as ours, with its own message only: SQLAlchemy's adds values, which are memory text.

        Other errors pass: what is done with the connection is not all about what is stored.
        """
        try:
            yield
        except CorruptValue as error:
            raise StoreUnavailable(self._name + DAMAGED.format(reason=error)) from error
        except UnicodeDecodeError as error:  # the driver's, which quotes a damaged schema in its own message
            raise StoreUnavailable(self._name + DAMAGED.format(reason=type(error).__name__)) from error
        except GraphmemError:
            raise
        except (exc.SQLAlchemyError, self.failure) as error:
            if (damage := self._damage(error)) is not None:
                raise StoreUnavailable(self._name + DAMAGED.format(reason=damage)) from error
            if consequence and getattr(error, "connection_invalidated", False):
                consequence = COMMIT_UNKNOWN
            raise StoreUnavailable(f"{self._name} failed: {_reason(error)}{consequence}") from error

    def is_refusal(self, _error: StoreUnavailable) -> bool:
        """Whether an error at opening says that the configuration cannot be used, now or later."""
        return False

    def _damage(self, _error: Exception) -> str | None:
        """What an error says of damage; None if it is about something else."""
        return None


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options()["graphmem_begin"])


def _begun(connection: Connection) -> Transaction:
    """Begins. A connection that broke while it lay idle is replaced, with all that did: nothing was done on it yet."""
    try:
        return connection.begin()
    except exc.DBAPIError as error:
        if not error.connection_invalidated:
            raise
        return connection.begin()


def _reason(error: Exception) -> str:
    cause = getattr(error, "orig", None) if isinstance(error, exc.SQLAlchemyError) else error
    # PostgreSQL's own message, for its details quote rows; where there was no server to give one, the driver's.
    told = getattr(getattr(cause, "diag", None), "message_primary", None) or cause or type(error).__name__
    return " ".join(str(told).split())
