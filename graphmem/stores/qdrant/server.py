"""The vector index on a Qdrant server: one collection for all ledgers that use the server.

It holds ids, scopes, dates and numbers, never texts. The payload names the owner of a point: `ledger` is the ledger's
UUID, and `partition` begins with it. A small batch is written in one request, and an older state never overwrites a
newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import NAMESPACE_OID, uuid5

from qdrant_client import grpc, models

from graphmem.model import EmbeddingSpec, View
from graphmem.plugins import Point
from graphmem.stores.qdrant.client import (
    Collection,
    Connection,
    QdrantOptions,
    VectorQuery,
    delete_operation,
    point_struct,
    upsert_operation,
)
from graphmem.stores.qdrant.payload import (
    DENSE,
    MULTILINGUAL,
    SPARSE,
    best_by_memory,
    conditions,
    count_windows,
    payload,
    vectors_of,
)

if TYPE_CHECKING:
    from graphmem.plugins import Matrix

T = TypeVar("T")
_PAGE = 10_000
# The most memory ids in one condition, and the most vector components in one request: a server takes up to 32 MB.
_IDS_PER_CONDITION = 1_000
_COMPONENTS_PER_REQUEST = 2**20
# Quantised vectors only preselect: twice the limit is then compared exactly. Has no effect without quantisation.
# Small partitions are scanned; in a large one, hnsw_ef is the number of candidates that the graph search keeps
# (Qdrant's default of 128 found fewer of the nearest).
_SEARCH_PARAMS = models.SearchParams(
    hnsw_ef=256, quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0)
)


class ServerIndex:
    """A `VectorIndex` for one ledger on a Qdrant server. Connects at its first use.

    Beyond the errors of the protocol, calls raise ConfigError if the collection cannot be used as configured, and
    StoreLost if it was deleted since it was opened; `wipe` creates it again.
    """

    def __init__(self, server: QdrantOptions, ledger: str, spec: EmbeddingSpec) -> None:
        self._collection = Collection(server, spec)
        self._ledger = ledger
        self._points_per_request = max(1, _COMPONENTS_PER_REQUEST // (spec.dims + spec.multilingual_dims))

    def check(self) -> None:
        """Opens the collection. Raises ConfigError if it cannot be used, StoreUnavailable if it is out of reach."""
        with self._collection.connected():
            pass

    def upsert(self, points: Sequence[Point]) -> None:
        if not points:
            return
        with self._collection.connected():
            if not self._collection.has_multilingual:
                points = [replace(point, multilingual=None) for point in points]
        structs: list[grpc.PointStruct] = []
        for point in points:
            record, partition = point.record, self._stored_partition(point.record.partition)
            shared = {**payload(record), "ledger": self._ledger, "partition": partition}
            for window, dense in enumerate(vectors_of(point)):
                # The first window carries the words of the whole text.
                weights = point.weights if window == 0 else {}
                uid = str(uuid5(NAMESPACE_OID, f"{self._ledger}/{record.id}/{window}"))
                structs.append(point_struct(uid, dense, weights, {**shared, "window": window}))
        # A batch is the ledger's state at one moment: a stored `seq` above its highest was read later, and stays.
        not_newer = _range("seq", lte=max(point.record.seq for point in points))
        requests = [[upsert_operation(chunk, not_newer)] for chunk in _chunks(structs, self._points_per_request)]
        requests[-1].append(delete_operation(self._surplus_windows(points, not_newer)))
        with self._collection.connected() as connection:
            for operations in requests:
                connection.update(self._collection.name, operations)

    def _surplus_windows(self, points: Sequence[Point], not_newer: models.FieldCondition) -> models.Filter:
        """Selects the windows left over from longer earlier texts of these memories."""
        ids_by_windows: dict[int, list[str]] = {}
        for point in points:
            ids_by_windows.setdefault(point.windows, []).append(point.record.id)
        surplus = [
            models.Filter(must=[_is_in("memory", ids), _range("window", gte=windows)])
            for windows, ids in ids_by_windows.items()
        ]
        return models.Filter(must=[self._own_points(), not_newer, models.Filter(should=list(surplus))])

    def delete(self, ids: Sequence[str]) -> int:
        removed = 0
        with self._collection.connected() as connection:
            for chunk in _chunks(ids, _IDS_PER_CONDITION):
                selected = models.Filter(must=[self._own_points(), _is_in("memory", chunk)])
                count = self._count(connection, selected)
                if count:
                    selector = models.FilterSelector(filter=selected)
                    connection.writer.delete(self._collection.name, selector, wait=True)
                removed += count
        return removed

    def flush(self) -> None:
        """Does nothing: a server's writes are durable when they return."""

    def dense(self, view: View, vector: Matrix, limit: int) -> list[tuple[str, float]]:
        return self._query(view, vector.tolist(), DENSE, limit)

    def multilingual(
        self, view: View, vector: Matrix, limit: int, *, without_dense: bool = False
    ) -> list[tuple[str, float]]:
        with self._collection.connected():
            if not self._collection.has_multilingual:
                return []
        excluded = [models.HasVectorCondition(has_vector=DENSE)] if without_dense else []
        return self._query(view, vector.tolist(), MULTILINGUAL, limit, excluded)

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> list[tuple[str, float]]:
        if not weights:
            return []
        vector = models.SparseVector(indices=list(weights), values=list(weights.values()))
        return self._query(view, vector, SPARSE, limit)

    def _query(
        self, view: View, vector: Any, using: str, limit: int, excluded: Sequence[models.HasVectorCondition] = ()
    ) -> list[tuple[str, float]]:
        params = None if using == SPARSE else _SEARCH_PARAMS
        query = VectorQuery(self._collection.name, vector, using, self._filter(view, excluded), params)
        with self._collection.connected() as connection:
            return best_by_memory(lambda point_count: connection.nearest(query, point_count), limit)

    def count(self) -> int:
        with self._collection.connected() as connection:
            return self._count(connection, models.Filter(must=[self._own_points()]))

    def _count(self, connection: Connection, selected: models.Filter | None) -> int:
        return int(connection.reader.count(self._collection.name, selected, exact=True).count)

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        condition = (
            self._own_points()
            if partitions is None
            else _is_in("partition", [self._stored_partition(partition) for partition in partitions])
        )
        yield from count_windows(self._payloads(models.Filter(must=[condition])))

    def _payloads(self, selected: models.Filter) -> Iterator[models.Payload]:
        offset: Any = None
        while True:
            with self._collection.connected() as connection:
                page, offset = connection.reader.scroll(
                    self._collection.name, selected, limit=_PAGE, offset=offset, with_payload=["memory", "seq"]
                )
            for record in page:
                yield record.payload or {}
            if offset is None:
                return

    def wipe(self) -> None:
        collection = self._collection
        with collection.connected_for_reset() as connection:
            selected = models.Filter(must=[self._own_points()])
            # Page by page, so that no single request exceeds the write timeout.
            while page := connection.reader.scroll(collection.name, selected, limit=_PAGE, with_payload=False)[0]:
                ids = models.PointIdsList(points=[record.id for record in page])
                connection.writer.delete(collection.name, ids, wait=True)
            is_empty = not self._count(connection, None)
            if not collection.matches_model and not is_empty:
                raise collection.model_mismatch_error()
            if is_empty and not (collection.matches_model and collection.has_multilingual):
                collection.replace()

    def close(self) -> None:
        self._collection.close()

    def _stored_partition(self, partition: str) -> str:
        return f"{self._ledger}/{partition}"

    def _own_points(self) -> models.FieldCondition:
        return _is("ledger", self._ledger)

    def _filter(self, view: View, excluded: Sequence[models.HasVectorCondition]) -> models.Filter:
        view_conditions = conditions(view)
        must = [
            self._own_points() if view.partition is None else _is("partition", self._stored_partition(view.partition))
        ]
        must += [_is(name, value) for name, value in view_conditions.parts.items()]
        must += [_range(name, lte=view_conditions.moment) for name in view_conditions.started_fields]
        must_not = [_range(name, lte=view_conditions.moment) for name in view_conditions.ended_fields]
        if view_conditions.kinds is not None:
            must.append(_is_in("kind", view_conditions.kinds))
        if view_conditions.not_kinds:
            must_not.append(_is_in("kind", view_conditions.not_kinds))
        return models.Filter(must=list(must), must_not=[*must_not, *excluded])


def _is(name: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=name, match=models.MatchValue(value=value))


def _is_in(name: str, values: Iterable[str]) -> models.FieldCondition:
    return models.FieldCondition(key=name, match=models.MatchAny(any=list(values)))


def _range(name: str, **bounds: float) -> models.FieldCondition:
    return models.FieldCondition(key=name, range=models.Range(**bounds))


def _chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    return (list(items[start : start + size]) for start in range(0, len(items), size))
