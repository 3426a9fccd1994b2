"""Brings a ledger file to the schema of this code, or refuses it. alembic is imported only when there is work."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from sqlalchemy import Connection, inspect, text

from graphmem.errors import StoreError
from graphmem.stores.ledger import schema

_MIGRATIONS = Path(__file__).parent / "migrations"


def is_current(connection: Connection) -> bool:
    """Whether there is nothing to do: most of the times a ledger is opened."""
    return "alembic_version" in inspect(connection).get_table_names() and _revision(connection) == schema.REVISION


def _revision(connection: Connection) -> str:
    return str(connection.scalar(text("SELECT version_num FROM alembic_version")))


def ensure(connection: Connection) -> None:
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
    schema.metadata.create_all(connection)
    created, updated = _iso("memory_created_at"), _iso("at")
    connection.exec_driver_sql(schema.HISTORY_VIEW.format(created=created, updated=updated))
    connection.execute(schema.ledger.insert().values(id=1, uuid=str(uuid4()), change=0, epoch=0))
    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    connection.execute(text("INSERT INTO alembic_version VALUES (:r)"), {"r": schema.REVISION})


def _iso(column: str) -> str:
    # SQLite only, like the view's other readers; PostgreSQL's to_timestamp comes with that backend.
    return (
        f"strftime('%Y-%m-%dT%H:%M:%S', {column} / 1000000, 'unixepoch') || printf('.%06d+00:00', {column} % 1000000)"
    )


def _upgrade(connection: Connection, revision: str) -> None:
    from alembic import command  # noqa: PLC0415  (a quarter of a second, needed once in a ledger's life)
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision not in known:
        raise StoreError(
            f"this ledger has schema {revision}, newer than this release's {schema.REVISION}; upgrade graphmem"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, schema.REVISION)
