"""What `graphmem add` is given (words, standard input, a file) as messages.

Words stay words: a script that passes on what somebody said must not open the file that they name.
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

Messages = list[Any]

STANDARD_INPUT = "-"
_JSON, _LINES = {".json"}, {".jsonl", ".ndjson"}
_NO_JSON = "is not valid JSON"
# What no prose begins with: an object with its first key, or a list of objects or strings.
_LOOKS_LIKE_JSON = re.compile(r'\s*(\{\s*"|\[\s*["{])')
# "Ana María: …": at most four words, beginning with a capital; what precedes a colon in prose is mostly longer.
_TURN = re.compile(r"(?P<name>(?i:user|assistant|system)|[^\W\d_a-z][\w.'’-]*(?: [\w.'’()-]+){0,3}):\s+(?P<words>\S.*)")
_ROLES = frozenset({"user", "assistant", "system"})


@dataclass(frozen=True, slots=True)
class MessageDefaults:
    """Who says what does not tell by itself who said it."""

    role: str = "user"
    name: str | None = None

    def message(self, words: str) -> dict[str, Any]:
        """Words as a message."""
        return {"role": self.role, "content": words} | ({"name": self.name} if self.name is not None else {})

    def complete(self, message: Any) -> Any:
        """A message with what it lacks; what is none stays as it is, for the memory to refuse."""
        if isinstance(message, str):
            return self.message(message)
        if not isinstance(message, dict) or "content" not in message:
            return message
        filled = {"role": self.role} | message
        if self.name is not None and filled["role"] == self.role:
            filled.setdefault("name", self.name)
        return filled


class InputFormat(StrEnum):
    """How words are divided into messages, where neither a file's name nor what it holds is to say so."""

    TEXT = "text"
    TRANSCRIPT = "transcript"
    MESSAGES = "messages"


def read_words(given: str, defaults: MessageDefaults, form: InputFormat | None) -> tuple[str, Messages]:
    """A name for the source, and its messages: `given` as one, or standard input, which is text. No file is opened.

    Raises ValidationError for what cannot be read.
    """
    if given == STANDARD_INPUT:
        return "standard input", _messages(
            "standard input", sys.stdin.buffer.read(), defaults, form or InputFormat.TEXT
        )
    if form is None:
        return "the text", [defaults.message(given)]
    return "the text", _messages("the text", given.encode(errors="surrogatepass"), defaults, form)


def read_file(path: Path, defaults: MessageDefaults, form: InputFormat | None = None) -> tuple[str, Messages]:
    """The same of a file; without a format its name and content tell. Raises ValidationError."""
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no file has such a name"
        raise ValidationError(f"{path}: cannot be read ({why}); give a readable file") from None
    return str(path), _messages(str(path), raw, defaults, form, path.suffix.lower(), document=str(uuid4()))


def is_file(given: str) -> bool:
    """Whether words are the name of a file that is there."""
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # longer than any file's name
        return False


def _messages(
    source: str,
    raw: bytes,
    defaults: MessageDefaults,
    form: InputFormat | None,
    suffix: str = "",
    document: str | None = None,
) -> Messages:
    text = _decoded(source, raw)
    if not text.strip():
        raise ValidationError(f"{source}: is empty; there is nothing to remember")
    if form is None and (suffix in _JSON | _LINES or _LOOKS_LIKE_JSON.match(text)):
        form = InputFormat.MESSAGES
    if form is not InputFormat.MESSAGES:
        return list(_prose(source, text, defaults, form, document))
    found = list(_lines(source, text)) if suffix in _LINES else _document(source, text)
    return [defaults.complete(message) for message in found]


def _decoded(source: str, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValidationError(
            f"{source}, line {line}: is not UTF-8 (byte 0x{raw[error.start]:02x}); convert it, e.g. with iconv"
        ) from None


# --- JSON ----------------------------------------------------------------------------------------------------------


def _document(source: str, text: str) -> Messages:
    """One JSON value; or, where a second one follows it, JSON Lines under another name."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if _another_follows(error, text):
            return list(_lines(source, text))
        raise ValidationError(f"{source}, line {error.lineno}: {_NO_JSON}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise ValidationError(f"{source}, line 1: {_NO_JSON}: {error}") from None
    try:
        return _said(value)
    except ValidationError as error:
        raise ValidationError(f"{source}: {error}") from None


def _another_follows(error: json.JSONDecodeError, text: str) -> bool:
    return error.msg == "Extra data" and "\n" in text.strip()


def is_lines(path: Path, text: str) -> bool:
    """Whether each line of a file is JSON of its own: its name says so, or a second value follows the first."""
    suffix = path.suffix.lower()
    if suffix in _LINES:
        return True
    if suffix not in _JSON and not _LOOKS_LIKE_JSON.match(text):
        return False
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return _another_follows(error, text)
    except (RecursionError, ValueError):
        pass
    return False


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not empty. Not splitlines(): JSON may hold U+2028 and its like as they are."""
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def parse_line(line: str) -> Messages:
    """What one line of JSON Lines says. Raises ValidationError, which does not say on which line."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValidationError(f"{_NO_JSON}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise ValidationError(f"{_NO_JSON}: {error}") from None
    return _said(value)


def _lines(source: str, text: str) -> Iterator[Any]:
    for number, line in numbered_lines(text):
        try:
            said = parse_line(line)
        except ValidationError as error:
            raise ValidationError(f"{source}, line {number}: {error}") from None
        yield from said


def _said(value: Any) -> Messages:
    if isinstance(value, dict):
        value = value.get("messages", [value])
    if not isinstance(value, list):
        raise ValidationError('must hold messages: a list of {"role", "content"}, or {"messages": [...]}')
    return value


# --- prose ---------------------------------------------------------------------------------------------------------


def _prose(
    source: str, text: str, defaults: MessageDefaults, form: InputFormat | None, document: str | None
) -> Iterator[dict[str, Any]]:
    """A transcript's turns, or a text's paragraphs: parts of a document, if somebody did not say them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    turns = [_TURN.fullmatch(line) for line in lines]
    if form is InputFormat.TRANSCRIPT and turns[0] is None:
        raise ValidationError(f'{source}: does not begin as a transcript does, "Name: words"; say --format text')
    if form is InputFormat.TRANSCRIPT or (form is None and _is_transcript(turns)):
        yield from _turns(lines, turns, defaults)
        return
    for paragraph in re.split(r"\n[^\S\n]*\n", text.replace("\r\n", "\n")):
        if paragraph.strip():
            message = defaults.message(paragraph.strip())
            yield message if document is None or defaults.name is not None else Paragraph(message, document)


def _is_transcript(turns: list[re.Match[str] | None]) -> bool:
    """It begins with a turn, most lines are turns, and somebody speaks twice: a list of "Milk: 2" has no such one."""
    names = [turn["name"] for turn in turns if turn is not None]
    return turns[0] is not None and 2 * len(names) >= len(turns) and len(set(names)) < len(names)


def _turns(lines: list[str], turns: list[re.Match[str] | None], defaults: MessageDefaults) -> Iterator[dict[str, Any]]:
    """One message for each turn; a line that begins none goes on with the one before."""
    said: list[dict[str, Any]] = []
    for line, turn in zip(lines, turns, strict=True):
        if turn is None:
            said[-1]["content"] += f"\n{line}"
        elif turn["name"].lower() in _ROLES:
            said.append({"role": turn["name"].lower(), "content": turn["words"]})
        else:
            said.append({"role": defaults.role, "name": turn["name"], "content": turn["words"]})
    yield from said
