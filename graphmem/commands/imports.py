"""The handlers of import commands, for `graphmem.commands.dispatch`: of memories, tombstones, names, the lifecycle
and keys.

They come from another ledger or another program. Stored ones stay unchanged, so an interrupted import can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphmem.commands.types import (
    CountLackingKey,
    ImportAlias,
    ImportCycle,
    ImportEntityName,
    ImportLifecycle,
    ImportLink,
    ImportMemory,
    ImportTombstone,
    Outcome,
    OutcomeType,
)
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.extraction.entity_resolution import ChosenName
from graphmem.model import Kind, MemoryRecord, micros
from graphmem.stores.ledger import (
    embeddings,
    entity_names,
    events,
    memories,
    service_tables,
    tombstones,
    vitals,
)
from graphmem.stores.ledger.embeddings import Enriched

BROUGHT_BACK = "imported with restore=True"
# The outcome of a key that is valid in another ledger and unknown in this one.
LACKING_KEY = "lacking key"


def import_memories(commands: Sequence[ImportMemory], uow: UnitOfWork) -> list[Outcome]:
    """Stores imported memories with their histories, links and derived data, unless they are known or were erased."""
    to_enrich: list[MemoryRecord] = []
    outcomes = [_import_memory(command, uow, to_enrich) for command in commands]
    uow.enqueue_enrichments(to_enrich)
    return outcomes


def _import_memory(command: ImportMemory, uow: UnitOfWork, to_enrich: list[MemoryRecord]) -> Outcome:
    refusal = _reason_to_skip(command, uow)
    if refusal is not None:
        return Outcome(OutcomeType.NONE, command.record.id, kind=command.record.kind, reason=refusal)
    record = _insert(command.record, uow)
    _write_history(command, record, uow)
    if command.key is not None:
        tombstones.restore_message_key(uow.connection, command.key, record.id, command.content_digest)
    if command.vitals is not None:
        vitals.insert(uow.connection, record.row, command.vitals)
    skipped_links = sum(not _add_link(link, record, uow) for link in command.links)
    if not _store_derived(command, record, uow):
        to_enrich.append(record)
    return Outcome(OutcomeType.ADD, record.id, kind=record.kind, record=record, skipped_links=skipped_links)


def _reason_to_skip(command: ImportMemory, uow: UnitOfWork) -> str | None:
    """Returns "known" if the memory's id or message is stored, "erased" if it was, None if it is to be imported."""
    connection, uid = uow.connection, command.record.id
    if memories.find(connection, uid) is not None:
        return "known"
    message = None if command.key is None else tombstones.stored_messages(connection, [command.key]).get(command.key)
    if message is not None and message[1] is not None:
        return "known"
    was_erased = message is not None or tombstones.find_tombstone(connection, uid) is not None
    return "erased" if was_erased and not command.restore else None


def _insert(record: MemoryRecord, uow: UnitOfWork) -> MemoryRecord:
    session = record.session or uow.session_for(record.scope, record.at, record.actor_id, record.text)
    record = replace(record, session=session, seq=uow.next_seq(), attachments=uow.kept(record.attachments))
    record = replace(record, row=memories.insert(uow.connection, record, uow.partition_row(record)))
    if record.kind is Kind.EPISODE:
        uow.insert_into_session(record)
    return record


def _write_history(command: ImportMemory, record: MemoryRecord, uow: UnitOfWork) -> None:
    """Inserts a memory's imported events.

    If it was erased here, its events in this ledger (without words) come after the imported ones, then a RESTORE.
    """
    connection = uow.connection
    was_erased = tombstones.find_tombstone(connection, record.id) is not None
    own_events = events.history(connection, record.id) if was_erased else []
    if was_erased:
        events.delete_history(connection, record.id)
        tombstones.remove_tombstone(connection, record.id)
    if not command.events:
        event_id = events.add_event(connection, "ADD", record, now=record.created_at, new=record.text)
        if event_id is not None:
            uow.tell_of(event_id, "ADD", record, record.created_at)
    imported_ids = {event.id for event in command.events}
    history = [*command.events, *(event for event in own_events if event.id not in imported_ids)]
    for event_id, event in zip(events.insert_history(connection, history, record.seq), history, strict=True):
        uow.tell_of(event_id, event.event, record, event.updated_at)
    if was_erased:
        uow.add_event("RESTORE", record, new=record.text, reason=BROUGHT_BACK)


def _add_link(link: ImportLink, record: MemoryRecord, uow: UnitOfWork) -> bool:
    """Links a memory with a stored one of its partition; returns False for any other.

    A link across partitions would let `explain` show other people's memories as sources.
    """
    other = memories.find(uow.connection, link.other)
    if other is None or other.partition != record.partition or other.id == record.id:
        return False
    start, end = (other, record) if link.is_incoming else (record, other)
    memories.add_link(uow.connection, start.row, link.kind, end.row)
    if link.is_incoming:
        memories.set_seq(uow.connection, other.row, uow.next_seq())
    return True


def _store_derived(command: ImportMemory, record: MemoryRecord, uow: UnitOfWork) -> bool:
    """Stores an imported memory's extraction and vectors; returns whether both came with it.

    No aliases are added by rule here, because the export contains those of its ledger as records of their own.
    """
    connection, partition, extraction = uow.connection, uow.partition_row(record), command.extraction
    if extraction is not None:
        uow.add_to_graph(record, extraction)
        if command.embedded is not None:
            enriched = Enriched(record, partition, command.text_hash, extraction.answer_types, command.embedded)
            embeddings.store_embeddings_and_terms(connection, command.spec, [enriched])
            return True
    return False


def import_tombstone(command: ImportTombstone, uow: UnitOfWork) -> Outcome:
    """Records that a memory was erased in another ledger, unless it is stored here or its tombstone is."""
    connection = uow.connection
    if (
        memories.find(connection, command.id) is not None
        or tombstones.find_tombstone(connection, command.id) is not None
    ):
        return Outcome(OutcomeType.NONE, command.id, reason="known")
    seq = uow.next_seq()
    tombstones.add_tombstone(connection, "memory", command.id, command.scope.partition, command.scope, command.at, seq)
    events.insert_history(connection, command.events, seq)
    for key in command.keys:
        tombstones.restore_message_key(connection, key, command.id, None)
    return Outcome(OutcomeType.IMPORT_TOMBSTONE, command.id)


def import_alias(command: ImportAlias, uow: UnitOfWork) -> Outcome:
    """Stores an imported alias or its negation. A user's replaces a rule's; any other leaves a stored one unchanged.

    One between two spellings that an older release held apart says nothing any more.
    """
    partition, link = memories.partition_row(uow.connection, command.scope.partition), command.link
    if (
        partition is None
        or link.key == link.other
        or not entity_names.import_link(uow.connection, partition, link, micros(command.at), negated=command.negated)
    ):
        return Outcome(OutcomeType.NONE, command.link.key, reason="said already")
    uow.partitions_with_stale_names.add(partition)
    return Outcome(OutcomeType.NAME_ENTITY, command.link.key)


def import_entity_name(command: ImportEntityName, uow: UnitOfWork) -> Outcome:
    """Stores the imported name of an entity, unless it has a chosen name here."""
    partition = memories.partition_row(uow.connection, command.scope.partition)
    chosen = ChosenName(micros(command.at), command.name)
    if partition is None or not entity_names.import_chosen_name(uow.connection, partition, command.key, chosen):
        return Outcome(OutcomeType.NONE, command.key, reason="said already")
    uow.partitions_with_stale_names.add(partition)
    return Outcome(OutcomeType.NAME_ENTITY, command.key)


def import_lifecycle(command: ImportLifecycle, uow: UnitOfWork) -> Outcome:
    """Records since when the lifecycle is enabled in another ledger, if this one is new."""
    if not vitals.import_since(uow.connection, command.since):
        return Outcome(OutcomeType.NONE, "", reason="said already")
    return Outcome(OutcomeType.IMPORT_LIFECYCLE, "")


def import_cycle(command: ImportCycle, uow: UnitOfWork) -> Outcome:
    """Records the last cycle of a partition in another ledger, unless it had one here."""
    partition = memories.partition_row(uow.connection, command.scope.partition)
    if partition is None or not vitals.import_cycle(uow.connection, partition, command.cycle):
        return Outcome(OutcomeType.NONE, "", reason="said already")
    return Outcome(OutcomeType.IMPORT_LIFECYCLE, "")


def count_lacking_key(command: CountLackingKey, uow: UnitOfWork) -> Outcome:
    """Returns the reason `LACKING_KEY` for a key that is valid and unknown here, and another reason for any other."""
    key = command.key
    is_lacking = key.is_valid(uow.now) and service_tables.find_key(uow.connection, key.id) is None
    return Outcome(OutcomeType.NONE, key.id, reason=LACKING_KEY if is_lacking else "known or ended key")
