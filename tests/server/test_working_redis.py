"""Working memory in a real Redis: memories that share it, erasures, outages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from support.fakes import fake_models
from support.redis_server import RedisServer, needs_redis, running_redis
from support.working_story import WORKING, Step, Story, steps

from graphmem import ChatLink, Memory, Settings
from graphmem.model import Scope
from graphmem.stores.ledger import sessions

pytestmark = [pytest.mark.server, needs_redis]
ANA: dict[str, Any] = {"user_id": "ana"}
Open = Callable[..., Memory]


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(shared_server: RedisServer) -> RedisServer:
    """An empty server."""
    from redis import Redis

    with Redis.from_url(shared_server.url) as client:
        client.flushall()
    return shared_server


@pytest.fixture
def open_memory(server: RedisServer, tmp_path: Path) -> Iterator[Open]:
    """`open_memory(home, **config)`: a Memory with this Redis, closed at the end."""
    memories: list[Memory] = []

    def open_memory(home: str = "home", **config: Any) -> Memory:
        working = {"provider": "redis", "config": {"url": server.url, **config}}
        chosen = fake_models(home=str(tmp_path / home), working=working)
        memories.append(Memory(settings=Settings.from_dict(chosen)))
        return memories[-1]

    yield open_memory
    for memory in memories:
        memory.close()


def texts(memory: Memory, **scope: Any) -> list[str]:
    return [one.text for one in memory.engine.said_before(Scope(**(scope or ANA)))]


def everything(server: RedisServer) -> str:
    """All keys and values of the server."""
    from redis import Redis

    with Redis.from_url(server.url) as client:
        values = [
            (key, client.lrange(key, 0, -1) if client.type(key) == b"list" else client.smembers(key))
            for key in client.scan_iter()
        ]
        assert all(0 < client.pttl(key) <= 30 * 60_000 for key, _ in values)
    return str(values)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(story=[("add", 0, 0, 0), ("delete", 0, 0, 0), ("add", 0, 0, 1), ("change", 0, 0, 0)])
@given(story=steps)
def test_it_gives_what_the_ledger_gives_also_to_another_machine(open_memory: Open, story: list[Step]) -> None:
    told, other = Story(open_memory("told", **WORKING)), Story(open_memory("told", **WORKING))
    told.memory.reset()
    for number, step in enumerate(story):
        (told if number % 3 else other).take(step)
        told.check()
        other.check()


def test_two_memories_share_what_was_said(open_memory: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, foreign = open_memory(), open_memory(), open_memory("elsewhere")
    one.add("I like quince", **ANA)
    assert texts(one) == ["I like quince"]
    other.add("And medlar", **ANA)
    foreign.add("I like sloe", **ANA)
    assert texts(foreign) == ["I like sloe"]
    monkeypatch.setattr(sessions, "last_said", None)  # both are answered by Redis
    assert texts(one) == texts(other) == ["I like quince", "And medlar"]


def test_erased_words_leave_redis_and_so_does_all_after_a_reset(open_memory: Open, server: RedisServer) -> None:
    one, other = open_memory(), open_memory()
    scopes = [ANA, {**ANA, "agent_id": "bot"}, {**ANA, "run_id": "run"}, {"user_id": "ben"}]
    for scope in scopes:
        for word in ("quince", "medlar", "sloe"):
            one.add(f"I like {word}", **scope)
        assert len(texts(one, **scope)) == 3
        assert "quince" in everything(server)
    uids = {hit["memory"]: hit["id"] for hit in one.get_all(**ANA)["results"]}
    other.delete_all(**scopes[3])
    other.update(uids["I like medlar"], text="I like tea")
    for scope in scopes[:3]:
        texts(one, **scope)
    assert "quince" in everything(server)
    for hit in one.get_all(**ANA)["results"]:
        if "quince" in hit["memory"]:
            other.delete(hit["id"])
    for scope in scopes:
        assert "I like quince" not in texts(one, **scope)
    assert "quince" not in everything(server)
    assert "sloe" in everything(server)
    other.delete_all(**ANA)
    assert "I like" not in everything(server)
    one.add("I like damson", **ANA)
    assert texts(one) == ["I like damson"]
    other.reset()
    assert "damson" not in everything(server)


class TestOutages:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[RedisServer]:
        with running_redis(tmp_path) as server:
            yield server

    @pytest.mark.parametrize("how", ["killed", "hanging"])
    def test_the_ledger_answers_with_one_warning_and_nothing_is_lost(
        self,
        open_memory: Open,
        server: RedisServer,
        how: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        from graphmem.stores.working import redis

        one, other = open_memory(), open_memory()
        memory_id = one.add("I like quince", **ANA)["results"][0]["id"]
        one.add("I like sloe", **ANA)
        assert texts(one) == texts(other) == ["I like quince", "I like sloe"]
        (server.kill if how == "killed" else server.pause)()
        with caplog.at_level(logging.WARNING, "graphmem"):
            one.add("I like medlar", **ANA)
            one.delete(memory_id)
            for _ in range(3):
                assert texts(one) == ["I like sloe", "I like medlar"]
            assert "medlar" in one.profile(**ANA)["context"]
            with ChatLink(one, **ANA, time_limit=60) as link:
                assert "sloe" in link.recall("And sloe?")
            assert one.stats()["working_available"] is False
        assert len(caplog.records) == 1
        (server.start if how == "killed" else server.resume)()
        # The other machine has noticed nothing, and what it finds in Redis is of the time before.
        assert texts(other) == ["I like sloe", "I like medlar"]
        monkeypatch.setattr(redis, "monotonic", lambda: float("inf"))  # long after
        assert texts(one) == ["I like sloe", "I like medlar"]
        assert one.stats()["working_available"] is True
        assert "quince" not in everything(server)
        one.add("And tea", **ANA)
        assert texts(other) == texts(one) == ["I like sloe", "I like medlar", "And tea"]
