"""Several processes on one folder, and several threads on one Memory."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest
from child import open_memory, settings
from support.waiting import TIMEOUT, wait_until
from victims import in_memory, words_in_files

from graphmem import Memory
from graphmem.errors import GraphmemError, NotFoundError

THREADS, TURNS = 8, 8


class Peer:
    """A Memory in a process of its own."""

    def __init__(self, home: Path, graph: str = "ledger", *, wait: bool = True) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("child.py")), "peer", str(home), graph],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if wait:
            self.wait_until_open()

    def wait_until_open(self) -> None:
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read()
        assert json.loads(line)["opened"]

    def ask(self, call: str, *args, **named):
        self.send(call, *args, **named)
        return self.answer()

    def send(self, call: str, *args, **named) -> None:
        self._process.stdin.write(json.dumps({"call": call, "args": args, "named": named}) + "\n")
        self._process.stdin.flush()

    def answer(self):
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read()
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def end(self) -> None:
        self._process.kill()
        self._process.wait(TIMEOUT)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            pipe.close()


@pytest.fixture
def home():
    """A new folder: these tests are about order, not about disks."""
    with in_memory() as folder:
        yield folder / "home"


@pytest.fixture
def peers():
    started: list[Peer] = []

    def make(home: Path, graph: str = "ledger", *, wait: bool = True) -> Peer:
        started.append(Peer(home, graph, wait=wait))
        return started[-1]

    yield make
    for peer in started:
        peer.end()


def texts(response) -> dict[str, str]:
    return {one["id"]: one["memory"] for one in response["results"]}


def hit_ids(response) -> list[str]:
    assert "degraded" not in response
    return [hit["id"] for hit in response["results"]]


@pytest.mark.parametrize("graph", ["ledger", "networkx"])
def test_two_processes_see_each_other(graph: str, home: Path, peers):
    first = open_memory(home, graph=graph)
    second = peers(home, graph)
    (mine,) = texts(first.add("Ada keeps zebrafinches", user_id="u"))
    assert hit_ids(second.ask("search", "zebrafinches", user_id="u")) == [mine]
    (theirs,) = texts(second.ask("add", "Bob keeps mudskippers", user_id="u"))
    assert theirs in hit_ids(first.search("who keeps mudskippers", user_id="u"))
    second.ask("update", mine, "Ada keeps nightjars")
    assert first.search("nightjars", user_id="u")["results"][0]["memory"] == "Ada keeps nightjars"
    assert "Ada keeps zebrafinches" not in texts(first.search("zebrafinches", user_id="u")).values()
    first.update(theirs, "Bob keeps axolotls")
    assert "Bob keeps axolotls" in texts(second.ask("search", "axolotls", user_id="u")).values()
    second.ask("delete", mine)
    assert mine not in hit_ids(first.search("Ada keeps nightjars", user_id="u"))
    (again,) = texts(first.add("Cleo keeps pangolins", user_id="u"))
    first.delete(theirs)
    assert hit_ids(second.ask("search", "Bob keeps axolotls", user_id="u")) == [again]
    assert first.verify()["ok"], first.verify()
    assert second.ask("verify")["ok"]
    assert second.ask("get_all", user_id="u")["total"] == first.get_all(user_id="u")["total"] == 1
    first.close()
    second.ask("add", "Dan keeps hornbills", user_id="u")
    assert len(hit_ids(second.ask("search", "keeps hornbills", user_id="u"))) == 2
    assert second.ask("verify")["ok"]
    second.ask("close")
    assert words_in_files(home, ["nightjars", "mudskippers"]) == []
    with open_memory(home, graph=graph) as third:
        third.flush()
        assert third.verify()["ok"], third.verify()
        assert "Dan keeps hornbills" in texts(third.search("hornbills", user_id="u")).values()


def test_two_processes_writing_at_once_lose_nothing(home: Path, peers):
    first, second = peers(home), peers(home)
    for number in range(15):
        for peer, name in ((first, "a"), (second, "b")):
            peer.send("add", f"{name}{number} says Word{name}{number}", user_id="u", wait=number % 2 == 0)
        for peer in (first, second):
            assert peer.answer()["results"][0]["event"] == "ADD"
    for peer in (first, second):
        peer.ask("flush")
    for peer in (first, second):
        assert peer.ask("get_all", user_id="u", limit=1000)["total"] == 30
        hit_texts = texts(peer.ask("search", "says", user_id="u", top_k=100))
        assert len(hit_texts) == 30
    for peer in (first, second):
        report = peer.ask("verify")
        assert report["ok"], report
        assert report["ledger"]["memories"] == 30


def test_the_same_message_from_two_processes_is_stored_once(home: Path, peers):
    first, second = peers(home), peers(home)
    events = []
    for number in range(10):
        message = {"role": "user", "content": f"same words {number}", "id": f"m{number}"}
        for peer in (first, second):
            peer.send("add", message, user_id="u")
        events += [peer.answer()["results"][0]["event"] for peer in (first, second)]
    assert sorted(events) == ["ADD"] * 10 + ["NONE"] * 10
    assert first.ask("verify")["ok"] and second.ask("verify")["ok"]


def test_many_processes_make_a_new_folder_at_once(home: Path, peers):
    opening = [peers(home, wait=False) for _ in range(4)]
    for peer in opening:
        peer.wait_until_open()
    for number, peer in enumerate(opening):
        peer.ask("add", f"process {number}", user_id="u")
    assert {peer.ask("get_all", user_id="u")["total"] for peer in opening} == {4}


def test_what_a_killed_process_stored_is_there_for_the_others(home: Path, peers):
    first, second = peers(home), peers(home)
    first.ask("add", "one", user_id="u")
    first.send("add", "two", user_id="u")
    first._process.kill()
    first._process.wait(TIMEOUT)
    second.ask("add", "three", user_id="u")
    with open_memory(home) as third:
        third.flush()
        assert third.verify()["ok"], third.verify()
        assert third.get_all(user_id="u")["total"] in {2, 3}


def test_a_reset_by_the_second_process_reaches_the_first(home: Path, peers):
    with open_memory(home) as first:
        second = peers(home)
        first.add("Ada keeps zebrafinches", user_id="u")
        first.search("zebrafinches", user_id="u")
        second.ask("reset")
        assert hit_ids(first.search("zebrafinches", user_id="u")) == []
        assert first.verify()["ok"], first.verify()


def test_the_first_process_after_a_reset_by_the_second_goes_on(home: Path, peers):
    with open_memory(home) as first:
        second = peers(home)
        first.add("Ada keeps zebrafinches", user_id="u")
        second.ask("reset")
        assert hit_ids(first.search("zebrafinches", user_id="u")) == []
        (uid,) = texts(first.add("Ada keeps nightjars", user_id="u"))
        assert hit_ids(first.search("nightjars", user_id="u")) == [uid]
        assert hit_ids(second.ask("search", "nightjars", user_id="u")) == [uid]
        assert first.verify(repair=True)["ok"]


# --- threads ---------------------------------------------------------------------------------------------------------


def memory_of(where: str, home: Path, graph: str) -> Memory:
    if where == "folder":
        return open_memory(home, graph=graph)
    import graphmem.wiring as wiring
    from graphmem.testing import WordExtractor

    real, wiring._extractor = wiring._extractor, lambda _: WordExtractor()
    try:
        return Memory(":memory:", settings=settings(home, graph=graph))
    finally:
        wiring._extractor = real


def work(memory: Memory, name: int, start: Barrier) -> dict[str, str]:
    """One thread's mixed work on a scope that others use too; returns the texts that it has not deleted, by id."""
    dice, remaining = random.Random(name), {}
    user = f"user{name % 3}"
    start.wait(TIMEOUT)
    for turn in range(TURNS):
        text = f"Thread{name} did turn{turn} with Thing{turn % 4}"
        (uid,) = texts(memory.add(text, user_id=user, metadata={"thread": name}, wait=dice.random() < 0.6))
        remaining[uid] = text
        act = dice.choice(("search", "update", "delete", "get_all", "both", "look"))
        if act in {"update", "both"}:
            chosen = dice.choice(sorted(remaining))
            remaining[chosen] = f"Thread{name} changed at{turn} its Thing{turn % 4}"
            assert memory.update(chosen, remaining[chosen])["memory"] == remaining[chosen]
        if act in {"delete", "both"}:
            chosen = dice.choice(sorted(remaining))
            assert memory.delete(chosen)["deleted"] == [chosen]
            del remaining[chosen]
            assert memory.get(chosen) is None
        if act == "search":
            response = memory.search(f"what did Thread{name} do", user_id=user, explain=True)
            assert all(hit["user_id"] == user for hit in response["results"])
            assert "degraded" not in response
        if act == "get_all":
            mine = texts(memory.get_all(user_id=user, limit=1000, filters={"thread": name}))
            assert mine == remaining
        if act == "look":
            memory.entities(user_id=user)
            memory.context("Thing1", user_id=user)
            memory.graph(user_id=user)
            memory.history(dice.choice(sorted(remaining)))
    return remaining


@pytest.mark.parametrize(
    ("where", "graph"), [("folder", "ledger"), (":memory:", "ledger"), (":memory:", "networkx"), ("folder", "networkx")]
)
def test_threads(where: str, graph: str, home: Path):
    with memory_of(where, home, graph) as memory:
        start = Barrier(THREADS)
        with ThreadPoolExecutor(THREADS) as pool:
            jobs = [pool.submit(work, memory, name, start) for name in range(THREADS)]
            remaining = [job.result(2 * TIMEOUT) for job in jobs]
        assert memory.flush() == {"pending": []}
        for user in range(3):
            expected = {
                uid: text for name, one in enumerate(remaining) if name % 3 == user for uid, text in one.items()
            }
            assert texts(memory.get_all(user_id=f"user{user}", limit=1000)) == expected
            for uid, text in list(expected.items())[:10]:
                assert uid in hit_ids(memory.search(text, user_id=f"user{user}"))
        report = memory.verify()
        assert report["ok"], report
        assert report["ledger"]["memories"] == sum(map(len, remaining))


@pytest.mark.parametrize("where", ["folder", ":memory:"])
def test_threads_deleting_the_same_memories(where: str, home: Path):
    """Each is deleted once; later calls raise NotFoundError."""
    with memory_of(where, home, "ledger") as memory:
        ids = [memory.add(f"thing {number}", user_id="u")["results"][0]["id"] for number in range(20)]
        start = Barrier(4)

        def delete_ids() -> list[str]:
            start.wait(TIMEOUT)
            deleted = []
            for uid in ids:
                try:
                    deleted += memory.delete(uid)["deleted"]
                except NotFoundError:
                    continue
            return deleted

        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(delete_ids) for _ in range(4)]
            assert sorted(uid for job in jobs for uid in job.result(TIMEOUT)) == sorted(ids)
        assert memory.get_all(user_id="u")["total"] == 0
        assert memory.verify()["ok"]


def test_delete_all_beside_delete(home: Path, monkeypatch):
    with memory_of(":memory:", home, "ledger") as memory:
        ids = [memory.add(f"thing {number}", user_id="u")["results"][0]["id"] for number in range(3)]
        owner = type(memory.engine)
        real, between = owner.commit, Event()

        def commit(self, steps, *rest):
            if not between.is_set():
                between.set()  # another thread deletes first
                thread = Thread(target=memory.delete, args=(ids[1],))
                thread.start()
                thread.join(TIMEOUT)
            return real(self, steps, *rest)

        monkeypatch.setattr(owner, "commit", commit)
        memory.delete_all(user_id="u")
        assert memory.get_all(user_id="u")["total"] == 0


def test_close_while_others_work(home: Path):
    """Every acknowledged memory is stored."""
    memory = open_memory(home)
    acknowledged: list[str] = []

    def busy(name: int) -> None:
        for number in range(1000):
            try:
                acknowledged.append(memory.add(f"busy {name} {number}", user_id="u")["results"][0]["id"])
                memory.search("busy", user_id="u")
            except GraphmemError:
                return

    threads = [Thread(target=busy, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(acknowledged) >= 8)
    memory.close()
    for thread in threads:
        thread.join(TIMEOUT)
    with open_memory(home) as again:
        again.flush()
        assert set(texts(again.get_all(user_id="u", limit=10_000))) >= set(acknowledged)
        assert again.verify()["ok"]


@pytest.mark.parametrize("call", ["add", "add later", "update", "delete", "search", "flush"])
def test_closing_in_the_middle_of_a_call_raises_only_our_errors(call: str, home: Path, monkeypatch):
    memory = open_memory(home)
    uid = memory.add("something", user_id="u")["results"][0]["id"]
    owner = type(memory.engine.job_worker if call == "flush" else memory.engine)
    name = {"search": "check_open", "flush": "enrich_all"}.get(call, "commit")
    real = getattr(owner, name)

    def close_during_call(self, *args):
        result = real(self, *args)
        monkeypatch.setattr(owner, name, real)
        closer = Thread(target=memory.close)
        closer.start()
        closer.join(TIMEOUT)
        return result

    monkeypatch.setattr(owner, name, close_during_call)
    with contextlib.suppress(GraphmemError):
        {
            "add": lambda: memory.add("more", user_id="u"),
            "add later": lambda: memory.add("more", user_id="u", wait=False),
            "update": lambda: memory.update(uid, "else"),
            "delete": lambda: memory.delete(uid),
            "search": lambda: memory.search("something", user_id="u"),
            "flush": memory.flush,
        }[call]()


def test_delete_all_of_a_fact_and_its_source(home: Path):
    from sqlalchemy import select

    from graphmem.stores.ledger.schema import links, memories

    with memory_of(":memory:", home, "ledger") as memory:
        ids = [memory.add(text, user_id="u")["results"][0]["id"] for text in ("the fact", "its source")]
        with memory.engine.ledger.write() as connection:  # as a model's extraction leaves them
            fact, source = (connection.scalar(select(memories.c.id).where(memories.c.uid == uid)) for uid in ids)
            connection.execute(memories.update().where(memories.c.id == source).values(source_only=True))
            connection.execute(links.insert().values(memory=fact, kind="drawn_from", other=source))
        assert sorted(memory.delete_all(user_id="u")["deleted"]) == sorted(ids)
        assert memory.get_all(user_id="u", kinds=["episode", "fact"])["total"] == 0
