"""What several test files share: memories with fake models, and a clerk who writes a ledger the way the house does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from graphmem import Memory, Settings
from graphmem.model import MemoryRecord, Message, Scope, View
from graphmem.remember.commit import commit
from graphmem.remember.enrich import Enricher
from graphmem.remember.plan import Outcome, Plan, Step
from graphmem.remember.words import say
from graphmem.stores.ledger import Ledger, audit, memories
from graphmem.testing import HashEmbedder, WordExtractor

DIMS = 64
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def hashed(texts: list[str]) -> list[Any]:
    """An embedding function for `embedder: callable`: one vector for each text, by its words."""
    return [HashEmbedder(DIMS).embed_query(text) for text in texts]


def fake_models(**config: Any) -> dict[str, Any]:
    """A configuration whose models are fakes; `config` is laid over it."""
    embedder = {"provider": "callable", "config": {"embed": hashed, "embedding_dims": DIMS, "model": "hash"}}
    return {"embedder": embedder, "extractor": {"provider": "none"}, **config}


@pytest.fixture
def make_memory() -> Iterator[Callable[..., Memory]]:
    """`make_memory(path=None, **config)`: a Memory with fake models, closed at the end; without a path on no disk."""
    made: list[Memory] = []

    def make(path: str | Path | None = None, **config: Any) -> Memory:
        made.append(Memory(":memory:" if path is None else path, settings=Settings.from_dict(fake_models(**config))))
        return made[-1]

    yield make
    for memory in made:
        memory.close()


@pytest.fixture
def memory(make_memory: Callable[..., Memory]) -> Memory:
    """One on no disk."""
    return make_memory()


class Clerk:
    """Writes to a ledger as the house does, with models that need no files."""

    def __init__(self, ledger: Ledger, pool: ThreadPoolExecutor) -> None:
        self.ledger = ledger
        self.embedder = HashEmbedder(DIMS)
        self._enricher = Enricher(ledger, self.embedder, WordExtractor(), pool)

    def commit(
        self, *steps: Step, within: Scope | None = None, gap: timedelta = timedelta(minutes=30), now: datetime = NOON
    ) -> list[Outcome]:
        return commit(self.ledger, Plan(steps, now, within), gap)

    def say(
        self,
        text: str,
        *,
        at: datetime | float = 0,
        scope: Scope = Scope("alice"),
        name: str | None = None,
        enrich: bool = True,
        **more: Any,
    ) -> MemoryRecord:
        """Stores one message; `at` may be minutes after noon. Nobody's id counts as a speaker's name here."""
        moment = at if isinstance(at, datetime) else NOON + timedelta(minutes=at)
        (step,) = say([Message("user", text, moment, name=name)], scope, self.ledger.uuid, **more)
        record = self.commit(replace(step, speaker=name))[0].record
        assert record is not None
        if enrich:
            self.enrich()
        return self.record(record.id)

    def enrich(self) -> None:
        self._enricher.work()

    def record(self, uid: str) -> MemoryRecord:
        with self.ledger.read() as connection:
            found = memories.find(connection, uid)
        assert found is not None
        return found

    def rows(self, statement: Any) -> list[Any]:
        with self.ledger.read() as connection:
            return list(connection.execute(statement))

    def counts(self) -> dict[str, int]:
        with self.ledger.read() as connection:
            return audit.counts(connection)

    def wrong(self) -> list[str]:
        with self.ledger.read() as connection:
            return audit.wrong(connection)

    def view(self, scope: Scope = Scope("alice"), now: datetime = NOON + timedelta(days=1), **more: Any) -> View:
        return View(scope, now, space=scope.space, **more)


@pytest.fixture
def clerk() -> Iterator[Clerk]:
    """A clerk with a ledger in memory."""
    ledger = Ledger(None)
    with ThreadPoolExecutor(2) as pool:
        yield Clerk(ledger, pool)
    ledger.close()
