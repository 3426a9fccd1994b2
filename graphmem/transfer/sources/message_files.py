"""Reads the input of `graphmem add` (an argument, standard input or a file) as messages.

An argument is always text, even if it names a file: a script that passes on a user's text must not open files by it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

from graphmem.boundary.validation import Paragraph
from graphmem.errors import ValidationError
from graphmem.transfer import other_files
from graphmem.transfer.sources import timed_transcripts

Messages = list[Any]

STANDARD_INPUT = "-"
# The name of the argument in errors, as the help of the command writes it.
ARGUMENT = "TEXT"
_JSON_SUFFIXES, _JSON_LINES_SUFFIXES = {".json"}, {".jsonl", ".ndjson"}
_NOT_JSON = "is not valid JSON"
# A beginning that prose never has: an object with its first key, or a list of objects or strings.
_LOOKS_LIKE_JSON = re.compile(r'\s*(\{\s*"|\[\s*["{])')
# "Ana María: …": a name of at most four words, beginning with a capital; in prose, more words mostly precede a colon.
# Chinese and Japanese write a colon of full width, without a blank.
_TURN = re.compile(
    r"(?P<name>(?i:user|assistant|system)|[^\W\d_a-z][\w.'’-]*(?: [\w.'’()-]+){0,3})(?::\s+|：\s*)(?P<words>\S.*)"
)
_ROLES = frozenset({"user", "assistant", "system"})


@dataclass(frozen=True, slots=True)
class MessageDefaults:
    """The role and name for texts and messages without their own."""

    role: str = "user"
    name: str | None = None

    def from_text(self, text: str) -> dict[str, Any]:
        """Returns a text as a message."""
        return {"role": self.role, "content": text} | ({"name": self.name} if self.name is not None else {})

    def complete(self, message: Any) -> Any:
        """Adds a missing role and name to a message; returns an invalid one unchanged, which `Memory.add` refuses."""
        if isinstance(message, str):
            return self.from_text(message)
        if not isinstance(message, dict) or "content" not in message:
            return message
        completed = {"role": self.role} | message
        if self.name is not None and completed["role"] == self.role:
            completed.setdefault("name", self.name)
        return completed


class InputFormat(StrEnum):
    """How input is divided into messages; without one, a file's name and content decide."""

    TEXT = "text"
    TRANSCRIPT = "transcript"
    MESSAGES = "messages"


def read_words(argument: str, defaults: MessageDefaults, format_: InputFormat | None) -> tuple[str, Messages]:
    """Returns the source's name for errors, and the messages of an argument or ("-") of standard input.

    `format_` None: the argument is one message; standard input is read as `InputFormat.TEXT`. Never opens a file.
    Raises ValidationError if the input does not have the format.
    """
    if argument == STANDARD_INPUT:
        return "standard input", _parse_messages(
            "standard input", sys.stdin.buffer.read(), defaults, format_ or InputFormat.TEXT
        )
    if format_ is None:
        return ARGUMENT, [defaults.from_text(argument)]
    return ARGUMENT, _parse_messages(ARGUMENT, argument.encode(errors="surrogatepass"), defaults, format_)


def read_file(path: Path, defaults: MessageDefaults, format_: InputFormat | None = None) -> tuple[str, Messages]:
    """Returns a file's path for errors, and its messages; without a format, its name and content decide on one.

    Raises ValidationError if the file cannot be read, or does not have the format.
    """
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no file has such a name"
        raise ValidationError(f"{path}: cannot be read ({reason}); give a readable file") from None
    return str(path), _parse_messages(str(path), raw, defaults, format_, path.suffix.lower(), document=str(uuid4()))


def is_file(argument: str) -> bool:
    """Returns True if a text is the name of an existing file."""
    try:
        return Path(argument).is_file()
    except (OSError, ValueError):  # no valid file name, such as one that is too long
        return False


def _parse_messages(
    source: str,
    raw: bytes,
    defaults: MessageDefaults,
    format_: InputFormat | None,
    suffix: str = "",
    document: str | None = None,
) -> Messages:
    text = decode(source, raw)
    if not text.strip():
        raise ValidationError(f"{source}: is empty; there is nothing to remember")
    if format_ is None and (suffix in _JSON_SUFFIXES | _JSON_LINES_SUFFIXES or _LOOKS_LIKE_JSON.match(text)):
        format_ = InputFormat.MESSAGES
    if format_ is not InputFormat.MESSAGES:
        return list(_parse_prose(source, text, defaults, format_, document))
    messages = list(_parse_json_lines(source, text)) if suffix in _JSON_LINES_SUFFIXES else _parse_json(source, text)
    return [defaults.complete(message) for message in messages]


def decode(source: str, raw: bytes) -> str:
    """Returns the text of a file. Raises ValidationError if it is none, or one that `import` reads."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if advice := other_files.binary_advice(raw):
            raise ValidationError(f"{source}: {advice}") from None
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValidationError(
            f"{source}, line {line}: is not UTF-8 (byte 0x{raw[error.start]:02x}); convert it, e.g. with iconv"
        ) from None
    if other_files.is_export(text):
        raise ValidationError(f"{source}: is an export of graphmem's; import it with `graphmem import`")
    # Lines with times are a transcript, whose words `add` reads as well; the others are no messages as they are.
    if (program := other_files.program_of_text(text)) not in {None, "whatsapp"}:
        raise ValidationError(f"{source}: {other_files.import_advice(str(program))}")
    return text


# --- JSON ----------------------------------------------------------------------------------------------------------


def _parse_json(source: str, text: str) -> Messages:
    """Reads one JSON value; if a second one follows, the text is read as JSON Lines."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if _has_second_value(error, text):
            return list(_parse_json_lines(source, text))
        raise ValidationError(f"{source}, line {error.lineno}: {_NOT_JSON}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise ValidationError(f"{source}, line 1: {_NOT_JSON}: {error}") from None
    try:
        return _message_list(value)
    except ValidationError as error:
        raise ValidationError(f"{source}: {error}") from None


def _has_second_value(error: json.JSONDecodeError, text: str) -> bool:
    return error.msg == "Extra data" and "\n" in text.strip()


def is_lines(path: Path, text: str) -> bool:
    """Returns True if a file is JSON Lines: by its name, or because a second JSON value follows the first."""
    suffix = path.suffix.lower()
    if suffix in _JSON_LINES_SUFFIXES:
        return True
    if suffix not in _JSON_SUFFIXES and not _LOOKS_LIKE_JSON.match(text):
        return False
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return _has_second_value(error, text)
    except (RecursionError, ValueError):
        pass
    return False


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the numbers, from 1, and texts of lines that are not empty.

    Splits at newlines only: splitlines() would also split at U+2028 and others, which JSON strings may contain.
    """
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def parse_line(line: str) -> Messages:
    """Returns the messages of one line of JSON Lines. Raises ValidationError, without the line's number."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValidationError(f"{_NOT_JSON}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise ValidationError(f"{_NOT_JSON}: {error}") from None
    return _message_list(value)


def _parse_json_lines(source: str, text: str) -> Iterator[Any]:
    for number, line in numbered_lines(text):
        try:
            messages = parse_line(line)
        except ValidationError as error:
            raise ValidationError(f"{source}, line {number}: {error}") from None
        yield from messages


def _message_list(value: Any) -> Messages:
    """Returns the messages of a JSON value: a list of messages or of conversations, or one of these."""
    if isinstance(value, dict):
        value = value.get("messages", [value])
    if not isinstance(value, list):
        raise ValidationError('must hold messages: a list of {"role", "content"}, or {"messages": [...]}')
    return [message for item in value for message in _messages_of(item)]


def _messages_of(item: Any) -> Messages:
    """Returns the messages of a conversation, or a message as the only one.

    Of a message with `created_at`, as many programs write the time, that is its `timestamp`, unless it has one.
    """
    items = item["messages"] if isinstance(item, dict) and isinstance(item.get("messages"), list) else [item]
    return [
        {**one, "timestamp": one["created_at"]}
        if isinstance(one, dict) and {"role", "content", "created_at"} <= one.keys() and one.get("timestamp") is None
        else one
        for one in items
    ]


# --- prose ---------------------------------------------------------------------------------------------------------


def _parse_prose(
    source: str, text: str, defaults: MessageDefaults, format_: InputFormat | None, document: str | None
) -> Iterator[dict[str, Any]]:
    """Yields one message for each turn of a transcript or each paragraph of a text.

    Paragraphs of a file, whose document id is `document`, become `Paragraph`s, unless a speaker's name was given.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if format_ is not InputFormat.TEXT and (timed := timed_transcripts.messages(lines, defaults.role)) is not None:
        yield from timed
        return
    turns = [_TURN.fullmatch(line) for line in lines]
    if format_ is InputFormat.TRANSCRIPT and turns[0] is None:
        raise ValidationError(f'{source}: does not begin with "Name: words", as transcripts do; pass --format text')
    names = [turn["name"] for turn in turns if turn is not None]
    # The first line and most lines are turns and a name comes twice, as not in a list of "Milk: 2".
    is_transcript = turns[0] is not None and 2 * len(names) >= len(turns) and len(set(names)) < len(names)
    if format_ is InputFormat.TRANSCRIPT or (format_ is None and is_transcript):
        yield from _turn_messages(lines, turns, defaults)
        return
    for paragraph in re.split(r"\n[^\S\n]*\n", text.replace("\r\n", "\n")):
        if paragraph.strip():
            message = defaults.from_text(paragraph.strip())
            yield message if document is None or defaults.name is not None else Paragraph(message, document)


def _turn_messages(
    lines: list[str], turns: list[re.Match[str] | None], defaults: MessageDefaults
) -> Iterator[dict[str, Any]]:
    """Yields one message for each turn; a line that begins no turn continues the previous one."""
    messages: list[dict[str, Any]] = []
    for line, turn in zip(lines, turns, strict=True):
        if turn is None:
            messages[-1]["content"] += f"\n{line}"
        elif turn["name"].lower() in _ROLES:
            messages.append({"role": turn["name"].lower(), "content": turn["words"]})
        else:
            messages.append({"role": defaults.role, "name": turn["name"], "content": turn["words"]})
    yield from messages
