"""Enrichment: computes vectors, tokens and extractions of texts, in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import replace
from typing import TypeVar

from graphmem.commands.types import StoreEnrichment
from graphmem.concurrency import Pool
from graphmem.errors import EmbedderUnavailable, ModelError, StoreError
from graphmem.extraction import Extractor
from graphmem.ingest.messages import is_bare_id
from graphmem.model import VECTOR, EmbeddingSpec, EntityType, Extraction, Kind, MemoryRecord, SpaceVector, Utterance
from graphmem.observers import Observers
from graphmem.plugins import Embedded, Embedder, TokenEmbedder, embedding_spec_of
from graphmem.recent import Recent
from graphmem.stores.ledger import Ledger, embeddings, entity_names, memories
from graphmem.stores.ledger.ledger_state import are_of, check_embedder
from graphmem.text import content_hash, normalise_key

T = TypeVar("T")

# A sentence in which the extractor reads a name that a language model gives: alone, "schools" is no entity.
NAME_FRAME = "There was the matter of {}."
# Names of which is kept what their keys are.
MAX_KNOWN_NAMES = 2_000


class Enricher:
    """Computes the enrichment of texts with an embedder and an extractor, for the commit of whoever asks for it."""

    def __init__(
        self, ledger: Ledger, embedder: Embedder, extractor: Extractor | None, pool: Pool, observers: Observers
    ) -> None:
        self._ledger = ledger
        self._embedder = embedder
        self.spec = embedding_spec_of(embedder)
        self._extractor = extractor
        self._pool = pool
        self._observers = observers
        self._name_keys = Recent[str, str](MAX_KNOWN_NAMES)

    def compute_each(self, records: Sequence[MemoryRecord]) -> tuple[dict[int, StoreEnrichment], dict[int, ModelError]]:
        """Computes the enrichment of stored memories; returns it by row, and the error of each that failed, by row.

        If the models fail, the texts at which they do are looked for by halving, unless the endpoint is unavailable or
        both halves fail: then all have failed. Raises EmbedderChanged, as `compute` does, and WorkStopped.
        """
        if not records:
            return {}, {}
        try:
            return _by_row(records, self.compute(records)), {}
        except ModelError as error:
            return self._compute_halves(records, error)

    def _compute_halves(
        self, records: Sequence[MemoryRecord], error: ModelError
    ) -> tuple[dict[int, StoreEnrichment], dict[int, ModelError]]:
        all_failed = {record.row: error for record in records}
        if len(records) == 1 or isinstance(error, EmbedderUnavailable):
            return {}, all_failed
        middle = len(records) // 2
        computed: dict[int, StoreEnrichment] = {}
        failing: Sequence[MemoryRecord] = ()
        for half in (records[:middle], records[middle:]):
            try:
                computed |= _by_row(half, self.compute(half))
            except ModelError as half_error:
                failing, error = half, half_error
        if not computed:
            return {}, all_failed
        others, failed = self._compute_halves(failing, error) if failing else ({}, {})
        return computed | others, failed

    def compute(self, records: Sequence[MemoryRecord]) -> tuple[StoreEnrichment, ...]:
        """Computes the enrichment of memories, stored or not, as one command for each, in order.

        A text whose vectors are in the ledger is not embedded again. Raises ModelError, and EmbedderChanged where the
        ledger's vectors are of another embedder.
        """
        hashes = [content_hash(record.partition, record.embedded_text) for record in records]
        with self._ledger.read_once() as connection:
            recorded, cached = embeddings.cached_hashes(connection, self.spec, list(set(hashes)))
        if not are_of(recorded, self.spec, self._ledger.uuid):  # after `reset`
            check_embedder(self._ledger, self.spec)
        new_texts = {h: record.embedded_text for h, record in zip(hashes, records, strict=True) if h not in cached}
        texts = list(dict.fromkeys(new_texts.values()))  # several partitions may have one
        # Both in the pool: an error from there is a model's, whatever its type. A signal handler raises in the main
        # thread only.
        extracting = self._pool.submit(copy_context().run, self._extract, records)
        embedding = self._pool.submit(copy_context().run, self._embed, texts)
        embedded_each, extractions = _of_model(embedding), _of_model(extracting)
        embedded_texts = dict(zip(texts, embedded_each, strict=True))
        embedded = {h: embedded_texts[text] for h, text in new_texts.items()}
        return tuple(
            StoreEnrichment(record.id, record.version, self.spec, h, embedded.get(h), extraction)
            for record, h, extraction in zip(records, hashes, extractions, strict=True)
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
        utterances = []
        for record in records:
            is_fact = record.kind is Kind.FACT
            role_name = _role_name(record) if is_fact else ""
            is_id = is_bare_id(record.speaker, record.role, record.scope) and _person(record) not in known
            speaker = record.speaker or role_name or None
            utterances.append(Utterance(record.text, speaker, is_fact, is_id, role_name))
        extractions = self._extractor.extract(utterances)
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


def _of_model(task: Future[T]) -> T:
    """Returns a model's result. Raises ModelError for whatever the model raises, and StoreError of the ledger."""
    try:
        return task.result()
    except (ModelError, StoreError):
        raise
    except Exception as error:
        raise ModelError(f"a model failed with {type(error).__name__}") from error


def _by_row(records: Sequence[MemoryRecord], enrichments: Sequence[StoreEnrichment]) -> dict[int, StoreEnrichment]:
    return {record.row: enrichment for record, enrichment in zip(records, enrichments, strict=True)}


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
