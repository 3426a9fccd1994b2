"""Converts rows that a ledger exports to records of the export format. Pure; `transfer.format` reads records back."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from graphmem import __version__
from graphmem.boundary import validation
from graphmem.digests import Digests
from graphmem.model import Attachment, Event, EventName, Item, Scope, iso, optional_iso
from graphmem.stores.blobs import BlobFolder
from graphmem.stores.ledger.attachments import BLOBS, decode
from graphmem.stores.ledger.export_queries import ExportedMemory, ExportedName, ExportedTombstone
from graphmem.stores.ledger.memories import encode_record
from graphmem.stores.ledger.service_tables import ApiKey, StoredSetting
from graphmem.stores.ledger.sql import moment
from graphmem.stores.ledger.vitals import LastCycle, StoredVitals
from graphmem.transfer import records
from graphmem.transfer.format import FORMAT


def header(digests: Digests, embedder: str | None, scope: Scope | None, now: datetime) -> records.HeaderRecord:
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


def trailer(counts: Mapping[str, int], digest: str) -> records.EndRecord:
    """Returns the last record, which proves that a file is complete: `digest` is the SHA-256 of all bytes before it."""
    return cast("records.EndRecord", {"type": "end", **counts, "sha256": digest})


def memory(
    exported: ExportedMemory, digests: Digests, model: str | None, blobs: BlobFolder | None
) -> records.MemoryRecord:
    """Converts a memory with its history, extraction, links, embeddings and the data of its attachments in `blobs`.

    `model` names the embedding model.
    """
    record = exported.record
    attached = []
    for one in record.attachments:
        fields: dict[str, Any] = {**_attachment(one)}
        if blobs is not None and one.sha256 is not None and one.ref.startswith(BLOBS):
            data = blobs.read(one.sha256)
            fields |= {} if data is None else {"data": b64encode(data).decode()}
        attached.append(fields)
    converted = {
        "type": "memory",
        "id": record.id,
        **_scope_fields(record.scope),
        **({"further_runs": list(record.further_runs)} if record.further_runs else {}),
        "kind": record.kind,
        **_state_fields(encode_record(record)),
        "recognition": _message_recognition(exported, digests),
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
                "is_past": statement.is_past,
            }
            for statement in exported.statements
        ],
        "links": [_link(*link) for link in exported.links],
        "embeddings": _embeddings(exported, model),
        "vitals": None if exported.vitals is None else _vitals(exported.vitals),
    }
    return cast("records.MemoryRecord", {**converted, "attachments": attached} if attached else converted)


def _attachment(attachment: Attachment) -> records.Attachment:
    return {
        "kind": attachment.kind,
        "ref": attachment.ref,
        "mime": attachment.mime,
        "sha256": attachment.sha256,
        "bytes": attachment.size,
        "caption": attachment.caption,
        "transcript": attachment.transcript,
        "described_by": attachment.described_by,
        "at": optional_iso(attachment.at),
    }


def _scope_fields(scope: Scope) -> records.ScopeIds:
    return {"user_id": scope.user_id, "agent_id": scope.agent_id, "run_id": scope.run_id}


def _state_fields(state: Mapping[str, Any]) -> records.State:
    """Converts a memory's state, of now or before an event, from the form of the ledger, where times are numbers."""
    return {
        "text": state["text"],
        "memory_type": state.get("memory_type"),
        "metadata": state.get("metadata"),
        "speaker": state.get("speaker"),
        "actor_id": state.get("actor_id"),
        "role": state.get("role"),
        "message_id": state.get("message_id"),
        "session": state.get("session") or None,  # "": the import that brought this earlier state named none
        "source_only": state.get("source_only"),
        "confidence": state.get("confidence"),
        "version": state.get("version"),
        "at": iso(moment(state["at"])),
        "utc_offset": state.get("utc_offset"),
        "valid_from": iso(moment(state["valid_from"])),
        "created_at": iso(moment(state["created_at"])),
        "updated_at": iso(moment(state["updated_at"])),
        "valid_to": _optional_time(state.get("valid_to")),
        "expires_at": _optional_time(state.get("expires_at")),
        "layer": state.get("layer"),
        "importance": state.get("importance"),
        "level": state.get("level"),
        "pinned": state.get("pinned"),
        "forgotten_at": _optional_time(state.get("forgotten_at")),
    }


def _optional_time(micros: int | None) -> str | None:
    return None if micros is None else iso(moment(micros))


def _link(kind: str, uid: str, is_incoming: bool) -> records.MemoryLink:  # noqa: FBT001  (a row of the ledger)
    link_kind = cast("records.LinkKind", kind)
    return {"kind": link_kind, "by": uid} if is_incoming else {"kind": link_kind, "memory": uid}


def _message_recognition(exported: ExportedMemory, digests: Digests) -> records.MessageRecognition | None:
    """Returns the fields that recognise a memory's message when it is added again; None for a memory without a message.

    `key` counts in this ledger. Another ledger uses the message's id or, for a message without one, `ordinal`: its
    number, from 1, among messages of equal content.
    """
    if exported.message_key is None:
        return None
    key, digest = exported.message_key
    record = exported.record
    first_text = exported.events[0].new_text if exported.events and exported.events[0].event == "ADD" else None
    message, ordinal = record.message(first_text), None
    if record.message_id is None and digests.content_digest(message.identity) == digest:
        ordinal = digests.ordinal_of(key, message, record.scope, validation.MAX_MESSAGES)
    return {"key": key, "ordinal": ordinal}


def _event(event: Event) -> records.Event:
    return {
        "id": event.id,
        "event": cast("EventName", event.event),
        "old_memory": event.old_text,
        "new_memory": event.new_text,
        "previous_state": None if event.previous_state is None else _previous_state(event.previous_state),
        "reason": event.reason,
        "batch": event.batch,
        "actor_id": event.actor_id,
        "role": event.role,
        "created_at": iso(event.created_at),
        "at": iso(event.updated_at),
    }


def _previous_state(state: Mapping[str, Any]) -> records.PreviousState:
    corrected: records.Corrected = {"corrects": state["corrects"]} if "corrects" in state else {}
    former = state.get("attachments")
    attached: dict[str, Any] = {} if former is None else {"attachments": [_attachment(decode(one)) for one in former]}
    return cast("records.PreviousState", {**corrected, **attached, **_state_fields(state)})


def _mentions(exported: ExportedMemory) -> list[records.Mention] | None:
    """Returns the mentions of a memory; None if its extraction is still pending."""
    if not exported.embedded and not exported.mentions:
        return None
    return [
        {
            "key": entity.key,
            "name": entity.name,
            "type": entity.type,
            "kind": cast("records.MentionKindName", kind.name.lower()),
        }
        for entity, kind in exported.mentions
    ]


def _embeddings(exported: ExportedMemory, model: str | None) -> records.Embeddings | None:
    if not exported.windows:
        return None
    forms = {form: [b64encode(data).decode() for data in windows] for form, windows in exported.windows.items()}
    return cast("records.Embeddings", {"model": model, **forms})


def _vitals(stored: StoredVitals) -> records.Vitals:
    return {
        "strength": stored.strength,
        "accesses": stored.accesses,
        "accessed_at": optional_iso(stored.accessed_at),
        "rated": stored.rated,
        **({"importance_given": True} if stored.importance_given else {}),
        **({"type_computed": True} if stored.type_computed else {}),
    }


def lifecycle(since: datetime) -> records.LifecycleRecord:
    """Converts the time since which the lifecycle is enabled."""
    return {"type": "lifecycle", "since": iso(since)}


def cycle(partition: str, last: LastCycle) -> records.CycleRecord:
    """Converts the last cycle of a partition."""
    held = last.held
    return {
        "type": "cycle",
        **_partition_scope_fields(partition),
        "ended_at": iso(last.ended_at),
        "held": None if held is None else {"forgotten": held.forgotten, "memories": held.memories},
        "changed": last.changed,
    }


def tombstone(exported: ExportedTombstone) -> records.ErasedRecord:
    """Converts a tombstone: the erased memory's history without its texts, and the keys that recognise its messages."""
    return {
        "type": "erased",
        "id": exported.tombstone.uid,
        **_scope_fields(exported.tombstone.scope),
        "at": iso(exported.tombstone.at),
        "events": [_event(event) for event in exported.events],
        "keys": exported.keys,
    }


def entity_name(exported: ExportedName) -> records.AliasRecord | records.NameRecord:
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
        "origin": origin,
        "negated": negated,
        "at": at,
    }


def item(stored: Item) -> records.ItemRecord:
    """Converts an exact value of an adapter."""
    return {
        "type": "item",
        **_scope_fields(stored.scope),
        "namespace": list(stored.namespace),
        "key": stored.key,
        "value": json.loads(stored.value),
        "memory": stored.memory_id,
        "created_at": iso(stored.created_at),
        "updated_at": iso(stored.updated_at),
        "ttl_minutes": stored.ttl_minutes,
        "expires_at": optional_iso(stored.expires_at),
    }


def setting(user_id: str | None, stored: StoredSetting) -> records.SettingRecord:
    """Converts a setting of a user, or (None) of all users; a value of None says that it was removed."""
    return {
        "type": "setting",
        "user_id": user_id,
        "name": stored.name,
        "value": stored.value,
        "changed_at": iso(stored.at),
        "changed_by": stored.changed_by,
    }


def key(stored: ApiKey) -> records.KeyRecord:
    """Converts a key of the service, without its secret and without the digest of that."""
    return {
        "type": "key",
        "id": stored.id,
        "label": stored.label or None,
        "role": cast("records.KeyRole", stored.role),
        "user_id": stored.user_id,
        "agent_id": stored.agent_id,
        "rate": stored.rate,
        "created_at": iso(stored.created_at),
        "expires_at": optional_iso(stored.expires_at),
        "revoked_at": optional_iso(stored.revoked_at),
    }


def _partition_scope_fields(partition: str) -> records.ScopeIds:
    """Returns the scope field that stands for a whole partition, such as {"user_id": "anna"}."""
    part, _, name = partition.partition(":")
    return cast("records.ScopeIds", {f"{part}_id": name})
