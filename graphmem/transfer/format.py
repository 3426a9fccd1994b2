"""Records of the format as steps. A record is a mapping as `serialization` makes it, or a converter from another
program.

A converter's memory needs "id" (a UUID), "text", "at" and one scope part. What it leaves out, or gives as null, is what
it would be for something said just now: no "events" are one ADD, without "mentions" its words are read, without
"embeddings" it is embedded. Unknown fields are refused: a misspelt one would be lost without a word.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

import numpy as np

from graphmem import __version__
from graphmem.boundary import validation
from graphmem.commands.types import (
    ImportAlias,
    ImportCommand,
    ImportEntityName,
    ImportLink,
    ImportMemory,
    ImportTombstone,
)
from graphmem.digests import Digests
from graphmem.errors import ValidationError
from graphmem.ingest import messages
from graphmem.model import (
    EMPTY_MAPPING,
    NO_ANSWER_TYPES,
    SCOPE_NAMES,
    AnswerType,
    EmbeddingSpec,
    EntityType,
    Event,
    Extraction,
    Kind,
    Link,
    MemoryRecord,
    Mention,
    MentionKind,
    Message,
    Origin,
    Scope,
    Statement,
)
from graphmem.models.protocols import Embedded, Matrix, Tokens
from graphmem.stores.ledger.memories import encode_record
from graphmem.text import content_hash

T = TypeVar("T")
Check = Callable[[object, str], T]

FORMAT = 1
EVENTS = ("ADD", "UPDATE", "RETIRE", "RESTORE", "SCOPE", "DELETE")
LINK_KINDS = ("drawn_from", "corrects", "replaces")
MENTION_KINDS = {kind.name.lower(): kind for kind in MentionKind}
MAX_VERSION = 2**31 - 1
VECTOR_BYTES = 4


class FieldReader:
    """A JSON object, read field by field; `refuse_unknown` refuses what is left over."""

    def __init__(self, value: object, path: str = "") -> None:
        self._path = f"{path}." if path else ""
        self._left = dict(validation.as_object(value, path or "record"))

    def required(self, name: str, check: Check[T]) -> T:
        """A field that has to be there."""
        found = self.optional(name, check)
        if found is None:
            raise ValidationError(f"{self._path}{name}: is missing; every such record has one")
        return found

    def optional(self, name: str, check: Check[T]) -> T | None:
        """A field, or None for one that is left out or null."""
        value = self._left.pop(name, None)
        return None if value is None else check(value, f"{self._path}{name}")

    def list_of(self, name: str, check: Check[T]) -> tuple[T, ...] | None:
        """A list of what `check` reads."""
        items = self.optional(name, validation.as_list)
        path = f"{self._path}{name}"
        return None if items is None else tuple(check(one, f"{path}[{index}]") for index, one in enumerate(items))

    def has_unread(self, name: str) -> bool:
        """Whether a field was given, if only as null, and not read yet."""
        return name in self._left

    def scope(self) -> Scope:
        """Whose it is."""
        given = {name: self._left.pop(name, None) for name in SCOPE_NAMES}
        return validation.required_scope(**given)[0]

    def refuse_unknown(self) -> None:
        """Raises ValidationError for fields that nobody asked for."""
        for name in self._left:
            raise ValidationError(f"{self._path}{name[:80]!r}: is no field of such a record; remove it")


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """The ledger that takes the records: its digests, and what it keeps of texts."""

    digests: Digests
    spec: EmbeddingSpec
    dims: int


class RecordReader:
    """Reads records in order. A first one of type "graphmem" tells which ledger they are from."""

    def __init__(self, here: ImportTarget, now: datetime, *, restore: bool = False) -> None:
        self._here = here
        self._now = now
        self._restore = restore
        # What makes a key of the file one of this ledger; None for those of another ledger or secret.
        self._has_own_keys = False

    @property
    def digests(self) -> Digests:
        """The digests of the ledger that takes the records."""
        return self._here.digests

    def command(self, record: Mapping[str, Any]) -> ImportCommand | None:
        """What a record asks for; None for one that is about the others. Raises ValidationError."""
        fields = FieldReader(record)
        kind = fields.required("type", _kind_of_record)
        step = _READERS[kind](self, fields)
        if step is not None:
            fields.refuse_unknown()
        return step

    def header(self, fields: FieldReader) -> None:
        """Which ledger the records are from."""
        check_format(fields)
        ledger, secret = (fields.optional(name, validation.stored_name) for name in ("ledger", "secret"))
        if ledger == self.digests.ledger and secret == self.digests.id:
            self._has_own_keys = True

    def trailer(self, fields: FieldReader) -> None:
        """The seal of a file, which the file's reader has checked."""

    def memory(self, fields: FieldReader) -> ImportMemory:
        """A memory with its history and what is derived from it."""
        uid, scope = fields.required("id", validation.uuid), fields.scope()
        further = fields.list_of("further_runs", validation.stored_name) or ()
        blank = replace(_blank(uid, scope, _kind(fields), self._now), further_runs=_others(further, scope))
        record = self._state(fields, blank)
        events = fields.list_of("events", lambda value, path: self._event(FieldReader(value, path), record)) or ()
        key, content = self._recognised(fields, record, events)
        found = _found(fields)
        hashed = content_hash(record.embedded_text)
        embedded = fields.optional("embeddings", lambda value, path: _embedded(FieldReader(value, path), self._here))
        return ImportMemory(
            record=record,
            spec=self._here.spec,
            text_hash=hashed,
            key=key,
            words=self.digests.content_digest(content),
            events=events,
            links=fields.list_of("links", _tie) or (),
            extraction=found,
            embedded=embedded,
            restore=self._restore,
        )

    def _state(self, fields: FieldReader, base: MemoryRecord) -> MemoryRecord:
        """A memory's own fields, now or before an event; `base` has its id, scope and kind."""
        at = fields.required("at", validation.moment)
        created = fields.optional("created_at", validation.moment) or self._now
        actor = fields.optional("actor_id", validation.stored_name)
        role = fields.optional("role", lambda value, path: validation.one_of(value, path, validation.REMEMBERED_ROLES))
        valid_from, valid_to = _validity(fields, at)
        return replace(
            base,
            text=fields.required("text", validation.content),
            at=at,
            valid_from=valid_from,
            valid_to=valid_to,
            expires_at=fields.optional("expires_at", validation.moment),
            created_at=created,
            updated_at=fields.optional("updated_at", validation.moment) or created,
            memory_type=fields.optional("memory_type", validation.memory_type),
            metadata=fields.optional("metadata", validation.stored_metadata) or EMPTY_MAPPING,
            speaker=_speaker(fields, base, role, actor),
            actor_id=actor,
            role=role,
            message_id=fields.optional("message_id", validation.stored_name),
            session=fields.optional("session", validation.stored_name) or "",
            source_only=fields.optional("source_only", validation.flag) or False,
            confidence=_sure(fields.optional("confidence", validation.share)),
            version=fields.optional("version", _version) or 1,
        )

    def _event(self, fields: FieldReader, record: MemoryRecord) -> Event:
        name = fields.required("event", lambda value, path: validation.one_of(value, path, EVENTS))
        event = Event(
            id=fields.required("id", validation.stored_name),
            memory_id=record.id,
            event=name,
            old_text=fields.optional("old_memory", validation.stored_text),
            new_text=fields.optional("new_memory", validation.stored_text),
            created_at=fields.optional("created_at", validation.moment) or record.created_at,
            updated_at=fields.required("at", validation.moment),
            is_deleted=name == "DELETE",
            actor_id=fields.optional("actor_id", validation.stored_name),
            role=fields.optional("role", validation.stored_name),
            reason=fields.optional("reason", validation.stored_text),
            previous_state=fields.optional(
                "previous_state", lambda value, path: self._before(FieldReader(value, path), record)
            ),
        )
        fields.refuse_unknown()
        return event

    def _before(self, fields: FieldReader, record: MemoryRecord) -> dict[str, Any]:
        """The state before an event, as the ledger keeps it. Neither scope nor kind ever change."""
        state = encode_record(replace(self._state(fields, record), seq=0))
        corrected = fields.list_of("corrects", validation.uuid)
        fields.refuse_unknown()
        return {**state, "corrects": list(corrected)} if corrected else state

    def _recognised(
        self, fields: FieldReader, record: MemoryRecord, events: tuple[Event, ...]
    ) -> tuple[str | None, str]:
        """What recognises a memory's message in this ledger, and the words that were said."""
        first = events[0].new_text if events and events[0].event == "ADD" else None
        content = record.text if first is None else first
        said = fields.optional("said", lambda value, path: _said(FieldReader(value, path)))
        key, ordinal = said or (None, None)
        if key is not None and self._has_own_keys:
            return key, content
        if record.message_id is not None:
            return self.digests.key_by_id(record.message_id, record.scope), content
        if ordinal is None:
            return None, content
        message = Message(record.role or "user", content, record.at, record.actor_id)
        return self.digests.key_by_content(message, record.scope, ordinal), content

    def tombstone(self, fields: FieldReader) -> ImportTombstone:
        """A memory that is no more."""
        uid, scope, at = (
            fields.required("id", validation.uuid),
            fields.scope(),
            fields.required("at", validation.moment),
        )
        gone = _blank(uid, scope, Kind.EPISODE, at)
        events = fields.list_of("events", lambda value, path: self._event(FieldReader(value, path), gone)) or ()
        keys = fields.list_of("keys", validation.stored_name) or ()
        known = tuple(keys) if self._has_own_keys else ()
        return ImportTombstone(uid, scope, at, tuple(map(_wordless, events)), known)

    def alias(self, fields: FieldReader) -> ImportAlias:
        """Two names that mean one, or (negated) do not."""
        link = Link(
            fields.required("key", validation.stored_key),
            fields.required("other", validation.stored_key),
            Origin(
                fields.optional("origin", lambda value, path: validation.one_of(value, path, Origin)) or Origin.USER
            ),
        )
        if link.key == link.other:
            validation.refuse("other", link.other, "is the same name as key")
        at = fields.optional("at", validation.moment) or self._now
        return ImportAlias(fields.scope(), link, at, negated=fields.optional("negated", validation.flag) or False)

    def name(self, fields: FieldReader) -> ImportEntityName:
        """A name that a user chose."""
        key = fields.required("key", validation.stored_key)
        name = fields.required("name", validation.stored_name)
        return ImportEntityName(fields.scope(), key, name, fields.optional("at", validation.moment) or self._now)


_READERS: dict[str, Callable[[RecordReader, FieldReader], ImportCommand | None]] = {
    "graphmem": RecordReader.header,
    "memory": RecordReader.memory,
    "erased": RecordReader.tombstone,
    "alias": RecordReader.alias,
    "name": RecordReader.name,
    "end": RecordReader.trailer,
}


def check_format(fields: FieldReader) -> None:
    """Raises ValidationError for a format that this release does not read."""
    given = fields.required("format", lambda value, path: validation.count(value, path, 1, MAX_VERSION))
    if given > FORMAT:
        by = fields.optional("graphmem", validation.stored_name)
        raise ValidationError(
            f"format={given}: written by graphmem {by or 'of a later version'}; this one, {__version__}, reads formats "
            f"up to {FORMAT}: upgrade graphmem"
        )


def _blank(uid: str, scope: Scope, kind: Kind, at: datetime) -> MemoryRecord:
    """A memory of which no more is read yet."""
    return MemoryRecord(uid, scope.partition, scope, kind, "", at, at, at, at, "")


def _others(runs: tuple[str, ...], scope: Scope) -> tuple[str, ...]:
    """Further runs, each once and none of them the memory's own."""
    return tuple(run for run in dict.fromkeys(runs) if run != scope.run_id)


def _kind_of_record(value: object, path: str) -> str:
    return validation.one_of(value, path, _READERS)


def _kind(fields: FieldReader) -> Kind:
    return Kind(fields.optional("kind", lambda value, path: validation.one_of(value, path, Kind)) or Kind.EPISODE)


def _version(value: object, path: str) -> int:
    return validation.count(value, path, 1, MAX_VERSION)


def _sure(share: float | None) -> float:
    return 1.0 if share is None else share


def _speaker(fields: FieldReader, base: MemoryRecord, role: str | None, actor: str | None) -> str | None:
    """Whose name stands before the words; where nothing is said of it, who it would be for something said now."""
    if fields.has_unread("speaker") or base.kind is not Kind.EPISODE:
        return fields.optional("speaker", validation.stored_name)
    return messages.speaker_of(Message(role or "user", "", base.at, actor), base.scope)


def _validity(fields: FieldReader, at: datetime) -> tuple[datetime, datetime | None]:
    """From when to when it is true. What ended before it began would be true at no time, and never be found."""
    begin = fields.optional("valid_from", validation.moment) or at
    end = fields.optional("valid_to", lambda value, path: _not_before(begin, value, path))
    return begin, end


def _not_before(begin: datetime, value: object, path: str) -> datetime:
    end = validation.moment(value, path)
    if end < begin:
        validation.refuse(
            path, value, f"is before valid_from ({begin.isoformat()}); give a later time, or leave it out"
        )
    return end


def _said(fields: FieldReader) -> tuple[str | None, int | None]:
    key = fields.optional("key", validation.stored_name)
    ordinal = fields.optional("ordinal", lambda value, path: validation.count(value, path, 1, validation.MAX_MESSAGES))
    fields.refuse_unknown()
    return key, ordinal


def _wordless(event: Event) -> Event:
    return replace(event, old_text=None, new_text=None, previous_state=None, reason=None)


def _tie(value: object, path: str) -> ImportLink:
    fields = FieldReader(value, path)
    kind = fields.required("kind", lambda value, path: validation.one_of(value, path, LINK_KINDS))
    back = fields.optional("by", validation.uuid)
    tie = (
        ImportLink(kind, back, is_incoming=True)
        if back is not None
        else ImportLink(kind, fields.required("memory", validation.uuid))
    )
    fields.refuse_unknown()
    return tie


def _found(fields: FieldReader) -> Extraction | None:
    """What a memory mentions and states; None where that is yet to be found."""
    mentions = fields.list_of("mentions", _mention)
    statements = fields.list_of("statements", _statement) or ()
    tells = fields.optional("answer_types", lambda value, path: validation.count(value, path, 0, sum(AnswerType))) or 0
    keys = [mention.key for mention in mentions or ()]
    if len(set(keys)) < len(keys):
        raise ValidationError("mentions: a key comes twice; mention each entity once")
    if unknown := {key for said in statements for key in (said.subject, said.object)} - set(keys):
        validation.refuse("statements", min(unknown), "is a subject or object that is not among the mentions")
    return None if mentions is None else Extraction(mentions, statements, AnswerType(tells) or NO_ANSWER_TYPES)


def _mention(value: object, path: str) -> Mention:
    fields = FieldReader(value, path)
    type_ = fields.optional("type", validation.entity_type) or EntityType.OTHER
    kind = fields.optional("kind", lambda value, path: validation.one_of(value, path, MENTION_KINDS)) or "name"
    key = fields.required("key", validation.stored_key)
    mention = Mention(key, fields.optional("name", validation.content) or key, type_, MENTION_KINDS[kind])
    fields.refuse_unknown()
    return mention


def _statement(value: object, path: str) -> Statement:
    fields = FieldReader(value, path)
    statement = Statement(
        subject=fields.required("subject", validation.stored_key),
        predicate=fields.required("predicate", validation.stored_key),
        object=fields.required("object", validation.stored_key),
        fact=fields.required("fact", validation.content),
        confidence=_sure(fields.optional("confidence", validation.share)),
        valid_at=fields.optional("valid_at", validation.moment),
        invalid_at=fields.optional("invalid_at", validation.moment),
    )
    fields.refuse_unknown()
    return statement


# --- embeddings ----------------------------------------------------------------------------------------------------


def _embedded(fields: FieldReader, here: ImportTarget) -> Embedded | None:
    """Vectors and tokens of every window; None if they are not what this ledger keeps of texts."""
    spec = here.spec
    model = fields.required("model", validation.stored_name)
    if model != spec.model or not all(map(fields.has_unread, spec.names)):
        return None
    vectors = fields.list_of("vector", lambda value, path: _vector(value, path, here.dims)) or ()
    tokens: tuple[Tokens, ...] = ()
    if spec.tokens is not None:
        tokens = fields.list_of(spec.tokens, lambda value, path: _tokens(value, path, spec.token_dims)) or ()
        if len(tokens) != len(vectors):
            raise ValidationError(f"embeddings: {len(vectors)} vectors and tokens of {len(tokens)} windows; give both")
    return Embedded(np.stack(vectors), tokens) if vectors else None


def _vector(value: object, path: str, dims: int) -> Matrix:
    data = _decoded(value, path)
    if len(data) != VECTOR_BYTES * dims:
        validation.refuse(path, len(data), f"bytes are no vector of {dims} dimensions; export it again")
    vector = np.frombuffer(data, "<f4")
    if not np.isfinite(vector).all():
        validation.refuse(path, "not a number", "a vector has finite numbers; export it again")
    return vector.astype(np.float32, copy=False)


def _tokens(value: object, path: str, dims: int) -> Tokens:
    data = _decoded(value, path)
    if len(data) % dims:
        validation.refuse(path, len(data), f"bytes are no rows of {dims} dimensions; export it again")
    return np.frombuffer(data, np.int8).reshape(-1, dims)


def _decoded(value: object, path: str) -> bytes:
    if isinstance(value, str):
        try:
            return b64decode(value, validate=True)
        except ValueError:
            pass
    return validation.refuse(path, type(value).__name__, "must be base64 text")
