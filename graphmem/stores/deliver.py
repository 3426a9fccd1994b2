"""Delivery by state: a projection asks what changed since its cursor, takes the current state, and moves the cursor.

A shared projection (Edge, a server) is one for all processes: its cursor lives in the ledger, and moves only after the
store has made the batch durable. A private one (in this process's memory) keeps a cursor of its own for each space it
was asked for. Doing it twice, late, or after a crash gives the same contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from graphmem.errors import StoreError, StoreUnavailable
from graphmem.stores.base import GraphIndex, MemoryState, RelationState, VectorIndex
from graphmem.stores.ledger import Ledger, changes, log

T = TypeVar("T")
BATCH = 500
_CLEAN: Mapping[str, list[str]] = {
    "missing": [], "extra": [], "stale": [], "set_aside": [], "unreadable": [], "unreachable": []
}  # fmt: skip
Progress = Callable[[str, int, int], None]  # projection, done, of


class Target(Protocol):
    """A projection as delivery sees it."""

    def take(self, connection: Connection, batch: changes.Changes) -> Callable[[], dict[str, str]]:
        """Reads what the batch needs; the returned call writes it and names what was refused: {memory id: error}."""
        ...

    def expected(self, connection: Connection, spaces: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        """What the projection should hold: (id, version parts)."""
        ...

    def held(self, spaces: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        """What it holds."""
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Removes what should not be there."""
        ...

    def wipe(self) -> None:
        """Removes everything."""
        ...


class Vectors:
    """A vector index as a target."""

    def __init__(self, index: VectorIndex, model: str) -> None:
        self._index = index
        self._model = model

    def take(self, connection: Connection, batch: changes.Changes) -> Callable[[], dict[str, str]]:
        points = changes.points(connection, self._model, batch.records)
        there = {point.record.id for point in points}
        gone = [*batch.gone_memories, *(record.id for record in batch.records if record.id not in there)]

        def write() -> dict[str, str]:
            if gone:
                self._index.delete(gone)
            return _each_if_need_be(points, self._index.upsert, lambda point: point.record.id)

        return write

    def expected(self, connection: Connection, spaces: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (version, n)) for uid, version, n in changes.expected_points(connection, spaces))

    def held(self, spaces: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (version, n)) for uid, version, n in self._index.held(spaces))

    def remove(self, ids: Sequence[str]) -> None:
        self._index.delete(ids)

    def wipe(self) -> None:
        self._index.wipe()


class Graphs:
    """A graph copy as a target."""

    def __init__(self, index: GraphIndex) -> None:
        self._index = index

    def take(self, connection: Connection, batch: changes.Changes) -> Callable[[], dict[str, str]]:
        states = changes.memory_states(connection, batch.records)
        relations = changes.relation_states(connection, batch.relations)

        def write() -> dict[str, str]:
            self._index.delete(batch.gone_memories, batch.gone_relations)

            def put(some: Sequence[MemoryState]) -> None:
                self._index.upsert(some, [])

            def relate(some: Sequence[RelationState]) -> None:
                self._index.upsert([], some)

            return {
                **_each_if_need_be(states, put, lambda state: state.record.id),
                **_each_if_need_be(relations, relate, lambda state: state.relation.id),
            }

        return write

    def expected(self, connection: Connection, spaces: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (version,)) for uid, version in changes.expected_nodes(connection, spaces))

    def held(self, spaces: Sequence[str] | None) -> Iterable[tuple[str, tuple[int, ...]]]:
        return ((uid, (version,)) for uid, version in self._index.held(spaces))

    def remove(self, ids: Sequence[str]) -> None:
        self._index.delete(ids, ids)

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
    """One projection kept up to date with the ledger. Threads take turns."""

    def __init__(self, name: str, ledger: Ledger, target: Target, *, shared: bool) -> None:
        self.name = name
        self._ledger = ledger
        self._target = target
        self.shared = shared
        self._own_cursors: dict[str, int] = {}
        self._epoch = 0
        self._lock = RLock()

    def catch_up(self, spaces: Sequence[str], progress: Progress | None = None) -> None:
        """Delivers what is owed: to a shared projection all of it, to a private one what these spaces need.

        Raises StoreUnavailable when the store is out of reach; what was delivered until then stays.
        """
        with self._lock:
            for space in [None] if self.shared else spaces:
                while self._deliver(space, progress):
                    pass

    def deliver(self, spaces: Sequence[str]) -> None:
        """The same after a write; a private projection only keeps up what it was asked for before."""
        with self._ledger.read() as connection:
            epoch = log.epoch(connection)
        with self._lock:
            self._forget_if_reset(epoch)
            self.catch_up([space for space in spaces if self.shared or space in self._own_cursors])

    def _deliver(self, space: str | None, progress: Progress | None) -> bool:
        with self._ledger.read() as connection:
            self._forget_if_reset(log.epoch(connection))
            cursor, latest = self._cursor(connection, space), log.last_change(connection)
            if cursor == latest:
                return False
            batch = changes.since(connection, cursor or 0, BATCH, space)
            write = None if batch is None else self._target.take(connection, batch)
        if cursor is None and self.shared:
            self._begin_anew()
        if batch is None or write is None:
            self._own_cursors.update({space: latest} if space is not None else {})
            return False
        self._move(space, batch, write())
        if progress is not None:
            progress(self.name, batch.upto, latest)
        return True

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
            log.accept(connection, self.name)
            log.move_cursor(connection, self.name, 0)

    def _cursor(self, connection: Connection, space: str | None) -> int | None:
        return log.cursor(connection, self.name) if space is None else self._own_cursors.get(space)

    def _move(self, space: str | None, batch: changes.Changes, refused: dict[str, str]) -> None:
        if space is not None:
            self._own_cursors[space] = batch.upto
            return
        with self._ledger.write() as connection:
            log.accept(connection, self.name, batch.named)
            log.refuse(connection, self.name, refused, batch.upto)
            log.move_cursor(connection, self.name, batch.upto)

    def pending(self) -> bool:
        """Whether a shared projection has something to take (a private one is filled when it is asked)."""
        if not self.shared:
            return False
        with self._ledger.read() as connection:
            cursor = log.cursor(connection, self.name)
            if cursor is None:
                return log.last_change(connection) > 0
            return changes.since(connection, cursor, 1) is not None

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
            except StoreUnavailable as error:
                return {**_CLEAN, "unreachable": [str(error)]}
            except StoreError as error:
                return {**_CLEAN, "unreadable": [str(error)]}
            return found

    def _compared(self) -> dict[str, list[str]]:
        with self._ledger.read() as connection:
            spaces = None if self.shared else list(self._own_cursors)
            expected = dict(self._target.expected(connection, spaces))
            aside = log.refused(connection, self.name)
            held: dict[str, tuple[int, ...]] = {}
            doubled = [uid for uid, version in self._target.held(spaces) if held.setdefault(uid, version) != version]
        stale = {uid for uid in expected.keys() & held.keys() if expected[uid] != held[uid]} | set(doubled)
        return {
            **_CLEAN,
            "missing": sorted(expected.keys() - held.keys() - aside.keys()),
            "extra": sorted(held.keys() - expected.keys()),
            "stale": sorted(stale - aside.keys()),
            "set_aside": sorted(aside),
        }

    def mend(self, report: dict[str, list[str]]) -> None:
        """Repairs what `verify` found: removes what is extra, gives the rest its state again; else a rebuild."""
        with self._lock:
            if report["unreadable"]:
                self.rebuild(list(self._own_cursors))
                return
            if report["extra"]:
                self._target.remove(report["extra"])
            wanted = [uid for what in ("missing", "stale", "set_aside") for uid in report[what]]
            for start in range(0, len(wanted), BATCH):
                self._give_again(wanted[start : start + BATCH])

    def _give_again(self, ids: Sequence[str]) -> None:
        with self._ledger.read() as connection:
            batch = changes.of(connection, ids)
            write = self._target.take(connection, batch)
        refused = write()
        if self.shared:
            with self._ledger.write() as connection:
                log.accept(connection, self.name, ids)
                log.refuse(connection, self.name, refused, batch.upto)

    def rebuild(self, spaces: Sequence[str], progress: Progress | None = None) -> None:
        """Throws the contents away and delivers everything again. Killed in between, the next delivery goes on."""
        with self._lock:
            if self.shared:
                with self._ledger.write() as connection:
                    log.drop_cursor(connection, self.name)
            else:
                self._target.wipe()
                self._own_cursors.clear()
            self.catch_up(spaces, progress)
