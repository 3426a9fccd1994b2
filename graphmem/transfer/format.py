"""Reads records of the export format as import commands, for `importer`.

A record is a mapping, made by `serialization` or by a converter from another program. A converter's memory needs "id"
(a UUID), "text", "at" and one scope id. A field that is missing or null gets the value it has for a message added now:
without "events" the history is one ADD, without "mentions" the text is extracted, without "embeddings" it is embedded.
Unknown fields are refused, because a misspelt field would be lost silently.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from typing import Any, TypeVar, get_args

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
    EVENTS,
    NEUTRAL_IMPORTANCE,
    NO_ANSWER_TYPES,
    SCOPE_NAMES,
    VECTOR_BYTES,
    AnswerType,
    Attachment,
    AttachmentKind,
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
from graphmem.transfer.records import MAX_LEVEL, MAX_OFFSET, MAX_VERSION, KeyRole, LayerName, LinkKind

T = TypeVar("T")
_SHA256 = re.compile("[0-9a-f]{64}")
Check = Callable[[object, str], T]

# 2: settings, keys and the lifecycle. Readers of format 1 refuse them as unknown types, so the number tells what to do.
FORMAT = 2
LAYERS: tuple[str, ...] = get_args(LayerName)
LINK_KINDS: tuple[str, ...] = get_args(LinkKind)
KEY_ROLES: tuple[str, ...] = get_args(KeyRole)
# Characters of a setting's value, as JSON. Each request that recalls reads it.
MAX_SETTING_CHARS = 100_000
MENTION_KINDS = {kind.name.lower(): kind for kind in MentionKind}


class FieldReader:
    """Reads a JSON object field by field; `refuse_unknown` then raises for fields that were not read.

    `path` is the object's place in the record, such as "events[0]", and begins each field's name in errors.
    """

    def __init__(self, value: object, path: str = "") -> None:
        self._path = f"{path}." if path else ""
        self._unread = dict(validation.as_object(value, path or "record"))

    def required(self, name: str, check: Check[T]) -> T:
        """Returns a required field, converted by `check`; raises ValidationError if it is missing or null."""
        value = self.optional(name, check)
        if value is None:
            raise ValidationError(f"{self._path}{name}: is missing; every such record has one")
        return value

    def optional(self, name: str, check: Check[T]) -> T | None:
        """Returns a field, converted by `check`, or None if it is missing or null."""
        value = self._unread.pop(name, None)
        return None if value is None else check(value, f"{self._path}{name}")

    def nullable(self, name: str, check: Check[T]) -> T | None:
        """Returns a field that may be null but not missing. Raises ValidationError if it is missing."""
        if not self.has_unread(name):
            raise ValidationError(f"{self._path}{name}: is missing; every such record has one")
        return self.optional(name, check)

    def json(self, name: str, max_chars: int = validation.MAX_VALUE_CHARS) -> str:
        """Returns a field that may be null but not missing, as JSON text of at most `max_chars` characters."""
        return self.nullable(name, lambda value, path: validation.json_value(value, path, max_chars)) or "null"

    def list_of(self, name: str, check: Check[T]) -> tuple[T, ...] | None:
        """Returns a field that is a list, each item converted by `check`, or None if it is missing or null."""
        items = self.optional(name, validation.as_list)
        path = f"{self._path}{name}"
        return None if items is None else tuple(check(item, f"{path}[{index}]") for index, item in enumerate(items))

    def has_unread(self, name: str) -> bool:
        """Returns True if the object has this field, even as null, and it has not been read yet."""
        return name in self._unread

    def scope(self) -> Scope:
        """Reads the scope ids; raises ValidationError if there is none."""
        ids = {name: self._unread.pop(name, None) for name in SCOPE_NAMES}
        return validation.required_scope(**ids)[0]

    def refuse_unknown(self) -> None:
        """Raises ValidationError for fields that were not read."""
        for name in self._unread:
            remedy = "is not a field of this type of record; remove it"
            raise ValidationError(f"{self._path}{name[:80]!r}: {remedy}", f"{self._path}(another name): {remedy}")


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

    def _given_time(self, value: object, path: str) -> datetime:
        return validation.given_time(value, path, self._target.timezone)

    def _moment(self, value: object, path: str) -> datetime:
        return validation.moment(value, path, self._target.timezone)

    @property
    def digests(self) -> Digests:
        """Returns the digests of the importing ledger."""
        return self._target.digests

    def command(self, record: Mapping[str, Any]) -> ImportCommand | None:
        """Converts a record to its command, or None for the header and the trailer. Raises ValidationError."""
        fields = FieldReader(record)
        record_type = fields.required("type", lambda value, path: validation.one_of(value, path, _READERS))
        command = _READERS[record_type](self, fields)
        if record_type != "end":  # `jsonl` has compared the trailer byte by byte
            fields.refuse_unknown()
        return command

    def header(self, fields: FieldReader) -> None:
        """Reads the header record: checks the format, and notes whether this ledger wrote the file.

        The fields about the file's origin are only checked.
        """
        check_format(fields)
        for name, check in (
            ("graphmem", validation.stored_name), ("embedder", validation.stored_text),
            ("exported_at", self._moment),
        ):  # fmt: skip
            fields.optional(name, check)
        self._is_of_scope = fields.optional("scope", validation.as_object) is not None
        ledger, secret_id = (fields.optional(name, validation.stored_name) for name in ("ledger", "secret"))
        if ledger == self.digests.ledger and secret_id == self.digests.id:
            self._has_own_keys = True

    def trailer(self, fields: FieldReader) -> None:
        """Ignores the trailer record."""

    def memory(self, fields: FieldReader) -> ImportMemory:
        """Reads a memory with its history, links, extraction and embeddings."""
        uid, scope = fields.required("id", validation.uuid), fields.scope()
        further_runs = fields.list_of("further_runs", validation.stored_name) or ()
        kind = fields.optional("kind", lambda value, path: validation.one_of(value, path, Kind)) or Kind.EPISODE
        base = _empty_memory(uid, scope, Kind(kind), self._now)
        attachments = fields.list_of("attachments", self._attachment_with_data) or ()
        own_runs = tuple(run for run in dict.fromkeys(further_runs) if run != scope.run_id)
        record = self._read_state(fields, replace(base, further_runs=own_runs, attachments=attachments))
        events = fields.list_of("events", lambda value, path: self._read_event(FieldReader(value, path), record)) or ()
        key, content = self._recognition(fields, record, events)
        extraction = self._extraction(fields)
        embedded = fields.optional(
            "embeddings", lambda value, path: _embeddings_for(FieldReader(value, path), self._target)
        )
        return ImportMemory(
            record=record,
            spec=self._target.spec,
            text_hash=content_hash(record.partition, record.embedded_text),
            key=key,
            content_digest=self.digests.content_digest(content),
            events=events,
            links=fields.list_of("links", _link) or (),
            extraction=extraction,
            embedded=embedded,
            vitals=fields.optional("vitals", lambda value, path: self._vitals(FieldReader(value, path))),
            restore=self._restore,
        )

    def _attachment(self, value: object, path: str) -> Attachment:
        """Reads an attachment without data."""
        fields = FieldReader(value, path)
        attachment = self._read_attachment(fields)
        fields.refuse_unknown()
        return attachment

    def _attachment_with_data(self, value: object, path: str) -> Attachment:
        """Reads an attachment; its data, if there is some, becomes the `source`. Raises ValidationError for other data.

        Without data it refers to no blob: there is none here.
        """
        fields = FieldReader(value, path)
        attachment = self._read_attachment(fields)
        data = fields.optional("data", _from_base64)
        fields.refuse_unknown()
        if data is not None and sha256(data).hexdigest() != attachment.sha256:
            raise ValidationError(f"{path}.data: is not the data that sha256 says; export it again")
        if attachment.sha256 is not None and attachment.ref.startswith(BLOBS):
            attachment = replace(attachment, ref=f"{DIGEST}{attachment.sha256}")
        return attachment if data is None else replace(attachment, source=f"data:;base64,{b64encode(data).decode()}")

    def _read_attachment(self, fields: FieldReader) -> Attachment:
        kind = fields.required("kind", lambda one, name: validation.one_of(one, name, AttachmentKind))
        return Attachment(
            AttachmentKind(kind),
            fields.required("ref", validation.stored_text)[: validation.MAX_LINK_CHARS],
            fields.optional("mime", validation.stored_name),
            fields.optional("sha256", _sha256),
            fields.optional("bytes", _number),
            fields.optional("caption", validation.stored_text),
            fields.optional("transcript", validation.stored_text),
            fields.optional("described_by", validation.stored_name),
            fields.optional("at", self._moment),
        )

    def _vitals(self, fields: FieldReader) -> StoredVitals:
        stored = StoredVitals(
            _share(fields.optional("strength", validation.share), 1.0),
            fields.optional("accesses", _number) or 0,
            fields.optional("accessed_at", self._moment),
            fields.optional("rated", _version),
            fields.optional("importance_given", validation.flag) or False,
            fields.optional("type_computed", validation.flag) or False,
        )
        fields.refuse_unknown()
        return stored

    def _read_state(self, fields: FieldReader, base: MemoryRecord) -> MemoryRecord:
        """Reads a memory's own fields, of now or of before an event; `base` has its id, scope and kind."""
        said_at = fields.required("at", self._given_time)
        at = said_at.astimezone(UTC)
        created_at = fields.optional("created_at", self._moment) or self._now
        actor_id = fields.optional("actor_id", validation.stored_name)
        role = fields.optional("role", lambda value, path: validation.one_of(value, path, validation.REMEMBERED_ROLES))
        valid_from, valid_to = self._validity(fields, at)
        # The offset is unknown if the field is there and null, as our exports have it.
        knows_offset = fields.has_unread("utc_offset")
        utc_offset = fields.optional(
            "utc_offset", lambda value, path: validation.count(value, path, -MAX_OFFSET, MAX_OFFSET)
        )
        return replace(
            base,
            text=fields.required("text", validation.content),
            at=at,
            valid_from=valid_from,
            valid_to=valid_to,
            expires_at=fields.optional("expires_at", self._moment),
            created_at=created_at,
            updated_at=fields.optional("updated_at", self._moment) or created_at,
            memory_type=fields.optional("memory_type", validation.memory_type),
            metadata=fields.optional("metadata", validation.stored_metadata) or EMPTY_MAPPING,
            speaker=_speaker(fields, base, role, actor_id),
            actor_id=actor_id,
            role=role,
            message_id=fields.optional("message_id", validation.stored_name),
            session=fields.optional("session", validation.stored_name) or "",
            source_only=fields.optional("source_only", validation.flag) or False,
            confidence=_share(fields.optional("confidence", validation.share), 1.0),
            version=fields.optional("version", _version) or 1,
            layer=Layer(
                fields.optional("layer", lambda value, path: validation.one_of(value, path, LAYERS)) or Layer.SHORT_TERM
            ),
            importance=_share(fields.optional("importance", validation.share), NEUTRAL_IMPORTANCE),
            level=fields.optional("level", lambda value, path: validation.count(value, path, 0, MAX_LEVEL)) or 0,
            pinned=fields.optional("pinned", validation.flag) or False,
            forgotten_at=fields.optional("forgotten_at", self._moment),
            utc_offset=utc_offset if knows_offset else offset_minutes(said_at, self._target.timezone),
        )

    def _validity(self, fields: FieldReader, at: datetime) -> tuple[datetime, datetime | None]:
        """Reads `valid_from` and `valid_to`; refuses one that ended before it began: it would never be found."""
        valid_from = fields.optional("valid_from", self._moment) or at

        def not_before(value: object, path: str) -> datetime:
            valid_to = self._moment(value, path)
            if valid_to < valid_from:
                validation.refuse(
                    path, value, f"is before valid_from ({valid_from.isoformat()}); give a later time, or leave it out"
                )
            return valid_to

        return valid_from, fields.optional("valid_to", not_before)

    def _read_event(self, fields: FieldReader, record: MemoryRecord) -> Event:
        name = fields.required("event", lambda value, path: validation.one_of(value, path, EVENTS))
        event = Event(
            id=fields.required("id", validation.stored_name),
            memory_id=record.id,
            event=name,
            old_text=fields.optional("old_memory", validation.stored_text),
            new_text=fields.optional("new_memory", validation.stored_text),
            created_at=fields.optional("created_at", self._moment) or record.created_at,
            updated_at=fields.required("at", self._moment),
            is_deleted=name == "DELETE",
            actor_id=fields.optional("actor_id", validation.stored_name),
            role=fields.optional("role", validation.stored_name),
            reason=fields.optional("reason", validation.stored_text),
            batch=fields.optional("batch", validation.stored_name),
            previous_state=fields.optional(
                "previous_state", lambda value, path: self._previous_state(FieldReader(value, path), record)
            ),
        )
        fields.refuse_unknown()
        return event

    def _previous_state(self, fields: FieldReader, record: MemoryRecord) -> dict[str, Any]:
        """Reads the state before an event, in the form in which the ledger stores it. Scope and kind never change."""
        state = encode_record(replace(self._read_state(fields, record), seq=0))
        attachments = fields.list_of("attachments", self._attachment)
        if attachments is not None:
            state["attachments"] = list(map(encode, attachments))
        corrected_ids = fields.list_of("corrects", validation.uuid)
        fields.refuse_unknown()
        return {**state, "corrects": list(corrected_ids)} if corrected_ids else state

    def _recognition(
        self, fields: FieldReader, record: MemoryRecord, events: tuple[Event, ...]
    ) -> tuple[str | None, str]:
        """Returns the key that recognises a memory's message in this ledger, or None, and the message's identity.

        That comes from the text of the first event, as later events may have changed the memory's text.
        """
        message = record.message(events[0].new_text if events and events[0].event == "ADD" else None)
        content = message.identity
        recognition = fields.optional("recognition", lambda value, path: _message_recognition(FieldReader(value, path)))
        key, ordinal = recognition or (None, None)
        if key is not None and self._has_own_keys:
            return key, content
        if record.message_id is not None:
            return self.digests.key_by_id(record.message_id, record.scope), content
        if ordinal is None:
            return None, content
        return self.digests.key_by_content(message, record.scope, ordinal), content

    def _extraction(self, fields: FieldReader) -> Extraction | None:
        """Reads mentions, statements and answer types; None without mentions: the extraction is then to be done."""
        mentions = fields.list_of("mentions", _mention)
        statements = fields.list_of("statements", self._statement) or ()
        answer_types = (
            fields.optional("answer_types", lambda value, path: validation.count(value, path, 0, sum(AnswerType))) or 0
        )
        keys = [mention.key for mention in mentions or ()]
        if len(set(keys)) < len(keys):
            raise ValidationError("mentions: a key comes twice; mention each entity once")
        if unmentioned := {key for statement in statements for key in (statement.subject, statement.object)} - set(
            keys
        ):
            validation.refuse("statements", min(unmentioned), "is a subject or object that is not among the mentions")
        if mentions is None:
            return None
        return Extraction(mentions, statements, AnswerType(answer_types) or NO_ANSWER_TYPES).with_folded_keys()

    def _statement(self, value: object, path: str) -> Statement:
        fields = FieldReader(value, path)
        statement = Statement(
            subject=fields.required("subject", validation.stored_key),
            predicate=fields.required("predicate", validation.stored_key),
            object=fields.required("object", validation.stored_key),
            fact=fields.required("fact", validation.content),
            confidence=_share(fields.optional("confidence", validation.share), 1.0),
            valid_at=fields.optional("valid_at", self._moment),
            invalid_at=fields.optional("invalid_at", self._moment),
            is_past=fields.optional("is_past", validation.flag) or False,
        )
        fields.refuse_unknown()
        return statement

    def tombstone(self, fields: FieldReader) -> ImportTombstone:
        """Reads the tombstone of an erased memory; its keys count only if this ledger made them."""
        uid, scope = fields.required("id", validation.uuid), fields.scope()
        at = fields.required("at", self._moment)
        erased = _empty_memory(uid, scope, Kind.EPISODE, at)
        events = fields.list_of("events", lambda value, path: self._read_event(FieldReader(value, path), erased)) or ()
        keys = fields.list_of("keys", validation.stored_name) or ()
        own_keys = tuple(keys) if self._has_own_keys else ()
        without_texts = tuple(
            replace(event, old_text=None, new_text=None, previous_state=None, reason=None) for event in events
        )
        return ImportTombstone(uid, scope, at, without_texts, own_keys)

    def alias(self, fields: FieldReader) -> ImportAlias:
        """Reads an alias: two keys that mean one entity or, with "negated", do not."""
        key, other = (fields.required(name, validation.stored_key) for name in ("key", "other"))
        origin = fields.optional("origin", lambda value, path: validation.one_of(value, path, Origin)) or Origin.USER
        if key == other:
            validation.refuse("other", other, "is the same name as key")
        link = Link(folded_key(key), folded_key(other), Origin(origin))
        at = fields.optional("at", self._moment) or self._now
        return ImportAlias(fields.scope(), link, at, negated=fields.optional("negated", validation.flag) or False)

    def name(self, fields: FieldReader) -> ImportEntityName:
        """Reads the name that a user chose for an entity."""
        key = folded_key(fields.required("key", validation.stored_key))
        name = fields.required("name", validation.stored_name)
        return ImportEntityName(fields.scope(), key, name, fields.optional("at", self._moment) or self._now)

    def lifecycle(self, fields: FieldReader) -> ImportLifecycle:
        """Reads since when the lifecycle is enabled. Raises ValidationError in an export of a scope."""
        self._check_of_all_scopes()
        return ImportLifecycle(fields.required("since", self._moment))

    def cycle(self, fields: FieldReader) -> ImportCycle:
        """Reads the last cycle of a partition."""
        held = fields.optional("held", lambda value, path: _held(FieldReader(value, path)))
        ended_at, changed = fields.required("ended_at", self._moment), fields.optional("changed", _number)
        return ImportCycle(fields.scope(), LastCycle(ended_at, held, changed))

    def item(self, fields: FieldReader) -> ImportItem:
        """Reads an exact value of an adapter."""
        created_at = fields.optional("created_at", self._moment) or self._now
        namespace = fields.required("namespace", validation.as_list)
        return ImportItem(
            Item(
                fields.scope(),
                validation.namespace(namespace, "namespace"),
                fields.required("key", validation.item_key),
                fields.json("value"),
                created_at,
                fields.optional("updated_at", self._moment) or created_at,
                fields.optional("memory", validation.uuid),
                fields.optional("ttl_minutes", validation.minutes),
                fields.optional("expires_at", self._moment),
            )
        )

    def setting(self, fields: FieldReader) -> ImportSetting:
        """Reads a setting of the service. Raises ValidationError in an export of a scope."""
        self._check_of_all_scopes()
        user_id = fields.nullable("user_id", validation.identifier)
        name, value = fields.required("name", validation.stored_name), fields.json("value", MAX_SETTING_CHARS)
        at = fields.optional("changed_at", self._moment) or self._now
        changed_by = fields.optional("changed_by", validation.stored_name) or "import"
        return ImportSetting(user_id, StoredSetting(name, json.loads(value), at, changed_by), restore=self._restore)

    def key(self, fields: FieldReader) -> CountLackingKey:
        """Reads a key of the service. Raises ValidationError in an export of a scope."""
        self._check_of_all_scopes()
        return CountLackingKey(
            ApiKey(
                fields.required("id", validation.stored_name),
                fields.optional("label", validation.stored_name) or "",
                fields.required("role", lambda value, path: validation.one_of(value, path, KEY_ROLES)),
                fields.optional("user_id", validation.identifier),
                fields.optional("agent_id", validation.identifier),
                fields.optional("created_at", self._moment) or self._now,
                fields.optional("expires_at", self._moment),
                fields.optional("revoked_at", self._moment),
                fields.optional("rate", validation.rate),
            )
        )

    def _check_of_all_scopes(self) -> None:
        """Raises ValidationError in the export of a scope: whoever may have that decides nothing for all users."""
        if self._is_of_scope:
            raise ValidationError(
                "type: an export of a scope has no settings, no keys and no lifecycle; remove this record"
            )


_READERS: dict[str, Callable[[RecordReader, FieldReader], ImportCommand | None]] = {
    "graphmem": RecordReader.header,
    "memory": RecordReader.memory,
    "erased": RecordReader.tombstone,
    "alias": RecordReader.alias,
    "name": RecordReader.name,
    "lifecycle": RecordReader.lifecycle,
    "cycle": RecordReader.cycle,
    "item": RecordReader.item,
    "setting": RecordReader.setting,
    "key": RecordReader.key,
    "end": RecordReader.trailer,
}


def check_format(fields: FieldReader) -> None:
    """Raises ValidationError if the header's format is newer than this release reads."""
    version = fields.required("format", lambda value, path: validation.count(value, path, 1, MAX_VERSION))
    if version > FORMAT:
        writer = fields.optional("graphmem", validation.stored_name)
        remedy = f"this one, {__version__}, reads formats up to {FORMAT}: upgrade graphmem"
        raise ValidationError(
            f"format={version}: written by graphmem {writer or 'of a later version'}; {remedy}",
            f"format: written by a later version of graphmem; {remedy}",
        )


def _empty_memory(uid: str, scope: Scope, kind: Kind, at: datetime) -> MemoryRecord:
    """Returns a memory with an empty text, to be filled in by `replace`."""
    return MemoryRecord(uid, scope.partition, scope, kind, "", at, at, at, at, "")


def _version(value: object, path: str) -> int:
    return validation.count(value, path, 1, MAX_VERSION)


def _number(value: object, path: str) -> int:
    return validation.count(value, path, 0, MAX_VERSION)


def _sha256(value: object, path: str) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        validation.refuse(path, value, "must be a SHA-256 as 64 digits and small letters")
    return value


def _held(fields: FieldReader) -> Brake:
    held = Brake(fields.required("forgotten", _number), fields.required("memories", _number))
    fields.refuse_unknown()
    return held


def _share(share: float | None, default: float) -> float:
    return default if share is None else share


def _speaker(fields: FieldReader, base: MemoryRecord, role: str | None, actor_id: str | None) -> str | None:
    """Reads the name that stands before a memory's text; if it is missing, finds it as for a message added now."""
    if fields.has_unread("speaker") or base.kind is not Kind.EPISODE:
        return fields.optional("speaker", validation.stored_name)
    return messages.speaker_of(Message(role or "user", "", base.at, actor_id), base.scope)


def _message_recognition(fields: FieldReader) -> tuple[str | None, int | None]:
    key = fields.optional("key", validation.stored_name)
    ordinal = fields.optional("ordinal", lambda value, path: validation.count(value, path, 1, validation.MAX_MESSAGES))
    fields.refuse_unknown()
    return key, ordinal


def _link(value: object, path: str) -> ImportLink:
    fields = FieldReader(value, path)
    kind = fields.required("kind", lambda value, path: validation.one_of(value, path, LINK_KINDS))
    source_id = fields.optional("by", validation.uuid)
    if source_id is not None:
        link = ImportLink(kind, source_id, is_incoming=True)
    else:
        link = ImportLink(kind, fields.required("memory", validation.uuid))
    fields.refuse_unknown()
    return link


def _mention(value: object, path: str) -> Mention:
    fields = FieldReader(value, path)
    type_ = fields.optional("type", validation.entity_type) or EntityType.OTHER
    kind = fields.optional("kind", lambda value, path: validation.one_of(value, path, MENTION_KINDS)) or "name"
    key = fields.required("key", validation.stored_key)
    mention = Mention(key, fields.optional("name", validation.content) or key, type_, MENTION_KINDS[kind])
    fields.refuse_unknown()
    return mention


# --- embeddings ----------------------------------------------------------------------------------------------------


def _embeddings_for(fields: FieldReader, target: ImportTarget) -> Embedded | None:
    """Reads the embeddings of a text; None if this ledger uses another model or further embeddings."""
    spec = target.spec
    model = fields.required("model", validation.stored_name)
    if model != spec.model or not spec.is_complete([name for name in spec.names if fields.has_unread(name)]):
        return None
    multilingual = _multilingual(fields, spec)
    vectors = fields.list_of("vector", lambda value, path: _vector(value, path, spec.dims)) or ()
    tokens: tuple[Tokens, ...] = ()
    if spec.tokens is not None:
        tokens = fields.list_of(spec.tokens, lambda value, path: _tokens(value, path, spec.token_dims)) or ()
        if len(tokens) != len(vectors):
            raise ValidationError(f"embeddings: {len(vectors)} vectors and tokens of {len(tokens)} windows; give both")
    if not vectors and multilingual is None:
        return None
    return Embedded(np.stack(vectors) if vectors else np.empty((0, spec.dims), np.float32), tokens, multilingual)


def _multilingual(fields: FieldReader, spec: EmbeddingSpec) -> Matrix | None:
    """Reads a text's vector in the multilingual space: a signed byte for each number."""
    if spec.multilingual is None:
        return None

    def read(value: object, path: str) -> Matrix:
        data = _from_base64(value, path)
        if len(data) != spec.multilingual_dims:
            validation.refuse(
                path, len(data), f"bytes are no vector of {spec.multilingual_dims} dimensions; export it again"
            )
        rows: Matrix = decode_multilingual([data])
        return np.asarray(rows[0])

    rows = fields.list_of(spec.multilingual, read) or ()
    if len(rows) > 1:
        raise ValidationError(f"embeddings.{spec.multilingual}: {len(rows)} vectors; a text has one in this space")
    return rows[0] if rows else None


def _vector(value: object, path: str, dims: int) -> Matrix:
    data = _from_base64(value, path)
    if len(data) != VECTOR_BYTES * dims:
        remedy = "configure the embedder of the export, or export it again"
        validation.refuse(path, len(data), f"bytes are no vector of {dims} dimensions; {remedy}")
    vector = np.frombuffer(data, "<f4")
    if not np.isfinite(vector).all():
        validation.refuse(path, "not a number", "a vector has finite numbers; export it again")
    return vector.astype(np.float32, copy=False)


def _tokens(value: object, path: str, dims: int) -> Tokens:
    data = _from_base64(value, path)
    if len(data) % dims:
        validation.refuse(path, len(data), f"bytes are no rows of {dims} dimensions; export it again")
    return np.frombuffer(data, np.int8).reshape(-1, dims)


def _from_base64(value: object, path: str) -> bytes:
    if isinstance(value, str):
        try:
            return b64decode(value, validate=True)
        except ValueError:
            pass
    return validation.refuse_unseen(path, value, "must be base64 text")
