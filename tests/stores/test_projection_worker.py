"""Projection workers and leases: delivery, waiting, retries. The stores are in memory and fail on demand."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from threading import Event, Semaphore, Thread
from typing import Any

import pytest
from support.waiting import TIMEOUT, wait_until

from graphmem.errors import CLOSED, ConfigError, StoreUnavailable
from graphmem.plugins import Point, StoreLost
from graphmem.stores import projection as delivery
from graphmem.stores import projection_worker as workers
from graphmem.stores.ledger import integrity, memories, outbox
from graphmem.stores.projection import Projection, VectorSink
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.testing.numpy_index import NumpyIndex

# Seconds of a lease that outlasts any test.
LONG = 100 * TIMEOUT


class Server(NumpyIndex):
    """An index that behaves like one on a server: it can be down, hang, refuse the password, and lose everything."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.lost = False
        self.refuses: str | None = None
        self.may_proceed = Event()
        self.may_proceed.set()
        self.checks = self.upserts = self.wipes = 0

    def check(self) -> None:
        self.checks += 1
        self._answer(lost_matters=False)
        if self.refuses is not None:
            raise ConfigError(self.refuses)

    def _answer(self, *, lost_matters: bool = True) -> None:
        self.may_proceed.wait(TIMEOUT)
        if self.down:
            raise StoreUnavailable("connection refused")
        if self.lost and lost_matters:
            raise StoreLost("no such collection")

    def upsert(self, points: Sequence[Point]) -> None:
        self._answer()
        self.upserts += 1
        super().upsert(points)

    def delete(self, ids: Sequence[str]) -> int:
        self._answer()
        return super().delete(ids)

    def dense(self, *args: Any) -> Any:
        self._answer()
        return super().dense(*args)

    def count(self) -> int:
        self._answer()
        return super().count()

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int, int]]:
        self._answer()
        return super().list_held(partitions)

    def wipe(self) -> None:
        self._answer(lost_matters=False)
        self.lost = False
        self.wipes += 1
        super().wipe()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "RETRY_BASE", 0.01)
    monkeypatch.setattr(workers, "RETRY_MAX", 0.05)


@pytest.fixture
def server() -> Server:
    return Server()


def projection(clerk: Any, server: Server) -> Projection:
    return Projection("vectors", clerk.ledger, VectorSink(server, clerk.spec), shared=True, leased=True)


@pytest.fixture
def worker(clerk: Any, server: Server) -> Iterator[ProjectionWorker]:
    projection_worker = ProjectionWorker(projection(clerk, server), server.check)
    yield projection_worker
    server.may_proceed.set()
    projection_worker.close(TIMEOUT)


def ids(server: Server) -> set[str]:
    return {uid for uid, _, _ in NumpyIndex.list_held(server)}


def holder(clerk: Any) -> str | None:
    with clerk.ledger.read() as connection:
        return connection.exec_driver_sql("SELECT holder FROM leases").scalar()


# --- a worker --------------------------------------------------------------------------------------------------------


def test_a_worker_delivers_and_reports_it(clerk: Any, server: Server, worker: ProjectionWorker) -> None:
    record = clerk.say("Anna paints")
    assert worker.wait_for(worker.schedule([]), TIMEOUT)
    assert ids(server) == {record.id}
    assert not worker.is_unavailable


def test_an_unavailable_store_is_not_called(clerk: Any, server: Server, worker: ProjectionWorker) -> None:
    server.down = True
    clerk.say("Anna paints")
    assert not worker.wait_for(worker.schedule([]), TIMEOUT)
    wait_until(lambda: worker.is_unavailable)
    assert worker.schedule([]) is None
    assert not worker.wait_for(None, TIMEOUT)
    with pytest.raises(StoreUnavailable, match="background"):
        worker.read(lambda: pytest.fail("it was asked"))


def test_pending_changes_are_delivered_when_the_store_is_back(
    clerk: Any, server: Server, worker: ProjectionWorker
) -> None:
    server.down = True
    first = clerk.say("Anna paints")
    worker.wait_for(worker.schedule([]), TIMEOUT)
    second = clerk.say("Bo sings")
    wait_until(lambda: server.checks > 3)
    server.down = False
    wait_until(lambda: not worker.is_unavailable)
    assert ids(server) == {first.id, second.id}
    assert not worker.projection.has_pending()


def test_a_write_during_the_reconnection_is_delivered(
    clerk: Any, server: Server, worker: ProjectionWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write between the last check and the end of the outage still finds the store unavailable."""
    check_for_loss = worker.projection.check_for_loss
    memory_ids: list[str] = []

    def check_and_write() -> None:
        check_for_loss()
        if not memory_ids:
            memory_ids.append(clerk.say("Anna paints").id)
            assert worker.schedule([]) is None

    monkeypatch.setattr(worker.projection, "check_for_loss", check_and_write)
    worker.mark_unavailable(StoreUnavailable("gone"))
    wait_until(lambda: ids(server) == set(memory_ids) != set())


def test_a_failed_read_starts_the_reconnection(clerk: Any, server: Server, worker: ProjectionWorker) -> None:
    server.down = True
    with pytest.raises(StoreUnavailable, match="refused"):
        worker.read(server.count)
    assert worker.is_unavailable
    server.down = False
    wait_until(lambda: not worker.is_unavailable)
    assert worker.read(server.count) == 0


def test_an_overdue_delivery_is_not_waited_for_again(clerk: Any, server: Server, worker: ProjectionWorker) -> None:
    record = clerk.say("Anna paints")
    server.may_proceed.clear()
    assert not worker.wait_for(worker.schedule([]), 0.05)
    assert worker.is_overdue
    # A second wait here would last until the store goes on by itself, and would return True.
    assert not worker.wait_for(worker.schedule([]), 3 * TIMEOUT)
    assert worker.verify()["unreachable"]
    assert worker.is_overdue
    server.may_proceed.set()
    wait_until(lambda: not worker.is_overdue)
    assert ids(server) == {record.id}
    assert worker.wait_for(worker.schedule([]), TIMEOUT)


def test_a_write_during_an_overdue_delivery_is_delivered_after_it(
    clerk: Any, server: Server, worker: ProjectionWorker
) -> None:
    """A delivery covers only the writes before its start: a later write needs another delivery."""
    first = clerk.say("Anna paints")
    server.may_proceed.clear()
    assert not worker.wait_for(worker.schedule([]), 0.05)
    second = clerk.say("Bo sings")
    assert worker.schedule([]) is None
    server.may_proceed.set()
    wait_until(lambda: not worker.projection.has_pending())
    assert ids(server) == {first.id, second.id}


def test_draining_covers_what_was_written_during_an_overdue_delivery(
    clerk: Any, server: Server, worker: ProjectionWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = clerk.say("Anna paints")
    server.may_proceed.clear()
    assert not worker.wait_for(worker.schedule([]), 0.05)
    second = clerk.say("Bo sings")
    waits = worker.wait_for

    def wait_while_the_store_proceeds(job: Any, _: float | None) -> bool:
        server.may_proceed.set()
        return waits(job, TIMEOUT)

    monkeypatch.setattr(worker, "wait_for", wait_while_the_store_proceeds)
    assert worker.drain(TIMEOUT)
    assert ids(server) == {first.id, second.id}


def test_a_read_that_meets_a_lost_store_refills_it(clerk: Any, server: Server, worker: ProjectionWorker) -> None:
    record = clerk.say("Anna paints")
    worker.wait_for(worker.schedule([]), TIMEOUT)
    NumpyIndex.wipe(server)
    server.lost = True
    with pytest.raises(StoreLost):
        worker.read(server.count)
    wait_until(lambda: not worker.is_unavailable)
    assert ids(server) == {record.id}
    assert server.wipes >= 1


def test_a_write_that_meets_a_lost_store_refills_it(clerk: Any, server: Server, worker: ProjectionWorker) -> None:
    first = clerk.say("Anna paints")
    worker.wait_for(worker.schedule([]), TIMEOUT)
    NumpyIndex.wipe(server)
    server.lost = True
    second = clerk.say("Bo sings")
    assert worker.wait_for(worker.schedule([]), TIMEOUT)
    assert ids(server) == {first.id, second.id}


def test_verify_reports_a_lost_store_and_refills_it(clerk: Any, server: Server, worker: ProjectionWorker) -> None:
    record = clerk.say("Anna paints")
    worker.wait_for(worker.schedule([]), TIMEOUT)
    NumpyIndex.wipe(server)
    server.lost = True
    assert worker.verify()["missing"] == [record.id]
    assert not any(worker.verify().values())  # the first call scheduled the refill


def test_opening_notices_an_empty_store(clerk: Any, server: Server, worker: ProjectionWorker) -> None:
    record = clerk.say("Anna paints")
    worker.wait_for(worker.schedule([]), TIMEOUT)
    NumpyIndex.wipe(server)
    worker.open()
    wait_until(lambda: ids(server) == {record.id})


@pytest.mark.parametrize("down_at_first", [True, False])
def test_opening_notices_a_lost_store(
    down_at_first: bool, clerk: Any, server: Server, worker: ProjectionWorker
) -> None:
    record = clerk.say("Anna paints")
    worker.wait_for(worker.schedule([]), TIMEOUT)
    NumpyIndex.wipe(server)
    server.lost, server.down = True, down_at_first
    worker.open()
    server.down = False
    wait_until(lambda: ids(server) == {record.id})


def test_opening_notices_missing_memories(clerk: Any, server: Server, worker: ProjectionWorker) -> None:
    first, second = clerk.say("Anna paints"), clerk.say("Bo sings")
    worker.wait_for(worker.schedule([]), TIMEOUT)
    NumpyIndex.delete(server, [first.id])
    worker.open()
    wait_until(lambda: ids(server) == {first.id, second.id})
    assert server.wipes == 1  # at the beginning only


def test_opening_without_a_server_is_no_error(clerk: Any, server: Server, worker: ProjectionWorker) -> None:
    server.down = True
    record = clerk.say("Anna paints")
    worker.open()
    assert worker.is_unavailable
    server.down = False
    wait_until(lambda: not worker.is_unavailable)
    assert ids(server) == {record.id}


def test_opening_with_a_wrong_password_is_an_error(server: Server, worker: ProjectionWorker) -> None:
    server.refuses = "graph_store.config.password: wrong"
    with pytest.raises(ConfigError, match="password"):
        worker.open()


def test_a_password_corrected_on_the_server_ends_the_outage(
    clerk: Any, server: Server, worker: ProjectionWorker
) -> None:
    server.down = True
    record = clerk.say("Anna paints")
    worker.wait_for(worker.schedule([]), TIMEOUT)
    server.refuses, server.down = "wrong", False
    wait_until(lambda: server.checks > 3)
    assert worker.is_unavailable
    server.refuses = None
    wait_until(lambda: not worker.is_unavailable)
    assert ids(server) == {record.id}


def test_closing_ends_the_reconnection(clerk: Any, server: Server) -> None:
    projection_worker = ProjectionWorker(projection(clerk, server), server.check)
    server.down = True
    with pytest.raises(StoreUnavailable):
        projection_worker.read(server.count)
    projection_worker.close(TIMEOUT)
    wait_until(lambda: not projection_worker.is_unavailable)
    with pytest.raises(StoreUnavailable, match=CLOSED):
        projection_worker.schedule([])


def test_closing_starts_no_last_delivery(clerk: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A close would wait for it until the store's own timeout."""
    projection_worker = ProjectionWorker(projection(clerk, server), server.check)
    deliveries: list[Any] = []
    server.down = True
    with pytest.raises(StoreUnavailable):
        projection_worker.read(server.count)
    monkeypatch.setattr(projection_worker, "schedule", deliveries.append)
    projection_worker.cancel_waits()
    wait_until(lambda: not projection_worker.is_unavailable)
    assert projection_worker._reconnect_thread is not None
    projection_worker._reconnect_thread.join(TIMEOUT)
    assert deliveries == []
    projection_worker.close(TIMEOUT)


def test_closing_waits_for_a_hanging_delivery_until_the_timeout(clerk: Any, server: Server) -> None:
    projection_worker = ProjectionWorker(projection(clerk, server), server.check)
    clerk.say("Anna paints")
    server.may_proceed.clear()
    assert not projection_worker.wait_for(projection_worker.schedule([]), 0.05)
    projection_worker.close(0.05)
    server.may_proceed.set()
    wait_until(lambda: not projection_worker.is_overdue)


def test_a_store_in_this_process_is_waited_for_without_timeout(clerk: Any, server: Server) -> None:
    projection_worker = ProjectionWorker(
        Projection("vectors", clerk.ledger, VectorSink(server, clerk.spec), shared=False)
    )
    record = clerk.say("Anna paints")
    assert projection_worker.catch_up(["user:alice"], 0)
    assert ids(server) == {record.id}
    server.down = True
    with pytest.raises(StoreUnavailable):
        projection_worker.read(server.count)
    assert not projection_worker.is_unavailable
    projection_worker.close(0)


def test_a_read_waits_until_the_timeout_for_a_shared_store_in_this_process(
    clerk: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "EMBEDDED_CATCH_UP_SECONDS", 0.05)
    projection_worker = ProjectionWorker(projection(clerk, server))
    first = clerk.say("Anna paints")
    server.may_proceed.clear()
    assert not projection_worker.catch_up([], 0)
    assert projection_worker.is_overdue
    assert not projection_worker.check_contents()
    second = clerk.say("Bo sings")
    waiting = projection_worker.schedule([])
    assert projection_worker.schedule([]) is waiting  # many reads meanwhile leave one delivery behind
    server.may_proceed.set()
    assert projection_worker.wait_for(waiting, TIMEOUT)
    assert ids(server) == {first.id, second.id}
    assert projection_worker.check_contents()
    projection_worker.close(0)


# --- leases ----------------------------------------------------------------------------------------------------------


def test_the_lease_is_released_after_a_batch(clerk: Any, server: Server) -> None:
    clerk.say("Anna paints")
    projection(clerk, server).catch_up([])
    assert holder(clerk) is None


def test_the_lease_is_released_after_a_failed_batch(clerk: Any, server: Server) -> None:
    clerk.say("Anna paints")
    server.down = True
    with pytest.raises(StoreUnavailable):
        projection(clerk, server).catch_up([])
    assert holder(clerk) is None


def test_without_the_lease_a_projection_waits_for_the_holder_to_deliver(clerk: Any, server: Server) -> None:
    clerk.say("Anna paints")
    mine, other = projection(clerk, server), projection(clerk, server)
    server.may_proceed.clear()
    holding_thread = Thread(target=mine.catch_up, args=([],))
    holding_thread.start()
    wait_until(lambda: holder(clerk) is not None)
    waiting_thread = Thread(target=other.catch_up, args=([],))
    waiting_thread.start()
    time.sleep(0.1)
    assert waiting_thread.is_alive()
    server.may_proceed.set()
    holding_thread.join(TIMEOUT)
    waiting_thread.join(TIMEOUT)
    assert server.upserts == 1


def test_the_lease_of_a_dead_process_runs_out(clerk: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    record = clerk.say("Anna paints")
    with clerk.ledger.write() as connection:
        assert outbox.acquire_lease(connection, "vectors", "one who died", 0.2)
    projection(clerk, server).catch_up([])
    assert ids(server) == {record.id}


def test_a_clock_set_back_does_not_extend_a_lease(clerk: Any, server: Server) -> None:
    record = clerk.say("Anna paints")
    with clerk.ledger.write() as connection:
        assert outbox.acquire_lease(connection, "vectors", "one who died", 30)
        connection.exec_driver_sql(
            "UPDATE leases SET expires_at = expires_at + 3600000000"
        )  # as if acquired an hour later
    projection(clerk, server).catch_up([])
    assert ids(server) == {record.id}


def test_a_lease_has_one_holder(clerk: Any) -> None:
    with clerk.ledger.write() as connection:
        assert outbox.acquire_lease(connection, "vectors", "a", LONG)
        assert outbox.acquire_lease(connection, "vectors", "a", LONG)
        assert not outbox.acquire_lease(connection, "vectors", "b", LONG)
        assert outbox.acquire_lease(connection, "graph", "b", LONG)
        outbox.release_lease(connection, "vectors", "b")
        assert not outbox.acquire_lease(connection, "vectors", "b", LONG)
        outbox.release_lease(connection, "vectors", "a")
        assert outbox.acquire_lease(connection, "vectors", "b", LONG)


def test_a_stopped_projection_does_not_wait_for_the_lease(
    clerk: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "LEASE", LONG)
    clerk.say("Anna paints")
    with clerk.ledger.write() as connection:
        outbox.acquire_lease(connection, "vectors", "somebody", LONG)
    mine = projection(clerk, server)
    mine.stop()
    with pytest.raises(StoreUnavailable, match=CLOSED):
        mine.catch_up([])


def hold_first_upsert(server: Server, monkeypatch: pytest.MonkeyPatch) -> tuple[Event, Event]:
    """Lets the next upsert wait before it writes. Returns (set once it waits, to set when it may go on)."""
    waits, may_go_on = Event(), Event()
    real = server.upsert

    def wait_and_write(points: Sequence[Point]) -> None:
        monkeypatch.setattr(server, "upsert", real)
        waits.set()
        assert may_go_on.wait(TIMEOUT)
        real(points)

    monkeypatch.setattr(server, "upsert", wait_and_write)
    return waits, may_go_on


def test_a_process_that_lost_its_lease_cannot_restore_old_states(
    clerk: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps while another process delivers a deletion; then its old batch writes the deleted memory."""
    from graphmem.commands.types import DeleteMemory

    record, other_record = clerk.say("Anna paints"), clerk.say("Bo sings")
    late, quick = projection(clerk, server), projection(clerk, server)
    asleep, awake = hold_first_upsert(server, monkeypatch)
    monkeypatch.setattr(delivery, "LEASE", 0.2)
    sleeper = Thread(target=late.catch_up, args=([],))
    sleeper.start()
    assert asleep.wait(TIMEOUT)
    clerk.commit(DeleteMemory(record.id))
    quick.catch_up([])
    assert ids(server) == {other_record.id}
    awake.set()
    sleeper.join(TIMEOUT)
    quick.catch_up([])
    assert ids(server) == {other_record.id}
    with clerk.ledger.read() as connection:
        assert memories.total(connection) == 1


def test_after_a_reset_a_projection_is_emptied_once_the_batch_of_another_process_is_written(
    clerk: Any, server: Server, worker: ProjectionWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, may_go_on = hold_first_upsert(server, monkeypatch)
    clerk.say("Anna paints")
    other = Thread(target=projection(clerk, server).catch_up, args=([],))
    other.start()
    assert waits.wait(TIMEOUT)
    with clerk.ledger.write() as connection:
        integrity.wipe(connection)
    delivery_after_reset = worker.schedule([])
    assert not worker.wait_for(delivery_after_reset, 0.05)
    may_go_on.set()
    other.join(TIMEOUT)
    wait_until(lambda: not worker.is_overdue)
    assert worker.wait_for(delivery_after_reset, TIMEOUT)
    assert ids(server) == set()
    assert not any(worker.verify().values())


def test_a_process_that_lost_its_lease_cannot_restore_what_a_reset_erased(
    clerk: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, may_go_on = hold_first_upsert(server, monkeypatch)
    monkeypatch.setattr(delivery, "LEASE", 0.2)
    clerk.say("Anna paints")
    late, quick = projection(clerk, server), projection(clerk, server)
    sleeper = Thread(target=late.catch_up, args=([],))
    sleeper.start()
    assert waits.wait(TIMEOUT)
    with clerk.ledger.write() as connection:
        integrity.wipe(connection)
    record = clerk.say("Bo sings")
    quick.catch_up([])
    assert ids(server) == {record.id}
    may_go_on.set()
    sleeper.join(TIMEOUT)
    quick.catch_up([])
    assert ids(server) == {record.id}


@pytest.mark.thorough
def test_drain_waits_as_long_as_batches_are_delivered(
    clerk: Any, server: Server, worker: ProjectionWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "BATCH", 1)
    real, turns = server.upsert, Semaphore(0)

    def slow(points: Sequence[Point]) -> None:
        assert turns.acquire(timeout=TIMEOUT)
        real(points)

    def wait_for_one_batch(job: Any, timeout: float) -> bool:
        """Times out each time after one more batch is delivered."""
        before = worker.projection.batches_delivered
        turns.release()
        wait_until(lambda: worker.projection.batches_delivered > before or job.done())
        return waits(job, 0)

    records = [clerk.say(f"Anna paints {n}") for n in range(8)]
    waits = worker.wait_for
    with monkeypatch.context() as patch:
        patch.setattr(server, "upsert", slow)
        patch.setattr(worker, "wait_for", wait_for_one_batch)
        assert worker.drain(0)
    assert ids(server) == {record.id for record in records}
    server.may_proceed.clear()
    clerk.say("Bo sings")
    assert not worker.drain(0.1)
