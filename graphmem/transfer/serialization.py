"""What a ledger holds, as records of the format. Pure; `format` is the other direction."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from graphmem import __version__
from graphmem.boundary import validation
from graphmem.digests import Digests
from graphmem.model import SCOPE_NAMES, Event, MemoryRecord, Message, Scope, iso, optional_iso
from graphmem.stores.ledger.decoding import moment
from graphmem.stores.ledger.export_queries import ExportedMemory, ExportedName, ExportedTombstone
from graphmem.transfer.format import FORMAT

Record = dict[str, Any]

_TIMES = ("at", "valid_from", "created_at", "updated_at")
_OPEN_TIMES = ("valid_to", "expires_at")
_PLAIN = (
    "text", "memory_type", "metadata", "speaker", "actor_id", "role", "message_id", "session", "source_only",
    "confidence", "version",
)  # fmt: skip


def header(digests: Digests, embedder: str | None, scope: Scope | None, now: datetime) -> Record:
    """The first record: what wrote the others, in which format."""
    return {
        "type": "graphmem",
        "format": FORMAT,
        "graphmem": __version__,
        "ledger": digests.ledger,
        "secret": digests.id,  # which one the keys were made with, not what it is
        "embedder": embedder,
        "exported_at": iso(now),
        "scope": None if scope is None else scope.parts,
    }


def trailer(counts: Mapping[str, int], digest: str) -> Record:
    """The last record, without which the others are not whole: `digest` is the SHA-256 of their bytes."""
    return {"type": "end", **counts, "sha256": digest}


def memory(whole: ExportedMemory, digests: Digests, model: str | None) -> Record:
    """A memory."""
    record = whole.record
    return {
        "type": "memory",
        "id": record.id,
        **_scope(record.scope),
        **({"further_runs": list(record.further_runs)} if record.further_runs else {}),
        "kind": record.kind.value,
        **_state(record),
        "said": _said(whole, digests),
        "events": [_event(event) for event in whole.events],
        "answer_types": whole.answer_types,
        "mentions": _mentions(whole),
        "statements": [
            {
                "subject": s.subject,
                "predicate": s.predicate,
                "object": s.object,
                "fact": s.fact,
                "confidence": s.confidence,
                "valid_at": optional_iso(s.valid_at),
                "invalid_at": optional_iso(s.invalid_at),
            }
            for s in whole.statements
        ],
        "links": [{"kind": kind, "by" if back else "memory": uid} for kind, uid, back in whole.links],
        "embeddings": _embeddings(whole, model),
    }


def _scope(scope: Scope) -> Record:
    return {name: getattr(scope, name) for name in SCOPE_NAMES}


def _state(record: MemoryRecord) -> Record:
    return {
        **{name: getattr(record, name) for name in _PLAIN},
        **{name: iso(getattr(record, name)) for name in _TIMES},
        **{name: optional_iso(getattr(record, name)) for name in _OPEN_TIMES},
        "metadata": dict(record.metadata),
    }


def _said(whole: ExportedMemory, digests: Digests) -> Record | None:
    """What recognises the message: in this ledger its key, elsewhere its id, or its place among its equals."""
    if whole.message_key is None:
        return None
    key, hashed = whole.message_key
    record = whole.record
    first = whole.events[0].new_text if whole.events and whole.events[0].event == "ADD" else None
    content = record.text if first is None else first
    ordinal = None
    if record.message_id is None and digests.content_digest(content) == hashed:
        message = Message(record.role or "", content, record.at, record.actor_id)
        ordinal = digests.ordinal_of(key, message, record.scope, validation.MAX_MESSAGES)
    return {"key": key, "ordinal": ordinal}


def _event(event: Event) -> Record:
    return {
        "id": event.id,
        "event": event.event,
        "old_memory": event.old_text,
        "new_memory": event.new_text,
        "previous_state": None if event.previous_state is None else _before(event.previous_state),
        "reason": event.reason,
        "actor_id": event.actor_id,
        "role": event.role,
        "created_at": iso(event.created_at),
        "at": iso(event.updated_at),
    }


def _before(state: Mapping[str, Any]) -> Record:
    """A state as the ledger keeps it (its times are numbers), as a memory's own fields are written."""
    open_times = {name: state.get(name) for name in _OPEN_TIMES}
    corrected = {"corrects": state["corrects"]} if "corrects" in state else {}
    return {
        **corrected,
        **{name: state.get(name) for name in _PLAIN},
        **{name: iso(moment(state[name])) for name in _TIMES},
        **{name: None if value is None else iso(moment(value)) for name, value in open_times.items()},
    }


def _mentions(whole: ExportedMemory) -> list[Record] | None:
    """What its words mention; None while they are still to be read."""
    if not whole.embedded and not whole.mentions:
        return None
    return [
        {"key": entity.key, "name": entity.name, "type": entity.type.value, "kind": kind.name.lower()}
        for entity, kind in whole.mentions
    ]


def _embeddings(whole: ExportedMemory, model: str | None) -> Record | None:
    if not whole.windows:
        return None
    forms = {form: [b64encode(data).decode() for data in windows] for form, windows in whole.windows.items()}
    return {"model": model, **forms}


def tombstone(gone: ExportedTombstone) -> Record:
    """A memory that is no more: its history without the words, and what keeps it from coming back."""
    return {
        "type": "erased",
        "id": gone.tombstone.uid,
        **_scope(gone.tombstone.scope),
        "at": iso(gone.tombstone.at),
        "events": [_event(event) for event in gone.events],
        "keys": gone.keys,
    }


def entity_name(said: ExportedName) -> Record:
    """A link between two names, or a chosen one."""
    whose, at = _owner(said.partition), iso(moment(said.at))
    if said.link is None:
        return {"type": "name", **whose, "key": said.key, "name": said.name, "at": at}
    key, other, origin = said.link
    return {
        "type": "alias", **whose, "key": key, "other": other, "origin": origin.value, "negated": said.negated, "at": at
    }  # fmt: skip


def _owner(partition: str) -> Record:
    """The scope that is a whole partition."""
    part, _, name = partition.partition(":")
    return {f"{part}_id": name}
