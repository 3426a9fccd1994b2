"""The most bytes that the memories of one answer may take, for callers who have to build an answer as a whole.

A service sets the limit around a call; reads of memories count against it while they fetch rows, so that a refused
answer was never in memory. Without a limit nothing is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from graphmem.errors import ValidationError
from graphmem.model import MemoryRecord

# Bytes of the fields of a memory beside its text and its metadata.
OTHER_FIELDS = 1000


class AnswerTooLarge(ValidationError):
    """An answer would take more bytes than its caller allows."""


@dataclass(slots=True)
class _Room:
    """The bytes that are left, and what the error says when there are none."""

    bytes: int
    refusal: str


_room: ContextVar[_Room | None] = ContextVar("_room", default=None)


@contextmanager
def answer_limit(max_bytes: int, refusal: str) -> Iterator[None]:
    """Makes reads in this context raise AnswerTooLarge(`refusal`) once an answer would take more than `max_bytes`."""
    token = _room.set(_Room(max_bytes, refusal))
    try:
        yield
    finally:
        _room.reset(token)


def count_texts(*texts: str | None) -> None:
    """Counts texts that go into the answer. Raises AnswerTooLarge, see `answer_limit`."""
    if _room.get() is not None:
        _take(sum(_json_bytes(text) for text in texts))


def counted(records: Iterable[MemoryRecord]) -> Iterator[MemoryRecord]:
    """Yields memories that go into the answer. Raises AnswerTooLarge, see `answer_limit`."""
    for record in records:
        if _room.get() is not None:
            _take(memory_bytes(record))
        yield record


def memory_bytes(record: MemoryRecord) -> int:
    """Returns about how many bytes an answer takes for a memory, as JSON."""
    told = [(one.ref, one.caption, one.transcript) for one in record.attachments]
    values = (record.text, dict(record.metadata), record.further_runs, told)
    return OTHER_FIELDS + sum(_json_bytes(value) for value in values)


def _json_bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _take(size: int) -> None:
    room = _room.get()
    if room is None:
        return
    room.bytes -= size
    if room.bytes < 0:
        raise AnswerTooLarge(room.refusal)
