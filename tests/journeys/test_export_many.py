"""Four thousand memories out and in again, a page at a time."""

from __future__ import annotations

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


class Told:
    """Records made one by one, or lines read one by one, and how many so far."""

    def __init__(self) -> None:
        self.count = 0
        self.furthest = 0

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

    def lines(self, file: io.BufferedReader) -> Told:
        self.file = file
        return self

    def readline(self, most: int) -> bytes:
        self.count += 1
        return self.file.readline(most)

    def hear(self, _name: str, done: int, _total: int) -> None:
        self.furthest = max(self.furthest, self.count - done)


@pytest.mark.thorough
@SQLITE_ONLY
def test_many_come_back_as_they_were_and_are_never_all_in_memory(
    make_memory: Callable[..., Memory], tmp_path: Path
) -> None:
    memory, told = make_memory(), Told()
    assert importer.import_records(memory._engine, told.records(), progress=told.hear)["added"] == MANY
    assert told.furthest <= importer.BATCH

    tracemalloc.start()
    written = memory.export(tmp_path / "all")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert written["memories"] == MANY
    size = (tmp_path / "all").stat().st_size
    assert size > 4 * MEGABYTE
    assert peak < size / 2

    again, read = make_memory(), Told()
    with (tmp_path / "all").open("rb") as file:
        done = again.import_(read.lines(file), progress=read.hear)  # type: ignore[arg-type]
    assert (done["added"], done["unenriched"]) == (MANY, 0)
    assert read.furthest <= importer.BATCH + 1
    same(memory, again)
