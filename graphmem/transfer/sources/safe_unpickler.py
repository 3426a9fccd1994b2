"""Reads untrusted pickles in a process of its own: `pickle_reader` runs this file, which needs only Python.

A pickle names functions to call, so that unpickling can execute anything. Here no name is looked up: every named class
or function becomes an `_InertObject`, which accepts any call and does nothing; only the classes of `datetime` are real.
A pickle can also crash its reader or exhaust memory and time; therefore this process is separate and limited.

Standard input holds the pickles, each after its length in eight bytes (big-endian). Standard output gets the line
"ready", and then a line of JSON for each pickle, in order: a point's id and payload, or null.
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
# Bytes of memory, and seconds of processor time: a thousand times the needs of a page of points.
MAX_MEMORY, MAX_SECONDS = 2**30, 10
# The most characters and JSON pieces of the answer for one point; the most characters of all answers, after which
# `pickle_reader` starts another process.
MAX_POINT_CHARS, MAX_ITEMS, MAX_CHARS = 2**24, 2**20, 2**26

_TIME_CLASSES = {name: getattr(dt, name) for name in ("date", "datetime", "time", "timedelta", "timezone")}


class _InertObject:
    """Stands for any class, function or object of a pickle."""

    def __init__(self, *_: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _TIME_CLASSES.get(name, _InertObject) if module == "datetime" else _InertObject


def answer(data: bytes) -> bytes:
    """Returns one pickled point as JSON, {"id": …, "payload": …}; null if it cannot be read or exceeds the limits."""
    try:
        point = _InertUnpickler(io.BytesIO(data)).load()
        # A point is a model of pydantic 2 or 1, whose state has the fields in "__dict__".
        fields = point.state["__dict__"]
        return _json({"id": fields.get("id"), "payload": fields.get("payload")})
    except Exception:  # noqa: BLE001  (a damaged pickle can fail in any way)
        return b"null"


def _json(fields: dict[str, Any]) -> bytes:
    """Encodes piece by piece up to the limits: nested lists that contain one list twice grow exponentially."""
    pieces, length = [], 0
    for piece in json.JSONEncoder(default=_time_to_json).iterencode(fields):
        length += len(piece)
        pieces.append(piece)
        if length > MAX_POINT_CHARS or len(pieces) > MAX_ITEMS:
            raise ValueError(length)
    return "".join(pieces).encode()


def _time_to_json(value: object) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    raise TypeError(type(value).__name__)


def _set_limits() -> None:
    with contextlib.suppress(ImportError):
        import resource  # noqa: PLC0415  (Windows has no such module)

        for resource_kind, limit in (
            (resource.RLIMIT_AS, MAX_MEMORY),
            (resource.RLIMIT_CPU, MAX_SECONDS),
            (resource.RLIMIT_CORE, 0),  # a core dump would contain users' texts
        ):
            with contextlib.suppress(ValueError, OSError):  # the limit is lower already, or unknown to this system
                resource.setrlimit(resource_kind, (limit, limit))


def main() -> None:
    """Reads pickled points from standard input, and writes each as a line of JSON to standard output (see `answer`).

    Writes `READY` first. Ends with the input, or after more than `MAX_CHARS` characters of output.
    """
    _set_limits()
    source, target = sys.stdin.buffer, sys.stdout.buffer
    target.write(READY)
    target.flush()
    written = 0
    while written <= MAX_CHARS and (length := source.read(8)):
        written += target.write(answer(source.read(int.from_bytes(length, "big"))) + b"\n")
        target.flush()


if __name__ == "__main__":
    main()
