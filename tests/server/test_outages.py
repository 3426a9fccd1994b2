"""Real servers that are killed, that hang, and that come back empty, while others write and read.

TEST_SERVERS names a program that starts and stops them: `up|kill|pause|resume|wipe NAME...`, for the names
neo4j and qdrant; NEO4J_URI and QDRANT_URL say where they are. Nothing else may use them meanwhile.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from support.servers import NEO4J, QDRANT, graph_config, vector_config
from support.waiting import SERVER_TIMEOUT, SLOWNESS, TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.errors import ConfigError, GraphmemError, PartialWrite

CONTROL = os.environ.get("TEST_SERVERS", "")
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not (CONTROL and NEO4J and QDRANT), reason="set TEST_SERVERS, NEO4J_URI and QDRANT_URL (see this file)"
    ),
]
# Server by the projection it holds.
SERVERS = {"graph": "neo4j", "vectors": "qdrant"}
LOAD_SECONDS = 60


def control(verb: str, *names: str) -> None:
    subprocess.run([CONTROL, verb, *names], check=True, capture_output=True, timeout=180 * SLOWNESS)


@pytest.fixture(autouse=True)
def _all_up() -> Iterator[None]:
    control("up", *SERVERS.values())
    yield
    control("resume", *SERVERS.values())
    control("up", *SERVERS.values())


@pytest.fixture
def opened(tmp_path: Path, hash_models: dict[str, Any]) -> Iterator[Callable[..., Memory]]:
    """`opened(**config)`: a Memory of one ledger on both servers, closed and emptied at the end."""
    memories: list[Memory] = []
    collection = f"outages-{uuid4().hex[:8]}"

    def open_memory(**config: Any) -> Memory:
        settings = {
            **hash_models,
            "home": str(tmp_path),
            "extractor": {"provider": "spacy"},
            "vector_store": vector_config(collection),
            "graph_store": graph_config(),
            **config,
        }
        memories.append(Memory(settings=Settings.from_dict(settings)))
        return memories[-1]

    yield open_memory
    control("resume", *SERVERS.values())
    control("up", *SERVERS.values())
    for memory in memories:
        memory.close()
    with open_memory() as last:
        last.reset()
    from qdrant_client import QdrantClient

    client = QdrantClient(QDRANT, check_compatibility=False)
    client.delete_collection(collection)
    client.close()


def until(condition: Callable[[], object]) -> None:
    wait_until(condition, timeout=SERVER_TIMEOUT)


def is_reported_unavailable(memory: Memory, projection: str) -> bool:
    """Whether calls no longer wait for the server of this projection."""
    (worker,) = [one for one in memory.engine.backends.projection_workers if one.name == projection]
    return worker.is_unavailable or worker.is_overdue


def search_texts(memory: Memory, question: str) -> list[str]:
    return [hit["memory"] for hit in memory.search(question, user_id="ana")["results"]]


def wait_until_delivered(memory: Memory) -> None:
    """Waits until everything is delivered, without a call that delivers."""
    until(lambda: not memory.stats()["pending"])


def find_errors(memory: Memory) -> dict[str, Any] | None:
    """The report of `verify` if it is not ok, once all servers are reachable."""
    until(lambda: not any(lines["unreachable"] for lines in memory.verify()["projections"].values()))
    report = memory.verify()
    return None if report["ok"] else report


@pytest.mark.parametrize("outage", ["kill", "pause"])
@pytest.mark.parametrize("projection", ["graph", "vectors"])
def test_an_outage_loses_no_memory_and_fails_no_call(
    projection: str, outage: str, opened: Callable[..., Memory]
) -> None:
    memory, server = opened(), SERVERS[projection]
    memory.add("Clara moved to Lisbon.", user_id="ana")
    deleted = memory.add("Clara dislikes rain.", user_id="ana")["results"][0]["id"]
    assert search_texts(memory, "Where did Clara move?")
    wait_until_delivered(memory)

    control(outage, server)
    added = memory.add("Clara paints boats.", user_id="ana")
    assert projection in added["pending"]
    answer = memory.search("What does Clara paint?", user_id="ana")
    assert answer["degraded"] == [projection]
    assert any("Clara" in hit["memory"] for hit in answer["results"])
    assert is_reported_unavailable(memory, projection)
    again = memory.add("Clara sings.", user_id="ana")
    receipt = memory.delete(deleted)
    answer = memory.search("Does Clara sing?", user_id="ana")
    assert again["pending"] == receipt["pending"] == answer["degraded"] == [projection]
    with pytest.raises(PartialWrite) as partial:
        memory.add("Clara is tall.", user_id="ana", strict=True)
    assert partial.value.result["results"][0]["event"] == "ADD"
    assert memory.get_all(user_id="ana")["total"] == 4

    control("resume" if outage == "pause" else "up", server)
    wait_until_delivered(memory)
    assert find_errors(memory) is None
    assert "Clara paints boats." in search_texts(memory, "What does Clara paint?")
    assert "degraded" not in memory.search("Does Clara sing?", user_id="ana")
    assert "Clara dislikes rain." not in search_texts(memory, "Does Clara dislike rain?")


@pytest.mark.parametrize("outage", [pytest.param("kill", marks=pytest.mark.quick), "pause"])
def test_both_servers_are_away(outage: str, opened: Callable[..., Memory]) -> None:
    memory = opened()
    memory.add("Clara moved to Lisbon.", user_id="ana")
    wait_until_delivered(memory)
    control(outage, *SERVERS.values())
    answer = memory.search("Where did Clara move?", user_id="ana")
    assert answer["degraded"] == ["graph", "vectors"]
    added = memory.add("Clara sings.", user_id="ana")
    assert sorted(added["pending"]) == ["graph", "vectors"]
    control("resume" if outage == "pause" else "up", *SERVERS.values())
    wait_until_delivered(memory)
    assert find_errors(memory) is None


@pytest.mark.parametrize("projection", ["graph", "vectors"])
def test_opening_without_a_server(projection: str, opened: Callable[..., Memory]) -> None:
    opened().close()
    control("kill", SERVERS[projection])
    memory = opened()
    assert memory.add("Clara moved to Lisbon.", user_id="ana")["pending"] == [projection]
    control("up", SERVERS[projection])
    wait_until_delivered(memory)
    assert find_errors(memory) is None


@pytest.mark.parametrize("projection", ["graph", "vectors"])
def test_a_program_ends_although_a_server_is_away(projection: str, opened: Callable[..., Memory]) -> None:
    memory = opened()
    memory.add("Clara moved to Lisbon.", user_id="ana")
    control("pause", SERVERS[projection])
    memory.add("Clara sings.", user_id="ana")
    memory.close()
    control("resume", SERVERS[projection])
    again = opened()
    wait_until_delivered(again)
    assert find_errors(again) is None


@pytest.mark.parametrize("projection", ["graph", "vectors"])
def test_a_disk_that_is_wiped_while_we_work(projection: str, opened: Callable[..., Memory]) -> None:
    memory = opened()
    for number in range(30):
        memory.add(f"Clara paints boat number {number}.", user_id="ana")
    wait_until_delivered(memory)
    control("wipe", SERVERS[projection])
    control("up", SERVERS[projection])
    report = memory.verify()
    assert report["projections"][projection]["missing"] or report["projections"][projection]["unreachable"]
    until(lambda: memory.verify()["ok"])
    until(lambda: "degraded" not in memory.search("What does Clara paint?", user_id="ana"))
    assert len(search_texts(memory, "What does Clara paint?")) == 10


@pytest.mark.parametrize("projection", ["graph", "vectors"])
def test_a_disk_that_was_wiped_is_noticed_at_opening(projection: str, opened: Callable[..., Memory]) -> None:
    first = opened()
    for number in range(30):
        first.add(f"Clara paints boat number {number}.", user_id="ana")
    wait_until_delivered(first)
    first.close()
    control("wipe", SERVERS[projection])
    control("up", SERVERS[projection])
    memory = opened()
    until(lambda: "degraded" not in memory.search("What does Clara paint?", user_id="ana"))
    until(lambda: memory.verify()["ok"])


@pytest.mark.parametrize("projection", ["graph", "vectors"])
def test_repair_after_a_wipe(projection: str, opened: Callable[..., Memory]) -> None:
    memory = opened()
    memory.add("Clara paints boats.", user_id="ana")
    wait_until_delivered(memory)
    control("wipe", SERVERS[projection])
    control("up", SERVERS[projection])
    report = memory.verify(repair=True)
    until(lambda: memory.repair()["ok"])
    assert report["repaired"]["ok"] is False


def test_a_wrong_password_is_reported_at_opening(opened: Callable[..., Memory]) -> None:
    opened().add("Clara paints boats.", user_id="ana")
    secret = "wrong-" + uuid4().hex
    with pytest.raises(ConfigError) as error:
        opened(graph_store={"provider": "neo4j", "config": {"url": NEO4J, "password": secret}})
    assert "password" in str(error.value)
    assert secret not in str(error.value)
    assert len(opened().get_all(user_id="ana")["results"]) == 1


# --- under load ------------------------------------------------------------------------------------------------------


class Writer:
    """Adds, updates and deletes in a partition of its own, and keeps the acknowledged texts."""

    def __init__(self, memory: Memory, number: int) -> None:
        self._memory, self._user = memory, f"user{number}"
        self._random = random.Random(number)
        self.texts: dict[str, str] = {}
        self.deleted: dict[str, str] = {}
        self.errors: list[str] = []
        self.calls = 0

    def run(self, stop: Event) -> None:
        while not stop.is_set():
            self.calls += 1
            try:
                self._act()
            except GraphmemError as error:  # an error of this test: the ledger is up all the time
                self.errors.append(repr(error))

    def _act(self) -> None:
        lot = self._random.random()
        if lot < 0.6 or not self.texts:
            text = f"Clara told Bruno about boat {self._user} {self.calls} in Lisbon."
            added = self._memory.add(text, user_id=self._user)["results"][0]
            self.texts[added["id"]] = text
        elif lot < 0.8:
            uid, text = self._random.choice(list(self.texts)), f"Bruno sold boat {self._user} {self.calls} to Clara."
            self._memory.update(uid, text)
            self.texts[uid] = text
        else:
            uid = self._random.choice(list(self.texts))
            self._memory.delete(uid)
            self.deleted[uid] = self.texts.pop(uid)

    def list_lost(self) -> set[str]:
        stored = {
            one["id"]: one["memory"] for one in self._memory.get_all(user_id=self._user, limit=100_000)["results"]
        }
        return {uid for uid in stored.keys() | self.texts.keys() if stored.get(uid) != self.texts.get(uid)}


class Reader:
    """Searches, and reports deleted memories among the hits."""

    def __init__(self, memory: Memory, writer: Writer) -> None:
        self._memory, self._writer = memory, writer
        self.errors: list[str] = []
        self.calls = 0

    def run(self, stop: Event) -> None:
        while not stop.is_set():
            deleted = set(self._writer.deleted)
            try:
                answer = self._memory.search("Who sold Clara a boat?", user_id=self._writer._user)
            except GraphmemError as error:
                self.errors.append(repr(error))
                continue
            self.calls += 1
            self.errors += [hit["id"] for hit in answer["results"] if hit["id"] in deleted]


def test_servers_are_killed_at_random_under_load(opened: Callable[..., Memory]) -> None:
    memory = opened()
    memory.add("Clara paints boats.", user_id="user0")
    writers = [Writer(memory, number) for number in range(1, 5)]
    readers = [Reader(memory, writer) for writer in writers]
    stop = Event()
    threads = [Thread(target=one.run, args=(stop,)) for one in (*writers, *readers)]
    for thread in threads:
        thread.start()
    dice, end, kills = random.Random(7), time.monotonic() + LOAD_SECONDS, 0
    while time.monotonic() < end or kills < 3:  # a busy machine starts a server slowly
        server = dice.choice(list(SERVERS.values()))
        control("kill", server)
        kills += 1
        time.sleep(dice.uniform(0.2, 3))
        control("up", server)
        time.sleep(dice.uniform(0.2, 3))
    stop.set()
    for thread in threads:
        thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in threads)
    assert [writer.errors for writer in writers] == [[]] * 4
    assert [reader.errors for reader in readers] == [[]] * 4
    wait_until_delivered(memory)
    assert find_errors(memory) is None
    assert [writer.list_lost() for writer in writers] == [set()] * 4
    for writer in writers:
        memory.delete_all(user_id=writer._user)
    wait_until_delivered(memory)
    assert find_errors(memory) is None
    assert min(one.calls for one in (*writers, *readers)) > 10
