"""Checks the arguments of public calls and converts them to the types of `graphmem.model`.

Each check takes the value and the argument's name, and raises `ValidationError` naming that argument. Texts that no
store can hold are refused only here: UTF-8 has no lone surrogates and PostgreSQL no NUL. The text of a message is
otherwise stored unchanged; only names and ids are trimmed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from difflib import get_close_matches
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, NoReturn, TypeGuard, TypeVar, get_args
from unicodedata import normalize

from graphmem.boundary import content_parts
from graphmem.errors import ValidationError
from graphmem.escapes import json_text
from graphmem.folding import is_blank
from graphmem.model import (
    EPOCH,
    SCOPE_NAMES,
    Attachment,
    AttachmentKind,
    EntityType,
    EventType,
    Kind,
    MemoryType,
    Message,
    MinRelevance,
    Role,
    Scope,
)
from graphmem.times import localized, offset_minutes, shown, warn_of_missing_offset

T = TypeVar("T")

REMEMBERED_ROLES: frozenset[str] = frozenset(get_args(Role))
IGNORED_ROLES = frozenset({"system", "developer"})
_ROLES = REMEMBERED_ROLES | IGNORED_ROLES
MEMORY_TYPES: tuple[str, ...] = get_args(MemoryType)
# mem0's name for a memory type: with a language model, `add` writes a summary of an agent's actions instead of facts.
PROCEDURAL_MEMORY = "procedural_memory"
LOGIC = ("AND", "OR", "NOT")

MAX_NAME_CHARS = 256
MAX_KEY_CHARS = 512
MAX_CONTENT_CHARS = 1_000_000
# Characters of a context; and so many, or tokens, that a line of any memory fits: the longest name and title, and the
# beginning of a sentence.
MAX_CONTEXT_CHARS, ROOMY_CONTEXT = 1_000_000, 1000
MAX_MESSAGES = 10_000
MAX_QUERY_CHARS = 100_000
MAX_DOCUMENT_DEPTH = 20
MAX_DOCUMENT_BYTES = 256 * 1024
# Bytes of the metadata of a call, which each of its messages gets: 10,000 small messages could store gigabytes.
MAX_COPIED_BYTES = 32 * 1024 * 1024
MAX_FILTER_DEPTH = 10
MAX_FILTER_CONDITIONS = 200
# Comparisons of characters that a call's filter may need: `contains` takes 2 seconds for so many, with texts made for
# that 10. 190 conditions on 360 memories with 256 KB of metadata would need 17 times as many.
MAX_COMPARED_CHARS = 10**9
MAX_TOP_K = 1000
MAX_LINK_CHARS = 2048
MAX_INT_BITS = 1024
MAX_NAMESPACE_CHARS = 400
MAX_ITEM_KEY_CHARS = 4096
MAX_VALUE_CHARS = 10_000_000
MAX_VALUE_DEPTH = 100
MAX_MINUTES = 100 * 366 * 24 * 60
DATA_URL_CHARS = 64
# Attachments of a message, and the bytes of their data, together.
MAX_ATTACHMENTS = 100
MAX_ATTACHMENT_BYTES = 32 * 1024 * 1024
# What an attachment is described by when the message itself tells it.
BY_MESSAGE = "message"

_UNSTORABLE_CHARS = re.compile("[\x00\ud800-\udfff]")
_CONTROL_CHARS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
TEXT_PART_TYPES = frozenset({"text", "input_text", "output_text"})
_KEYS_INSTEAD_OF_CONTENT = frozenset({"tool_calls", "function_call", "refusal", "audio"})
# A day with hyphens, alone or before a time.
_ISO_TIME = re.compile(r"\s*\d{4}-\d{2}-\d{2}(?:\s*$|[Tt ]\d)", re.ASCII)
# Seconds since 1970 as text. Four to eight digits are a year, a month or a day in ISO 8601.
_EPOCH_SECONDS = re.compile(r"(?!\d{4,8}(?:\.|$))-?\d+(?:\.\d+)?", re.ASCII)
# A number of requests in a unit of time.
_RATE = re.compile(r"[1-9]\d{0,8}/(second|minute|hour|day)")
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUBSCRIBER = re.compile(r"[A-Za-z0-9._-]{1,80}")
# Each level of AND / OR / NOT is two containers, a mapping and its list; an operand adds up to MAX_DOCUMENT_DEPTH;
# 4 are a reserve.
_MAX_FILTER_CONTAINERS = 2 * MAX_FILTER_DEPTH + MAX_DOCUMENT_DEPTH + 4


@dataclass(frozen=True, slots=True)
class InputLimits:
    """Limits of one call's input, which settings can lower, not raise.

    `timezone`: the configured time zone, to which times without a UTC offset are local (None: that of the machine).
    """

    max_message_chars: int = MAX_CONTENT_CHARS
    max_messages: int = MAX_MESSAGES
    max_metadata_bytes: int = MAX_DOCUMENT_BYTES
    max_attachment_bytes: int = MAX_ATTACHMENT_BYTES
    max_filter_depth: int = MAX_FILTER_DEPTH
    max_filter_conditions: int = MAX_FILTER_CONDITIONS
    max_top_k: int = MAX_TOP_K
    timezone: tzinfo | None = None


LIMITS = InputLimits()

_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = _SHORT_REPR.maxlong = 80


def refuse(argument: str, value: object, remedy: str) -> NoReturn:
    """Raises `ValidationError` with the argument's name, its value (shortened to 80 characters) and the remedy."""
    try:
        value_text = _SHORT_REPR.repr(value)
    except ValueError:  # Python refuses to print an int of more than 4300 digits
        value_text = f"<{type(value).__name__}>"
    # `argument` may contain the caller's own keys, so it is escaped to one line and shortened like the value.
    name = _SHORT_REPR.repr(argument)[1:-1]
    kind = value.kind if isinstance(value, _RedactedText) else type(value).__name__
    raise ValidationError(f"{name}={value_text[:80]}: {remedy}", f"{name} ({kind}): {remedy}", argument=name)


def refuse_unseen(argument: str, value: object, remedy: str) -> NoReturn:
    """Raises as `refuse` does, with the length or type in place of a value that may hold a user's text."""
    refuse(argument, _RedactedText(value), remedy)


# --- scope, ids and paths ------------------------------------------------------------------------------------------


def scope(
    user_id: object = None,
    agent_id: object = None,
    run_id: object = None,
    *,
    filters: object = None,
) -> tuple[Scope | None, dict[str, Any] | None]:
    """Returns the scope of a call (None without any id) and its filters without scope ids (None without conditions).

    mem0 2.x passes scope ids in `filters`; there they must stand at the top level or in the parts of AND, be plain
    strings and agree with each other and with the arguments. Ids are strings (numbers are converted) of 1..256
    characters after trimming.
    """
    ids = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
    scope_ids = {name: identifier(value, name) for name, value in ids.items() if value is not None}
    conditions = {} if filters is None else _take_scope_ids(_checked_mapping(filters, "filters"), scope_ids, "filters")
    refuse_scope_names(conditions, "filters")
    return (Scope(**scope_ids) if scope_ids else None), conditions or None


def _take_scope_ids(
    filters: Mapping[Any, Any], scope_ids: dict[str, str], argument: str, depth: int = 0
) -> dict[Any, Any]:
    """Returns filters without the scope ids that hold for all of them, which are added to `scope_ids`.

    Those are the ids at the top and in the parts of AND. A part that has nothing else is left out.
    """
    conditions = dict(filters)
    for name in [name for name in SCOPE_NAMES if name in conditions]:
        raw = conditions.pop(name)
        scope_id = identifier(raw, f"{argument}.{name}")
        if scope_ids.setdefault(name, scope_id) != scope_id:
            refuse(f"{argument}.{name}", raw, f"differs from another {name} of this call; one call is about one")
    parts = conditions.get("AND")
    if isinstance(parts, list | tuple) and depth < MAX_FILTER_DEPTH:
        kept = [
            _take_scope_ids(part, scope_ids, f"{argument}.AND[{index}]", depth + 1)
            if isinstance(part, Mapping)
            else part
            for index, part in enumerate(parts)
        ]
        # An empty part that was sent is an error, which `boundary.filters` names.
        conditions["AND"] = [part for part, sent in zip(kept, parts, strict=True) if part != {} or sent == {}]
        if parts and not conditions["AND"]:
            del conditions["AND"]
    return conditions


def required_scope(
    user_id: object = None, agent_id: object = None, run_id: object = None, *, filters: object = None
) -> tuple[Scope, dict[str, Any] | None]:
    """Returns the scope and the remaining filters as `scope` does. Raises `ValidationError` without any id."""
    call_scope, conditions = scope(user_id, agent_id, run_id, filters=filters)
    if call_scope is None:
        message = "user_id, agent_id and run_id are all missing: pass at least one to say whose memories to use"
        raise ValidationError(message, argument="user_id")
    return call_scope, conditions


def refuse_scope_names(node: object, argument: str, depth: int = 0) -> None:
    """Raises `ValidationError` if a scope id is a key anywhere in `node`, as no condition may change the scope."""
    if depth > _MAX_FILTER_CONTAINERS:
        refuse(argument, node, f"is nested too deeply; use at most {MAX_FILTER_DEPTH} levels of AND / OR / NOT")
    if isinstance(node, Mapping):
        for name in SCOPE_NAMES:
            if name in node:
                remedy = (
                    "scope ids cannot be filter conditions, as one call is about one scope; give "
                    f"{name} beside the filters, or at their top"
                )
                refuse(f"{argument}.{name}", node[name], remedy)
        node = list(node.values())
    if isinstance(node, list | tuple):
        for child in node:
            refuse_scope_names(child, argument, depth + 1)


def identifier(value: object, argument: str) -> str:
    """Returns the id of a user, agent or run: a string of 1..256 characters after trimming, or a number as text.

    In NFC: keyboards and file systems write "é" as one character or as two, and both are one user.
    """
    name = _checked_name(composed(_checked_name(_number_to_text(value, argument), argument)), argument)
    if name == "*":
        refuse(argument, value, "wildcards are not supported; give the id of one user, agent or run")
    return name


def composed(name: str) -> str:
    """Returns an id in NFC, as ids are compared."""
    return normalize("NFC", name)


def _number_to_text(value: object, argument: str) -> object:
    """Returns the digits of a number as text, and any other value unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(_finite_number(value, argument))


def _checked_name(value: object, argument: str) -> str:
    """Returns a trimmed single-line string of 1..256 characters: an id or a speaker's name."""
    if not isinstance(value, str):
        refuse(argument, value, "must be a non-empty string")
    text = value.strip()
    if not text:
        refuse(argument, value, "is empty; give a non-empty string, or leave it out")
    if len(text) > MAX_NAME_CHARS:
        refuse(argument, value, f"has {len(text)} characters; use at most {MAX_NAME_CHARS}")
    if _CONTROL_CHARS.search(text):
        remedy = "contains control characters, such as NUL, or lone surrogates; remove them"
        refuse_unseen(argument, value, remedy)
    return text


def folder(value: object, argument: str = "path") -> str:
    """Returns a folder's path as text, which may be ":memory:". Does not look at the file system."""
    return path_text(value, argument, 'must be the path of a folder, or ":memory:"')


def path_text(value: object, argument: str, remedy: str) -> str:
    """Returns a path as text. `remedy` says what it must be. Does not look at the file system."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or not path:
        refuse(argument, value, remedy)
    if "\0" in path:
        refuse_unseen(argument, path, "holds a NUL character, which no file name can contain; remove it")
    if not is_encodable(path):
        refuse_unseen(argument, path, "holds a lone surrogate, which no file name can contain; correct it")
    return path


def is_encodable(path: str) -> bool:
    """Returns True if the file system's encoding has all characters of this path."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def home(value: object, argument: str = "path") -> Path:
    """Returns the path of a folder, with "~" expanded."""
    try:
        return Path(folder(value, argument)).expanduser()
    except RuntimeError:
        refuse(argument, value, "begins with ~, but that home folder is unknown; write it out")


# --- messages ------------------------------------------------------------------------------------------------------


class Paragraph(dict[str, Any]):
    """A message read from a file of prose: one paragraph of the document whose id is `document`."""

    def __init__(self, message: Mapping[str, Any], document: str) -> None:
        super().__init__(message)
        self.document = document


def message_list(
    value: object, *, timestamp: object = None, now: datetime, limits: InputLimits = LIMITS
) -> list[Message]:
    """Returns the messages of a call that have text, as `parse_messages` does; others are left out."""
    return [one for one in parse_messages(value, timestamp=timestamp, now=now, limits=limits) if one.text]


def parse_messages(
    value: object, *, timestamp: object = None, now: datetime, limits: InputLimits = LIMITS
) -> list[Message]:
    """Reads the messages of a call: a string, one message dict, or a list of either; returns them in order.

    A dict has `role`, `content` and optionally `name`, `timestamp`, `id`, `metadata`; of other keys, which clients of
    language models add, only an assistant's `audio` counts. Every message is checked; system and developer messages and
    empty ones are then left out. Those without words stay, if they have content parts of another kind. `timestamp` is
    the call's time, for messages without their own; `now`, with a time zone, is used if there is neither. Raises
    `ValidationError`.
    """
    items = [value] if isinstance(value, str | Mapping) else value
    if not isinstance(items, list | tuple):
        refuse_unseen("messages", value, 'pass a string, a {"role", "content"} dict, or a list of them')
    if len(items) > limits.max_messages:
        message = f"messages: {len(items):,} in one call; pass at most {limits.max_messages:,}, then call again"
        raise ValidationError(message)
    call_time = None if timestamp is None else given_time(timestamp, "timestamp", limits.timezone)
    names = ["messages"] if items is not value else [f"messages[{index}]" for index in range(len(items))]
    parsed = [_message(item, name, call_time, now, limits) for item, name in zip(items, names, strict=True)]
    return [
        replace(message, index=index)
        for index, (message, has_parts) in enumerate(parsed)
        if message.role in REMEMBERED_ROLES and (has_parts or not is_blank(message.content))
    ]


def single_message(value: object, now: datetime) -> Message:
    """Reads one message of any role, which may be empty; see `parse_messages`."""
    return _message(value, "messages", None, now, LIMITS)[0]


def _message(
    value: object, argument: str, call_time: datetime | None, now: datetime, limits: InputLimits
) -> tuple[Message, bool]:
    """Returns a message, and whether it has content parts that are no text."""
    if isinstance(value, str):
        value = {"role": "user", "content": value}
    if not isinstance(value, Mapping):
        refuse_unseen(argument, value, 'pass a string or a {"role", "content"} dict')
    role, name, raw_id = value.get("role"), value.get("name"), value.get("id")
    if "content" not in value and _KEYS_INSTEAD_OF_CONTENT.isdisjoint(value):
        refuse(argument, sorted(map(str, value)), 'has no "content"; put the text there')
    if "role" not in value:
        refuse(argument, sorted(map(str, value)), f'has no "role"; give one of {_quoted_list(sorted(_ROLES))}')
    if not isinstance(role, str) or role not in _ROLES:
        refuse(f"{argument}.role", role, f"must be one of {_quoted_list(sorted(_ROLES))}")
    own_time = value.get("timestamp")
    given = call_time if own_time is None else given_time(own_time, f"{argument}.timestamp", limits.timezone)
    at = now.astimezone(limits.timezone) if given is None else given
    raw_content, tool_output = value.get("content"), _tool_output(value.get("content"))
    read = _content(tool_output or raw_content, f"{argument}.content", limits)
    audio = value.get("audio")
    if isinstance(audio, Mapping):  # an answer that OpenAI's models speak
        read.take({**audio, "type": "audio"}, f"{argument}.audio", limits)
    message = Message(
        role="tool" if tool_output else str.__str__(role),
        content=_checked_text("\n".join(read.texts), f"{argument}.content", limits.max_message_chars),
        at=at.astimezone(UTC),
        utc_offset=offset_minutes(at, limits.timezone),
        name=None if name is None else _checked_name(name, f"{argument}.name"),
        id=None if raw_id is None else _checked_name(_number_to_text(raw_id, f"{argument}.id"), f"{argument}.id"),
        has_own_time=given is not None,
        attachments=tuple(read.attachments),
        metadata=metadata(value.get("metadata"), f"{argument}.metadata", limits),
        document=value.document if isinstance(value, Paragraph) else None,
    )
    if len(message.text) > max(limits.max_message_chars, len(message.content)):
        remedy = f"has with its captions and transcripts more than {limits.max_message_chars:,} characters"
        refuse_unseen(f"{argument}.content", message.text, f"{remedy}; shorten them")
    return message, read.has_parts


def _tool_output(content: object) -> list[object]:
    """Returns the content parts in the tool results of a message that holds nothing else; [] for any other message.

    Some APIs have the results of tools in messages of the user, who did not say them.
    """
    parts = [content] if isinstance(content, Mapping) else content
    if not isinstance(parts, list | tuple):
        return []
    if not all(isinstance(part, Mapping) and part.get("type") == "tool_result" for part in parts):
        return []
    outputs = [part.get("content") for part in parts]
    return [
        inner
        for output in outputs
        if output is not None
        for inner in (output if isinstance(output, list | tuple) else [output])
    ]


@dataclass(slots=True)
class _Content:
    """The content of a message: its texts, and its attachments. `has_parts`: there are parts that are no text."""

    texts: list[str] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    has_parts: bool = False

    def take(self, part: Mapping[Any, Any], argument: str, limits: InputLimits) -> None:
        """Reads a content part that is no text; one that refers to nothing is left out."""
        self.has_parts = True
        for name, value in part.items():
            if isinstance(value, bytes | bytearray):
                refuse_unseen(f"{argument}.{name}", value, "is bytes; give a data: URL, or base64 text")
        medium = content_parts.read_part(part)
        if medium is None:
            return
        told = (medium.caption, f"{argument}.caption"), (medium.transcript, f"{argument}.transcript")
        caption, transcript = (
            None if text is None else _checked_text(text, name, limits.max_message_chars) for text, name in told
        )
        link = medium.link
        if match := _UNSTORABLE_CHARS.search(link):
            refuse_unseen(argument, link, f"holds an unusable character at {match.start()}; correct the link")
        data = content_parts.data_of(link)
        attachment = Attachment(
            medium.kind,
            _shorten_link(link),
            None if medium.mime is None else storable_part(medium.mime, MAX_NAME_CHARS),
            None if data is None else hashlib.sha256(data).hexdigest(),
            None if data is None else len(data),
            caption,
            transcript,
            source=link if data or content_parts.is_web_address(link) else None,
        )
        self.attachments.append(replace(attachment, described_by=BY_MESSAGE) if attachment.is_described else attachment)
        if len(self.attachments) > MAX_ATTACHMENTS:
            refuse(argument, medium.kind.value, f"is one attachment too many; a message has at most {MAX_ATTACHMENTS}")
        if sum(one.size or 0 for one in self.attachments) > limits.max_attachment_bytes:
            remedy = (
                f"the data of a message's attachments has more than {limits.max_attachment_bytes:,} bytes; send "
                "smaller ones, or their URLs (limits.max_attachment_bytes)"
            )
            refuse(argument, medium.kind.value, remedy)


def attachments(value: object, argument: str, known: tuple[Attachment, ...] = ()) -> tuple[Attachment, ...]:
    """Reads attachments as dicts of kind, ref, mime, caption and transcript.

    One that refers to the same as a `known` one is that, with this caption and transcript; of several the first that no
    other is.
    """
    found, left = [], list(known)
    for index, item in enumerate(as_list(value, argument, MAX_ATTACHMENTS)):
        path = f"{argument}[{index}]"
        fields = _checked_mapping(item, path)
        kind = AttachmentKind(one_of(fields.get("kind"), f"{path}.kind", AttachmentKind))
        ref = _checked_text(fields.get("ref"), f"{path}.ref", MAX_LINK_CHARS)
        told = [
            None if fields.get(name) is None else _checked_text(fields[name], f"{path}.{name}", MAX_CONTENT_CHARS)
            for name in ("caption", "transcript")
        ]
        same = next((one for one in left if (one.kind, one.ref) == (kind, ref)), None)
        if same is not None:
            left = [one for one in left if one is not same]
        read = replace(same or Attachment(kind, ref), caption=told[0] or None, transcript=told[1] or None)
        found.append(read if read.is_described else replace(read, described_by=None, at=None))
    return tuple(found)


def _content(value: object, argument: str, limits: InputLimits) -> _Content:
    """Returns the texts of a message unchanged, and its other content parts as attachments."""
    read = _Content()
    if value is None:
        return read
    parts = [value] if isinstance(value, str | Mapping) else value
    if not isinstance(parts, list | tuple):
        refuse_unseen(argument, value, "must be a string, None, a content part, or a list of content parts")
    for index, part in enumerate(parts):
        part_path = argument if part is value else f"{argument}[{index}]"
        if isinstance(part, str):
            read.texts.append(_checked_text(part, part_path, limits.max_message_chars))
        elif not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            refuse_unseen(part_path, part, 'must be a content part such as {"type": "text", "text": "…"}')
        elif part["type"] in TEXT_PART_TYPES:
            read.texts.append(_checked_text(part.get("text"), f"{part_path}.text", limits.max_message_chars))
        else:
            read.take(part, part_path, limits)
    return read


def _shorten_link(text: str) -> str:
    """Returns a link unchanged; cuts inlined data (a data: URL, base64) to its first 64 characters and its length."""
    if len(text) <= (DATA_URL_CHARS if text.startswith("data:") else MAX_LINK_CHARS):
        return text
    return f"{text[:DATA_URL_CHARS]}… [{len(text)} characters, cut]"


class _RedactedText:
    """Shows the length or type of a value in an error message, which ends up in logs, instead of a user's text."""

    def __init__(self, value: object) -> None:
        self.kind = type(value).__name__
        self._description = f"<{len(value)} characters>" if isinstance(value, str) else f"<{self.kind}>"

    def __repr__(self) -> str:
        return self._description


def _checked_text(value: object, argument: str, max_chars: int) -> str:
    if not isinstance(value, str):
        refuse_unseen(argument, value, "must be a string")
    if len(value) > max_chars:
        refuse_unseen(argument, value, f"has {len(value)} characters; use at most {max_chars:,}")
    if match := _UNSTORABLE_CHARS.search(value):
        name = "a NUL character" if match.group() == "\0" else "a lone surrogate"
        refuse_unseen(argument, value, f"holds {name} at {match.start()}, which no store can keep; remove it")
    return str.__str__(value)


# --- times ---------------------------------------------------------------------------------------------------------


def moment(value: object, argument: str, zone: tzinfo | None = None) -> datetime:
    """Returns a UTC datetime from a datetime or date, ISO 8601 text, or epoch seconds, also as text.

    A time without a UTC offset is local to `zone` (None: to this machine), which the log says once; a date is its
    midnight there. Raises `ValidationError` for any other value, and for years outside 1..9999.
    """
    return given_time(value, argument, zone).astimezone(UTC)


def given_time(value: object, argument: str, zone: tzinfo | None) -> datetime:
    """Returns a time as `moment` reads it, with the UTC offset that it came with; epoch seconds come in UTC."""
    try:
        parsed = _parsed_time(value)
        if parsed is not None:
            aware = localized(parsed, zone)
            aware.astimezone(UTC)  # raises where that is outside the calendar
            if aware is not parsed and not _is_date_without_time(value):
                warn_of_missing_offset()
            return aware
    except (ValueError, OverflowError):
        pass
    refuse(argument, value, "must be a time: ISO 8601 text or epoch seconds (not milliseconds), years 1..9999")


def _parsed_time(value: object) -> datetime | None:
    """Returns the time that a value names, without an offset if it has none; None for a value that is no time.

    Raises ValueError or OverflowError for a text or a number that names none.
    """
    if _is_epoch_text(value):
        value = float(value)
    if isinstance(value, str):
        return datetime.fromisoformat(value.strip())
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001  (the caller gives it a zone)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return EPOCH + timedelta(seconds=value)
    return None


def _is_epoch_text(value: object) -> TypeGuard[str]:
    """Whether a value is a text of epoch seconds, as command lines and queries of URLs have them."""
    return isinstance(value, str) and _EPOCH_SECONDS.fullmatch(value.strip()) is not None


def stored_moment(value: object, zone: tzinfo | None) -> datetime | None:
    """Returns the UTC moment of a date, or of a text that is one in ISO 8601, as `moment` reads it; else None.

    The text begins with a date with hyphens, so that a number in digits is none.
    """
    if not isinstance(value, date) and not (isinstance(value, str) and _ISO_TIME.match(value)):
        return None
    try:
        parsed = _parsed_time(value)
        return None if parsed is None else localized(parsed, zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def asked_at(reference_date: object, default: datetime, zone: tzinfo | None) -> datetime:
    """Returns the moment from which a query counts, `default` if none is given, in the asker's time zone.

    The meaning of "yesterday", and the days that are shown, depend on that zone: the one that `reference_date` has,
    else `zone`, else UTC. A time without an offset is local, as for `moment`.
    """
    if reference_date is None:
        return shown(default, zone)
    given = given_time(reference_date, "reference_date", zone)
    is_by_clock = isinstance(reference_date, str | date) and not _is_epoch_text(reference_date)
    return given if is_by_clock else shown(given, zone)


def expiration(value: object, argument: str = "expiration_date", zone: tzinfo | None = None) -> datetime | None:
    """Returns the moment after which a memory is no longer shown; None means never.

    As in mem0, a date without a time ("2025-12-31") includes that day: it becomes the day's last microsecond in `zone`.
    """
    if value is None:
        return None
    start = given_time(value, argument, zone)
    if not _is_date_without_time(value):
        return start.astimezone(UTC)
    return localized(datetime.combine(start.date(), time.max), zone).astimezone(UTC)


def _is_date_without_time(value: object) -> bool:
    if not isinstance(value, str):
        return not isinstance(value, datetime) and isinstance(value, date)
    try:
        date.fromisoformat(value.strip())
    except ValueError:
        return False
    return True


# --- JSON documents and texts --------------------------------------------------------------------------------------


def metadata(
    value: object, argument: str = "metadata", limits: InputLimits = LIMITS, copies: int = 1
) -> dict[str, Any]:
    """Returns a deep copy of a JSON object, at most 20 levels deep; None becomes {}, tuples lists, dates ISO text.

    `copies` is how many times it will be stored.
    """
    if value is None:
        return {}
    checked = _checked_mapping(value, argument)
    document: dict[str, Any] = json_ready(checked, argument, zone=limits.timezone)
    size, max_bytes = len(json.dumps(document, ensure_ascii=False).encode()), limits.max_metadata_bytes
    if size > max_bytes:
        refuse(argument, value, f"takes {size:,} bytes as JSON; use at most {max_bytes:,}")
    if size * copies > MAX_COPIED_BYTES:
        remedy = f"use at most {MAX_COPIED_BYTES:,} in all, or add fewer messages at a time"
        refuse(argument, value, f"takes {size:,} bytes as JSON with each of {copies:,} messages; {remedy}")
    return document


def json_ready(
    value: object,
    argument: str,
    convert_text: Callable[[str], str] = str.__str__,
    depth: int = 1,
    zone: tzinfo | None = None,
) -> Any:
    """Returns a deep copy of `value` in JSON types, with `convert_text` applied to every string value.

    Datetimes become ISO text in UTC, those without an offset as local to `zone`. Raises `ValidationError` for types
    that JSON lacks and for more than `MAX_DOCUMENT_DEPTH` levels; `depth` is the level of `value`, from 1.
    """
    if not isinstance(value, Mapping | list | tuple):
        return _json_scalar(value, argument, convert_text, zone)
    if depth > MAX_DOCUMENT_DEPTH:
        refuse(argument, value, f"is nested too deeply; use at most {MAX_DOCUMENT_DEPTH} levels")
    if isinstance(value, Mapping):
        return {
            key(name, argument): json_ready(child, f"{argument}.{name}", convert_text, depth + 1, zone)
            for name, child in value.items()
        }
    return [
        json_ready(child, f"{argument}[{index}]", convert_text, depth + 1, zone) for index, child in enumerate(value)
    ]


def _json_scalar(
    value: object, argument: str, convert_text: Callable[[str], str], zone: tzinfo | None
) -> str | float | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _checked_text(convert_text(value), argument, MAX_CONTENT_CHARS)
    if isinstance(value, date):
        return moment(value, argument, zone).isoformat() if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, int | float):
        return _finite_number(value, argument)
    type_name = type(value).__name__
    refuse(argument, value, f"{type_name} is not JSON; convert it to str, int, float, bool, list or dict")


def _finite_number(value: float, argument: str) -> float:
    """Returns a plain int or float; raises `ValidationError` for NaN, infinity and integers of more than 1024 bits."""
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            refuse(argument, value, f"has more than {MAX_INT_BITS} bits; pass it as a string")
        return int(value)
    if not math.isfinite(value):
        refuse(argument, value, "is not a finite number; JSON has no NaN or infinity")
    return float(value)


def key(value: object, argument: str) -> str:
    """Checks a key of metadata: a string of at most 256 characters."""
    if not isinstance(value, str):
        refuse(f"{argument} key", value, "must be a string, as in JSON")
    return _checked_text(value, f"{argument} key", MAX_NAME_CHARS)


def _checked_mapping(value: object, argument: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        refuse(argument, value, "must be a dict")
    return value


def content(value: object, argument: str, max_chars: int = MAX_CONTENT_CHARS) -> str:
    """Checks the text of a memory, which is stored unchanged: at least one character that is seen."""
    text = _checked_text(value, argument, max_chars)
    return refuse(argument, value, "is empty; to remove a memory, delete it") if is_blank(text) else text


def storable_part(text: str, max_chars: int) -> str:
    """Returns as much of a text as a memory can hold: without the characters that no store can keep, and cut."""
    return _UNSTORABLE_CHARS.sub("", text)[:max_chars]


# --- fields of export records --------------------------------------------------------------------------------------


def stored_text(value: object, argument: str) -> str:
    """Checks a text that stores can hold; it may be empty."""
    return _checked_text(value, argument, MAX_CONTENT_CHARS)


def stored_name(value: object, argument: str) -> str:
    """Returns a trimmed single-line string of 1..256 characters: an id or a person's name."""
    return _checked_name(value, argument)


def stored_key(value: object, argument: str) -> str:
    """Checks an entity's key or a predicate: 1..512 characters, which the indexes of every supported database hold."""
    text = _checked_text(value, argument, MAX_KEY_CHARS)
    return (
        text if text.strip() else refuse(argument, value, "is empty; leave out entities and relations without a name")
    )


def stored_metadata(value: object, argument: str) -> dict[str, Any]:
    """Returns a copy of stored metadata, of any size."""
    document: dict[str, Any] = json_ready(_checked_mapping(value, argument), argument)
    return document


def namespace(value: object, argument: str = "namespace") -> tuple[str, ...]:
    """Checks a namespace of items: strings that, quoted, have at most 400 characters in all, for the indexes."""
    labels = tuple(_checked_text(label, argument, MAX_NAMESPACE_CHARS) for label in as_list(value, argument))
    if sum(len(label) + len('"",') for label in labels) > MAX_NAMESPACE_CHARS:
        refuse(argument, value, f"is longer than {MAX_NAMESPACE_CHARS:,} characters; use shorter labels")
    return labels


def session_id(value: object, argument: str = "session_id") -> str:
    """Checks the id of a chat: without one, all chats of a user would be one."""
    text = _checked_text(value, argument, MAX_NAMESPACE_CHARS)
    if not text.strip():
        refuse(argument, value, "is empty; give each chat an id of its own")
    return text


def item_key(value: object, argument: str = "key") -> str:
    """Checks the key of an item: a string of at most 4,096 characters."""
    return _checked_text(value, argument, MAX_ITEM_KEY_CHARS)


def json_value(value: object, argument: str = "value", max_chars: int = MAX_VALUE_CHARS) -> str:
    """Returns a value as JSON text from which it can be read back unchanged, apart from tuples, which become lists.

    Raises `ValidationError` for types that JSON lacks, more than `MAX_VALUE_DEPTH` levels of lists and dicts, and more
    than `max_chars` characters.
    """
    _refuse_no_json(value, argument)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:  # Python refuses to print an int of more than 4300 digits
        refuse_unseen(argument, value, "has an integer of too many digits; store it as a string")
    if len(text) > max_chars:
        remedy = f"has {len(text):,} characters as JSON; use at most {max_chars:,}"
        refuse_unseen(argument, value, remedy)
    return json_text(text)


def _refuse_no_json(value: object, argument: str, depth: int = 1) -> None:
    """Raises `ValidationError`, naming the place in the value, for what JSON cannot hold; `depth` is its level."""
    if value is None or isinstance(value, (str, int)):
        return
    if isinstance(value, float):
        _finite_number(value, argument)
    elif not isinstance(value, (dict, list, tuple)):
        type_name = type(value).__name__
        refuse_unseen(argument, value, f"{type_name} is not JSON; convert it to str, int, float, list or dict")
    elif depth > MAX_VALUE_DEPTH:
        refuse_unseen(argument, value, f"is nested too deeply; use at most {MAX_VALUE_DEPTH} levels")
    elif isinstance(value, dict):
        for name, child in value.items():
            if not isinstance(name, str):
                refuse_unseen(argument, value, "has a key that is no string; JSON has only strings as keys")
            _refuse_no_json(child, f"{argument}.{name}", depth + 1)
    else:
        for index, child in enumerate(value):
            _refuse_no_json(child, f"{argument}[{index}]", depth + 1)


def minutes(value: object, argument: str) -> float:
    """Checks a number of minutes, above 0 and up to `MAX_MINUTES`."""
    return _duration(value, argument, "minutes", MAX_MINUTES)


def uuid(value: object, argument: str) -> str:
    """Checks a UUID in the form of `str(uuid.UUID(…))`: the vector index needs UUIDs, and one id has one spelling."""
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        refuse(argument, value, "must be a UUID in lower case; convert any other id with uuid.uuid5")
    return value


def one_of(value: object, argument: str, names: Iterable[str], otherwise: str = "") -> str:
    """Checks a string that must be one of `names`; `otherwise` ends the error, such as by what else may be given."""
    choices = list(names)
    if not isinstance(value, str) or value not in choices:
        refuse(argument, value, f"must be one of {_quoted_list(choices)}{otherwise}")
    return str.__str__(value)


def share(value: object, argument: str) -> float:
    """Checks a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        refuse(argument, value, "must be a number from 0 to 1")
    return float(value)


def as_list(value: object, argument: str, most: int | None = None) -> list[Any]:
    """Returns a list or tuple of at most `most` items (None: any number) as a list."""
    if not isinstance(value, list | tuple):
        refuse(argument, value, "must be a list")
    if most is not None and len(value) > most:
        refuse_unseen(argument, value, f"has {len(value):,} items; give at most {most:,}")
    return list(value)


def as_object(value: object, argument: str) -> Mapping[str, Any]:
    """Checks a JSON object; an error message does not show its values."""
    if not isinstance(value, Mapping):
        refuse_unseen(argument, value, "must be a JSON object")
    return value


# --- further arguments ---------------------------------------------------------------------------------------------


def query(value: object, argument: str = "query", max_chars: int = MAX_QUERY_CHARS) -> str:
    """Returns a search's query, trimmed: 1..100,000 characters."""
    text = _checked_text(value, argument, max_chars).strip()
    return text or refuse(argument, value, "is empty; say what to look for")


def entity_key(value: object, argument: str) -> str:
    """Returns the name or key by which a caller asks for an entity, trimmed: 1..512 characters."""
    return query(value, argument, MAX_KEY_CHARS)


def count(value: object, argument: str, minimum: int, maximum: int) -> int:
    """Checks a whole number from `minimum` to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        refuse(argument, value, f"must be a whole number from {minimum} to {maximum}")
    return int(value)


def seconds(value: object, argument: str, maximum: float) -> float:
    """Checks a number of seconds, above 0 and up to `maximum`."""
    return _duration(value, argument, "seconds", maximum)


def _duration(value: object, argument: str, unit: str, maximum: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= maximum:
        refuse(argument, value, f"must be a number of {unit}, above 0 and up to {maximum:,.15g}")
    return float(value)


def top_k(value: object, argument: str = "top_k", maximum: int = MAX_TOP_K) -> int | None:
    """Checks the number of hits, from 1 to `maximum`; returns None for "auto", with which the search decides."""
    if isinstance(value, str):
        if value.strip().casefold() != "auto":
            refuse(argument, value, f'must be a whole number from 1 to {maximum}, or "auto"')
        return None
    return count(value, argument, 1, maximum)


def threshold(value: object, argument: str = "threshold") -> float | None:
    """Checks a minimum cosine similarity from -1 to 1, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= 1:
        refuse(argument, value, "must be a number from -1 to 1")
    return float(value)


def min_relevance(value: object, argument: str = "min_relevance") -> MinRelevance:
    """Checks a minimum relevance: a number from 0 to 1, "default", or None."""
    if value is None:
        return None
    if isinstance(value, str) and value == "default":
        return "default"
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        refuse(argument, value, 'must be a number from 0 to 1, or "default"')
    return float(value)


def kinds(value: object, argument: str = "kinds") -> frozenset[Kind] | None:
    """Reads one kind or an iterable of kinds; None stands for the call's default."""
    if value is None:
        return None
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Iterable) or isinstance(values, Mapping | bytes):
        refuse(argument, value, f"must be a list of {_quoted_list(Kind)}")
    try:
        names = list(values)
    except TypeError:  # an array without dimensions
        refuse(argument, value, f"must be a list of {_quoted_list(Kind)}")
    for name in names:
        if not isinstance(name, str) or name not in list(Kind):
            refuse(argument, name, f"is not a kind; use {_quoted_list(Kind)}")
    return frozenset(Kind(name) for name in names) or refuse(
        argument, value, f"is empty; name some of {_quoted_list(Kind)}"
    )


def entity_type(value: object, argument: str = "type") -> EntityType:
    """Returns the entity type of this name, in upper or lower case."""
    for member in EntityType:
        if isinstance(value, str) and value.casefold() == member.casefold():
            return member
    return refuse(argument, value, f"must be one of {_quoted_list(EntityType)}")


def event_type(value: object, argument: str = "event") -> EventType:
    """Checks the name of something that subscribers can be told of; an unknown one is answered with the nearest."""
    known = [one.value for one in EventType]
    if not isinstance(value, str) or value not in known:
        nearest = get_close_matches(value, known, 1, 0.4) if isinstance(value, str) else []
        hint = f"did you mean {nearest[0]!r}?" if nearest else ""
        refuse(argument, value, f"{hint} must be one of {_quoted_list(known)}".strip())
    return EventType(value)


def subscriber_name(value: object, argument: str = "name") -> str:
    """Checks the name of a subscriber."""
    if not isinstance(value, str) or not _SUBSCRIBER.fullmatch(value):
        refuse(argument, value, "must be 1 to 80 letters, digits, '.', '_' and '-', such as 'billing'")
    return value


def followed_name(value: object, argument: str = "name") -> str:
    """Checks the name of a subscriber, or "webhook:" and that of a webhook."""
    if isinstance(value, str) and value.startswith("webhook:"):
        return f"webhook:{subscriber_name(value.removeprefix('webhook:'), argument)}"
    return subscriber_name(value, argument)


def handler(value: object, argument: str = "handler", *, may_be_awaited: bool = False) -> Callable[..., object]:
    """Checks a function that is called with one argument; a coroutine function only if it `may_be_awaited`."""
    if not callable(value):
        refuse_unseen(argument, value, "must be a function that takes an event")
    if not may_be_awaited and iscoroutinefunction(value):
        refuse(argument, "a coroutine function", "is not awaited here; use AsyncMemory.on")
    return value


def entity_name(value: object, argument: str) -> str:
    """Checks the name that a user chooses for an entity: 1..256 characters in one line."""
    return _checked_name(value, argument)


def memory_type(value: object, argument: str = "memory_type") -> str | None:
    """Returns one of `MEMORY_TYPES`, also for mem0's spelling of it ("procedural_memory"), or None."""
    if value is None:
        return None
    name = value.removesuffix("_memory") if isinstance(value, str) else None
    if name not in MEMORY_TYPES:
        refuse(argument, value, f"must be one of {_quoted_list(MEMORY_TYPES)}")
    return name


def rate(value: object, argument: str = "rate") -> str | None:
    """Checks a rate limit, such as "600/minute"; None stands for the configured one."""
    if value is not None and not (isinstance(value, str) and _RATE.fullmatch(value)):
        refuse(argument, value, 'must be a number of requests in a second, minute, hour or day, such as "600/minute"')
    return value


def memory_id(value: object, argument: str = "memory_id") -> str:
    """Checks that an id is a string. An impossible id is then simply not found, as any other unknown id."""
    if not isinstance(value, str):
        refuse(argument, value, "must be a string: an id that add, search or get_all returned")
    # No memory has an id with unstorable characters; "" is as unknown and does not break a store's driver.
    return "" if _UNSTORABLE_CHARS.search(value) else str.__str__(value)


def memory_ids(value: object, argument: str, most: int) -> list[str]:
    """Checks a list of 1 to `most` ids; one that comes twice counts once."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= most:
        refuse(argument, value, f"must be a list of 1 to {most} ids of memories")
    return list(dict.fromkeys(memory_id(one, f"{argument}[{n}]") for n, one in enumerate(value)))


def flag(value: object, argument: str) -> bool:
    """Checks True or False."""
    if not isinstance(value, bool):
        refuse(argument, value, "must be True or False")
    return value


def merge_aliases(first: T | None, second: T | None, names: tuple[str, str]) -> T | None:
    """Returns the value of an argument that has two names (`top_k` and mem0's `limit`), or None without either.

    Raises `ValidationError` if both are passed and differ.
    """
    if first is not None and second is not None and not _are_equal(first, second):
        refuse(names[1], second, f"differs from {names[0]}, which means the same; pass only one of them")
    return second if first is None else first


def _are_equal(first: object, second: object) -> bool:
    try:
        return bool(first == second)
    except ValueError:  # comparing arrays gives no truth value; a later check refuses them by their type
        return False


def _quoted_list(names: Iterable[str]) -> str:
    return ", ".join(repr(str(name)) for name in names)
