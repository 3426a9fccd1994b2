"""Fake models, and a clerk that writes to a ledger as the engine does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import sleep
from types import MappingProxyType
from typing import Any

import numpy as np

from graphmem.commands.dispatch import commit
from graphmem.commands.types import ChangeSet, Command, MergeMemory, MoveMemory, Outcome
from graphmem.concurrency import Pool
from graphmem.extraction import Extractor
from graphmem.ingest.enrichment import Enricher
from graphmem.ingest.messages import message_commands
from graphmem.model import Layer, MemoryRecord, Message, Scope, View
from graphmem.models.two_spaces import SentenceEncoder, TwoSpaceEmbedder
from graphmem.observers import Observers
from graphmem.plugins import Embedder, Matrix
from graphmem.stores.ledger import Ledger, integrity, jobs, memories
from graphmem.testing import HashEmbedder, WordExtractor
from graphmem.text import tokens

DIMS = 64
SLOW_SECONDS = 0.2
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def hash_texts(texts: list[str]) -> list[Any]:
    """An embedding function for `embedder: callable`: one vector for each text, by its words."""
    return [HashEmbedder(DIMS).embed_query(text) for text in texts]


def slow_embedder() -> dict[str, Any]:
    """The setting of an embedder that takes long for texts, and not for questions."""

    def embed(texts: list[str]) -> list[Any]:
        if not texts[0].endswith("?"):
            sleep(SLOW_SECONDS)
        return hash_texts(texts)

    return {"provider": "callable", "config": {"embed": embed, "embedding_dims": DIMS, "model": "slow"}}


def fake_models(**config: Any) -> dict[str, Any]:
    """A configuration whose models are fakes; `config` is laid over it."""
    embedder = {"provider": "callable", "config": {"embed": hash_texts, "embedding_dims": DIMS, "model": "hash"}}
    return {"embedder": embedder, "extractor": {"provider": "none"}, **config}


def merging(memory: str, into: str) -> tuple[Command, Command]:
    """The commands by which a cycle merges one memory into another, which it keeps."""
    return MoveMemory(into, Layer.LONG_TERM, "keeps"), MergeMemory(memory, into)


class HashEncoder:
    """A multilingual encoder: texts of the same words in any of the `DICTIONARY`'s languages have the same vector."""

    model, dims = "hash-multilingual", 2 * DIMS
    DICTIONARY = MappingProxyType({"安娜": "Anna", "画画": "paints", "Анна": "Anna", "рисует": "paints"})

    def encode(self, texts: Sequence[str]) -> Matrix:
        return np.stack([HashEmbedder(self.dims).embed_query(self._translated(text)) for text in texts])

    def ranking_vector(self, vector: Matrix) -> Matrix:
        return vector

    def _translated(self, text: str) -> str:
        for word, translation in self.DICTIONARY.items():
            text = text.replace(word, f" {translation} ")
        return text


def two_space_embedder(multilingual: SentenceEncoder | None = None) -> TwoSpaceEmbedder:
    """An embedder whose first model reads ASCII alone."""
    return TwoSpaceEmbedder(LocatingHashEmbedder(DIMS), multilingual or HashEncoder(), str.isascii)


class LocatingHashEmbedder(HashEmbedder):
    """A HashEmbedder that locates its tokens."""

    def token_places(self, text: str) -> list[list[int]]:
        return [[text.lower().find(word) for word in tokens(text)]]


class Clerk:
    """Writes to a ledger as the engine does, with models that need no files."""

    def __init__(self, ledger: Ledger, pool: Pool, extractor: Extractor | None = None) -> None:
        self.ledger = ledger
        self._pool = pool
        self._extractor = extractor or WordExtractor()
        self.use(HashEmbedder(DIMS))

    def use(self, embedder: Embedder) -> None:
        """Embeds later texts with this model."""
        self.embedder = embedder
        self.enricher = Enricher(self.ledger, embedder, self._extractor, self._pool, Observers())
        self.spec = self.enricher.spec

    def commit(
        self, *steps: Command, within: Scope | None = None, gap: timedelta = timedelta(minutes=30), now: datetime = NOON
    ) -> list[Outcome]:
        return commit(self.ledger, ChangeSet(steps, now, within), gap)

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
        """Stores one message; `at` may be minutes after noon. Without `name` the memory has no speaker."""
        moment = at if isinstance(at, datetime) else NOON + timedelta(minutes=at)
        (step,) = message_commands([Message("user", text, moment, name=name)], scope, self.ledger.digests, **more)
        record = self.commit(replace(step, speaker=name))[0].record
        assert record is not None
        if enrich:
            self.enrich()
        return self.record(record.id)

    def enrich(self) -> None:
        with self.ledger.read() as connection:
            texts = jobs.claimable_enrichments(connection, "", by_force=True)
            records = memories.records_by_row(connection, [text.row for text in texts])
        if records:
            self.commit(*self.enricher.compute(list(records.values())))

    def record(self, uid: str) -> MemoryRecord:
        with self.ledger.read() as connection:
            record = memories.find(connection, uid)
        assert record is not None
        return record

    def rows(self, statement: Any) -> list[Any]:
        with self.ledger.read() as connection:
            return list(connection.execute(statement))

    def counts(self) -> dict[str, int]:
        with self.ledger.read() as connection:
            return integrity.counts(connection)

    def find_damage(self) -> list[str]:
        with self.ledger.read() as connection:
            return integrity.inconsistent_columns(connection)

    def view(self, scope: Scope = Scope("alice"), now: datetime = NOON + timedelta(days=1), **more: Any) -> View:
        return View(scope, now, partition=scope.partition, **more)
