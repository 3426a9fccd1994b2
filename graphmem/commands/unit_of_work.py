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
from graphmem.stores.ledger import (
    Ledger,
    embeddings,
    entity_names,
    events,
    graph_writes,
    memories,
    outbox,
    term_stats,
    tombstones,
)
from graphmem.stores.ledger.schema import dead_letters, links, tasks
from graphmem.stores.ledger.schema import memories as memories_table
from graphmem.text import is_passage

NOT_FOUND = "no memory {id!r:.80} in this scope; `search` and `get_all` give the ids that exist"


def commit(ledger: Ledger, change_set: ChangeSet, session_gap: timedelta) -> list[Outcome]:
    """Carries out every step, or none.

    Returns one outcome for each step, in order. Raises NotFoundError for an id that is not there (or outside
    `plan.within`), ValidationError for a message id that comes with other words, StoreUnavailable.
    """
    with ledger.write() as connection:
        uow = UnitOfWork(connection, ledger.digests, change_set, session_gap)
        outcomes = [execute(command, uow) for command in change_set.commands]
        for partition in uow.unsure_in:
            entities.delete_unmentioned_names(connection, partition)
        return outcomes


class UnitOfWork:
    """One plan being carried out on one connection."""

    def __init__(self, connection: Connection, digests: Digests, change_set: ChangeSet, session_gap: timedelta) -> None:
        self.connection = connection
        self.digests = digests
        self.now = change_set.now
        self.within = change_set.within
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
        return outbox.next_seq(self.connection)

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
        events.add_event(self.connection, event, record, now=self.now, **named)


@singledispatch
def execute(command: Command, uow: UnitOfWork) -> Outcome:
    """Carries out one step."""
    raise NotImplementedError(type(command).__name__)


@execute.register
def _(command: AddMessage, uow: UnitOfWork) -> Outcome:
    connection = uow.connection
    known = None if command.key is None else tombstones.message_lookup(connection, command.key)
    if known is not None:
        return _existing_message(command, uow, *known)
    record = _episode(command, uow)
    record = replace(record, row=memories.insert(connection, record, uow.partition(record)))
    uow.insert_into_session(record)
    uow.add_event("ADD", record, new=record.text)
    if command.key is not None:
        tombstones.add_message_key(connection, command.key, record.id, command.words)
    outbox.enqueue(connection, record.row, record.version)
    if record.source_only:
        uow.said.append(record)
    return Outcome("ADD", record.id, record=record)


def _existing_message(command: AddMessage, uow: UnitOfWork, memory: str, words: str | None) -> Outcome:
    if words is None:
        return Outcome("NONE", memory, reason="erased")
    if words != command.words:
        raise ValidationError(
            f"messages: id {command.message.id!r} was stored in this scope with other words; "
            "give the new message an id of its own, or correct the memory with update()"
        )
    return Outcome("NONE", memory, record=memories.find(uow.connection, memory), reason="known")


def _episode(command: AddMessage, uow: UnitOfWork) -> MemoryRecord:
    message, scope, now = command.message, command.scope, uow.now
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
        session=uow.session(scope, message.at, message.name, message.content, message.document),
        expires_at=command.expires_at,
        memory_type=command.memory_type,
        metadata=command.metadata,
        speaker=command.speaker,
        actor_id=message.name,
        role=message.role,
        message_id=message.id,
        source_only=command.source_only,
        seq=uow.next_seq(),
    )


@execute.register
def _(command: StoreEnrichment, uow: UnitOfWork) -> Outcome:
    connection = uow.connection
    record = memories.find(connection, command.id)
    if record is None or record.version != command.version:
        return Outcome("NONE", command.id, reason="changed since")
    if not outbox.complete(connection, record.row, command.version):
        return Outcome("NONE", command.id, record=record, reason="done already")
    partition, tells = uow.partition(record), command.extraction.answer_types
    if not embeddings.store_enrichment(
        connection, record, partition, command.spec, command.text_hash, command.embedded, tells
    ):
        # The last other user of these vectors was erased while this was computed: they must be computed anew.
        outbox.enqueue(connection, record.row, record.version)
        return Outcome("NONE", command.id, record=record, reason="vectors erased since")
    record = replace(record, seq=uow.next_seq())
    memories.touch(connection, record.row, record.seq)
    if not graph_writes.has_mentions(connection, record.row):
        graph_writes.add(connection, record, partition, command.extraction)
        entities.link_new_names(connection, partition, command.extraction, uow.now, is_passage=is_passage(record.text))
    return Outcome("ENRICH", record.id, kind=record.kind, record=record)


def _remove_derived(record: MemoryRecord, uow: UnitOfWork, *, graph_too: bool = True) -> ErasureReport:
    """Takes out what was derived from a memory's words: vectors and counts, and what they mention and state."""
    connection = uow.connection
    text_hash, windows = embeddings.enrichment_state(connection, record.row)
    partition = uow.partition(record)
    parts = _withdraw(record, partition, uow) if graph_too else 0
    if text_hash is None:
        return ErasureReport(graph=parts)
    term_stats.update_term_counts(connection, record, partition, -1)
    vectors = embeddings.release_reference(connection, text_hash)
    embeddings.clear_enrichment(connection, record.row)
    return ErasureReport(points=windows, graph=parts, derived=vectors)


def _withdraw(record: MemoryRecord, partition: int, uow: UnitOfWork) -> int:
    """Takes a memory out of the graph; returns how many parts that were."""
    keys = entity_names.mentioned_keys(uow.connection, record.row)
    withdrawn = graph_writes.remove(uow.connection, record, uow.now, uow.digests)
    entities.prune_rule_links(uow.connection, partition, keys)
    return withdrawn.mentions + withdrawn.entities + withdrawn.relations


@execute.register
def _(command: ReindexMemory, uow: UnitOfWork) -> Outcome:
    record = uow.find(command.id)
    # What a language model found is kept: no extractor would find it again.
    _remove_derived(record, uow, graph_too=record.kind is not Kind.FACT)
    memories.touch(uow.connection, record.row, uow.next_seq())
    outbox.enqueue(uow.connection, record.row, record.version)
    return Outcome("NONE", record.id, kind=record.kind, record=record, reason="to be derived anew")


@execute.register
def _(command: UpdateMemory, uow: UnitOfWork) -> Outcome:
    record = uow.find(command.id)
    if _revised(record, command) == record:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="nothing to change")
    sources = facts.sources_of(command.sources, uow)
    if sources is None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason=facts.ERASED)
    if command.scope is not None:
        record = facts.add_scope(command.scope, record, uow)
    revised = _revised(record, command)
    before = {**memories.encode_record(record), **source_visibility.correction_details(uow, record)}
    if revised.text != record.text:
        before |= undo.derived_from(record, uow)
        _remove_derived(record, uow)
        revised = replace(revised, version=record.version + 1)
        outbox.enqueue(uow.connection, record.row, revised.version)
        if command.extraction is not None:
            graph_writes.add(uow.connection, revised, uow.partition(revised), command.extraction)
    revised = _store(revised, uow)
    source_visibility.update_corrected_sources(uow, record, revised, corrects=command.corrects)
    facts.link_sources(revised, sources, uow)
    uow.add_event("UPDATE", revised, old=record.text, new=revised.text, before=before, reason=command.reason)
    return Outcome("UPDATE", record.id, kind=record.kind, record=revised, previous=record.text)


def _revised(record: MemoryRecord, command: UpdateMemory) -> MemoryRecord:
    return replace(
        record,
        text=record.text if command.text is None else command.text,
        metadata=record.metadata if command.metadata is None else dict(command.metadata),
        expires_at=record.expires_at if isinstance(command.expires_at, Unset) else command.expires_at,
    )


def _store(record: MemoryRecord, uow: UnitOfWork) -> MemoryRecord:
    record = replace(record, updated_at=uow.now, seq=uow.next_seq())
    memories.update(uow.connection, record)
    return record


@execute.register
def _(command: RetireMemory, uow: UnitOfWork) -> Outcome:
    record = uow.find(command.id)
    if record.valid_to is not None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="retired already")
    if facts.sources_of(command.sources, uow) is None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason=facts.ERASED)
    if command.at < max(record.at, record.valid_from):  # an import may bring one that holds only from later on
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="older than what it would retire")
    before = memories.encode_record(record)
    retired = _store(replace(record, valid_to=command.at), uow)
    graph_writes.end_supports(uow.connection, retired, command.at)
    source_visibility.update_source_visibility(uow, retired, command.at)
    if command.successor is not None:
        successor = uow.find(command.successor)
        memories.add_link(uow.connection, successor.row, "replaces", record.row)
        memories.touch(uow.connection, successor.row, uow.next_seq())
    uow.add_event("RETIRE", retired, old=record.text, new=record.text, before=before, reason=command.reason)
    return Outcome(
        "RETIRE", record.id, kind=record.kind, record=retired, reason=command.reason, successor=command.successor
    )


@execute.register
def _(command: RestoreMemory, uow: UnitOfWork) -> Outcome:
    record = uow.find(command.id)
    if record.valid_to is None:
        return Outcome("NONE", record.id, kind=record.kind, record=record, reason="not retired")
    before = memories.encode_record(record)
    restored = _store(replace(record, valid_to=None), uow)
    graph_writes.reopen_supports(uow.connection, restored, record.valid_to)
    source_visibility.update_source_visibility(uow, restored, uow.now)
    for successor in memories.link_sources(uow.connection, record.row, "replaces"):
        memories.touch(uow.connection, successor.row, uow.next_seq())
    uow.connection.execute(links.delete().where(links.c.other == record.row, links.c.kind == "replaces"))
    uow.add_event("RESTORE", restored, old=record.text, new=record.text, before=before, reason=command.reason)
    return Outcome("RESTORE", record.id, kind=record.kind, record=restored, reason=command.reason)


@execute.register
def _(command: UndoEvent, uow: UnitOfWork) -> Outcome:
    outcome = execute(undo.reverse_command(command, uow), uow)
    if outcome.event == "NONE":
        raise ValidationError("event_id: it has been taken back already; history() shows by which event")
    return outcome


@execute.register
def _(command: DeleteMemory, uow: UnitOfWork) -> Outcome:
    if command.missing_ok and memories.find(uow.connection, command.id) is None:
        return Outcome("NONE", command.id, reason="not there")
    record = uow.find(command.id)
    kept = None if command.run_id is None else facts.remove_from_run(command.run_id, record, uow)
    if kept is not None:
        return Outcome("NONE", record.id, kind=record.kind, record=kept, reason="said elsewhere, too")
    gone = _with_its_words(record, uow)
    erased = sum((_erase(other, uow) for other in gone), ErasureReport())
    facts.enqueue_summaries([one for one in gone if one.kind is Kind.SUMMARY and one.id != record.id], uow)
    return Outcome("DELETE", record.id, kind=record.kind, record=record, previous=record.text, erased=erased)


def _with_its_words(record: MemoryRecord, uow: UnitOfWork) -> list[MemoryRecord]:
    """A memory that is to be erased, and all that has its words: its mere sources, and summaries of any of these."""
    connection = uow.connection
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
def _(command: FactCommand, uow: UnitOfWork) -> Outcome:
    return facts.execute_fact_command(command, uow)


@execute.register
def _(command: ImportCommand, uow: UnitOfWork) -> Outcome:
    return imports.execute_import(command, uow)


@execute.register
def _(command: EntityCommand, uow: UnitOfWork) -> Outcome:
    return Outcome("NAME", entities.execute_entity_command(uow.connection, command, uow.now))


def _erase(record: MemoryRecord, uow: UnitOfWork) -> ErasureReport:
    """Takes one memory out; its history keeps that it was, without the words."""
    connection, row = uow.connection, record.row
    stripped = _remove_derived(record, uow)
    uow.unsure_in.add(uow.partition(record))
    connection.execute(links.delete().where(or_(links.c.memory == row, links.c.other == row)))
    connection.execute(tasks.delete().where(tasks.c.memory == row))
    connection.execute(dead_letters.delete().where(dead_letters.c.memory == record.id))
    memories.set_further_runs(connection, row, ())
    uow.remove_from_session(record)
    seq = uow.next_seq()
    uow.add_event("DELETE", replace(record, seq=seq))
    events.erase_content(connection, record.id)
    tombstones.add_tombstone(connection, "memory", record.id, record.partition, record.scope, uow.now, seq)
    connection.execute(memories_table.delete().where(memories_table.c.id == row))
    return stripped + ErasureReport(ids=(record.id,), rows=1, graph=1)
