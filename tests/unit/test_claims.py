"""Claims of jobs: who may take one, and that one which runs is kept while that of a killed process ends."""

from __future__ import annotations

from typing import Any

import pytest
from support.contract import Make
from support.waiting import wait_until

from graphmem import Memory
from graphmem.jobs import worker
from graphmem.jobs.worker import RenewedClaims
from graphmem.model import Scope
from graphmem.stores.ledger import jobs
from graphmem.stores.ledger.jobs import Job, JobKind

OTHER = "another process"


@pytest.fixture
def memory(make_memory: Make) -> Memory:
    return make_memory()


def new_job(memory: Memory) -> int:
    with memory.engine.ledger.write() as connection:
        return jobs.enqueue(connection, Job(JobKind.FACTS, Scope("ana"), "talk"), awaited=False).row


def is_free(memory: Memory, row: int) -> bool:
    with memory.engine.ledger.read() as connection:
        return row in jobs.claimable(connection, {JobKind.FACTS})


def claim(memory: Memory, row: int, holder: str, seconds: float = 60.0, **more: Any) -> bool:
    with memory.engine.ledger.write() as connection:
        return jobs.claim(connection, row, holder, seconds, **more)


def test_a_job_that_runs_stays_claimed(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RENEW_SECONDS", 0.01)
    row, holder = new_job(memory), memory.engine.ledger.job_holder
    assert claim(memory, row, holder, seconds=0) and is_free(memory, row)  # as one that is over soon
    renewed = RenewedClaims(memory.engine.ledger)
    with renewed.renewed(row, longest=1000):
        wait_until(lambda: not is_free(memory, row))
        assert not claim(memory, row, OTHER)
    wait_until(lambda: renewed._thread is None)


def test_a_job_that_hangs_or_that_somebody_else_has_is_not_kept(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RENEW_SECONDS", 0.01)
    asked: list[list[int]] = []
    renew = jobs.renew
    monkeypatch.setattr(jobs, "renew", lambda c, rows, *more: asked.append(list(rows)) or renew(c, rows, *more))
    hanging, taken = new_job(memory), new_job(memory)
    for row in (hanging, taken):
        assert claim(memory, row, memory.engine.ledger.job_holder, seconds=0)
    assert claim(memory, taken, OTHER, seconds=0)
    renewed = RenewedClaims(memory.engine.ledger)
    with renewed.renewed(hanging, longest=0), renewed.renewed(taken, longest=1000):
        wait_until(lambda: len(asked) > 1)
        assert asked[0] == [taken]
        assert is_free(memory, hanging) and is_free(memory, taken)


def test_a_job_that_waits_after_a_failure_is_not_taken_before_its_time(memory: Memory) -> None:
    """Such as by a message with its row that comes twice, or late; but by a call that tries all once."""
    row = new_job(memory)
    assert claim(memory, row, OTHER)
    with memory.engine.ledger.write() as connection:
        jobs.record_failure(connection, row, "LLMUnavailable")
    assert not claim(memory, row, OTHER)
    assert claim(memory, row, OTHER, also_waiting=True)


def test_a_job_that_failed_is_taken_by_its_row_once_it_is_handed_over(memory: Memory) -> None:
    row = new_job(memory)
    with memory.engine.ledger.write() as connection:
        jobs.record_failure(connection, row, "LLMUnavailable")
        connection.execute(jobs.jobs.update().values(claimable_at=0))
        assert jobs.hand_over_claimable(connection, {JobKind.FACTS}, 30.0, 10) == [row]
    assert not is_free(memory, row)
    assert claim(memory, row, OTHER)
