"""Finds the command that reverses an event of a memory, for `graphmem.commands.dispatch`.

Only the fields that the event changed are reversed. They are found by comparing the state before the event with the
state before the next event, or with the current state if there is no next event. If a later event changed one of these
fields again, the undo is refused, because it would discard that change.

An update of a fact's text removes the mentions and relations that a language model found in it; no extractor would find
these again. So the event keeps them in its previous state, beside the columns, under "derived"; an event by which
attachments were described keeps these as they were, under "attachments".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from graphmem.commands.lifecycle import number_of_sources
from graphmem.commands.types import (
    UNSET,
    DecomposeMemory,
    MoveMemory,
    RememberMemory,
    RestoreMemory,
    UndoEvent,
    UpdateMemory,
)
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.errors import NotFoundError, ValidationError
from graphmem.model import (
    COMPOSING_EVENTS,
    REVERSIBLE_EVENTS,
    UNDO_REASON,
    Event,
    Extraction,
    Kind,
    Layer,
    MemoryRecord,
    Mention,
    Statement,
    optional_micros,
)
from graphmem.stores.ledger import attachments, events, graph_reads, memories
from graphmem.stores.ledger.sql import entity_type, mention_kind, moment

DERIVED, ATTACHMENTS = "derived", "attachments"
ReverseCommand = RestoreMemory | RememberMemory | MoveMemory | DecomposeMemory | UpdateMemory
_TIMES = ("valid_at", "invalid_at")
# Fields that these events change: name in `Event.previous_state` → name for callers.
_FIELDS = {
    "text": "text", "metadata": "metadata", "expires_at": "expiration_date", "at": "at", "valid_to": "valid_to",
    "forgotten_at": "forgotten", "layer": "layer",
}  # fmt: skip


def reverse_command(command: UndoEvent, uow: UnitOfWork) -> ReverseCommand:
    """Returns the command that reverses an event.

    Raises NotFoundError for an unknown event or one outside `uow.visible_scope`, ValidationError for an event that
    cannot be reversed: another type, no change left, or a later change of the same field.
    """
    event = events.find_event(uow.connection, command.event)
    record = None if event is None else memories.find(uow.connection, event.memory_id)
    if event is None or record is None or (uow.visible_scope and not record.is_in(uow.visible_scope)):
        raise NotFoundError(
            f"no event {command.event!r:.80} in this scope; the history of a memory gives the ids there are"
        )
    if event.event == "SCOPE":
        raise ValidationError(
            "event_id: a SCOPE event cannot be taken back: what was said in a run was said there; "
            "erasing all memories of a run takes it out of the run"
        )
    if event.event in COMPOSING_EVENTS:
        if record.text != event.new_text:
            raise ValidationError("event_id: text changed again after this event; take the later events back first")
        return DecomposeMemory(record.id, f"{UNDO_REASON}{event.id}", number_of_sources(event.reason))
    if event.event not in REVERSIBLE_EVENTS or event.previous_state is None:
        raise ValidationError(
            f"event_id: its event is {event.event}, and only {', '.join(REVERSIBLE_EVENTS)} can be taken back; "
            "to take back an addition, delete the memory"
        )
    changed = _changed_fields(event, event.previous_state, record, uow)
    if "valid_to" in changed:
        return RestoreMemory(record.id, f"{UNDO_REASON}{event.id}", _moment(event.previous_state["valid_to"]))
    if "forgotten_at" in changed:
        return RememberMemory(record.id, f"{UNDO_REASON}{event.id}")
    if "layer" in changed:
        return MoveMemory(record.id, Layer(event.previous_state["layer"]), f"{UNDO_REASON}{event.id}")
    return _reverse_update(event, event.previous_state, changed)


def _changed_fields(event: Event, before: Mapping[str, Any], record: MemoryRecord, uow: UnitOfWork) -> set[str]:
    """Returns the fields that an event changed. Raises ValidationError for none, or one that was changed again."""
    now = memories.encode_record(record)
    history = events.history(uow.connection, record.id)
    later_events = history[[other.id for other in history].index(event.id) + 1 :]
    after = next((later.previous_state for later in later_events if later.previous_state is not None), now)
    changed = {name for name in _FIELDS if before.get(name) != after.get(name)}
    if not changed:
        raise ValidationError(f"event_id: this {event.event} changed nothing that can be taken back")
    # A field with its value from before the event counts as unchanged; so a second undo becomes a NONE and is refused.
    if changed_again := sorted(
        _FIELDS[name] for name in changed if now[name] not in (before.get(name), after.get(name))
    ):
        raise ValidationError(
            f"event_id: {', '.join(changed_again)} changed again after this event; take the later events back first"
        )
    return changed


def _reverse_update(event: Event, before: Mapping[str, Any], changed: set[str]) -> UpdateMemory:
    expires_at, derived, former = before.get("expires_at"), before.get(DERIVED), before.get(ATTACHMENTS)
    return UpdateMemory(
        event.memory_id,
        text=str(before["text"]) if "text" in changed else None,
        metadata=before.get("metadata") or {} if "metadata" in changed else None,
        expires_at=UNSET if "expires_at" not in changed else _moment(expires_at),
        reason=f"{UNDO_REASON}{event.id}",
        at=_moment(before["at"]) if "at" in changed else None,
        utc_offset=before.get("utc_offset"),
        extraction=None if derived is None or "text" not in changed else _decode_extraction(derived),
        attachments=None if former is None or "text" not in changed else tuple(map(attachments.decode, former)),
    )


def derived_from(record: MemoryRecord, uow: UnitOfWork) -> dict[str, Any]:
    """Returns a fact's mentions and relations in the form kept by its UPDATE event; {} for other kinds."""
    if record.kind is not Kind.FACT:
        return {}
    connection = uow.connection
    mentions = [
        {"key": entity.key, "name": entity.name, "type": entity.type.value, "kind": int(kind)}
        for _, entity, kind in graph_reads.mentions_of(connection, [record.id])
    ]
    statements = [
        {**asdict(statement), **{name: optional_micros(getattr(statement, name)) for name in _TIMES}}
        for _, statement, *_ in graph_reads.statements_of(connection, [record.id])
    ]
    return {DERIVED: {"mentions": mentions, "statements": statements}}


def _decode_extraction(derived: Mapping[str, Any]) -> Extraction:
    mentions = tuple(
        Mention(encoded["key"], encoded["name"], entity_type(encoded["type"]), mention_kind(encoded["kind"]))
        for encoded in derived["mentions"]
    )
    statements = tuple(
        Statement(**{**encoded, **{name: _moment(encoded[name]) for name in _TIMES}})
        for encoded in derived["statements"]
    )
    return Extraction(mentions, statements).with_folded_keys()


def _moment(value: int | None) -> Any:
    return None if value is None else moment(value)
