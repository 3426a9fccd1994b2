"""The records of the export format, as types: `serialization` writes them, and `fields` reads imports by them.

A field that is `NotRequired` may be missing or null in an import, and then gets the value it has for a message added
now. A type's `Check` reads its values. `docs/generate.py` makes the format's JSON Schema and its reference page from
this module, by the constraints in `Field`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from pydantic.config import JsonDict

# pydantic accepts the TypedDict of typing from Python 3.12 on only.
from typing_extensions import TypedDict

from graphmem.boundary import validation
from graphmem.boundary.validation import (
    MAX_ATTACHMENTS,
    MAX_CONTENT_CHARS,
    MAX_KEY_CHARS,
    MAX_LINK_CHARS,
    MAX_MESSAGES,
    MAX_NAME_CHARS,
)
from graphmem.model import (
    SCOPE_NAMES,
    AnswerType,
    AttachmentKind,
    EntityType,
    EventName,
    Kind,
    MemoryType,
    Origin,
    Role,
)
from graphmem.transfer.fields import Check

MAX_VERSION = 2**31 - 1
# Minutes of a day: no clock is farther from UTC.
MAX_OFFSET = 1440
# The highest level of abstraction.
MAX_LEVEL = 3
# Characters of a setting's value, as JSON. Each request that recalls reads it.
MAX_SETTING_CHARS = 100_000

LinkKind: TypeAlias = Literal["drawn_from", "corrects", "replaces", "compresses", "abstracts", "made_of"]
MentionKindName: TypeAlias = Literal["title", "name", "noun_phrase", "common_noun"]
LayerName: TypeAlias = Literal["short_term", "long_term"]
KeyRole: TypeAlias = Literal["user", "app", "admin", "metrics"]

_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_SHA256 = "^[0-9a-f]{64}$"
Uuid: TypeAlias = Annotated[str, Field(pattern=_UUID), Check(validation.uuid)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS), Check(validation.stored_name)]
ScopeId: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS), Check(validation.identifier)]
Key: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARS), Check(validation.stored_key)]
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_CONTENT_CHARS), Check(validation.content)]
AnyText: TypeAlias = Annotated[str, Field(max_length=MAX_CONTENT_CHARS), Check(validation.stored_text)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1), Check(validation.share)]
Time: TypeAlias = Annotated[str | float, Check(validation.moment, takes_zone=True)]
"""ISO 8601 text, or seconds since 1970-01-01 UTC. Without a UTC offset it is local to the configured time zone; a
date is its midnight there."""
TimeWithOffset: TypeAlias = Annotated[str | float, Check(validation.given_time, takes_zone=True)]
"""A time that is read with its UTC offset."""


def _read_sha256(value: object, path: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(_SHA256, value):
        validation.refuse(path, value, "must be a SHA-256 as 64 digits and small letters")
    return value


def read_base64(value: object, path: str) -> bytes:
    """Returns the bytes of base64 text. Raises ValidationError for other values."""
    if isinstance(value, str):
        try:
            return b64decode(value, validate=True)
        except ValueError:
            pass
    return validation.refuse_unseen(path, value, "must be base64 text")


def _read_nothing(value: object, _path: str) -> object:
    return value


Sha256: TypeAlias = Annotated[str, Field(pattern=_SHA256), Check(_read_sha256)]
Base64: TypeAlias = Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"}), Check(read_base64)]

_HAS_SCOPE: JsonDict = {
    "anyOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in SCOPE_NAMES]
}
_scoped = with_config(ConfigDict(extra="forbid", json_schema_extra=_HAS_SCOPE))


class ScopeIds(TypedDict):
    """The ids of a scope; at least one is set."""

    user_id: NotRequired[
        Annotated[ScopeId | None, Field(description="The user. At least one of the three ids is set.")]
    ]
    agent_id: NotRequired[Annotated[ScopeId | None, Field(description="The agent.")]]
    run_id: NotRequired[Annotated[ScopeId | None, Field(description="The run; of a memory, the first one.")]]


class State(TypedDict):
    """The fields of a memory that an event can change."""

    text: Annotated[Text, Field(description="The text of the memory.")]
    at: Annotated[TimeWithOffset, Field(description="The observation time: when the text was said.")]
    utc_offset: NotRequired[
        Annotated[
            Annotated[int, Field(ge=-MAX_OFFSET, le=MAX_OFFSET)] | None,
            Field(
                description="The minutes by which the speaker's clock is ahead of UTC. Null: unknown. By default the "
                "offset of `at`."
            ),
        ]
    ]
    memory_type: NotRequired[
        Annotated[
            MemoryType | None, Field(description="The memory type, if it has one."), Check(validation.memory_type)
        ]
    ]
    metadata: NotRequired[
        Annotated[
            dict[str, Any] | None,
            Field(description="The metadata, at most 20 levels deep. By default empty."),
            Check(validation.stored_metadata),
        ]
    ]
    speaker: NotRequired[
        Annotated[
            Name | None,
            Field(
                description="The name in front of the text in its embedding and index. Null: none. If the field of an "
                "episode is missing, it is found as for a message added now."
            ),
        ]
    ]
    actor_id: NotRequired[Annotated[Name | None, Field(description="The name of the author, if the message had one.")]]
    role: NotRequired[Annotated[Role | None, Field(description="The role of the author.")]]
    message_id: NotRequired[Annotated[Name | None, Field(description="The id of the message, if it had one.")]]
    session: NotRequired[
        Annotated[
            Name | None,
            Field(
                description="The session. By default a memory's is found as for a message added now; `undo` does not "
                "change it."
            ),
        ]
    ]
    source_only: NotRequired[Annotated[bool | None, Field(description="True for a source message. By default false.")]]
    confidence: NotRequired[Annotated[Share | None, Field(description="How sure it is, 0 to 1. By default 1.")]]
    version: NotRequired[
        Annotated[
            Annotated[int, Field(ge=1, le=MAX_VERSION)] | None,
            Field(description="The version of the memory, counted from 1. By default 1."),
        ]
    ]
    valid_from: NotRequired[Annotated[Time | None, Field(description="The time from which it holds. By default `at`.")]]
    created_at: NotRequired[
        Annotated[Time | None, Field(description="When it was stored. By default the time of the import.")]
    ]
    updated_at: NotRequired[
        Annotated[Time | None, Field(description="When it was last changed. By default `created_at`.")]
    ]
    valid_to: NotRequired[
        Annotated[
            Time | None, Field(description="The time at which it ends, not before `valid_from`. Null: it still holds.")
        ]
    ]
    expires_at: NotRequired[
        Annotated[Time | None, Field(description="The time after which it is not shown. Null: never.")]
    ]
    layer: NotRequired[Annotated[LayerName | None, Field(description="Its layer. By default `short_term`.")]]
    importance: NotRequired[Annotated[Share | None, Field(description="Its importance, 0 to 1. By default 0.5.")]]
    level: NotRequired[
        Annotated[
            Annotated[int, Field(ge=0, le=MAX_LEVEL)] | None,
            Field(description="How far it was abstracted from others. By default 0: not at all."),
        ]
    ]
    pinned: NotRequired[Annotated[bool | None, Field(description="True if no cycle may forget it. By default false.")]]
    forgotten_at: NotRequired[
        Annotated[Time | None, Field(description="The time from which on it is hidden. Null: it is not forgotten.")]
    ]


class Vitals(TypedDict):
    """What the lifecycle knows of a memory."""

    strength: NotRequired[
        Annotated[
            Share | None,
            Field(description="Its retention at the last cycle, 1 since it was found again. By default 1."),
        ]
    ]
    accesses: NotRequired[
        Annotated[
            Annotated[int, Field(ge=0, le=MAX_VERSION)] | None,
            Field(description="How often searches have found it. By default 0."),
        ]
    ]
    accessed_at: NotRequired[Annotated[Time | None, Field(description="When a search last found it. Null: never.")]]
    rated: NotRequired[
        Annotated[
            Annotated[int, Field(ge=1, le=MAX_VERSION)] | None,
            Field(description="The version whose `importance` was computed. Null: the next cycle computes it."),
        ]
    ]
    importance_given: NotRequired[
        Annotated[
            bool | None, Field(description="Whether the caller gave the `importance`, which stays. By default no.")
        ]
    ]
    type_computed: NotRequired[
        Annotated[bool | None, Field(description="Whether a cycle computed the `memory_type`. By default no.")]
    ]


class Attachment(TypedDict):
    """What came with a message beside its words."""

    kind: Annotated[AttachmentKind, Field(description="What it is.")]
    ref: Annotated[
        str,
        Field(
            max_length=MAX_LINK_CHARS,
            description="A URL, the id of a file, `blobs/` and the digest of data that is kept, or the beginning of "
            "data that is not.",
        ),
        Check(validation.stored_text),
    ]
    mime: NotRequired[Annotated[Name | None, Field(description="Its media type, if that is known.")]]
    sha256: NotRequired[
        Annotated[
            Sha256 | None,
            Field(description="The SHA-256 of its data, in hexadecimal, if that came with the message."),
        ]
    ]
    bytes: NotRequired[
        Annotated[Annotated[int, Field(ge=0, le=MAX_VERSION)] | None, Field(description="The bytes of that data.")]
    ]
    caption: NotRequired[Annotated[AnyText | None, Field(description="What is to be seen. Null: nobody said so.")]]
    transcript: NotRequired[Annotated[AnyText | None, Field(description="What is said in it. Null: nobody said so.")]]
    described_by: NotRequired[
        Annotated[
            Name | None, Field(description="Who said so: `message`, `function`, or the name of a model. Null: nobody.")
        ]
    ]
    at: NotRequired[Annotated[Time | None, Field(description="When a model said so.")]]


class AttachmentWithData(Attachment):
    """An attachment of a memory, with its data if the ledger keeps that."""

    data: NotRequired[
        Annotated[
            Base64 | None,
            Field(description="Its data. A ledger whose `attachments.store` is not `folder` leaves it out."),
        ]
    ]


class Corrected(TypedDict):
    """The source messages that a fact corrects."""

    corrects: NotRequired[
        Annotated[
            list[Uuid] | None,
            Field(description="The source messages that the memory already corrected before the event."),
        ]
    ]


class PreviousState(Corrected, State):
    """The state of a memory before an event, to which `undo` returns."""

    attachments: NotRequired[
        Annotated[
            Annotated[list[Attachment], Field(max_length=MAX_ATTACHMENTS)] | None,
            Field(description="Its attachments before the event, if that described some."),
        ]
    ]


class Event(TypedDict):
    """One event of a memory's history."""

    id: Annotated[Name, Field(description="The id of the event.")]
    event: Annotated[
        EventName,
        Field(
            description="What happened: the memory was added, changed, retired, restored, hidden (FORGET), shown again "
            "(REMEMBER), moved to the long-term layer (PROMOTE) or back (DEMOTE), or erased (DELETE). SCOPE: its "
            "message was added again in another run or with an agent, or one of its runs was deleted."
        ),
    ]
    at: Annotated[Time, Field(description="When it happened.")]
    old_memory: NotRequired[Annotated[AnyText | None, Field(description="The text before the event.")]]
    new_memory: NotRequired[Annotated[AnyText | None, Field(description="The text after the event.")]]
    previous_state: NotRequired[
        Annotated[PreviousState | None, Field(description="The state before the event, if `undo` can return to it.")]
    ]
    reason: NotRequired[Annotated[AnyText | None, Field(description="Why it happened.")]]
    batch: NotRequired[
        Annotated[Name | None, Field(description="The id of the lifecycle's cycle that it is part of. Null: of none.")]
    ]
    actor_id: NotRequired[Annotated[Name | None, Field(description="The name of the author.")]]
    role: NotRequired[Annotated[Name | None, Field(description="The role of the author.")]]
    created_at: NotRequired[
        Annotated[Time | None, Field(description="When the memory was stored. By default the memory's `created_at`.")]
    ]


class MessageRecognition(TypedDict):
    """Recognises the message of a memory when it is added again."""

    key: NotRequired[
        Annotated[
            Name | None,
            Field(description="A digest of the message. Counts only in the ledger that wrote it, with its secret key."),
        ]
    ]
    ordinal: NotRequired[
        Annotated[
            Annotated[int, Field(ge=1, le=MAX_MESSAGES)] | None,
            Field(
                description="For a message without an id: its number, from 1, among messages of equal content. Another "
                "ledger recognises it by this."
            ),
        ]
    ]


class Mention(TypedDict):
    """An entity that a memory mentions."""

    key: Annotated[Key, Field(description="The key of the entity: its normalised name.")]
    name: NotRequired[Annotated[Text | None, Field(description="Its name in the text. By default the key.")]]
    type: NotRequired[
        Annotated[
            EntityType | None,
            Field(description="The type of the entity. By default `Other`."),
            Check(validation.entity_type),
        ]
    ]
    kind: NotRequired[
        Annotated[MentionKindName | None, Field(description="How the memory mentions it. By default `name`.")]
    ]


class Statement(TypedDict):
    """A relation as a memory states it. Subject and object are among the memory's mentions."""

    subject: Annotated[Key, Field(description="The key of the subject.")]
    predicate: Annotated[Key, Field(description='The predicate; "not " in front of it negates it.')]
    object: Annotated[Key, Field(description="The key of the object.")]
    fact: Annotated[Text, Field(description="The sentence that states the relation.")]
    confidence: NotRequired[Annotated[Share | None, Field(description="How sure it is, 0 to 1. By default 1.")]]
    valid_at: NotRequired[Annotated[Time | None, Field(description="The beginning that the sentence gives.")]]
    invalid_at: NotRequired[Annotated[Time | None, Field(description="The end that the sentence gives.")]]
    is_past: NotRequired[
        Annotated[
            bool | None,
            Field(
                description="True if it is over: without `valid_at` its beginning is unknown then. By default false: "
                "it begins with the memory."
            ),
        ]
    ]


class MemoryLink(TypedDict):
    """A link between two memories of one partition; one of `memory` and `by` is set."""

    kind: Annotated[
        LinkKind,
        Field(
            description="`drawn_from`: drawn from the other memory; `corrects`: corrects a source message; `replaces`: "
            "stands in place of a retired memory; `compresses`: of a forgotten one that was merged into it; "
            "`abstracts`: is an abstraction of the other memory; `made_of`: has its words, as a merged memory."
        ),
    ]
    memory: NotRequired[
        Annotated[
            Uuid | None,
            Field(
                description="The memory that this one is drawn from or made of, corrects, replaces, compresses or "
                "abstracts."
            ),
        ]
    ]
    by: NotRequired[
        Annotated[
            Uuid | None,
            Field(
                description="The memory that is drawn from this one or made of it, corrects, replaces, compresses or "
                "abstracts it."
            ),
        ]
    ]


@with_config(ConfigDict(extra="allow"))
class Embeddings(TypedDict):
    """The embeddings of a memory, one item for each window of its text.

    Further fields are named after the embedding form. That of the token vectors, such as `tokens-128`, holds their
    signed bytes. That of the multilingual space holds one vector of the whole text: signed bytes, to be
    divided by their length. A text in a language that the model does not read has it alone. A
    ledger with another embedding model ignores all of them and embeds the text itself.
    """

    model: Annotated[Name, Field(description="The embedding model.")]
    vector: NotRequired[
        Annotated[
            list[Base64] | None,
            Field(description="The vectors: little-endian 32-bit floats, as base64."),
            Check(_read_nothing),  # `format` reads the forms of its own model only
        ]
    ]


@with_config(ConfigDict(extra="forbid"))
class HeaderRecord(TypedDict):
    """The first record of a file."""

    type: Literal["graphmem"]
    format: Annotated[
        int,
        Field(ge=1, description="The version of the format. A newer one than ours is refused."),
        Check(partial(validation.count, minimum=1, maximum=MAX_VERSION)),
    ]
    graphmem: NotRequired[Annotated[Name | None, Field(description="The release of graphmem that wrote the file.")]]
    ledger: NotRequired[Annotated[Name | None, Field(description="The UUID of the exported ledger.")]]
    secret: NotRequired[
        Annotated[Name | None, Field(description="The id of the ledger's secret key, which is not the key itself.")]
    ]
    embedder: NotRequired[
        Annotated[str | None, Field(description="The embedding model of the ledger."), Check(validation.stored_text)]
    ]
    exported_at: NotRequired[Annotated[Time | None, Field(description="When the file was written.")]]
    scope: NotRequired[
        Annotated[
            dict[str, str] | None,
            Field(description="The scope that was exported. Null: all scopes."),
            Check(validation.as_object),
        ]
    ]


class MemoryScope(ScopeIds):
    """The scope of a memory, with all runs in which its message was added."""

    further_runs: NotRequired[
        Annotated[list[Name] | None, Field(description="The runs besides `run_id` in which its message was added.")]
    ]


@_scoped
class MemoryRecord(MemoryScope, State):
    """A memory with its history, links, extraction and embeddings."""

    type: Literal["memory"]
    id: Annotated[Uuid, Field(description="The id of the memory, a UUID in lower case.")]
    kind: NotRequired[Annotated[Kind | None, Field(description="The kind of the memory. By default `episode`.")]]
    recognition: NotRequired[
        Annotated[MessageRecognition | None, Field(description="Recognises its message when it is added again.")]
    ]
    events: NotRequired[
        Annotated[list[Event] | None, Field(description="Its history, oldest first. By default one ADD.")]
    ]
    answer_types: NotRequired[
        Annotated[
            Annotated[int, Field(ge=0, le=sum(AnswerType))] | None,
            Field(
                description="The sum of its answer types: "
                + ", ".join(f"{member.value} {member.name}" for member in AnswerType)
                + ". Without `mentions` it is ignored."
            ),
        ]
    ]
    mentions: NotRequired[
        Annotated[
            list[Mention] | None,
            Field(description="The entities that it mentions, each once. Null: they are extracted from the text."),
        ]
    ]
    statements: NotRequired[Annotated[list[Statement] | None, Field(description="The relations that it states.")]]
    links: NotRequired[
        Annotated[
            list[MemoryLink] | None,
            Field(description="Its links with memories that stand before it in the file. Links to others are skipped."),
        ]
    ]
    embeddings: NotRequired[
        Annotated[Embeddings | None, Field(description="Its embeddings. Null: the text is embedded by the import.")]
    ]
    attachments: NotRequired[
        Annotated[
            Annotated[list[AttachmentWithData], Field(max_length=MAX_ATTACHMENTS)] | None,
            Field(
                description="What came with its message beside words, in order. The lines of their captions and "
                "transcripts are part of `text`."
            ),
        ]
    ]
    vitals: NotRequired[
        Annotated[Vitals | None, Field(description="What the lifecycle knows of it. Null: nothing yet.")]
    ]


@_scoped
class ErasedRecord(ScopeIds):
    """A tombstone: an erased memory with its history, without its texts."""

    type: Literal["erased"]
    id: Annotated[Uuid, Field(description="The id of the erased memory.")]
    at: Annotated[Time, Field(description="When it was erased.")]
    events: NotRequired[Annotated[list[Event] | None, Field(description="Its history, without texts.")]]
    keys: NotRequired[
        Annotated[
            list[Name] | None,
            Field(description="Digests of its messages. They count only in the ledger that wrote them."),
        ]
    ]


@_scoped
class AliasRecord(ScopeIds):
    """Two keys of a partition that mean one entity."""

    type: Literal["alias"]
    key: Annotated[Key, Field(description="One key.")]
    other: Annotated[Key, Field(description="The other key.")]
    origin: NotRequired[
        Annotated[Origin | None, Field(description="Who linked them: the user, or a rule. By default `user`.")]
    ]
    negated: NotRequired[
        Annotated[bool | None, Field(description="True if a user said that they are two entities. By default false.")]
    ]
    at: NotRequired[
        Annotated[Time | None, Field(description="When they were linked. By default the time of the import.")]
    ]


@_scoped
class NameRecord(ScopeIds):
    """A name that a user chose for an entity."""

    type: Literal["name"]
    key: Annotated[Key, Field(description="The key of the entity.")]
    name: Annotated[Name, Field(description="The chosen name.")]
    at: NotRequired[Annotated[Time | None, Field(description="When it was chosen. By default the time of the import.")]]


@with_config(ConfigDict(extra="forbid"))
class LifecycleRecord(TypedDict):
    """Since when the lifecycle is enabled. Only exports of all scopes have it, and only a new ledger takes it."""

    type: Literal["lifecycle"]
    since: Annotated[Time, Field(description="Nothing has faded before this time.")]


@with_config(ConfigDict(extra="forbid"))
class Held(TypedDict):
    """What holds a cycle that would forget too much at once."""

    forgotten: Annotated[int, Field(ge=0, le=MAX_VERSION, description="How many memories it would have forgotten.")]
    memories: Annotated[int, Field(ge=0, le=MAX_VERSION, description="Of how many.")]


@_scoped
class CycleRecord(ScopeIds):
    """The last cycle of the lifecycle over a partition."""

    type: Literal["cycle"]
    ended_at: Annotated[Time, Field(description="When it ended.")]
    held: NotRequired[Annotated[Held | None, Field(description="Set if it did nothing. Null: it ran.")]]
    changed: NotRequired[
        Annotated[
            int | None,
            Field(
                ge=0,
                le=MAX_VERSION,
                description="How many memories it forgot, promoted, made of others and erased. Null: not known.",
            ),
        ]
    ]


@_scoped
class ItemRecord(ScopeIds):
    """An exact value that an adapter of an agent framework stored, or a judgement of a memory."""

    type: Literal["item"]
    namespace: Annotated[
        list[str], Field(min_length=1, description="The labels of its namespace."), Check(validation.namespace)
    ]
    key: Annotated[
        AnyText, Field(description="Its key, unique in its scope and namespace."), Check(validation.item_key)
    ]
    value: Annotated[Any, Field(description="The value: any JSON."), Check(validation.json_value)]
    memory: NotRequired[
        Annotated[
            Uuid | None,
            Field(description="The memory made of its text, or judged. An import that has erased it skips the item."),
        ]
    ]
    created_at: NotRequired[
        Annotated[Time | None, Field(description="When it was first stored. By default the time of the import.")]
    ]
    updated_at: NotRequired[
        Annotated[Time | None, Field(description="When it was last stored. By default `created_at`.")]
    ]
    ttl_minutes: NotRequired[
        Annotated[
            Annotated[float, Field(gt=0), Check(validation.minutes)] | None,
            Field(description="The minutes after its last access when it expires. Null: never."),
        ]
    ]
    expires_at: NotRequired[Annotated[Time | None, Field(description="When it expires. Null: never.")]]


class SettingRecord(TypedDict):
    """A setting of the service, of a user or of all users. Only exports of all scopes have such records."""

    type: Literal["setting"]
    user_id: Annotated[ScopeId | None, Field(description="The user. Null: all users.")]
    name: Annotated[Name, Field(description="The name of the setting.")]
    value: Annotated[
        Any,
        Field(description="The value: any JSON, at most 100,000 characters. Null: it was removed."),
        Check(partial(validation.json_value, max_chars=MAX_SETTING_CHARS)),
    ]
    changed_at: NotRequired[
        Annotated[Time | None, Field(description="When it was last changed. By default the time of the import.")]
    ]
    changed_by: NotRequired[
        Annotated[Name | None, Field(description="The id of the key with which it was changed. By default `import`.")]
    ]


class KeyRecord(TypedDict):
    """A key of the service, without its secret. An import makes no key of it. Only exports of all scopes have them."""

    type: Literal["key"]
    id: Annotated[Name, Field(description="The id of the key.")]
    role: Annotated[KeyRole, Field(description="What the key may do.")]
    label: NotRequired[Annotated[Name | None, Field(description="What the key is for.")]]
    user_id: NotRequired[Annotated[ScopeId | None, Field(description="The user to whom it is bound.")]]
    agent_id: NotRequired[Annotated[ScopeId | None, Field(description="The agent to whom it is bound.")]]
    rate: NotRequired[
        Annotated[
            Name | None,
            Field(description="Its rate limit, such as `600/minute`. Null: the one that is configured."),
            Check(validation.rate),
        ]
    ]
    created_at: NotRequired[
        Annotated[Time | None, Field(description="When it was made. By default the time of the import.")]
    ]
    expires_at: NotRequired[Annotated[Time | None, Field(description="When it expires. Null: never.")]]
    revoked_at: NotRequired[Annotated[Time | None, Field(description="When it was revoked. Null: it was not.")]]


class EndRecord(TypedDict):
    """The last record of a file, the trailer: the numbers of records by type, and the digest."""

    type: Literal["end"]
    memories: Annotated[int, Field(ge=0, description='The number of records of the type "memory".')]
    erased: Annotated[int, Field(ge=0, description='The number of records of the type "erased".')]
    aliases: Annotated[int, Field(ge=0, description='The number of records of the type "alias".')]
    names: Annotated[int, Field(ge=0, description='The number of records of the type "name".')]
    items: Annotated[int, Field(ge=0, description='The number of records of the type "item".')]
    settings: NotRequired[
        Annotated[int, Field(ge=0, description='The number of records of the type "setting". Absent in format 1.')]
    ]
    keys: NotRequired[
        Annotated[int, Field(ge=0, description='The number of records of the type "key". Absent in format 1.')]
    ]
    sha256: Annotated[Sha256, Field(description="The SHA-256 of all bytes before this line, in hexadecimal.")]


Record: TypeAlias = (
    HeaderRecord
    | MemoryRecord
    | ErasedRecord
    | AliasRecord
    | NameRecord
    | LifecycleRecord
    | CycleRecord
    | ItemRecord
    | SettingRecord
    | KeyRecord
    | EndRecord
)


def record_adapter() -> TypeAdapter[Record]:
    """Returns the validator of records, which also makes their JSON Schema."""
    return TypeAdapter(Annotated[Record, Field(discriminator="type")], config=ConfigDict(extra="forbid"))
