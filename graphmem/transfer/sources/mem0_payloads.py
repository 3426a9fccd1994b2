"""Converts a point of mem0 (payloads of mem0 1 and 2) with its history to an import record.

A payload holds mem0's own keys and the user's metadata side by side. Data derived from the text (hash, lemmas, vectors)
is not converted: graphmem computes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.ingest.messages import speaker_of
from graphmem.model import SCOPE_NAMES, Kind, Message, Scope, iso, optional_iso
from graphmem.transfer.sources.mem0_history import Row
from graphmem.transfer.sources.skipped_records import Record

_CONVERTED_KEYS = frozenset({"data", "created_at", "updated_at", "expiration_date", *SCOPE_NAMES})
_DERIVED_KEYS = frozenset({"hash", "text_lemmatized"})
_EVENTS = frozenset({"ADD", "UPDATE", "DELETE"})


NO_TIME = "has no time, neither created_at nor updated_at; give one for such memories with --timestamp"


def created_at(payload: Mapping[str, Any], default_time: datetime | None, zone: tzinfo | None) -> datetime:
    """Returns the time of a memory, else `default_time`. Raises ValidationError if it is invalid or there is none.

    `zone` is here and below that of times without a UTC offset.
    """
    return _time(payload.get("created_at") or payload.get("updated_at"), default_time, zone)


def _time(value: object, default_time: datetime | None, zone: tzinfo | None) -> datetime:
    if value:
        return validation.moment(value, "created_at", zone)
    if default_time is None:
        raise ValidationError(NO_TIME)
    return default_time


def memory(
    uid: str,
    payload: Mapping[str, Any],
    rows: Sequence[Row],
    scope: Scope,
    default_time: datetime | None,
    zone: tzinfo | None,
) -> Record:
    """Converts a memory with its history. Raises ValidationError for an invalid or missing time."""
    at = created_at(payload, default_time, zone)
    fields = _valid_fields(payload)
    record_id, other_keys = _uuid_of(uid), _CONVERTED_KEYS | _DERIVED_KEYS | fields.keys()
    return {
        "type": "memory",
        "id": record_id,
        **scope.parts,
        # With infer=False mem0 stores messages, with their roles; otherwise the facts that its language model drew.
        "kind": (Kind.EPISODE if "role" in fields else Kind.FACT).value,
        "text": payload["data"],
        "at": iso(at),
        "created_at": iso(at),
        "updated_at": iso(_time(payload.get("updated_at"), at, zone)),
        "expires_at": optional_iso(validation.expiration(payload.get("expiration_date") or None, zone=zone)),
        "speaker": speaker_of(Message(_speaker_role(payload), "", at, fields.get("actor_id")), scope),
        **fields,
        "metadata": {
            **{name: value for name, value in payload.items() if name not in other_keys},
            **({} if record_id == uid else {"mem0_id": uid}),
        },
        "events": list(_events(uid, rows, at, zone)),
    }


def tombstone(
    uid: str, rows: Sequence[Row], scope: Scope, default_time: datetime | None, zone: tzinfo | None
) -> Record:
    """Converts a deleted memory: the times of its events, without the texts. Raises ValidationError for a bad time."""
    times = [row[name] for row in rows for name in ("created_at", "updated_at") if row[name]]
    events = [
        {**event, "old_memory": None, "new_memory": None}
        for event in _events(uid, rows, _time(times[0] if times else None, default_time, zone), zone)
    ]
    return {"type": "erased", "id": _uuid_of(uid), **scope.parts, "at": events[-1]["at"], "events": events}


def _uuid_of(uid: str) -> str:
    """Returns mem0's id, or a UUID made of it: points that mem0 did not write itself may have other ids."""
    try:
        return validation.uuid(uid.lower(), "id")
    except ValidationError:
        return str(uuid5(NAMESPACE_OID, f"mem0:{uid}"))


def _speaker_role(payload: Mapping[str, Any]) -> str:
    """Returns the role of the speaker or, for facts of mem0 2, of the person whom the fact is about."""
    return "assistant" if "assistant" in (payload.get("role"), payload.get("attributed_to")) else "user"


def _valid_fields(payload: Mapping[str, Any]) -> dict[str, str]:
    """Returns those of role, actor_id and memory_type that are valid here.

    The keys may be mem0's or the user's own; an invalid one stays in the metadata.
    """
    checks: dict[str, Callable[[Any, str], str | None]] = {
        "role": lambda value, name: validation.one_of(value, name, validation.REMEMBERED_ROLES),
        "actor_id": validation.stored_name,
        "memory_type": validation.memory_type,
    }
    fields = {}
    for name, check in checks.items():
        try:
            fields[name] = check(payload.get(name), name)
        except ValidationError:
            continue
    return {name: value for name, value in fields.items() if value is not None}


def _events(uid: str, rows: Sequence[Row], at: datetime, zone: tzinfo | None) -> Iterator[dict[str, Any]]:
    """Yields the events. mem0 before 1.0 stored no time for a deletion, which then gets that of the previous event."""
    for row in rows:
        if row["event"] not in _EVENTS:
            continue
        event_time = row["updated_at"] or (row["created_at"] if row["event"] == "ADD" else None)
        at = at if event_time is None else validation.moment(event_time, "history", zone)
        yield {
            "id": row["id"] or str(uuid5(NAMESPACE_OID, f"mem0:{uid}/{row['place']}")),
            "event": row["event"],
            "old_memory": row["old_memory"],
            "new_memory": row["new_memory"],
            "actor_id": row["actor_id"],
            "role": row["role"],
            "created_at": iso(_time(row["created_at"], at, zone)),
            "at": iso(at),
        }
