"""Four thousand memories, exported and imported one page at a time."""

from __future__ import annotations

import gc
import io
import tracemalloc
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import numpy as np
import pytest
from support.databases import SQLITE_ONLY
from support.ledger_snapshot import same

from graphmem import Memory
from graphmem.transfer import importer

MANY = 4_000
MEGABYTE = 2**20


class RecordSource:
    """Generates records or reads lines one by one. Counts them, and how far they get ahead of the import."""

    def __init__(self) -> None:
        self.count = 0
        self.max_lead = 0

    def records(self) -> Iterator[dict[str, Any]]:
        vector = b64encode((np.ones(64, np.float32) / 8).tobytes()).decode()
        for number in range(MANY):
            self.count += 1
            yield {
                "type": "memory", "id": str(uuid5(NAMESPACE_OID, str(number))), "user_id": f"u{number % 5}",
                "text": f"Number {number} is like {number % 7}", "at": 1_700_000_000 + 6_000 * number,
                "mentions": [{"key": f"number {number % 700}"}] if number % 10 == 0 else [],
                "embeddings": {"model": "hash", "vector": [vector]},
            }  # fmt: skip

    def open_lines(self, file: io.BufferedReader) -> RecordSource:
        self.file = file
        return self

    def readline(self, limit: int) -> bytes:
        self.count += 1
        return self.file.readline(limit)

    def track_progress(self, _name: str, done: int, _total: int) -> None:
        self.max_lead = max(self.max_lead, self.count - done)


@pytest.mark.thorough
@SQLITE_ONLY
def test_many_come_back_as_they_were_and_are_never_all_in_memory(
    make_memory: Callable[..., Memory], tmp_path: Path
) -> None:
    memory, source = make_memory(), RecordSource()
    assert importer.import_records(memory.engine, source.records(), progress=source.track_progress)["added"] == MANY
    assert source.max_lead <= importer.BATCH
    memory.flush()  # what computes beside the export takes memory, too

    tracemalloc.start()
    # What is garbage already is not held: when it is collected depends on what ran before.
    export_result = memory.export(tmp_path / "all", progress=lambda *_: gc.collect())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert export_result["memories"] == MANY
    size = (tmp_path / "all").stat().st_size
    assert size > 4 * MEGABYTE
    assert peak < size / 2

    target, reader = make_memory(), RecordSource()
    with (tmp_path / "all").open("rb") as file:
        import_result = target.import_(reader.open_lines(file), progress=reader.track_progress)  # type: ignore[arg-type]
    assert (import_result["added"], import_result["unenriched"]) == (MANY, 0)
    assert reader.max_lead <= importer.BATCH + 1
    same(memory, target)
