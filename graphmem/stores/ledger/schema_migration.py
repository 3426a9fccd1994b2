"""Brings a ledger to the schema of this code, or refuses it. alembic is imported only when there is work."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Connection, create_mock_engine, inspect, text
from sqlalchemy.schema import CreateSchema, ExecutableDDLElement

from graphmem.errors import StoreError
from graphmem.stores.ledger import schema

MIGRATIONS = Path(__file__).parent / "migrations"
# Microseconds as ISO 8601 text.
_ISO = {
    "sqlite": (
        "strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch') || printf('.%06d+00:00', {column} % 1000000)"
    ),
    "postgresql": (
        "to_char(timestamp 'epoch' + {column} * interval '1 microsecond', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"+00:00\"')"
    ),
}


def is_current(connection: Connection) -> bool:
    """Whether there is nothing to do: most of the times a ledger is opened."""
    return inspect(connection).has_table("alembic_version") and _revision(connection) == schema.REVISION


def _revision(connection: Connection) -> str:
    return str(connection.scalar(text("SELECT version_num FROM alembic_version")))


def ensure_schema(connection: Connection) -> None:
    """Creates, migrates or accepts the schema, inside the caller's transaction.

    Raises StoreError for a file that is not a ledger, and for one written by a newer release.
    """
    tables = set(inspect(connection).get_table_names())
    if not tables:
        _create(connection)
        return
    revision = _revision(connection)
    if revision != schema.REVISION:
        _upgrade(connection, revision)


def _create(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        _make_room(connection)
    for statement in _table_statements(connection.dialect.name):
        connection.exec_driver_sql(statement)
    iso = _ISO[connection.dialect.name]
    created, updated = iso.format(column="memory_created_at"), iso.format(column="at")
    connection.exec_driver_sql(schema.HISTORY_VIEW.format(created=created, updated=updated))
    connection.execute(schema.ledger.insert().values(id=1, uuid=str(uuid4()), seq=0, epoch=0))
    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    connection.execute(text("INSERT INTO alembic_version VALUES (:r)"), {"r": schema.REVISION})


@cache
def _table_statements(dialect: str) -> tuple[str, ...]:
    """The CREATE statements of all tables and indexes: compiled once per process, which takes most of an opening."""
    statements: list[str] = []
    url = f"{dialect}+psycopg" if dialect == "postgresql" else dialect

    def collect(ddl: ExecutableDDLElement, *_args: object, **_options: object) -> None:
        statements.append(str(ddl.compile(dialect=engine.dialect)))

    engine = create_mock_engine(f"{url}://", collect)
    schema.metadata.create_all(engine, checkfirst=False)
    return tuple(statements)


def _make_room(connection: Connection) -> None:
    encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != "UTF8":
        raise StoreError(f"this database keeps text as {encoding}, which cannot hold all of it; make one with UTF8")
    # Asked first: who may not make schemas may have been given one.
    if not inspect(connection).has_schema(schema.SCHEMA):
        connection.execute(CreateSchema(schema.SCHEMA))


def _upgrade(connection: Connection, revision: str) -> None:
    from alembic import command  # noqa: PLC0415  (a quarter of a second, needed once in a ledger's life)
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision not in known:
        raise StoreError(
            f"this ledger has schema {revision}, newer than this release's {schema.REVISION}; upgrade graphmem"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, schema.REVISION)
