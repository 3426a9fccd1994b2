"""What converters share: records as `graphmem.transfer` reads them, and the account of what could not become one."""

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
    """The record, read once as the import will read it: there one that cannot be read would end everything."""
    RecordReader(ImportTarget(Digests("", bytes(SECRET_BYTES)), EmbeddingSpec(""), 0), datetime.now(UTC)).command(
        record
    )
    return record


class SkippedRecords:
    """What was not taken: ids or places by reason."""

    def __init__(self) -> None:
        self.by_reason: dict[str, list[str]] = {}
        self._places: set[str] = set()

    @contextmanager
    def skip_invalid(self, place: str) -> Iterator[None]:
        """One that cannot be taken keeps no other from being taken."""
        try:
            yield
        except ValidationError as error:
            self.add(str(error), place)

    def add(self, reason: str, place: str) -> None:
        """Notes each place once, for the first reason: the counts are those of what was not taken."""
        if place not in self._places:
            self._places.add(place)
            self.by_reason.setdefault(reason, []).append(place)
