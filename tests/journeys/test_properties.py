"""Whatever is done in whatever order: ledger, vectors and graph agree, scopes stay apart, only our errors leave."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import graphmem.wiring
from graphmem import Memory
from graphmem.errors import GraphmemError, NotFoundError, ValidationError
from graphmem.settings import Settings
from graphmem.testing import HashEmbedder, WordExtractor

CI = bool(os.environ.get("CI"))
calm = {"deadline": None, "derandomize": CI, "print_blob": True, "suppress_health_check": list(HealthCheck)}
settings.register_profile("graphmem-machine", max_examples=8, stateful_step_count=16, **calm)
settings.register_profile("graphmem-inputs", max_examples=100, **calm)
MACHINE, INPUTS = settings.get_profile("graphmem-machine"), settings.get_profile("graphmem-inputs")

FAKE = HashEmbedder()


def opened(path: Path | str, graph: str = "ledger") -> Memory:
    """A Memory over models that answer in microseconds."""
    config = Settings.from_dict(
        {
            "embedder": {
                "provider": "callable",
                "config": {
                    "embed": lambda texts: [rows[0] for rows in FAKE.embed(texts)],
                    "embedding_dims": FAKE.dims,
                    "model": "fake",
                },
            },
            "extractor": {"provider": "none"},
            "graph_store": {"provider": graph},
        }
    )
    real, graphmem.wiring._extractor = graphmem.wiring._extractor, lambda _: WordExtractor()
    try:
        return Memory(path, settings=config)
    finally:
        graphmem.wiring._extractor = real


# --- any sequence ----------------------------------------------------------------------------------------------------

USERS, AGENTS, RUNS = ("ann", "bob", "*x"), (None, "helper"), (None, "run-1")
scopes = st.one_of(
    st.tuples(st.sampled_from(USERS), st.sampled_from(AGENTS), st.sampled_from(RUNS)),
    st.tuples(st.none(), st.just("helper"), st.sampled_from(RUNS)),
)
words = st.one_of(
    st.sampled_from(
        ("Ann met Bob in Bergen", "Bob likes tea", "Ann likes tea", "Dora visited Ann. Bob met Dora", "I like Bergen")
    ),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=60).filter(
        str.strip
    ),
)


def named(scope) -> dict[str, str]:
    return {k: v for k, v in zip(("user_id", "agent_id", "run_id"), scope, strict=True) if v is not None}


def sees(asked, scope) -> bool:
    return all(part is None or part == mine for part, mine in zip(asked, scope, strict=True))


class Machine(RuleBasedStateMachine):
    """A Memory beside a dict that does the same."""

    graph = "ledger"
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        shared = "/dev/shm"
        self.folder = Path(
            tempfile.mkdtemp(prefix="graphmem-machine-", dir=shared if os.access(shared, os.W_OK) else None)
        )
        self.memory: Memory | None = None
        self.held: dict[str, tuple[tuple, str]] = {}
        self.erased: dict[str, tuple] = {}
        self.said: dict[tuple, tuple[str, str]] = {}

    @initialize()
    def begin(self) -> None:
        self.memory = opened(self.folder / "home", self.graph)

    def note(self, scope, text: str, result) -> str:
        (one,) = result["results"]
        assert one["event"] == "ADD"
        assert one["id"] not in self.held and one["id"] not in self.erased
        self.held[one["id"]] = (scope, text)
        return one["id"]

    @rule(target=ids, scope=scopes, text=words, wait=st.booleans())
    def add(self, scope, text, wait):
        return self.note(scope, text, self.memory.add(text, **named(scope), wait=wait))

    @rule(target=ids, scope=scopes, texts=st.lists(words, min_size=2, max_size=3))
    def add_several(self, scope, texts):
        results = self.memory.add(texts, **named(scope), timestamp="2024-05-05T05:05")["results"]
        assert len(results) == len(texts)
        for text, one in zip(texts, results, strict=True):
            if one["event"] == "ADD":
                self.held[one["id"]] = (scope, text)
            else:
                assert self.held.get(one["id"]) is not None or one["id"] in self.erased
        return results[0]["id"]

    @rule(target=ids, scope=scopes, text=words, number=st.integers(0, 2))
    def add_by_id(self, scope, text, number):
        key = (scope, number)
        message = {"role": "user", "content": text, "id": f"m{number}"}
        if key not in self.said:
            uid = self.note(scope, text, self.memory.add(message, **named(scope)))
            self.said[key] = (uid, text)
            return uid
        uid, before = self.said[key]
        if before != text and uid not in self.erased:
            with pytest.raises(ValidationError):
                self.memory.add(message, **named(scope))
        else:
            (one,) = self.memory.add(message, **named(scope))["results"]
            assert (one["event"], one["id"]) == ("NONE", uid)
            assert (one.get("reason") == "erased") == (uid in self.erased)
        return uid

    @rule(target=ids, scope=scopes, text=words, stage=st.sampled_from(("words", "enriched")))
    def add_and_die(self, scope, text, stage):
        """The states that a crash leaves: enrichment owed, or delivery."""
        house = self.memory._engine
        if stage == "words":
            house.enrich_and_deliver = lambda _records, *, wait: ["vectors", "graph"]
        else:
            house.deliver = lambda _partitions: ["vectors"]
        uid = self.note(scope, text, self.memory.add(text, **named(scope)))
        self.reopen()
        return uid

    @rule(uid=ids, text=words)
    def update(self, uid, text):
        if uid not in self.held:
            with pytest.raises(NotFoundError):
                self.memory.update(uid, text)
            return
        assert self.memory.update(uid, text)["memory"] == text
        self.held[uid] = (self.held[uid][0], text)

    @rule(uid=ids, scope=scopes)
    def delete(self, uid, scope):
        if uid not in self.held or not sees(scope, self.held[uid][0]):
            with pytest.raises(NotFoundError):
                self.memory.delete(uid, **named(scope))
            return
        assert self.memory.delete(uid, **named(scope))["deleted"] == [uid]
        self.forget(uid)

    def forget(self, uid) -> None:
        self.erased[uid] = self.held.pop(uid)[0]

    @rule(scope=scopes)
    def delete_all(self, scope):
        wanted = {uid for uid, (mine, _) in self.held.items() if sees(scope, mine)}
        assert set(self.memory.delete_all(**named(scope))["deleted"]) == wanted
        for uid in wanted:
            self.forget(uid)

    @rule()
    def reopen(self) -> None:
        self.memory.close()
        self.memory = opened(self.folder / "home", self.graph)

    @rule()
    def lose_the_index(self) -> None:
        self.memory.close()
        shutil.rmtree(self.folder / "home" / "vectors")
        self.memory = opened(self.folder / "home", self.graph)
        self.memory.search("anything", user_id="ann")

    @rule(which=st.sampled_from((None, "vectors", "graph")))
    def rebuild(self, which) -> None:
        self.memory.flush()
        report = self.memory.rebuild(which)
        assert report["ok"], report

    @rule()
    def verify(self) -> None:
        assert self.memory.flush() == {"pending": []}
        report = self.memory.verify()
        assert report["ok"], report
        assert report["ledger"]["memories"] == len(self.held)

    @rule(scope=scopes, query=words)
    def search(self, scope, query) -> None:
        self.memory.flush()
        found = self.memory.search(query, **named(scope), top_k=100)
        assert "degraded" not in found
        expected = {uid: text for uid, (mine, text) in self.held.items() if sees(scope, mine)}
        shown = {hit["id"]: hit["memory"] for hit in found["results"]}
        assert shown.items() <= expected.items()
        assert len(shown) == len(found["results"])
        for relation in found["relations"]:
            assert set(relation["memory_ids"]) <= expected.keys()
        for text in {text for text in expected.values() if text == query}:
            assert text in shown.values()

    @rule(uid=ids, scope=scopes)
    def look(self, uid, scope) -> None:
        there = uid in self.held and sees(scope, self.held[uid][0])
        one = self.memory.get(uid, **named(scope))
        assert (one is not None) == there
        assert not there or one["memory"] == self.held[uid][1]
        mine = self.held.get(uid, (self.erased.get(uid),))[0]
        assert bool(self.memory.history(uid, **named(scope))) == sees(scope, mine)

    @rule(scope=scopes)
    def draw(self, scope) -> None:
        expected = {uid for uid, (mine, _) in self.held.items() if sees(scope, mine)}
        nodes = self.memory.graph(**named(scope)).nodes(data=True)
        drawn = {node for node, data in nodes} & (set(self.held) | set(self.erased))
        assert drawn <= expected
        for one in self.memory.entities(**named(scope)):
            known = self.memory.entity(one["key"], **named(scope))
            assert known is not None
            assert {memory["id"] for memory in known["memories"]} <= expected

    @invariant()
    def listings_agree(self) -> None:
        if self.memory is None:
            return
        for scope in ((USERS[0], None, None), (USERS[1], "helper", None), (None, "helper", None)):
            listed = self.memory.get_all(**named(scope), limit=1000)
            expected = {uid: text for uid, (mine, text) in self.held.items() if sees(scope, mine)}
            assert {one["id"]: one["memory"] for one in listed["results"]} == expected
            assert listed["total"] == len(expected)
            for relation in listed["relations"]:
                assert set(relation["memory_ids"]) <= expected.keys()

    def teardown(self) -> None:
        try:
            if self.memory is not None:
                self.verify()
                self.memory.close()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


class NetworkxMachine(Machine):
    graph = "networkx"


@pytest.mark.parametrize("machine", [Machine, pytest.param(NetworkxMachine, marks=pytest.mark.thorough)])
def test_any_sequence(machine):
    run_state_machine_as_test(machine, settings=MACHINE)


# --- any filter ------------------------------------------------------------------------------------------------------

HOSTILE = (
    "user_id",
    "agent_id",
    "run_id",
    "AND",
    "OR",
    "NOT",
    "$or",
    "or",
    "",
    "*",
    "a.b",
    "__class__",
    "id",
    "partition",
    "scope",
)
keys = st.one_of(
    st.sampled_from(("colour", "size", "tags", "kind", "role", "created_at", "hash", *HOSTILE)), st.text(max_size=4)
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=4),
    st.sampled_from(("red", "blue", "bob", "ann", "*", "episode", "' OR 1=1 --", "2024-01-01")),
)  # fmt: skip
operands = st.one_of(scalars, st.lists(scalars, max_size=3))
operators = st.sampled_from(
    ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "icontains", "$ne", "like", "")
)
conditions = st.dictionaries(keys, st.one_of(operands, st.dictionaries(operators, operands, max_size=2)), max_size=3)
filters = st.recursive(
    conditions,
    lambda inner: st.dictionaries(
        st.sampled_from(("AND", "OR", "NOT", "and", "colour")),
        st.one_of(st.lists(inner, max_size=3), inner),
        min_size=1,
        max_size=2,
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def two_users():
    with opened(":memory:") as memory:
        ids: dict[str, set[str]] = {"ann": set(), "bob": set()}
        for user, mine in ids.items():
            for colour, size in (("red", 1), ("blue", 2), ("*", None)):
                added = memory.add(
                    f"{user} likes {colour} tea", user_id=user, agent_id="helper",
                    metadata={"colour": colour, "size": size, "tags": ["x", user], "owner": user, "id": "bob"},
                )  # fmt: skip
                mine.add(added["results"][0]["id"])
        yield memory, ids


@INPUTS
@given(wanted=filters, user=st.sampled_from(("ann", "bob")))
def test_no_filter_widens_a_scope(wanted, user, two_users):
    memory, ids = two_users
    try:
        listed = memory.get_all(user_id=user, filters=wanted)
    except ValidationError:
        with pytest.raises(ValidationError):
            memory.search("tea", user_id=user, filters=wanted)
        return
    chosen = {one["id"] for one in listed["results"]}
    assert chosen <= ids[user]
    found = memory.search("likes tea", user_id=user, filters=wanted, top_k=100)
    assert {hit["id"] for hit in found["results"]} == chosen
    # A filter and its negation divide the scope between them.
    if "user_id" not in wanted and "agent_id" not in wanted and wanted:
        try:
            others = memory.get_all(user_id=user, filters={"NOT": [wanted]})
        except ValidationError:  # one level too deep
            return
        assert {one["id"] for one in others["results"]} == ids[user] - chosen


# --- any argument ----------------------------------------------------------------------------------------------------

anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.binary(max_size=4), st.text(max_size=8),
    st.sampled_from(
        ("\ud800", "a\0b", "*", "%", "_", "'; DROP TABLE memories; --", "x" * 300, "🦡" * 50, "\u202e", "..", "NaN",
         math.nan, math.inf, 2**70, 10**400, datetime(1, 1, 1, tzinfo=UTC), datetime.max, object(), len, {1, 2},
         Ellipsis, NotImplemented, 1j, b"\xff", bytearray(b"x"), type, np.float32(1.5), np.int64(7), np.str_("np"))
    ),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=3),
    st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=3),
)  # fmt: skip

IDS = ("user_id", "agent_id", "run_id")
CALLS = {
    "add": ("messages", *IDS, "metadata", "timestamp", "infer", "memory_type", "expiration_date", "prompt"),
    "search": ("query", *IDS, "top_k", "limit", "filters", "threshold", "kinds", "as_of", "reference_date",
               "show_expired", "explain", "rerank"),
    "context": ("query", *IDS, "max_chars"),
    "get": ("memory_id", *IDS),
    "get_all": (*IDS, "filters", "kinds", "limit", "top_k", "offset", "as_of", "show_expired"),
    "update": ("memory_id", "data", "text", "metadata", "expiration_date", *IDS),
    "delete": ("memory_id", *IDS),
    "delete_all": IDS,
    "history": ("memory_id", *IDS),
    "explain": ("memory_id", *IDS),
    "entities": (*IDS, "query", "type", "limit"),
    "entity": ("key", *IDS, "limit"),
    "alias": ("a", "b", *IDS),
    "unalias": ("a", "b", *IDS),
    "rename_entity": ("key", "name", *IDS),
    "graph": (*IDS, "around", "hops", "limit"),
    "rebuild": ("projection",),
}  # fmt: skip
FIRST = {"messages", "query", "memory_id", "key", "a", "b", "name"}


@pytest.fixture(scope="module")
def victim():
    with opened(":memory:") as memory:
        uid = memory.add("Ann met Bob", user_id="u", metadata={"a": 1})["results"][0]["id"]
        yield memory, uid


@pytest.mark.thorough
@settings(INPUTS, max_examples=500)
@given(data=st.data(), call=st.sampled_from(sorted(CALLS)))
def test_only_our_errors_leave(data, call, victim):
    memory, uid = victim
    names = CALLS[call]
    given_ = {name: data.draw(anything, label=name) for name in names if name in FIRST}
    for name in data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True), label="names"):
        given_[name] = data.draw(anything, label=name)
    if "memory_id" in names and data.draw(st.booleans(), label="real id"):
        given_["memory_id"] = uid
    if set(IDS) & set(names) and not set(IDS) & given_.keys():
        given_["user_id"] = "u"
    # Known, with a test of its own below.
    assume(not (isinstance(given_.get("memory_id"), str) and "\ud800" in given_["memory_id"]))
    try:
        getattr(memory, call)(**given_)
    except GraphmemError as error:
        assert str(error)
    assert memory.get("unheard of") is None


@INPUTS
@given(
    text=st.text(st.characters(), min_size=1, max_size=200),
    meta=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_what_is_stored_is_stored_faithfully(text, meta, victim):
    memory, _ = victim
    try:
        results = memory.add(text, user_id="faith", metadata=meta)["results"]
    except ValidationError:
        hostile = text + "".join(meta) + "".join(meta.values())
        assert "\0" in hostile or any(0xD800 <= ord(c) <= 0xDFFF for c in hostile)
        return
    if not text.strip():
        assert results == []
        return
    one = memory.get(results[0]["id"], user_id="faith")
    assert (one["memory"], one["metadata"]) == (text, meta)
    hits = memory.search(text, user_id="faith", top_k=1000)["results"]
    assert any(hit["id"] == one["id"] and hit["memory"] == text for hit in hits) or len(hits) >= 100
    memory.delete(one["id"])


@pytest.mark.parametrize("call", ["get", "history", "delete", "update", "explain"])
def test_an_id_with_a_lone_surrogate_reads_as_not_found(call, victim):
    memory, _ = victim
    try:
        result = getattr(memory, call)("\ud800", *(["x"] if call == "update" else []))
    except GraphmemError:
        return
    assert result in (None, [])


@pytest.mark.parametrize(
    "call",
    [
        lambda m, u: m.rebuild(projection=["vectors"]),
        lambda m, u: m.rebuild(progress=1),
        lambda m, u: m.get(u, user_id=np.array([1, 2])),
        lambda m, u: m.search("x", user_id="u", top_k=np.array([1, 2]), limit=np.array([1, 2])),
        lambda m, u: m.search("x", user_id="u", rerank=np.array([1, 2])),
        lambda m, u: m.get_all(user_id="u", show_expired=np.array([1, 2])),
        lambda m, u: m.add("x", user_id="u", infer=np.array([1, 2])),
        lambda m, u: m.update(u, np.array([1, 2]), text=np.array([1, 2])),
        lambda m, u: Memory(123),
        lambda m, u: Memory("a\0b"),
        lambda m, u: Memory.from_file(123),
        lambda m, u: Memory.from_config({"home": "a\0b", "extractor": {"provider": "none"}}),
    ],
)
def test_hostile_arguments_found_so_far(call, victim):
    memory, uid = victim
    try:
        call(memory, uid)
    except GraphmemError:
        return


def test_as_of_in_the_far_future(tmp_path):
    with opened(tmp_path / "home") as memory:
        memory.add("Ann likes tea", user_id="u")
        assert memory.get_all(user_id="u", as_of="2300-01-01")["total"] == 1
        assert len(memory.search("tea", user_id="u", as_of="2300-01-01")["results"]) == 1
