"""Delivery: brings a projection up to date with the ledger.

A delivery reads the rows that changed since the projection's cursor, writes their current state to the projection, and
moves the cursor. Repeated, late, or after a crash, it leads to the same contents.

A shared projection (a server, a given index) is used by all processes: its cursor is a row of the ledger and moves only
after the store has made the batch durable. A private projection (a graph in the memory of one process) holds only the
partitions that were read, and keeps a cursor for each of them in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, RLock
from typing import NamedTuple, Protocol, TypeVar
from uuid import uuid4

from sqlalchemy import Connection

from graphmem.errors import CLOSED, StoreError, StoreUnavailable
from graphmem.model import EmbedderId, EmbeddingSpec
from graphmem.plugins import EntityState, GraphIndex, MemoryState, Point, RelationState, StoreLost, VectorIndex
from graphmem.stores.ledger import Ledger, change_feed, embeddings, memories, outbox, tombstones
from graphmem.stores.ledger.sequence import Extent

logger = logging.getLogger("graphmem")
T = TypeVar("T")
BATCH = 500
# In seconds. LEASE: how long a batch may take before another process may take over; the timeout of a store on a server
# is shorter. LEASE_POLL: the pause between two attempts to acquire the lease.
LEASE, LEASE_POLL = 30.0, 0.02
CLEAN_REPORT: Mapping[str, list[str]] = {
    "missing": [], "extra": [], "stale": [], "dead_letters": [], "unreadable": [], "unreachable": []
}  # fmt: skip
Progress = Callable[[str, int, int], None]  # projection name, delivered sequence number, last sequence number


class ProjectionSink(Protocol):
    """A projection as delivery sees it, whether vector index or graph.

    The signature of a row is a tuple of numbers, such as its sequence number, that shows whether the row is up to date.
    `takes_graph`: whether it takes relations and entities, beside memories.
    """

    takes_graph: bool

    def prepare_write(
        self, connection: Connection, batch: change_feed.ChangeBatch, embedder: EmbedderId | None
    ) -> Callable[[], dict[str, str]]:
        """Reads the batch's states from the ledger and returns the function that writes them to the store.

        `embedder` is the one that the ledger records. The function returns refused rows: {id: error}.
        """
        ...

    def list_expected(
        self, connection: Connection, partitions: Sequence[str] | None
    ) -> Iterable[tuple[str, tuple[int, ...]]]:
        """Yields (id, signature) of all rows that the projection should hold, by the ledger."""
        ...

    def list_held(self, partitions: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        """Yields (id, signature) of all rows that the projection holds."""
        ...

    def count_held(self) -> int:
        """Returns the number of rows that the projection holds; cheap enough for every opening."""
        ...

    def count_expected(self, connection: Connection) -> int:
        """Returns the number of rows that it should hold, by the ledger."""
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Removes rows that the ledger does not have."""
        ...

    def wipe(self) -> None:
        """Removes everything."""
        ...


class VectorSink:
    """The `ProjectionSink` of a vector index. The signature is (sequence number, number of windows).

    It delivers the vectors of the configured embedder (`spec`), and no points while the ledger records another one.
    """

    takes_graph = False

    def __init__(self, index: VectorIndex, spec: EmbeddingSpec) -> None:
        self._index = index
        self._spec = spec

    def prepare_write(
        self, connection: Connection, batch: change_feed.ChangeBatch, embedder: EmbedderId | None
    ) -> Callable[[], dict[str, str]]:
        points: list[Point] = []
        if embedder in {None, self._spec.embedder}:
            points = change_feed.points(connection, self._spec, batch.records)
        with_point = {point.record.id for point in points}
        without_point = [record.id for record in batch.records if record.id not in with_point]
        removed = [*batch.tombstones_of_kind("memory"), *without_point]

        def write() -> dict[str, str]:
            if removed:
                self._index.delete(removed)
            refused = _write_or_bisect(points, self._index.upsert, lambda point: point.record.id)
            self._index.flush()
            return refused

        return write

    def list_expected(
        self, connection: Connection, partitions: Sequence[str] | None
    ) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (seq, windows)) for uid, seq, windows in change_feed.expected_points(connection, partitions))

    def list_held(self, partitions: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (seq, windows)) for uid, seq, windows in self._index.list_held(partitions))

    def count_held(self) -> int:
        return self._index.count()

    def count_expected(self, connection: Connection) -> int:
        return embeddings.total_windows(connection)

    def remove(self, ids: Sequence[str]) -> None:
        self._index.delete(ids)
        self._index.flush()

    def wipe(self) -> None:
        self._index.wipe()


class GraphSink:
    """The `ProjectionSink` of a graph. The signature is (sequence number,)."""

    takes_graph = True

    def __init__(self, index: GraphIndex) -> None:
        self._index = index

    def prepare_write(
        self, connection: Connection, batch: change_feed.ChangeBatch, _embedder: EmbedderId | None
    ) -> Callable[[], dict[str, str]]:
        memory_states = change_feed.memory_states(connection, batch.records)
        relation_states = change_feed.relation_states(connection, batch.relations)
        entity_states = change_feed.entity_states(connection, batch.entities)

        def write() -> dict[str, str]:
            self._index.delete(
                batch.tombstones_of_kind("memory"),
                batch.tombstones_of_kind("relation"),
                batch.tombstones_of_kind("entity"),
            )

            def upsert_memories(states: Sequence[MemoryState]) -> None:
                self._index.upsert(states)

            def upsert_relations(states: Sequence[RelationState]) -> None:
                self._index.upsert((), states)

            def upsert_entities(states: Sequence[EntityState]) -> None:
                self._index.upsert((), (), states)

            return {
                **_write_or_bisect(memory_states, upsert_memories, lambda state: state.record.id),
                **_write_or_bisect(relation_states, upsert_relations, lambda state: state.relation.id),
                **_write_or_bisect(entity_states, upsert_entities, lambda state: state.id),
            }

        return write

    def list_expected(
        self, connection: Connection, partitions: Sequence[str] | None
    ) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (seq,)) for uid, seq in change_feed.expected_nodes(connection, partitions))

    def list_held(self, partitions: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (seq,)) for uid, seq in self._index.list_held(partitions))

    def count_held(self) -> int:
        return self._index.count()

    def count_expected(self, connection: Connection) -> int:
        return memories.total(connection)

    def remove(self, ids: Sequence[str]) -> None:
        self._index.delete(ids, ids, ids)

    def wipe(self) -> None:
        self._index.wipe()


def _write_or_bisect(
    items: Sequence[T], upsert: Callable[[Sequence[T]], None], id_of: Callable[[T], str]
) -> dict[str, str]:
    """Writes all items at once. If the store refuses them, writes halves of them, down to single items.

    Returns the refused items, {id: error}. Raises StoreUnavailable.
    """
    if not items:
        return {}
    try:
        upsert(items)
    except StoreUnavailable:
        raise
    except StoreError as error:
        if len(items) == 1:
            return {id_of(items[0]): str(error)}
        half = len(items) // 2
        return {**_write_or_bisect(items[:half], upsert, id_of), **_write_or_bisect(items[half:], upsert, id_of)}
    return {}


@dataclass(frozen=True, slots=True)
class _Delivered:
    """What a batch brought to a shared projection.

    It was read in `epoch` and begins after the ledger's cursor `since`. `rows` are the ids of all rows, `refused` the
    errors of those that the store refused, `entity_tombstones` sequence numbers.
    """

    epoch: int
    since: int
    upto: int
    rows: frozenset[str]
    refused: Mapping[str, str]
    entity_tombstones: tuple[int, ...]

    @classmethod
    def of(
        cls, batch: change_feed.ChangeBatch, refused: Mapping[str, str], epoch: int, since: int, upto: int
    ) -> _Delivered:
        """Makes it of one batch, after which the cursor moves to `upto`."""
        entity_tombstones = tuple(tombstone.seq for tombstone in batch.tombstones if tombstone.kind == "entity")
        return cls(epoch, since, upto, frozenset(batch.all_ids), refused, entity_tombstones)


class _Ahead(NamedTuple):
    """The sequence numbers above a projection's cursor that were delivered, although it cannot move up to them yet."""

    cursor: int
    numbers: frozenset[int]


class _Batch(NamedTuple):
    """What one snapshot of the ledger says of a projection: its cursor, the next changes, what writes them to it.

    `cursor` is None if the projection's content is unknown. The changes begin after it, or further on if what lies
    between was delivered ahead of it.
    """

    state: outbox.CursorState
    cursor: int | None
    changes: change_feed.ChangeBatch
    write: Callable[[], dict[str, str]]


class Projection:
    """Keeps one projection up to date with the ledger. Thread-safe; one thread delivers at a time.

    `shared`: all processes use this projection, else it is private. `leased`: several processes deliver to it, each
    batch under a lease. When the lease of a process that died or hangs has run out, another process takes over. A
    process that resumes after that may have written old states over new ones: it finds its lease gone and rewinds the
    cursor to the beginning of its batch, so that everything since is delivered again. After a reset it deletes the
    cursor, so that the projection is emptied once more.

    All that is committed is delivered, but the cursor moves only as far as no open transaction of the ledger can have
    taken a number (`Extent.last`). What lies above it is delivered again once the cursor can pass it; until then the
    object knows which numbers those are (`_ahead`). `place` names the store if the ledger may be
    used with several stores: each has its own cursor in the ledger, so that delivery continues after a return to a
    store. It begins with the provider ("qdrant/graphmem").
    """

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        sink: ProjectionSink,
        *,
        shared: bool,
        leased: bool = False,
        place: str | None = None,
    ) -> None:
        self.name = name
        self.provider = (place or name).partition("/")[0]
        self._cursor_name = name if place is None else f"{name}@{place}"
        self._ledger = ledger
        self._sink = sink
        self.shared = shared
        self._lease_holder = str(uuid4()) if leased else None
        self._has_lease = False
        self._stopped = Event()
        self.batches_delivered = 0  # by this object; distinguishes a slow delivery from one that hangs
        self._partition_cursors: dict[str, int] = {}
        self._ahead: dict[str | None, _Ahead] = {}
        self._epoch = 0
        self._lock = RLock()

    def catch_up(self, partitions: Sequence[str], progress: Progress | None = None) -> None:
        """Delivers the changes committed so far; to a private projection only those of `partitions`.

        Leaves out later commits, which their writers deliver: including them could keep this call busy for as long as
        other calls write. Raises StoreUnavailable when the store is out of reach; batches delivered before that stay.
        """
        with self._lock:
            upto: int | None = None
            for partition in [None] if self.shared else partitions:
                state, batch = self._read_pending(partition, upto)
                upto = state.extent.newest if upto is None else upto
                while self._is_behind(state, partition, upto) and self._acquire_turn(partition, upto):
                    state, batch = self._deliver(partition, progress, batch), None

    def deliver(self, partitions: Sequence[str]) -> None:
        """Delivers the changes committed so far, after a write to `partitions`.

        To a private projection, delivers only those of the `partitions` that it holds. `catch_up` fills the others when
        they are first read.
        """
        with self._lock:
            if not self.shared:
                self._cursor_state()  # after a reset it holds no partition
            self.catch_up([partition for partition in partitions if partition in self._partition_cursors])

    def stop(self) -> None:
        """Ends the wait for a lease, because the process closes."""
        self._stopped.set()

    def _deliver(self, partition: str | None, progress: Progress | None, batch: _Batch | None) -> outbox.CursorState:
        """Delivers a batch, by default the next one, and returns the state of the cursor after it."""
        try:
            self._deliver_batch(partition, progress, batch)
        except StoreLost:
            nothing_delivered = not self._cursor(self._cursor_state(), None)
            self.invalidate()
            if nothing_delivered:
                raise
            logger.warning("%s lost its contents; filling it again from the ledger", self.name)
        finally:
            if self._has_lease:
                with self._ledger.write([self._cursor_name]) as connection:
                    self._release_lease(connection)
        return self._cursor_state()

    def _cursor_state(self) -> outbox.CursorState:
        with self._ledger.read() as connection:
            state = outbox.cursor_state(connection, self._cursor_name)
        self._wipe_if_reset(state.epoch)
        return state

    def _is_behind(self, state: outbox.CursorState, partition: str | None, upto: int) -> bool:
        """Returns True if changes up to `upto` are undelivered, or the cursor is ahead of a ledger from a backup.

        Also if the cursor can pass what was delivered ahead of it.
        """
        cursor, extent = self._cursor(state, partition), state.extent
        if cursor is None or cursor < min(upto, extent.last) or cursor > extent.newest:
            return True
        return any(number <= upto for number in self._undelivered(extent, partition, cursor))

    def _undelivered(self, extent: Extent, partition: str | None, cursor: int) -> set[int]:
        """Returns the numbers ahead of what the cursor can pass that were not delivered."""
        delivered = self._delivered_ahead(partition, cursor)
        return {number for number in extent.ahead if number > cursor} - delivered

    def _delivered_ahead(self, partition: str | None, cursor: int) -> frozenset[int]:
        """Returns the numbers that were delivered ahead of a cursor; none if it was moved elsewhere meanwhile."""
        ahead = self._ahead.get(partition)
        return frozenset() if ahead is None or ahead.cursor != cursor else ahead.numbers

    def _acquire_turn(self, partition: str | None, upto: int) -> bool:
        """Waits for the lease. Returns False if another process has delivered everything up to `upto` meanwhile."""
        if self._lease_holder is None:
            return True
        while True:
            with self._ledger.write([self._cursor_name]) as connection:
                self._has_lease = outbox.acquire_lease(connection, self._cursor_name, self._lease_holder, LEASE)
            if self._has_lease:
                return True
            if self._stopped.wait(LEASE_POLL):
                raise StoreUnavailable(CLOSED)
            if not self._is_behind(self._cursor_state(), partition, upto):
                return False

    def _release_lease(self, connection: Connection) -> None:
        if self._lease_holder is not None:
            outbox.release_lease(connection, self._cursor_name, self._lease_holder)
        self._has_lease = False

    def _read_pending(self, partition: str | None, upto: int | None) -> tuple[outbox.CursorState, _Batch | None]:
        """Returns the state of the cursor and the next batch, both of one snapshot.

        The batch is None if all changes up to `upto` (None: all so far) are delivered, and if a lease is needed to read
        it.
        """
        with self._ledger.read() as connection:
            state = outbox.cursor_state(connection, self._cursor_name)
            self._wipe_if_reset(state.epoch)
            is_behind = self._is_behind(state, partition, state.extent.newest if upto is None else upto)
            if not is_behind or self._lease_holder is not None:
                return state, None
            return state, self._read_batch(connection, state, partition)

    def _read_batch(self, connection: Connection, state: outbox.CursorState, partition: str | None) -> _Batch:
        cursor = self._cursor(state, partition)
        after = cursor or 0
        if cursor is not None and cursor >= state.extent.last:
            after = min(self._undelivered(state.extent, partition, cursor), default=after + 1) - 1
        changes = change_feed.since(
            connection, self._ledger.digests, after, state, BATCH, partition, with_graph=self._sink.takes_graph
        )
        return _Batch(state, cursor, changes, self._sink.prepare_write(connection, changes, state.embedder))

    def _deliver_batch(self, partition: str | None, progress: Progress | None, batch: _Batch | None) -> None:
        if batch is None:
            with self._ledger.read() as connection:
                state = outbox.cursor_state(connection, self._cursor_name)
                batch = self._read_batch(connection, state, partition)
        state, cursor, changes, write = batch
        if cursor is None and self.shared:
            # Without a cursor, after a reset or a killed rebuild, the contents are unknown.
            self._ahead.clear()
            self._sink.wipe()
            with self._ledger.write([self._cursor_name]) as connection:
                if not self._was_reset(connection, state.epoch, outbox.epoch(connection)):
                    outbox.remove_dead_letters(connection, self._cursor_name)
                    outbox.move_cursor(connection, self._cursor_name, 0)
        refused = write()
        passed = min(max(cursor or 0, min(changes.upto, state.extent.last)), state.extent.newest)
        if partition is None:
            self._advance_cursor(_Delivered.of(changes, refused, state.epoch, cursor or 0, passed))
        else:
            self._partition_cursors[partition] = passed
        # Those below the batch were delivered ahead before: it begins after them.
        self._ahead[partition] = _Ahead(passed, frozenset(n for n in state.extent.ahead if passed < n <= changes.upto))
        self.batches_delivered += 1
        if progress is not None:
            progress(self.name, changes.upto, state.extent.newest)

    def _wipe_if_reset(self, epoch: int) -> None:
        """Empties a private projection after a reset, which begins a new epoch.

        The cursor of a shared projection is a row of the ledger and is deleted by the reset itself; see `_was_reset`.
        """
        if not self.shared and epoch != self._epoch:
            self._forget_all()
        self._epoch = epoch

    def _forget_all(self) -> None:
        """Empties a private projection."""
        self._sink.wipe()
        self._partition_cursors.clear()
        self._ahead.clear()

    def _was_reset(self, connection: Connection, epoch: int, current: int) -> bool:
        """Returns True if the ledger was reset after a batch was read in `epoch`; then deletes the shared cursor.

        The batch holds rows that the reset erased. Without a cursor, the next delivery empties the store of them.
        """
        if current == epoch:
            return False
        outbox.delete_cursor(connection, self._cursor_name)
        return True

    def _cursor(self, state: outbox.CursorState, partition: str | None) -> int | None:
        """Returns up to where a partition, or a shared projection, is delivered; None if its content is unknown."""
        return state.cursor if partition is None else self._partition_cursors.get(partition)

    def _advance_cursor(self, delivered: _Delivered) -> None:
        with self._ledger.write([self._cursor_name]) as connection:
            state = outbox.cursor_state(connection, self._cursor_name)
            if self._was_reset(connection, delivered.epoch, state.epoch):
                return
            if self._lease_holder is not None and not outbox.holds_lease(
                connection, self._cursor_name, self._lease_holder
            ):
                outbox.rewind_cursor(connection, self._cursor_name, delivered.since)
                return
            if state.cursor == delivered.since:
                outbox.remove_dead_letters(connection, self._cursor_name, delivered.rows)
                outbox.add_dead_letters(connection, self._cursor_name, delivered.refused, delivered.upto)
                outbox.move_cursor(connection, self._cursor_name, delivered.upto)
                if delivered.entity_tombstones:
                    tombstones.prune_tombstones(connection, delivered.entity_tombstones)
            # Else it was deleted or turned back meanwhile: the next delivery begins there.
            self._release_lease(connection)

    def invalidate(self) -> None:
        """Deletes the cursor of a shared projection: the next delivery empties and refills it."""
        with self._ledger.write([self._cursor_name]) as connection:
            outbox.delete_cursor(connection, self._cursor_name)

    def check_for_loss(self) -> None:
        """Catches up, then refills a shared projection that lost rows without an error (its server restarted empty)."""
        if not self.shared:
            return
        with self._lock:
            self.catch_up([])
            held_count: int | None = None
            with suppress(StoreLost):
                held_count = self._sink.count_held()  # a store that hangs here holds up no other use of the ledger
            with self._ledger.read() as connection:
                expected_count = self._sink.count_expected(connection)
                state = outbox.cursor_state(connection, self._cursor_name)
                is_current = not self._is_behind(state, None, state.extent.newest)
            if held_count == expected_count or not is_current:
                return
            logger.warning("%s holds too few or too many rows; repairing it from the ledger", self.name)
            if not held_count:
                self.invalidate()
                self.catch_up([])
            else:
                self.repair(self.verify())

    def has_pending(self, partitions: Sequence[str] | None = None) -> bool:
        """Returns True if a shared projection has undelivered changes (a private one catches up before each read).

        With `partitions` only their changes count, but while the projection's content is unknown, all do: one without a
        cursor was never built, not even empty, and the ledger of a lower number than the cursor's came from a backup.
        """
        if not self.shared:
            return False
        with self._ledger.read() as connection:
            state = outbox.cursor_state(connection, self._cursor_name)
            cursor = self._cursor(state, None)
            if partitions is None or cursor is None or state.extent.newest <= cursor:
                return self._is_behind(state, None, state.extent.newest)
            return change_feed.has_changes(connection, cursor, partitions, self._delivered_ahead(None, cursor))

    def delivered_upto(self, connection: Connection) -> int | None:
        """Returns the cursor of a shared projection; None for a private one."""
        if not self.shared:
            return None
        return self._cursor(outbox.cursor_state(connection, self._cursor_name), None) or 0

    def count_pending(self, connection: Connection) -> int:
        """Returns the number of changes that are not delivered to a shared projection; 0 for a private one."""
        upto = self.delivered_upto(connection)
        if upto is None:
            return 0
        return change_feed.count_changes(connection, upto, self._delivered_ahead(None, upto))

    def count_dead_letters(self, connection: Connection) -> int:
        """Returns the number of rows that the store refuses."""
        return outbox.count_dead_letters(connection, self._cursor_name)

    def verify(self) -> dict[str, list[str]]:
        """Compares ids and signatures with the ledger and returns a report with the keys of `CLEAN_REPORT`.

        The report has the ids of missing, extra and stale rows and of dead letters, and under "unreadable" or
        "unreachable" the reason why the comparison failed. Compares twice and reports only differences found both
        times, because other threads and processes may write in between.
        """
        with self._lock:
            try:
                self.catch_up(list(self._partition_cursors))
                report = self._compare()
                if any(report.values()):
                    self.catch_up(list(self._partition_cursors))
                    second = self._compare()
                    report = {problem: sorted(set(ids) & set(second[problem])) for problem, ids in report.items()}
            except StoreLost:
                self.invalidate()
                with self._ledger.read() as connection:
                    return {
                        **CLEAN_REPORT,
                        "missing": sorted(uid for uid, _ in self._sink.list_expected(connection, None)),
                    }
            except StoreUnavailable as error:
                return {**CLEAN_REPORT, "unreachable": [str(error)]}
            except StoreError as error:
                return {**CLEAN_REPORT, "unreadable": [str(error)]}
            return report

    def _compare(self) -> dict[str, list[str]]:
        with self._ledger.read() as connection:
            partitions = None if self.shared else list(self._partition_cursors)
            expected_signatures = dict(self._sink.list_expected(connection, partitions))
            dead_letters = outbox.dead_letters(connection, self._cursor_name)
            held_signatures: dict[str, tuple[int, ...]] = {}
            duplicates = [
                uid
                for uid, signature in self._sink.list_held(partitions)
                if held_signatures.setdefault(uid, signature) != signature
            ]
        stale = {
            uid
            for uid in expected_signatures.keys() & held_signatures.keys()
            if expected_signatures[uid] != held_signatures[uid]
        } | set(duplicates)
        return {
            **CLEAN_REPORT,
            "missing": sorted(expected_signatures.keys() - held_signatures.keys() - dead_letters.keys()),
            "extra": sorted(held_signatures.keys() - expected_signatures.keys()),
            "stale": sorted(stale - dead_letters.keys()),
            "dead_letters": sorted(dead_letters),
        }

    def repair(self, report: dict[str, list[str]]) -> None:
        """Repairs the differences of a `verify` report: removes extra rows and delivers the others again.

        Rebuilds the projection if it is unreadable, or if it still differs after that.
        """
        with self._lock:
            if report["unreadable"]:
                self.rebuild(list(self._partition_cursors))
                return
            if report["extra"]:
                self._sink.remove(report["extra"])
            ids = [uid for problem in ("missing", "stale", "dead_letters") for uid in report[problem]]
            for start in range(0, len(ids), BATCH):
                self._redeliver(ids[start : start + BATCH])
            left = self.verify() if ids else CLEAN_REPORT
            if any(left[problem] for problem in ("missing", "extra", "stale", "unreadable")):
                # The ledger came from a backup: the projection holds newer states and rightly refuses older ones.
                self.rebuild(list(self._partition_cursors))

    def _redeliver(self, ids: Sequence[str]) -> None:
        with self._ledger.read() as connection:
            state = outbox.cursor_state(connection, self._cursor_name)
            batch = change_feed.states_of(connection, ids)
            write = self._sink.prepare_write(connection, batch, state.embedder)
        refused = write()
        if self.shared:
            with self._ledger.write([self._cursor_name]) as connection:
                if self._was_reset(connection, state.epoch, outbox.epoch(connection)):
                    return
                outbox.remove_dead_letters(connection, self._cursor_name, ids)
                outbox.add_dead_letters(connection, self._cursor_name, refused, batch.upto)

    def rebuild(self, partitions: Sequence[str], progress: Progress | None = None) -> None:
        """Wipes the projection and delivers everything again. If the process is killed, the next delivery continues."""
        with self._lock:
            if self.shared:
                self.invalidate()
            else:
                self._forget_all()
            self.catch_up(partitions, progress)
