"""The embedded vector index: Qdrant's own engine in this process (`qdrant-edge-py`).

It holds ids, scopes, dates and numbers, never texts. Its write-ahead log is off: the ledger serves as one, what is
written is flushed before the ledger's cursor moves, and a damaged byte in Edge's log was seen to lose points silently.
One process at a time may open it; a lock file ensures that before Edge opens any file.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
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
    HasVectorCondition,
    IntegerIndexParams,
    KeywordIndexParams,
    MatchAny,
    MatchValue,
    Memory,
    PointVectors,
    Query,
    QueryRequest,
    RangeFloat,
    ScrollRequest,
    SparseVector,
    UpdateOperation,
    VectorStorageDatatype,
)
from qdrant_edge import (
    Point as EdgePoint,
)

from graphmem.errors import CLOSED, ConfigError, StoreError, StoreLocked, StoreUnavailable
from graphmem.model import View
from graphmem.plugins import Point, StoreLost
from graphmem.stores.ledger.sqlite import file_identity, private_folder
from graphmem.stores.qdrant import file_ends
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

_KEYWORD_FIELDS = ("memory", "partition", "agent_id", "run_id", "kind")
_INTEGER_FIELDS = ("valid_from", "valid_to", "expires_at", "forgotten_at")
_PAGE = 2000
# How far a stored vector's squared length may be from 1.
_NORM_TOLERANCE = 0.01
# Segments are merged and indexed after this many new points that are also this share of all points. Merging rewrites
# most of the index: with a fixed number alone, filling it would take quadratic time.
_OPTIMIZE_AFTER, _OPTIMIZE_SHARE = 20_000, 1 / 8
# Memories of a delivery behind which others follow (`projection.BATCH`). Each merge indexes nearly all points anew, so
# a rebuild merges once, at its end.
_FULL_BATCH = 500
# Edge writes through sparse memory-mapped files. If the disk has no block left for a hole, the system kills the
# process (SIGBUS). So this many bytes must be free before the index is opened, and before a batch beside those of its
# points.
_MIN_FREE_BYTES = 32 * 2**20
# The files of a new index: 124.4 MB, of which 0.2 MB are no holes. Most are four files of 32 MB, which Edge makes so.
_NEW_BYTES = 128 * 2**20
# Bytes of a point beside its vector, at most: payload, ids and entries of indexes. Measured: 1 KB with forty words.
_POINT_BYTES = 2048


class DiskFull(StoreUnavailable):
    """The disk has too little room for the vector index."""


class EmbeddedIndex:
    """A `VectorIndex` in a folder.

    `dims` is the length of its vectors, `multilingual_dims` that of those in the multilingual space (0: it has none). A
    folder that was made without this space serves without it until it is wiped. An empty index takes the first length
    of the first points; otherwise points of another length raise StoreLost, as the embedder has changed. Opening raises
    StoreLocked when another process has the folder open, DiskFull without the room that Edge needs, and ConfigError
    when a new index would lie beside the collections of qdrant-client's local mode. Adding, deleting and flushing raise
    DiskFull, too.
    """

    def __init__(self, folder: Path, dims: int, multilingual_dims: int = 0) -> None:
        private_folder(folder.parent)
        self._folder = folder
        self._dims = dims
        # Of the opened folder, and of the next one that is made.
        self._multilingual_dims = self._wanted_multilingual_dims = multilingual_dims
        self._closed = False
        with self._translated_errors():
            place = folder.parent
            # qdrant-client's local mode keeps its collections in these.
            is_local_qdrant = (place / "meta.json").is_file() or (place / "collection").is_dir()
            if is_local_qdrant and not folder.exists():
                raise ConfigError(
                    f"vector_store.config.path: {str(place)!r} holds a local Qdrant that graphmem did not make, "
                    "such as mem0's; choose another folder (`graphmem migrate mem0` imports mem0's memories)"
                )
        self._lock = FileLock(f"{folder}.lock", timeout=0, mode=0o600)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise StoreLocked(f"another process holds the vector index {str(folder)!r}") from error
        except (OSError, NotImplementedError) as error:  # NotImplementedError: a file system without locks
            raise StoreUnavailable(
                f"cannot lock {self._lock.lock_file!r}: {_reason(error)}; check the path and its rights"
            ) from error
        self._points_since_optimized = 0
        self._unflushed = False
        try:
            with self._translated_errors():
                self._shard = self._open()
        except BaseException:
            self._lock.release()
            raise

    @property
    def place(self) -> str:
        """The folder's unique name, created once in a file beside it.

        A ledger on a server may have such a folder in many homes, each with a cursor of its own.
        """
        name_file = self._folder.with_suffix(".place")
        with self._translated_errors():
            if not name_file.exists():
                name_file.write_text(str(uuid4()))
                name_file.chmod(0o600)
            return name_file.read_text()

    def _open(self) -> EdgeShard:
        if (self._folder / "edge_config.json").exists():
            file_ends.restore(self._folder)
            self._check_room_to_open(is_new=False)
            for multilingual_dims in dict.fromkeys((self._wanted_multilingual_dims, 0)):
                self._multilingual_dims = multilingual_dims
                try:
                    shard = EdgeShard.load(str(self._folder), self._config())
                except BaseException as error:
                    if not _is_edge_error(error):
                        raise  # an error of Edge's is ignored: the folder is only a projection, and is created again
                else:
                    self._folder_identity = file_identity(self._folder)
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
        self._multilingual_dims = self._wanted_multilingual_dims
        private_folder(self._folder.parent)  # it may have been removed since the opening
        self._check_room_to_open(is_new=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        private_folder(self._folder)
        with self._translated_errors():
            shard = EdgeShard.create(str(self._folder), self._config())
            for name in _KEYWORD_FIELDS:
                shard.update(UpdateOperation.create_field_index(name, KeywordIndexParams(memory=Memory.Cold)))
            for name in _INTEGER_FIELDS:
                # For comparisons alone: without `lookup` it has half of the files.
                ranges = IntegerIndexParams(lookup=False, range=True, memory=Memory.Cold)
                shard.update(UpdateOperation.create_field_index(name, ranges))
            shard.flush()
            self._keep_private()
            self._folder_identity = file_identity(self._folder)
        return shard

    def _keep_private(self) -> None:
        """Restricts all files to their owner, as the folder already is: Edge creates them with the default mode."""
        for folder, _, files in os.walk(self._folder):  # os, not pathlib, which took as long as the flush before it
            os.chmod(folder, 0o700)  # noqa: PTH101
            for name in files:
                os.chmod(os.path.join(folder, name), 0o600)  # noqa: PTH101, PTH118

    def _config(self) -> EdgeConfig:
        # Cold: pages of files are read as they are needed. Edge otherwise reads all of them, holes too, when it opens.
        cold = Memory.Cold
        vectors = {DENSE: EdgeVectorParams(size=self._dims, distance=Distance.Cosine, memory=cold)}
        if self._multilingual_dims:
            vectors[MULTILINGUAL] = EdgeVectorParams(
                size=self._multilingual_dims,
                distance=Distance.Cosine,
                datatype=VectorStorageDatatype.Float16,
                memory=cold,
            )
        return EdgeConfig(
            vectors=vectors,
            sparse_vectors={SPARSE: EdgeSparseVectorParams(memory=cold)},
            payload_memory=cold,
            wal_enabled=False,
        )

    def _missing_bytes(self, needed: int) -> int:
        return max(0, needed - shutil.disk_usage(self._folder.parent).free)

    def _check_room(self, needed: int) -> None:
        if missing := self._missing_bytes(needed):
            place = self._folder.parent
            raise DiskFull(
                f"the disk has too little room: the vector index in {str(place)!r} needs {_megabytes(needed)} MB of it "
                f"free, {_megabytes(missing)} MB more than there are; free them, or name another place in "
                "vector_store.config.path"
            )

    def _check_room_to_open(self, *, is_new: bool) -> None:
        self._check_room(_MIN_FREE_BYTES)
        if _takes_blocks_for_reading(self._folder.parent):  # Edge reads some files as a whole when it opens them
            holes = _NEW_BYTES - self._size() if is_new else sum(_hole_bytes(path) for path in self._files())
            self._check_room(_MIN_FREE_BYTES + max(0, holes))

    def _check_writable(self, points: Sequence[Point] = ()) -> None:
        if not self._is_in_place():
            raise StoreUnavailable(
                f"the vector index {str(self._folder)!r} was moved, replaced or removed while it was open; "
                "close this Memory and open it again"
            )
        needed = sum(
            point.vectors.nbytes + 2 * self._multilingual_dims + _POINT_BYTES * point.windows for point in points
        )
        self._check_room(_MIN_FREE_BYTES + needed)

    def _is_in_place(self) -> bool:
        """Returns True if the path still leads to the opened folder. Edge writes by path, into any files it finds."""
        try:
            return file_identity(self._folder) == self._folder_identity
        except OSError:
            return False

    def upsert(self, points: Sequence[Point]) -> None:
        with self._translated_errors():
            self._check_writable(points)
            self._adopt_dims(points)
            if not self._multilingual_dims:
                points = [replace(point, multilingual=None) for point in points]
            self._delete([point.record.id for point in points])
            edge_points = [edge_point for point in points for edge_point in _edge_points(point)]
            if edge_points:
                self._unflushed = True
                self._shard.update(UpdateOperation.upsert_points(edge_points))
            self._points_since_optimized += len(edge_points)
            if self._should_optimize(len(points)) and not self._missing_bytes(_MIN_FREE_BYTES + self._size()):
                self._flush()
                self._shard.optimize()
                self._points_since_optimized = 0
                self._flush()  # the files of merged segments are gone: the new ones must not be lost

    def _adopt_dims(self, points: Sequence[Point]) -> None:
        if not points or (dims := points[0].vectors.shape[1]) == self._dims:
            return
        if self.count():
            raise StoreLost(f"the vector index {str(self._folder)!r} holds vectors of another embedder")
        self._dims = dims
        self.wipe()

    def _should_optimize(self, last_batch: int) -> bool:
        new_points = self._points_since_optimized
        if last_batch >= _FULL_BATCH or new_points < _OPTIMIZE_AFTER:
            return False
        return new_points >= _OPTIMIZE_SHARE * self._shard.count(CountRequest(exact=True))

    def delete(self, ids: Sequence[str]) -> int:
        with self._translated_errors():
            self._check_writable()
            return self._delete(ids)

    def flush(self) -> None:
        with self._translated_errors():
            if self._unflushed:
                self._check_writable()  # flushing, too, writes into holes
                self._flush()

    def _files(self) -> list[Path]:
        return [path for path in self._folder.rglob("*") if path.is_file()]

    def _size(self) -> int:
        return sum(512 * path.stat().st_blocks for path in self._files())

    def _flush(self) -> None:
        self._shard.flush()
        self._unflushed = False
        self._keep_private()

    def _delete(self, ids: Sequence[str]) -> int:
        if not ids:
            return 0
        point_ids = self._point_ids(Filter(must=[FieldCondition(key="memory", match=MatchAny(list(ids)))]))
        if point_ids:
            self._unflushed = True
            # Edge only marks a point as deleted: its vector stays in the file until the segment is rewritten. So it is
            # overwritten with zeros first.
            blank: dict[str, Any] = {DENSE: [0.0] * self._dims}
            if self._multilingual_dims:
                blank[MULTILINGUAL] = [0.0] * self._multilingual_dims
            self._shard.update(UpdateOperation.update_vectors([PointVectors(uid, blank) for uid in point_ids]))
            self._shard.update(UpdateOperation.delete_points(point_ids))
        return len(point_ids)

    def _point_ids(self, selected: Filter) -> list[Any]:
        count = self._shard.count(CountRequest(filter=selected, exact=True))
        if not count:
            return []
        request = ScrollRequest(filter=selected, limit=count, with_payload=False, with_vector=False)
        return [record.id for record in self._shard.scroll(request)[0]]

    def dense(self, view: View, vector: Matrix, limit: int) -> list[tuple[str, float]]:
        return self._query(view, vector.tolist(), DENSE, limit)

    def multilingual(
        self, view: View, vector: Matrix, limit: int, *, without_dense: bool = False
    ) -> list[tuple[str, float]]:
        if not self._multilingual_dims:
            return []
        excluded = [HasVectorCondition(DENSE)] if without_dense else []
        return self._query(view, vector.tolist(), MULTILINGUAL, limit, excluded)

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> list[tuple[str, float]]:
        if not weights:
            return []
        return self._query(view, SparseVector(list(weights), list(weights.values())), SPARSE, limit)

    def _query(
        self, view: View, vector: Any, using: str, limit: int, excluded: Sequence[HasVectorCondition] = ()
    ) -> list[tuple[str, float]]:
        query, selected = Query.Nearest(vector, using=using), _filter(view, excluded)

        def search(point_count: int) -> list[tuple[str, float]]:
            request = QueryRequest(limit=point_count, query=query, filter=selected, with_payload=["memory"])
            with self._translated_errors():
                return [((point.payload or {})["memory"], point.score) for point in self._shard.query(request)]

        return best_by_memory(search, limit)

    def count(self) -> int:
        with self._translated_errors():
            return self._shard.count(CountRequest(exact=True))

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        selected = (
            None
            if partitions is None
            else Filter(must=[FieldCondition(key="partition", match=MatchAny(list(partitions)))])
        )
        return iter(
            count_windows(record.payload or {} for record in self._records(selected) if self._is_intact(record.vector))
        )

    def _records(self, selected: Filter | None) -> Iterator[Any]:
        offset: Any = None
        while True:
            request = ScrollRequest(
                offset=offset,
                limit=_PAGE,
                filter=selected,
                with_payload=["memory", "seq"],
                with_vector=[DENSE, MULTILINGUAL] if self._multilingual_dims else [DENSE],
            )
            with self._translated_errors():
                page, offset = self._shard.scroll(request)
            yield from page
            if offset is None:
                break

    def _is_intact(self, vector: Any) -> bool:
        """Returns True if a point's vectors have unit length, as stored; a damaged file yields zeros, or no vector.

        A text that is in the multilingual space alone has no vector in an index without it.
        """
        stored = list(vector.values()) if isinstance(vector, dict) else []
        lacks_space = self._multilingual_dims < self._wanted_multilingual_dims
        are_units = all(abs(sum(x * x for x in dense) - 1) < _NORM_TOLERANCE for dense in stored)
        return are_units and (bool(stored) or lacks_space)

    def wipe(self) -> None:
        with suppress(StoreError), self._translated_errors():
            self._shard.close()
        self._shard = self._create()
        self._points_since_optimized, self._unflushed = 0, False

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._is_in_place():
                self._close_in_place()
            else:  # the index is gone with its folder, so nothing is flushed
                with suppress(StoreError), self._translated_errors():
                    self._closed = True
                    self._shard.close()
        finally:
            self._closed = True
            self._lock.release()

    def _close_in_place(self) -> None:
        with self._translated_errors():
            try:
                self.flush()
            finally:
                self._closed = True
                self._shard.close()
            self._keep_private()
            with suppress(OSError):  # a full disk: then copies are longer, that is all
                file_ends.cut(self._folder)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raises Edge's errors as graphmem's: StoreUnavailable for errors of files and after a close in another thread.

        All others are a StoreError, and delivery takes them for the refusal of a row.
        """
        if self._closed:
            raise StoreUnavailable(CLOSED)
        try:
            yield
        except StoreError:
            raise
        except BaseException as error:
            is_file_error = isinstance(error, OSError) and error.errno is not None
            if not is_file_error and not _is_edge_error(error):
                raise
            if self._closed:
                raise StoreUnavailable(CLOSED) from error
            if is_file_error:
                message = f"the files of the vector index {str(self._folder)!r} cannot be used: {_reason(error)}"
                raise StoreUnavailable(message) from error
            message = f"the vector index failed ({type(error).__name__}); `verify(repair=True)` mends it"
            raise StoreError(message) from error


def _edge_points(point: Point) -> Iterator[EdgePoint]:
    record, sparse = point.record, SparseVector(list(point.weights), list(point.weights.values()))
    shared = payload(record)
    for window, dense in enumerate(vectors_of(point)):
        vectors: dict[str, Any] = {name: vector.tolist() for name, vector in dense.items()}
        if window == 0 and point.weights:  # the first window carries the words of the whole text
            vectors[SPARSE] = sparse
        yield EdgePoint(point_id(record.id, window), vectors, shared)


def point_id(memory: str, window: int) -> UUID:
    """Returns the id of a window's point; the first window's is the memory's id."""
    return UUID(memory) if window == 0 else uuid5(NAMESPACE_OID, f"{memory}/{window}")


def _filter(view: View, excluded: Sequence[HasVectorCondition]) -> Filter:
    view_conditions = conditions(view)
    moment = float(view_conditions.moment)
    equal = {**view_conditions.parts, **({} if view.partition is None else {"partition": view.partition})}
    must = [FieldCondition(key=name, match=MatchValue(value)) for name, value in equal.items()]
    must += [FieldCondition(key=name, range=RangeFloat(lte=moment)) for name in view_conditions.started_fields]
    must_not = [FieldCondition(key=name, range=RangeFloat(lte=moment)) for name in view_conditions.ended_fields]
    if view_conditions.kinds is not None:
        must.append(FieldCondition(key="kind", match=MatchAny(list(view_conditions.kinds))))
    if view_conditions.not_kinds:
        must_not.append(FieldCondition(key="kind", match=MatchAny(list(view_conditions.not_kinds))))
    return Filter(must=list(must), must_not=[*must_not, *excluded])


def _hole_bytes(file: Path) -> int:
    status = file.stat()
    return max(0, status.st_size - 512 * status.st_blocks)


def _takes_blocks_for_reading(folder: Path) -> bool:
    """Tells whether its file system takes a block when a hole of a mapped file is read, as tmpfs does.

    There has to be a free block.
    """
    with TemporaryFile(dir=folder) as file:
        file.truncate(mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ) as mapped:
            mapped.read(1)
        return getattr(os.fstat(file.fileno()), "st_blocks", 0) > 0  # Windows has no such field


def _megabytes(count: int) -> int:
    return -(-count // 2**20)


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


def _is_edge_error(error: BaseException) -> bool:
    """Returns True for an exception that Edge raised.

    Edge raises plain `Exception`, a panic over a damaged file (a BaseException class of its own), and built-in
    exceptions about values it cannot take. Interrupts and the exceptions of signal handlers, which may come at any
    moment in classes of their own, are not Edge's. A plain exception is Edge's if it was raised in this module, because
    Edge has no Python frames.
    """
    kind = type(error)
    if kind is Exception:
        return _globals_at_raise(error) is globals()
    if kind.__module__ == "builtins":
        return isinstance(error, TypeError | ValueError | OverflowError | KeyError)
    return kind.__name__ == "PanicException"


def _globals_at_raise(error: BaseException) -> object:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return None if traceback is None else traceback.tb_frame.f_globals
