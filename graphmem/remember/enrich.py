"""What is computed from the words: vectors beside entities and relations, both at once, then one commit."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from graphmem.errors import ModelError
from graphmem.model import Extraction, MemoryRecord, Utterance
from graphmem.providers.base import Embedder, Extractor
from graphmem.remember.commit import commit
from graphmem.remember.plan import Enrich, Plan
from graphmem.stores.ledger import Ledger, log, memories, statistics

# Large enough for the models to find texts of one length (256 instead of 64: a fifth faster), small enough that a
# crash repeats little.
BATCH = 256


class Enricher:
    """Does the recorded tasks. Doing one twice, or in two processes, is harmless: the commit takes the first."""

    def __init__(self, ledger: Ledger, embedder: Embedder, extractor: Extractor | None, pool: Executor) -> None:
        self._ledger = ledger
        self._embedder = embedder
        self._extractor = extractor
        self._pool = pool

    def work(self, rows: Sequence[int] | None = None) -> None:
        """Does the tasks of these memories, or all there are.

        Raises ModelError when a model fails; the failed tasks stay, with the error's name, and are tried again later.
        """
        todo = self._owed(rows)
        for start in range(0, len(todo), BATCH):
            self._batch(todo[start : start + BATCH])

    def _owed(self, rows: Sequence[int] | None) -> list[int]:
        with self._ledger.read() as connection:
            if rows is None:
                return log.owed(connection, 1_000_000)
            return [
                row
                for start in range(0, len(rows), memories.CHUNK)
                for row in log.owed(connection, memories.CHUNK, rows[start : start + memories.CHUNK])
            ]

    def _batch(self, rows: Sequence[int]) -> None:
        with self._ledger.read() as connection:
            records = list(memories.records_by_row(connection, rows).values())
        try:
            steps = self.compute(records)
        except ModelError as error:
            with self._ledger.write() as connection:
                log.failed(connection, rows, type(error).__name__)
            raise
        commit(self._ledger, Plan(steps, datetime.now(UTC)), timedelta(0))

    def compute(self, records: Sequence[MemoryRecord]) -> tuple[Enrich, ...]:
        """The steps for these memories: texts the ledger knows are not embedded again."""
        hashes = [text_hash(record.embedded_text) for record in records]
        with self._ledger.read() as connection:
            known = statistics.known_vectors(connection, self._embedder.model, list(set(hashes)))
        fresh = {h: r.embedded_text for h, r in zip(hashes, records, strict=True) if h not in known}
        extracting = self._pool.submit(self._extract, records)
        vectors = dict(zip(fresh, self._embedder.embed(list(fresh.values())), strict=True)) if fresh else {}
        return tuple(
            Enrich(record.id, record.version, self._embedder.model, h, vectors.get(h), found)
            for record, h, found in zip(records, hashes, extracting.result(), strict=True)
        )

    def _extract(self, records: Sequence[MemoryRecord]) -> list[Extraction]:
        if self._extractor is None:
            return [Extraction() for _ in records]
        return self._extractor.extract([Utterance(record.text, record.speaker) for record in records])


def text_hash(text: str) -> str:
    """The name under which a text's vectors are kept."""
    return blake2b(text.encode(), digest_size=16).hexdigest()
