"""The embedded vector index: Qdrant's own engine in this process (`qdrant-edge-py`).

It holds ids, scopes, dates and numbers, never texts. Its write-ahead log is off: the ledger already is one, what is
delivered is flushed before the cursor moves, and a damaged byte in Edge's log was seen to lose points silently. One
process at a time may open it; a lock file says so before Edge is touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

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
    PointVectors,
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

from graphmem.errors import CLOSED, StoreError, StoreLocked, StoreUnavailable
from graphmem.model import View
from graphmem.stores.ledger.sqlite import file_identity, private_folder
from graphmem.stores.protocols import Point
from graphmem.stores.qdrant.payload import DENSE, SPARSE, best_by_memory, conditions, count_windows, payload

if TYPE_CHECKING:
    from graphmem.models.protocols import Matrix

_KEYWORDS = ("memory", "partition", "agent_id", "run_id", "kind")
_INTEGERS = ("valid_from", "valid_to", "expires_at")
_PAGE = 2000
_SOUND = 0.01
# Delivered points after which the segments are merged and indexed: so many, and this share of what there is. Merging
# writes most of it anew, so with a number alone filling would take quadratic time.
_OPTIMIZE_AFTER, _OPTIMIZE_SHARE = 20_000, 1 / 8
# Edge writes through mapped files with holes. Where the disk has no block left for one, the system ends the process, so
# so many bytes must be free before a batch: more than one ever takes.
_ROOM = 32 * 2**20


class EmbeddedIndex:
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
        except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
            raise StoreUnavailable(
                f"cannot lock {self._lock.lock_file!r}: {_told(error)}; check the path and its rights"
            ) from error
        self._since_optimized = 0
        self._unflushed = False
        self._closed = False
        try:
            with self._our_errors():
                self._shard = self._open()
        except BaseException:
            self._lock.release()
            raise

    @property
    def place(self) -> str:
        """A name for this folder, made once: a ledger on a server may have such a folder in many homes."""
        named = self._folder.with_suffix(".place")
        with self._our_errors():
            if not named.exists():
                named.write_text(str(uuid4()))
                named.chmod(0o600)
            return named.read_text()

    def _open(self) -> EdgeShard:
        if (self._folder / "edge_config.json").exists():
            try:
                shard = EdgeShard.load(str(self._folder), self._config())
            except BaseException as error:
                if not _is_edges(error):
                    raise  # else: whatever is wrong with the folder, it is only a projection
            else:
                self._place = file_identity(self._folder)
                return shard
        try:
            return self._create()
        except StoreUnavailable:
            raise
        except StoreError as error:
            raise StoreError(
                f"the vector index cannot be made in {str(self._folder)!r}; remove that folder, which the ledger fills "
                "again, or name another place in vector_store.config.path"
            ) from error

    def _create(self) -> EdgeShard:
        private_folder(self._folder.parent)  # it may have been removed meanwhile
        self._check_disk()
        shutil.rmtree(self._folder, ignore_errors=True)
        private_folder(self._folder)
        with self._our_errors():
            shard = EdgeShard.create(str(self._folder), self._config())
            for name in _KEYWORDS:
                shard.update(UpdateOperation.create_field_index(name, PayloadSchemaType.Keyword))
            for name in _INTEGERS:
                shard.update(UpdateOperation.create_field_index(name, PayloadSchemaType.Integer))
            shard.flush()
            self._keep_private()
            self._place = file_identity(self._folder)
        return shard

    def _keep_private(self) -> None:
        """Edge makes its files with the process's default mode; the folder shuts others out, this is a second door."""
        for folder, _, files in os.walk(self._folder):  # after each flush: pathlib took as long as the flush itself
            os.chmod(folder, 0o700)  # noqa: PTH101
            for name in files:
                os.chmod(os.path.join(folder, name), 0o600)  # noqa: PTH101, PTH118

    def _config(self) -> EdgeConfig:
        return EdgeConfig(
            vectors={DENSE: EdgeVectorParams(size=self._dims, distance=Distance.Cosine)},
            sparse_vectors={SPARSE: EdgeSparseVectorParams()},
            wal_enabled=False,
        )

    def _has_room(self, needed: int = _ROOM) -> bool:
        return shutil.disk_usage(self._folder.parent).free >= needed

    def _check_room(self) -> None:
        if not self._is_in_place():
            raise StoreUnavailable(
                f"the vector index {str(self._folder)!r} was moved, replaced or removed while it was open; "
                "close this Memory and open it again"
            )
        self._check_disk()

    def _is_in_place(self) -> bool:
        """Whether its folder is still the one that was opened: Edge writes by the path, whoever's files are there."""
        try:
            return file_identity(self._folder) == self._place
        except OSError:
            return False

    def _check_disk(self) -> None:
        if not self._has_room():
            raise StoreUnavailable(
                f"the disk is full: fewer than {_ROOM >> 20} MB are free for the vector index {str(self._folder)!r}"
            )

    def upsert(self, points: Sequence[Point]) -> None:
        with self._our_errors():
            self._check_room()
            self._delete([point.record.id for point in points])
            made = [edge_point for point in points for edge_point in _edge_points(point)]
            if made:
                self._shard.update(UpdateOperation.upsert_points(made))
            self._flush()
            self._since_optimized += len(made)
            if self._is_unmerged() and self._has_room(_ROOM + self._size()):
                self._shard.optimize()
                self._since_optimized = 0
                self._flush()

    def _is_unmerged(self) -> bool:
        new = self._since_optimized
        return new >= _OPTIMIZE_AFTER and new >= _OPTIMIZE_SHARE * self._shard.count(CountRequest(exact=True))

    def delete(self, ids: Sequence[str]) -> int:
        with self._our_errors():
            self._check_room()
            gone = self._delete(ids)
            if self._unflushed:
                self._flush()
        return gone

    def _size(self) -> int:
        return sum(512 * path.stat().st_blocks for path in self._folder.rglob("*"))

    def _flush(self) -> None:
        self._shard.flush()
        self._unflushed = False
        self._keep_private()

    def _delete(self, ids: Sequence[str]) -> int:
        if not ids:
            return 0
        mine = Filter(must=[FieldCondition(key="memory", match=MatchAny(list(ids)))])
        points = self._found(mine)
        if points:
            self._unflushed = True
            # A deleted point only counts as deleted: its vector stays in the file until the segment is written anew.
            blank: dict[str, Any] = {DENSE: [0.0] * self._dims}
            self._shard.update(UpdateOperation.update_vectors([PointVectors(point, blank) for point in points]))
            self._shard.update(UpdateOperation.delete_points(points))
        return len(points)

    def _found(self, wanted: Filter) -> list[Any]:
        count = self._shard.count(CountRequest(filter=wanted, exact=True))
        if not count:
            return []
        request = ScrollRequest(filter=wanted, limit=count, with_payload=False, with_vector=False)
        return [record.id for record in self._shard.scroll(request)[0]]

    def dense(self, view: View, vector: Matrix, limit: int) -> list[tuple[str, float]]:
        return self._query(view, vector.tolist(), DENSE, limit)

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> list[tuple[str, float]]:
        if not weights:
            return []
        return self._query(view, SparseVector(list(weights), list(weights.values())), SPARSE, limit)

    def _query(self, view: View, vector: Any, using: str, limit: int) -> list[tuple[str, float]]:
        query, chosen = Query.Nearest(vector, using=using), _filter(view)

        def ask(asked: int) -> list[tuple[str, float]]:
            request = QueryRequest(limit=asked, query=query, filter=chosen, with_payload=["memory"])
            with self._our_errors():
                return [((point.payload or {})["memory"], point.score) for point in self._shard.query(request)]

        return best_by_memory(ask, limit)

    def count(self) -> int:
        with self._our_errors():
            return self._shard.count(CountRequest(exact=True))

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        chosen = (
            None
            if partitions is None
            else Filter(must=[FieldCondition(key="partition", match=MatchAny(list(partitions)))])
        )
        return iter(count_windows(record.payload or {} for record in self._records(chosen) if _is_sound(record.vector)))

    def _records(self, chosen: Filter | None) -> Iterator[Any]:
        offset: Any = None
        while True:
            request = ScrollRequest(
                offset=offset, limit=_PAGE, filter=chosen, with_payload=["memory", "version"], with_vector=[DENSE]
            )
            with self._our_errors():
                page, offset = self._shard.scroll(request)
            yield from page
            if offset is None:
                break

    def wipe(self) -> None:
        with suppress(StoreError), self._our_errors():
            self._shard.close()
        self._shard = self._create()
        self._since_optimized = 0

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._is_in_place():
                self._close_in_place()
            else:  # it went with its folder, and with it what there was to keep
                with suppress(StoreError), self._our_errors():
                    self._closed = True
                    self._shard.close()
        finally:
            self._closed = True
            self._lock.release()

    def _close_in_place(self) -> None:
        with self._our_errors():
            self._shard.flush()
            self._closed = True
            self._shard.close()
            self._keep_private()

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        """Edge's errors as ours. What a close in another thread broke off is out of reach, not refused."""
        if self._closed:
            raise StoreUnavailable(CLOSED)
        try:
            yield
        except StoreError:
            raise
        except BaseException as error:
            is_of_files = isinstance(error, OSError) and error.errno is not None
            if not is_of_files and not _is_edges(error):
                raise
            if self._closed:
                raise StoreUnavailable(CLOSED) from error
            if is_of_files:
                told = f"the files of the vector index {str(self._folder)!r} cannot be used: {_told(error)}"
                raise StoreUnavailable(told) from error
            failed = f"the vector index failed ({type(error).__name__}); `verify(repair=True)` mends it"
            raise StoreError(failed) from error


def _edge_points(point: Point) -> Iterator[EdgePoint]:
    record, sparse = point.record, SparseVector(list(point.weights), list(point.weights.values()))
    shared = payload(record)
    for window, vector in enumerate(point.vectors):
        vectors: dict[str, Any] = {DENSE: vector.tolist()}
        if window == 0 and point.weights:  # the words are those of the whole text: once is enough
            vectors[SPARSE] = sparse
        yield EdgePoint(point_id(record.id, window), vectors, shared)


def _is_sound(vector: Any) -> bool:
    """Whether a point still has its vector: Edge kept it at unit length; a damaged file gives zeros, or none."""
    dense = vector.get(DENSE) if isinstance(vector, dict) else None
    return dense is not None and abs(sum(x * x for x in dense) - 1) < _SOUND


def point_id(memory: str, window: int) -> UUID:
    """The id of a point: the memory's own for its first window."""
    return UUID(memory) if window == 0 else uuid5(NAMESPACE_OID, f"{memory}/{window}")


def _filter(view: View) -> Filter:
    told = conditions(view)
    moment = float(told.moment)
    equal = {**told.parts, **({} if view.partition is None else {"partition": view.partition})}
    must = [FieldCondition(key=name, match=MatchValue(value)) for name, value in equal.items()]
    must += [FieldCondition(key=name, range=RangeFloat(lte=moment)) for name in told.started_fields]
    without = [FieldCondition(key=name, range=RangeFloat(lte=moment)) for name in told.ended_fields]
    if told.kinds is not None:
        must.append(FieldCondition(key="kind", match=MatchAny(list(told.kinds))))
    if told.not_kinds:
        without.append(FieldCondition(key="kind", match=MatchAny(list(told.not_kinds))))
    return Filter(must=list(must), must_not=list(without))


def _told(error: BaseException) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


def _is_edges(error: BaseException) -> bool:
    """Whether an exception is Edge's: a plain one, a panic over a damaged file (a BaseException of its own), or one
    about a value that it cannot take.

    Everything else passes through: interrupts, and what the handler of a signal raises, at any moment, in a class of
    its own. A plain exception is Edge's if it was raised here: Edge has no frames.
    """
    kind = type(error)
    if kind is Exception:
        return _raised_in(error) is globals()
    if kind.__module__ == "builtins":
        return isinstance(error, TypeError | ValueError | OverflowError | KeyError)
    return kind.__name__ == "PanicException"


def _raised_in(error: BaseException) -> object:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return None if at is None else at.tb_frame.f_globals
