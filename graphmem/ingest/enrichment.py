"""What is computed from the words: vectors beside entities and relations, both at once, then one commit."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future, wait
from contextvars import copy_context
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from graphmem.commands.types import ChangeSet, Outcome, StoreEnrichment
from graphmem.commands.unit_of_work import commit
from graphmem.errors import ModelError
from graphmem.extraction.protocols import Extractor
from graphmem.model import Extraction, Kind, MemoryRecord, Utterance
from graphmem.models.protocols import Embedded, Embedder, TokenEmbedder, embedding_spec_of
from graphmem.stores.ledger import Ledger, embeddings, memories, outbox
from graphmem.text import content_hash, normalise_key

# Large enough for the models to find texts of one length (256 instead of 64: a fifth faster), small enough that a
# crash repeats little.
BATCH = 256


class Enricher:
    """Does the recorded tasks. Doing one twice, or in two processes, is harmless: the commit takes the first."""

    def __init__(self, ledger: Ledger, embedder: Embedder, extractor: Extractor | None, pool: Executor) -> None:
        self._ledger = ledger
        self._embedder = embedder
        self.spec = embedding_spec_of(embedder)
        self._extractor = extractor
        self._pool = pool

    def process_pending(self, rows: Sequence[int] | None = None) -> None:
        """Does the tasks of these memories, or all there are.

        Raises ModelError when a model fails; the failed tasks stay, with the error's name, and are tried again later.
        """
        todo = self._pending_rows(rows)
        storing: list[Future[list[Outcome]]] = []
        try:
            for start in range(0, len(todo), BATCH):
                change_set = ChangeSet(self._computed(todo[start : start + BATCH]), datetime.now(UTC))
                wait(storing)
                # Stored while the models are at the next batch.
                storing.append(self._pool.submit(commit, self._ledger, change_set, timedelta(0)))
        finally:
            for stored in storing:
                stored.result()

    def _pending_rows(self, rows: Sequence[int] | None) -> list[int]:
        with self._ledger.read() as connection:
            if rows is None:
                return outbox.pending(connection, 1_000_000)
            return [
                row
                for start in range(0, len(rows), memories.BATCH)
                for row in outbox.pending(connection, memories.BATCH, rows[start : start + memories.BATCH])
            ]

    def _computed(self, rows: Sequence[int]) -> tuple[StoreEnrichment, ...]:
        with self._ledger.read() as connection:
            records = list(memories.records_by_row(connection, rows).values())
        try:
            return self.compute(records)
        except ModelError as error:
            with self._ledger.write() as connection:
                outbox.record_failure(connection, rows, type(error).__name__)
            raise

    def compute(self, records: Sequence[MemoryRecord]) -> tuple[StoreEnrichment, ...]:
        """The steps for these memories: texts the ledger knows are not embedded again."""
        hashes = [content_hash(record.embedded_text) for record in records]
        with self._ledger.read() as connection:
            known = embeddings.cached_hashes(connection, self.spec, list(set(hashes)))
        fresh = {h: r.embedded_text for h, r in zip(hashes, records, strict=True) if h not in known}
        # Both in the pool: a model may fail in any way, and its errors are told from what a signal's handler raises,
        # which runs in the main thread only, by where they come from.
        extracting = self._pool.submit(self._extract, records)
        embedding = self._pool.submit(copy_context().run, self._embed, list(fresh.values()))
        embedded = dict(zip(fresh, embedding.result(), strict=True))
        return tuple(
            StoreEnrichment(record.id, record.version, self.spec, h, embedded.get(h), found)
            for record, h, found in zip(records, hashes, extracting.result(), strict=True)
        )

    def _embed(self, texts: Sequence[str]) -> list[Embedded]:
        if not texts:
            return []
        if isinstance(self._embedder, TokenEmbedder):
            return self._embedder.embed_tokens(texts)
        return [Embedded(vectors, ()) for vectors in self._embedder.embed(texts)]

    def _extract(self, records: Sequence[MemoryRecord]) -> list[Extraction]:
        if self._extractor is None:
            return [Extraction() for _ in records]
        found = self._extractor.extract([_utterance(record) for record in records])
        return [_counted(record, one) for record, one in zip(records, found, strict=True)]


def _utterance(record: MemoryRecord) -> Utterance:
    if record.kind is not Kind.FACT:
        return Utterance(record.text, record.speaker)
    return Utterance(record.text, record.speaker or _nameless(record), is_fact=True)


def _counted(record: MemoryRecord, found: Extraction) -> Extraction:
    """What counts of what was found in a memory's text.

    Facts state what a mere source says, the model's relations among them. A speaker without a name is only mentioned
    where something is stated of them.
    """
    if record.source_only:
        return replace(found, statements=())
    if record.kind is not Kind.FACT or record.speaker:
        return found
    speaker = normalise_key(_nameless(record))
    if any(speaker in (said.subject, said.object) for said in found.statements):
        return found
    return replace(found, mentions=tuple(mention for mention in found.mentions if mention.key != speaker))


def _nameless(record: MemoryRecord) -> str:
    return (record.role or "user").title()
