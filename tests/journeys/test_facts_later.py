"""Jobs for a language model that could not be completed at once: when they are retried, and by which process."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.fake_llm import fact
from support.fakes import fake_models
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.ingest.facts.pipeline import FactPipeline
from graphmem.stores.ledger import jobs, schema
from graphmem.testing import ModelEndpoint

ANN = {"user_id": "ann7"}
SINGS = json.dumps({"facts": [fact("Sings")]})
NONSENSE = "I would rather talk about the weather."
model_names = (f"later-{number}" for number in count())


def open_memory(endpoint: ModelEndpoint, place: str = ":memory:", **more: Any) -> Memory:
    config = {"openai_base_url": endpoint.url, "api_key": "any", "model": next(model_names), "timeout": 3 * TIMEOUT}
    return Memory(place, settings=Settings.from_dict(fake_models(llm={"provider": "openai", "config": config}, **more)))


def list_facts(memory: Memory) -> list[str]:
    return [one["memory"] for one in memory.get_all(**ANN, kinds="fact")["results"]]


@pytest.mark.parametrize("waits", [True, False])
def test_a_failed_job_is_tried_again_without_another_call(monkeypatch: pytest.MonkeyPatch, *, waits: bool) -> None:
    monkeypatch.setattr(jobs, "RETRY_BASE", 0.05)
    with ModelEndpoint([NONSENSE] * 6, default=SINGS) as endpoint, open_memory(endpoint) as memory:
        assert "facts" in memory.add("I sing.", **ANN, wait=waits)["pending"]
        wait_until(lambda: list_facts(memory) == ["Sings"])
        assert memory.stats()["pending"] == []


def test_a_job_may_fail_thousands_of_times() -> None:
    with ModelEndpoint(default=NONSENSE) as endpoint, open_memory(endpoint) as memory:
        memory.add("I sing.", **ANN)
        with memory.engine.ledger.write() as connection:
            connection.execute(schema.jobs.update().values(attempts=5000))
        assert memory.retry_failed()["failed"] == {"LLMUnusable": 1}
        endpoint._default = SINGS
        assert memory.retry_failed() == {"done": 1, "failed": {}, "pending": []}


class CommitHook:
    """Calls `then` with the row id of the job after each commit of the memory that enqueues one."""

    def __init__(self, memory: Memory, monkeypatch: pytest.MonkeyPatch, then: Callable[[int], None]) -> None:
        commit = memory.engine.commit

        def commit_and_call(*arguments: Any) -> Any:
            outcomes = commit(*arguments)
            if outcomes[-1].event == "ENQUEUE_JOB":
                then(int(outcomes[-1].id))
            return outcomes

        monkeypatch.setattr(memory.engine, "commit", commit_and_call)


def test_a_worker_leaves_a_job_to_the_call_that_waits_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    with (
        ModelEndpoint(default=SINGS) as endpoint,
        open_memory(endpoint, home) as mine,
        open_memory(endpoint, home) as other,
    ):

        def run_worker(_: int) -> None:
            other.engine.job_worker.schedule()
            other.engine.job_worker.close(finish=True)

        CommitHook(mine, monkeypatch, run_worker)
        assert [one["memory"] for one in mine.add("I sing.", **ANN)["results"]] == ["Sings"]


def test_a_job_claimed_by_another_process_is_pending(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, release = str(tmp_path / "home"), Event()

    def answer(_: Any) -> str:
        release.wait(TIMEOUT)
        return SINGS

    with (
        ModelEndpoint(default=answer) as endpoint,
        open_memory(endpoint, home) as mine,
        open_memory(endpoint, home) as other,
    ):

        def claim_job(row: int) -> None:
            other.engine.job_worker.run(row, jobs.JobKind.FACTS)
            wait_until(lambda: endpoint.requests)

        CommitHook(mine, monkeypatch, claim_job)
        assert "facts" in mine.add("I sing.", **ANN)["pending"]
        release.set()
        wait_until(lambda: list_facts(mine) == ["Sings"])


def test_the_same_fact_stored_before_the_search_for_near_facts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    near_memories, add_all = (
        FactPipeline.near_memories,
        json.dumps({"memory": [{"fact": 0, "event": "ADD", "id": None, "text": "Sings"}]}),
    )
    with ModelEndpoint([SINGS, SINGS], default=add_all) as endpoint, open_memory(endpoint) as memory:

        def add_meanwhile(*arguments: Any) -> Any:
            monkeypatch.setattr(FactPipeline, "near_memories", near_memories)
            memory.add("Singing is what I do.", **ANN)
            return near_memories(*arguments)

        monkeypatch.setattr(FactPipeline, "near_memories", add_meanwhile)
        assert [one["event"] for one in memory.add("I sing.", **ANN)["results"]] == ["NONE"]
        assert list_facts(memory) == ["Sings"]
