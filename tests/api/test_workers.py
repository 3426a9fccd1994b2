"""The setting `workers`: what a Memory leaves to other processes, and what it does itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from support.contract import Make, texts
from support.databases import POSTGRES
from support.fake_llm import fact
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings, administration
from graphmem.background import take_up_work
from graphmem.engine import Engine
from graphmem.errors import ConfigError
from graphmem.jobs import handover
from graphmem.jobs.worker import MODEL_THREADS
from graphmem.settings.schema import ThreadWorkers
from graphmem.stores.ledger import jobs
from graphmem.stores.ledger.jobs import JobKind
from graphmem.testing import ModelEndpoint

ANN = {"user_id": "ann7"}
PROCESS = {"workers": {"provider": "process"}}
SINGS = json.dumps({"facts": [fact("Sings")]})


def recorded(memory: Memory) -> list[str]:
    with memory.engine.ledger.read() as connection:
        return jobs.pending_kinds(connection, frozenset(JobKind))


@contextmanager
def worker_of(memory: Memory) -> Iterator[Engine]:
    """What `graphmem worker` runs, in this process, without its loop."""
    settings = memory.engine.settings.model_copy(update={"workers": ThreadWorkers()})
    engine = Engine(settings, in_memory=False, is_worker=True)
    try:
        yield engine
    finally:
        engine.close(wait=False)


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "FLUSH_TIMEOUT", 0.0)


@pytest.fixture
def left(make_memory: Make, tmp_path: Any) -> Callable[..., Memory]:
    return lambda **more: make_memory(tmp_path, **PROCESS, **more)


def test_without_wait_a_text_is_left_to_a_worker(left: Callable[..., Memory], no_patience: None) -> None:
    memory = left()
    assert memory.add("I drink matcha.", **ANN, wait=False)["pending"] == ["vectors", "graph"]
    assert memory.flush()["pending"][:1] == ["vectors"]
    assert recorded(memory) == ["enrichment"]
    with worker_of(memory) as worker:
        take_up_work(worker)
        wait_until(lambda: recorded(memory) == [])
    assert memory.flush() == {"pending": []}
    assert texts(memory.search("matcha", **ANN)) == ["I drink matcha."]


def test_what_a_call_waits_for_stays_in_its_process(left: Callable[..., Memory]) -> None:
    with ModelEndpoint(default=SINGS) as endpoint:
        memory = left(llm={"config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "stays"}})
        assert texts(memory.add("I sing.", **ANN)) == ["Sings"]
        assert recorded(memory) == []
        assert texts(memory.search("sings", **ANN)) == ["Sings"]


def test_facts_that_no_call_waits_for_are_drawn_by_a_worker(left: Callable[..., Memory], no_patience: None) -> None:
    with ModelEndpoint(default=SINGS) as endpoint:
        memory = left(llm={"config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "left"}})
        memory.add("I sing.", **ANN, wait=False)
        assert memory.flush()["pending"] == ["facts", "vectors", "graph"]
        memory.engine.job_worker.schedule()
        assert endpoint.requests == []
        with worker_of(memory) as worker:
            take_up_work(worker)
            wait_until(lambda: recorded(memory) == [])
        assert texts(memory.get_all(**ANN, kinds="fact")) == ["Sings"]


def test_a_worker_says_what_of_an_answer_it_could_not_use(
    left: Callable[..., Memory], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody else tells of it: the job is done, and a result with `failed` has nobody whom it could reach."""
    lost = json.dumps({"facts": [{"messages": [7], **fact("Sings")}]})
    with ModelEndpoint(default=lost) as endpoint:
        memory = left(llm={"config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "wrong"}})
        memory.add("I sing.", **ANN, wait=False)
        with worker_of(memory) as worker:
            take_up_work(worker)
            assert memory.flush() == {"pending": []}
    (told,) = [one for one in caplog.records if "could not be used" in one.message]
    assert (told.levelname, told.message[:7]) == ("WARNING", "1 parts")


def test_flush_waits_for_a_worker(left: Callable[..., Memory]) -> None:
    memory = left()
    memory.add("I drink matcha.", **ANN, wait=False)
    with worker_of(memory) as worker:
        take_up_work(worker)
        assert memory.flush() == {"pending": []}


def test_flush_does_not_wait_for_a_job_that_failed(left: Callable[..., Memory]) -> None:
    with ModelEndpoint(default="I would rather talk about the weather.") as endpoint:
        memory = left(llm={"config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "fails"}})
        assert memory.add("I sing.", **ANN)["pending"] == ["facts"]
        assert memory.flush() == {"pending": ["facts"]}
        endpoint._default = SINGS
        assert memory.retry_failed() == {"done": 1, "failed": {}, "pending": []}


def test_sessions_end_where_somebody_is_told_of_it(left: Callable[..., Memory], no_patience: None) -> None:
    with ModelEndpoint(default=SINGS) as endpoint:
        llm = {"config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "m"}}
        memory = left(llm=llm, extract="session", session_gap=0.002)
        told: list[Any] = []
        memory.on("session.end", told.append)
        memory.add("I sing.", **ANN)
        wait_until(lambda: told and recorded(memory) == ["facts"])
        with worker_of(memory) as engine:
            take_up_work(engine)
            wait_until(lambda: texts(memory.get_all(**ANN)) == ["Sings"])


def test_nights_are_left_to_a_worker(make_memory: Make, tmp_path: Any, no_patience: None) -> None:
    before, talk = datetime.now(UTC) - timedelta(days=8), "The weather was grey at noon."
    memory = make_memory(tmp_path)
    record = {"type": "memory", "text": talk, "at": before.isoformat(), "created_at": before.isoformat(), **ANN}
    memory.import_([{**record, "id": "00000000-0000-4000-8000-000000000001"}])
    memory.close()
    memory = make_memory(tmp_path, **PROCESS, lifecycle={"enabled": True, "since": "2026-01-01"})
    memory.flush()
    assert texts(memory.pending_deletion(**ANN)) == []
    with worker_of(memory) as worker:
        take_up_work(worker)
        wait_until(lambda: texts(memory.pending_deletion(**ANN)) == [talk])


@pytest.mark.parametrize("database", [POSTGRES], indirect=True)
def test_a_worker_delivers_to_servers(left: Callable[..., Memory]) -> None:
    memory = left()
    memory.add("I drink matcha.", **ANN, wait=False)
    shared = [projection for projection in memory.engine.projections if projection.shared]
    assert shared and all(projection.has_pending() for projection in shared)
    with worker_of(memory) as worker:
        take_up_work(worker)
        wait_until(lambda: worker.ledger.on_server and recorded(memory) == [])
        if memory.engine.settings.vector_store.config.is_server:
            wait_until(lambda: not any(projection.has_pending() for projection in shared))


def test_jobs_that_have_not_begun_stay_recorded_when_a_worker_ends(left: Callable[..., Memory]) -> None:
    may_answer = Event()

    def answer(_: Any) -> str:
        may_answer.wait(TIMEOUT)
        return SINGS

    with ModelEndpoint(default=answer) as endpoint:
        memory = left(llm={"config": {"openai_base_url": endpoint.url, "api_key": "any", "model": "many"}})
        for number in range(MODEL_THREADS + 2):
            memory.add("I sing.", user_id=f"u{number}", wait=False)
        with worker_of(memory) as worker:
            take_up_work(worker)
            wait_until(lambda: len(endpoint.requests) == MODEL_THREADS)
            closing = Thread(target=worker.close, kwargs={"wait": False})
            closing.start()
            wait_until(lambda: worker.job_worker._leaves_queued)
            may_answer.set()
            closing.join(TIMEOUT)
        assert len(endpoint.requests) == MODEL_THREADS
        with memory.engine.ledger.read() as connection:
            assert len(jobs.claimable(connection, {JobKind.FACTS})) == 2


@pytest.mark.parametrize("provider", ["process", "celery"])
def test_nobody_else_can_do_the_jobs_of_a_memory_in_memory(hash_models: dict[str, Any], provider: str) -> None:
    config = {"config": {"broker_url": "memory://"}} if provider == "celery" else {}
    settings = Settings.from_dict({**hash_models, "workers": {"provider": provider, **config}})
    with pytest.raises(ConfigError, match="workers: no other process"):
        Memory(":memory:", settings=settings)


def test_celery_without_its_extra_is_refused(
    hash_models: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "find_spec", lambda _: None)
    workers = {"provider": "celery", "config": {"broker_url": "redis://user:secret@127.0.0.1:1/0"}}
    with pytest.raises(ConfigError, match=r"workers: Celery and .*celery") as refused:
        Memory(tmp_path, settings=Settings.from_dict({**hash_models, "workers": workers}))
    assert "secret" not in str(refused.value)
