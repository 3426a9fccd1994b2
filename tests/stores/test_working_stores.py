"""Working memory in the process and in Redis: the conformance class of both, and what only one of them can do."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.redis_server import RedisServer, needs_redis, running_redis
from support.waiting import wait_until
from working_conformance import ANA, BEN, MOST, OpenStore, WorkingContract, said

from graphmem.errors import ConfigError
from graphmem.model import Scope
from graphmem.stores.working.memory import MAX_LISTS, ProcessWorkingMemory


class TestInTheProcess(WorkingContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        return lambda seconds, most=MOST: ProcessWorkingMemory(seconds, most)

    def test_the_least_recently_used_leave_first(self) -> None:
        store = ProcessWorkingMemory(3600.0, MOST)
        scopes = [Scope(f"user {number}") for number in range(MAX_LISTS + 1)]
        for scope in scopes[:-1]:
            store.replace(scope, [said(1)])
        assert store.recent(scopes[0]) == [said(1)]
        store.replace(scopes[-1], [said(2)])
        assert [store.recent(scope) is None for scope in scopes[:3]] == [False, True, False]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def stores() -> Iterator[list[Any]]:
    opened: list[Any] = []
    yield opened
    for store in opened:
        store.close()


@pytest.mark.server
@needs_redis
class TestInRedis(WorkingContract):
    @pytest.fixture
    def open_store(self, server: RedisServer, stores: list[Any]) -> OpenStore:
        from graphmem.stores.working.redis import RedisWorkingMemory

        def open_store(seconds: float, most: int = MOST, ledger: str | None = None) -> Any:
            stores.append(RedisWorkingMemory(server.url, ledger or str(uuid4()), seconds, most))
            return stores[-1]

        return open_store

    @pytest.fixture
    def redis(self, server: RedisServer) -> Iterator[Any]:
        from redis import Redis

        with Redis.from_url(server.url) as client:
            client.flushall()
            yield client

    def test_ledgers_have_lists_of_their_own_and_machines_with_one_ledger_share_them(
        self, open_store: OpenStore
    ) -> None:
        ledger = str(uuid4())
        one, other, foreign = open_store(60.0, ledger=ledger), open_store(60.0, ledger=ledger), open_store(60.0)
        one.replace(ANA, [said(1)])
        other.push(ANA, [said(2)])
        assert one.recent(ANA) == other.recent(ANA) == [said(1), said(2)]
        assert foreign.recent(ANA) is None
        foreign.replace(ANA, [said(3)])
        one.drop_all()
        assert other.recent(ANA) is None
        assert foreign.recent(ANA) == [said(3)]

    def test_every_key_expires_and_names_nobody(self, open_store: OpenStore, redis: Any) -> None:
        store = open_store(60.0)
        store.replace(Scope("ana@example.org", "bot"), [said(1)])
        for key in redis.keys():
            redis.pexpire(key, 20_000)
        store.push(Scope("ana@example.org", "bot"), [said(2)])  # lengthens the time again
        assert len(redis.keys()) == 2
        for key in redis.keys():
            assert 30_000 < redis.pttl(key) <= 60_000
            assert key.startswith(b"graphmem:")
            assert b"ana" not in key

    @pytest.mark.parametrize("value", ["", "no JSON", "[]", "{}", b"\xff", json.dumps({"id": 1, "row": "x"}), "deep"])
    def test_what_others_write_there_is_no_message(self, open_store: OpenStore, redis: Any, value: Any) -> None:
        store = open_store(60.0)
        store.replace(ANA, [said(1)])
        (key,) = (key for key in redis.keys() if b"partition" not in key)
        redis.rpush(key, "[" * 100_000 if value == "deep" else value)
        assert store.recent(ANA) is None
        assert not redis.exists(key)
        redis.set(key, "no list")
        assert store.recent(ANA) is None

    def test_more_lists_are_dropped_than_one_command_takes(self, open_store: OpenStore, redis: Any) -> None:
        store = open_store(60.0)
        for number in range(510):
            store.replace(Scope("ana", run_id=str(number)), [said(number)])
        store.drop_all()
        assert redis.keys() == []


@pytest.mark.server
@needs_redis
@pytest.mark.thorough
class TestOutages:
    """A server that is killed, that hangs and that comes back."""

    @pytest.fixture
    def lost(self, tmp_path: Path) -> Iterator[RedisServer]:
        with running_redis(tmp_path) as server:
            yield server

    @pytest.fixture
    def store(self, lost: RedisServer, stores: list[Any], monkeypatch: pytest.MonkeyPatch) -> Any:
        from graphmem.stores.working import redis

        monkeypatch.setattr(redis, "RETRY_SECONDS", 0.0)
        stores.append(redis.RedisWorkingMemory(lost.url, str(uuid4()), 600.0, MOST))
        stores[0].replace(ANA, [said(1)])
        return stores[0]

    def test_a_killed_server_has_no_lists_with_one_warning_until_it_is_back(
        self, lost: RedisServer, store: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        lost.kill()
        with caplog.at_level(logging.WARNING, "graphmem"):
            for _ in range(5):
                assert store.recent(ANA) is None
                store.push(ANA, [said(2)])
                store.replace(ANA, [said(2)])
                store.clear(ANA)
            assert store.is_away
            lost.start()
            assert store.recent(ANA) is None
            assert not store.is_away
        (warning,) = caplog.records
        assert "127.0.0.1" not in warning.getMessage()
        store.replace(ANA, [said(3)])
        assert store.recent(ANA) == [said(3)]

    def test_a_server_that_failed_is_not_asked_for_a_while(
        self, lost: RedisServer, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from redis import Redis

        from graphmem.stores.working import redis

        monkeypatch.setattr(redis, "RETRY_SECONDS", 3600.0)
        lost.pause()
        assert store.recent(ANA) is None
        lost.resume()
        store.push(ANA, [said(2)])
        assert store.recent(ANA) is None
        assert store.is_away
        with Redis.from_url(lost.url) as client:
            (key,) = (key for key in client.keys() if b"partition" not in key)
            assert client.llen(key) == 1

    def test_what_was_to_be_dropped_while_it_hung_is_dropped_when_it_goes_on(
        self, lost: RedisServer, store: Any
    ) -> None:
        store.replace(BEN, [said(2)])
        lost.pause()
        store.drop(ANA.partition)
        assert store.is_away
        assert store.recent(BEN) is None
        lost.resume()
        wait_until(lambda: store.recent(BEN) == [said(2)])
        assert store.recent(ANA) is None


@needs_redis
def test_no_error_has_the_password() -> None:
    from graphmem.stores.working.redis import RedisWorkingMemory

    for url in ("http://:hunter22@host", "redis://:hunter22@host:port/0", "hunter22"):
        with pytest.raises(ConfigError) as raised:
            RedisWorkingMemory(url, "ledger", 1.0, MOST)
        assert "hunter22" not in str(raised.value)
        assert raised.value.__cause__ is None
