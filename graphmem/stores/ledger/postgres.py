"""The ledger on PostgreSQL (14 or newer), by psycopg. Everything of ours lives in the schema `graphmem`.

All that a transaction needs is said when it begins, in one round trip, and nothing is left on the connection, so a
pooler such as PgBouncer may stand in between.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, exc, make_url

from graphmem.errors import ConfigError, StoreUnavailable
from graphmem.stores.ledger import schema
from graphmem.stores.ledger.database import BUSY_SECONDS, Database

DRIVER = "postgresql+psycopg"
_OURS = re.compile(r"postgres(ql(\+psycopg)?)?")
# Codes of PostgreSQL's for a role or password, a database, a schema or a right that is not there.
_REFUSALS = ("28", "3D", "3F", "42501")
_NOT_NOW = re.compile("starting up|shutting down|recovery|too many|remaining connection slots|terminating connection")
# The turn to write, among all that use the database ("gmem").
_TURN = 0x676D656D
# A server that does not answer is given up: when connecting in 3 seconds, later when it has not acknowledged what was
# sent for 10, or does not answer the kernel's probes. What the URL says comes first.
_PATIENCE = {
    "connect_timeout": "3",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "application_name": "graphmem",
    "client_encoding": "utf8",
}
# Compiling a statement to machine code takes longer than any of ours runs.
_HERE = f"SET LOCAL search_path = {schema.SCHEMA}; SET LOCAL jit = off"
_SIZE = (
    "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
)


class PostgresDatabase(Database):
    """A database on a server.

    Writers take turns by an advisory lock that is held to the commit, as they do on SQLite: sequence numbers commit in
    order, so that no cursor passes a gap, and after the lock every statement sees all that was committed before. One
    whose machine vanishes in the middle loses its turn after twice the time that others wait for it.
    """

    reading = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_HERE}"
    writing = (
        f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {_HERE}; SET LOCAL lock_timeout = '{BUSY_SECONDS}s'; "
        f"SET LOCAL idle_in_transaction_session_timeout = '{2 * BUSY_SECONDS}s'; SELECT pg_advisory_xact_lock({_TURN})"
    )

    def __init__(self, url: URL) -> None:
        place = f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or url.username or ''}"
        engine = _engine(url)
        self.failure = engine.dialect.loaded_dbapi.Error
        super().__init__(f"the ledger on PostgreSQL ({place})", engine)

    def size(self) -> int:
        with self.read() as connection:
            return int(connection.exec_driver_sql(_SIZE).scalar() or 0)

    def check(self) -> list[str]:
        return []

    def _check_place(self, *, now_and_then: bool = False) -> None:
        """A server's name leads to the server."""

    def is_refusal(self, error: StoreUnavailable) -> bool:
        cause = getattr(error.__cause__, "orig", None)
        state = getattr(cause, "sqlstate", None)
        if state is not None:
            return str(state).startswith(_REFUSALS)
        # While connecting there is no code yet, only words: the server's own begin so, unless it is just not ready.
        told = str(cause)
        return ("FATAL:" in told and not _NOT_NOW.search(told)) or "SSL" in told

    def compact(self) -> None:
        """Lets the room of what was deleted be used again, and takes the statistics anew.

        No VACUUM FULL: it would keep everybody else out while it copies all there is, and is for the one who runs the
        server to decide.
        """
        tables = ", ".join(f"{schema.SCHEMA}.{table}" for table in schema.metadata.tables)
        with self._alone() as cursor:
            cursor.execute(f"VACUUM (ANALYZE) {tables}")


def parse_url(url: str) -> URL:
    """A `postgresql://` or `postgres://` URL. Raises ConfigError, never with the password, for what is none."""
    try:
        found = make_url(url)
    except (exc.ArgumentError, ValueError):
        found = None
    # An "@" that was not escaped leaves a part of the password in host, database or an option, which errors name.
    split = url.count("@") > 1 or "@" in url.partition("?")[2]
    if found is None or split or not _OURS.fullmatch(found.drivername):
        raise ConfigError(
            "ledger_url: is not a PostgreSQL URL; write postgresql://user:password@host:port/database, "
            "with %-escapes for special characters in user and password"
        )
    return found.set(drivername=DRIVER)


def _engine(url: URL) -> Engine:
    try:
        from psycopg import ProgrammingError, conninfo  # noqa: PLC0415  (an extra, and only where it is asked for)
        from psycopg.types.numeric import Int8Dumper  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("ledger_url: PostgreSQL needs psycopg: pip install 'graphmem[postgres]'") from error
    # Our transactions say themselves how they begin; the driver's own would take another round trip.
    engine = create_engine(
        url.set(query={**_PATIENCE, **url.query}),
        connect_args={"autocommit": True},
        pool_size=16,
        hide_parameters=True,
    )
    try:
        conninfo.make_conninfo("", **{name: str(value) for name, value in engine.url.query.items()})
    except ProgrammingError as error:
        raise ConfigError(f"ledger_url: {' '.join(str(error).split())}; correct the part after the '?'") from None

    @event.listens_for(engine, "connect")
    def connected(dbapi: Any, _record: Any) -> None:
        # By itself it takes the narrowest type for each value, and every mixture would be a statement to prepare.
        dbapi.adapters.register_dumper(int, Int8Dumper)

    return engine
