"""Enrichment: computes vectors, tokens and extractions of stored texts, in parallel, and commits them together."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event

from graphmem.commands.types import ChangeSet, Outcome, StoreEnrichment
from graphmem.commands.unit_of_work import commit
from graphmem.concurrency import Pool, raise_if_stopped, stoppable
from graphmem.errors import ModelError
from graphmem.extraction.protocols import Extractor
from graphmem.ingest.messages import is_bare_id
from graphmem.model import VECTOR, EmbeddingSpec, EntityType, Extraction, Kind, MemoryRecord, SpaceVector, Utterance
from graphmem.models.protocols import Embedded, Embedder, TokenEmbedder, embedding_spec_of
from graphmem.observers import Observers
from graphmem.recent import Recent
from graphmem.stores.ledger import Ledger, embeddings, entity_names, memories, outbox
from graphmem.stores.ledger.embedder import check_embedder
from graphmem.stores.ledger.outbox import AwaitingRow
from graphmem.text import content_hash, normalise_key

# Texts per commit, and their characters but for a single text. Models batch texts of similar length, so 256 is a fifth
# faster than 64; a crash repeats one batch, and whoever's turn is next waits for one.
BATCH, BATCH_CHARS = 256, 32_000
# Texts per commit while several partitions wait for their turn.
SHARED_BATCH = 32
# A sentence in which the extractor reads a name that a language model gives: alone, "schools" is no entity.
NAME_FRAME = "There was the matter of {}."
# Names of which is kept what their keys are.
MAX_KNOWN_NAMES = 2_000
# Characters of the longest text that is no long text: a few seconds of work, which closing waits for.
MAX_SHORT_CHARS = 50_000


class _Queue:
    """Memories that wait for enrichment, by partition: the one whose turn it is comes first."""

    def __init__(self, waiting: Iterable[AwaitingRow]) -> None:
        self._waiting: dict[int, deque[AwaitingRow]] = {}
        # The highest row that was ever in the queue.
        self.last = 0
        self.add(waiting)

    def add(self, waiting: Iterable[AwaitingRow]) -> None:
        for each in waiting:
            self._waiting.setdefault(each.partition, deque()).append(each)
            self.last = max(self.last, each.row)

    def take_batch(self) -> list[int]:
        """Returns the next rows of the partition whose turn it is, in order.

        Its further ones wait for the turns of all others.
        """
        most = BATCH if len(self._waiting) == 1 else SHARED_BATCH
        partition = next(iter(self._waiting))
        rows, batch, chars = self._waiting.pop(partition), list[int](), 0
        while rows and len(batch) < most and (not batch or chars + rows[0].chars <= BATCH_CHARS):
            chars += rows[0].chars
            batch.append(rows.popleft().row)
        if rows:
            self._waiting[partition] = rows
        return batch


class Enricher:
    """Carries out the enrichment tasks of the ledger. If two processes do the same task, the first commit counts."""

    def __init__(
        self, ledger: Ledger, embedder: Embedder, extractor: Extractor | None, pool: Pool, observers: Observers
    ) -> None:
        self._ledger = ledger
        self._embedder = embedder
        self.spec = embedding_spec_of(embedder)
        self._extractor = extractor
        self._pool = pool
        self._observers = observers
        self._stopped, self._stopped_short = Event(), Event()
        self._name_keys = Recent[str, str](MAX_KNOWN_NAMES)

    def stop(self, *, short_texts: bool) -> None:
        """Lets the enrichment of long texts, under way or called later, end early with WorkStopped.

        Their tasks stay recorded. `short_texts`: theirs, too; otherwise it goes on.
        """
        self._stopped.set()
        if short_texts:
            self._stopped_short.set()

    def process_pending(self, rows: Sequence[int] | None = None) -> None:
        """Enriches the memories of these rows that have a task, or all that have one; those with long texts last.

        Raises ModelError if a model fails; the failed tasks stay, with the error's name, and are tried again later.
        Raises EmbedderChanged, as `compute` does, and WorkStopped: after `stop` if a text is long, and when the program
        ends.
        """
        waiting = None if rows is None else self._awaiting(rows)
        self.enrich_short(waiting)
        self.enrich_long(waiting)

    def enrich_short(self, waiting: Sequence[AwaitingRow] | None = None) -> None:
        """Enriches those with short texts of these memories, or of all that have a task; partitions take turns.

        Of all, texts that are added before the end take their turns as well, so that none waits for all texts of
        another user. Those left over when the first ones are done are for the next call. Raises as `process_pending`
        does.
        """
        # Without a pool the results could not be committed.
        with stoppable(lambda: self._stopped_short.is_set() or not self._pool.takes_tasks):
            self._enrich(waiting, are_long=False)

    def enrich_long(self, waiting: Sequence[AwaitingRow] | None = None) -> None:
        """Enriches memories with long texts, one at a time, as `enrich_short` does those with short ones."""
        with stoppable(lambda: self._stopped.is_set() or not self._pool.takes_tasks):
            self._enrich(waiting, are_long=True)

    def has_long_texts(self) -> bool:
        """Returns whether a memory with a long text waits for enrichment."""
        return any(each.chars > MAX_SHORT_CHARS for each in self._awaiting())

    def _enrich(self, waiting: Sequence[AwaitingRow] | None, *, are_long: bool) -> None:
        def chosen(among: Iterable[AwaitingRow]) -> list[AwaitingRow]:
            return [each for each in among if (each.chars > MAX_SHORT_CHARS) is are_long]

        first = chosen(self._awaiting() if waiting is None else waiting)
        queue, last, unfinished = _Queue(first), max((each.row for each in first), default=0), len(first)
        commits: list[Future[list[Outcome]]] = []
        try:
            while unfinished:
                raise_if_stopped()
                batch = queue.take_batch()
                unfinished -= sum(row <= last for row in batch)
                change_set = ChangeSet(self._compute_tasks(batch), datetime.now(UTC))
                wait(commits)
                # Committed while the models compute the next batch.
                commits.append(self._pool.submit(commit, self._ledger, change_set, timedelta(0)))
                if waiting is None and unfinished:
                    queue.add(chosen(self._awaiting(after=queue.last)))
        finally:
            for future in commits:
                future.result()

    def _awaiting(self, rows: Sequence[int] | None = None, after: int = 0) -> list[AwaitingRow]:
        """Returns the memories, among `rows` or all above `after`, that have a task."""
        with self._ledger.read() as connection:
            if rows is None:
                return outbox.rows_awaiting_enrichment(connection, 1_000_000, after=after)
            return [
                each
                for start in range(0, len(rows), memories.BATCH)
                for each in outbox.rows_awaiting_enrichment(
                    connection, memories.BATCH, rows[start : start + memories.BATCH]
                )
            ]

    def _compute_tasks(self, rows: Sequence[int]) -> tuple[StoreEnrichment, ...]:
        with self._ledger.read() as connection:
            records = list(memories.records_by_row(connection, rows).values())
        try:
            return self.compute(records)
        except ModelError as error:
            with self._ledger.write() as connection:
                outbox.record_enrichment_failure(connection, rows, type(error).__name__)
            raise

    def compute(self, records: Sequence[MemoryRecord]) -> tuple[StoreEnrichment, ...]:
        """Computes the enrichment of memories, stored or not, as one command for each, in order.

        A text whose vectors are in the ledger is not embedded again. Raises ModelError, and EmbedderChanged where the
        ledger's vectors are of another embedder.
        """
        hashes = [content_hash(record.embedded_text) for record in records]
        check_embedder(self._ledger, self.spec)  # after `reset`, this records it again
        with self._ledger.read() as connection:
            cached = embeddings.cached_hashes(connection, self.spec, list(set(hashes)))
        new_texts = {h: record.embedded_text for h, record in zip(hashes, records, strict=True) if h not in cached}
        # Both in the pool: an error from there is a model's, whatever its type. A signal handler raises in the main
        # thread only.
        extracting = self._pool.submit(copy_context().run, self._extract, records)
        embedding = self._pool.submit(copy_context().run, self._embed, list(new_texts.values()))
        embedded = dict(zip(new_texts, embedding.result(), strict=True))
        return tuple(
            StoreEnrichment(record.id, record.version, self.spec, h, embedded.get(h), extraction)
            for record, h, extraction in zip(records, hashes, extracting.result(), strict=True)
        )

    def name_keys(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the keys under which the extractor finds entities in texts ("school" for "schools"), by name.

        A name in which it finds no single entity has its normalised form as key. Raises ModelError.
        """
        wanted = dict.fromkeys(names)
        keys = {name: key for name in wanted if (key := self._name_keys.get(name)) is not None}
        if new := [name for name in wanted if name not in keys]:
            extractions = [Extraction()] * len(new)
            if self._extractor is not None:
                sentences = [Utterance(NAME_FRAME.format(name)) for name in new]
                extractions = self._pool.submit(copy_context().run, self._extractor.extract, sentences).result()
            for name, extraction in zip(new, extractions, strict=True):
                normalised = normalise_key(name)
                same = (one.key for one in extraction.mentions if normalise_key(one.name) == normalised)
                self._name_keys[name] = keys[name] = next(same, normalised)
        return keys

    def embed_first_windows(self, texts: Sequence[str]) -> list[SpaceVector]:
        """Returns the vector of each text's first window (`first_vector`); nothing is stored. Raises ModelError."""
        if not texts:
            return []
        embedded = self._pool.submit(copy_context().run, self._embed, texts).result()
        return [first_vector(self.spec, one) for one in embedded]

    def _embed(self, texts: Sequence[str]) -> list[Embedded]:
        if not texts:
            return []
        with self._observers.model_call("embed"):
            if isinstance(self._embedder, TokenEmbedder):
                return self._embedder.embed_tokens(texts)
            return [Embedded(vectors, ()) for vectors in self._embedder.embed(texts)]

    def _extract(self, records: Sequence[MemoryRecord]) -> list[Extraction]:
        if self._extractor is None:
            return [Extraction() for _ in records]
        known = self._named_persons(records)
        extractions = self._extractor.extract([_utterance(record, known) for record in records])
        return [_adjusted(record, extraction) for record, extraction in zip(records, extractions, strict=True)]

    def _named_persons(self, records: Sequence[MemoryRecord]) -> set[tuple[str, str]]:
        """Returns those speakers known by an id, as (partition, key), whose name other memories have as a person's."""
        persons: set[tuple[str, str]] = set()
        speakers = {_person(each) for each in records if is_bare_id(each.speaker, each.role, each.scope)}
        if not speakers:
            return persons
        with self._ledger.read() as connection:
            for partition, key in speakers:
                row = memories.partition_row(connection, partition)
                entity = entity_names.existing_entities(connection, row, [key]).get(key)
                if entity is not None and entity.type is EntityType.PERSON:
                    persons.add((partition, key))
        return persons


def _utterance(record: MemoryRecord, named_persons: Collection[tuple[str, str]]) -> Utterance:
    is_fact = record.kind is Kind.FACT
    role_name = _role_name(record) if is_fact else ""
    is_id = is_bare_id(record.speaker, record.role, record.scope) and _person(record) not in named_persons
    return Utterance(record.text, record.speaker or role_name or None, is_fact, is_id, role_name)


def first_vector(spec: EmbeddingSpec, embedded: Embedded) -> SpaceVector:
    """Returns the vector of a text's first window, the multilingual one of a text that has no other."""
    if embedded.multilingual is None or len(embedded.vectors):
        return SpaceVector(VECTOR, embedded.vectors[0])
    return SpaceVector(spec.multilingual or VECTOR, embedded.multilingual)


def _person(record: MemoryRecord) -> tuple[str, str]:
    """Returns the partition and the entity key of a memory's speaker."""
    return record.scope.partition, normalise_key(record.speaker or "")


def _adjusted(record: MemoryRecord, extraction: Extraction) -> Extraction:
    """Removes the relations of source messages and summaries, and a fact's nameless speaker without a relation.

    The relations of a source message belong to the facts drawn from it, together with the language model's. A summary
    repeats what its messages say, in long sentences from which few relations are right.
    """
    if record.source_only or record.kind is Kind.SUMMARY:
        return replace(extraction, statements=())
    speaker = normalise_key(_role_name(record))
    if record.kind is not Kind.FACT or normalise_key(record.speaker or "") == speaker:
        return extraction
    if any(speaker in (statement.subject, statement.object) for statement in extraction.statements):
        return extraction
    return replace(extraction, mentions=tuple(mention for mention in extraction.mentions if mention.key != speaker))


def _role_name(record: MemoryRecord) -> str:
    return (record.role or "user").title()
