"""Creates or migrates a ledger's schema, and refuses a newer one. Imports alembic only to migrate."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Connection, create_mock_engine, inspect, text
from sqlalchemy.schema import CreateSchema, ExecutableDDLElement

from graphmem.errors import StoreError
from graphmem.stores.ledger import schema

MIGRATIONS = Path(__file__).parent / "migrations"
# SQL that formats a column of microseconds as ISO 8601 text.
_ISO_FORMAT = {
    "sqlite": (
        "strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch') || printf('.%06d+00:00', {column} % 1000000)"
    ),
    "postgresql": (
        "to_char(timestamp 'epoch' + {column} * interval '1 microsecond', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"+00:00\"')"
    ),
}


def is_current(connection: Connection) -> bool:
    """Returns whether the schema is up to date, as it is most of the times a ledger is opened."""
    return has_schema(connection) and _revision(connection) == schema.REVISION


def has_schema(connection: Connection) -> bool:
    """Returns whether a ledger was created there, by this release or another."""
    return inspect(connection).has_table("alembic_version")


def _revision(connection: Connection) -> str:
    return str(connection.scalar(text("SELECT version_num FROM alembic_version")))


def ensure_schema(connection: Connection) -> None:
    """Creates or migrates the schema inside the caller's transaction; does nothing if it is up to date.

    Raises StoreError for a ledger of a newer release, and for a PostgreSQL database that is not in UTF8.
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
        _create_postgres_schema(connection)
    for statement in (*_table_statements(connection.engine.url.drivername), *schema.PARTIAL_INDEXES):
        connection.exec_driver_sql(statement)
    iso = _ISO_FORMAT[connection.dialect.name]
    created, updated = iso.format(column="memory_created_at"), iso.format(column="at")
    connection.exec_driver_sql(schema.HISTORY_VIEW.format(created=created, updated=updated))
    connection.execute(schema.ledger.insert().values(id=1, uuid=str(uuid4()), seq=0, epoch=0))
    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    connection.execute(text("INSERT INTO alembic_version VALUES (:r)"), {"r": schema.REVISION})


@cache
def _table_statements(driver: str) -> tuple[str, ...]:
    """Returns the CREATE statements of tables and indexes, compiled once per process: most of an opening's time."""
    statements: list[str] = []

    def collect(ddl: ExecutableDDLElement, *_args: object, **_options: object) -> None:
        statements.append(str(ddl.compile(dialect=engine.dialect)))

    engine = create_mock_engine(f"{driver}://", collect)
    schema.metadata.create_all(engine, checkfirst=False)
    return tuple(statements)


def _create_postgres_schema(connection: Connection) -> None:
    encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != "UTF8":
        raise StoreError(f"this database stores text as {encoding}, which lacks characters; create one with UTF8")
    # Checked first: a role without the right to create schemas may use an existing one.
    if not inspect(connection).has_schema(schema.POSTGRES_SCHEMA):
        connection.execute(CreateSchema(schema.POSTGRES_SCHEMA))


def _upgrade(connection: Connection, revision: str) -> None:
    from alembic import command  # noqa: PLC0415  (a quarter of a second, needed only to migrate)
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    known_revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision not in known_revisions:
        raise StoreError(
            f"this ledger has schema {revision}, newer than this release's {schema.REVISION}; upgrade graphmem"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, schema.REVISION)
