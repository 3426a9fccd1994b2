"""The exact vector index in memory: what other indexes are compared with, and one to give to a `Memory` in tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np

from graphmem.errors import CLOSED, StoreUnavailable
from graphmem.model import MemoryRecord, View
from graphmem.plugins import Point

if TYPE_CHECKING:
    from graphmem.plugins import Matrix


# The spaces of vectors; the last is the multilingual one of the memories that have no vector in the first.
DENSE, MULTILINGUAL, MULTILINGUAL_ALONE = "dense", "multilingual", "multilingual alone"


@dataclass(slots=True)
class _Partition:
    """The points of one partition by memory id. `matrices` caches the memory id and vector of each row, by space."""

    points: dict[str, Point]
    matrices: dict[str, tuple[list[str], Matrix]] = field(default_factory=dict)

    def rows(self, space: str) -> tuple[list[str], Matrix]:
        if space not in self.matrices:
            vectors = {uid: _vectors(point, space) for uid, point in self.points.items()}
            memory_ids = [uid for uid, rows in vectors.items() for _ in rows]
            # Memories without a vector in this space may have rows of another length.
            filled = [rows for rows in vectors.values() if len(rows)]
            self.matrices[space] = memory_ids, np.concatenate(filled) if filled else np.empty((0, 0), np.float32)
        return self.matrices[space]


def _vectors(point: Point, space: str) -> Matrix:
    if space == DENSE:
        return point.vectors
    if point.multilingual is None or (space == MULTILINGUAL_ALONE and len(point.vectors)):
        return np.empty((0, 0), np.float32)
    return point.multilingual[None]


class NumpyIndex:
    """A `VectorIndex` without approximation, server or file."""

    def __init__(self) -> None:
        self._partitions: dict[str, _Partition] = {}
        self._lock = RLock()
        self._closed = False

    def upsert(self, points: Sequence[Point]) -> None:
        with self._lock:
            self._check_open()
            self.delete([point.record.id for point in points])
            for point in points:
                partition = self._partitions.setdefault(point.record.partition, _Partition({}))
                partition.points[point.record.id] = point
                partition.matrices.clear()

    def delete(self, ids: Sequence[str]) -> int:
        with self._lock:
            self._check_open()
            return sum(point.windows for uid in ids for point in self._pop(uid))

    def flush(self) -> None:
        """Does nothing: nothing here outlasts the process."""

    def _pop(self, uid: str) -> Iterator[Point]:
        for partition in self._partitions.values():
            if uid in partition.points:
                partition.matrices.clear()
                yield partition.points.pop(uid)

    def dense(self, view: View, vector: Matrix, limit: int) -> list[tuple[str, float]]:
        return self._nearest(view, DENSE, vector, limit)

    def multilingual(
        self, view: View, vector: Matrix, limit: int, *, without_dense: bool = False
    ) -> list[tuple[str, float]]:
        return self._nearest(view, MULTILINGUAL_ALONE if without_dense else MULTILINGUAL, vector, limit)

    def _nearest(self, view: View, space: str, vector: Matrix, limit: int) -> list[tuple[str, float]]:
        cosines: dict[str, float] = {}
        with self._lock:
            for partition in self._partitions_in(view):
                memory_ids, matrix = partition.rows(space)
                if not memory_ids:
                    continue
                for uid, cosine in zip(memory_ids, (matrix @ vector).tolist(), strict=True):
                    cosines[uid] = max(cosine, cosines.get(uid, -1.0))
            return self._top(view, cosines, limit)

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> list[tuple[str, float]]:
        scores: dict[str, float] = {}
        with self._lock:
            for partition in self._partitions_in(view):
                for uid, point in partition.points.items():
                    score = sum(weight * point.weights.get(term, 0.0) for term, weight in weights.items())
                    if score > 0:
                        scores[uid] = score
            return self._top(view, scores, limit)

    def _partitions_in(self, view: View) -> list[_Partition]:
        self._check_open()
        return [
            partition
            for key, partition in self._partitions.items()
            if partition.points and (view.partition is None or key == view.partition)
        ]

    def _top(self, view: View, scores: Mapping[str, float], limit: int) -> list[tuple[str, float]]:
        hits: list[tuple[str, float]] = []
        for uid, score in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])):
            if view.holds(self._record(uid)):
                hits.append((uid, score))
            if len(hits) == limit:
                break
        return hits

    def _record(self, uid: str) -> MemoryRecord:
        return next(partition.points[uid].record for partition in self._partitions.values() if uid in partition.points)

    def count(self) -> int:
        with self._lock:
            self._check_open()
            return sum(point.windows for partition in self._partitions.values() for point in partition.points.values())

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        with self._lock:
            self._check_open()
            selected = [
                partition for key, partition in self._partitions.items() if partitions is None or key in partitions
            ]
            points = [point for partition in selected for point in partition.points.values()]
        for point in points:
            yield point.record.id, point.record.seq, point.windows

    def wipe(self) -> None:
        with self._lock:
            self._check_open()
            self._partitions.clear()

    def _check_open(self) -> None:
        """Raises StoreUnavailable once closed: a search during a close must not return an empty result."""
        if self._closed:
            raise StoreUnavailable(CLOSED)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._partitions.clear()
