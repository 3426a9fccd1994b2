"""Records of the format as steps. A record is a mapping as `writing` makes it, or a converter from another program.

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

from graphmem import __version__, arguments
from graphmem.digests import Digests
from graphmem.errors import ValidationError
from graphmem.model import (
    NOTHING,
    NOTHING_TOLD,
    SCOPE_NAMES,
    EntityType,
    Event,
    Extraction,
    Forms,
    Kind,
    Link,
    MemoryRecord,
    Mention,
    MentionKind,
    Message,
    Origin,
    Scope,
    Statement,
    Tells,
)
from graphmem.providers.base import Embedded, Matrix, Tokens
from graphmem.remember import words
from graphmem.remember.plan import Bury, Take, TakeLink, TakeName, Taking, Tie
from graphmem.stores.ledger.memories import columns_of
from graphmem.text import content_hash

T = TypeVar("T")
Check = Callable[[object, str], T]

FORMAT = 2
EVENTS = ("ADD", "UPDATE", "RETIRE", "RESTORE", "SCOPE", "DELETE")
TIES = ("drawn_from", "corrects", "replaces")
MENTION_KINDS = {kind.name.lower(): kind for kind in MentionKind}
MOST_VERSIONS = 2**31 - 1
VECTOR_BYTES = 4


class Fields:
    """A JSON object, read field by field; `done` refuses what is left over."""

    def __init__(self, value: object, path: str = "") -> None:
        self._path = f"{path}." if path else ""
        self._left = dict(arguments.fields(value, path or "record"))

    def must(self, name: str, check: Check[T]) -> T:
        """A field that has to be there."""
        found = self.may(name, check)
        if found is None:
            raise ValidationError(f"{self._path}{name}: is missing; every such record has one")
        return found

    def may(self, name: str, check: Check[T]) -> T | None:
        """A field, or None for one that is left out or null."""
        value = self._left.pop(name, None)
        return None if value is None else check(value, f"{self._path}{name}")

    def each(self, name: str, check: Check[T]) -> tuple[T, ...] | None:
        """A list of what `check` reads."""
        items = self.may(name, arguments.listed)
        path = f"{self._path}{name}"
        return None if items is None else tuple(check(one, f"{path}[{index}]") for index, one in enumerate(items))

    def has(self, name: str) -> bool:
        """Whether a field was given, if only as null, and not read yet."""
        return name in self._left

    def scope(self) -> Scope:
        """Whose it is."""
        given = {name: self._left.pop(name, None) for name in SCOPE_NAMES}
        return arguments.required_scope(**given)[0]

    def done(self) -> None:
        """Raises ValidationError for fields that nobody asked for."""
        for name in self._left:
            raise ValidationError(f"{self._path}{name[:80]!r}: is no field of such a record; remove it")


@dataclass(frozen=True, slots=True)
class Here:
    """The ledger that takes the records: its digests, and what it keeps of texts."""

    digests: Digests
    forms: Forms
    dims: int


class Reader:
    """Reads records in order. A first one of type "graphmem" tells which ledger they are from."""

    def __init__(self, here: Here, now: datetime, *, restore: bool = False) -> None:
        self._here = here
        self._now = now
        self._restore = restore
        # What makes a key of the file one of this ledger; None for those of another ledger or secret.
        self._as_key: Callable[[str], str] | None = None

    @property
    def digests(self) -> Digests:
        """The digests of the ledger that takes the records."""
        return self._here.digests

    def step(self, record: Mapping[str, Any]) -> Taking | None:
        """What a record asks for; None for one that is about the others. Raises ValidationError."""
        fields = Fields(record)
        kind = fields.must("type", _kind_of_record)
        step = _READERS[kind](self, fields)
        if step is not None:
            fields.done()
        return step

    def header(self, fields: Fields) -> None:
        """Which ledger the records are from."""
        check_format(fields)
        ledger, secret = (fields.may(name, arguments.stored_name) for name in ("ledger", "secret"))
        if ledger != self.digests.ledger:
            return
        if secret is None:  # written before there was a secret
            self._as_key = self.digests.wrapped
        elif secret == self.digests.id:
            self._as_key = str

    def end(self, fields: Fields) -> None:
        """The seal of a file, which the file's reader has checked."""

    def memory(self, fields: Fields) -> Take:
        """A memory with its history and what is derived from it."""
        uid, scope = fields.must("id", arguments.uuid), fields.scope()
        further = fields.each("further_runs", arguments.stored_name) or ()
        blank = replace(_blank(uid, scope, _kind(fields), self._now), further_runs=_others(further, scope))
        record = self._state(fields, blank)
        events = fields.each("events", lambda value, path: self._event(Fields(value, path), record)) or ()
        key, content = self._recognised(fields, record, events)
        found = _found(fields)
        hashed = content_hash(record.embedded_text)
        embedded = fields.may("embeddings", lambda value, path: _embedded(Fields(value, path), self._here))
        return Take(
            record=record,
            forms=self._here.forms,
            text_hash=hashed,
            key=key,
            words=self.digests.of_words(content),
            events=events,
            ties=fields.each("links", _tie) or (),
            found=found,
            embedded=embedded,
            restore=self._restore,
        )

    def _state(self, fields: Fields, base: MemoryRecord) -> MemoryRecord:
        """A memory's own fields, now or before an event; `base` has its id, scope and kind."""
        at = fields.must("at", arguments.moment)
        created = fields.may("created_at", arguments.moment) or self._now
        actor = fields.may("actor_id", arguments.stored_name)
        role = fields.may("role", lambda value, path: arguments.one_of(value, path, arguments.REMEMBERED_ROLES))
        valid_from, valid_to = _validity(fields, at)
        return replace(
            base,
            text=fields.must("text", arguments.content),
            at=at,
            valid_from=valid_from,
            valid_to=valid_to,
            expires_at=fields.may("expires_at", arguments.moment),
            created_at=created,
            updated_at=fields.may("updated_at", arguments.moment) or created,
            memory_type=fields.may("memory_type", arguments.memory_type),
            metadata=fields.may("metadata", arguments.stored_metadata) or NOTHING,
            speaker=_speaker(fields, base, role, actor),
            actor_id=actor,
            role=role,
            message_id=fields.may("message_id", arguments.stored_name),
            session=fields.may("session", arguments.stored_name) or "",
            source_only=fields.may("source_only", arguments.flag) or False,
            confidence=_sure(fields.may("confidence", arguments.share)),
            version=fields.may("version", _version) or 1,
        )

    def _event(self, fields: Fields, record: MemoryRecord) -> Event:
        name = fields.must("event", lambda value, path: arguments.one_of(value, path, EVENTS))
        event = Event(
            id=fields.must("id", arguments.stored_name),
            memory_id=record.id,
            event=name,
            old_text=fields.may("old_memory", arguments.stored_text),
            new_text=fields.may("new_memory", arguments.stored_text),
            created_at=fields.may("created_at", arguments.moment) or record.created_at,
            updated_at=fields.must("at", arguments.moment),
            is_deleted=name == "DELETE",
            actor_id=fields.may("actor_id", arguments.stored_name),
            role=fields.may("role", arguments.stored_name),
            reason=fields.may("reason", arguments.stored_text),
            before=fields.may("before", lambda value, path: self._before(Fields(value, path), record)),
        )
        fields.done()
        return event

    def _before(self, fields: Fields, record: MemoryRecord) -> dict[str, Any]:
        """The state before an event, as the ledger keeps it. Neither scope nor kind ever change."""
        state = columns_of(replace(self._state(fields, record), change=0))
        corrected = fields.each("corrects", arguments.uuid)
        fields.done()
        return {**state, "corrects": list(corrected)} if corrected else state

    def _recognised(self, fields: Fields, record: MemoryRecord, events: tuple[Event, ...]) -> tuple[str | None, str]:
        """What recognises a memory's message in this ledger, and the words that were said."""
        first = events[0].new_text if events and events[0].event == "ADD" else None
        content = record.text if first is None else first
        said = fields.may("said", lambda value, path: _said(Fields(value, path)))
        key, ordinal = said or (None, None)
        if key is not None and self._as_key is not None:
            return self._as_key(key), content
        if record.message_id is not None:
            return self.digests.by_id(record.message_id, record.scope), content
        if ordinal is None:
            return None, content
        message = Message(record.role or "user", content, record.at, record.actor_id)
        return self.digests.by_words(message, record.scope, ordinal), content

    def erased(self, fields: Fields) -> Bury:
        """A memory that is no more."""
        uid, scope, at = fields.must("id", arguments.uuid), fields.scope(), fields.must("at", arguments.moment)
        gone = _blank(uid, scope, Kind.EPISODE, at)
        events = fields.each("events", lambda value, path: self._event(Fields(value, path), gone)) or ()
        keys = fields.each("keys", arguments.stored_name) or ()
        known = () if self._as_key is None else tuple(map(self._as_key, keys))
        return Bury(uid, scope, at, tuple(map(_wordless, events)), known)

    def alias(self, fields: Fields) -> TakeLink:
        """Two names that mean one, or (apart) do not."""
        link = Link(
            fields.must("key", arguments.stored_key),
            fields.must("other", arguments.stored_key),
            Origin(fields.may("origin", lambda value, path: arguments.one_of(value, path, Origin)) or Origin.USER),
        )
        if link.key == link.other:
            arguments.refuse("other", link.other, "is the same name as key")
        at = fields.may("at", arguments.moment) or self._now
        return TakeLink(fields.scope(), link, at, apart=fields.may("apart", arguments.flag) or False)

    def name(self, fields: Fields) -> TakeName:
        """A name that a user chose."""
        key = fields.must("key", arguments.stored_key)
        name = fields.must("name", arguments.stored_name)
        return TakeName(fields.scope(), key, name, fields.may("at", arguments.moment) or self._now)


_READERS: dict[str, Callable[[Reader, Fields], Taking | None]] = {
    "graphmem": Reader.header,
    "memory": Reader.memory,
    "erased": Reader.erased,
    "alias": Reader.alias,
    "name": Reader.name,
    "end": Reader.end,
}


def check_format(fields: Fields) -> None:
    """Raises ValidationError for a format that this release does not read."""
    given = fields.must("format", lambda value, path: arguments.count(value, path, 1, MOST_VERSIONS))
    if given > FORMAT:
        by = fields.may("graphmem", arguments.stored_name)
        raise ValidationError(
            f"format={given}: written by graphmem {by or 'of a later version'}; this one, {__version__}, reads formats "
            f"up to {FORMAT}: upgrade graphmem"
        )


def _blank(uid: str, scope: Scope, kind: Kind, at: datetime) -> MemoryRecord:
    """A memory of which no more is read yet."""
    return MemoryRecord(uid, scope.space, scope, kind, "", at, at, at, at, "")


def _others(runs: tuple[str, ...], scope: Scope) -> tuple[str, ...]:
    """Further runs, each once and none of them the memory's own."""
    return tuple(run for run in dict.fromkeys(runs) if run != scope.run_id)


def _kind_of_record(value: object, path: str) -> str:
    return arguments.one_of(value, path, _READERS)


def _kind(fields: Fields) -> Kind:
    return Kind(fields.may("kind", lambda value, path: arguments.one_of(value, path, Kind)) or Kind.EPISODE)


def _version(value: object, path: str) -> int:
    return arguments.count(value, path, 1, MOST_VERSIONS)


def _sure(share: float | None) -> float:
    return 1.0 if share is None else share


def _speaker(fields: Fields, base: MemoryRecord, role: str | None, actor: str | None) -> str | None:
    """Whose name stands before the words; where nothing is said of it, who it would be for something said now."""
    if fields.has("speaker") or base.kind is not Kind.EPISODE:
        return fields.may("speaker", arguments.stored_name)
    return words.speaker(Message(role or "user", "", base.at, actor), base.scope)


def _validity(fields: Fields, at: datetime) -> tuple[datetime, datetime | None]:
    """From when to when it is true. What ended before it began would be true at no time, and never be found."""
    begin = fields.may("valid_from", arguments.moment) or at
    end = fields.may("valid_to", lambda value, path: _not_before(begin, value, path))
    return begin, end


def _not_before(begin: datetime, value: object, path: str) -> datetime:
    end = arguments.moment(value, path)
    if end < begin:
        arguments.refuse(path, value, f"is before valid_from ({begin.isoformat()}); give a later time, or leave it out")
    return end


def _said(fields: Fields) -> tuple[str | None, int | None]:
    key = fields.may("key", arguments.stored_name)
    ordinal = fields.may("ordinal", lambda value, path: arguments.count(value, path, 1, arguments.MAX_MESSAGES))
    fields.done()
    return key, ordinal


def _wordless(event: Event) -> Event:
    return replace(event, old_text=None, new_text=None, before=None, reason=None)


def _tie(value: object, path: str) -> Tie:
    fields = Fields(value, path)
    kind = fields.must("kind", lambda value, path: arguments.one_of(value, path, TIES))
    back = fields.may("by", arguments.uuid)
    tie = Tie(kind, back, back=True) if back is not None else Tie(kind, fields.must("memory", arguments.uuid))
    fields.done()
    return tie


def _found(fields: Fields) -> Extraction | None:
    """What a memory mentions and states; None where that is yet to be found."""
    mentions = fields.each("mentions", _mention)
    statements = fields.each("statements", _statement) or ()
    tells = fields.may("tells", lambda value, path: arguments.count(value, path, 0, sum(Tells))) or 0
    keys = [mention.key for mention in mentions or ()]
    if len(set(keys)) < len(keys):
        raise ValidationError("mentions: a key comes twice; mention each entity once")
    if unknown := {key for said in statements for key in (said.subject, said.object)} - set(keys):
        arguments.refuse("statements", min(unknown), "is a subject or object that is not among the mentions")
    return None if mentions is None else Extraction(mentions, statements, Tells(tells) or NOTHING_TOLD)


def _mention(value: object, path: str) -> Mention:
    fields = Fields(value, path)
    type_ = fields.may("type", arguments.entity_type) or EntityType.OTHER
    kind = fields.may("kind", lambda value, path: arguments.one_of(value, path, MENTION_KINDS)) or "name"
    key = fields.must("key", arguments.stored_key)
    mention = Mention(key, fields.may("name", arguments.content) or key, type_, MENTION_KINDS[kind])
    fields.done()
    return mention


def _statement(value: object, path: str) -> Statement:
    fields = Fields(value, path)
    statement = Statement(
        subject=fields.must("subject", arguments.stored_key),
        predicate=fields.must("predicate", arguments.stored_key),
        object=fields.must("object", arguments.stored_key),
        fact=fields.must("fact", arguments.content),
        confidence=_sure(fields.may("confidence", arguments.share)),
        valid_at=fields.may("valid_at", arguments.moment),
        invalid_at=fields.may("invalid_at", arguments.moment),
    )
    fields.done()
    return statement


# --- embeddings ----------------------------------------------------------------------------------------------------


def _embedded(fields: Fields, here: Here) -> Embedded | None:
    """Vectors and tokens of every window; None if they are not what this ledger keeps of texts."""
    forms = here.forms
    model = fields.must("model", arguments.stored_name)
    if model != forms.model or not all(map(fields.has, forms.names)):
        return None
    vectors = fields.each("vector", lambda value, path: _vector(value, path, here.dims)) or ()
    tokens: tuple[Tokens, ...] = ()
    if forms.tokens is not None:
        tokens = fields.each(forms.tokens, lambda value, path: _tokens(value, path, forms.token_dims)) or ()
        if len(tokens) != len(vectors):
            raise ValidationError(f"embeddings: {len(vectors)} vectors and tokens of {len(tokens)} windows; give both")
    return Embedded(np.stack(vectors), tokens) if vectors else None


def _vector(value: object, path: str, dims: int) -> Matrix:
    data = _decoded(value, path)
    if len(data) != VECTOR_BYTES * dims:
        arguments.refuse(path, len(data), f"bytes are no vector of {dims} dimensions; export it again")
    vector = np.frombuffer(data, "<f4")
    if not np.isfinite(vector).all():
        arguments.refuse(path, "not a number", "a vector has finite numbers; export it again")
    return vector.astype(np.float32, copy=False)


def _tokens(value: object, path: str, dims: int) -> Tokens:
    data = _decoded(value, path)
    if len(data) % dims:
        arguments.refuse(path, len(data), f"bytes are no rows of {dims} dimensions; export it again")
    return np.frombuffer(data, np.int8).reshape(-1, dims)


def _decoded(value: object, path: str) -> bytes:
    if isinstance(value, str):
        try:
            return b64decode(value, validate=True)
        except ValueError:
            pass
    return arguments.refuse(path, type(value).__name__, "must be base64 text")
