"""Reads pickles of somebody else's, as a process of its own: `pickle_reader` runs this file, with nothing but Python
itself.

A pickle names functions to call, so that an unpickled file can do anything. Here a name is never looked up: whatever a
pickle names becomes a `_InertObject`, which takes all that is said to it and does nothing. Times are the only
exception. A pickle can also end the process that reads it, or take all its memory or time: so that is this one, with
limits.

Standard input is pickles, each after its length in eight bytes; the answer is a line when it is ready, and one of JSON
for each pickle, in order: a point's id and payload, or null.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import pickle
import sys
from typing import Any

READY = b"ready\n"
# Bytes of memory, and seconds at work: a thousand times what a page of points takes.
MAX_MEMORY, MAX_SECONDS = 2**30, 10
# Of a point, and of all: then the rest is for the next process.
MAX_POINT_CHARS, MAX_ITEMS, MAX_CHARS = 2**24, 2**20, 2**26

_HARMLESS = {name: getattr(dt, name) for name in ("date", "datetime", "time", "timedelta", "timezone")}


class _InertObject:
    """Stands for any class and function, and for what they would make."""

    def __init__(self, *_: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _HARMLESS.get(name, _InertObject) if module == "datetime" else _InertObject


def answer(data: bytes) -> bytes:
    """The answer to one pickle."""
    try:
        point = _InertUnpickler(io.BytesIO(data)).load()
        # A model of pydantic 2 or 1: its state holds the fields.
        fields = point.state["__dict__"]
        return _json({"id": fields.get("id"), "payload": fields.get("payload")})
    except Exception:  # noqa: BLE001  (a damaged pickle can fail in any way)
        return b"null"


def _json(fields: dict[str, Any]) -> bytes:
    """In pieces, for a list that holds a list twice, and so on, has no end."""
    pieces, length = [], 0
    for piece in json.JSONEncoder(default=_plain).iterencode(fields):
        length += len(piece)
        pieces.append(piece)
        if length > MAX_POINT_CHARS or len(pieces) > MAX_ITEMS:
            raise ValueError(length)
    return "".join(pieces).encode()


def _plain(value: object) -> str:
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return aware.astimezone(dt.UTC).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    raise TypeError(type(value).__name__)


def _limit() -> None:
    with contextlib.suppress(ImportError):
        import resource  # noqa: PLC0415  (there is none on Windows)

        for what, most in (
            (resource.RLIMIT_AS, MAX_MEMORY),
            (resource.RLIMIT_CPU, MAX_SECONDS),
            (resource.RLIMIT_CORE, 0),  # it would hold somebody's words
        ):
            with contextlib.suppress(ValueError, OSError):  # lower already, or not known to this system
                resource.setrlimit(what, (most, most))


def main() -> None:
    """Answers until there is nothing more to read."""
    _limit()
    source, target = sys.stdin.buffer, sys.stdout.buffer
    target.write(READY)
    target.flush()
    written = 0
    while written <= MAX_CHARS and (length := source.read(8)):
        written += target.write(answer(source.read(int.from_bytes(length, "big"))) + b"\n")
        target.flush()


if __name__ == "__main__":
    main()
