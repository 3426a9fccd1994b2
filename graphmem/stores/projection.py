"""Delivery by state: a projection asks what changed since its cursor, takes the current state, and moves the cursor.

A shared projection (Edge, a server) is one for all processes: its cursor lives in the ledger, and moves only after the
store has made the batch durable. A private one (in this process's memory) keeps a cursor of its own for each partition
it was asked for. Doing it twice, late, or after a crash gives the same contents.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event, RLock
from typing import Protocol, TypeVar
from uuid import uuid4

from sqlalchemy import Connection

from graphmem.errors import CLOSED, StoreError, StoreUnavailable
from graphmem.stores.ledger import Ledger, change_feed, embeddings, memories, outbox, tombstones
from graphmem.stores.protocols import EntityState, GraphIndex, MemoryState, RelationState, StoreLost, VectorIndex

logger = logging.getLogger("graphmem")
T = TypeVar("T")
BATCH = 500
# Seconds that a batch may take before another process may take over (a store on a server gives up before that), and
# between two tries to get one's turn.
LEASE, LEASE_POLL = 30.0, 0.02
CLEAN_REPORT: Mapping[str, list[str]] = {
    "missing": [], "extra": [], "stale": [], "dead_letters": [], "unreadable": [], "unreachable": []
}  # fmt: skip
Progress = Callable[[str, int, int], None]  # projection, done, of


class ProjectionSink(Protocol):
    """A projection as delivery sees it."""

    def prepare_write(self, connection: Connection, batch: change_feed.ChangeBatch) -> Callable[[], dict[str, str]]:
        """Reads what the batch needs; the returned call writes it and names what was refused: {memory id: error}."""
        ...

    def list_expected(
        self, connection: Connection, partitions: Sequence[str] | None
    ) -> Iterable[tuple[str, tuple[int, ...]]]:
        """What the projection should hold: (id, version parts)."""
        ...

    def list_held(self, partitions: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        """What it holds."""
        ...

    def counts(self, connection: Connection) -> tuple[int, int]:
        """How much the projection holds, and how much it should: what can be compared at every opening."""
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Removes what should not be there."""
        ...

    def wipe(self) -> None:
        """Removes everything."""
        ...


class VectorSink:
    """A vector index as a target."""

    def __init__(self, index: VectorIndex, model: str) -> None:
        self._index = index
        self._model = model

    def prepare_write(self, connection: Connection, batch: change_feed.ChangeBatch) -> Callable[[], dict[str, str]]:
        points = change_feed.points(connection, self._model, batch.records)
        there = {point.record.id for point in points}
        gone = [*batch.tombstones_of_kind("memory"), *(record.id for record in batch.records if record.id not in there)]

        def write() -> dict[str, str]:
            if gone:
                self._index.delete(gone)
            return _each_if_need_be(points, self._index.upsert, lambda point: point.record.id)

        return write

    def list_expected(
        self, connection: Connection, partitions: Sequence[str] | None
    ) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (version, n)) for uid, version, n in change_feed.expected_points(connection, partitions))

    def list_held(self, partitions: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (version, n)) for uid, version, n in self._index.list_held(partitions))

    def counts(self, connection: Connection) -> tuple[int, int]:
        return self._index.count(), embeddings.total_windows(connection)

    def remove(self, ids: Sequence[str]) -> None:
        self._index.delete(ids)

    def wipe(self) -> None:
        self._index.wipe()


class GraphSink:
    """A graph copy as a target."""

    def __init__(self, index: GraphIndex) -> None:
        self._index = index

    def prepare_write(self, connection: Connection, batch: change_feed.ChangeBatch) -> Callable[[], dict[str, str]]:
        states = change_feed.memory_states(connection, batch.records)
        relations = change_feed.relation_states(connection, batch.relations)
        entities = change_feed.entity_states(connection, batch.entities)

        def write() -> dict[str, str]:
            self._index.delete(
                batch.tombstones_of_kind("memory"),
                batch.tombstones_of_kind("relation"),
                batch.tombstones_of_kind("entity"),
            )

            def put(some: Sequence[MemoryState]) -> None:
                self._index.upsert(some)

            def relate(some: Sequence[RelationState]) -> None:
                self._index.upsert((), some)

            def name(some: Sequence[EntityState]) -> None:
                self._index.upsert((), (), some)

            return {
                **_each_if_need_be(states, put, lambda state: state.record.id),
                **_each_if_need_be(relations, relate, lambda state: state.relation.id),
                **_each_if_need_be(entities, name, lambda state: state.id),
            }

        return write

    def list_expected(
        self, connection: Connection, partitions: Sequence[str] | None
    ) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (version,)) for uid, version in change_feed.expected_nodes(connection, partitions))

    def list_held(self, partitions: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (version,)) for uid, version in self._index.list_held(partitions))

    def counts(self, connection: Connection) -> tuple[int, int]:
        return self._index.count(), memories.total(connection)

    def remove(self, ids: Sequence[str]) -> None:
        self._index.delete(ids, ids, ids)

    def wipe(self) -> None:
        self._index.wipe()


def _each_if_need_be(
    items: Sequence[T], put: Callable[[Sequence[T]], None], name: Callable[[T], str]
) -> dict[str, str]:
    """All at once; if the store refuses, in halves, so that only those it refuses are set aside."""
    if not items:
        return {}
    try:
        put(items)
    except StoreUnavailable:
        raise
    except StoreError as error:
        if len(items) == 1:
            return {name(items[0]): str(error)}
        half = len(items) // 2
        return {**_each_if_need_be(items[:half], put, name), **_each_if_need_be(items[half:], put, name)}
    return {}


class Projection:
    """One projection kept up to date with the ledger. Threads take turns.

    `leased`: other processes deliver to it, too, and take turns by a lease for each batch. A deliverer that dies or
    hangs is succeeded when its lease has run out. One that wakes up after that may have put old state over new: it
    finds its lease gone and turns the cursor back to where its batch began, so that all of it is given again.
    """

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        target: ProjectionSink,
        *,
        shared: bool,
        leased: bool = False,
        place: str | None = None,
    ) -> None:
        self.name = name
        # In the ledger: each place has a cursor of its own, so that going back to a store goes on where it was left.
        self._known_as = name if place is None else f"{name}@{place}"
        self._ledger = ledger
        self._target = target
        self.shared = shared
        self._holder = str(uuid4()) if leased else None
        self._leads = False
        self._stopped = Event()
        self.delivered = 0  # batches so far: whether something moves
        self._own_cursors: dict[str, int] = {}
        self._epoch = 0
        self._lock = RLock()

    def catch_up(self, partitions: Sequence[str], progress: Progress | None = None) -> None:
        """Delivers what is owed by now: to a shared projection all of it, to a private one what these partitions need.

        What others write meanwhile is theirs to deliver: whoever waited for that, too, might wait as long as they go
        on. Raises StoreUnavailable when the store is out of reach; what was delivered until then stays.
        """
        with self._lock:
            standing = self._standing()
            upto = standing.last
            for partition in [None] if self.shared else partitions:
                while self._owes(standing, partition, upto) and self._has_turn(partition, upto):
                    self._deliver(partition, progress)
                    standing = self._standing()

    def deliver(self, partitions: Sequence[str]) -> None:
        """The same after a write; a private projection only keeps up what it was asked for before."""
        with self._ledger.read() as connection:
            epoch = outbox.epoch(connection)
        with self._lock:
            self._forget_if_reset(epoch)
            self.catch_up([partition for partition in partitions if self.shared or partition in self._own_cursors])

    def stop(self) -> None:
        """Ends the waiting for a turn: the process is closing."""
        self._stopped.set()

    def _deliver(self, partition: str | None, progress: Progress | None) -> None:
        """One batch."""
        try:
            self._deliver_batch(partition, progress)
        except StoreLost:
            just_begun = self._began_anew()
            self.invalidate()
            if just_begun:
                raise
            logger.warning("%s lost what it held; filling it again from the ledger", self.name)
        finally:
            self._end_turn()

    def _standing(self) -> outbox.CursorState:
        with self._ledger.read() as connection:
            standing = outbox.cursor_state(connection, self._known_as)
        self._forget_if_reset(standing.epoch)
        return standing

    def _owes(self, standing: outbox.CursorState, partition: str | None, upto: int) -> bool:
        """Whether something is to be delivered of what was written up to this change; also where a ledger came from a
        backup and its cursors are ahead of it.
        """
        cursor = self._cursor(standing, partition)
        return cursor is None or not upto <= cursor <= standing.last

    def _has_turn(self, partition: str | None, upto: int) -> bool:
        """Waits for the lease, or until another process has delivered everything."""
        if self._holder is None:
            return True
        while True:
            with self._ledger.write() as connection:
                self._leads = outbox.acquire_lease(connection, self._known_as, self._holder, LEASE)
            if self._leads:
                return True
            if self._stopped.wait(LEASE_POLL):
                raise StoreUnavailable(CLOSED)
            if not self._owes(self._standing(), partition, upto):
                return False

    def _end_turn(self) -> None:
        if self._leads:
            with self._ledger.write() as connection:
                self._release(connection)

    def _release(self, connection: Connection) -> None:
        if self._holder is not None:
            outbox.release_lease(connection, self._known_as, self._holder)
        self._leads = False

    def _deliver_batch(self, partition: str | None, progress: Progress | None) -> None:
        with self._ledger.read() as connection:
            standing = outbox.cursor_state(connection, self._known_as)
            cursor = self._cursor(standing, partition)
            batch = change_feed.since(connection, self._ledger.digests, cursor or 0, BATCH, partition)
            write = self._target.prepare_write(connection, batch)
        if cursor is None and self.shared:
            self._begin_anew()
        self._move(partition, cursor or 0, batch, write())
        self.delivered += 1
        if progress is not None:
            progress(self.name, batch.upto, standing.last)

    def _forget_if_reset(self, epoch: int) -> None:
        """A private projection's cursors count for one epoch; a shared one's go with the ledger's other rows."""
        if not self.shared and epoch != self._epoch:
            self._target.wipe()
            self._own_cursors.clear()
        self._epoch = epoch

    def _begin_anew(self) -> None:
        """Without a cursor nothing is known of the contents: after a reset, or in a rebuild that was killed."""
        self._target.wipe()
        with self._ledger.write() as connection:
            outbox.remove_dead_letters(connection, self._known_as)
            outbox.move_cursor(connection, self._known_as, 0)

    def _cursor(self, standing: outbox.CursorState, partition: str | None) -> int | None:
        return standing.cursor if partition is None else self._own_cursors.get(partition)

    def _move(self, partition: str | None, begun: int, batch: change_feed.ChangeBatch, refused: dict[str, str]) -> None:
        if partition is not None:
            self._own_cursors[partition] = batch.upto
            return
        with self._ledger.write() as connection:
            if self._holder is not None and not outbox.holds_lease(connection, self._known_as, self._holder):
                outbox.rewind_cursor(connection, self._known_as, begun)
                return
            outbox.remove_dead_letters(connection, self._known_as, batch.all_ids)
            outbox.add_dead_letters(connection, self._known_as, refused, batch.upto)
            outbox.move_cursor(connection, self._known_as, batch.upto)
            if ended := [stone.seq for stone in batch.tombstones if stone.kind == "entity"]:
                tombstones.prune_tombstones(connection, ended)
            self._release(connection)

    def invalidate(self) -> None:
        """Forgets what a shared projection holds: the next delivery empties and fills it again."""
        with self._ledger.write() as connection:
            outbox.delete_cursor(connection, self._known_as)

    def _began_anew(self) -> bool:
        with self._ledger.read() as connection:
            return not outbox.cursor(connection, self._known_as)

    def check_for_loss(self) -> None:
        """Catches up, and notices a shared projection that lost something without a word: a server restarted empty."""
        if not self.shared:
            return
        with self._lock:
            self.catch_up([])
            with self._ledger.read() as connection:
                held, expected = self._counted(connection)
                quiet = outbox.cursor(connection, self._known_as) == outbox.last_change(connection)
            if held == expected or not quiet:
                return
            logger.warning("%s does not hold what it should; giving it the rest from the ledger", self.name)
            if held == 0:
                self.invalidate()
                self.catch_up([])
            else:
                self.repair(self.verify())

    def _counted(self, connection: Connection) -> tuple[int, int]:
        try:
            return self._target.counts(connection)
        except StoreLost:
            return 0, 1

    def has_pending(self) -> bool:
        """Whether a shared projection has something to take (a private one is filled when it is asked)."""
        if not self.shared:
            return False
        with self._ledger.read() as connection:
            standing = outbox.cursor_state(connection, self._known_as)
        return (standing.cursor or 0) != standing.last

    def verify(self) -> dict[str, list[str]]:
        """Compares ids and versions with the ledger: what is missing, extra, stale, set aside, or why it cannot.

        Other threads and processes may write in between: what is wrong is what is wrong twice.
        """
        with self._lock:
            try:
                self.catch_up(list(self._own_cursors))
                found = self._compared()
                if any(found.values()):
                    self.catch_up(list(self._own_cursors))
                    again = self._compared()
                    found = {what: sorted(set(ids) & set(again[what])) for what, ids in found.items()}
            except StoreLost:
                self.invalidate()
                with self._ledger.read() as connection:
                    return {
                        **CLEAN_REPORT,
                        "missing": sorted(uid for uid, _ in self._target.list_expected(connection, None)),
                    }
            except StoreUnavailable as error:
                return {**CLEAN_REPORT, "unreachable": [str(error)]}
            except StoreError as error:
                return {**CLEAN_REPORT, "unreadable": [str(error)]}
            return found

    def _compared(self) -> dict[str, list[str]]:
        with self._ledger.read() as connection:
            partitions = None if self.shared else list(self._own_cursors)
            expected = dict(self._target.list_expected(connection, partitions))
            aside = outbox.dead_letters(connection, self._known_as)
            held: dict[str, tuple[int, ...]] = {}
            doubled = [
                uid for uid, version in self._target.list_held(partitions) if held.setdefault(uid, version) != version
            ]
        stale = {uid for uid in expected.keys() & held.keys() if expected[uid] != held[uid]} | set(doubled)
        return {
            **CLEAN_REPORT,
            "missing": sorted(expected.keys() - held.keys() - aside.keys()),
            "extra": sorted(held.keys() - expected.keys()),
            "stale": sorted(stale - aside.keys()),
            "dead_letters": sorted(aside),
        }

    def repair(self, report: dict[str, list[str]]) -> None:
        """Repairs what `verify` found: removes what is extra, gives the rest its state again; else a rebuild."""
        with self._lock:
            if report["unreadable"]:
                self.rebuild(list(self._own_cursors))
                return
            if report["extra"]:
                self._target.remove(report["extra"])
            wanted = [uid for what in ("missing", "stale", "dead_letters") for uid in report[what]]
            for start in range(0, len(wanted), BATCH):
                self._give_again(wanted[start : start + BATCH])
            if wanted and self._is_still_wrong():
                # It holds what is newer than the ledger, which came from a backup, and rightly refuses the older.
                self.rebuild(list(self._own_cursors))

    def _is_still_wrong(self) -> bool:
        """By `verify`, which looks twice: what somebody writes meanwhile is no reason to fill everything again."""
        left = self.verify()
        return any(left[what] for what in ("missing", "extra", "stale", "unreadable"))

    def _give_again(self, ids: Sequence[str]) -> None:
        with self._ledger.read() as connection:
            batch = change_feed.states_of(connection, ids)
            write = self._target.prepare_write(connection, batch)
        refused = write()
        if self.shared:
            with self._ledger.write() as connection:
                outbox.remove_dead_letters(connection, self._known_as, ids)
                outbox.add_dead_letters(connection, self._known_as, refused, batch.upto)

    def rebuild(self, partitions: Sequence[str], progress: Progress | None = None) -> None:
        """Throws the contents away and delivers everything again. Killed in between, the next delivery goes on."""
        with self._lock:
            if self.shared:
                self.invalidate()
            else:
                self._target.wipe()
                self._own_cursors.clear()
            self.catch_up(partitions, progress)
