"""The vector index on a Qdrant server: one collection for all ledgers that use the server.

It holds ids, scopes, dates and numbers, never texts. Whose a point is stands in its payload: `ledger` is the ledger's
UUID, and `partition` begins with it. A delivery is one request, and an older state never overwrites a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import NAMESPACE_OID, uuid5

from qdrant_client import grpc, models

from graphmem.model import View
from graphmem.stores.protocols import Point
from graphmem.stores.qdrant.client import (
    Collection,
    Connection,
    QdrantOptions,
    VectorQuery,
    delete_operation,
    point_struct,
    upsert_operation,
)
from graphmem.stores.qdrant.payload import DENSE, SPARSE, best_by_memory, conditions, count_windows, payload

if TYPE_CHECKING:
    from graphmem.models.protocols import Matrix

T = TypeVar("T")
_PAGE = 10_000
# Memories named in one condition, and numbers in one request: a server takes requests of 32 MB.
_NAMED = 1_000
_NUMBERS = 2**20
# Quantised vectors only choose: twice as many as asked are then compared exactly. Without quantisation it does nothing.
# Small partitions are scanned; in large ones this is how many the graph keeps in view (128 of its own found less).
_NEAREST = models.SearchParams(
    hnsw_ef=256, quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0)
)


class ServerIndex:
    """A `VectorIndex` for one ledger on a Qdrant server. Nothing is reached for before the first use.

    Besides what the protocol says, calls raise ConfigError where the collection cannot be used as configured, and
    StoreLost when it has gone since it was opened; `wipe` makes it again.
    """

    def __init__(self, server: QdrantOptions, ledger: str, model: str, dims: int) -> None:
        self._collection = Collection(server, model, dims)
        self._ledger = ledger
        self._points_a_request = max(1, _NUMBERS // dims)

    def check(self) -> None:
        """Opens the collection. Raises ConfigError where it cannot be used, StoreUnavailable out of reach."""
        with self._collection.connected():
            pass

    def upsert(self, points: Sequence[Point]) -> None:
        made = [one for point in points for one in self._made(point)]
        if not made:
            return
        # A batch is one state of the ledger: what is newer than its newest was read after it, and stays.
        newest = _range("version", lte=max(point.record.seq for point in points))
        requests = [[upsert_operation(some, newest)] for some in _parts(made, self._points_a_request)]
        requests[-1].append(delete_operation(self._left_over(points, newest)))
        with self._collection.connected() as at:
            for operations in requests:
                at.update(self._collection.name, operations)

    def _left_over(self, points: Sequence[Point], newest: models.FieldCondition) -> models.Filter:
        """The windows that those memories once had more."""
        by_windows: dict[int, list[str]] = {}
        for point in points:
            by_windows.setdefault(len(point.vectors), []).append(point.record.id)
        more = [
            models.Filter(must=[_among("memory", ids), _range("window", gte=windows)])
            for windows, ids in by_windows.items()
        ]
        return models.Filter(must=[self._mine(), newest, models.Filter(should=list(more))])

    def _made(self, point: Point) -> Iterator[grpc.PointStruct]:
        record = point.record
        shared = {**payload(record), "ledger": self._ledger, "partition": self._partition(record.partition)}
        for window, vector in enumerate(point.vectors):
            # The words are those of the whole text: once is enough.
            weights = point.weights if window == 0 else {}
            told = {**shared, "window": window}
            yield point_struct(str(uuid5(NAMESPACE_OID, f"{self._ledger}/{record.id}/{window}")), vector, weights, told)

    def delete(self, ids: Sequence[str]) -> int:
        gone = 0
        with self._collection.connected() as at:
            for some in _parts(ids, _NAMED):
                wanted = models.Filter(must=[self._mine(), _among("memory", some)])
                count = self._counted(at, wanted)
                if count:
                    at.writer.delete(self._collection.name, _selected(wanted), wait=True)
                gone += count
        return gone

    def dense(self, view: View, vector: Matrix, limit: int) -> list[tuple[str, float]]:
        return self._query(view, vector.tolist(), DENSE, limit)

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> list[tuple[str, float]]:
        if not weights:
            return []
        words = models.SparseVector(indices=list(weights), values=list(weights.values()))
        return self._query(view, words, SPARSE, limit)

    def _query(self, view: View, vector: Any, using: str, limit: int) -> list[tuple[str, float]]:
        nearest = _NEAREST if using == DENSE else None
        question = VectorQuery(self._collection.name, vector, using, self._seen(view), nearest)
        with self._collection.connected() as at:
            return best_by_memory(lambda asked: at.nearest(question, asked), limit)

    def count(self) -> int:
        with self._collection.connected() as at:
            return self._counted(at, models.Filter(must=[self._mine()]))

    def _counted(self, at: Connection, wanted: models.Filter | None) -> int:
        return int(at.reader.count(self._collection.name, wanted, exact=True).count)

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        chosen = (
            self._mine()
            if partitions is None
            else _among("partition", [self._partition(partition) for partition in partitions])
        )
        yield from count_windows(self._payloads(models.Filter(must=[chosen])))

    def _payloads(self, wanted: models.Filter) -> Iterator[models.Payload]:
        offset: Any = None
        while True:
            with self._collection.connected() as at:
                page, offset = at.reader.scroll(
                    self._collection.name, wanted, limit=_PAGE, offset=offset, with_payload=["memory", "version"]
                )
            for record in page:
                yield record.payload or {}
            if offset is None:
                return

    def wipe(self) -> None:
        collection = self._collection
        with collection.connected_for_reset() as at:
            self._delete_mine(at)
            if collection.matches_model:
                return
            if self._counted(at, None):
                raise collection.model_mismatch_error()
            collection.replace()

    def _delete_mine(self, at: Connection) -> None:
        """In parts, so that no single one outlasts a write's patience."""
        mine = models.Filter(must=[self._mine()])
        while True:
            page, _ = at.reader.scroll(self._collection.name, mine, limit=_PAGE, with_payload=False)
            if not page:
                return
            ids = models.PointIdsList(points=[record.id for record in page])
            at.writer.delete(self._collection.name, ids, wait=True)

    def close(self) -> None:
        self._collection.close()

    def _partition(self, partition: str) -> str:
        return f"{self._ledger}/{partition}"

    def _mine(self) -> models.FieldCondition:
        return _is("ledger", self._ledger)

    def _seen(self, view: View) -> models.Filter:
        told = conditions(view)
        must = [self._mine() if view.partition is None else _is("partition", self._partition(view.partition))]
        must += [_is(name, value) for name, value in told.parts.items()]
        must += [_range(name, lte=told.moment) for name in told.started_fields]
        without = [_range(name, lte=told.moment) for name in told.ended_fields]
        if told.kinds is not None:
            must.append(_among("kind", told.kinds))
        if told.not_kinds:
            without.append(_among("kind", told.not_kinds))
        return models.Filter(must=list(must), must_not=list(without))


def _is(name: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=name, match=models.MatchValue(value=value))


def _among(name: str, values: Iterable[str]) -> models.FieldCondition:
    return models.FieldCondition(key=name, match=models.MatchAny(any=list(values)))


def _range(name: str, **bounds: float) -> models.FieldCondition:
    return models.FieldCondition(key=name, range=models.Range(**bounds))


def _selected(wanted: models.Filter) -> models.FilterSelector:
    return models.FilterSelector(filter=wanted)


def _parts(items: Sequence[T], size: int) -> Iterator[list[T]]:
    return (list(items[start : start + size]) for start in range(0, len(items), size))
