"""Taking an update or a retirement back: which step reverses an event. A part of `commit`.

Only the fields that the event changed go back: those in which the state before it differs from the state after it,
which is the one before the next event, or else the memory's own. If one of them was changed again since, nothing is
taken back, for that would discard the later change.

What a language model found in a fact's words goes with them when they change, and no extractor would find it again. So
the event keeps it, beside the columns, for going back to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from graphmem.commands.types import UNSET, RestoreMemory, UndoEvent, UpdateMemory
from graphmem.errors import NotFoundError, ValidationError
from graphmem.model import (
    Event,
    Extraction,
    Kind,
    MemoryRecord,
    Mention,
    Statement,
    micros,
)
from graphmem.stores.ledger import events, graph_reads, memories
from graphmem.stores.ledger.decoding import entity_type, mention_kind, moment

if TYPE_CHECKING:
    from graphmem.commands.unit_of_work import UnitOfWork

DERIVED = "derived"
_TIMES = ("valid_at", "invalid_at")
# What an update or a retirement changes of a memory: the names in `Event.before`, and those that callers know.
_FIELDS = {"text": "text", "metadata": "metadata", "expires_at": "expiration_date", "valid_to": "valid_to"}


def reverse_command(command: UndoEvent, uow: UnitOfWork) -> RestoreMemory | UpdateMemory:
    """The step that takes an event back.

    Raises NotFoundError for one outside the plan's scope, ValidationError for one that cannot be taken back.
    """
    event = events.find_event(uow.connection, command.event)
    there = None if event is None else memories.find(uow.connection, event.memory_id)
    if event is None or there is None or (uow.within and not there.is_in(uow.within)):
        raise NotFoundError(
            f"no event {command.event!r:.80} in this scope; history() and explain() give the ids there are"
        )
    if event.event == "SCOPE":
        raise ValidationError(
            f"event_id: SCOPE {event.id!r} cannot be taken back: what was said in a run was said there; "
            "delete_all(run_id=…) takes the memory out of a run"
        )
    if event.event not in {"UPDATE", "RETIRE"} or event.previous_state is None:
        raise ValidationError(
            f"event_id: {event.event} {event.id!r} cannot be taken back, only an UPDATE or a RETIRE; "
            "delete() erases what was added"
        )
    changed = _changed(event, event.previous_state, there, uow)
    return (
        RestoreMemory(there.id, f"undo of {event.id}")
        if "valid_to" in changed
        else _back(event, event.previous_state, changed)
    )


def _changed(event: Event, before: Mapping[str, Any], there: MemoryRecord, uow: UnitOfWork) -> set[str]:
    """The fields that an event changed. Raises ValidationError if there are none, or one was changed again since."""
    now = memories.encode_record(there)
    history = events.history(uow.connection, there.id)
    later = history[[one.id for one in history].index(event.id) + 1 :]
    after = next((one.previous_state for one in later if one.previous_state is not None), now)
    changed = {name for name in _FIELDS if before.get(name) != after.get(name)}
    if not changed:
        raise ValidationError(f"event_id: {event.event} {event.id!r} changed nothing that can be taken back")
    # What has gone back to what it was is no later change, so an event can be taken back once.
    if since := sorted(_FIELDS[name] for name in changed if now[name] not in (before.get(name), after.get(name))):
        raise ValidationError(
            f"event_id: {', '.join(since)} changed again after {event.id!r}; take the later events back first"
        )
    return changed


def _back(event: Event, before: Mapping[str, Any], changed: set[str]) -> UpdateMemory:
    expires, derived = before.get("expires_at"), before.get(DERIVED)
    return UpdateMemory(
        event.memory_id,
        text=str(before["text"]) if "text" in changed else None,
        metadata=before.get("metadata") or {} if "metadata" in changed else None,
        expires_at=UNSET if "expires_at" not in changed else _moment(expires),
        reason=f"undo of {event.id}",
        extraction=None if derived is None or "text" not in changed else _found(derived),
    )


def derived_from(record: MemoryRecord, uow: UnitOfWork) -> dict[str, Any]:
    """What a fact mentions and states, as its event keeps it; {} for other kinds."""
    if record.kind is not Kind.FACT:
        return {}
    connection = uow.connection
    mentions = [
        {"key": entity.key, "name": entity.name, "type": entity.type.value, "kind": int(kind)}
        for _, entity, kind in graph_reads.mentions_of(connection, [record.id])
    ]
    stated = [_plain(statement) for _, statement, *_ in graph_reads.statements_of(connection, [record.id])]
    return {DERIVED: {"mentions": mentions, "statements": stated}}


def _plain(statement: Statement) -> dict[str, Any]:
    times = {name: getattr(statement, name) for name in _TIMES}
    return {**asdict(statement), **{name: None if at is None else micros(at) for name, at in times.items()}}


def _found(derived: Mapping[str, Any]) -> Extraction:
    mentions = tuple(
        Mention(one["key"], one["name"], entity_type(one["type"]), mention_kind(one["kind"]))
        for one in derived["mentions"]
    )
    stated = tuple(
        Statement(**{**one, **{name: _moment(one[name]) for name in _TIMES}}) for one in derived["statements"]
    )
    return Extraction(mentions, stated)


def _moment(value: int | None) -> Any:
    return None if value is None else moment(value)
