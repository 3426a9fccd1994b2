"""A process killed at named points of its work: nothing acknowledged is lost, doubled, or comes back.

`child.py` is the process; the tests open its folder again and compare it with the acknowledged calls.
"""

from __future__ import annotations

import importlib
import json
import operator
import random
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from child import LIKE, NEW, REVISED, SEEDS, open_memory
from victims import Server, assert_verified, in_memory, words_in_files

from graphmem import Memory
from graphmem.testing import HashEmbedder, ModelEndpoint

ENGINE = "graphmem.engine"
EVENTS, TOMBSTONES = "graphmem.stores.ledger.events", "graphmem.stores.ledger.tombstones"
JOBS = "graphmem.stores.ledger.jobs"
COMMIT = "graphmem.commands.dispatch"


@dataclass(frozen=True)
class Kill:
    """`durable`: whether the operation under way has happened in the ledger at that point."""

    name: str
    act: str
    point: str
    durable: bool
    nth: int = 1


KILLS = [
    # add: words → enrich
    Kill("inside the words' transaction", "add", f"after {COMMIT}:execute_all", False),
    Kill("inside it, with the message noted, before its task", "add", f"before {JOBS}:enqueue_enrichments", False),
    Kill("inside it, with the task, before COMMIT", "add", f"after {JOBS}:enqueue_enrichments", False),
    Kill("after the words commit", "add", f"after {ENGINE}:Engine.commit", True),
    Kill("before the embedder is called", "add", "before graphmem.models.callable:CallableEmbedder.embed", True),
    Kill("before the enrich commit", "add", "before graphmem.jobs.enrichment_lane:commit", True),
    Kill("inside the enrich transaction, task completed", "add", f"after {JOBS}:complete_enrichments", True),
    Kill("inside it, between vectors and graph", "add", "before graphmem.stores.ledger.graph_writes:add", True),
    Kill("inside it, before COMMIT", "add", f"after {COMMIT}:execute_all", True, nth=2),
    Kill("after the enrich commit", "add", "after graphmem.jobs.enrichment_lane:commit", True),
    Kill("wait=False: after the words commit", "add later", f"after {ENGINE}:Engine.commit", True),
    Kill(
        "wait=False: in the background, before enrichment",
        "add later",
        "before graphmem.jobs.enrichment_lane:commit",
        True,
    ),
    # update
    Kill(
        "update: derived rows removed, inside the transaction",
        "update",
        "after graphmem.commands.memories:_remove_derived",
        False,
    ),
    Kill("update: inside the transaction, before COMMIT", "update", f"after {EVENTS}:add_event", False),
    Kill("update: committed, not enriched", "update", f"after {ENGINE}:Engine.commit", True),
    # delete
    Kill("delete: inside the transaction, words forgotten", "delete", f"after {EVENTS}:erase_content", False),
    Kill("delete: tombstone added, before COMMIT", "delete", f"after {TOMBSTONES}:add_tombstone", False),
    Kill("delete: committed, not compacted", "delete", f"after {ENGINE}:Engine.commit", True),
    Kill(
        "close: before the ledger's log is emptied",
        "close",
        "before graphmem.stores.ledger.sqlite:SqliteDatabase.close",
        True,
    ),
    # delete_all
    Kill("delete_all: the second of three erased", "delete_all", f"after {TOMBSTONES}:add_tombstone", False, nth=2),
    # rebuild
    Kill(
        "rebuild: derived columns recomputed, before COMMIT",
        "rebuild",
        "after graphmem.stores.ledger.integrity:recompute_derived",
        True,
    ),
    # another embedding model
    Kill(
        "rebuild with another model: before the old vectors are deleted",
        "remodel",
        f"before {ENGINE}:Engine.commit",
        True,
    ),
    Kill(
        "rebuild with another model: tasks enqueued, model not recorded",
        "remodel",
        f"after {ENGINE}:Engine.commit",
        True,
    ),
    Kill(
        "rebuild with another model: model recorded, nothing embedded",
        "remodel",
        "after graphmem.administration:record_embedder",
        True,
    ),
    # reset
    Kill("reset: inside the transaction", "reset", "after graphmem.stores.ledger.integrity:wipe", False),
    Kill("reset: emptied, file not compacted", "reset", "before graphmem.stores.ledger:Ledger.compact", True),
]

# The kills of the default run: one before and one after a commit, and one before the rows that searches read.
QUICK = {
    "inside it, with the task, before COMMIT",
    "after the words commit",
    "inside it, between vectors and graph",
}

OPENINGS = [
    ("inside the schema's transaction", "after graphmem.stores.ledger:_create", 1),
    ("ledger made, nothing else", "after graphmem.wiring:Ledger", 1),
]


@pytest.fixture
def folder():
    with in_memory() as new_folder:
        yield new_folder


@pytest.fixture(scope="module")
def server():
    with closing(Server()) as new_server:
        yield new_server


def list_texts(memory: Memory, user: str = "u") -> dict[str, str]:
    listed = memory.get_all(user_id=user, limit=10_000)
    assert listed["total"] == len(listed["results"])
    assert len({one["id"] for one in listed["results"]}) == listed["total"]
    return {one["id"]: one["memory"] for one in listed["results"]}


def check_found_by_own_words(memory: Memory, texts: dict[str, str]) -> None:
    """And by their vectors: each by itself is in its hit's explanation."""
    for uid, text in texts.items():
        for query in (text, own_word(text)):
            hits = memory.search(query, user_id="u", explain=True)
            assert "degraded" not in hits
            hit_texts = {hit["id"]: hit["memory"] for hit in hits["results"]}
            assert hit_texts.get(uid) == text, (query, hit_texts)
            (arms,) = [hit["explain"]["arms"] for hit in hits["results"] if hit["id"] == uid]
            assert arms["keyword"]["score"] > 0
            if query == text:
                assert hits["results"][0]["id"] == uid
                assert arms["dense"]["score"] == pytest.approx(1.0, abs=0.01)


def own_word(text: str) -> str:
    return re.findall(r"[a-z]+\d*", text)[-1] if not text.startswith("loop") else text.split()[1]


def expected_after(kill: Kill, ids: list[str]) -> dict[str, str]:
    """The texts of a scope after the act, by id; "new" stands for the unknown id of a new memory."""
    texts = dict(zip(ids, SEEDS, strict=True))
    if not kill.durable:
        return texts
    if kill.act in {"add", "add later"}:
        return {**texts, "new": NEW}
    if kill.act == "update":
        return {**texts, ids[1]: REVISED}
    if kill.act in {"delete", "close"}:
        return {uid: text for uid, text in texts.items() if uid != ids[1]}
    return {} if kill.act in {"delete_all", "reset"} else texts


@pytest.mark.quick
def test_every_kill_point_names_something_that_exists():
    """Else a renaming is noticed only by the thorough tests."""
    points = [kill.point for kill in KILLS] + [point for _, point, *_ in OPENINGS + CYCLES + MERGES]
    for module, _, attributes in [point.split(" ", 1)[1].partition(":") for point in points]:
        operator.attrgetter(attributes)(importlib.import_module(module))


@pytest.mark.parametrize(
    "kill", [pytest.param(kill, id=kill.name, marks=[pytest.mark.quick] * (kill.name in QUICK)) for kill in KILLS]
)
def test_killed_at(kill: Kill, server: Server, folder: Path):
    home = folder / "home"
    code, lines = server.order(home, kill.act, point=kill.point, nth=kill.nth)
    assert code == -9, f"the point was not reached: {kill.point} (exit {code})"
    assert {"begun": kill.act} in lines
    ids = [line["id"] for line in lines if line.get("done") == "add"]
    with open_memory(home, 32 if kill.act == "remodel" else 64) as memory:
        if kill.act == "remodel":  # until then the ledger may still be the former model's
            memory.rebuild()
        assert memory.flush() == {"pending": []}
        check(kill, memory, ids)
    if kill.act in {"delete", "delete_all", "reset", "close"} and kill.durable:
        erased_word = SEEDS[1].split()[-1]
        assert words_in_files(home, [erased_word]) == []
        texts = expected_after(kill, ids).values()
        assert [vector_is_in_files(home, text) for text in SEEDS] == [text in texts for text in SEEDS]


CYCLES = [
    ("memories rated, before COMMIT", "after graphmem.stores.ledger.vitals:store_ratings", 1, 0),
    ("nothing decided", "before graphmem.jobs.cycle:plan_cycle", 1, 0),
    ("the first memory is being forgotten, before COMMIT", "after graphmem.stores.ledger.vitals:state_of", 1, 0),
    ("one of three is forgotten", f"after {ENGINE}:Engine.commit", 1, 1),
    ("the third is being forgotten, before COMMIT", "after graphmem.stores.ledger.vitals:state_of", 3, 2),
    ("all are forgotten, the cycle has not ended", "before graphmem.stores.ledger.vitals:end_cycle", 1, 3),
    ("the cycle has ended, before COMMIT", "after graphmem.stores.ledger.vitals:end_cycle", 1, 3),
    ("the cycle has ended, nothing is delivered", f"before {ENGINE}:Engine.deliver", 1, 3),
]


@pytest.mark.parametrize(("point", "nth", "forgotten"), [one[1:] for one in CYCLES], ids=[one[0] for one in CYCLES])
def test_killed_in_a_cycle(point: str, nth: int, forgotten: int, server: Server, folder: Path):
    """Nothing is half forgotten; the next cycle does the rest, and the former one can be undone as far as it went."""
    home = folder / "home"
    code, lines = server.order(home, "tend", point=point, nth=nth)
    assert code == -9, f"the point was not reached: {point} (exit {code})"
    ids = [line["id"] for line in lines if line.get("done") == "add"]
    with open_memory(home) as memory:
        assert memory.flush() == {"pending": []}
        gone = {one["id"] for one in memory.pending_deletion(user_id="u")["results"]}
        visible = list_texts(memory)
        assert (len(gone), gone | visible.keys(), gone & visible.keys()) == (forgotten, set(ids), set())
        check_found_by_own_words(memory, visible)
        for uid in ids:
            events = [event["event"] for event in memory.history(uid)]
            assert events == ["ADD", *(["FORGET"] if uid in gone else [])]
        assert memory.verify()["ok"]
        assert memory.tend(user_id="u")["forgotten"] == 3 - forgotten
        assert list_texts(memory) == {}
        assert memory.search(SEEDS[0], user_id="u")["results"] == []
        assert memory.verify()["ok"]


COMPOSITIONS = "graphmem.ingest.facts.compositions"
MERGED = "Drinks green tea each morning"
MERGES = [
    ("the job is recorded, before COMMIT", f"after {JOBS}:enqueue", 1),
    ("the model is being asked", f"before {COMPOSITIONS}:request", 1),
    ("the model has answered", f"before {COMPOSITIONS}:compose_command", 1),
    ("two of three are hidden, before COMMIT", "after graphmem.commands.lifecycle:forget_memory", 2),
    ("the merged memory is stored", "after graphmem.ingest.facts.pipeline:commit", 1),
]


@pytest.mark.parametrize(("point", "nth"), [one[1:] for one in MERGES], ids=[one[0] for one in MERGES])
def test_killed_while_memories_are_merged(point: str, nth: int, server: Server, folder: Path):
    """Either the like memories are visible or the one that was made of them; the next cycle makes it, and once."""
    home = folder / "home"
    with ModelEndpoint(default=json.dumps({"text": MERGED})) as endpoint:
        config = {"openai_base_url": endpoint.url, "api_key": "any", "model": "merges"}
        llm = {"provider": "openai", "config": config}
        code, _ = server.order(home, "merge", point=point, nth=nth, llm=llm)
        assert code == -9, f"the point was not reached: {point} (exit {code})"
        with open_memory(home, llm=llm) as memory:
            seen = set(list_texts(memory).values()) - set(SEEDS)
            assert seen in ({MERGED}, set(LIKE))
            assert memory.verify()["ok"]
            memory.tend(user_id="u")
            memory.retry_failed()
            assert sorted(list_texts(memory).values()) == sorted([*SEEDS, MERGED])
            assert len(memory.pending_deletion(user_id="u")["results"]) == len(LIKE)
            assert memory.flush() == {"pending": []}
            assert memory.verify()["ok"]


def vector_is_in_files(home: Path, text: str) -> bool:
    """Whether the vector of a text, as the ledger stores it, is in one of its files."""
    (vector,) = HashEmbedder(64).embed([text])
    stored = (vector.mean(axis=0) / np.linalg.norm(vector.mean(axis=0))).astype("<f4").tobytes()
    return any(stored in path.read_bytes() for path in home.rglob("*") if path.is_file())


def check(kill: Kill, memory: Memory, ids: list[str]) -> None:
    assert_verified(memory)
    stored, expected = list_texts(memory), expected_after(kill, ids)
    if "new" in expected:
        (new,) = stored.keys() - set(ids)
        expected[new] = expected.pop("new")
    assert stored == expected
    assert list(list_texts(memory, "other").values()) == (
        [] if kill.act == "reset" and kill.durable else ["omega Olga owns a blueferret"]
    )
    check_found_by_own_words(memory, stored)
    check_messages_stored_once(kill, memory, ids, stored)
    for uid in set(ids) - stored.keys():
        assert memory.get(uid) is None
        assert all(hit["id"] != uid for hit in memory.search(SEEDS[ids.index(uid)], user_id="u")["results"])
    assert_verified(memory)
    assert list_texts(memory).keys() >= stored.keys()


def check_messages_stored_once(kill: Kill, memory: Memory, ids: list[str], stored: dict[str, str]) -> None:
    """A client that got no answer adds its message again: it is stored once."""
    if kill.act == "reset" and kill.durable:
        return  # no message is known any more
    for number, uid in enumerate(ids):
        again = memory.add({"role": "user", "content": SEEDS[number], "id": f"seed-{number}"}, user_id="u")["results"]
        assert [(one["event"], one["id"]) for one in again] == [("NONE", uid)]
    if kill.act in {"add", "add later"}:
        again = memory.add({"role": "user", "content": NEW, "id": "new"}, user_id="u")["results"][0]
        assert again["event"] == ("NONE" if kill.durable else "ADD")
        assert not kill.durable or stored[again["id"]] == NEW
        assert list(list_texts(memory).values()).count(NEW) == 1


@pytest.mark.parametrize(("name", "point", "nth"), [pytest.param(*one, id=one[0]) for one in OPENINGS])
def test_killed_while_opening_a_new_folder(name: str, point: str, nth: int, server: Server, folder: Path):
    home = folder / "home"
    code, _ = server.order(home, "open", point=point, nth=nth)
    assert code == -9, "the point was not reached"
    with open_memory(home) as memory:
        assert_verified(memory)
        uid = memory.add(SEEDS[0], user_id="u")["results"][0]["id"]
        assert_verified(memory)
        check_found_by_own_words(memory, {uid: SEEDS[0]})


def test_killed_at_random_moments(server: Server, folder: Path):
    """The same folder, after kill upon kill at random moments."""
    home, moments = folder / "home", random.Random(20)
    state: dict[str, str] = {}
    read = 0
    for _ in range(7):
        code, lines = server.order(home, "loop", kill_after=moments.uniform(0.1, 0.7))
        assert code == -9
        deleted, unacknowledged = replay(lines[read:], state)
        read = len(lines)
        with open_memory(home) as memory:
            assert memory.flush() == {"pending": []}
            assert_verified(memory)
            stored = list_texts(memory)
            apply_unacknowledged(stored, state, unacknowledged)
            assert stored == state
            sample = moments.sample(sorted(stored), min(6, len(stored)))
            check_found_by_own_words(memory, {uid: stored[uid] for uid in sample})
            assert all(memory.get(uid) is None for uid in deleted)


def replay(lines: list[dict], state: dict[str, str]) -> tuple[list[str], dict | None]:
    deleted: list[str] = []
    begun: dict | None = None
    for line in lines:
        if "begun" in line:
            begun = line if line["begun"] != "loop" else None
            continue
        begun = None
        if line["done"] in {"add", "update"}:
            state[line["id"]] = line["text"]
        else:
            state.pop(line["id"], None)
            deleted.append(line["id"])
    return deleted, begun


def apply_unacknowledged(stored: dict[str, str], state: dict[str, str], unacknowledged: dict | None) -> None:
    """Applies the call that was begun and not acknowledged, if the folder shows that it happened."""
    if unacknowledged is None:
        return
    if unacknowledged["begun"] == "add":
        state.update({uid: text for uid, text in stored.items() if uid not in state and text == unacknowledged["text"]})
    elif unacknowledged["begun"] == "delete" and unacknowledged["id"] not in stored:
        state.pop(unacknowledged["id"], None)
    elif unacknowledged["begun"] == "update" and stored.get(unacknowledged["id"]) == unacknowledged["text"]:
        state[unacknowledged["id"]] = unacknowledged["text"]
