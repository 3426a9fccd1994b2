"""Taking in what another ledger, or another program, has written: carried out by `commit`, as every step.

What is here stays as it is, so that an import that was broken off is simply repeated.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING

from graphmem.commands.types import (
    ImportAlias,
    ImportCommand,
    ImportEntityName,
    ImportLink,
    ImportMemory,
    ImportTombstone,
    Outcome,
)
from graphmem.extraction.entity_resolution import ChosenName
from graphmem.model import Kind, MemoryRecord, micros
from graphmem.stores.ledger import embeddings, entity_names, events, graph_writes, memories, outbox, tombstones

if TYPE_CHECKING:
    from graphmem.commands.unit_of_work import UnitOfWork

BROUGHT_BACK = "imported with restore=True"


@singledispatch
def execute_import(command: ImportCommand, uow: UnitOfWork) -> Outcome:
    """Carries out one of these steps."""
    raise NotImplementedError(type(command).__name__)


@execute_import.register(ImportMemory)
def _(command: ImportMemory, uow: UnitOfWork) -> Outcome:
    kept_out = _kept_out(command, uow)
    if kept_out is not None:
        return Outcome("NONE", command.record.id, kind=command.record.kind, reason=kept_out)
    record = _stored(command.record, uow)
    _write_history(command, record, uow)
    if command.key is not None:
        tombstones.restore_message_key(uow.connection, command.key, record.id, command.words)
    untied = sum(not _tied(tie, record, uow) for tie in command.links)
    _derive(command, record, uow)
    return Outcome("ADD", record.id, kind=record.kind, record=record, skipped_links=untied)


def _kept_out(command: ImportMemory, uow: UnitOfWork) -> str | None:
    """Why a memory is not taken: its id or its message is known, or one of them was erased; None: it is taken."""
    connection, uid = uow.connection, command.record.id
    if memories.find(connection, uid) is not None:
        return "known"
    said = None if command.key is None else tombstones.message_lookup(connection, command.key)
    if said is not None and said[1] is not None:
        return "known"
    gone = said is not None or tombstones.find_tombstone(connection, uid) is not None
    return "erased" if gone and not command.restore else None


def _stored(record: MemoryRecord, uow: UnitOfWork) -> MemoryRecord:
    session = record.session or uow.session(record.scope, record.at, record.actor_id, record.text)
    record = replace(record, session=session, seq=uow.next_seq())
    record = replace(record, row=memories.insert(uow.connection, record, uow.partition(record)))
    if record.kind is Kind.EPISODE:
        uow.insert_into_session(record)
    return record


def _write_history(command: ImportMemory, record: MemoryRecord, uow: UnitOfWork) -> None:
    """The events it comes with. Of one that was erased here, what happened here follows them, without the words."""
    connection = uow.connection
    erased = tombstones.find_tombstone(connection, record.id) is not None
    here = events.history(connection, record.id) if erased else []
    if erased:
        events.delete_history(connection, record.id)
        tombstones.remove_tombstone(connection, record.id)
    if not command.events:
        events.add_event(connection, "ADD", record, now=record.created_at, new=record.text)
    told = {event.id for event in command.events}
    events.insert_history(connection, [*command.events, *(one for one in here if one.id not in told)], record.seq)
    if erased:
        uow.add_event("RESTORE", record, new=record.text, reason=BROUGHT_BACK)


def _tied(tie: ImportLink, record: MemoryRecord, uow: UnitOfWork) -> bool:
    """Links a memory with one that is there. Only inside a partition: `explain` shows what a memory was drawn from."""
    other = memories.find(uow.connection, tie.other)
    if other is None or other.partition != record.partition or other.id == record.id:
        return False
    start, end = (other, record) if tie.is_incoming else (record, other)
    memories.add_link(uow.connection, start.row, tie.kind, end.row)
    if tie.is_incoming:
        memories.touch(uow.connection, other.row, uow.next_seq())
    return True


def _derive(command: ImportMemory, record: MemoryRecord, uow: UnitOfWork) -> None:
    """Puts down what was found in the words and their vectors; what is lacking is owed.

    No rule looks for names that mean one: what the other ledger knew of them comes with it.
    """
    connection, partition, found = uow.connection, uow.partition(record), command.extraction
    if found is not None:
        graph_writes.add(connection, record, partition, found)
        if command.embedded is not None:
            embeddings.store_enrichment(
                connection, record, partition, command.spec, command.text_hash, command.embedded, found.answer_types
            )
            return
    outbox.enqueue(connection, record.row, record.version)


@execute_import.register(ImportTombstone)
def _(command: ImportTombstone, uow: UnitOfWork) -> Outcome:
    connection = uow.connection
    if (
        memories.find(connection, command.id) is not None
        or tombstones.find_tombstone(connection, command.id) is not None
    ):
        return Outcome("NONE", command.id, reason="known")
    seq = uow.next_seq()
    tombstones.add_tombstone(connection, "memory", command.id, command.scope.partition, command.scope, command.at, seq)
    events.insert_history(connection, command.events, seq)
    for key in command.keys:
        tombstones.restore_message_key(connection, key, command.id, None)
    return Outcome("BURY", command.id)


@execute_import.register(ImportAlias)
def _(command: ImportAlias, uow: UnitOfWork) -> Outcome:
    partition = memories.partition_row(uow.connection, command.scope.partition)
    if partition is None or not entity_names.import_link(
        uow.connection, partition, command.link, micros(command.at), negated=command.negated
    ):
        return Outcome("NONE", command.link.key, reason="said already")
    uow.unsure_in.add(partition)
    return Outcome("NAME", command.link.key)


@execute_import.register(ImportEntityName)
def _(command: ImportEntityName, uow: UnitOfWork) -> Outcome:
    partition = memories.partition_row(uow.connection, command.scope.partition)
    chosen = ChosenName(micros(command.at), command.name)
    if partition is None or not entity_names.import_chosen_name(uow.connection, partition, command.key, chosen):
        return Outcome("NONE", command.key, reason="said already")
    uow.unsure_in.add(partition)
    return Outcome("NAME", command.key)
