"""Recognises files that a command does not read, and says what to do with them."""

from __future__ import annotations

import json
import re
from typing import Any

from graphmem.transfer.sources import timed_transcripts

_COMPRESSED = "is compressed; unpack it, and give the file in it"
_ZIP = (
    "is a zip file; `graphmem import chatgpt` (or claude, whatsapp) reads one that this program exported; unpack any "
    "other"
)
_UTF_16 = "is UTF-16; convert it to UTF-8, e.g. with iconv"
_BEGINNINGS = {
    b"SQLite format 3\0": "is an SQLite database; if it is a backup, put it into a folder as ledger.sqlite and name "
    "that folder with --home",
    b"\x1f\x8b": _COMPRESSED,
    b"PK\x03\x04": _ZIP,
    b"BZh": _COMPRESSED,
    b"\xfd7zXZ\0": _COMPRESSED,
    b"\x28\xb5\x2f\xfd": _COMPRESSED,
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
}
_EXPORT = re.compile(r'\s*\{\s*"type"\s*:\s*"graphmem"\s*,\s*"format"')


def binary_advice(data: bytes) -> str | None:
    """Returns what a file that begins with `data` is and what to do with it, None if that is not known."""
    return next((advice for beginning, advice in _BEGINNINGS.items() if data.startswith(beginning)), None)


def is_export(text: str) -> bool:
    """Returns True if a file's text begins as `Memory.export` writes it."""
    return _EXPORT.match(text) is not None


# The programs whose chats `graphmem import` reads, by the word for each.
PROGRAMS = {"chatgpt": "ChatGPT", "claude": "Claude", "claude-code": "Claude Code", "whatsapp": "WhatsApp"}
_CLAUDE_CODE_KEYS = {"sessionId", "leafUuid", "messageId"}
# White space, and the bracket of a list, in front of the first object of a JSON file.
_BEFORE_OBJECT = re.compile(r"\ufeff?\s*(?:\[\s*)?(?=\{)")
# Lines of a text that are looked at.
_LINES = 50


def program_of(value: Any) -> str | None:
    """Returns whose form a conversation, or a line of a session, has; None for any other value."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("mapping"), dict):
        return "chatgpt"
    if isinstance(value.get("chat_messages"), list):
        return "claude"
    is_line = "type" in value and value.keys() & _CLAUDE_CODE_KEYS and "role" not in value
    return "claude-code" if is_line else None


def program_of_text(text: str) -> str | None:
    """Returns which of `PROGRAMS` wrote a file's text, by its first object or its first lines; None for any other."""
    if (start := _BEFORE_OBJECT.match(text)) is not None:
        try:
            return program_of(json.JSONDecoder().raw_decode(text, start.end())[0])
        except (ValueError, RecursionError):
            return None
    lines = [line.strip() for line in text[: _LINES * 1000].splitlines() if line.strip()]
    return None if timed_transcripts.entries(lines[:_LINES]) is None else "whatsapp"


def import_advice(program: str) -> str:
    """Returns what a file of this program's is, and the command that imports it."""
    what = "a chat" if program == "whatsapp" else "a session" if program == "claude-code" else "an export"
    return f"is {what} of {PROGRAMS[program]}; import it with `graphmem import {program}`"
