"""Taking an update or a retirement back: which step reverses an event. A part of `commit`.

What a language model found in a fact's words goes with them when they change, and no extractor would find it again. So
the event keeps it, beside the columns, for going back to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from graphmem.errors import NotFoundError, ValidationError
from graphmem.model import (
    EntityType,
    Event,
    Extraction,
    Kind,
    MemoryRecord,
    Mention,
    MentionKind,
    Statement,
    from_micros,
    micros,
)
from graphmem.remember.plan import Restore, Revise, Undo
from graphmem.stores.ledger import log, memories, reading

if TYPE_CHECKING:
    from graphmem.remember.commit import Transaction

DERIVED = "derived"
_TIMES = ("valid_at", "invalid_at")


def reverse_of(step: Undo, transaction: Transaction) -> Restore | Revise:
    """The step that takes an event back.

    Raises NotFoundError for one outside the plan's scope, ValidationError for one that cannot be taken back.
    """
    event = log.event(transaction.connection, step.event)
    there = None if event is None else memories.find(transaction.connection, event.memory_id)
    if event is None or there is None or (transaction.within and not there.is_in(transaction.within)):
        raise NotFoundError(
            f"no event {step.event!r:.80} in this scope; history() and explain() give the ids there are"
        )
    if event.event == "RETIRE":
        return Restore(there.id, f"undo of {event.id}")
    if event.event == "SCOPE":
        raise ValidationError(
            f"event_id: SCOPE {event.id!r} cannot be taken back: what was said in a run was said there; "
            "delete_all(run_id=…) takes the memory out of a run"
        )
    if event.event != "UPDATE" or event.before is None:
        raise ValidationError(
            f"event_id: {event.event} {event.id!r} cannot be taken back, only an UPDATE or a RETIRE; "
            "delete() erases what was added"
        )
    if there.text != event.new_text:
        raise ValidationError(f"event_id: the memory has changed since {event.id!r}; take the later events back first")
    return _back(event, event.before)


def _back(event: Event, before: Mapping[str, Any]) -> Revise:
    expires, derived = before.get("expires_at"), before.get(DERIVED)
    return Revise(
        event.memory_id,
        text=str(before["text"]),
        metadata=before.get("metadata") or {},
        expires_at=None if expires is None else from_micros(expires),
        reason=f"undo of {event.id}",
        found=None if derived is None else _found(derived),
    )


def derived_from(record: MemoryRecord, transaction: Transaction) -> dict[str, Any]:
    """What a fact mentions and states, as its event keeps it; {} for other kinds."""
    if record.kind is not Kind.FACT:
        return {}
    connection = transaction.connection
    mentions = [
        {"key": entity.key, "name": entity.name, "type": entity.type.value, "kind": int(kind)}
        for _, entity, kind in reading.mentions_of(connection, [record.id])
    ]
    stated = [_plain(statement) for _, statement, *_ in reading.statements_of(connection, [record.id])]
    return {DERIVED: {"mentions": mentions, "statements": stated}}


def _plain(statement: Statement) -> dict[str, Any]:
    times = {name: getattr(statement, name) for name in _TIMES}
    return {**asdict(statement), **{name: None if at is None else micros(at) for name, at in times.items()}}


def _found(derived: Mapping[str, Any]) -> Extraction:
    mentions = tuple(
        Mention(one["key"], one["name"], EntityType(one["type"]), MentionKind(one["kind"]))
        for one in derived["mentions"]
    )
    stated = tuple(
        Statement(**{**one, **{name: _moment(one[name]) for name in _TIMES}}) for one in derived["statements"]
    )
    return Extraction(mentions, stated)


def _moment(value: int | None) -> Any:
    return None if value is None else from_micros(value)
