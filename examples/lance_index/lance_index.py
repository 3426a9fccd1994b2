"""A vector index for graphmem in LanceDB: one file, outside the package.

`Memory("./home", vector_index=LanceIndex("./vectors", multilingual_dims=512))`; 512 is the length of the vectors that
the built-in embedder gives texts of sixteen languages, None goes with an embedder without such a space.

One row for each window of a memory. LanceDB has no sparse vectors: a search by words filters the memories that have one
of its terms, and adds up the products here. Filters of LanceDB are SQL without parameters, so they hold digests of ids,
never ids. Without an index of its own LanceDB compares all vectors of a filter, which is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from graphmem.errors import StoreUnavailable
from graphmem.plugins import MemoryRecord, Point, View

Vector = npt.NDArray[np.float32]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TABLE = "graphmem"
# Writes after which old versions of the table are removed and its files are merged.
OPTIMIZE_AFTER = 200
# How many rows more than hits are asked for, at first: a memory has a row for each window.
ROWS_PER_HIT = 4
# For how long a version of the table stays: as long as a reader may take.
VERSIONS_KEPT = timedelta(minutes=1)


class LanceIndex:
    """A `VectorIndex` in a folder of LanceDB. Several processes may read it, one at a time writes."""

    def __init__(self, folder: str | Path, *, multilingual_dims: int | None = None) -> None:
        self.place = f"lancedb/{Path(folder).absolute()}"
        self._multilingual_dims = multilingual_dims
        # Each read looks for a newer version, which another process may have written.
        self._database: Any = lancedb.connect(folder, read_consistency_interval=timedelta(0))
        self._table: Any = None
        self._writes = 0
        self._lock = Lock()

    # --- writing ----------------------------------------------------------------------------------------------------

    def upsert(self, points: Sequence[Point]) -> None:
        newest = {point.record.id: point for point in points}
        if not newest:
            return
        table = self._opened()
        if table is None:
            table = self._created(next(iter(newest.values())).vectors.shape[1])
        dims = table.schema.field("vector").type.list_size
        rows = [row for point in newest.values() for row in self._rows(point, dims)]
        # One version of the table: no reader sees a memory without its windows.
        (
            table.merge_insert("row")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete(_any_of("memory", newest))
            .execute(pa.Table.from_pylist(rows, schema=table.schema))
        )
        self._writes += 1

    def delete(self, ids: Sequence[str]) -> int:
        table = self._opened()
        if table is None or not ids:
            return 0
        condition = _any_of("memory", ids)
        count = int(table.count_rows(condition))
        if count:
            table.delete(condition)
            self._writes += 1
        return count

    def flush(self) -> None:
        """Merges files now and then; LanceDB's writes are durable when they return."""
        if self._writes >= OPTIMIZE_AFTER:
            self._optimize()

    def wipe(self) -> None:
        with self._lock:
            self._check_open()
            self._database.drop_table(TABLE, ignore_missing=True)
            self._table = None

    def close(self) -> None:
        with self._lock:
            is_written = self._database is not None and self._writes > 0
        if is_written:
            self._optimize()
        with self._lock:
            self._database = self._table = None

    # --- reading ----------------------------------------------------------------------------------------------------

    def dense(self, view: View, vector: Vector, limit: int) -> list[tuple[str, float]]:
        return self._nearest("vector", vector, [*_conditions(view), "has_vector"], limit)

    def multilingual(
        self, view: View, vector: Vector, limit: int, *, without_dense: bool = False
    ) -> list[tuple[str, float]]:
        if self._multilingual_dims is None:
            self._check_open()
            return []
        alone = ["NOT has_vector"] if without_dense else []
        return self._nearest("multilingual", vector, [*_conditions(view), "has_multilingual", *alone], limit)

    def _nearest(self, column: str, vector: Vector, conditions: list[str], limit: int) -> list[tuple[str, float]]:
        table = self._opened()
        if table is None:
            return []
        cosines: dict[str, float] = {}
        asked, found = ROWS_PER_HIT * limit, -1
        # A long text has many windows: more rows, until there are enough memories or no more rows.
        while len(cosines) < limit and found != len(cosines):
            rows = (
                table.search(np.asarray(vector, np.float32), vector_column_name=column)
                .distance_type("dot")
                .where(" AND ".join(conditions), prefilter=True)
                .select(["id", "_distance"])
                .limit(asked)
                .to_arrow()
                .to_pylist()
            )
            for row in rows:
                cosines[row["id"]] = max(1.0 - row["_distance"], cosines.get(row["id"], -1.0))
            found = len(cosines) if len(rows) < asked else -1
            asked *= 8
        return _best(cosines, limit)

    def sparse(self, view: View, weights: Mapping[int, float], limit: int) -> list[tuple[str, float]]:
        table = self._opened()
        if table is None or not weights:
            return []
        terms = ", ".join(str(int(term)) for term in weights)
        conditions = [*_conditions(view), "window = 0", f"array_has_any(terms, [{terms}])"]
        scores: dict[str, float] = {}
        for row in self._scanned(table, ["id", "terms", "weights"], conditions):
            own = zip(row["terms"], row["weights"], strict=True)
            score = sum(weights.get(term, 0.0) * weight for term, weight in own)
            if score > 0:
                scores[row["id"]] = score
        return _best(scores, limit)

    def count(self) -> int:
        table = self._opened()
        return 0 if table is None else int(table.count_rows())

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        table = self._opened()
        if table is None or (partitions is not None and not partitions):
            return
        conditions = [] if partitions is None else [_any_of("partition", partitions)]
        held: dict[tuple[str, int], int] = {}
        for row in self._scanned(table, ["id", "seq"], conditions):
            held[row["id"], row["seq"]] = held.get((row["id"], row["seq"]), 0) + 1
        for (uid, seq), windows in held.items():
            yield uid, seq, windows

    @staticmethod
    def _scanned(table: Any, columns: list[str], conditions: list[str]) -> Iterator[dict[str, Any]]:
        query = table.search().select(columns)
        if conditions:
            query = query.where(" AND ".join(conditions))
        for batch in query.to_batches():
            yield from batch.to_pylist()

    # --- the table --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._database is None:
            raise StoreUnavailable("this LanceIndex is closed; open a new one")

    def _opened(self) -> Any:
        """Returns the table; None before the first points."""
        with self._lock:
            self._check_open()
            if self._table is None and TABLE in self._database.list_tables().tables:
                self._table = self._database.open_table(TABLE)
            return self._table

    def _created(self, dims: int) -> Any:
        """Creates the table for vectors of this length."""
        schema = pa.schema(
            [
                ("row", pa.string()), ("memory", pa.string()), ("id", pa.string()), ("window", pa.int32()),
                ("seq", pa.int64()), ("partition", pa.string()), ("user", pa.string()), ("agent", pa.string()),
                ("runs", pa.list_(pa.string())), ("kind", pa.string()), ("valid_from", pa.int64()),
                ("valid_to", pa.int64()), ("forgotten_at", pa.int64()), ("expires_at", pa.int64()),
                ("has_vector", pa.bool_()), ("vector", pa.list_(pa.float32(), dims)),
                ("has_multilingual", pa.bool_()),
                ("multilingual", pa.list_(pa.float32(), self._multilingual_dims or 1)),
                ("terms", pa.list_(pa.int64())), ("weights", pa.list_(pa.float64())),
            ]
        )  # fmt: skip
        with self._lock:
            self._check_open()
            self._table = self._database.create_table(TABLE, schema=schema)
            return self._table

    def _rows(self, point: Point, dims: int) -> Iterator[dict[str, Any]]:
        """Yields a row for each window; the first has the words, and the vector of the multilingual space.

        A row has zeros in place of a vector that there is not, for LanceDB takes no column with some vectors missing.
        """
        for window in range(point.windows):
            has_vector, is_first = len(point.vectors) > 0, window == 0
            multilingual = point.multilingual if is_first and self._multilingual_dims is not None else None
            weights = point.weights if is_first else {}
            yield {
                **_visibility(point.record),
                "row": f"{point.record.id}:{window}",
                "id": point.record.id,
                "window": window,
                "seq": point.record.seq,
                "has_vector": has_vector,
                "vector": point.vectors[window].tolist() if has_vector else [0.0] * dims,
                "has_multilingual": multilingual is not None,
                "multilingual": (
                    [0.0] * (self._multilingual_dims or 1) if multilingual is None else multilingual.tolist()
                ),
                "terms": list(weights),
                "weights": list(weights.values()),
            }

    def _optimize(self) -> None:
        """Merges files, and removes the versions that hold what was deleted."""
        table = self._opened()
        if table is not None:
            table.optimize(cleanup_older_than=VERSIONS_KEPT)
        self._writes = 0


def _digest(text: str) -> str:
    """Returns what stands for a text in a filter."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _any_of(column: str, texts: Iterable[str]) -> str:
    return f"{column} IN ({', '.join(repr(_digest(text)) for text in texts)})"


def _micros(moment: datetime | None) -> int | None:
    """Returns the microseconds since 1970, exactly."""
    return None if moment is None else (moment - EPOCH) // timedelta(microseconds=1)


def _visibility(record: MemoryRecord) -> dict[str, Any]:
    """Returns the columns by which a view selects, and the digest of the memory's id."""
    scope = record.scope
    runs = [*([scope.run_id] if scope.run_id is not None else []), *record.further_runs]
    return {
        "memory": _digest(record.id),
        "partition": _digest(record.partition),
        "user": None if scope.user_id is None else _digest(scope.user_id),
        "agent": None if scope.agent_id is None else _digest(scope.agent_id),
        "runs": [_digest(run) for run in runs],
        "kind": record.kind.value,
        "valid_from": _micros(record.valid_from),
        "valid_to": _micros(record.valid_to),
        "forgotten_at": _micros(record.forgotten_at),
        "expires_at": _micros(record.expires_at),
    }


def _conditions(view: View) -> list[str]:
    """Returns the conditions of a view: those of `View.holds`."""
    moment, scope = _micros(view.moment), view.scope
    conditions = [f"kind IN ({', '.join(repr(kind.value) for kind in view.kinds)})"]
    if view.partition is not None:
        conditions.append(_any_of("partition", [view.partition]))
    if scope.user_id is not None:
        conditions.append(_any_of("user", [scope.user_id]))
    if scope.agent_id is not None:
        conditions.append(_any_of("agent", [scope.agent_id]))
    if scope.run_id is not None:
        conditions.append(f"array_has(runs, {_digest(scope.run_id)!r})")
    if view.as_of is not None:
        conditions.append(f"valid_from <= {moment}")
    shown = {"valid_to": view.show_retired, "forgotten_at": view.show_forgotten, "expires_at": view.show_expired}
    conditions += [f"({end} IS NULL OR {end} > {moment})" for end, is_shown in shown.items() if not is_shown]
    return conditions


def _best(scores: Mapping[str, float], limit: int) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]
