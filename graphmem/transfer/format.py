"""Converts records of the export format to import commands, for `importer`; `records` describes their fields.

A record is a mapping, made by `serialization` or by a converter from another program. A converter's memory needs "id"
(a UUID), "text", "at" and one scope id. A field that is missing or null gets the value it has for a message added now:
without "events" the history is one ADD, without "mentions" the text is extracted, without "embeddings" it is embedded.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar

import numpy as np

from graphmem import __version__
from graphmem.boundary import validation
from graphmem.commands.types import (
    CountLackingKey,
    ImportAlias,
    ImportCommand,
    ImportCycle,
    ImportEntityName,
    ImportItem,
    ImportLifecycle,
    ImportLink,
    ImportMemory,
    ImportSetting,
    ImportTombstone,
)
from graphmem.digests import Digests
from graphmem.errors import ValidationError
from graphmem.ingest import messages
from graphmem.lifecycle.decay import Brake
from graphmem.model import (
    EMPTY_MAPPING,
    NEUTRAL_IMPORTANCE,
    NO_ANSWER_TYPES,
    SCOPE_NAMES,
    VECTOR_BYTES,
    AnswerType,
    Attachment,
    EmbeddingSpec,
    EntityType,
    Event,
    Extraction,
    Item,
    Kind,
    Layer,
    Link,
    MemoryRecord,
    Mention,
    MentionKind,
    Message,
    Origin,
    Scope,
    Statement,
)
from graphmem.plugins import Embedded, Matrix, Tokens
from graphmem.stores.ledger.attachments import BLOBS, DIGEST, encode
from graphmem.stores.ledger.embeddings import decode_multilingual
from graphmem.stores.ledger.memories import encode_record
from graphmem.stores.ledger.service_tables import ApiKey, StoredSetting
from graphmem.stores.ledger.vitals import LastCycle, StoredVitals
from graphmem.text import content_hash, folded_key
from graphmem.times import offset_minutes
from graphmem.transfer import records
from graphmem.transfer.fields import missing, object_reader, read_list
from graphmem.transfer.records import read_base64

T = TypeVar("T")
Fields: TypeAlias = Mapping[str, Any]
"""The fields of a JSON object: as they were given, or as `fields.ObjectReader` has converted them."""

# 2: settings, keys and the lifecycle. Readers of format 1 refuse them as unknown types, so the number tells what to do.
FORMAT = 2
MENTION_KINDS = {kind.name.lower(): kind for kind in MentionKind}


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """The importing ledger: its digests, its embeddings, and the configured time zone (None: that of the machine)."""

    digests: Digests
    spec: EmbeddingSpec
    timezone: tzinfo | None = None


class RecordReader:
    """Converts records, in order, to import commands for one ledger.

    The header record (type "graphmem"), if there is one, comes first and names the exporting ledger. `now` is the time
    of fields without one; with `restore`, commands also bring back memories that were erased here.
    """

    def __init__(self, target: ImportTarget, now: datetime, *, restore: bool = False) -> None:
        self._target = target
        self._now = now
        self._restore = restore
        # Whether the file's message keys were made by the importing ledger with its present secret key.
        self._has_own_keys = False
        # Whether the header says that the file is the export of a scope.
        self._is_of_scope = False

    @property
    def digests(self) -> Digests:
        """Returns the digests of the importing ledger."""
        return self._target.digests

    def command(self, record: Mapping[str, Any]) -> ImportCommand | None:
        """Converts a record to its command, or None for the header and the trailer. Raises ValidationError."""
        given_type = validation.as_object(record, "record").get("type")
        if given_type is None:
            raise missing("type")
        record_type = validation.one_of(given_type, "type", (*_RECORDS, "end"))
        if record_type == "end":  # `jsonl` has compared the trailer byte by byte
            return None
        if record_type == "graphmem":
            check_format(record)
        described, convert = _RECORDS[record_type]
        fields = object_reader(described, self._target.timezone)(record)
        return convert(self, fields, record)

    def header(self, fields: Fields, _record: Fields) -> None:
        """Notes of the header record whether this ledger wrote the file."""
        self._is_of_scope = fields.get("scope") is not None
        if fields.get("ledger") == self.digests.ledger and fields.get("secret") == self.digests.id:
            self._has_own_keys = True

    def memory(self, fields: Fields, given: Fields) -> ImportMemory:
        """Converts a memory with its history, links, extraction and embeddings."""
        scope, kind = _scope(fields), fields.get("kind") or Kind.EPISODE
        base = _empty_memory(fields["id"], scope, kind, self._now)
        attachments = tuple(
            _attachment_with_data(one, f"attachments[{index}]")
            for index, one in enumerate(fields.get("attachments") or ())
        )
        own_runs = tuple(run for run in dict.fromkeys(fields.get("further_runs") or ()) if run != scope.run_id)
        record = self._state(fields, given, "", replace(base, further_runs=own_runs, attachments=attachments))
        events = self._events(fields, given, record)
        key, content = self._recognition(fields, record, events)
        embeddings, vitals = fields.get("embeddings"), fields.get("vitals")
        return ImportMemory(
            record=record,
            spec=self._target.spec,
            text_hash=content_hash(record.partition, record.embedded_text),
            key=key,
            content_digest=self.digests.content_digest(content),
            events=events,
            links=tuple(_link(one, f"links[{index}]") for index, one in enumerate(fields.get("links") or ())),
            extraction=_extraction(fields),
            embedded=None if embeddings is None else _embeddings_for(embeddings, self._target.spec),
            vitals=None if vitals is None else _vitals(vitals),
            restore=self._restore,
        )

    def _state(self, fields: Fields, given: Fields, path: str, base: MemoryRecord) -> MemoryRecord:
        """Returns a memory's own fields, of now or of before an event; `base` has its id, scope and kind.

        `given` are the fields before they were converted. Refuses a memory that ended before it began: it would never
        be found.
        """
        said_at = fields["at"]
        at = said_at.astimezone(UTC)
        created_at = fields.get("created_at") or self._now
        valid_from, valid_to = fields.get("valid_from") or at, fields.get("valid_to")
        if valid_to is not None and valid_to < valid_from:
            remedy = f"is before valid_from ({valid_from.isoformat()}); give a later time, or leave it out"
            validation.refuse(f"{path}valid_to", given["valid_to"], remedy)
        return replace(
            base,
            text=fields["text"],
            at=at,
            valid_from=valid_from,
            valid_to=valid_to,
            expires_at=fields.get("expires_at"),
            created_at=created_at,
            updated_at=fields.get("updated_at") or created_at,
            memory_type=fields.get("memory_type"),
            metadata=fields.get("metadata") or EMPTY_MAPPING,
            speaker=_speaker(fields, base),
            actor_id=fields.get("actor_id"),
            role=fields.get("role"),
            message_id=fields.get("message_id"),
            session=fields.get("session") or "",
            source_only=fields.get("source_only") or False,
            confidence=_share(fields.get("confidence"), 1.0),
            version=fields.get("version") or 1,
            layer=Layer(fields.get("layer") or Layer.SHORT_TERM),
            importance=_share(fields.get("importance"), NEUTRAL_IMPORTANCE),
            level=fields.get("level") or 0,
            pinned=fields.get("pinned") or False,
            forgotten_at=fields.get("forgotten_at"),
            # The offset is unknown if the field is there and null, as our exports have it.
            utc_offset=fields["utc_offset"]
            if "utc_offset" in fields
            else offset_minutes(said_at, self._target.timezone),
        )

    def _events(self, fields: Fields, given: Fields, record: MemoryRecord) -> tuple[Event, ...]:
        events = fields.get("events") or ()
        return tuple(self._event(one, given["events"][i], f"events[{i}].", record) for i, one in enumerate(events))

    def _event(self, fields: Fields, given: Fields, path: str, record: MemoryRecord) -> Event:
        previous = fields.get("previous_state")
        if previous is not None:
            previous = self._previous_state(previous, given["previous_state"], f"{path}previous_state.", record)
        return Event(
            id=fields["id"],
            memory_id=record.id,
            event=fields["event"],
            old_text=fields.get("old_memory"),
            new_text=fields.get("new_memory"),
            created_at=fields.get("created_at") or record.created_at,
            updated_at=fields["at"],
            is_deleted=fields["event"] == "DELETE",
            actor_id=fields.get("actor_id"),
            role=fields.get("role"),
            reason=fields.get("reason"),
            batch=fields.get("batch"),
            previous_state=previous,
        )

    def _previous_state(self, fields: Fields, given: Fields, path: str, record: MemoryRecord) -> dict[str, Any]:
        """Returns the state before an event, in the form in which the ledger stores it. Scope and kind never change."""
        state = encode_record(replace(self._state(fields, given, path, record), seq=0))
        if (attachments := fields.get("attachments")) is not None:
            state["attachments"] = [encode(_attachment(one)) for one in attachments]
        corrected_ids = fields.get("corrects")
        return {**state, "corrects": corrected_ids} if corrected_ids else state

    def _recognition(self, fields: Fields, record: MemoryRecord, events: tuple[Event, ...]) -> tuple[str | None, str]:
        """Returns the key that recognises a memory's message in this ledger, or None, and the message's identity.

        That comes from the text of the first event, as later events may have changed the memory's text.
        """
        message = record.message(events[0].new_text if events and events[0].event == "ADD" else None)
        content = message.identity
        recognition = fields.get("recognition") or {}
        key, ordinal = recognition.get("key"), recognition.get("ordinal")
        if key is not None and self._has_own_keys:
            return key, content
        if record.message_id is not None:
            return self.digests.key_by_id(record.message_id, record.scope), content
        if ordinal is None:
            return None, content
        return self.digests.key_by_content(message, record.scope, ordinal), content

    def tombstone(self, fields: Fields, given: Fields) -> ImportTombstone:
        """Converts the tombstone of an erased memory; its keys count only if this ledger made them."""
        scope, at = _scope(fields), fields["at"]
        erased = _empty_memory(fields["id"], scope, Kind.EPISODE, at)
        without_texts = tuple(
            replace(event, old_text=None, new_text=None, previous_state=None, reason=None)
            for event in self._events(fields, given, erased)
        )
        own_keys = tuple(fields.get("keys") or ()) if self._has_own_keys else ()
        return ImportTombstone(erased.id, scope, at, without_texts, own_keys)

    def alias(self, fields: Fields, given: Fields) -> ImportAlias:
        """Converts an alias: two keys that mean one entity or, with "negated", do not."""
        key, other = fields["key"], fields["other"]
        if key == other:
            validation.refuse("other", given["other"], "is the same name as key")
        link = Link(folded_key(key), folded_key(other), fields.get("origin") or Origin.USER)
        at = fields.get("at") or self._now
        return ImportAlias(_scope(fields), link, at, negated=fields.get("negated") or False)

    def name(self, fields: Fields, _given: Fields) -> ImportEntityName:
        """Converts the name that a user chose for an entity."""
        at = fields.get("at") or self._now
        return ImportEntityName(_scope(fields), folded_key(fields["key"]), fields["name"], at)

    def lifecycle(self, fields: Fields, _given: Fields) -> ImportLifecycle:
        """Converts since when the lifecycle is enabled. Raises ValidationError in an export of a scope."""
        self._check_of_all_scopes()
        return ImportLifecycle(fields["since"])

    def cycle(self, fields: Fields, _given: Fields) -> ImportCycle:
        """Converts the last cycle of a partition."""
        held = fields.get("held")
        brake = None if held is None else Brake(held["forgotten"], held["memories"])
        return ImportCycle(_scope(fields), LastCycle(fields["ended_at"], brake, fields.get("changed")))

    def item(self, fields: Fields, _given: Fields) -> ImportItem:
        """Converts an exact value of an adapter."""
        created_at = fields.get("created_at") or self._now
        return ImportItem(
            Item(
                _scope(fields),
                fields["namespace"],
                fields["key"],
                fields["value"] or "null",
                created_at,
                fields.get("updated_at") or created_at,
                fields.get("memory"),
                fields.get("ttl_minutes"),
                fields.get("expires_at"),
            )
        )

    def setting(self, fields: Fields, _given: Fields) -> ImportSetting:
        """Converts a setting of the service. Raises ValidationError in an export of a scope."""
        self._check_of_all_scopes()
        value = json.loads(fields["value"] or "null")
        at, changed_by = fields.get("changed_at") or self._now, fields.get("changed_by") or "import"
        stored = StoredSetting(fields["name"], value, at, changed_by)
        return ImportSetting(fields["user_id"], stored, restore=self._restore)

    def key(self, fields: Fields, _given: Fields) -> CountLackingKey:
        """Converts a key of the service. Raises ValidationError in an export of a scope."""
        self._check_of_all_scopes()
        return CountLackingKey(
            ApiKey(
                fields["id"],
                fields.get("label") or "",
                fields["role"],
                fields.get("user_id"),
                fields.get("agent_id"),
                fields.get("created_at") or self._now,
                fields.get("expires_at"),
                fields.get("revoked_at"),
                fields.get("rate"),
            )
        )

    def _check_of_all_scopes(self) -> None:
        """Raises ValidationError in the export of a scope: whoever may have that decides nothing for all users."""
        if self._is_of_scope:
            raise ValidationError(
                "type: an export of a scope has no settings, no keys and no lifecycle; remove this record"
            )


# For each type of record: its description, and what converts its fields.
_RECORDS: dict[str, tuple[type, Callable[[RecordReader, Fields, Fields], ImportCommand | None]]] = {
    "graphmem": (records.HeaderRecord, RecordReader.header),
    "memory": (records.MemoryRecord, RecordReader.memory),
    "erased": (records.ErasedRecord, RecordReader.tombstone),
    "alias": (records.AliasRecord, RecordReader.alias),
    "name": (records.NameRecord, RecordReader.name),
    "lifecycle": (records.LifecycleRecord, RecordReader.lifecycle),
    "cycle": (records.CycleRecord, RecordReader.cycle),
    "item": (records.ItemRecord, RecordReader.item),
    "setting": (records.SettingRecord, RecordReader.setting),
    "key": (records.KeyRecord, RecordReader.key),
}


def check_format(record: Fields) -> None:
    """Raises ValidationError if the header's format is newer than this release reads."""
    header = object_reader(records.HeaderRecord, None)
    version = header.field(record, "format")
    if version > FORMAT:
        writer = header.field(record, "graphmem")
        remedy = f"this one, {__version__}, reads formats up to {FORMAT}: upgrade graphmem"
        raise ValidationError(
            f"format={version}: written by graphmem {writer or 'of a later version'}; {remedy}",
            f"format: written by a later version of graphmem; {remedy}",
        )


def _empty_memory(uid: str, scope: Scope, kind: Kind, at: datetime) -> MemoryRecord:
    """Returns a memory with an empty text, to be filled in by `replace`."""
    return MemoryRecord(uid, scope.partition, scope, kind, "", at, at, at, at, "")


def _scope(fields: Fields) -> Scope:
    """Returns the scope of a record; raises ValidationError if it has no id."""
    ids = {name: fields[name] for name in SCOPE_NAMES if fields.get(name) is not None}
    return Scope(**ids) if ids else validation.required_scope()[0]


def _share(share: float | None, default: float) -> float:
    return default if share is None else share


def _speaker(fields: Fields, base: MemoryRecord) -> str | None:
    """Returns the name that stands before a memory's text; if it is missing, finds it as for a message added now."""
    if "speaker" in fields or base.kind is not Kind.EPISODE:
        return fields.get("speaker")
    return messages.speaker_of(Message(fields.get("role") or "user", "", base.at, fields.get("actor_id")), base.scope)


def _attachment(fields: Fields) -> Attachment:
    return Attachment(
        fields["kind"],
        fields["ref"][: validation.MAX_LINK_CHARS],
        fields.get("mime"),
        fields.get("sha256"),
        fields.get("bytes"),
        fields.get("caption"),
        fields.get("transcript"),
        fields.get("described_by"),
        fields.get("at"),
    )


def _attachment_with_data(fields: Fields, path: str) -> Attachment:
    """Converts an attachment; its data, if there is some, becomes the `source`. Raises ValidationError for other data.

    Without data it refers to no blob: there is none here.
    """
    attachment, data = _attachment(fields), fields.get("data")
    if data is not None and sha256(data).hexdigest() != attachment.sha256:
        raise ValidationError(f"{path}.data: is not the data that sha256 says; export it again")
    if attachment.sha256 is not None and attachment.ref.startswith(BLOBS):
        attachment = replace(attachment, ref=f"{DIGEST}{attachment.sha256}")
    return attachment if data is None else replace(attachment, source=f"data:;base64,{b64encode(data).decode()}")


def _vitals(fields: Fields) -> StoredVitals:
    return StoredVitals(
        _share(fields.get("strength"), 1.0),
        fields.get("accesses") or 0,
        fields.get("accessed_at"),
        fields.get("rated"),
        fields.get("importance_given") or False,
        fields.get("type_computed") or False,
    )


def _link(fields: Fields, path: str) -> ImportLink:
    target_id, source_id = fields.get("memory"), fields.get("by")
    if target_id is not None and source_id is not None:
        raise ValidationError(f"{path}: has both memory and by; a link leads to one memory, remove the other")
    other_id = target_id or source_id
    if other_id is None:
        raise missing(f"{path}.memory")
    return ImportLink(fields["kind"], other_id, is_incoming=target_id is None)


def _extraction(fields: Fields) -> Extraction | None:
    """Returns mentions, statements and answer types; None without mentions: the extraction is then to be done."""
    mentions = tuple(map(_mention, fields.get("mentions") or ()))
    statements = tuple(map(_statement, fields.get("statements") or ()))
    keys = {mention.key for mention in mentions}
    if len(keys) < len(mentions):
        raise ValidationError("mentions: a key comes twice; mention each entity once")
    if unmentioned := {key for statement in statements for key in (statement.subject, statement.object)} - keys:
        validation.refuse("statements", min(unmentioned), "is a subject or object that is not among the mentions")
    if fields.get("mentions") is None:
        return None
    answer_types = AnswerType(fields.get("answer_types") or 0) or NO_ANSWER_TYPES
    return Extraction(mentions, statements, answer_types).with_folded_keys()


def _mention(fields: Fields) -> Mention:
    key, kind = fields["key"], MENTION_KINDS[fields.get("kind") or "name"]
    return Mention(key, fields.get("name") or key, fields.get("type") or EntityType.OTHER, kind)


def _statement(fields: Fields) -> Statement:
    return Statement(
        subject=fields["subject"],
        predicate=fields["predicate"],
        object=fields["object"],
        fact=fields["fact"],
        confidence=_share(fields.get("confidence"), 1.0),
        valid_at=fields.get("valid_at"),
        invalid_at=fields.get("invalid_at"),
        is_past=fields.get("is_past") or False,
    )


# --- embeddings ----------------------------------------------------------------------------------------------------


def _embeddings_for(fields: Fields, spec: EmbeddingSpec) -> Embedded | None:
    """Reads the embeddings of a text; None if this ledger uses another model or further embeddings."""
    if fields["model"] != spec.model or not spec.is_complete([name for name in spec.names if name in fields]):
        return None
    multilingual = _multilingual(fields, spec)
    vectors = _windows(fields, "vector", lambda value, path: _vector(value, path, spec.dims))
    tokens: list[Tokens] = []
    if spec.tokens is not None:
        tokens = _windows(fields, spec.tokens, lambda value, path: _tokens(value, path, spec.token_dims))
        if len(tokens) != len(vectors):
            raise ValidationError(f"embeddings: {len(vectors)} vectors and tokens of {len(tokens)} windows; give both")
    if not vectors and multilingual is None:
        return None
    stacked = np.stack(vectors) if vectors else np.empty((0, spec.dims), np.float32)
    return Embedded(stacked, tuple(tokens), multilingual)


def _windows(fields: Fields, name: str, read: Callable[[object, str], T]) -> list[T]:
    """Reads the embeddings of a form, one for each window; [] if they are missing or null."""
    items = fields.get(name)
    return [] if items is None else read_list(items, f"embeddings.{name}", read)


def _multilingual(fields: Fields, spec: EmbeddingSpec) -> Matrix | None:
    """Reads a text's vector in the multilingual space: a signed byte for each number."""
    if spec.multilingual is None:
        return None

    def read(value: object, path: str) -> Matrix:
        data = read_base64(value, path)
        if len(data) != spec.multilingual_dims:
            validation.refuse(
                path, len(data), f"bytes are no vector of {spec.multilingual_dims} dimensions; export it again"
            )
        rows: Matrix = decode_multilingual([data])
        return np.asarray(rows[0])

    rows = _windows(fields, spec.multilingual, read)
    if len(rows) > 1:
        raise ValidationError(f"embeddings.{spec.multilingual}: {len(rows)} vectors; a text has one in this space")
    return rows[0] if rows else None


def _vector(value: object, path: str, dims: int) -> Matrix:
    data = read_base64(value, path)
    if len(data) != VECTOR_BYTES * dims:
        remedy = "configure the embedder of the export, or export it again"
        validation.refuse(path, len(data), f"bytes are no vector of {dims} dimensions; {remedy}")
    vector = np.frombuffer(data, "<f4")
    if not np.isfinite(vector).all():
        validation.refuse(path, "not a number", "a vector has finite numbers; export it again")
    return vector.astype(np.float32, copy=False)


def _tokens(value: object, path: str, dims: int) -> Tokens:
    data = read_base64(value, path)
    if len(data) % dims:
        validation.refuse(path, len(data), f"bytes are no rows of {dims} dimensions; export it again")
    return np.frombuffer(data, np.int8).reshape(-1, dims)
