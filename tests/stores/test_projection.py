"""Delivery to projections: by current state, in batches, through failures of the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from graph_conformance import far, store_memory
from support.databases import SQLITE_ONLY

from graphmem.commands.types import DeleteMemory, RetireMemory, UpdateMemory
from graphmem.errors import StoreError, StoreUnavailable
from graphmem.model import EmbeddingSpec, Scope
from graphmem.plugins import EntityState, MemoryState, Point, RelationState
from graphmem.stores import projection as delivery
from graphmem.stores.ledger import integrity, memories, outbox
from graphmem.stores.networkx_graph import NetworkxIndex
from graphmem.stores.projection import GraphSink, Projection, VectorSink
from graphmem.testing.numpy_index import NumpyIndex

CLEAN: dict[str, list[str]] = {
    "missing": [],
    "extra": [],
    "stale": [],
    "dead_letters": [],
    "unreadable": [],
    "unreachable": [],
}


class Picky(NumpyIndex):
    """A vector index that refuses some memories, can be out of reach, and records the batches it receives."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: set[str] = set()
        self.upserts_left: int | None = None
        self.batches: list[list[str]] = []
        self.unreadable = False

    def upsert(self, points: Sequence[Point]) -> None:
        if self.upserts_left == 0:
            raise StoreUnavailable("out of reach")
        if self.upserts_left is not None:
            self.upserts_left -= 1
        if any(point.record.id in self.refuses for point in points):
            raise StoreError("not this one")
        self.batches.append([point.record.id for point in points])
        super().upsert(points)

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        if self.unreadable:
            raise StoreError("a damaged page")
        return super().list_held(partitions)

    def wipe(self) -> None:
        self.unreadable = False
        super().wipe()


class Buffered(Picky):
    """A vector index that loses what was not flushed, as one in files does when the power is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: list[Point] = []
        self.flushes = 0
        self.is_full = False

    def flush(self) -> None:
        if self.is_full:
            raise StoreUnavailable("no room")
        self.durable = [point for partition in self._partitions.values() for point in partition.points.values()]
        self.flushes += 1

    def wipe(self) -> None:
        super().wipe()
        self.flush()

    def cut_power(self) -> None:
        super().wipe()
        NumpyIndex.upsert(self, self.durable)


class PickyGraph(NetworkxIndex):
    """A graph that refuses relations."""

    refuses_relations = False

    def upsert(
        self,
        memories: Sequence[MemoryState] = (),
        relations: Sequence[RelationState] = (),
        entities: Sequence[EntityState] = (),
    ) -> None:
        if relations and self.refuses_relations:
            raise StoreError("no relations, please")
        super().upsert(memories, relations, entities)


@pytest.fixture
def index() -> Picky:
    return Picky()


@pytest.fixture
def shared(clerk: Any, index: Picky) -> Projection:
    return Projection("vectors", clerk.ledger, VectorSink(index, clerk.spec), shared=True)


@pytest.fixture
def buffered() -> Buffered:
    return Buffered()


@pytest.fixture
def flushed(clerk: Any, buffered: Buffered) -> Projection:
    """Of a store that keeps what is flushed."""
    return Projection("vectors", clerk.ledger, VectorSink(buffered, clerk.spec), shared=True)


def list_versions(index: Any) -> dict[str, int]:
    return {line[0]: line[1] for line in index.list_held()}


def cursor(clerk: Any, name: str = "vectors") -> int | None:
    with clerk.ledger.read() as connection:
        return outbox.cursor(connection, name)


def last(clerk: Any) -> int:
    with clerk.ledger.read() as connection:
        return outbox.extent(connection).newest


def reset(clerk: Any) -> None:
    with clerk.ledger.write() as connection:
        integrity.wipe(connection)


# --- by state --------------------------------------------------------------------------------------------------------


def test_changes_are_delivered_as_current_state(clerk: Any, shared: Projection, index: Picky) -> None:
    record = clerk.say("Anna paints")
    clerk.commit(UpdateMemory(record.id, text="Anna sculpts"))
    clerk.enrich()
    shared.catch_up([])
    assert index.batches == [[record.id]]
    assert list_versions(index) == {record.id: clerk.record(record.id).seq}
    assert cursor(clerk) == last(clerk)
    assert not shared.has_pending()


def test_a_memory_added_and_erased_between_deliveries_is_never_written(
    clerk: Any, shared: Projection, index: Picky
) -> None:
    clerk.commit(DeleteMemory(clerk.say("Anna paints").id))
    shared.catch_up([])
    assert index.batches == []
    assert cursor(clerk) == last(clerk)


@SQLITE_ONLY  # PostgreSQL keeps no number but those of rows
def test_the_cursor_reaches_the_last_sequence_number_even_without_a_row_of_it(
    clerk: Any, shared: Projection, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search then needs one comparison to see that nothing is pending."""
    monkeypatch.setattr(delivery, "BATCH", 2)
    records = [clerk.say(f"memory {n}", at=far(n)) for n in range(4)]
    with clerk.ledger.write() as connection:
        for _ in range(3):
            outbox.next_seq(connection)
    shared.catch_up([])
    assert (cursor(clerk), shared.has_pending()) == (last(clerk), False)
    assert index.batches == [[record.id for record in records[:2]], [record.id for record in records[2:]]]
    with clerk.ledger.write() as connection:
        outbox.next_seq(connection)
    assert shared.has_pending()
    shared.catch_up([])
    assert (cursor(clerk), shared.has_pending(), len(index.batches)) == (last(clerk), False, 2)


def test_an_erasure_is_delivered(clerk: Any, shared: Projection, index: Picky) -> None:
    erased_record, other_record = clerk.say("Anna paints"), clerk.say("Bob sings", at=far(1))
    shared.catch_up([])
    clerk.commit(DeleteMemory(erased_record.id))
    assert shared.has_pending()
    shared.catch_up([])
    assert set(list_versions(index)) == {other_record.id}


def test_a_memory_without_vectors_is_not_delivered(clerk: Any, shared: Projection, index: Picky) -> None:
    clerk.say("Anna paints", enrich=False)
    shared.catch_up([])
    assert (list_versions(index), shared.verify()) == ({}, CLEAN)
    clerk.enrich()
    shared.catch_up([])
    assert len(list_versions(index)) == 1


def test_an_updated_memory_is_removed_until_it_is_enriched(clerk: Any, shared: Projection, index: Picky) -> None:
    record = clerk.say("Anna paints")
    shared.catch_up([])
    clerk.commit(UpdateMemory(record.id, text="Anna sculpts"))
    shared.catch_up([])
    assert list_versions(index) == {}


@pytest.mark.parametrize("shared", [True, False])
def test_catching_up_does_not_wait_for_later_writes(
    clerk: Any, shared: bool, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    projection = Projection("vectors", clerk.ledger, VectorSink(index, clerk.spec), shared=shared)
    clerk.say("Anna paints")
    real = index.upsert

    def upsert_and_write(points: Sequence[Point]) -> None:
        if len(index.batches) < 20:
            clerk.say("Bo sings")
        real(points)

    monkeypatch.setattr(index, "upsert", upsert_and_write)
    projection.catch_up(["user:alice"])
    assert len(index.batches) == 1
    projection.catch_up(["user:alice"])
    assert len(index.batches) == 2


def test_a_second_delivery_writes_nothing(clerk: Any, shared: Projection, index: Picky) -> None:
    clerk.say("Anna paints")
    for _ in range(3):
        shared.catch_up([])
    assert len(index.batches) == 1


def test_delivering_everything_twice_leads_to_the_same_contents(clerk: Any, shared: Projection, index: Picky) -> None:
    records = [clerk.say(f"memory {n}", at=far(n)) for n in range(5)]
    clerk.commit(DeleteMemory(records[0].id), RetireMemory(records[1].id, at=records[1].at, reason="x"))
    shared.catch_up([])
    before = sorted(index.list_held())
    with clerk.ledger.write() as connection:
        outbox.move_cursor(connection, "vectors", 0)
    shared.catch_up([])
    assert sorted(index.list_held()) == before
    assert shared.verify() == CLEAN


def test_an_index_gets_no_points_of_another_embedder(clerk: Any, index: Picky) -> None:
    clerk.say("Anna paints")
    other = EmbeddingSpec(clerk.embedder.model, clerk.embedder.dims * 2)
    Projection("vectors", clerk.ledger, VectorSink(index, other), shared=True).catch_up([])
    assert index.batches == []


def test_a_private_projection_holds_the_requested_partitions(clerk: Any, index: Picky) -> None:
    private = Projection("vectors", clerk.ledger, VectorSink(index, clerk.spec), shared=False)
    mine, theirs = clerk.say("Anna paints"), clerk.say("Bob sings", scope=Scope("bob"))
    private.catch_up(["user:alice", "user:nobody"])
    assert (set(list_versions(index)), private.verify()) == ({mine.id}, CLEAN)
    private.catch_up(["user:bob"])
    assert set(list_versions(index)) == {mine.id, theirs.id}
    assert cursor(clerk) is None
    assert not private.has_pending()


def test_erasures_reach_a_private_projection(clerk: Any, index: Picky) -> None:
    private = Projection("vectors", clerk.ledger, VectorSink(index, clerk.spec), shared=False)
    record = clerk.say("Anna paints")
    private.catch_up(["user:alice"])
    clerk.commit(DeleteMemory(record.id))
    private.catch_up(["user:alice"])
    assert list_versions(index) == {}


def test_changes_of_other_partitions_are_not_pending_for_a_read(clerk: Any, shared: Projection) -> None:
    alice, bob = "user:alice", "user:bob"
    record = clerk.say("Anna paints")
    assert shared.has_pending([bob])  # nothing is known of its content yet
    shared.catch_up([])
    clerk.say("Bob sings", scope=Scope("bob"))
    pending = [shared.has_pending(read) for read in ([alice], [bob], [alice, bob], [], None)]
    assert pending == [False, True, True, False, True]
    shared.catch_up([])
    clerk.commit(DeleteMemory(record.id))
    assert [shared.has_pending(read) for read in ([alice], [bob], None)] == [True, False, True]


def test_two_projections_keep_cursors_of_their_own(clerk: Any, shared: Projection, index: Picky) -> None:
    graph = NetworkxIndex()
    other = Projection("graph", clerk.ledger, GraphSink(graph), shared=True)
    record = store_memory(clerk, "anna", "acme")
    shared.catch_up([])
    assert (cursor(clerk), cursor(clerk, "graph"), other.has_pending()) == (last(clerk), None, True)
    other.catch_up([])
    assert cursor(clerk, "graph") == last(clerk)
    assert record.id in list_versions(graph) and len(list_versions(graph)) == 2
    assert shared.verify() == other.verify() == CLEAN


def test_after_a_write_a_private_projection_updates_only_partitions_it_holds(clerk: Any, index: Picky) -> None:
    private = Projection("vectors", clerk.ledger, VectorSink(index, clerk.spec), shared=False)
    record = clerk.say("Anna paints")
    private.deliver(["user:alice"])
    assert list_versions(index) == {}
    private.catch_up(["user:alice"])
    clerk.commit(DeleteMemory(record.id))
    private.deliver(["user:alice"])
    assert list_versions(index) == {}


def test_after_a_write_a_shared_projection_gets_all_partitions(clerk: Any, shared: Projection, index: Picky) -> None:
    records = [clerk.say("Anna paints"), clerk.say("Bob sings", scope=Scope("bob"))]
    shared.deliver(["user:alice"])
    assert set(list_versions(index)) == {record.id for record in records}


def kept_and_erased(clerk: Any, projection: Projection, index: Picky) -> tuple[Any, Point]:
    """Returns a delivered memory, and the point of another one that was delivered and then erased."""
    erased, kept = clerk.say("Anna paints"), clerk.say("Bob sings", at=far(1))
    projection.catch_up([])
    point = index._partitions["user:alice"].points[erased.id]
    clerk.commit(DeleteMemory(erased.id))
    projection.catch_up([])
    return kept, point


def test_without_a_cursor_a_projection_is_wiped_first(clerk: Any, shared: Projection, index: Picky) -> None:
    """Its contents are unknown: they may be another ledger's, or left from a killed rebuild."""
    other_record, stale = kept_and_erased(clerk, shared, index)
    index.upsert([stale])
    with clerk.ledger.write() as connection:
        outbox.delete_cursor(connection, "vectors")
    assert shared.has_pending()
    shared.catch_up([])
    assert set(list_versions(index)) == {other_record.id}
    assert (cursor(clerk), shared.has_pending()) == (last(clerk), False)


@pytest.mark.parametrize("kind", ["shared", "private"])
def test_a_reset_by_anyone_empties_a_projection_at_its_next_delivery(clerk: Any, index: Picky, kind: str) -> None:
    target, partitions = VectorSink(index, clerk.spec), ["user:alice"]
    projection = Projection("vectors", clerk.ledger, target, shared=kind == "shared")
    clerk.say("Anna paints")
    projection.catch_up(partitions)
    reset(clerk)
    assert projection.has_pending() == (kind == "shared")
    projection.catch_up(partitions)
    assert list_versions(index) == {}
    assert not projection.has_pending()
    record = clerk.say("Bob sings")
    projection.catch_up(partitions)
    assert (set(list_versions(index)), projection.verify()) == ({record.id}, CLEAN)


@pytest.mark.parametrize("cursor_kind", [{}, {"leased": True}])
@pytest.mark.parametrize("kind", ["vectors", "graph"])
@pytest.mark.parametrize("method", ["upsert", "wipe"])
def test_a_reset_during_a_batch_erases_what_the_batch_writes(
    clerk: Any, monkeypatch: pytest.MonkeyPatch, method: str, kind: str, cursor_kind: dict[str, bool]
) -> None:
    store = NumpyIndex() if kind == "vectors" else NetworkxIndex()
    target = VectorSink(store, clerk.spec) if isinstance(store, NumpyIndex) else GraphSink(store)
    projection = Projection(kind, clerk.ledger, target, shared=True, **cursor_kind)
    clerk.say("Anna paints")
    real = getattr(store, method)

    def reset_and_go_on(*arguments: Any) -> None:
        monkeypatch.setattr(store, method, real)
        reset(clerk)
        real(*arguments)

    monkeypatch.setattr(store, method, reset_and_go_on)
    projection.catch_up([])
    assert (list_versions(store), projection.verify()) == ({}, CLEAN)
    record = clerk.say("Bob sings")
    projection.catch_up([])
    assert set(list_versions(store)) >= {record.id}
    assert projection.verify() == CLEAN


def test_a_reset_while_a_lost_store_is_emptied_leaves_it_without_a_cursor(
    clerk: Any, shared: Projection, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nothing empties it after a process that is killed before the end of its batch."""
    clerk.say("Anna paints")
    wipe = index.wipe

    def reset_and_wipe() -> None:
        reset(clerk)
        index.upserts_left = 0
        wipe()

    monkeypatch.setattr(index, "wipe", reset_and_wipe)
    with pytest.raises(StoreUnavailable):
        shared.catch_up([])
    assert cursor(clerk) is None


def test_a_repair_during_a_reset_records_no_dead_letters_of_erased_memories(
    clerk: Any, shared: Projection, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = clerk.say("Anna paints")
    shared.catch_up([])
    index.delete([record.id])
    report = shared.verify()

    def reset_and_refuse(_: Sequence[Point]) -> None:
        reset(clerk)
        shared.catch_up([])  # as another process does
        raise StoreError("not this one")

    monkeypatch.setattr(index, "upsert", reset_and_refuse)
    shared.repair(report)
    assert (list_versions(index), shared.verify()) == ({}, CLEAN)


# --- in batches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_batches_of_any_size_deliver_everything(clerk: Any, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(delivery, "BATCH", size)
    records = [store_memory(clerk, f"e{n % 3}", f"e{n % 5 + 3}", at=far(n % 4)) for n in range(20)]
    for record in records[:6]:
        clerk.commit(DeleteMemory(record.id))
    index, graph = Picky(), NetworkxIndex()
    both = [
        Projection("vectors", clerk.ledger, VectorSink(index, clerk.spec), shared=True),
        Projection("graph", clerk.ledger, GraphSink(graph), shared=True),
    ]
    for projection in both:
        projection.catch_up([])
        assert projection.verify() == CLEAN
        assert cursor(clerk, projection.name) == last(clerk)
    assert set(list_versions(index)) == {record.id for record in records[6:]}
    assert max(map(len, index.batches)) <= size


def test_progress_is_reported_after_each_batch(clerk: Any, shared: Projection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "BATCH", 2)
    for n in range(5):
        clerk.say(f"memory {n}", at=far(n))
    progress: list[tuple[str, int, int]] = []
    shared.catch_up([], lambda *step: progress.append(step))
    assert len(progress) == 3
    assert [done for _, done, _ in progress] == sorted({done for _, done, _ in progress})
    assert progress[-1] == ("vectors", last(clerk), last(clerk))


# --- a store that is flushed ------------------------------------------------------------------------------------------


def test_a_batch_is_durable_before_the_cursor_moves(clerk: Any, flushed: Projection, buffered: Buffered) -> None:
    kept, erased_record = clerk.say("Anna paints"), clerk.say("Bob sings", at=far(1))
    flushed.catch_up([])
    clerk.commit(DeleteMemory(erased_record.id))
    flushed.catch_up([])
    buffered.cut_power()
    assert (set(list_versions(buffered)), cursor(clerk)) == ({kept.id}, last(clerk))


def test_a_failed_flush_leaves_the_cursor_and_is_made_up_for(
    clerk: Any, flushed: Projection, buffered: Buffered
) -> None:
    flushed.catch_up([])
    before = cursor(clerk)
    record = clerk.say("Anna paints")
    buffered.is_full = True
    with pytest.raises(StoreUnavailable):
        flushed.catch_up([])
    buffered.cut_power()
    assert (cursor(clerk), flushed.has_pending(), list_versions(buffered)) == (before, True, {})
    buffered.is_full = False
    flushed.catch_up([])
    buffered.cut_power()
    assert (set(list_versions(buffered)), cursor(clerk)) == ({record.id}, last(clerk))


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_a_rebuild_whose_process_dies_continues_at_its_last_batch(
    clerk: Any, flushed: Projection, buffered: Buffered, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    monkeypatch.setattr(delivery, "BATCH", 1)
    records = [clerk.say(f"memory {n}", at=far(n)) for n in range(9)]
    for death in range(deaths):
        buffered.upserts_left = 2
        with pytest.raises(StoreUnavailable):
            Projection("vectors", clerk.ledger, VectorSink(buffered, clerk.spec), shared=True).catch_up([])
        assert cursor(clerk) == records[2 * death + 1].seq
        buffered.cut_power()
    buffered.upserts_left = None
    flushed.catch_up([])
    assert set(list_versions(buffered)) == {record.id for record in records}
    assert flushed.verify() == CLEAN


def test_dead_letters_are_those_of_the_last_delivery(clerk: Any, flushed: Projection, buffered: Buffered) -> None:
    records = [clerk.say(f"memory {n}", at=far(n)) for n in range(3)]
    buffered.refuses = {records[1].id, records[2].id}
    flushed.catch_up([])
    with clerk.ledger.read() as connection:
        assert flushed.count_dead_letters(connection) == 2
    buffered.refuses = {records[2].id}
    clerk.commit(UpdateMemory(records[1].id, metadata={"a": 1}))
    flushed.catch_up([])
    assert flushed.verify() == {**CLEAN, "dead_letters": [records[2].id]}


def test_a_row_that_is_refused_before_a_failed_flush_and_accepted_after_it_is_no_dead_letter(
    clerk: Any, flushed: Projection, buffered: Buffered
) -> None:
    flushed.catch_up([])
    record = clerk.say("Anna paints")
    buffered.refuses, buffered.is_full = {record.id}, True
    with pytest.raises(StoreUnavailable):
        flushed.catch_up([])
    buffered.refuses, buffered.is_full = set(), False
    flushed.catch_up([])
    with clerk.ledger.read() as connection:
        assert flushed.count_dead_letters(connection) == 0


def test_a_rebuild_that_fails_before_its_first_batch_is_continued(
    clerk: Any, flushed: Projection, buffered: Buffered
) -> None:
    record = clerk.say("Anna paints")
    flushed.catch_up([])
    buffered.upserts_left = 0
    with pytest.raises(StoreUnavailable):
        flushed.rebuild([])
    assert flushed.has_pending()
    buffered.upserts_left = None
    flushed.catch_up([])
    assert (set(list_versions(buffered)), flushed.verify()) == ({record.id}, CLEAN)


def test_a_dead_letter_is_removed_once_its_row_is_durable(clerk: Any, flushed: Projection, buffered: Buffered) -> None:
    record = clerk.say("Anna paints")
    buffered.refuses = {record.id}
    flushed.catch_up([])
    report = flushed.verify()
    buffered.refuses, buffered.is_full = set(), True
    with pytest.raises(StoreUnavailable):
        flushed.repair(report)
    with clerk.ledger.read() as connection:
        assert flushed.count_dead_letters(connection) == 1


def test_what_a_repair_wrote_is_durable(clerk: Any, flushed: Projection, buffered: Buffered) -> None:
    missing, extra = kept_and_erased(clerk, flushed, buffered)
    buffered.delete([missing.id])
    buffered.upsert([extra])
    flushed.repair(flushed.verify())
    buffered.cut_power()
    assert set(list_versions(buffered)) == {missing.id}


def test_a_cursor_that_another_process_has_deleted_meanwhile_stays_deleted(
    clerk: Any, shared: Projection, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a rebuild begins with that, and then waits for the batch."""
    clerk.say("Anna paints")
    shared.catch_up([])
    clerk.say("Bob sings", at=far(1))
    real = index.upsert

    def invalidate_and_write(points: Sequence[Point]) -> None:
        monkeypatch.setattr(index, "upsert", real)
        Projection("vectors", clerk.ledger, VectorSink(index, clerk.spec), shared=True).invalidate()
        real(points)

    monkeypatch.setattr(index, "upsert", invalidate_and_write)
    wipes: list[bool] = []
    wipe = index.wipe
    monkeypatch.setattr(index, "wipe", lambda: (wipes.append(True), wipe()))
    shared.catch_up([])
    assert (wipes, cursor(clerk), len(list_versions(index))) == ([True], last(clerk), 2)


# --- when stores fail ------------------------------------------------------------------------------------------------


def test_the_cursor_stays_when_the_store_is_out_of_reach(clerk: Any, shared: Projection, index: Picky) -> None:
    clerk.say("Anna paints")
    index.upserts_left = 0
    with pytest.raises(StoreUnavailable):
        shared.catch_up([])
    assert (cursor(clerk), shared.has_pending()) == (0, True)
    index.upserts_left = None
    shared.catch_up([])
    assert (shared.verify(), shared.has_pending()) == (CLEAN, False)


def test_batches_delivered_before_an_outage_stay(
    clerk: Any, shared: Projection, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "BATCH", 2)
    records = [clerk.say(f"memory {n}", at=far(n)) for n in range(6)]
    index.upserts_left = 2
    with pytest.raises(StoreUnavailable):
        shared.catch_up([])
    assert set(list_versions(index)) == {record.id for record in records[:4]}
    assert cursor(clerk) == records[3].seq
    index.upserts_left = None
    shared.catch_up([])
    assert [len(batch) for batch in index.batches] == [2, 2, 2]
    assert shared.verify() == CLEAN


def test_a_refused_row_becomes_a_dead_letter_and_holds_up_no_other(
    clerk: Any, shared: Projection, index: Picky
) -> None:
    records = [clerk.say(f"memory {n}", at=far(n)) for n in range(7)]
    index.refuses = {records[2].id, records[5].id}
    shared.catch_up([])
    assert set(list_versions(index)) == {record.id for record in records} - index.refuses
    assert cursor(clerk) == last(clerk)
    assert shared.verify() == {**CLEAN, "dead_letters": sorted(index.refuses)}


def test_a_dead_letter_is_removed_when_the_row_is_accepted(clerk: Any, shared: Projection, index: Picky) -> None:
    records = [clerk.say(f"memory {n}", at=far(n)) for n in range(3)]
    index.refuses = {records[1].id}
    shared.catch_up([])
    shared.repair(shared.verify())
    assert shared.verify()["dead_letters"] == [records[1].id]
    index.refuses = set()
    shared.repair(shared.verify())
    assert shared.verify() == CLEAN
    assert records[1].id in list_versions(index)


def test_a_dead_letter_whose_row_changes_is_tried_again(clerk: Any, shared: Projection, index: Picky) -> None:
    record = clerk.say("Anna paints")
    index.refuses = {record.id}
    shared.catch_up([])
    index.refuses = set()
    clerk.commit(UpdateMemory(record.id, metadata={"a": 1}))
    shared.catch_up([])
    assert shared.verify() == CLEAN


def test_erasing_a_row_removes_its_dead_letter(clerk: Any, shared: Projection, index: Picky) -> None:
    record = clerk.say("Anna paints")
    index.refuses = {record.id}
    shared.catch_up([])
    clerk.commit(DeleteMemory(record.id))
    assert shared.verify() == CLEAN


def test_a_new_version_that_is_refused_does_not_leave_the_old_one_unnoticed(
    clerk: Any, shared: Projection, index: Picky
) -> None:
    record = clerk.say("Anna paints")
    shared.catch_up([])
    index.refuses = {record.id}
    clerk.commit(UpdateMemory(record.id, metadata={"a": 1}))
    shared.catch_up([])
    assert shared.verify() == {**CLEAN, "dead_letters": [record.id]}


def test_a_refused_relation_holds_up_no_memories(clerk: Any) -> None:
    graph = PickyGraph()
    graph.refuses_relations = True
    projection = Projection("graph", clerk.ledger, GraphSink(graph), shared=True)
    store_memory(clerk, "anna", "acme")
    later = store_memory(clerk, "bob", at=far(1))
    projection.catch_up([])
    assert later.id in list_versions(graph)
    assert cursor(clerk, "graph") == last(clerk)
    assert len(projection.verify()["dead_letters"]) == 1


@pytest.mark.parametrize("then", ["changes", "is erased"])
def test_a_relations_dead_letter_is_removed_when_it_is_accepted_or_erased(clerk: Any, then: str) -> None:
    graph = PickyGraph()
    graph.refuses_relations = True
    projection = Projection("graph", clerk.ledger, GraphSink(graph), shared=True)
    record = store_memory(clerk, "anna", "acme")
    projection.catch_up([])
    graph.refuses_relations = False
    if then == "changes":
        store_memory(clerk, "anna", "acme", at=far(1))
    else:
        clerk.commit(DeleteMemory(record.id))
    projection.catch_up([])
    assert projection.verify() == CLEAN


# --- verify and repair -----------------------------------------------------------------------------------------------


def test_verify_names_what_is_missing_extra_and_stale(clerk: Any, shared: Projection, index: Picky) -> None:
    missing, stale, fine = (clerk.say(f"memory {n}", at=far(n)) for n in range(3))
    erased_record = clerk.say("stranger", scope=Scope("bob"))
    shared.catch_up([])
    with clerk.ledger.read() as connection:
        extra = memories.find(connection, erased_record.id)
    old = index._partitions["user:alice"].points[stale.id]
    clerk.commit(UpdateMemory(stale.id, metadata={"a": 1}), DeleteMemory(erased_record.id))
    shared.catch_up([])
    index.delete([missing.id])
    index.upsert([old, Point(extra, old.vectors, old.weights)])
    report = shared.verify()
    assert report == {**CLEAN, "missing": [missing.id], "extra": [erased_record.id], "stale": [stale.id]}
    shared.repair(report)
    assert shared.verify() == CLEAN
    assert set(list_versions(index)) == {missing.id, stale.id, fine.id}


def test_an_unreadable_projection_is_reported_and_rebuilt(clerk: Any, shared: Projection, index: Picky) -> None:
    record = clerk.say("Anna paints")
    shared.catch_up([])
    index.unreadable = True
    report = shared.verify()
    assert report == {**CLEAN, "unreadable": ["a damaged page"]}
    shared.repair(report)
    assert shared.verify() == CLEAN
    assert set(list_versions(index)) == {record.id}


def test_verify_reports_only_differences_found_twice(
    clerk: Any, shared: Projection, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may be in the middle of a delivery while this one compares."""
    records = [clerk.say(f"memory {n}", at=far(n)) for n in range(2)]
    shared.catch_up([])
    points = dict(index._partitions["user:alice"].points)
    index.delete([record.id for record in records])
    real = Projection._compare

    def compare_and_restore(projection: Projection) -> dict[str, list[str]]:
        differences = real(projection)
        index.upsert([points[records[0].id]])
        return differences

    monkeypatch.setattr(Projection, "_compare", compare_and_restore)
    assert shared.verify() == {**CLEAN, "missing": [records[1].id]}


def test_repair_delivers_in_batches(
    clerk: Any, shared: Projection, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [clerk.say(f"memory {n}", at=far(n)) for n in range(5)]
    shared.catch_up([])
    index.wipe()
    index.batches.clear()
    monkeypatch.setattr(delivery, "BATCH", 2)
    shared.repair(shared.verify())
    assert [len(batch) for batch in index.batches] == [2, 2, 1]
    assert set(list_versions(index)) == {record.id for record in records}


def test_repair_restores_memories_and_relations_of_a_graph(clerk: Any) -> None:
    graph = NetworkxIndex()
    projection = Projection("graph", clerk.ledger, GraphSink(graph), shared=True)
    store_memory(clerk, "anna", "acme")
    projection.catch_up([])
    ids = list(list_versions(graph))
    graph.delete(ids, ids)
    assert projection.verify()["missing"] == sorted(ids)
    projection.repair(projection.verify())
    assert projection.verify() == CLEAN
    assert set(list_versions(graph)) == set(ids)


def test_rebuild_wipes_and_delivers_everything(clerk: Any, shared: Projection, index: Picky) -> None:
    records = [clerk.say(f"memory {n}", at=far(n)) for n in range(3)]
    index.refuses = {records[0].id}
    shared.catch_up([])
    index.refuses = set()
    shared.rebuild([])
    assert set(list_versions(index)) == {record.id for record in records}
    assert shared.verify() == CLEAN
    assert cursor(clerk) == last(clerk)


def test_a_failed_rebuild_continues_where_it_stopped(
    clerk: Any, shared: Projection, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "BATCH", 1)
    for n in range(4):
        clerk.say(f"memory {n}", at=far(n))
    shared.catch_up([])
    index.batches.clear()
    index.upserts_left = 2
    with pytest.raises(StoreUnavailable):
        shared.rebuild([])
    index.upserts_left = None
    shared.catch_up([])
    assert len(index.batches) == 4
    assert shared.verify() == CLEAN


def test_a_rebuild_killed_before_its_wipe_is_resumed(
    clerk: Any, shared: Projection, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    clerk.say("Anna paints")
    shared.catch_up([])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(index, "wipe", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        shared.rebuild([])
    assert (cursor(clerk), shared.has_pending()) == (None, True)
    again = Projection("vectors", clerk.ledger, VectorSink(index, clerk.spec), shared=True)
    index.batches.clear()
    again.catch_up([])
    assert (len(index.batches), again.verify()) == (1, CLEAN)


def test_a_private_projection_is_rebuilt_with_the_given_partitions(clerk: Any, index: Picky) -> None:
    private = Projection("vectors", clerk.ledger, VectorSink(index, clerk.spec), shared=False)
    record = clerk.say("Anna paints")
    private.catch_up(["user:alice"])
    private.rebuild(["user:alice"])
    assert set(list_versions(index)) == {record.id}


def test_the_cursor_survives_in_the_ledger(clerk: Any, shared: Projection, index: Picky) -> None:
    clerk.say("Anna paints")
    shared.catch_up([])
    again = Projection("vectors", clerk.ledger, VectorSink(index, clerk.spec), shared=True)
    again.catch_up([])
    assert len(index.batches) == 1


def test_repair_during_concurrent_writes_does_not_rebuild(
    clerk: Any, shared: Projection, index: Picky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write between the repair and the check after it is pending, not a difference."""
    first = clerk.say("Anna paints")
    shared.catch_up([])
    index.delete([first.id])
    report, wipes = shared.verify(), []
    real, redeliver = index.wipe, shared._redeliver

    def redeliver_and_write(ids: Sequence[str]) -> None:
        redeliver(ids)
        clerk.say("Bo sings")

    monkeypatch.setattr(shared, "_redeliver", redeliver_and_write)
    monkeypatch.setattr(index, "wipe", lambda: (wipes.append(True), real()))
    shared.repair(report)
    assert not wipes
    assert len(list_versions(index)) == 2


def test_a_projection_newer_than_a_ledger_from_a_backup_is_rebuilt(
    clerk: Any, shared: Projection, index: Picky
) -> None:
    """The store refuses versions older than its own: redelivery does not help, only a rebuild."""
    record = clerk.say("Anna paints")
    shared.catch_up([])
    newer = index._partitions["user:alice"].points[record.id]
    index.upsert([replace(newer, record=replace(newer.record, seq=10**6))])
    original_upsert = index.upsert

    def refuse_older(points: Sequence[Point]) -> None:
        versions = list_versions(index)
        original_upsert([point for point in points if point.record.seq >= versions.get(point.record.id, 0)])

    index.upsert = refuse_older
    shared.repair(shared.verify())
    assert list_versions(index) == {record.id: clerk.record(record.id).seq}
