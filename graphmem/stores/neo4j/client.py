"""Connections to one Neo4j database: a driver for writes, a driver for reads, and the driver's errors as graphmem's.

A server that hangs in the middle of an answer blocks the reader until its keep-alive ends, by default after two
minutes, and no option of the driver changes that. So each read runs in a thread of its own, and its caller waits for
`READ_TIMEOUT` only. The thread stays until the driver gives up; `READERS` limits how many threads can be blocked so.

The statements are in `cypher/`: static text, one per file, read once. Values are always parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
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

from graphmem.concurrency import BoundedCalls, CallTooLate, is_caller_timeout
from graphmem.errors import CLOSED, ConfigError, StoreError, StoreUnavailable
from graphmem.plugins import StoreLost

T = TypeVar("T")
Parameters = Mapping[str, Any]

# How long a search waits for a read, in seconds, and the share of it after which the server cancels the statement, so
# that it does not work on an answer that nobody reads.
READ_TIMEOUT, SERVER_TIMEOUT_SHARE = 1.6, 0.9
READERS = 16
MIN_VERSION = (5, 26)
# Reads give up soon: a search can answer without the graph. Writes are retried, but not for long: a change that is not
# delivered stays pending and is not lost.
_READ_OPTIONS: dict[str, Any] = {
    "connection_timeout": 1.0,
    "connection_acquisition_timeout": 1.5,
    "max_transaction_retry_time": 0.0,
}
_WRITE_OPTIONS: dict[str, Any] = {
    "connection_timeout": 2.0,
    "connection_acquisition_timeout": 10.0,
    "max_transaction_retry_time": 5.0,
}
_SCHEMES = frozenset({"bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc"})
_INVALID_URL = (
    "graph_store.config.url: is no Neo4j URL; write bolt://host:7687, or neo4j+s://host for a cluster behind TLS"
)
# Error codes about a single statement or value. All others are about the server, the access or the moment.
_REFUSAL_CODES = ("Neo.ClientError.Statement.", "Neo.ClientError.Schema.", "Neo.DatabaseError.Statement.")
# Our statements are fixed and tested, and they name indexes: Neo4j reports a missing index as a syntax error.
_MISSING_INDEX_CODE = "Neo.ClientError.Statement.SyntaxError"
_ACCESS_CODES = ("Neo.ClientError.Security.", "Neo.ClientError.Database.")


class Neo4jClient:
    """Connections to one database, opened on demand. Thread-safe."""

    def __init__(self, url: str, username: str, password: str, database: str, *, user_agent: str) -> None:
        """Does not connect. Raises ConfigError for an invalid URL and for the database "system"."""
        options: dict[str, Any] = {
            "auth": (username, password),
            "user_agent": user_agent,
            "telemetry_disabled": True,
            "liveness_check_timeout": 0.0,
            "notifications_min_severity": "OFF",  # for authors of statements; our tests read them
        }
        self._database = database
        self._closed = False
        self._reads = BoundedCalls(READERS, "graphmem-neo4j")
        # In a cluster: a read after a write of this process sees the write.
        self._bookmarks = GraphDatabase.bookmark_manager()
        if not _is_valid_url(url):
            raise ConfigError(_INVALID_URL)
        if database == "system":
            raise ConfigError("graph_store.config.database: 'system' holds no data; name another, usually 'neo4j'")
        try:
            self._read_driver: Driver = GraphDatabase.driver(url, **options, **_READ_OPTIONS)
            self._write_driver: Driver = GraphDatabase.driver(url, **options, **_WRITE_OPTIONS)
        except (ConfigurationError, ValueError):
            raise ConfigError(_INVALID_URL) from None  # the driver's error may quote the URL, and so a password

    def read(self, text: LiteralString, parameters: Parameters, timeout: float = READ_TIMEOUT) -> list[Record]:
        """Returns the rows of a statement that only reads. Raises StoreUnavailable after `timeout` seconds."""

        def fetch() -> list[Record]:
            with (
                self._translated_errors(),
                self._read_driver.session(
                    database=self._database, default_access_mode=READ_ACCESS, bookmark_manager=self._bookmarks
                ) as session,
            ):
                query = Query(text, timeout=timeout * SERVER_TIMEOUT_SHARE)
                return list(session.run(query, dict(parameters)))

        try:
            return self._reads.run(fetch, timeout)
        except CallTooLate as late:
            if late.has_begun:
                raise StoreUnavailable(f"Neo4j did not answer within {timeout:g} seconds") from late
            raise StoreUnavailable(f"Neo4j has not answered {READERS} earlier reads; is it hanging?") from late

    def write(self, work: Callable[[ManagedTransaction], T]) -> T:
        """Calls `work` in one transaction, and calls it again if the server asks for a retry."""
        with self._translated_errors(), self._write_session() as session:
            return session.execute_write(work)

    def run(self, text: LiteralString, parameters: Parameters) -> ResultSummary:
        """Runs a statement in auto-commit mode: for statements that open transactions themselves or
        change the schema.
        """
        with self._translated_errors(), self._write_session() as session:
            return session.run(text, dict(parameters)).consume()

    def stream(self, text: LiteralString, parameters: Parameters) -> Iterator[Record]:
        """Yields the rows of a long answer, without a timeout."""
        with self._translated_errors(), self._write_session() as session:
            yield from session.run(text, dict(parameters))

    def _write_session(self) -> Session:
        return self._write_driver.session(
            database=self._database, default_access_mode=WRITE_ACCESS, bookmark_manager=self._bookmarks
        )

    def check(self) -> None:
        """Connects and checks access and version.

        Raises ConfigError when the server refuses the name, password or database or is older than 5.26, and
        StoreUnavailable when it is out of reach.
        """
        try:
            (row,) = self.read(statement("runtime/version"), {})
        except StoreUnavailable as error:
            if isinstance(error.__cause__, Neo4jError) and (error.__cause__.code or "").startswith(_ACCESS_CODES):
                raise ConfigError(f"graph_store.config: {error}") from error
            raise
        if tuple(int(part) for part in re.findall(r"\d+", row["version"])[:2]) < MIN_VERSION:
            raise ConfigError(f"graph_store: Neo4j {row['version']} is too old; use 5.26 or newer")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raises the driver's errors as graphmem's, without the server's message, which may quote stored texts."""
        if self._closed:
            raise StoreUnavailable(CLOSED)
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            if self._closed:
                raise StoreUnavailable(CLOSED) from error
            # Other exceptions, such as those that a signal handler raises, say nothing about the server and pass.
            translated = None if is_caller_timeout(error) else _translate(error)
            if translated is None:
                raise
            raise translated from error
        finally:
            if self._closed:
                # Closes connections that were being opened while the driver was closed: it adds them to its pool after
                # that, and calling its own close() again does nothing.
                self._read_driver._pool.close()  # noqa: SLF001
                self._write_driver._pool.close()  # noqa: SLF001

    def close(self) -> None:
        """Closes all connections, also those of reads and writes in progress."""
        self._closed = True
        self._read_driver.close()
        self._write_driver.close()


def _is_valid_url(url: str) -> bool:
    """Checks more than the driver, which checks only the scheme: its later errors would quote the URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0 and "@" not in url
    except ValueError:  # the port is no number: perhaps a part of a password
        return False


def _translate(error: Exception) -> StoreError | None:
    if isinstance(error, Neo4jError):
        return _translate_code(error.code or "an unknown error")
    if isinstance(error, DriverError | OSError):
        return StoreUnavailable(f"Neo4j is out of reach ({type(error).__name__}); is it running at the configured url?")
    if isinstance(error, ValueError | TypeError | OverflowError):  # a value that cannot be encoded: a lone surrogate
        return StoreError(f"this cannot be sent to Neo4j ({type(error).__name__})")
    return None


def _translate_code(code: str) -> StoreError:
    if code == _MISSING_INDEX_CODE:
        return StoreLost("Neo4j lacks the indexes of this ledger's graph; rebuild() makes them and fills it again")
    if code.startswith(_ACCESS_CODES):
        return StoreUnavailable(f"Neo4j refuses access ({code}); check url, username, password and database")
    if code.startswith(_REFUSAL_CODES):
        return StoreError(f"Neo4j refused it ({code})")
    return StoreUnavailable(f"Neo4j cannot do it now ({code})")


@cache
def statement(path: str) -> LiteralString:
    """Returns the statement in `cypher/<path>.cypher`, without its comment lines.

    Typed as a LiteralString, because the file is part of the package and no value is ever formatted into it.
    """
    lines = (_folder() / f"{path}.cypher").read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("//"))


@cache
def statements(folder: str) -> tuple[LiteralString, ...]:
    """Returns all statements of a folder, in the order of their file names."""
    names = sorted(entry.name for entry in (_folder() / folder).iterdir())
    return tuple(statement(f"{folder}/{name.removesuffix('.cypher')}") for name in names)


def _folder() -> Traversable | Path:
    """Returns the folder inside the package (in a wheel), else the one at the top of the checkout."""
    packaged = files("graphmem") / "_cypher"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "cypher"
