"""Provides converters from other programs with validation of their records, and a list of the skipped ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from graphmem.digests import SECRET_BYTES, Digests
from graphmem.errors import ValidationError
from graphmem.model import EmbeddingSpec
from graphmem.transfer.format import ImportTarget, RecordReader

Record = dict[str, Any]


def validated(record: Record) -> Record:
    """Returns the record if the import will accept it, else raises ValidationError.

    The import itself ends at the first invalid record; converters skip it instead.
    """
    target = ImportTarget(Digests("", bytes(SECRET_BYTES)), EmbeddingSpec("", 0))
    RecordReader(target, datetime.now(UTC)).command(record)
    return record


class SkippedRecords:
    """The ids or places (such as "line 3") of skipped records, by reason."""

    def __init__(self) -> None:
        self.by_reason: dict[str, list[str]] = {}
        self._places: set[str] = set()

    @contextmanager
    def skip_invalid(self, place: str) -> Iterator[None]:
        """Skips the record at `place` if the block raises ValidationError, whose message becomes the reason."""
        try:
            yield
        except ValidationError as error:
            self.add(str(error), place)

    def add(self, reason: str, place: str) -> None:
        """Adds a place, only once and for its first reason, so that the counts are those of skipped records."""
        if place not in self._places:
            self._places.add(place)
            self.by_reason.setdefault(reason, []).append(place)
