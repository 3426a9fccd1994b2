"""Where tests keep their ledgers: SQLite, and PostgreSQL where POSTGRES_URL names a server to make databases on."""

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
# What several processes on one server have in common.
KEY = "a key that is for tests only, and so no secret"
KEYRING = SecretKeySource(configured=KEY, is_local=False)
# For tests that look into the file.
SQLITE_ONLY = pytest.mark.parametrize("database", [SQLITE], indirect=True)


@contextmanager
def postgres(template: str = "") -> Iterator[str]:
    """The URL of an empty database; `template` is what CREATE DATABASE says further.

    A database that was used is emptied and lent again: to drop one takes a checkpoint of the whole server.
    """
    given = os.environ.get("POSTGRES_URL")
    if not given:
        pytest.skip("POSTGRES_URL names no PostgreSQL server")
    name = _empty.pop() if _empty and not template else _created(given, template)
    url = make_url(given).set(database=name).render_as_string(hide_password=False)
    try:
        yield url
    finally:
        if template:
            _drop(given, [name])
        else:
            _clear(url)
            _empty.append(name)


_empty: list[str] = []


def _created(given: str, template: str) -> str:
    import psycopg

    if not _empty:
        atexit.register(lambda: _drop(given, _empty))
    name = f"graphmem_test_{uuid4().hex[:12]}"
    with psycopg.connect(given, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} {template}")
        if not template:  # what is tested here is not the disk
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


def _drop(given: str, names: list[str]) -> None:
    import psycopg

    with psycopg.connect(given, autocommit=True) as server:
        while names:
            server.execute(f"DROP DATABASE IF EXISTS {names.pop()} WITH (FORCE)")
