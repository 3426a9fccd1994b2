"""The floor of a search: the question is encoded, all vectors are compared, the texts of the nearest are read."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from systems import Place, Vectors, spoken

from graphmem.evaluation.datasets import BenchmarkQuestion, Message

TABLE = """
CREATE TABLE messages (
    partition TEXT, place INTEGER, id TEXT, text TEXT, vector BLOB, PRIMARY KEY (partition, place)
)"""


class DenseBaseline:
    """Vectors in memory and in SQLite, whose rows are on disk when `add` returns."""

    def __init__(self, place: Place) -> None:
        self._encoder = place.encoder
        self._rows = sqlite3.connect(place.folder / "messages.db", isolation_level=None)
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", TABLE):
            self._rows.execute(statement)
        self._blocks = defaultdict[str, list[Vectors]](list)

    def add(self, partition: str, messages: Sequence[Message]) -> None:
        texts = [spoken(message) for message in messages]
        vectors = self._encoder.texts(texts)
        start = len(self._matrix(partition))
        self._rows.execute("BEGIN IMMEDIATE")
        for place, (message, text, vector) in enumerate(zip(messages, texts, vectors, strict=True), start):
            self._insert(partition, place, message["id"], text, vector)
        self._rows.execute("COMMIT")
        self._blocks[partition].append(vectors)

    def settle(self) -> None:
        self._rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def search(self, case: BenchmarkQuestion, k: int) -> list[str]:
        return [key for key, _ in self._read(case.partition, self._nearest(case, k))]

    def close(self) -> None:
        self._rows.close()

    def _insert(self, partition: str, place: int, key: str, text: str, vector: Vectors) -> None:
        row = (partition, place, key, text, vector.tobytes())
        self._rows.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", row)

    def _nearest(self, case: BenchmarkQuestion, k: int) -> list[int]:
        """Returns the places of the k messages with the highest cosine, best first."""
        cosines = self._matrix(case.partition) @ self._encoder.question(case.question)
        best = np.argpartition(-cosines, min(k, len(cosines)) - 1)[:k]
        places: list[int] = best[np.argsort(-cosines[best], kind="stable")].tolist()
        return places

    def _read(self, partition: str, places: Sequence[int]) -> list[tuple[str, str]]:
        """Returns (id, text) of messages by their places, in that order."""
        statement = "SELECT id, text FROM messages WHERE partition = ? AND place = ?"
        return [self._rows.execute(statement, (partition, place)).fetchone() for place in places]

    def _matrix(self, partition: str) -> Vectors:
        blocks = self._blocks[partition]
        if len(blocks) != 1:
            blocks[:] = [np.concatenate([np.empty((0, self._encoder.dims), np.float32), *blocks])]
        return blocks[0]
