"""A point of mem0 and its history as a record of graphmem's own format; the payloads of mem0 1 and 2.

mem0 keeps its own keys and the user's metadata side by side. What it derived from the words (hash, lemmas, vectors)
stays behind: it is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.ingest.messages import speaker_of
from graphmem.model import SCOPE_NAMES, Kind, Message, Scope, iso, optional_iso
from graphmem.transfer.sources.mem0_history import Row
from graphmem.transfer.sources.records import Record

_TAKEN = frozenset({"data", "created_at", "updated_at", "expiration_date", *SCOPE_NAMES})
_DERIVED = frozenset({"hash", "text_lemmatized"})
_EVENTS = frozenset({"ADD", "UPDATE", "DELETE"})


NO_TIME = "tells no time, neither created_at nor updated_at; say with --timestamp when such were said"


def created_at(payload: Mapping[str, Any], otherwise: datetime | None) -> datetime:
    """When a memory was made. Raises ValidationError where that cannot be read, or is told by nobody."""
    return _told_time(payload.get("created_at") or payload.get("updated_at"), otherwise)


def _told_time(told: object, otherwise: datetime | None) -> datetime:
    if told:
        return validation.moment(told, "created_at")
    if otherwise is None:
        raise ValidationError(NO_TIME)
    return otherwise


def memory(
    uid: str, payload: Mapping[str, Any], rows: Sequence[Row], scope: Scope, otherwise: datetime | None
) -> Record:
    """A memory with its history. Raises ValidationError for a time that cannot be read."""
    at = created_at(payload, otherwise)
    told = _told(payload)
    own = _own(uid)
    return {
        "type": "memory",
        "id": own,
        **scope.parts,
        # With infer=False mem0 keeps messages, with their roles; else what its model made of them.
        "kind": (Kind.EPISODE if "role" in told else Kind.FACT).value,
        "text": payload["data"],
        "at": iso(at),
        "created_at": iso(at),
        "updated_at": payload.get("updated_at") or iso(at),
        "expires_at": optional_iso(validation.expiration(payload.get("expiration_date") or None)),
        "speaker": speaker_of(Message(_whose_words(payload), "", at, told.get("actor_id")), scope),
        **told,
        "metadata": {
            **{name: value for name, value in payload.items() if name not in _TAKEN | _DERIVED | told.keys()},
            **({} if own == uid else {"mem0_id": uid}),
        },
        "events": list(_events(uid, rows, at)),
    }


def tombstone(uid: str, rows: Sequence[Row], scope: Scope, otherwise: datetime | None) -> Record:
    """A memory that is no more: when things happened to it, without the words. Raises ValidationError."""
    times = [row[name] for row in rows for name in ("created_at", "updated_at") if row[name]]
    events = [
        {**event, "old_memory": None, "new_memory": None}
        for event in _events(uid, rows, _told_time(times[0] if times else None, otherwise))
    ]
    return {"type": "erased", "id": _own(uid), **scope.parts, "at": events[-1]["at"], "events": events}


def _own(uid: str) -> str:
    """mem0's id, which is a UUID unless somebody wrote to its collection himself."""
    try:
        return validation.uuid(uid.lower(), "id")
    except ValidationError:
        return str(uuid5(NAMESPACE_OID, f"mem0:{uid}"))


def _whose_words(payload: Mapping[str, Any]) -> str:
    """The role of who said it, or of whom it is about: mem0 2 notes that of what its model drew from messages."""
    return "assistant" if "assistant" in (payload.get("role"), payload.get("attributed_to")) else "user"


def _told(payload: Mapping[str, Any]) -> dict[str, str]:
    """What keys say that are mem0's or the user's own: taken where it makes sense, else it stays metadata."""
    checks: dict[str, Callable[[Any, str], str | None]] = {
        "role": lambda value, name: validation.one_of(value, name, validation.REMEMBERED_ROLES),
        "actor_id": validation.stored_name,
        "memory_type": validation.memory_type,
    }
    told = {}
    for name, check in checks.items():
        try:
            told[name] = check(payload.get(name), name)
        except ValidationError:
            continue
    return {name: value for name, value in told.items() if value is not None}


def _events(uid: str, rows: Sequence[Row], at: datetime) -> Iterator[dict[str, Any]]:
    """The history. Before 1.0 mem0 noted no time of a deletion: then it is that of the event before."""
    for row in rows:
        if row["event"] not in _EVENTS:
            continue
        happened = row["updated_at"] or (row["created_at"] if row["event"] == "ADD" else None)
        at = at if happened is None else validation.moment(happened, "history")
        yield {
            "id": row["id"] or str(uuid5(NAMESPACE_OID, f"mem0:{uid}/{row['place']}")),
            "event": row["event"],
            "old_memory": row["old_memory"],
            "new_memory": row["new_memory"],
            "actor_id": row["actor_id"],
            "role": row["role"],
            "created_at": row["created_at"] or iso(at),
            "at": iso(at),
        }
