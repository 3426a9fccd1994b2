"""Helpers of the tests of the public contract: shapes of results, and shorthands."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphmem import Memory

Make = Callable[..., Memory]
JANUARY, JUNE = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 6, 1, tzinfo=UTC)

RECORD = {
    "id": str, "memory": str, "kind": str, "hash": str, "metadata": dict, "at": str, "created_at": str,
    "updated_at": str, "user_id": str | None, "agent_id": str | None, "run_id": str | None, "actor_id": str | None,
    "role": str | None,
}  # fmt: skip
HIT = {**RECORD, "score": float, "similarity": float, "relevance": float}
RELATION = {"source": str, "relationship": str, "target": str, "memory_ids": list}


def check(record: Any, shape: dict[str, Any]) -> None:
    for name, kind in shape.items():
        assert isinstance(record[name], kind), f"{name}: {record[name]!r}"


def added(memory: Memory, words: Any, **more: Any) -> str:
    (one,) = memory.add(words, **{"user_id": "u1", **more})["results"]
    return str(one["id"])


def ids(response: Any) -> list[str]:
    return [one["id"] for one in response["results"]]


def texts(response: Any) -> list[str]:
    return [one["memory"] for one in response["results"]]


SCOPED: dict[str, Callable[..., Any]] = {
    "add": lambda m, **s: m.add("x", **s),
    "search": lambda m, **s: m.search("x", **s),
    "context": lambda m, **s: m.context("x", **s),
    "get_all": lambda m, **s: m.get_all(**s),
    "delete_all": lambda m, **s: m.delete_all(**s),
    "entities": lambda m, **s: m.entities(**s),
    "entity": lambda m, **s: m.entity("x", **s),
    "alias": lambda m, **s: m.alias("x", "y", **s),
    "unalias": lambda m, **s: m.unalias("x", "y", **s),
    "rename_entity": lambda m, **s: m.rename_entity("x", "y", **s),
    "graph": lambda m, **s: m.graph(**s),
    "count_by_day": lambda m, **s: m.count_by_day(**s),
}


def with_embedder(embed: Any, model: str = "hash", dims: int = 64) -> dict[str, Any]:
    return {"embedder": {"provider": "callable", "config": {"embed": embed, "embedding_dims": dims, "model": model}}}


def sqlite_rows(folder: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(folder / "ledger.sqlite")
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def damage(folder: Path) -> None:
    """Overwrites the first page of an open ledger after compacting it, so that every connection reads it anew."""
    file = folder / "ledger.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = file.read_bytes()
    file.write_bytes(content[:100] + bytes(4096 - 100) + content[4096:])  # the first 100 bytes are the file's header
