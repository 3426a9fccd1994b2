"""A Neo4j database as the graph uses it: one driver for writes, one for reads, and its errors as ours.

A server that hangs in the middle of an answer keeps its reader for as long as its keep-alive says, by default two
minutes, and no option of the driver changes that. So a read waits in a thread of its own and its caller only for
`READ_TIMEOUT`. The thread stays until the driver gives up: `READERS` bounds how many can be lost to a server like that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from threading import BoundedSemaphore, Thread
from time import monotonic
from typing import Any, LiteralString, TypeVar
from urllib.parse import urlsplit

from neo4j import (
    READ_ACCESS,
    WRITE_ACCESS,
    Driver,
    GraphDatabase,
    ManagedTransaction,
    Query,
    Record,
    ResultSummary,
    Session,
)
from neo4j.exceptions import ConfigurationError, DriverError, Neo4jError

from graphmem.concurrency import is_caller_timeout, start_thread
from graphmem.errors import CLOSED, ConfigError, StoreError, StoreUnavailable
from graphmem.stores.cypher import statement
from graphmem.stores.protocols import StoreLost

T = TypeVar("T")
Parameters = Mapping[str, Any]

# Seconds that a search gives a read, and the part of them the server is told, so that it does not work on for nobody.
READ_TIMEOUT, SERVER_TIMEOUT_SHARE = 1.6, 0.9
READERS = 16
MIN_VERSION = (5, 26)
# Reads give up soon: a search can do without. Writes try again, but not for long: what they leave is owed, not lost.
_READS: dict[str, Any] = {
    "connection_timeout": 1.0,
    "connection_acquisition_timeout": 1.5,
    "max_transaction_retry_time": 0.0,
}
_WRITES: dict[str, Any] = {
    "connection_timeout": 2.0,
    "connection_acquisition_timeout": 10.0,
    "max_transaction_retry_time": 5.0,
}
_SCHEMES = frozenset({"bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc"})
_NO_URL = "graph_store.config.url: is no Neo4j URL; write bolt://host:7687, or neo4j+s://host for a cluster behind TLS"
# What the server says of a single statement or value. Everything else is about the server, the access or the moment.
_REFUSALS = ("Neo.ClientError.Statement.", "Neo.ClientError.Schema.", "Neo.DatabaseError.Statement.")
# Our statements are fixed and tested; they name indexes, and one that is not there is an error of syntax to Neo4j.
_NO_INDEX = "Neo.ClientError.Statement.SyntaxError"
_ACCESS = ("Neo.ClientError.Security.", "Neo.ClientError.Database.")


class Neo4jClient:
    """Connections to one database, made when they are needed. Safe to use from several threads."""

    def __init__(self, url: str, username: str, password: str, database: str, *, user_agent: str) -> None:
        """Raises ConfigError for a URL that cannot be one; connects to nothing."""
        common: dict[str, Any] = {
            "auth": (username, password),
            "user_agent": user_agent,
            "telemetry_disabled": True,
            "liveness_check_timeout": 0.0,
            "notifications_min_severity": "OFF",  # they are for those who write statements; our tests look at them
        }
        self._database = database
        self._closed = False
        self._slots = BoundedSemaphore(READERS)
        # In a cluster: whoever has written here reads what was written.
        self._bookmarks = GraphDatabase.bookmark_manager()
        if not _is_usable(url):
            raise ConfigError(_NO_URL)
        if database == "system":
            raise ConfigError("graph_store.config.database: 'system' holds no data; name another, usually 'neo4j'")
        try:
            self._reads: Driver = GraphDatabase.driver(url, **common, **_READS)
            self._writes: Driver = GraphDatabase.driver(url, **common, **_WRITES)
        except (ConfigurationError, ValueError):
            raise ConfigError(_NO_URL) from None  # it may quote the URL, and that a password

    def read(self, text: LiteralString, parameters: Parameters, patience: float = READ_TIMEOUT) -> list[Record]:
        """The rows of a statement that only reads. Raises StoreUnavailable when they are not there in time."""
        until = monotonic() + patience
        if not self._slots.acquire(timeout=patience):
            raise StoreUnavailable(f"Neo4j has not answered {READERS} earlier reads; is it hanging?")
        found: Future[list[Record]] = Future()

        def fetch() -> None:
            try:
                found.set_result(self._fetch(text, parameters, patience * SERVER_TIMEOUT_SHARE))
            except BaseException as error:  # noqa: BLE001  (it is raised where the result is awaited)
                found.set_exception(error)
            finally:
                self._slots.release()

        # A daemon: a process does not wait for a hanging server in order to end.
        try:
            start_thread(Thread(target=fetch, name="graphmem-neo4j", daemon=True))
        except StoreUnavailable:
            self._slots.release()
            raise
        try:
            return found.result(timeout=max(0.0, until - monotonic()))
        except TimeoutError as error:
            raise StoreUnavailable(f"Neo4j did not answer within {patience:g} seconds") from error

    def _fetch(self, text: LiteralString, parameters: Parameters, limit: float) -> list[Record]:
        with (
            self._ours(),
            self._reads.session(
                database=self._database, default_access_mode=READ_ACCESS, bookmark_manager=self._bookmarks
            ) as session,
        ):
            return list(session.run(Query(text, timeout=limit), dict(parameters)))

    def write(self, work: Callable[[ManagedTransaction], T]) -> T:
        """Does work in one transaction, again when the server asks for that."""
        with self._ours(), self._writing() as session:
            return session.execute_write(work)

    def run(self, text: LiteralString, parameters: Parameters) -> ResultSummary:
        """Runs a statement that makes transactions of its own, or none."""
        with self._ours(), self._writing() as session:
            return session.run(text, dict(parameters)).consume()

    def stream(self, text: LiteralString, parameters: Parameters) -> Iterator[Record]:
        """The rows of a long answer, with all the time it takes."""
        with self._ours(), self._writing() as session:
            yield from session.run(text, dict(parameters))

    def _writing(self) -> Session:
        return self._writes.session(
            database=self._database, default_access_mode=WRITE_ACCESS, bookmark_manager=self._bookmarks
        )

    def check(self) -> None:
        """Raises ConfigError when the server is too old or refuses the name, password or database; StoreUnavailable."""
        try:
            (found,) = self.read(statement("runtime/version"), {})
        except StoreUnavailable as error:
            if isinstance(error.__cause__, Neo4jError) and (error.__cause__.code or "").startswith(_ACCESS):
                raise ConfigError(f"graph_store.config: {error}") from error
            raise
        if tuple(int(part) for part in re.findall(r"\d+", found["version"])[:2]) < MIN_VERSION:
            raise ConfigError(f"graph_store: Neo4j {found['version']} is too old; use 5.26 or newer")

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """The driver's errors as ours; without the server's words, which may quote what is stored."""
        if self._closed:
            raise StoreUnavailable(CLOSED)
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            if self._closed:
                raise StoreUnavailable(CLOSED) from error
            # What else passes by, such as what the handler of a signal raises, says nothing about the server.
            ours = None if is_caller_timeout(error) else _ours_for(error)
            if ours is None:
                raise
            raise ours from error
        finally:
            if self._closed:
                self._close_late()

    def close(self) -> None:
        """Closes the connections, also those that somebody waits for."""
        self._closed = True
        self._reads.close()
        self._writes.close()

    def _close_late(self) -> None:
        """Closes a connection that was being made when the driver was closed: the driver puts it into its pool after
        that, and its own close() does nothing twice.
        """
        self._reads._pool.close()  # noqa: SLF001
        self._writes._pool.close()  # noqa: SLF001


def _is_usable(url: str) -> bool:
    """The driver looks no further than the scheme; what it finds out later, its errors quote."""
    try:
        parts = urlsplit(url)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0 and "@" not in url
    except ValueError:  # the port is no number: perhaps a part of a password
        return False


def _ours_for(error: Exception) -> StoreError | None:
    if isinstance(error, Neo4jError):
        return _ours_for_code(error.code or "an unknown error")
    if isinstance(error, DriverError | OSError):
        return StoreUnavailable(f"Neo4j is out of reach ({type(error).__name__}); is it running at the configured url?")
    if isinstance(error, ValueError | TypeError | OverflowError):  # what cannot be sent at all: a lone surrogate
        return StoreError(f"this cannot be sent to Neo4j ({type(error).__name__})")
    return None


def _ours_for_code(code: str) -> StoreError:
    if code == _NO_INDEX:
        return StoreLost("Neo4j lacks the indexes of this ledger's graph; rebuild() makes them and fills it again")
    if code.startswith(_ACCESS):
        return StoreUnavailable(f"Neo4j refuses access ({code}); check url, username, password and database")
    if code.startswith(_REFUSALS):
        return StoreError(f"Neo4j refused it ({code})")
    return StoreUnavailable(f"Neo4j cannot do it now ({code})")
