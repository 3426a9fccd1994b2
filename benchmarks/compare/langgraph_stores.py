"""LangGraph's stores with an index. A partition is a namespace."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from systems import Encoder, Place, spoken

from graphmem.evaluation.datasets import BenchmarkQuestion, Message


class _Store:
    """What both stores share: their public interface."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    def add(self, partition: str, messages: Sequence[Message]) -> None:
        self._store.batch([PutOp((partition,), message["id"], {"text": spoken(message)}) for message in messages])

    def settle(self) -> None:
        """Nothing is recommended."""

    def search(self, case: BenchmarkQuestion, k: int) -> list[str]:
        return [item.key for item in self._store.search((case.partition,), query=case.question, limit=k)]

    def close(self) -> None:
        """Nothing is held."""


def _index(encoder: Encoder) -> dict[str, object]:
    # Without `fields`, so that the whole item is embedded, as JSON: it is the default, and SqliteStore 3.1 does so
    # whatever `fields` says (langchain-ai/langgraph#8808).
    return {"dims": encoder.dims, "embed": lambda texts: encoder.texts(texts).tolist()}


class InMemory(_Store):
    """The store in memory, which compares by numpy."""

    def __init__(self, place: Place) -> None:
        super().__init__(InMemoryStore(index=_index(place.encoder)))


class Sqlite(_Store):
    """The store in SQLite, which compares by sqlite-vec. Needs a Python whose sqlite3 loads extensions."""

    def __init__(self, place: Place) -> None:
        from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415  (a package of its own)

        if not hasattr(sqlite3.Connection, "enable_load_extension"):
            raise RuntimeError("this Python's sqlite3 loads no extensions, and sqlite-vec is one")
        self._opened = SqliteStore.from_conn_string(str(place.folder / "store.db"), index=_index(place.encoder))
        store = self._opened.__enter__()
        store.setup()
        super().__init__(store)

    def close(self) -> None:
        self._opened.__exit__(None, None, None)
