"""Cycles of the lifecycle that run by themselves: missed nights at the opening, one cycle for all processes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.contract import Make, texts

from graphmem import Memory
from graphmem.lifecycle.nights import Nights
from graphmem.stores.ledger import jobs
from graphmem.stores.ledger import schema as tables

TALK, LIKES = "The weather was grey at noon.", "I like tea very much."
NIGHTLY = {"lifecycle": {"enabled": True, "since": "2026-01-01"}}
ONE_NIGHT = timedelta(days=1)


def said(memory: Memory, user: str, days: int = 8, *words: str) -> None:
    at = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    memory.import_(
        [
            {"type": "memory", "text": text, "at": at, "created_at": at, "user_id": user, "id": made_id(text, user)}
            for text in words or (TALK, LIKES)
        ]
    )


def made_id(*parts: str) -> str:
    return f"00000000-0000-4000-8000-{hash(parts) % 10**12:012}"


def forgotten(memory: Memory, user: str) -> list[str]:
    return texts(memory.pending_deletion(user_id=user))


def cycles(memory: Memory) -> set[Any]:
    with memory.engine.ledger.read() as connection:
        return set(connection.scalars(tables.events.select().with_only_columns(tables.events.c.batch))) - {None}


@pytest.fixture
def filled(make_memory: Make, tmp_path: Path) -> Callable[..., Memory]:
    """Opens a memory in which Ana and Ben said something eight days ago, and Cem today."""
    memory = make_memory(tmp_path, lifecycle={"enabled": False})
    said(memory, "ana")
    said(memory, "ben")
    memory.add(TALK, user_id="cem")
    memory.close()
    return lambda **more: make_memory(tmp_path, **{**NIGHTLY, **more})


def test_a_missed_night_is_made_up_for_when_the_memory_is_opened(filled: Callable[..., Memory]) -> None:
    memory = filled()
    assert memory.flush() == {"pending": []}
    assert (forgotten(memory, "ana"), forgotten(memory, "ben"), forgotten(memory, "cem")) == ([TALK], [TALK], [])
    assert len(cycles(memory)) == 2
    assert memory.stats()["pending"] == []
    assert memory.verify()["ok"]
    memory.close()
    again = filled()
    again.flush()
    assert cycles(again) == cycles(filled())


def test_no_night_without_daily_at(filled: Callable[..., Memory]) -> None:
    memory = filled(lifecycle={**NIGHTLY["lifecycle"], "daily_at": "never"})
    memory.flush()
    assert forgotten(memory, "ana") == []
    assert memory.tend(user_id="ana")["forgotten"] == 1


def test_the_night_comes_while_the_memory_is_open(
    make_memory: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make_memory(tmp_path, **NIGHTLY)
    said(memory, "ana")
    memory.flush()
    assert forgotten(memory, "ana") == []
    # The next night begins as soon as the worker looks at the clock.
    monkeypatch.setattr(Nights, "last", lambda _self, now: now)
    memory.engine.job_worker.schedule()
    memory.flush()
    assert forgotten(memory, "ana") == [TALK]


def test_two_processes_run_one_cycle(filled: Callable[..., Memory]) -> None:
    first, second = filled(), filled()
    first.flush()
    second.flush()
    assert forgotten(second, "ana") == [TALK]
    assert len(cycles(second)) == 2


def test_a_cycle_that_is_claimed_is_run_by_nobody_else_until_the_claim_ends(filled: Callable[..., Memory]) -> None:
    memory = filled(lifecycle={"enabled": False})
    ledger = memory.engine.ledger
    night = datetime.now(UTC) - ONE_NIGHT
    with ledger.write() as connection:
        for _ in range(2):
            jobs.enqueue_cycles(connection, night, None)
        rows = list(jobs.all_jobs(connection, {jobs.JobKind.CYCLE}))
        assert len(rows) == 2
        assert jobs.claim(connection, rows[0], "another process", 60)
    memory.close()
    memory = filled()
    memory.engine.job_worker.drain()
    with memory.engine.ledger.write() as connection:
        assert list(jobs.all_jobs(connection, {jobs.JobKind.CYCLE})) == rows[:1]
        jobs.claim(connection, rows[0], "another process", 0, by_force=True)
    assert len(cycles(memory)) == 1
    memory.flush()
    assert len(cycles(memory)) == 2


def test_a_night_that_changes_nothing_is_told_as_well(filled: Callable[..., Memory]) -> None:
    memory = filled()
    never = {"ended_at": None, "partitions": 0, "changed": 0, "held": 0}
    memory.flush()
    changed = {user: memory.lifecycle_status(user_id=user)["cycle_changed"] for user in ("ana", "ben", "cem")}
    assert changed == {"ana": 2, "ben": 2, "cem": None}  # Cem's memory is of today
    told = memory.stats()["last_cycles"]
    assert told == {**never, "ended_at": told["ended_at"], "partitions": 2, "changed": 4}
    for user in changed:
        memory.tend(user_id=user)
    statuses = [memory.lifecycle_status(user_id=user) for user in changed]
    assert [one["cycle_changed"] for one in statuses] == [0, 0, 0]
    assert [len(one["cycles"]) for one in statuses] == [1, 1, 0]
    latest = max(one["cycled_at"] or "" for one in statuses)
    assert memory.stats()["last_cycles"] == {**never, "ended_at": latest, "partitions": 3}
    assert memory.lifecycle_status(user_id="ana", agent_id="helper")["cycle_changed"] is None


def test_a_night_that_would_forget_much_forgets_nothing_and_says_so(
    make_memory: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"lifecycle": {**NIGHTLY["lifecycle"], "brake_memories": 2}}
    memory = make_memory(tmp_path)
    said(memory, "ana", 8, *(f"The weather was grey on hill {number}." for number in range(4)))
    memory.close()
    with caplog.at_level(logging.WARNING, "graphmem"):
        memory = make_memory(tmp_path, **config)
        memory.flush()
    assert forgotten(memory, "ana") == []
    assert "a nightly cycle over 4 memories did nothing" in caplog.text
    assert "ana" not in caplog.text
    status = memory.lifecycle_status(user_id="ana")
    assert status["cycled_at"] is not None and status["held"] is not None
    assert (status["held"]["forgotten"], status["held"]["memories"]) == (4, 4)
    assert "look at a dry run, then force" in status["held"]["reason"]
    assert memory.lifecycle_status(user_id="ana", agent_id="helper")["held"] is None
    assert (status["cycle_changed"], memory.stats()["last_cycles"]["held"]) == (0, 1)
    memory.tend(user_id="ana", dry_run=True, force=True)
    assert memory.lifecycle_status(user_id="ana")["held"] == status["held"]
    assert memory.tend(user_id="ana", force=True)["forgotten"] == 4
    assert memory.lifecycle_status(user_id="ana")["held"] is None


def test_a_night_comes_for_what_is_to_be_purged_though_nothing_may_fade_any_more(
    make_memory: Make, tmp_path: Path
) -> None:
    config = {"lifecycle": {**NIGHTLY["lifecycle"], "purge_after_days": 30}}
    memory = make_memory(tmp_path, lifecycle={**config["lifecycle"], "daily_at": "never"})
    for user, days in (("ana", 31), ("ben", 29)):
        said(memory, user, 50, TALK)
        at = datetime.now(UTC) - timedelta(days=days, hours=1)
        assert memory.tend(user_id=user, now=at)["forgotten"] == 1
    with memory.engine.ledger.write() as connection:
        connection.execute(tables.partitions.update().values(cycled_at=None))
    memory.close()
    memory = make_memory(tmp_path, **config)
    assert memory.flush() == {"pending": []}
    assert (forgotten(memory, "ana"), forgotten(memory, "ben")) == ([], [TALK])
    assert memory.get_all(user_id="ana", show_forgotten=True)["total"] == 0
    cycled = [memory.lifecycle_status(user_id=user)["cycled_at"] for user in ("ana", "ben")]
    assert (cycled[0] is not None, cycled[1]) == (True, None)
    assert memory.verify()["ok"]


def test_a_clock_set_back_forgets_nothing(make_memory: Make, tmp_path: Path) -> None:
    memory = make_memory(tmp_path, **NIGHTLY)
    said(memory, "ana", -8)
    assert memory.tend(user_id="ana")["forgotten"] == 0
    memory.close()
    memory = make_memory(tmp_path, **NIGHTLY)
    memory.flush()
    assert forgotten(memory, "ana") == []
