"""The ledger on PostgreSQL (14 or newer), through psycopg, in the database schema `graphmem`.

A transaction makes all its settings when it begins, in one round trip, and leaves none on the connection. So a pooler
may give each transaction another connection, if it carries the statements that psycopg has prepared (PgBouncer 1.22).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from threading import Condition
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url

from graphmem.errors import ConfigError, StoreUnavailable, install_extra
from graphmem.stores.ledger import schema
from graphmem.stores.ledger.database import BUSY_SECONDS, Database
from graphmem.stores.ledger.sequence import WRITER_LOCK

DRIVER = "postgresql+psycopg"
_POSTGRES_SCHEME = re.compile(r"postgres(ql(\+psycopg)?)?")
# Prefixes of PostgreSQL's error codes: wrong role or password, missing database, schema or privilege.
_CONFIGURATION_ERRORS = ("28", "3D", "3F", "42501")
_LOCK_NOT_AVAILABLE = "55P03"
_TEMPORARY = re.compile("starting up|shutting down|recovery|too many|remaining connection slots|terminating connection")
# A transaction that writes in more places writes alone: the server has room for some thousand locks.
MOST_NAMES = 100
# Connection options, which those in the URL override. They give up a silent server: after 3 seconds when connecting,
# later when it has acknowledged no data for 10 seconds or misses the kernel's keepalive probes.
_CONNECTION_OPTIONS = {
    "connect_timeout": "3",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "application_name": "graphmem",
    "client_encoding": "utf8",
}
# jit off: compiling a statement to machine code takes longer than running any of these.
_SETTINGS = f"SET LOCAL search_path = {schema.POSTGRES_SCHEMA}; SET LOCAL jit = off"
_SIZE_QUERY = (
    "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
)


class PostgresDatabase(Database):
    """A PostgreSQL database.

    A writer holds an advisory lock until the commit: alone, or with others beside it. In the second case it also holds
    one for each name of what it writes, in the order of their numbers, so that no two wait for each other in turn. It
    gets the number of its transaction after that, so in one place numbers commit in order, and every statement sees all
    earlier commits there. A writer whose machine vanishes loses the locks after twice the time that others wait for
    them.
    """

    begin_read = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_SETTINGS}"
    begin_statement = begin_read  # for its settings

    def __init__(self, url: URL) -> None:
        address = f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or url.username or ''}"
        engine = _engine(url)
        self.driver_error = engine.dialect.loaded_dbapi.Error
        self._turns = _Turns()
        super().__init__(f"the ledger on PostgreSQL ({address})", engine)

    @contextmanager
    def turn_to_write(self, of: Collection[str] | None) -> Iterator[str]:
        begin = (
            f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {_SETTINGS}; "
            f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'; "
            f"SET LOCAL idle_in_transaction_session_timeout = '{2 * BUSY_SECONDS}s'; "
        )
        if of is None or len(of) > MOST_NAMES:
            with self._turns.taken(None):
                yield f"{begin}SELECT pg_advisory_xact_lock({WRITER_LOCK})"
            return
        # Two names may have a lock of one number: then they wait for each other, no more.
        hashes = {blake2b(name.encode(), digest_size=4).digest() for name in of}
        numbers = sorted(int.from_bytes(each, signed=True) for each in hashes)
        locks = [f"SELECT pg_advisory_xact_lock({WRITER_LOCK}, {number})" for number in numbers]
        with self._turns.taken(numbers):
            yield begin + "; ".join([f"SELECT pg_advisory_xact_lock_shared({WRITER_LOCK})", *locks])

    def size(self) -> int:
        with self.read() as connection:
            return int(connection.exec_driver_sql(_SIZE_QUERY).scalar() or 0)

    def check(self) -> list[str]:
        return []

    def _check_not_moved(self, *, unless_recent: bool = False) -> None:
        """Does nothing: there is no local file."""

    def _set_synced(self, connection: Connection, *, synced: bool) -> None:
        """Does nothing: the server syncs each commit, as processes go on that have seen what it would lose."""

    def is_configuration_error(self, error: StoreUnavailable) -> bool:
        cause = getattr(error.__cause__, "orig", None)
        state = getattr(cause, "sqlstate", None)
        if state is not None:
            return str(state).startswith(_CONFIGURATION_ERRORS)
        # An error while connecting has no code, only a text. The server's own texts contain "FATAL:", also while it is
        # not ready yet.
        message = str(cause)
        return ("FATAL:" in message and not _TEMPORARY.search(message)) or "SSL" in message

    def _is_lock_timeout(self, error: Exception) -> bool:
        return getattr(getattr(error, "orig", error), "sqlstate", None) == _LOCK_NOT_AVAILABLE

    def compact(self) -> None:
        """Frees the space of deleted rows for new ones, and updates the planner's statistics.

        No VACUUM FULL: it locks every table while it copies it, so the server's administrator has to decide on it.
        """
        tables = ", ".join(f"{schema.POSTGRES_SCHEMA}.{table}" for table in schema.metadata.tables)
        with self._driver_cursor() as cursor:
            cursor.execute(f"VACUUM (ANALYZE) {tables}")


class _Turns:
    """Lets the threads of a process take places, or all of them, as the server's locks do for processes.

    A thread that waits here needs no connection. One that waits for all lets none pass that comes later.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._taken: Counter[int | None] = Counter()  # None: how many threads write, with and without places
        self._all_taken = False
        self._waiting_for_all = 0

    @contextmanager
    def taken(self, places: Sequence[int] | None) -> Iterator[None]:
        """Waits for places (None: for all) and holds them during the block."""
        with self._changed:
            if places is None:
                self._waiting_for_all += 1
                try:
                    self._changed.wait_for(lambda: not (self._all_taken or self._taken.total()))
                finally:
                    self._waiting_for_all -= 1
                self._all_taken = True
            else:
                self._changed.wait_for(
                    lambda: not (self._all_taken or self._waiting_for_all or any(self._taken[one] for one in places))
                )
                self._taken.update([None, *places])
        try:
            yield
        finally:
            with self._changed:
                if places is None:
                    self._all_taken = False
                else:
                    self._taken -= Counter([None, *places])
                self._changed.notify_all()


def parse_url(url: str) -> URL:
    """Parses a `postgresql://` or `postgres://` URL. Raises ConfigError, without the password, for any other text."""
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        parsed = None
    # With an unescaped "@" a part of the password ends up in the host, database or an option, which errors quote.
    is_split_password = url.count("@") > 1 or "@" in url.partition("?")[2]
    if parsed is None or is_split_password or not _POSTGRES_SCHEME.fullmatch(parsed.drivername):
        raise ConfigError(
            "ledger_url: is not a PostgreSQL URL; write postgresql://user:password@host:port/database, "
            "with %-escapes for special characters in user and password"
        )
    return parsed.set(drivername=DRIVER)


def _engine(url: URL) -> Engine:
    try:
        from psycopg import ProgrammingError, conninfo  # noqa: PLC0415  (an extra, imported only when used)
        from psycopg.types.numeric import Int8Dumper  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"ledger_url: PostgreSQL needs psycopg; {install_extra('postgres')}") from error
    # What begins a transaction says BEGIN itself; the driver's would take another round trip.
    engine = create_engine(
        url.set(query={**_CONNECTION_OPTIONS, **url.query}),
        connect_args={"autocommit": True},
        pool_size=16,
        hide_parameters=True,
    )
    try:
        conninfo.make_conninfo("", **{name: str(value) for name, value in engine.url.query.items()})
    except ProgrammingError as error:
        raise ConfigError(f"ledger_url: {' '.join(str(error).split())}; correct the part after the '?'") from None

    @event.listens_for(engine, "connect")
    def on_connect(dbapi: Any, _record: Any) -> None:
        # The driver sends each int as the narrowest type, and would prepare a statement for every mixture of types.
        dbapi.adapters.register_dumper(int, Int8Dumper)

    return engine
