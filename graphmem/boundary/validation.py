"""The checks at the front door: whatever a caller hands in becomes one of our nouns, or `ValidationError`.

Texts that a store cannot hold are refused here, once: UTF-8 has no lone surrogates and PostgreSQL no NUL. What a
message says is otherwise kept to the character; only names and ids are trimmed.
"""

from __future__ import annotations

import json
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from graphmem.errors import ValidationError
from graphmem.model import EPOCH, SCOPE_NAMES, EntityType, Kind, Message, Scope

T = TypeVar("T")

REMEMBERED_ROLES = frozenset({"user", "assistant", "tool", "function"})
IGNORED_ROLES = frozenset({"system", "developer"})
_ROLES = REMEMBERED_ROLES | IGNORED_ROLES
MEMORY_TYPES = ("semantic", "episodic", "preference", "procedural")
# By mem0's name, and with a language model: the record of what an agent did, in place of facts.
PROCEDURAL_MEMORY = "procedural_memory"
LOGIC = ("AND", "OR", "NOT")

MAX_NAME_CHARS = 256
MAX_KEY_CHARS = 512
MAX_CONTENT_CHARS = 1_000_000
MAX_MESSAGES = 10_000
MAX_QUERY_CHARS = 100_000
MAX_DOCUMENT_DEPTH = 20
MAX_DOCUMENT_BYTES = 256 * 1024
MAX_FILTER_DEPTH = 10
MAX_FILTER_CONDITIONS = 200
MAX_TOP_K = 1000
MAX_LINK_CHARS = 2048
MAX_INT_BITS = 1024
DATA_URL_CHARS = 64

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_WORDLESS = frozenset({"tool_calls", "function_call", "refusal", "audio"})
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Each message and filter nests lists in mappings, so one level of logic is two of containers; the rest is an operand.
_MAX_FILTER_CONTAINERS = 2 * MAX_FILTER_DEPTH + MAX_DOCUMENT_DEPTH + 4


@dataclass(frozen=True, slots=True)
class InputLimits:
    """What one call may bring along. A configuration can lower these."""

    max_message_chars: int = MAX_CONTENT_CHARS
    max_messages: int = MAX_MESSAGES
    max_metadata_bytes: int = MAX_DOCUMENT_BYTES
    max_filter_depth: int = MAX_FILTER_DEPTH
    max_filter_conditions: int = MAX_FILTER_CONDITIONS
    max_top_k: int = MAX_TOP_K


LIMITS = InputLimits()

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 80


def refuse(argument: str, value: object, remedy: str) -> NoReturn:
    """Raise `ValidationError` naming the argument, its value (shortened to 80 characters) and what to do instead."""
    try:
        shown = _BRIEF.repr(value)
    except ValueError:  # Python refuses to print an int of more than 4300 digits
        shown = f"<{type(value).__name__}>"
    # The argument's name may hold keys of the caller's: in one line, and no longer than the value.
    message = f"{_BRIEF.repr(argument)[1:-1]}={shown[:80]}: {remedy}"
    raise ValidationError(message)


# --- whose ---------------------------------------------------------------------------------------------------------


def scope(
    user_id: object = None,
    agent_id: object = None,
    run_id: object = None,
    *,
    filters: object = None,
) -> tuple[Scope | None, dict[str, Any] | None]:
    """The scope of a call, and its filters without the scope ids that mem0 2.x puts there (None if nothing is left).

    Ids are strings (numbers are converted) of 1..256 characters after trimming. An id in `filters` must be a plain
    string at the top level and agree with the argument. Without any id: None.
    """
    given = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
    parts = {name: _identifier(value, name) for name, value in given.items() if value is not None}
    rest = dict(_mapping(filters, "filters")) if filters is not None else {}
    for name in [name for name in SCOPE_NAMES if name in rest]:
        raw = rest.pop(name)
        inside = _identifier(raw, f"filters.{name}")
        if parts.setdefault(name, inside) != inside:
            refuse(f"filters.{name}", raw, f"differs from {name}={parts[name]!r}; give it in one place only")
    refuse_scope_names(rest, "filters")
    return (Scope(**parts) if parts else None), rest or None


def required_scope(
    user_id: object = None, agent_id: object = None, run_id: object = None, *, filters: object = None
) -> tuple[Scope, dict[str, Any] | None]:
    """The same, where a scope has to be given. Raises `ValidationError` without any id."""
    found, rest = scope(user_id, agent_id, run_id, filters=filters)
    if found is None:
        message = "user_id, agent_id and run_id are all missing: pass at least one, so that it is clear whose memories"
        raise ValidationError(message)
    return found, rest


def refuse_scope_names(node: object, argument: str, depth: int = 0) -> None:
    """Raise `ValidationError` if a scope id is a key anywhere in `node`: no condition may widen or move the scope."""
    if depth > _MAX_FILTER_CONTAINERS:
        refuse(argument, node, f"is nested too deeply; use at most {MAX_FILTER_DEPTH} levels of AND / OR / NOT")
    if isinstance(node, Mapping):
        for name in SCOPE_NAMES:
            if name in node:
                refuse(f"{argument}.{name}", node[name], f"a scope is no condition; pass {name}= to the call")
        node = list(node.values())
    if isinstance(node, list | tuple):
        for inner in node:
            refuse_scope_names(inner, argument, depth + 1)


def _identifier(value: object, argument: str) -> str:
    name = _name(_worded(value, argument), argument)
    if name == "*":
        refuse(argument, value, "there is no wildcard; give the id of one user, agent or run")
    return name


def _worded(value: object, argument: str) -> object:
    """A number as its digits; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(_finite(value, argument))


def _name(value: object, argument: str) -> str:
    """A short single-line string: an id or a speaker's name."""
    if not isinstance(value, str):
        refuse(argument, value, "must be a non-empty string")
    text = value.strip()
    if not text:
        refuse(argument, value, "is empty; give a non-empty string, or leave it out")
    if len(text) > MAX_NAME_CHARS:
        refuse(argument, value, f"has {len(text)} characters; use at most {MAX_NAME_CHARS}")
    if _CONTROL.search(text):
        refuse(argument, value, "contains control characters or lone surrogates; remove them")
    return text


def folder(value: object, argument: str = "path") -> str:
    """The path of a folder, or ":memory:"."""
    if not isinstance(value, str | os.PathLike):
        refuse(argument, value, 'must be the path of a folder, or ":memory:"')
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "\0" in path:
        refuse(argument, value, 'must be the path of a folder, or ":memory:"')
    if not is_encodable(path):
        refuse(argument, value, "holds a lone surrogate, which no name of a file can; correct it")
    return path


def is_encodable(path: str) -> bool:
    """Whether a file can have this name, as far as its letters go."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def home(value: object, argument: str = "path") -> Path:
    """The path of a folder that everything is kept in, "~" written out."""
    try:
        return Path(folder(value, argument)).expanduser()
    except RuntimeError:
        refuse(argument, value, "begins with ~, but that home folder is unknown; write it out")


# --- what was said -------------------------------------------------------------------------------------------------


class ParsedMessages(NamedTuple):
    """The messages of a call that are to be remembered, and the places of those that hold attachments but no text."""

    messages: list[Message]
    wordless: list[int]


class Paragraph(dict[str, Any]):
    """A message that is a part of a document, read from a file."""

    def __init__(self, message: Mapping[str, Any], document: str) -> None:
        super().__init__(message)
        self.document = document


def message_list(
    value: object, *, timestamp: object = None, now: datetime, limits: InputLimits = LIMITS
) -> list[Message]:
    """The messages to be remembered, as `parse_messages` finds them."""
    return parse_messages(value, timestamp=timestamp, now=now, limits=limits).messages


def parse_messages(
    value: object, *, timestamp: object = None, now: datetime, limits: InputLimits = LIMITS
) -> ParsedMessages:
    """What is to be remembered of `value`: a string, one message dict, or a list of either, in order.

    A dict has `role`, `content`, and perhaps `name`, `timestamp`, `id`, `metadata`; other keys, which clients of models
    put there, are ignored. Everything is checked, but system and developer messages and those without text are left
    out. `timestamp` is the call's, `now` is aware.
    """
    said = [value] if isinstance(value, str | Mapping) else value
    if not isinstance(said, list | tuple):
        refuse("messages", _RedactedText(value), 'pass a string, a {"role", "content"} dict, or a list of them')
    if len(said) > limits.max_messages:
        message = f"messages: {len(said):,} in one call; pass at most {limits.max_messages:,}, then call again"
        raise ValidationError(message)
    given = None if timestamp is None else moment(timestamp, "timestamp")
    names = ["messages"] if said is not value else [f"messages[{index}]" for index in range(len(said))]
    read = [_message(one, name, given, now, limits) for one, name in zip(said, names, strict=True)]
    remembered = [(place, one) for place, one in enumerate(read) if one.role in REMEMBERED_ROLES]
    return ParsedMessages(
        [one for _, one in remembered if one.content.strip()],
        [place for place, one in remembered if one.attachments and not one.content.strip()],
    )


def _message(value: object, argument: str, given: datetime | None, now: datetime, limits: InputLimits) -> Message:
    if isinstance(value, str):
        value = {"role": "user", "content": value}
    if not isinstance(value, Mapping):
        refuse(argument, _RedactedText(value), 'pass a string or a {"role", "content"} dict')
    role, name, ident = value.get("role"), value.get("name"), value.get("id")
    if "content" not in value and _WORDLESS.isdisjoint(value):
        refuse(argument, sorted(map(str, value)), 'has no "content"; put the words there')
    if "role" not in value:
        refuse(argument, sorted(map(str, value)), f'has no "role"; give one of {_listed(sorted(_ROLES))}')
    if not isinstance(role, str) or role not in _ROLES:
        refuse(f"{argument}.role", role, f"must be one of {_listed(sorted(_ROLES))}")
    own = value.get("timestamp")
    at = given if own is None else moment(own, f"{argument}.timestamp")
    content, attachments = _content(value.get("content"), f"{argument}.content", limits)
    return Message(
        role=str.__str__(role),
        content=content,
        at=at or now,
        name=None if name is None else _name(name, f"{argument}.name"),
        id=None if ident is None else _name(_worded(ident, f"{argument}.id"), f"{argument}.id"),
        has_own_time=at is not None,
        attachments=attachments,
        metadata=metadata(value.get("metadata"), f"{argument}.metadata", limits.max_metadata_bytes),
        document=value.document if isinstance(value, Paragraph) else None,
    )


def _content(value: object, argument: str, limits: InputLimits) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """The words exactly as given, and references to what is not words."""
    if value is None:
        return "", ()
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        refuse(argument, _RedactedText(value), "must be a string, None, or a list of content parts")
    words: list[str] = []
    others: list[Mapping[str, Any]] = []
    for index, part in enumerate(parts):
        where = argument if part is value else f"{argument}[{index}]"
        if isinstance(part, str):
            words.append(_text(part, where, limits.max_message_chars))
        elif not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            refuse(where, _RedactedText(part), 'must be a content part such as {"type": "text", "text": "…"}')
        elif part["type"] in _TEXT_PARTS:
            words.append(_text(part.get("text"), f"{where}.text", limits.max_message_chars))
        else:
            others.append(_document(part, where, _reference, limits.max_metadata_bytes))
    return _text("\n".join(words), argument, limits.max_message_chars), tuple(others)


def _reference(text: str) -> str:
    """A link as it is; of what is inlined (a data: URL, base64) just enough to know it again, not the megabytes."""
    if len(text) <= (DATA_URL_CHARS if text.startswith("data:") else MAX_LINK_CHARS):
        return text
    return f"{text[:DATA_URL_CHARS]}… [{len(text)} characters, cut]"


class _RedactedText:
    """Stands for somebody's words in an error's text, which ends up in logs."""

    def __init__(self, value: object) -> None:
        self._shown = f"<{len(value)} characters>" if isinstance(value, str) else f"<{type(value).__name__}>"

    def __repr__(self) -> str:
        return self._shown


def _text(value: object, argument: str, most: int) -> str:
    if not isinstance(value, str):
        refuse(argument, _RedactedText(value), "must be a string")
    if len(value) > most:
        refuse(argument, _RedactedText(value), f"has {len(value)} characters; use at most {most:,}")
    if bad := _UNSTORABLE.search(value):
        refuse(
            argument,
            _RedactedText(value),
            f"holds {bad.group()!a} at {bad.start()}, which no store can keep; remove it",
        )
    return str.__str__(value)


# --- when ----------------------------------------------------------------------------------------------------------


def moment(value: object, argument: str) -> datetime:
    """A moment in UTC from a datetime or date, ISO 8601 text, or epoch seconds; without a zone it is UTC already.

    A date alone is its midnight. Raises `ValidationError` for anything else, and outside the years 1..9999.
    """
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.utcoffset() is None else value.astimezone(UTC)
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return EPOCH + timedelta(seconds=value)
    except (ValueError, OverflowError):
        pass
    refuse(argument, value, "must be a datetime, ISO 8601 text or epoch seconds (not milliseconds), years 1..9999")


def zoned_moment(value: object, argument: str) -> datetime:
    """As `moment`, but in the zone it was given in: "yesterday" depends on it."""
    found = moment(value, argument)
    given = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    return given if isinstance(given, datetime) and given.utcoffset() is not None else found


def expiration(value: object, argument: str = "expiration_date") -> datetime | None:
    """When a memory stops being shown; None is never.

    As in mem0, a date alone ("2025-12-31") still counts: the memory is shown until that day's last microsecond (UTC).
    """
    if value is None:
        return None
    start = moment(value, argument)
    return start + timedelta(days=1, microseconds=-1) if _is_day(value) else start


def _is_day(value: object) -> bool:
    if not isinstance(value, str):
        return not isinstance(value, datetime) and isinstance(value, date)
    try:
        date.fromisoformat(value.strip())
    except ValueError:
        return False
    return True


# --- documents -----------------------------------------------------------------------------------------------------


def metadata(value: object, argument: str = "metadata", most: int = MAX_DOCUMENT_BYTES) -> dict[str, Any]:
    """A deep copy of a JSON object (None is empty): tuples become lists, dates ISO text; 20 deep at most."""
    return {} if value is None else _document(value, argument, str.__str__, most)


def _document(value: object, argument: str, text: Callable[[str], str], most: int) -> dict[str, Any]:
    copied: dict[str, Any] = json_ready(_mapping(value, argument), argument, text)
    size = len(json.dumps(copied, ensure_ascii=False).encode())
    if size > most:
        refuse(argument, value, f"takes {size:,} bytes as JSON; use at most {most:,}")
    return copied


def json_ready(value: object, argument: str, text: Callable[[str], str] = str.__str__, depth: int = 1) -> Any:
    """A deep copy of `value` in JSON's own types; `text` is applied to every string value. Refuses what JSON lacks."""
    if not isinstance(value, Mapping | list | tuple):
        return _scalar(value, argument, text)
    if depth > MAX_DOCUMENT_DEPTH:
        refuse(argument, value, f"is nested too deeply; use at most {MAX_DOCUMENT_DEPTH} levels")
    if isinstance(value, Mapping):
        return {key(k, argument): json_ready(v, f"{argument}.{k}", text, depth + 1) for k, v in value.items()}
    return [json_ready(v, f"{argument}[{i}]", text, depth + 1) for i, v in enumerate(value)]


def _scalar(value: object, argument: str, text: Callable[[str], str]) -> str | float | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(text(value), argument, MAX_CONTENT_CHARS)
    if isinstance(value, date):
        return moment(value, argument).isoformat() if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, int | float):
        return _finite(value, argument)
    kind = type(value).__name__
    refuse(argument, value, f"{kind} is not JSON; convert it to str, int, float, bool, list or dict")


def _finite(value: float, argument: str) -> float:
    """The plain int or float behind `value`; what JSON cannot write (NaN, infinity, endless digits) is refused."""
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            refuse(argument, value, f"has more than {MAX_INT_BITS} bits; pass it as a string")
        return int(value)
    if not math.isfinite(value):
        refuse(argument, value, "is not a finite number; JSON has no NaN or infinity")
    return float(value)


def key(value: object, argument: str) -> str:
    """A key of metadata: a string of at most 256 characters."""
    if not isinstance(value, str):
        refuse(f"{argument} key", value, "must be a string, as in JSON")
    return _text(value, f"{argument} key", MAX_NAME_CHARS)


def _mapping(value: object, argument: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        refuse(argument, value, "must be a dict")
    return value


def content(value: object, argument: str, most: int = MAX_CONTENT_CHARS) -> str:
    """The words of a memory: stored exactly as given, but not without any."""
    words = _text(value, argument, most)
    return words if words.strip() else refuse(argument, value, "is empty; to remove a memory use delete()")


# --- what a ledger has written -------------------------------------------------------------------------------------


def stored_text(value: object, argument: str) -> str:
    """Words that a store can keep, perhaps none."""
    return _text(value, argument, MAX_CONTENT_CHARS)


def stored_name(value: object, argument: str) -> str:
    """A short single-line string: an id or somebody's name."""
    return _name(value, argument)


def stored_key(value: object, argument: str) -> str:
    """The key of an entity, or a predicate: every database has an index for so many characters."""
    key = _text(value, argument, MAX_KEY_CHARS)
    return key if key.strip() else refuse(argument, value, "is empty; leave out what has no name")


def stored_metadata(value: object, argument: str) -> dict[str, Any]:
    """Metadata with what came along with the words (`attachments`): two levels deeper, and of any size."""
    copied: dict[str, Any] = json_ready(_mapping(value, argument), argument, depth=-1)
    return copied


def uuid(value: object, argument: str) -> str:
    """A UUID as `str(uuid.UUID(…))` writes it: stores make points of it, and one id must not be written in two ways."""
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        refuse(argument, value, "must be a UUID in lower case; make one of another id by uuid.uuid5")
    return value


def one_of(value: object, argument: str, names: Iterable[str]) -> str:
    """One of these words."""
    known = list(names)
    if not isinstance(value, str) or value not in known:
        refuse(argument, value, f"must be one of {_listed(known)}")
    return str.__str__(value)


def share(value: object, argument: str) -> float:
    """A number in 0..1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        refuse(argument, value, "must be a number from 0 to 1")
    return float(value)


def as_list(value: object, argument: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list | tuple):
        refuse(argument, value, "must be a list")
    return list(value)


def as_object(value: object, argument: str) -> Mapping[str, Any]:
    """A JSON object; its values are nothing for an error's text."""
    if not isinstance(value, Mapping):
        refuse(argument, _RedactedText(value), "must be a JSON object")
    return value


# --- the rest of a call --------------------------------------------------------------------------------------------


def query(value: object, argument: str = "query", most: int = MAX_QUERY_CHARS) -> str:
    """The question: trimmed, non-empty, at most 100,000 characters."""
    words = _text(value, argument, most).strip()
    return words or refuse(argument, value, "is empty; say what to look for")


def entity_key(value: object, argument: str) -> str:
    """What an entity is asked for by: trimmed, non-empty, at most 512 characters."""
    return query(value, argument, MAX_KEY_CHARS)


def count(value: object, argument: str, least: int, most: int) -> int:
    """A whole number in `least..most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        refuse(argument, value, f"must be a whole number from {least} to {most}")
    return int(value)


def top_k(value: object, argument: str = "top_k", most: int = MAX_TOP_K) -> int | None:
    """How many hits, from 1 on; None for "auto", which leaves it to the search."""
    if isinstance(value, str):
        if value.strip().casefold() != "auto":
            refuse(argument, value, f'must be a whole number from 1 to {most}, or "auto"')
        return None
    return count(value, argument, 1, most)


def threshold(value: object, argument: str = "threshold") -> float | None:
    """A minimum cosine similarity in -1..1, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= 1:
        refuse(argument, value, "must be a number from -1 to 1")
    return float(value)


def kinds(value: object, argument: str = "kinds") -> frozenset[Kind] | None:
    """The kinds asked for: one, or an iterable of some; None leaves the call's default."""
    if value is None:
        return None
    asked = [value] if isinstance(value, str) else value
    if not isinstance(asked, Iterable) or isinstance(asked, Mapping | bytes):
        refuse(argument, value, f"must be a list of {_listed(Kind)}")
    try:
        named = list(asked)
    except TypeError:  # an array without dimensions
        refuse(argument, value, f"must be a list of {_listed(Kind)}")
    for one in named:
        if not isinstance(one, str) or one not in list(Kind):
            refuse(argument, one, f"is not a kind; use {_listed(Kind)}")
    return frozenset(Kind(one) for one in named) or refuse(argument, value, f"is empty; name some of {_listed(Kind)}")


def entity_type(value: object, argument: str = "type") -> EntityType:
    """One of the closed list of entity types, in any case."""
    for one in EntityType:
        if isinstance(value, str) and value.casefold() == one.casefold():
            return one
    return refuse(argument, value, f"must be one of {_listed(EntityType)}")


def entity_name(value: object, argument: str) -> str:
    """What an entity is to be called: 1..256 characters in one line."""
    return _name(value, argument)


def memory_type(value: object, argument: str = "memory_type") -> str | None:
    """One of `MEMORY_TYPES`, also as mem0 spells it ("procedural_memory"), or None."""
    if value is None:
        return None
    name = value.removesuffix("_memory") if isinstance(value, str) else None
    if name not in MEMORY_TYPES:
        refuse(argument, value, f"must be one of {_listed(MEMORY_TYPES)}")
    return name


def memory_id(value: object, argument: str = "memory_id") -> str:
    """An id as given: one that cannot exist reads as not found like any other, so only the type is checked."""
    if not isinstance(value, str):
        refuse(argument, value, "must be a string: an id that add, search or get_all returned")
    # No id has what no store can hold; such a one is unknown like any other.
    return "" if _UNSTORABLE.search(value) else str.__str__(value)


def flag(value: object, argument: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        refuse(argument, value, "must be True or False")
    return value


def merge_aliases(first: T | None, second: T | None, names: tuple[str, str]) -> T | None:
    """The one value behind two names for it (`top_k` and mem0's `limit`); None where neither is given."""
    if first is not None and second is not None and not _same(first, second):
        refuse(names[1], second, f"differs from {names[0]}, which means the same; pass only one of them")
    return second if first is None else first


def _same(first: object, second: object) -> bool:
    try:
        return bool(first == second)
    except ValueError:  # arrays do not say whether they are equal; they are refused later by what they are
        return False


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(str(name)) for name in names)
