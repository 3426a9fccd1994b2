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
from graphmem.stores.ledger import entity_names, event_log, graph_writes, memories, text_statistics

if TYPE_CHECKING:
    from graphmem.commands.unit_of_work import UnitOfWork

BROUGHT_BACK = "imported with restore=True"


@singledispatch
def execute_import(step: ImportCommand, transaction: UnitOfWork) -> Outcome:
    """Carries out one of these steps."""
    raise NotImplementedError(type(step).__name__)


@execute_import.register(ImportMemory)
def _(step: ImportMemory, transaction: UnitOfWork) -> Outcome:
    kept_out = _kept_out(step, transaction)
    if kept_out is not None:
        return Outcome("NONE", step.record.id, kind=step.record.kind, reason=kept_out)
    record = _stored(step.record, transaction)
    _write_history(step, record, transaction)
    if step.key is not None:
        event_log.restore_message_key(transaction.connection, step.key, record.id, step.words)
    untied = sum(not _tied(tie, record, transaction) for tie in step.links)
    _derive(step, record, transaction)
    return Outcome("ADD", record.id, kind=record.kind, record=record, skipped_links=untied)


def _kept_out(step: ImportMemory, transaction: UnitOfWork) -> str | None:
    """Why a memory is not taken: its id or its message is known, or one of them was erased; None: it is taken."""
    connection, uid = transaction.connection, step.record.id
    if memories.find(connection, uid) is not None:
        return "known"
    said = None if step.key is None else event_log.message_lookup(connection, step.key)
    if said is not None and said[1] is not None:
        return "known"
    gone = said is not None or event_log.find_tombstone(connection, uid) is not None
    return "erased" if gone and not step.restore else None


def _stored(record: MemoryRecord, transaction: UnitOfWork) -> MemoryRecord:
    session = record.session or transaction.session(record.scope, record.at, record.actor_id, record.text)
    record = replace(record, session=session, seq=transaction.next_seq())
    record = replace(record, row=memories.insert(transaction.connection, record, transaction.partition(record)))
    if record.kind is Kind.EPISODE:
        transaction.insert_into_session(record)
    return record


def _write_history(step: ImportMemory, record: MemoryRecord, transaction: UnitOfWork) -> None:
    """The events it comes with. Of one that was erased here, what happened here follows them, without the words."""
    connection = transaction.connection
    erased = event_log.find_tombstone(connection, record.id) is not None
    here = event_log.history(connection, record.id) if erased else []
    if erased:
        event_log.delete_history(connection, record.id)
        event_log.remove_tombstone(connection, record.id)
    if not step.events:
        event_log.add_event(connection, "ADD", record, now=record.created_at, new=record.text)
    told = {event.id for event in step.events}
    event_log.insert_history(connection, [*step.events, *(one for one in here if one.id not in told)], record.seq)
    if erased:
        transaction.add_event("RESTORE", record, new=record.text, reason=BROUGHT_BACK)


def _tied(tie: ImportLink, record: MemoryRecord, transaction: UnitOfWork) -> bool:
    """Links a memory with one that is there. Only inside a partition: `explain` shows what a memory was drawn from."""
    other = memories.find(transaction.connection, tie.other)
    if other is None or other.partition != record.partition or other.id == record.id:
        return False
    start, end = (other, record) if tie.is_incoming else (record, other)
    memories.add_link(transaction.connection, start.row, tie.kind, end.row)
    if tie.is_incoming:
        memories.touch(transaction.connection, other.row, transaction.next_seq())
    return True


def _derive(step: ImportMemory, record: MemoryRecord, transaction: UnitOfWork) -> None:
    """Puts down what was found in the words and their vectors; what is lacking is owed.

    No rule looks for names that mean one: what the other ledger knew of them comes with it.
    """
    connection, partition, found = transaction.connection, transaction.partition(record), step.extraction
    if found is not None:
        graph_writes.add(connection, record, partition, found)
        if step.embedded is not None:
            text_statistics.store_enrichment(
                connection, record, partition, step.spec, step.text_hash, step.embedded, found.answer_types
            )
            return
    event_log.enqueue(connection, record.row, record.version)


@execute_import.register(ImportTombstone)
def _(step: ImportTombstone, transaction: UnitOfWork) -> Outcome:
    connection = transaction.connection
    if memories.find(connection, step.id) is not None or event_log.find_tombstone(connection, step.id) is not None:
        return Outcome("NONE", step.id, reason="known")
    seq = transaction.next_seq()
    event_log.add_tombstone(connection, "memory", step.id, step.scope.partition, step.scope, step.at, seq)
    event_log.insert_history(connection, step.events, seq)
    for key in step.keys:
        event_log.restore_message_key(connection, key, step.id, None)
    return Outcome("BURY", step.id)


@execute_import.register(ImportAlias)
def _(step: ImportAlias, transaction: UnitOfWork) -> Outcome:
    partition = memories.partition_row(transaction.connection, step.scope.partition)
    if partition is None or not entity_names.import_link(
        transaction.connection, partition, step.link, micros(step.at), negated=step.negated
    ):
        return Outcome("NONE", step.link.key, reason="said already")
    transaction.unsure_in.add(partition)
    return Outcome("NAME", step.link.key)


@execute_import.register(ImportEntityName)
def _(step: ImportEntityName, transaction: UnitOfWork) -> Outcome:
    partition = memories.partition_row(transaction.connection, step.scope.partition)
    chosen = ChosenName(micros(step.at), step.name)
    if partition is None or not entity_names.import_chosen_name(transaction.connection, partition, step.key, chosen):
        return Outcome("NONE", step.key, reason="said already")
    transaction.unsure_in.add(partition)
    return Outcome("NAME", step.key)
