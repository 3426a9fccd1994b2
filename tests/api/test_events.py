"""Handlers of events: in this process, and under names that outlive it."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from support.contract import Make, added
from support.fakes import fake_models
from support.statement_count import counted
from support.waiting import TIMEOUT, wait_until

from graphmem import AsyncMemory, Memory, MemoryEvent, Settings, events_bus
from graphmem.errors import StoreUnavailable, ValidationError
from graphmem.events_bus import CLOSE_SECONDS
from graphmem.model import EventType
from graphmem.stores import projection_worker
from graphmem.stores.ledger import event_log, jobs, outbox
from graphmem.stores.ledger import schema as tables


def changes(told: list[MemoryEvent]) -> list[tuple[Any, Any]]:
    return [(event.payload["change"], event.payload["memory_id"]) for event in told]


class Failing:
    """A handler that fails until it is repaired, and keeps what it took."""

    def __init__(self) -> None:
        self.is_broken, self.calls, self.told = True, 0, list[MemoryEvent]()

    def __call__(self, event: MemoryEvent) -> None:
        self.calls += 1
        if self.is_broken:
            raise RuntimeError(f"about {event.user_id}")
        self.told.append(event)


@pytest.fixture
def memory(make_memory: Make, tmp_path: Path) -> Memory:
    return make_memory(tmp_path)


# --- in this process ------------------------------------------------------------------------------------------------


def test_a_handler_is_told_of_each_change_in_order(memory: Memory) -> None:
    told: list[MemoryEvent] = []
    with memory.on("memory.added", told.append):
        uid = added(memory, "I drink tea.", user_id="ana", agent_id="bot")
        memory.update(uid, "I drink coffee.")
        memory.forget(uid)
        other = added(memory, "I like cake.", user_id="ben")
        memory.delete(other)
        memory.flush()
    assert changes(told) == [("ADD", uid), ("UPDATE", uid), ("FORGET", uid), ("ADD", other)]
    first = told[0]
    assert (first.event_type, first.user_id, first.payload["agent_id"]) == ("memory.added", "ana", "bot")
    assert first.timestamp.tzinfo is UTC
    assert [one.payload["event_id"] for one in told[:3]] == [one["id"] for one in memory.history(uid)]
    assert "tea" not in repr(told)
    added(memory, "I have closed the subscription.")
    memory.flush()
    assert len(told) == 4


def test_a_handler_that_fails_is_logged_by_its_error_alone_and_the_next_one_is_called(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[MemoryEvent] = []
    memory.on("memory.added", Failing())
    memory.on("memory.added", told.append)
    added(memory, "I drink tea.")
    memory.flush()
    assert len(told) == 1
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == [
        "the handler of an event failed (RuntimeError)"
    ]


def test_unusable_arguments_name_the_remedy(memory: Memory) -> None:
    with pytest.raises(ValidationError, match=r"event='memory\.add': did you mean 'memory\.added'\?"):
        memory.on("memory.add", print)
    with pytest.raises(ValidationError, match="event=7: must be one of 'session.end'"):
        memory.on(7, print)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="handler=<NoneType>: must be a function"):
        memory.on("memory.added", None)  # type: ignore[arg-type]
    for name in ("", "a@b", "a:b", "x" * 81, 7):
        with pytest.raises(ValidationError, match="name="):
            memory.on("memory.added", print, name=name)  # type: ignore[arg-type]


def test_a_slow_handler_holds_up_no_write_and_is_waited_for_by_close(make_memory: Make, tmp_path: Path) -> None:
    memory, told, may_go_on = make_memory(tmp_path), list[MemoryEvent](), Event()

    def slow(event: MemoryEvent) -> None:
        may_go_on.wait(TIMEOUT)
        told.append(event)

    memory.on("memory.added", slow)
    for n in range(3):
        added(memory, f"tea {n}")
    assert told == []
    may_go_on.set()
    memory.close()
    assert len(told) == 3
    with pytest.raises(StoreUnavailable):
        memory.on("memory.added", slow)


def test_a_handler_may_use_the_memory_and_close_its_own_subscription(memory: Memory) -> None:
    answers: list[Any] = []

    def once(event: MemoryEvent) -> None:
        answers.append(memory.get(event.payload["memory_id"])["memory"])
        memory.flush()
        subscription.close()

    subscription = memory.on("memory.added", once)
    added(memory, "first")
    memory.flush()
    added(memory, "another one")
    memory.flush()
    assert answers == ["first"]


def test_accesses_are_told_when_their_counts_are_written(memory: Memory) -> None:
    told: list[MemoryEvent] = []
    memory.on("memory.accessed", told.append)
    memory.on("memory.accessed", told.append, name="counts")
    uid = added(memory, "I drink tea.", user_id="ana")
    for _ in range(3):
        memory.search("tea", user_id="ana")
    memory.flush()
    assert [(one.user_id, one.payload["memory_ids"], one.payload["accesses"]) for one in told] == [
        ("ana", [uid], 3)
    ] * 2


@pytest.mark.thorough
def test_a_nightly_cycle_is_told_of_once(make_memory: Make, tmp_path: Path) -> None:
    memory = make_memory(tmp_path)
    memory.on("schedule.daily", print, name="nights").close()
    at = (datetime.now(UTC) - timedelta(days=8)).isoformat()
    record = {
        "type": "memory",
        "text": "The weather was grey.",
        "at": at,
        "created_at": at,
        "user_id": "ana",
        "id": str(uuid4()),
    }
    memory.import_([record])
    memory.close()
    told: list[MemoryEvent] = []
    memory = make_memory(tmp_path, lifecycle={"enabled": True, "since": "2026-01-01"})
    memory.on("schedule.daily", told.append, name="nights")
    memory.flush()
    memory.tend(user_id="ana")  # by hand: no night
    memory.flush()
    assert [(one.user_id, one.payload["forgotten"], one.payload["held"]) for one in told] == [("ana", 1, 0)]
    assert told[0].payload["event_id"] == memory.lifecycle_status(user_id="ana")["cycles"][0]["cycle"]


def test_coroutines_are_handlers_of_an_async_memory() -> None:
    async def live() -> list[MemoryEvent]:
        told: list[MemoryEvent] = []

        async def handler(event: MemoryEvent) -> None:
            await asyncio.sleep(0)
            told.append(event)

        async with AsyncMemory(":memory:", settings=Settings.from_dict(fake_models())) as memory:
            async with await memory.on("memory.added", handler):
                await memory.add("tea", user_id="u1")
                await memory.flush()
            async with await memory.on("memory.added", lambda event: handler(event), name="billing"):
                await memory.add("coffee", user_id="u1")
                await memory.flush()
        return told

    assert len(asyncio.run(live())) == 2


def test_a_coroutine_may_close_its_own_subscription_without_stopping_the_loop() -> None:
    async def live() -> float:
        beats = [monotonic()]

        async def handler(event: MemoryEvent) -> None:
            await subscription.close()

        async def beat() -> None:
            while True:
                await asyncio.sleep(0.05)
                beats.append(monotonic())

        async with AsyncMemory(":memory:", settings=Settings.from_dict(fake_models())) as memory:
            subscription = await memory.on("memory.added", handler)
            beating = asyncio.create_task(beat())
            await memory.add("tea", user_id="u1")
            await memory.flush()
            beating.cancel()
        return max((after - before for before, after in pairwise(beats)), default=0.0)

    assert asyncio.run(live()) < CLOSE_SECONDS


def test_what_nobody_awaits_is_a_failure(memory: Memory) -> None:
    async def handler(event: MemoryEvent) -> None:
        told.append(event)

    told: list[MemoryEvent] = []
    with pytest.raises(ValidationError, match="use AsyncMemory.on"):
        memory.on("memory.added", handler, name="billing")
    with memory.on("memory.added", lambda event: handler(event), name="billing"):
        added(memory, "first")
        memory.flush()
    with memory.on("memory.added", told.append, name="billing"):
        memory.flush()
    assert len(told) == 1


def test_a_slow_handler_moves_its_cursor_without_its_lease(memory: Memory, tmp_path: Path) -> None:
    """Another process has the lease by the time that the call ends, and would call for the event for ever."""
    told: list[MemoryEvent] = []

    def slow(event: MemoryEvent) -> None:
        told.append(event)
        with memory.engine.ledger.write() as connection:
            connection.execute(tables.leases.update().values(holder="another"))

    with memory.on("memory.added", slow, name="billing"):
        added(memory, "first")
        wait_until(lambda: told)
        memory.flush()
    with memory.engine.ledger.read() as connection:
        place = outbox.follower(EventType.MEMORY_ADDED, "billing")
        assert outbox.cursor(connection, place) == event_log.last_row(connection, EventType.MEMORY_ADDED)


# --- under a name ---------------------------------------------------------------------------------------------------


def test_a_name_goes_on_where_it_was_and_a_new_one_begins_now(make_memory: Make, tmp_path: Path) -> None:
    memory, told = make_memory(tmp_path), list[MemoryEvent]()
    added(memory, "before")
    memory.on("memory.added", told.append, name="billing")
    first = added(memory, "first")
    memory.flush()
    memory.close()
    memory = make_memory(tmp_path)
    second = added(memory, "another one")  # while nobody serves the name
    memory.flush()
    memory.on("memory.added", told.append, name="billing")
    third = added(memory, "third")
    memory.flush()
    assert changes(told) == [("ADD", first), ("ADD", second), ("ADD", third)]


def test_a_name_is_told_what_another_process_has_committed(
    make_memory: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_bus, "POLL_SECONDS", 0.01)
    serving, writing, told = make_memory(tmp_path), make_memory(tmp_path), list[MemoryEvent]()
    serving.on("memory.added", told.append, name="billing")
    ids = [added(writing, f"tea {n}") for n in range(3)]
    wait_until(lambda: changes(told) == [("ADD", uid) for uid in ids])


def test_of_two_processes_with_one_name_one_at_a_time_is_told(make_memory: Make, tmp_path: Path) -> None:
    memories, told = [make_memory(tmp_path) for _ in range(2)], list[MemoryEvent]()
    for memory in memories:
        memory.on("memory.added", told.append, name="billing")
    ids = [added(memories[n % 2], f"tea {n}") for n in range(10)]
    wait_until(lambda: len(told) >= 10)
    assert changes(told) == [("ADD", uid) for uid in ids]


def test_a_handler_that_fails_is_called_again_and_holds_up_its_own_name_alone(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(projection_worker, "RETRY_MAX", 0.01)
    failing, told = Failing(), list[MemoryEvent]()
    memory.on("memory.added", failing, name="billing")
    memory.on("memory.added", told.append, name="other")
    ids = [added(memory, f"tea {n}") for n in range(3)]
    wait_until(lambda: len(told) == 3)
    wait_until(lambda: failing.calls >= 3)
    assert failing.told == []
    failing.is_broken = False
    wait_until(lambda: len(failing.told) == 3)
    assert changes(failing.told) == changes(told) == [("ADD", uid) for uid in ids]
    messages = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert messages[0] == "a handler failed at an event (RuntimeError); it is called again"
    assert "works again" in messages[1]
    assert len(messages) == 2


def test_what_a_failing_handler_took_before_is_not_told_again(make_memory: Make, tmp_path: Path) -> None:
    memory, told, ids = make_memory(tmp_path), list[MemoryEvent](), list[str]()
    memory.on("memory.added", told.append, name="billing").close()
    ids += [added(memory, "tea"), added(memory, "cake")]

    def takes_tea(event: MemoryEvent) -> None:
        if event.payload["memory_id"] == ids[1]:
            raise ValueError
        told.append(event)

    memory.on("memory.added", takes_tea, name="billing")
    wait_until(lambda: told)
    memory.close()
    memory = make_memory(tmp_path)
    memory.on("memory.added", told.append, name="billing")
    memory.flush()
    assert changes(told) == [("ADD", ids[0]), ("ADD", ids[1])]


def test_erased_memories_are_not_told_of_and_a_reset_leaves_the_name_in_place(memory: Memory) -> None:
    told: list[MemoryEvent] = []
    memory.on("memory.added", told.append, name="billing").close()
    memory.delete(added(memory, "tea"))
    kept = added(memory, "cake")
    memory.on("memory.added", told.append, name="billing")
    memory.flush()
    assert changes(told) == [("ADD", kept)]
    memory.delete(added(memory, "water"))
    memory.flush()
    with memory.engine.ledger.read() as connection:  # what is erased is not looked through again
        place = outbox.follower(EventType.MEMORY_ADDED, "billing")
        assert outbox.cursor(connection, place) == event_log.last_row(connection, EventType.MEMORY_ADDED)
    told[1:] = []  # it may have been told before it was erased
    memory.reset()
    again = added(memory, "water")
    memory.flush()
    assert changes(told) == [("ADD", kept), ("ADD", again)]


def test_an_import_is_told_with_the_history_that_it_brings(make_memory: Make, tmp_path: Path) -> None:
    source = make_memory(tmp_path / "source")
    uid = added(source, "tea", user_id="ana")
    source.update(uid, "cake")
    source.delete(added(source, "gone"))
    source.export(tmp_path / "export.jsonl")
    memory = make_memory(tmp_path / "other")
    here: list[MemoryEvent] = []
    named: list[MemoryEvent] = []
    memory.on("memory.added", here.append)
    memory.on("memory.added", named.append, name="billing")
    memory.import_(tmp_path / "export.jsonl")
    memory.flush()
    assert changes(here) == [("ADD", uid), ("UPDATE", uid)]
    assert named == here


def test_a_name_serves_an_event_once_in_a_process_and_is_forgotten(memory: Memory) -> None:
    told: list[MemoryEvent] = []
    memory.on("memory.added", told.append, name="billing")
    memory.on("memory.accessed", told.append, name="billing")
    with pytest.raises(ValidationError, match="name: this process has a handler"):
        memory.on("memory.added", told.append, name="billing")
    assert memory.forget_subscriber("billing") == {"forgotten": ["memory.accessed", "memory.added"]}
    assert memory.forget_subscriber("billing") == {"forgotten": []}
    added(memory, "tea")
    memory.flush()
    assert told == []
    with memory.engine.ledger.read() as connection:
        rows = connection.execute(tables.leases.select()).all()
        assert not [row for row in rows if row.projection.startswith(outbox.FOLLOWERS)]
    memory.on("memory.added", told.append, name="billing")
    added(memory, "cake")
    memory.flush()
    assert len(told) == 1


def test_cursors_of_names_keep_no_tombstone_of_a_projection(memory: Memory) -> None:
    """Followers count rows of the log, projections sequence numbers: the two are never compared."""
    memory.on("memory.added", print, name="billing").close()
    for n in range(5):
        memory.delete(added(memory, f"Anna met Bob{n} in Porto."))
    memory.flush()
    assert memory.verify()["ok"]
    with memory.engine.ledger.read() as connection:
        assert not connection.execute(tables.tombstones.select().where(tables.tombstones.c.kind == "entity")).all()


def test_what_nobody_follows_is_recorded_nowhere_and_old_occurrences_go(
    make_memory: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make_memory(tmp_path, lifecycle={"enabled": True, "daily_at": "never"})
    added(memory, "I drink tea.", user_id="ana")

    def recorded_after_a_search() -> int:
        memory.search("tea", user_id="ana")
        memory.flush()
        with memory.engine.ledger.read() as connection:
            return len(connection.execute(tables.occurrences.select()).all())

    memory.on("memory.accessed", print)
    assert recorded_after_a_search() == 0
    memory.on("memory.accessed", print, name="counts").close()
    assert (recorded_after_a_search(), recorded_after_a_search()) == (1, 2)
    monkeypatch.setattr(event_log, "KEPT", timedelta(seconds=-1))
    assert recorded_after_a_search() == 0


def test_an_add_of_who_subscribes_to_nothing_costs_no_statement_more(make_memory: Make, tmp_path: Path) -> None:
    def cost(memory: Memory) -> int:
        memory.add("I drink tea.", user_id="ana", infer=False)
        memory.flush()
        with counted() as counts:
            memory.engine.commit([])
            memory.add("I drink coffee.", user_id="ana")
        return counts["statements"]

    plain = cost(make_memory(tmp_path / "plain"))
    listening = make_memory(tmp_path / "listening")
    listening.on("memory.added", lambda _: None)
    assert cost(listening) == plain


def test_an_end_of_a_session_that_failed_is_pending(memory: Memory) -> None:
    """One that goes on is not."""
    memory.on("session.end", lambda _: None)
    memory.add("I drink tea.", user_id="ana")
    assert memory.flush() == {"pending": []}
    with memory.engine.ledger.write() as connection:
        (row,) = jobs.all_jobs(connection, {jobs.JobKind.SESSION})
        jobs.record_failure(connection, row, "StoreUnavailable")
    assert memory.flush() == {"pending": ["session"]}
    assert memory.end_session(user_id="ana") == {"ended": True}
    assert memory.flush() == {"pending": []}
