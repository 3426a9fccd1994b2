"""The file of a run, in JSON Lines: its conditions, what storing took, and a line for each question and system.

A line is written at once when it is complete, so that a run that was killed goes on with the next. What a kill cut off
is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, BinaryIO, Self

from graphmem.errors import StoreError, ValidationError

try:
    import fcntl
except ImportError:  # Windows has none: there nothing keeps a second run from the file
    fcntl = None  # type: ignore[assignment]

RUN, STORED, ANSWERED = "run", "stored", "answer"
# What has to be the same when a run goes on.
CONDITIONS = ("data", "models", "prompts")
Record = Mapping[str, Any]


@dataclass(slots=True)
class Recorded:
    """What a file holds: the run's line, what storing took by (memory, conversation), answers by (question, system)."""

    run: Record
    stored: dict[tuple[str, str], Record] = field(default_factory=dict)
    answers: dict[tuple[str, str], Record] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Takes in a line; a later one of the same question and system, or conversation, counts."""
        if record["kind"] == STORED:
            self.stored[record["memory"], record["conversation"]] = record
        else:
            self.answers[record["question_id"], record["system"]] = record


def _line(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


_BEGINNING = _line({"kind": RUN}).removesuffix(b"}\n")


def _claim(file: BinaryIO) -> None:
    """Claims a file until it is closed, by a kill, too. Raises BlockingIOError if another process has it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read(path: Path) -> Recorded:
    """Reads a file up to the last whole line. Raises ValidationError, naming it, if it is none of a run."""
    try:
        return _parse(path, path.read_bytes())
    except OSError as error:
        raise ValidationError(f"{path}: cannot be read ({error.strerror}); give a readable file") from None


def _parse(path: Path, raw: bytes) -> Recorded:
    recorded: Recorded | None = None
    for number, text in enumerate(raw[: raw.rfind(b"\n") + 1].splitlines(), 1):
        try:
            record = json.loads(text)
            if recorded is None:
                recorded = Recorded(record) if record["kind"] == RUN else None
            if recorded is None:
                break
            if record["kind"] != RUN:
                recorded.take(record)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValidationError(f"{path}, line {number}: is no line of a run; name another file") from None
    if recorded is None:
        raise ValidationError(f"{path}: does not begin with the line of a run; give a file that --results has made")
    return recorded


class ResultsFile:
    """The file of a run, open for writing: what it holds already is in `recorded`.

    Raises ValidationError if it holds a run of other data, models or prompts, StoreError if it cannot be written, or if
    another process has it open: both would ask, and pay for, the same questions.
    """

    def __init__(self, path: Path, run: Record) -> None:
        self._path, self._lock = path, Lock()
        try:
            self._file: BinaryIO = path.open("ab")
        except OSError as error:
            raise self._not_writable(error, "name another file") from None
        try:
            _claim(self._file)
            raw = path.read_bytes()
            whole = raw[: raw.rfind(b"\n") + 1]
            # Of a run that was killed in its first line, the line may be cut off; anything else is somebody's file.
            is_new = not whole and _BEGINNING.startswith(raw[: len(_BEGINNING)])
            self.recorded = Recorded(run) if is_new else _parse(path, whole)
            self._check_same(run)
            self._file.truncate(len(whole))
            if is_new:
                self._write({"kind": RUN, **run})
        except BlockingIOError:
            self._file.close()
            raise StoreError(f"{path}: another run writes to it; wait until it ends, or name another file") from None
        except OSError as error:
            self._file.close()
            raise self._not_writable(error, "name another file") from None
        except ValidationError:
            self._file.close()
            raise

    def _not_writable(self, error: OSError, remedy: str) -> StoreError:
        return StoreError(f"{self._path}: cannot be written ({error.strerror}); {remedy}")

    def _check_same(self, run: Record) -> None:
        for name in CONDITIONS:
            if self.recorded.run[name] != run[name]:
                raise ValidationError(f"{self._path}: holds a run with other {name}; name another file")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def add(self, record: Record) -> None:
        """Writes a line. Any thread may call it. Raises StoreError."""
        with self._lock:
            try:
                self._write(record)
            except OSError as error:
                raise self._not_writable(error, "make room and go on") from None
            self.recorded.take(record)

    def _write(self, record: Record) -> None:
        self._file.write(_line(record))
        self._file.flush()
        os.fsync(self._file.fileno())
