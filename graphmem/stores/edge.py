"""The embedded vector index: Qdrant's own engine in this process (`qdrant-edge-py`).

It holds ids, scopes, dates and numbers, never texts. Its write-ahead log is off: the ledger already is one, what is
delivered is flushed before the cursor moves, and a damaged byte in Edge's log was seen to lose points silently. One
process at a time may open it; a lock file says so before Edge is touched.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, UUID, uuid5

from filelock import FileLock, Timeout
from qdrant_edge import (
    CountRequest,
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeSparseVectorParams,
    EdgeVectorParams,
    FieldCondition,
    Filter,
    MatchAny,
    MatchValue,
    PayloadSchemaType,
    Query,
    QueryRequest,
    RangeFloat,
    ScrollRequest,
    SparseVector,
    UpdateOperation,
)
from qdrant_edge import (
    Point as EdgePoint,
)

from graphmem.errors import StoreError, StoreLocked
from graphmem.model import View, micros
from graphmem.stores.base import Point
from graphmem.stores.ledger.engine import private_folder

if TYPE_CHECKING:
    from graphmem.providers.base import Matrix

DENSE, SPARSE = "dense", "bm25"
# "Never" as a date: past every year that a datetime can name, and exact as a float, which Edge's ranges are.
NEVER = 2**62
_KEYWORDS = ("memory", "space", "user_id", "agent_id", "run_id", "kind")
_INTEGERS = ("valid_from", "valid_to", "expires_at")
# A memory of several windows takes several of the nearest points: read some more than asked.
_SPARE = 32
_PAGE = 2000
_SOUND = 0.01
# Delivered points after which the segments are merged and indexed.
_OPTIMIZE_AFTER = 20_000


class EdgeIndex:
    """A `VectorIndex` in a folder. Raises StoreLocked when another process holds the folder."""

    def __init__(self, folder: Path, dims: int) -> None:
        private_folder(folder.parent)
        self._folder = folder
        self._dims = dims
        self._lock = FileLock(f"{folder}.lock", timeout=0, mode=0o600)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise StoreLocked(f"another process holds the vector index {str(folder)!r}") from error
        self._since_optimized = 0
        self._shard = self._open()

    def _open(self) -> EdgeShard:
        if (self._folder / "edge_config.json").exists():
            try:
                return EdgeShard.load(str(self._folder), self._config())
            except BaseException as error:  # noqa: BLE001  (handed on at once unless it is Edge's)
                _reraise_if_not_edges(error)  # whatever is wrong with the folder: it is only a projection
        return self._create()

    def _create(self) -> EdgeShard:
        shutil.rmtree(self._folder, ignore_errors=True)
        private_folder(self._folder)
        with _our_errors():
            shard = EdgeShard.create(str(self._folder), self._config())
            for name in _KEYWORDS:
                shard.update(UpdateOperation.create_field_index(name, PayloadSchemaType.Keyword))
            for name in _INTEGERS:
                shard.update(UpdateOperation.create_field_index(name, PayloadSchemaType.Integer))
            shard.flush()
            self._keep_private()
        return shard

    def _keep_private(self) -> None:
        """Edge makes its files with the process's default mode; the folder shuts others out, this is a second door."""
        for path in self._folder.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)

    def _config(self) -> EdgeConfig:
        return EdgeConfig(
            vectors={DENSE: EdgeVectorParams(size=self._dims, distance=Distance.Cosine)},
            sparse_vectors={SPARSE: EdgeSparseVectorParams()},
            wal_enabled=False,
        )

    def upsert(self, points: Sequence[Point]) -> None:
        with _our_errors():
            self._delete([point.record.id for point in points])
            made = [edge_point for point in points for edge_point in _edge_points(point)]
            if made:
                self._shard.update(UpdateOperation.upsert_points(made))
            self._flush()
            self._since_optimized += len(made)
            if self._since_optimized >= _OPTIMIZE_AFTER:
                self._shard.optimize()
                self._since_optimized = 0
                self._flush()

    def delete(self, ids: Sequence[str]) -> int:
        with _our_errors():
            gone = self._delete(ids)
            self._flush()
        return gone

    def _flush(self) -> None:
        self._shard.flush()
        self._keep_private()

    def _delete(self, ids: Sequence[str]) -> int:
        if not ids:
            return 0
        mine = Filter(must=[FieldCondition(key="memory", match=MatchAny(list(ids)))])
        count = self._shard.count(CountRequest(filter=mine, exact=True))
        if count:
            self._shard.update(UpdateOperation.delete_points_by_filter(mine))
        return count

    def dense(self, view: View, vector: Matrix, limit: int) -> list[tuple[str, float]]:
        return self._query(view, vector.tolist(), DENSE, limit)

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> list[tuple[str, float]]:
        if not weights:
            return []
        return self._query(view, SparseVector(list(weights), list(weights.values())), SPARSE, limit)

    def _query(self, view: View, vector: Any, using: str, limit: int) -> list[tuple[str, float]]:
        """The best memories; asks for more points while the windows of a few long memories fill the list."""
        query, chosen, asked = Query.Nearest(vector, using=using), _filter(view), limit + _SPARE
        while True:
            request = QueryRequest(limit=asked, query=query, filter=chosen, with_payload=["memory"])
            with _our_errors():
                found = self._shard.query(request)
            best: dict[str, float] = {}
            for point in found:  # best first, so that a memory's first point is its best window
                best.setdefault((point.payload or {})["memory"], point.score)
            if len(best) >= limit or len(found) < asked:
                return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]
            asked *= 4

    def count(self) -> int:
        with _our_errors():
            return self._shard.count(CountRequest(exact=True))

    def held(self, spaces: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        chosen = None if spaces is None else Filter(must=[FieldCondition(key="space", match=MatchAny(list(spaces)))])
        windows: dict[tuple[str, int], int] = {}
        offset: Any = None
        while True:
            request = ScrollRequest(
                offset=offset, limit=_PAGE, filter=chosen, with_payload=["memory", "version"], with_vector=[DENSE]
            )
            with _our_errors():
                page, offset = self._shard.scroll(request)
            for record in page:
                payload = record.payload or {}
                if not _is_sound(record.vector):
                    continue
                key = (payload["memory"], payload["version"])
                windows[key] = windows.get(key, 0) + 1
            if offset is None:
                break
        for (memory, version), count in windows.items():
            yield memory, version, count

    def wipe(self) -> None:
        with suppress(StoreError), _our_errors():
            self._shard.close()
        self._shard = self._create()
        self._since_optimized = 0

    def close(self) -> None:
        try:
            with _our_errors():
                self._shard.flush()
                self._shard.close()
                self._keep_private()
        finally:
            self._lock.release()


def _edge_points(point: Point) -> Iterator[EdgePoint]:
    record, sparse = point.record, SparseVector(list(point.weights), list(point.weights.values()))
    payload: dict[str, Any] = {
        "memory": record.id,
        "version": record.change,
        "space": record.space,
        "kind": record.kind.value,
        "valid_from": micros(record.valid_from),
        "valid_to": NEVER if record.valid_to is None else micros(record.valid_to),
        "expires_at": NEVER if record.expires_at is None else micros(record.expires_at),
        **record.scope.parts,
    }
    for window, vector in enumerate(point.vectors):
        vectors: dict[str, Any] = {DENSE: vector.tolist()}
        if window == 0 and point.weights:  # the words are those of the whole text: once is enough
            vectors[SPARSE] = sparse
        yield EdgePoint(point_id(record.id, window), vectors, payload)


def _is_sound(vector: Any) -> bool:
    """Whether a point still has its vector: Edge kept it at unit length; a damaged file gives zeros, or none."""
    dense = vector.get(DENSE) if isinstance(vector, dict) else None
    return dense is not None and abs(sum(x * x for x in dense) - 1) < _SOUND


def point_id(memory: str, window: int) -> UUID:
    """The id of a point: the memory's own for its first window."""
    return UUID(memory) if window == 0 else uuid5(NAMESPACE_OID, f"{memory}/{window}")


def _filter(view: View) -> Filter:
    moment = float(micros(view.moment))
    must = [FieldCondition(key=name, match=MatchValue(value)) for name, value in view.scope.parts.items()]
    must.append(FieldCondition(key="kind", match=MatchAny([kind.value for kind in view.kinds])))
    must.append(FieldCondition(key="valid_to", range=RangeFloat(gt=moment)))
    if view.space is not None:
        must.append(FieldCondition(key="space", match=MatchValue(view.space)))
    if view.as_of is not None:
        must.append(FieldCondition(key="valid_from", range=RangeFloat(lte=moment)))
    if not view.show_expired:
        must.append(FieldCondition(key="expires_at", range=RangeFloat(gt=moment)))
    return Filter(must=list(must))


@contextmanager
def _our_errors() -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except BaseException as error:
        _reraise_if_not_edges(error)
        raise StoreError(f"the vector index failed ({type(error).__name__}); `verify(repair=True)` mends it") from error


def _reraise_if_not_edges(error: BaseException) -> None:
    """A damaged file makes Edge panic, which arrives as a BaseException of its own; interrupts are not Edge's."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
