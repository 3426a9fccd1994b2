"""The handlers of commands that hide a memory, show it again, move it between layers and pin it.

`graphmem.commands.unit_of_work` calls them, each with its command and the transaction. A forgotten memory is hidden by
every store from `forgotten_at` on; nothing of it is erased.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from graphmem.commands import source_visibility
from graphmem.commands.types import (
    ForgetMemory,
    MergeMemory,
    MoveMemory,
    Outcome,
    OutcomeType,
    PinMemory,
    RememberMemory,
)
from graphmem.model import Layer, MemoryRecord
from graphmem.stores.ledger import memories, vitals

if TYPE_CHECKING:
    from graphmem.commands.unit_of_work import UnitOfWork

# The kind of link from a memory to those that it stands for.
COMPRESSES = "compresses"
CHANGED_SINCE, SAID_AGAIN = "changed since it was decided", "said again"


def forget_memory(command: ForgetMemory, uow: UnitOfWork) -> Outcome:
    """Hides a memory, and the source messages that no other fact shows.

    Changes nothing if the memory was changed, or found, since `command.decided` was read.
    """
    record = uow.find(command.id)
    if record.forgotten_at is not None:
        return _unchanged(record, "forgotten already")
    if command.decided is not None and command.decided != vitals.state_of(uow.connection, record):
        return _unchanged(record, CHANGED_SINCE)
    outcome = _change(replace(record, forgotten_at=uow.now), record, OutcomeType.FORGET, command, uow)
    source_visibility.update_forgotten_sources(uow, outcome.required_record)
    return outcome


def merge_memory(command: MergeMemory, uow: UnitOfWork) -> Outcome:
    """Hides a memory, links it to the one that stands for it, and gives that one the higher importance of both."""
    target = uow.find(command.into)
    if target.forgotten_at is not None or target.valid_to is not None or target.layer is not Layer.LONG_TERM:
        return _unchanged(uow.find(command.id), CHANGED_SINCE)
    outcome = forget_memory(
        ForgetMemory(command.id, f"{vitals.MERGED_INTO}{target.id}", command.batch, command.decided), uow
    )
    if outcome.event is not OutcomeType.FORGET:
        return outcome
    merged = outcome.required_record
    memories.add_link(uow.connection, target.row, COMPRESSES, merged.row)
    higher = max(target.importance, merged.importance)
    memories.update(uow.connection, replace(target, importance=higher, seq=uow.next_seq()))
    return outcome


def remember_memory(command: RememberMemory, uow: UnitOfWork) -> Outcome:
    """Shows a forgotten memory again, with its source messages; it begins anew, as if it had just been found."""
    record = uow.find(command.id)
    if record.forgotten_at is None:
        return _unchanged(record, "not forgotten")
    outcome = _change(replace(record, forgotten_at=None), record, OutcomeType.REMEMBER, command, uow)
    vitals.record_accesses(uow.connection, {record.row: vitals.Access(1, uow.now)})
    for standing_for_it in memories.records_linking_to(uow.connection, record.row, COMPRESSES):
        memories.set_seq(uow.connection, standing_for_it.row, uow.next_seq())
    memories.remove_links_to(uow.connection, record.row, COMPRESSES)
    source_visibility.update_forgotten_sources(uow, outcome.required_record)
    return outcome


def remembered(record: MemoryRecord, reason: str, uow: UnitOfWork) -> MemoryRecord:
    """Returns a memory that is not forgotten: one that is, is shown again first."""
    if record.forgotten_at is None:
        return record
    return remember_memory(RememberMemory(record.id, reason), uow).required_record


def move_memory(command: MoveMemory, uow: UnitOfWork) -> Outcome:
    """Moves a memory to another layer; changes nothing if it was changed since `command.decided` was read."""
    record = uow.find(command.id)
    if record.layer is command.layer:
        return _unchanged(record, "there already")
    if command.decided is not None and command.decided.seq != record.seq:
        return _unchanged(record, CHANGED_SINCE)
    event = OutcomeType.PROMOTE if command.layer is Layer.LONG_TERM else OutcomeType.DEMOTE
    return _change(replace(record, layer=command.layer), record, event, command, uow)


def pin_memory(command: PinMemory, uow: UnitOfWork) -> Outcome:
    """Pins a memory, so that no cycle forgets it, or unpins it; without an event, for it says what it said."""
    record = uow.find(command.id)
    if record.pinned is command.pinned:
        return _unchanged(record, "pinned already" if command.pinned else "not pinned")
    pinned = replace(record, pinned=command.pinned, seq=uow.next_seq())
    memories.update(uow.connection, pinned)
    return Outcome(OutcomeType.PIN, record.id, kind=record.kind, record=pinned)


def _change(
    changed: MemoryRecord,
    record: MemoryRecord,
    event: OutcomeType,
    command: ForgetMemory | RememberMemory | MoveMemory,
    uow: UnitOfWork,
) -> Outcome:
    """Stores a change of a memory's state, with its event; `updated_at` stays, for the words do."""
    changed = replace(changed, seq=uow.next_seq())
    memories.update(uow.connection, changed)
    before = memories.encode_record(record)
    event_id = uow.add_event(
        event.value,
        changed,
        old=record.text,
        new=record.text,
        before=before,
        reason=command.reason,
        batch=command.batch,
    )
    return Outcome(event, record.id, kind=record.kind, record=changed, reason=command.reason, event_id=event_id)


def _unchanged(record: MemoryRecord, reason: str) -> Outcome:
    return Outcome(OutcomeType.NONE, record.id, kind=record.kind, record=record, reason=reason)
