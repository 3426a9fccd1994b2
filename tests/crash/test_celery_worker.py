"""Workers of Celery without a server: a broker in a folder, a pool of real processes."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.celery_worker import (
    ANN,
    ANSWER,
    celery_worker,
    children,
    facts,
    kinds,
    make_claimable,
    sweep,
    wait_until_done,
    write_settings,
)
from support.waiting import SERVER_TIMEOUT, wait_until

from graphmem import Memory
from graphmem.errors import ConfigError
from graphmem.jobs.worker import CYCLE_SECONDS, model_job_seconds
from graphmem.settings import Settings
from graphmem.stores.ledger import schema
from graphmem.stores.ledger.sql import now_micros
from graphmem.testing import ModelEndpoint, behaviours


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """The folder of the broker's messages."""
    for name in ("messages", "control"):
        (tmp_path / name).mkdir()
    return tmp_path / "messages"


@pytest.fixture
def config(tmp_path: Path, broker: Path) -> Callable[..., Path]:
    """Writes settings for Celery with that broker."""
    options = {
        "data_folder_in": str(broker),
        "data_folder_out": str(broker),
        "control_folder": str(tmp_path / "control"),
    }
    celery = {"broker_url": "filesystem://", "transport_options": options}
    return lambda url: write_settings(tmp_path / "config.json", url, celery)


def messages(broker: Path) -> list[Any]:
    return [
        json.loads(base64.b64decode(json.loads(path.read_text("utf-8"))["body"]))
        for path in sorted(broker.glob("*.graphmem.msg"))
    ]


def test_a_message_has_a_row_and_nothing_else(config: Callable[..., Path], broker: Path) -> None:
    with ModelEndpoint(default=ANSWER) as endpoint, Memory.from_file(config(endpoint.url)) as memory:
        memory.add("I drink matcha.", **ANN, wait=False)
        with memory.engine.ledger.read() as connection:
            rows = set(connection.scalars(schema.jobs.select().with_only_columns(schema.jobs.c.id)))
        nothing = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
        assert sorted(messages(broker), key=str) == sorted(([[row], {}, nothing] for row in rows), key=str)
        assert len(rows) == 2
        for path in broker.iterdir():
            assert b"matcha" not in path.read_bytes() and b"ann7" not in path.read_bytes()


def test_jobs_are_done_once_however_often_their_rows_are_sent(config: Callable[..., Path]) -> None:
    with ModelEndpoint(default=ANSWER) as endpoint:
        path = config(endpoint.url)
        with Memory.from_file(path) as memory:
            memory.add("I drink matcha.", **ANN, wait=False)
            for _ in range(3):
                make_claimable(memory)
                memory.engine.job_worker.sweep()
            with celery_worker(path, processes=2):
                sweep(path)
                sweep(path)
                wait_until_done(memory)
                assert memory.flush() == {"pending": []}
            assert (facts(memory), len(endpoint.requests)) == (["Drinks matcha"], 1)
            found = memory.search("matcha", **ANN)["results"]
            assert [one["memory"] for one in found] == ["Drinks matcha"]


def test_a_job_whose_message_is_lost_is_found_by_the_sweep(config: Callable[..., Path], broker: Path) -> None:
    with ModelEndpoint(default=ANSWER) as endpoint:
        path = config(endpoint.url)
        with Memory.from_file(path) as memory, celery_worker(path):
            memory.engine.job_worker._hand_over.send.__self__._away_until = float("inf")
            memory.add("I drink matcha.", **ANN, wait=False)
            assert messages(broker) == []
            make_claimable(memory)
            sweep(path)
            wait_until_done(memory)
            assert facts(memory) == ["Drinks matcha"]


def test_a_job_of_a_killed_process_is_done_once_by_another_after_its_claim(config: Callable[..., Path]) -> None:
    with ModelEndpoint([behaviours.silent()], default=ANSWER) as endpoint:
        path = config(endpoint.url)
        with Memory.from_file(path) as memory, celery_worker(path) as worker:
            memory.add("I drink matcha.", **ANN, wait=False)
            wait_until(lambda: endpoint.requests, timeout=SERVER_TIMEOUT)
            (child,) = children(worker.pid)
            os.kill(child, signal.SIGKILL)
            wait_until(lambda: children(worker.pid) not in ([], [child]), timeout=SERVER_TIMEOUT)
            memory.add("Hello.", user_id="ben", infer=False, wait=False)
            wait_until(lambda: kinds(memory) == {"facts"}, timeout=SERVER_TIMEOUT)
            assert len(endpoint.requests) == 1
            make_claimable(memory)
            sweep(path)
            wait_until_done(memory)
            assert (facts(memory), len(endpoint.requests)) == (["Drinks matcha"], 2)


def test_a_job_that_fails_is_sent_again(config: Callable[..., Path]) -> None:
    with ModelEndpoint(["The weather is fine."] * 3, default=ANSWER) as endpoint:
        path = config(endpoint.url)
        with Memory.from_file(path) as memory, celery_worker(path):
            memory.add("I drink matcha.", **ANN, wait=False)
            wait_until(lambda: any(one["state"] == "failed" for one in memory.stats()["job_counts"]))
            make_claimable(memory)
            sweep(path)
            wait_until_done(memory)
            assert facts(memory) == ["Drinks matcha"]


def test_messages_are_json_and_come_again_only_after_the_longest_claim(config: Callable[..., Path]) -> None:
    """LIFECYCLE §12: late acknowledgements, one message at a time; the sweep comes every 30 s."""
    from graphmem.integrations.celery import make_app

    settings = Settings.from_file(config("http://127.0.0.1:1"))
    conf = make_app(settings).conf
    assert conf.accept_content == ["json"] and conf.task_serializer == "json"
    assert conf.task_acks_late and conf.task_reject_on_worker_lost and conf.task_ignore_result
    assert conf.worker_prefetch_multiplier == 1 and conf.task_default_queue == "graphmem"
    assert conf.beat_schedule == {"graphmem.sweep": {"task": "graphmem.sweep", "schedule": 30.0}}
    assert (
        conf.broker_transport_options["visibility_timeout"] > model_job_seconds(settings, has_llm=True) > CYCLE_SECONDS
    )


def test_settings_without_celery_have_no_application() -> None:
    from graphmem.integrations.celery import make_app

    with pytest.raises(ConfigError, match=r"workers\.provider: must be 'celery'"):
        make_app(Settings())


def test_a_row_is_sent_again_ever_more_rarely(config: Callable[..., Path], broker: Path) -> None:
    seconds, row = 1_000_000, schema.jobs
    with ModelEndpoint(default=ANSWER) as endpoint, Memory.from_file(config(endpoint.url)) as memory:
        memory.add("Hello.", **ANN, infer=False, wait=False)
        pauses = []
        for age in (0, 40, 600, 10_000):
            with memory.engine.ledger.write() as connection:
                connection.execute(row.update().values(claimable_at=0, created_at=now_micros() - age * seconds))
            memory.engine.job_worker.sweep()
            with memory.engine.ledger.read() as connection:
                until = connection.scalar(row.select().with_only_columns(row.c.claimable_at - row.c.created_at))
            pauses.append(until // seconds - age)
            memory.engine.job_worker.sweep()
        assert pauses == [30, 40, 600, 3600]
        assert len(messages(broker)) == 5
