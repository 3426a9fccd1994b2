"""Workers of Celery with a real Redis as broker, and ledgers on PostgreSQL: kills, outages, two machines' workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.celery_worker import (
    ANN,
    ANSWER,
    PROGRAM,
    celery_worker,
    children,
    facts,
    kinds,
    make_claimable,
    sweep,
    wait_until_done,
    write_settings,
)
from support.databases import KEY, postgres
from support.redis_server import RedisServer, needs_redis, running_redis
from support.waiting import SERVER_TIMEOUT, wait_until
from support.worker_process import background_process

from graphmem import Memory
from graphmem.testing import ModelEndpoint, behaviours

pytestmark = [pytest.mark.server, needs_redis]
Config = Callable[..., Path]
USERS = [f"u{number}" for number in range(10)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path) as server:
        yield server


@pytest.fixture
def config(tmp_path: Path, broker: RedisServer) -> Config:
    """Writes settings with that broker for a language model at a URL; further ones replace."""

    def write(url: str, **more: Any) -> Path:
        return write_settings(tmp_path / "config.json", url, {"broker_url": broker.url}, **more)

    return write


def queued(broker: RedisServer) -> int:
    from redis import Redis

    with Redis.from_url(broker.url) as client:
        return int(client.llen("graphmem"))


def test_a_killed_process_of_a_worker_loses_no_job_and_repeats_none(config: Config) -> None:
    with ModelEndpoint([behaviours.silent()], default=ANSWER) as endpoint:
        path = config(endpoint.url)
        with Memory.from_file(path) as memory, celery_worker(path) as worker:
            memory.add("I drink matcha.", **ANN, wait=False)
            wait_until(lambda: endpoint.requests, timeout=SERVER_TIMEOUT)
            (child,) = children(worker.pid)
            os.kill(child, signal.SIGKILL)
            wait_until(lambda: kinds(memory) == {"facts"}, timeout=SERVER_TIMEOUT)
            assert len(endpoint.requests) == 1
            make_claimable(memory)
            sweep(path)
            wait_until_done(memory)
            assert (facts(memory), len(endpoint.requests)) == (["Drinks matcha"], 2)


def test_jobs_whose_messages_a_broker_lost_are_done_once(config: Config, broker: RedisServer) -> None:
    with ModelEndpoint(default=ANSWER) as endpoint:
        path = config(endpoint.url)
        with Memory.from_file(path) as memory:
            for user in USERS[:3]:
                memory.add("I drink matcha.", user_id=user, wait=False)
            assert queued(broker) == 6
            broker.kill()
            broker.start()
            assert queued(broker) == 0
            with celery_worker(path):
                make_claimable(memory)
                sweep(path)
                wait_until_done(memory)
            assert [facts(memory, user_id=user) for user in USERS[:3]] == [["Drinks matcha"]] * 3
            assert len(endpoint.requests) == 3


def test_a_broker_that_is_away_holds_up_no_add_and_a_worker_finds_it_again(config: Config, broker: RedisServer) -> None:
    with ModelEndpoint(default=ANSWER) as endpoint:
        path = config(endpoint.url)
        with Memory.from_file(path) as memory, celery_worker(path):
            broker.kill()
            for user in USERS[:3]:
                assert "facts" in memory.add("I drink matcha.", user_id=user, wait=False)["pending"]
            assert endpoint.requests == []
            broker.start()
            make_claimable(memory)
            sweep(path)
            wait_until_done(memory)
            assert [facts(memory, user_id=user) for user in USERS[:3]] == [["Drinks matcha"]] * 3
            assert len(endpoint.requests) == 3


def test_a_broker_that_hangs_holds_up_no_add(config: Config, broker: RedisServer) -> None:
    with ModelEndpoint(default=ANSWER) as endpoint, Memory.from_file(config(endpoint.url)) as memory:
        broker.pause()
        assert "facts" in memory.add("I drink matcha.", **ANN, wait=False)["pending"]
        assert kinds(memory) == {"facts", "enrichment"}
        broker.resume()


def test_two_beats_send_what_was_lost_and_each_job_is_done_once(
    config: Config, broker: RedisServer, tmp_path: Path
) -> None:
    with ModelEndpoint(default=ANSWER) as endpoint, ExitStack() as running:
        path = config(endpoint.url)
        memory = running.enter_context(Memory.from_file(path))
        memory.add("I drink matcha.", **ANN, wait=False)
        broker.kill()
        broker.start()
        for number in range(2):
            files = ["--schedule", str(tmp_path / f"schedule{number}"), "--pidfile", str(tmp_path / f"pid{number}")]
            beat = [*PROGRAM, "beat", "--loglevel", "INFO", *files]
            running.enter_context(background_process(beat, "beat: Starting", GRAPHMEM_CONFIG=str(path)))
        running.enter_context(celery_worker(path, processes=2))
        wait_until_done(memory)
        assert (facts(memory), len(endpoint.requests)) == (["Drinks matcha"], 1)


def test_two_workers_on_postgres_do_each_job_once_though_one_is_killed(config: Config) -> None:
    with ModelEndpoint(default=ANSWER) as endpoint, postgres() as url, ExitStack() as running:
        path = config(endpoint.url, ledger_url=url, secret_key=KEY)
        memory = running.enter_context(Memory.from_file(path))
        doomed = running.enter_context(celery_worker(path, "one", processes=2))
        running.enter_context(celery_worker(path, "two", processes=2))
        for user in USERS:
            memory.add("I drink matcha.", user_id=user, wait=False)
            memory.engine.job_worker.sweep()
        wait_until(lambda: endpoint.requests, timeout=SERVER_TIMEOUT)
        for process in (*children(doomed.pid), doomed.pid):
            os.kill(process, signal.SIGKILL)
        make_claimable(memory)  # of four processes, also those of the other worker
        sweep(path)
        wait_until_done(memory)
        assert [facts(memory, user_id=user) for user in USERS] == [["Drinks matcha"]] * len(USERS)
        assert len(USERS) <= len(endpoint.requests) <= len(USERS) + 4
        assert memory.flush() == {"pending": []}
        assert memory.verify()["ok"]
