"""The one writer: carries out a plan in one transaction: rows, events, sequence numbers, tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import singledispatch
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, or_

from graphmem.commands import entities, facts, imports, source_visibility, undo
from graphmem.commands.types import (
    AddMessage,
    ChangeSet,
    Command,
    DeleteMemory,
    EntityCommand,
    ErasureReport,
    FactCommand,
    ImportCommand,
    Outcome,
    ReindexMemory,
    RestoreMemory,
    RetireMemory,
    StoreEnrichment,
    UndoEvent,
    Unset,
    UpdateMemory,
)
from graphmem.digests import Digests
from graphmem.errors import NotFoundError, ValidationError
from graphmem.model import Kind, MemoryRecord, Scope
from graphmem.stores.ledger import Ledger, entity_names, event_log, graph_writes, memories, text_statistics
from graphmem.stores.ledger.schema import dead_letters, links, tasks
from graphmem.stores.ledger.schema import memories as memories_table
from graphmem.text import is_passage

NOT_FOUND = "no memory {id!r:.80} in this scope; `search` and `get_all` give the ids that exist"


def commit(ledger: Ledger, plan: ChangeSet, session_gap: timedelta) -> list[Outcome]:
    """Carries out every step, or none.

    Returns one outcome for each step, in order. Raises NotFoundError for an id that is not there (or outside
    `plan.within`), ValidationError for a message id that comes with other words, StoreUnavailable.
    """
    with ledger.write() as connection:
        transaction = UnitOfWork(connection, ledger.digests, plan, session_gap)
        outcomes = [execute(step, transaction) for step in plan.commands]
        for partition in transaction.unsure_in:
            entities.delete_unmentioned_names(connection, partition)
        return outcomes


class UnitOfWork:
    """One plan being carried out on one connection."""

    def __init__(self, connection: Connection, digests: Digests, plan: ChangeSet, session_gap: timedelta) -> None:
        self.connection = connection
        self.digests = digests
        self.now = plan.now
        self.within = plan.within
        self.session_gap = session_gap
        # Partitions where something may be said of names that no memory mentions (any more).
        self.unsure_in: set[int] = set()
        # Messages stored by this plan that facts will be drawn from.
        self.said: list[MemoryRecord] = []
        self._partitions: dict[str, int] = {}

    def find(self, uid: str) -> MemoryRecord:
        record = memories.find(self.connection, uid)
        if record is None or (self.within is not None and not record.is_in(self.within)):
            raise NotFoundError(NOT_FOUND.format(id=uid))
        return record

    def next_seq(self) -> int:
        return event_log.next_seq(self.connection)

    def partition(self, of: MemoryRecord | Scope) -> int:
        """The row of a partition, made if need be; asked for once, for on a server each question is a round trip."""
        if of.partition not in self._partitions:
            self._partitions[of.partition] = memories.ensure_partition(self.connection, of.partition)
        return self._partitions[of.partition]

    def session(self, scope: Scope, at: datetime, name: str | None, content: str, document: str | None = None) -> str:
        """The session of what was said then, by whoever that is, or of a part of a document."""
        if name is None and is_passage(content):
            # A document among other documents: what was imported before it is not what was said before it.
            return f"{memories.SINGLE_SESSION}{uuid4()}"
        if document is not None:
            return f"{memories.SINGLE_SESSION}{document}"
        if scope.run_id is not None:
            return scope.run_id
        near = memories.nearest_session(self.connection, self.partition(scope), scope, at, self.session_gap)
        return near or str(uuid4())

    def insert_into_session(self, record: MemoryRecord) -> None:
        """A new episode steps before the one that was said after it, if any."""
        after = memories.first_episode_after(self.connection, record, self.partition(record))
        if after is not None:
            memories.set_previous(self.connection, after, record.row, self.next_seq())

    def remove_from_session(self, record: MemoryRecord) -> None:
        """The episode after one that goes has the one before that before it now."""
        after = memories.next_row(self.connection, record.row)
        if after is not None:
            before = memories.previous_row(self.connection, record.row)
            memories.set_previous(self.connection, after, before, self.next_seq())

    def add_event(self, event: str, record: MemoryRecord, **named: Any) -> None:
        event_log.add_event(self.connection, event, record, now=self.now, **named)


@singledispatch
def execute(step: Command, transaction: UnitOfWork) -> Outcome:
    """Carries out one step."""
    raise NotImplementedError(type(step).__name__)


@execute.register
def _(step: AddMessage, transaction: UnitOfWork) -> Outcome:
    connection = transaction.connection
    known = None if step.key is None else event_log.message_lookup(connection, step.key)
    if known is not None:
        return _existing_message(step, transaction, *known)
    record = _episode(step, transaction)
    record = replace(record, row=memories.insert(connection, record, transaction.partition(record)))
    transaction.insert_into_session(record)
    transaction.add_event("ADD", record, new=record.text)
    if step.key is not None:
        event_log.add_message_key(connection, step.key, record.id, step.words)
    event_log.enqueue(connection, record.row, record.version)
    if record.source_only:
        transaction.said.append(record)
    return Outcome("ADD", record.id, record=record)


def _existing_message(step: AddMessage, transaction: UnitOfWork, memory: str, words: str | None) -> Outcome:
    if words is None:
        return Outcome("NONE", memory, reason="erased")
    if words != step.words:
        raise ValidationError(
            f"messages: id {step.message.id!r} was stored in this scope with other words; "
            "give the new message an id of its own, or correct the memory with update()"
        )
    return Outcome("NONE", memory, record=memories.find(transaction.connection, memory), reason="known")


def _episode(step: AddMessage, transaction: UnitOfWork) -> MemoryRecord:
    message, scope, now = step.message, step.scope, transaction.now
    return MemoryRecord(
        id=str(uuid4()),
        partition=scope.partition,
        scope=scope,
        kind=Kind.EPISODE,
        text=message.content,
        at=message.at,
        valid_from=message.at,
        created_at=now,
        updated_at=now,
        session=transaction.session(scope, message.at, message.name, message.content, message.document),
        expires_at=step.expires_at,
        memory_type=step.memory_type,
        metadata=step.metadata,
        speaker=step.speaker,
        actor_id=message.name,
        role=message.role,
        message_id=message.id,
        source_only=step.source_only,
        seq=transaction.next_seq(),
    )


@execute.register
def _(step: StoreEnrichment, transaction: UnitOfWork) -> Outcome:
    connection = transaction.connection
    record = memories.find(connection, step.id)
    if record is None or record.version != step.version:
        return Outcome("NONE", step.id, reason="changed since")
    if not event_log.complete(connection, record.row, step.version):
        return Outcome("NONE", step.id, record=record, reason="done already")
    partition, tells = transaction.partition(record), step.extraction.answer_types
    if not text_statistics.store_enrichment(
        connection, record, partition, step.spec, step.text_hash, step.embedded, tells
    ):
        # The last other user of these vectors was erased while this was computed: they must be computed anew.
        event_log.enqueue(connection, record.row, record.version)
        return Outcome("NONE", step.id, record=record, reason="vectors erased since")
    record = replace(record, seq=transaction.next_seq())
    memories.touch(connection, record.row, record.seq)
    if not graph_writes.has_mentions(connection, record.row):
        graph_writes.add(connection, record, partition, step.extraction)
        entities.link_new_names(
            connection, partition, step.extraction, transaction.now, is_passage=is_passage(record.text)
        )
    return Outcome("ENRICH", record.id, kind=record.kind, record=record)


def _remove_derived(record: MemoryRecord, transaction: UnitOfWork, *, graph_too: bool = True) -> ErasureReport:
    """Takes out what was derived from a memory's words: vectors and counts, and what they mention and state."""
    connection = transaction.connection
    text_hash, windows = text_statistics.enrichment_state(connection, record.row)
    partition = transaction.partition(record)
    parts = _withdraw(record, partition, transaction) if graph_too else 0
    if text_hash is None:
        return ErasureReport(graph=parts)
    text_statistics.update_term_counts(connection, record, partition, -1)
    vectors = text_statistics.release_reference(connection, text_hash)
    text_statistics.clear_enrichment(connection, record.row)
    return ErasureReport(points=windows, graph=parts, derived=vectors)


def _withdraw(record: MemoryRecord, partition: int, transaction: UnitOfWork) -> int:
    """Takes a memory out of the graph; returns how many parts that were."""
    keys = entity_names.mentioned_keys(transaction.connection, record.row)
    withdrawn = graph_writes.remove(transaction.connection, record, transaction.now, transaction.digests)
    entities.prune_rule_links(transaction.connection, partition, keys)
    return withdrawn.mentions + withdrawn.entities + withdrawn.relations


@execute.register
def _(step: ReindexMemory, transaction: UnitOfWork) -> Outcome:
    record = transaction.find(step.id)
    # What a language model found is kept: no extractor would find it again.
    _remove_derived(record, transaction, graph_too=record.kind is not Kind.FACT)
    memories.touch(transaction.connection, record.row, transaction.next_seq())
    event_log.enqueue(transaction.connection, record.row, record.version)
    return Outcome("NONE", record.id, kind=record.kind, record=record, reason="to be derived anew")


@execute.register
def _(step: UpdateMemory, transaction: UnitOfWork) -> Outcome:
    record = transaction.find(step.id)
    if _revised(record, step) == record:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="nothing to change")
    sources = facts.sources_of(step.sources, transaction)
    if sources is None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason=facts.ERASED)
    if step.scope is not None:
        record = facts.add_scope(step.scope, record, transaction)
    revised = _revised(record, step)
    before = {**memories.encode_record(record), **source_visibility.correction_details(transaction, record)}
    if revised.text != record.text:
        before |= undo.derived_from(record, transaction)
        _remove_derived(record, transaction)
        revised = replace(revised, version=record.version + 1)
        event_log.enqueue(transaction.connection, record.row, revised.version)
        if step.extraction is not None:
            graph_writes.add(transaction.connection, revised, transaction.partition(revised), step.extraction)
    revised = _store(revised, transaction)
    source_visibility.update_corrected_sources(transaction, record, revised, corrects=step.corrects)
    facts.link_sources(revised, sources, transaction)
    transaction.add_event("UPDATE", revised, old=record.text, new=revised.text, before=before, reason=step.reason)
    return Outcome("UPDATE", record.id, kind=record.kind, record=revised, previous=record.text)


def _revised(record: MemoryRecord, step: UpdateMemory) -> MemoryRecord:
    return replace(
        record,
        text=record.text if step.text is None else step.text,
        metadata=record.metadata if step.metadata is None else dict(step.metadata),
        expires_at=record.expires_at if isinstance(step.expires_at, Unset) else step.expires_at,
    )


def _store(record: MemoryRecord, transaction: UnitOfWork) -> MemoryRecord:
    record = replace(record, updated_at=transaction.now, seq=transaction.next_seq())
    memories.update(transaction.connection, record)
    return record


@execute.register
def _(step: RetireMemory, transaction: UnitOfWork) -> Outcome:
    record = transaction.find(step.id)
    if record.valid_to is not None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="retired already")
    if facts.sources_of(step.sources, transaction) is None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason=facts.ERASED)
    if step.at < max(record.at, record.valid_from):  # an import may bring one that holds only from later on
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="older than what it would retire")
    before = memories.encode_record(record)
    retired = _store(replace(record, valid_to=step.at), transaction)
    graph_writes.end_supports(transaction.connection, retired, step.at)
    source_visibility.update_source_visibility(transaction, retired, step.at)
    if step.successor is not None:
        successor = transaction.find(step.successor)
        memories.add_link(transaction.connection, successor.row, "replaces", record.row)
        memories.touch(transaction.connection, successor.row, transaction.next_seq())
    transaction.add_event("RETIRE", retired, old=record.text, new=record.text, before=before, reason=step.reason)
    return Outcome("RETIRE", record.id, kind=record.kind, record=retired, reason=step.reason, successor=step.successor)


@execute.register
def _(step: RestoreMemory, transaction: UnitOfWork) -> Outcome:
    record = transaction.find(step.id)
    if record.valid_to is None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="not retired")
    before = memories.encode_record(record)
    restored = _store(replace(record, valid_to=None), transaction)
    graph_writes.reopen_supports(transaction.connection, restored, record.valid_to)
    source_visibility.update_source_visibility(transaction, restored, transaction.now)
    for successor in memories.link_sources(transaction.connection, record.row, "replaces"):
        memories.touch(transaction.connection, successor.row, transaction.next_seq())
    transaction.connection.execute(links.delete().where(links.c.other == record.row, links.c.kind == "replaces"))
    transaction.add_event("RESTORE", restored, old=record.text, new=record.text, before=before, reason=step.reason)
    return Outcome("RESTORE", record.id, kind=record.kind, record=restored, reason=step.reason)


@execute.register
def _(step: UndoEvent, transaction: UnitOfWork) -> Outcome:
    outcome = execute(undo.reverse_command(step, transaction), transaction)
    if outcome.event == "NONE":
        raise ValidationError("event_id: it has been taken back already; history() shows by which event")
    return outcome


@execute.register
def _(step: DeleteMemory, transaction: UnitOfWork) -> Outcome:
    if step.missing_ok and memories.find(transaction.connection, step.id) is None:
        return Outcome("NONE", step.id, reason="not there")
    record = transaction.find(step.id)
    kept = None if step.run_id is None else facts.remove_from_run(step.run_id, record, transaction)
    if kept is not None:
        return Outcome("NONE", record.id, kind=record.kind, record=kept, reason="said elsewhere, too")
    gone = _with_its_words(record, transaction)
    erased = sum((_erase(other, transaction) for other in gone), ErasureReport())
    facts.enqueue_summaries([one for one in gone if one.kind is Kind.SUMMARY and one.id != record.id], transaction)
    return Outcome("DELETE", record.id, kind=record.kind, record=record, previous=record.text, erased=erased)


def _with_its_words(record: MemoryRecord, transaction: UnitOfWork) -> list[MemoryRecord]:
    """A memory that is to be erased, and all that has its words: its mere sources, and summaries of any of these."""
    connection = transaction.connection
    drawn_from = memories.link_targets(connection, record.row, "drawn_from") if record.kind is Kind.FACT else []
    sources = [source for source in drawn_from if source.source_only]
    found = {one.id: one for one in (record, *sources)}
    waiting = list(found.values())
    while waiting:
        drawn = memories.link_sources(connection, waiting.pop().row, "drawn_from")
        summaries = {one.id: one for one in drawn if one.kind is Kind.SUMMARY and one.id not in found}
        found |= summaries
        waiting += summaries.values()
    return list(found.values())


@execute.register
def _(step: FactCommand, transaction: UnitOfWork) -> Outcome:
    return facts.execute_fact_command(step, transaction)


@execute.register
def _(step: ImportCommand, transaction: UnitOfWork) -> Outcome:
    return imports.execute_import(step, transaction)


@execute.register
def _(step: EntityCommand, transaction: UnitOfWork) -> Outcome:
    return Outcome("NAME", entities.execute_entity_command(transaction.connection, step, transaction.now))


def _erase(record: MemoryRecord, transaction: UnitOfWork) -> ErasureReport:
    """Takes one memory out; its history keeps that it was, without the words."""
    connection, row = transaction.connection, record.row
    stripped = _remove_derived(record, transaction)
    transaction.unsure_in.add(transaction.partition(record))
    connection.execute(links.delete().where(or_(links.c.memory == row, links.c.other == row)))
    connection.execute(tasks.delete().where(tasks.c.memory == row))
    connection.execute(dead_letters.delete().where(dead_letters.c.memory == record.id))
    memories.set_further_runs(connection, row, ())
    transaction.remove_from_session(record)
    seq = transaction.next_seq()
    transaction.add_event("DELETE", replace(record, seq=seq))
    event_log.erase_content(connection, record.id)
    event_log.add_tombstone(connection, "memory", record.id, record.partition, record.scope, transaction.now, seq)
    connection.execute(memories_table.delete().where(memories_table.c.id == row))
    return stripped + ErasureReport(ids=(record.id,), rows=1, graph=1)
