"""Converts rows that a ledger exports to records of the export format. Pure; `transfer.format` reads records back."""

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
from graphmem.stores.ledger.memories import OPTIONAL_TIME_COLUMNS, PLAIN_COLUMNS, TIME_COLUMNS
from graphmem.transfer.format import FORMAT

Record = dict[str, Any]


def header(digests: Digests, embedder: str | None, scope: Scope | None, now: datetime) -> Record:
    """Returns the first record of an export: the format and the graphmem, ledger and embedder that wrote it."""
    return {
        "type": "graphmem",
        "format": FORMAT,
        "graphmem": __version__,
        "ledger": digests.ledger,
        "secret": digests.id,  # the id of the secret key that made the message keys, not the key itself
        "embedder": embedder,
        "exported_at": iso(now),
        "scope": None if scope is None else scope.parts,
    }


def trailer(counts: Mapping[str, int], digest: str) -> Record:
    """Returns the last record, which proves that a file is complete: `digest` is the SHA-256 of all bytes before it."""
    return {"type": "end", **counts, "sha256": digest}


def memory(exported: ExportedMemory, digests: Digests, model: str | None) -> Record:
    """Converts a memory with its history, extraction, links and embeddings; `model` names the embedding model."""
    record = exported.record
    return {
        "type": "memory",
        "id": record.id,
        **_scope_fields(record.scope),
        **({"further_runs": list(record.further_runs)} if record.further_runs else {}),
        "kind": record.kind.value,
        **_state_fields(record),
        "said": _message_recognition(exported, digests),
        "events": [_event(event) for event in exported.events],
        "answer_types": exported.answer_types,
        "mentions": _mentions(exported),
        "statements": [
            {
                "subject": statement.subject,
                "predicate": statement.predicate,
                "object": statement.object,
                "fact": statement.fact,
                "confidence": statement.confidence,
                "valid_at": optional_iso(statement.valid_at),
                "invalid_at": optional_iso(statement.invalid_at),
            }
            for statement in exported.statements
        ],
        "links": [{"kind": kind, "by" if is_incoming else "memory": uid} for kind, uid, is_incoming in exported.links],
        "embeddings": _embeddings(exported, model),
    }


def _scope_fields(scope: Scope) -> Record:
    return {name: getattr(scope, name) for name in SCOPE_NAMES}


def _state_fields(record: MemoryRecord) -> Record:
    return {
        **{name: getattr(record, name) for name in PLAIN_COLUMNS},
        **{name: iso(getattr(record, name)) for name in TIME_COLUMNS},
        **{name: optional_iso(getattr(record, name)) for name in OPTIONAL_TIME_COLUMNS},
        "metadata": dict(record.metadata),
    }


def _message_recognition(exported: ExportedMemory, digests: Digests) -> Record | None:
    """Returns the fields that recognise a memory's message when it is added again; None for a memory without a message.

    `key` counts in this ledger. Another ledger uses the message's id or, for a message without one, `ordinal`: its
    number, from 1, among messages of equal content.
    """
    if exported.message_key is None:
        return None
    key, digest = exported.message_key
    record = exported.record
    first_text = exported.events[0].new_text if exported.events and exported.events[0].event == "ADD" else None
    content = record.text if first_text is None else first_text
    ordinal = None
    if record.message_id is None and digests.content_digest(content) == digest:
        message = Message(record.role or "", content, record.at, record.actor_id)
        ordinal = digests.ordinal_of(key, message, record.scope, validation.MAX_MESSAGES)
    return {"key": key, "ordinal": ordinal}


def _event(event: Event) -> Record:
    return {
        "id": event.id,
        "event": event.event,
        "old_memory": event.old_text,
        "new_memory": event.new_text,
        "previous_state": None if event.previous_state is None else _previous_state(event.previous_state),
        "reason": event.reason,
        "actor_id": event.actor_id,
        "role": event.role,
        "created_at": iso(event.created_at),
        "at": iso(event.updated_at),
    }


def _previous_state(state: Mapping[str, Any]) -> Record:
    """Converts the state before an event, as stored in the ledger (times are numbers), to the fields of a memory."""
    optional_times = {name: state.get(name) for name in OPTIONAL_TIME_COLUMNS}
    corrected = {"corrects": state["corrects"]} if "corrects" in state else {}
    return {
        **corrected,
        **{name: state.get(name) for name in PLAIN_COLUMNS},
        **{name: iso(moment(state[name])) for name in TIME_COLUMNS},
        **{name: None if value is None else iso(moment(value)) for name, value in optional_times.items()},
    }


def _mentions(exported: ExportedMemory) -> list[Record] | None:
    """Returns the mentions of a memory; None if its extraction is still pending."""
    if not exported.embedded and not exported.mentions:
        return None
    return [
        {"key": entity.key, "name": entity.name, "type": entity.type.value, "kind": kind.name.lower()}
        for entity, kind in exported.mentions
    ]


def _embeddings(exported: ExportedMemory, model: str | None) -> Record | None:
    if not exported.windows:
        return None
    forms = {form: [b64encode(data).decode() for data in windows] for form, windows in exported.windows.items()}
    return {"model": model, **forms}


def tombstone(exported: ExportedTombstone) -> Record:
    """Converts a tombstone: the erased memory's history without its texts, and the keys that recognise its messages."""
    return {
        "type": "erased",
        "id": exported.tombstone.uid,
        **_scope_fields(exported.tombstone.scope),
        "at": iso(exported.tombstone.at),
        "events": [_event(event) for event in exported.events],
        "keys": exported.keys,
    }


def entity_name(exported: ExportedName) -> Record:
    """Converts an alias between two keys, or a name that a user chose for an entity."""
    scope_fields, at = _partition_scope_fields(exported.partition), iso(moment(exported.at))
    if exported.link is None:
        return {"type": "name", **scope_fields, "key": exported.key, "name": exported.name, "at": at}
    key, other, origin = exported.link
    negated = exported.negated
    return {
        "type": "alias",
        **scope_fields,
        "key": key,
        "other": other,
        "origin": origin.value,
        "negated": negated,
        "at": at,
    }


def _partition_scope_fields(partition: str) -> Record:
    """Returns the scope field that stands for a whole partition, such as {"user_id": "anna"}."""
    part, _, name = partition.partition(":")
    return {f"{part}_id": name}
