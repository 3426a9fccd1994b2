"""Compiles each SQL statement once per test process.

SQLAlchemy compiles it once per engine, and nearly every test opens an engine of its own: compiling was half of the
processor time of a short test.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from graphmem.stores.ledger.database import Database

_statements: LRUCache[Any, Any] = LRUCache(2000)


def share_compiled_statements() -> None:
    """Gives all ledgers of this process one cache of compiled statements.

    Its keys hold the dialect, so all dialects of one class become equal.
    """
    for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        dialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign,assignment]
        dialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign,assignment]
    init_database = Database.__init__

    def with_shared_cache(self: Database, name: str, engine: Engine, **options: Any) -> None:
        engine.update_execution_options(compiled_cache=_statements)
        init_database(self, name, engine, **options)

    Database.__init__ = with_shared_cache  # type: ignore[method-assign]
