"""`graphmem worker` ended in a job, by SIGTERM and by SIGKILL: no job is lost, none counts twice."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.fake_llm import fact
from support.waiting import SERVER_TIMEOUT, TIMEOUT, wait_until
from support.worker_process import worker_process

from graphmem import Memory
from graphmem.stores.ledger import jobs, schema
from graphmem.stores.ledger.jobs import JobKind
from graphmem.testing import ModelEndpoint, behaviours

ANN = {"user_id": "ann7"}
ANSWER = json.dumps({"facts": [{"messages": [0], **fact("Drinks matcha")}]})
HASTY = (
    sys.executable,
    "-c",
    "from graphmem.service import limits; limits.END_SECONDS = 1.0\nfrom graphmem.cli.app import main; main()",
    "worker",
)


@pytest.fixture
def config(tmp_path: Path) -> Callable[[ModelEndpoint], Path]:
    """Writes a file of settings whose language model is an endpoint of the test."""

    def write(endpoint: ModelEndpoint) -> Path:
        llm = {"openai_base_url": endpoint.url, "api_key": "any", "model": "any", "timeout": 600}
        settings = {
            "home": str(tmp_path / "home"),
            "extractor": {"provider": "none"},
            "llm": {"config": llm},
            "workers": {"provider": "process"},
        }
        path = tmp_path / "config.json"
        path.write_text(json.dumps(settings), "utf-8")
        return path

    return write


def facts(memory: Memory) -> list[str]:
    return [one["memory"] for one in memory.get_all(**ANN, kinds="fact")["results"]]


def kinds(memory: Memory) -> set[str]:
    return {count["kind"] for count in memory.stats()["job_counts"]}


def is_claimed(memory: Memory) -> bool:
    with memory.engine.ledger.read() as connection:
        return jobs.count_unfinished(connection, {JobKind.FACTS}).is_claimed


def let_leases_end(memory: Memory) -> None:
    with memory.engine.ledger.write() as connection:
        connection.execute(schema.jobs.update().values(claimable_at=0))


def test_a_killed_worker_s_job_is_done_once_by_another_after_its_lease(config: Callable[..., Path]) -> None:
    with ModelEndpoint([behaviours.silent()], default=ANSWER) as endpoint:
        path = config(endpoint)
        with Memory.from_file(path) as memory:
            with worker_process(path) as (process, _):
                memory.add("I drink matcha.", **ANN, wait=False)
                wait_until(lambda: endpoint.requests and kinds(memory) == {"facts"}, timeout=SERVER_TIMEOUT)
                process.kill()
                process.wait()
            with worker_process(path):
                memory.add("Hello.", user_id="ben", infer=False, wait=False)
                wait_until(lambda: kinds(memory) == {"facts"})
                assert is_claimed(memory) and len(endpoint.requests) == 1
                let_leases_end(memory)
                assert memory.flush() == {"pending": []}
            assert facts(memory) == ["Drinks matcha"] and len(endpoint.requests) == 2


def test_a_worker_that_is_stopped_finishes_its_job(config: Callable[..., Path]) -> None:
    may_answer = Event()

    def answer(_: Any) -> str:
        may_answer.wait(TIMEOUT)
        return ANSWER

    with ModelEndpoint(default=answer) as endpoint:
        path = config(endpoint)
        with Memory.from_file(path) as memory, worker_process(path) as (process, _):
            memory.add("I drink matcha.", **ANN, wait=False)
            wait_until(lambda: endpoint.requests, timeout=SERVER_TIMEOUT)
            process.terminate()
            may_answer.set()
            assert process.wait(TIMEOUT) == 0
            assert facts(memory) == ["Drinks matcha"]


def test_a_worker_that_cannot_finish_in_time_hands_its_job_back(config: Callable[..., Path]) -> None:
    with ModelEndpoint([behaviours.silent()], default=ANSWER) as endpoint:
        path = config(endpoint)
        with Memory.from_file(path) as memory:
            with worker_process(path, HASTY) as (process, log):
                memory.add("I drink matcha.", **ANN, wait=False)
                wait_until(lambda: endpoint.requests, timeout=SERVER_TIMEOUT)
                process.send_signal(signal.SIGINT)
                assert process.wait(TIMEOUT) == 128 + signal.SIGTERM
                assert "work was still under way" in log.read_text("utf-8")
            assert not is_claimed(memory)
            with worker_process(path):
                assert memory.flush() == {"pending": []}
            assert facts(memory) == ["Drinks matcha"]
