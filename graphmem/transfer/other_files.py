"""Recognises files that a command does not read, and says what to do with them."""

from __future__ import annotations

import re

_COMPRESSED = "is compressed; unpack it, and give the file in it"
_UTF_16 = "is UTF-16; convert it to UTF-8, e.g. with iconv"
_BEGINNINGS = {
    b"SQLite format 3\0": "is an SQLite database; if it is a backup, put it into a folder as ledger.sqlite and name "
    "that folder with --home",
    b"\x1f\x8b": _COMPRESSED,
    b"PK\x03\x04": _COMPRESSED,
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
