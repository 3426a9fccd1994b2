"""Databases for ledgers: SQLite, and PostgreSQL where POSTGRES_URL names a server to create databases on."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from sqlalchemy import make_url

from graphmem.stores.ledger.secret_key import SecretKeySource

SQLITE = "sqlite"
POSTGRES = pytest.param("postgresql", marks=pytest.mark.server)
# The secret key that several processes on one server share.
KEY = "a key that is for tests only, and so no secret"
KEYRING = SecretKeySource(configured=KEY, is_local=False)
# For tests that read the SQLite file itself.
SQLITE_ONLY = pytest.mark.parametrize("database", [SQLITE], indirect=True)


@contextmanager
def postgres(template: str = "") -> Iterator[str]:
    """The URL of an empty database; `template` are further options of CREATE DATABASE.

    A used database is emptied and reused: dropping one takes a checkpoint of the whole server.
    """
    server_url = os.environ.get("POSTGRES_URL")
    if not server_url:
        pytest.skip("POSTGRES_URL names no PostgreSQL server")
    name = _empty_databases.pop() if _empty_databases and not template else _create(server_url, template)
    url = make_url(server_url).set(database=name).render_as_string(hide_password=False)
    try:
        yield url
    finally:
        if template:
            _drop(server_url, [name])
        else:
            _clear(url)
            _empty_databases.append(name)


_empty_databases: list[str] = []


def _create(server_url: str, template: str) -> str:
    import psycopg

    if not _empty_databases:
        atexit.register(lambda: _drop(server_url, _empty_databases))
    name = f"graphmem_test_{uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} {template}")
        if not template:  # these tests are not about durability
            server.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    return name


def _clear(url: str) -> None:
    import psycopg

    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(f"{others} AND pid <> pg_backend_pid() AND backend_type = 'client backend'")
        database.execute("DROP SCHEMA IF EXISTS graphmem CASCADE")
        database.execute("DROP SCHEMA public CASCADE")
        database.execute("CREATE SCHEMA public")


def _drop(server_url: str, names: list[str]) -> None:
    import psycopg

    with psycopg.connect(server_url, autocommit=True) as server:
        while names:
            server.execute(f"DROP DATABASE IF EXISTS {names.pop()} WITH (FORCE)")
