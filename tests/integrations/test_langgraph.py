"""The store for LangGraph's graphs: its scopes, values, searches, times to live, batches and graphs."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)
from langgraph.store.base.batch import AsyncBatchedBaseStore
from notes_graph import open_memory, recalled
from support.databases import SQLITE_ONLY
from support.fakes import hash_texts
from support.waiting import TIMEOUT

from graphmem import AsyncMemory, Memory
from graphmem.errors import EmbeddingError, StoreLocked, StoreUnavailable, ValidationError
from graphmem.integrations import items as integration_items
from graphmem.integrations.items import ItemStore
from graphmem.integrations.langgraph import GraphmemStore, label, user_of
from graphmem.model import Item, Scope
from graphmem.stores.ledger import items, schema, sqlite

TEA, COFFEE = {"text": "Ana drinks green tea."}, {"text": "Ben drinks black coffee."}
NOTES = ("notes", "ana")


@pytest.fixture
def memory(make_memory: Callable[..., Memory]) -> Memory:
    """A memory whose searches wait for all that was written before, however slow the machine is."""
    return make_memory(delivery_wait=TIMEOUT)


@pytest.fixture
def store(memory: Memory) -> GraphmemStore:
    return GraphmemStore(memory, user_id="ana")


def keys(found: Iterable[SearchItem]) -> list[str]:
    return [item.key for item in found]


# --- scopes and labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user_id", ["ana", "ana@x.org", "50%", "a%2Eb", "%25.%2E", "漢 字", "a.b.c%"])
def test_a_label_stands_for_any_user_id(memory: Memory, user_id: str) -> None:
    assert "." not in label(user_id)
    assert user_of(label(user_id)) == user_id
    GraphmemStore(memory, user_label=1).put(("notes", label(user_id)), "k", TEA)
    memory.flush()
    assert [hit["memory"] for hit in memory.get_all(user_id=user_id)["results"]] == [TEA["text"]]


def test_a_label_keeps_what_needs_no_escape() -> None:
    assert label("ana@x.org") == "ana@x%2Eorg"
    assert label("a%20b c") == "a%2520b c"
    assert label(5) == "5"


@pytest.mark.parametrize(
    "user_id", [None, True, b"ana", "", " ", "*", "a\nb", "\ud800", "a" * 257, "ana\u3000", " ana"]
)
def test_what_is_no_user_id_has_no_label(user_id: Any) -> None:
    with pytest.raises(ValidationError, match="^user_id="):
        label(user_id)


@pytest.mark.parametrize("user_label", ["ana\u3000", " ana", "ana%2E "])
def test_a_user_label_with_white_space_around_it_names_nobody(memory: Memory, user_label: str) -> None:
    store = GraphmemStore(memory, user_label=1)
    for op in (
        PutOp(("notes", user_label), "k", TEA),
        GetOp(("notes", user_label), "k"),
        SearchOp(("notes", user_label), query="tea"),
        ListNamespacesOp((MatchCondition("prefix", ("notes", user_label)),)),
    ):
        with pytest.raises(ValidationError, match="user_id.*white space"):
            store.batch([op])
    assert memory.get_all(user_id="ana")["results"] == []


def test_a_prefix_without_the_user_label_reads_across_the_users_of_the_agent(memory: Memory) -> None:
    store = GraphmemStore(memory, user_label=1, agent_id="app")
    store.put(("notes", "ana"), "1", TEA)
    store.put(("notes", "ben"), "2", COFFEE)
    GraphmemStore(memory, user_label=1, agent_id="other").put(("notes", "ana"), "3", TEA)
    memory.add("Ana drinks green tea at home.", user_id="ana", agent_id="app")
    assert set(keys(store.search(("notes",)))) == set(keys(store.search((), query="drinks"))) == {"1", "2"}
    assert keys(store.search(("notes", "ana"))) == keys(store.search(("notes", "ana"), query="drinks")) == ["1"]
    assert store.list_namespaces() == [("notes", "ana"), ("notes", "ben")]
    assert store.list_namespaces(prefix=("notes", "ben")) == [("notes", "ben")]


def test_a_namespace_without_the_user_label_cannot_be_written(memory: Memory) -> None:
    store = GraphmemStore(memory, user_label=1)
    with pytest.raises(ValueError, match="namespace.*no label 1"):
        store.put(("notes",), "k", TEA)
    assert store.get(("notes",), "k") is None
    store.delete(("notes",), "k")


@pytest.mark.parametrize("user_label", ["*", "a\nb", " "])
def test_a_user_label_that_is_no_user_id_is_refused(memory: Memory, user_label: str) -> None:
    store = GraphmemStore(memory, user_label=0)
    with pytest.raises(ValidationError, match="user_id"):
        store.put((user_label,), "k", TEA)


def test_one_users_store_sees_no_other_users_items(memory: Memory) -> None:
    stores = {user: GraphmemStore(memory, user_id=user) for user in ("ana", "ben")}
    for user, store in stores.items():
        store.put(("notes",), "k", {"text": f"This belongs to {user}."})
    for user, store in stores.items():
        assert store.get(("notes",), "k").value == {"text": f"This belongs to {user}."}
        assert [item.value["text"] for item in store.search((), query="belongs")] == [f"This belongs to {user}."]


@pytest.mark.parametrize(
    "more",
    [
        {"user_id": "ana", "user_label": 1},
        {"user_label": 1, "agent_id": None},
        {"user_label": -1},
        {"user_id": " "},
        {"fields": "text"},
        {"fields": [1]},
        {"ttl": {"default_ttl": 0}},
        {"ttl": {"refresh_on_read": "no"}},
        {"ttl": {"deafult_ttl": 5}},
    ],
)
def test_unusable_arguments_are_refused(memory: Memory, more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        GraphmemStore(memory, **more)


LABELS = ["user", "user2", "use", "User", "user\n", 'user"', "user,", "user%", "us_r", "*", "[user", "usér", "user\\"]


def test_a_prefix_ends_at_the_border_of_a_label_whatever_characters_it_has(store: GraphmemStore) -> None:
    for name in LABELS:
        store.put((name, "sub"), name, {"text": f"the text of {LABELS.index(name)}"})
    for name in LABELS:
        assert keys(store.search((name,))) == [name]
        assert keys(store.search((name,), query="text")) == [name]
    assert keys(store.search(("us",), query="text")) == []


def test_only_conditions_have_wildcards(store: GraphmemStore) -> None:
    for namespace in [("a", "x", "v1"), ("a", "y", "v1"), ("a", "*", "v2"), ("b", "x", "v1"), ("v1",)]:
        store.put(namespace, "k", {})
    assert keys(store.search(("*",))) == []
    assert len(store.search(("a", "*"))) == 1
    assert store.list_namespaces(prefix=("a", "*", "v1")) == [("a", "x", "v1"), ("a", "y", "v1")]
    assert len(store.list_namespaces(suffix=("v1",))) == 4
    assert store.list_namespaces(suffix=("*", "v1")) == [("a", "x", "v1"), ("a", "y", "v1"), ("b", "x", "v1")]
    assert store.list_namespaces(prefix=("a",), suffix=("v1",), max_depth=1) == [("a",)]
    assert store.list_namespaces(limit=2, offset=1) == [("a", "x", "v1"), ("a", "y", "v1")]


# --- items ----------------------------------------------------------------------------------------------------------


def test_a_value_comes_back_unchanged(store: GraphmemStore) -> None:
    value = {"": None, "f": 1.0, "i": 2**70, "l": [True, {"é": "\ud800\x00"}], "d": {}}
    store.put(NOTES, "k", value)
    item = store.get(NOTES, "k")
    assert json.dumps(item.value) == json.dumps(value)
    assert (item.namespace, item.key) == (NOTES, "k")
    assert item.created_at.utcoffset() == item.updated_at.utcoffset() == timedelta(0)
    assert json.loads(json.dumps(store.search(NOTES)[0].dict()))["score"] is None


def test_overwriting_keeps_the_time_of_creation(store: GraphmemStore) -> None:
    store.put(NOTES, "k", TEA)
    first = store.get(NOTES, "k")
    store.put(NOTES, "k", COFFEE)
    second = store.get(NOTES, "k")
    assert second.value == COFFEE
    assert first.created_at == second.created_at == first.updated_at < second.updated_at


@pytest.mark.parametrize("value", [{"t": datetime.now(UTC)}, {1: "a"}, {"n": float("nan")}, [], "text"])
def test_a_value_that_json_would_change_is_refused(store: GraphmemStore, value: Any) -> None:
    with pytest.raises(ValidationError, match="value"):
        store.put(NOTES, "k", value)
    assert store.get(NOTES, "k") is None


def test_a_value_nested_too_deeply_is_refused_and_its_namespace_stays_readable(store: GraphmemStore) -> None:
    deep: Any = "end"
    for _ in range(900):
        deep = {"a": deep}
    with pytest.raises(ValidationError, match="nested too deeply"):
        store.put(NOTES, "deep", deep)
    store.put(NOTES, "k", TEA)
    assert keys(store.search(NOTES)) == ["k"]
    with pytest.raises(ValidationError, match="filter.*nested too deeply"):
        store.search(NOTES, filter=deep)


def test_answers_that_wait_in_the_services_proxy_are_no_items_of_the_store(memory: Memory) -> None:
    waiting = (items.PROXY_ANSWERS, "talk", "t1")
    own = ItemStore(memory)
    own.write([own.put_command(Scope("ana"), waiting, "question", [{"role": "assistant", "content": "Tea it is."}])])
    store = GraphmemStore(memory, user_id="ana", agent_id=None)
    store.put(("notes",), "k", TEA)
    assert store.list_namespaces() == [("notes",)]
    assert keys(store.search(())) == keys(store.search((), query="tea")) == ["k"]
    assert store.search(waiting[:1]) == store.list_namespaces(prefix=waiting[:1]) == []
    for value in (TEA, None):
        with pytest.raises(InvalidNamespaceError, match="graphmem's own"):
            store.batch([PutOp(waiting, "question", value)])
    assert own.get(Scope("ana"), waiting, "question") is not None


def test_judgements_are_no_items_of_the_store(memory: Memory) -> None:
    store = GraphmemStore(memory, user_id="ana", agent_id=None)
    store.put(("notes",), "k", TEA)
    uid = memory.get_all(user_id="ana")["results"][0]["id"]
    memory.judge("What do I drink?", uid, "right", user_id="ana")
    assert store.list_namespaces() == [("notes",)]
    assert keys(store.search(())) == keys(store.search((), query="tea")) == ["k"]
    with pytest.raises(InvalidNamespaceError, match="graphmem's own"):
        store.batch([PutOp((items.JUDGEMENTS, "x"), "question", TEA)])
    assert memory.judgements(user_id="ana")["total"] == 1


@pytest.mark.parametrize("namespace", [("a.b",), ("",), (1,), ("a\0",), "notes"])
def test_namespaces_that_langgraph_forbids_are_refused_in_a_batch(store: GraphmemStore, namespace: Any) -> None:
    for op in (
        GetOp(namespace, "k"),
        PutOp(namespace, "k", {}),
        SearchOp(namespace),
        ListNamespacesOp((MatchCondition("prefix", namespace),)),
    ):
        with pytest.raises(InvalidNamespaceError):
            store.batch([op])


def test_the_empty_namespace_holds_nothing(store: GraphmemStore) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp((), "k", {})])
    assert store.get((), "k") is None
    store.delete((), "k")


def test_a_batch_reads_before_it_writes_and_the_last_put_of_a_key_counts(store: GraphmemStore) -> None:
    store.put(NOTES, "old", TEA)
    ops = [
        PutOp(NOTES, "new", {"n": 1}),
        GetOp(NOTES, "new"),
        PutOp(NOTES, "old", None),
        SearchOp(NOTES),
        PutOp(NOTES, "new", {"n": 2}),
        ListNamespacesOp(),
        PutOp(NOTES, "dropped", {"n": 3}),
        PutOp(NOTES, "dropped", None),
    ]
    put, got, deleted, found, *more = store.batch(ops)
    assert (put, got, deleted, more) == (None, None, None, [None, [NOTES], None, None])
    assert keys(found) == ["old"]
    assert [(item.key, item.value) for item in store.search(NOTES)] == [("new", {"n": 2})]


@pytest.mark.parametrize(
    "failing",
    [PutOp(NOTES, "j", {"n": object()}), SearchOp(NOTES, limit=-1), SearchOp(NOTES, {"n": {"$in": [1]}}), "no op"],
)
def test_a_batch_with_an_unusable_operation_writes_nothing(store: GraphmemStore, failing: Any) -> None:
    with pytest.raises(ValidationError):
        store.batch([PutOp(NOTES, "k", {"n": 1}), failing])
    assert store.get(NOTES, "k") is None


def test_a_closed_memory_raises(store: GraphmemStore, memory: Memory) -> None:
    memory.close()
    with pytest.raises(StoreUnavailable):
        store.get(NOTES, "k")
    with pytest.raises(StoreUnavailable):
        store.put(NOTES, "k", {})


# --- search ---------------------------------------------------------------------------------------------------------


def put_numbered(store: GraphmemStore, count: int, **more: Any) -> None:
    ops = [PutOp(NOTES, str(n), {"n": n, "text": f"Ana drinks tea number {n}."}, **more) for n in range(count)]
    store.batch(ops)


def test_without_a_query_the_last_changed_come_first_then_by_key(store: GraphmemStore) -> None:
    put_numbered(store, 3)
    store.put(NOTES, "1", COFFEE)
    assert keys(store.search(NOTES)) == ["1", "0", "2"]


def test_pages_are_cut_after_filtering(store: GraphmemStore) -> None:
    put_numbered(store, 120)
    page = store.search(NOTES, filter={"n": {"$gte": 100}}, limit=7, offset=10)
    assert keys(page) == [str(n) for n in range(110, 117)]


def test_an_item_is_found_by_a_query_as_soon_as_it_is_put(store: GraphmemStore) -> None:
    store.put(NOTES, "tea", TEA)
    (item,) = store.search(NOTES, query="Who drinks tea?")
    assert (item.key, item.score) == ("tea", 1.0)


def test_items_without_a_memory_fill_the_page_of_a_query(store: GraphmemStore) -> None:
    store.put(NOTES, "tea", TEA)
    store.put(NOTES, "plain", COFFEE, index=False)
    store.put(NOTES, "newest", {"n": 1}, index=["missing"])
    found = store.search(NOTES, query="black coffee")
    assert [(item.key, item.score is None) for item in found] == [("tea", False), ("newest", True), ("plain", True)]
    assert keys(store.search(NOTES, query="black coffee", limit=1, offset=1)) == ["newest"]


def test_found_items_have_a_relevance_and_a_store_may_ask_for_a_least_one(memory: Memory) -> None:
    every = GraphmemStore(memory, user_id="ana")
    for key, text in (("tea", "I like green tea"), ("work", "Work begins at nine")):
        every.put(("notes",), key, {"text": text})
    every.put(("notes",), "none", {"text": "tea"}, index=False)
    tea, work, none = every.search(("notes",), query="green tea")
    assert keys((tea, work, none)) == ["tea", "work", "none"]
    assert 0 <= work.relevance < tea.relevance < 1 and none.relevance is None  # type: ignore[attr-defined]
    assert tea.dict()["relevance"] == tea.relevance  # type: ignore[attr-defined]
    relevant = GraphmemStore(memory, user_id="ana", min_relevance="default")
    assert keys(relevant.search(("notes",), query="green tea")) == ["tea"]
    assert relevant.search(("notes",), query="Which engine drives the spacecraft?") == []
    assert sorted(keys(relevant.search(("notes",)))) == ["none", "tea", "work"]
    with pytest.raises(ValidationError, match="^min_relevance="):
        GraphmemStore(memory, min_relevance=2)


def test_a_search_waits_for_the_vectors_of_what_was_put_before(
    make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_released = Event()

    def embed(texts: list[str]) -> list[Any]:
        is_released.wait(TIMEOUT)
        return hash_texts(texts)

    embedder = {"provider": "callable", "config": {"embed": embed, "embedding_dims": 64, "model": "slow"}}
    store = GraphmemStore(make_memory(embedder=embedder, delivery_wait=0.01), user_id="ana")
    store.put(NOTES, "tea", TEA)
    store.put(NOTES, "coffee", COFFEE)
    monkeypatch.setattr(integration_items, "ENRICHMENT_WAIT", 0.01)
    Timer(0.3, is_released.set).start()
    store.search(NOTES, query="green tea")
    assert [record.getMessage() for record in caplog.records if "degraded search" in record.getMessage()]
    monkeypatch.undo()
    assert keys(store.search(NOTES, query="green tea")) == ["tea", "coffee"]


def test_an_item_whose_memory_gets_other_metadata_is_still_found(store: GraphmemStore, memory: Memory) -> None:
    store.put(NOTES, "tea", TEA)
    (record,) = memory.get_all(user_id="ana")["results"]
    memory.update(record["id"], metadata={"seen": True, "namespace": "x"})
    (item,) = store.search(NOTES, query="Who drinks tea?")
    assert (item.key, item.score) == ("tea", 1.0)


def test_an_item_is_found_whatever_metadata_before_store_leaves(make_memory: Callable[..., Memory]) -> None:
    memory = make_memory(before_store=lambda message: {**message, "metadata": {"a": 1}}, delivery_wait=TIMEOUT)
    store = GraphmemStore(memory, user_id="ana")
    store.put(NOTES, "tea", TEA)
    assert [item.score for item in store.search(NOTES, query="tea")] == [1.0]


def test_before_store_changes_the_memory_of_an_item_and_not_its_value(
    make_memory: Callable[..., Memory], caplog: pytest.LogCaptureFixture
) -> None:
    def hook(message: dict[str, Any]) -> dict[str, Any] | None:
        return None if "coffee" in message["content"] else {**message, "content": "Redacted."}

    memory = make_memory(before_store=hook)
    store = GraphmemStore(memory, user_id="ana")
    store.put(NOTES, "tea", TEA)
    store.put(NOTES, "coffee", COFFEE)
    assert [item.value for item in store.search(NOTES)] == [COFFEE, TEA]
    assert [record["memory"] for record in memory.get_all(user_id="ana")["results"]] == ["Redacted."]
    assert [record.getMessage() for record in caplog.records if record.name == "graphmem"] == [
        "before_store returned None, or no words, for 1 of 1 messages; no memory is made of them"
    ]


def test_an_item_is_found_among_many_of_other_namespaces_and_many_plain_memories(
    store: GraphmemStore, memory: Memory
) -> None:
    store.batch([PutOp(("other",), str(n), {"text": f"Ana drinks green tea number {n}."}) for n in range(300)])
    memory.add([f"Ana drinks green tea for the {n}th time." for n in range(300)], user_id="ana", agent_id="langgraph")
    store.put(NOTES, "tea", {"text": "Ben also likes tea."})
    (item,) = store.search(NOTES, query="Ana drinks green tea")
    assert (item.key, item.score) == ("tea", 1.0)


@pytest.mark.parametrize("query", [5, b"tea", ["tea"]])
def test_a_query_that_is_no_string_is_refused(store: GraphmemStore, query: Any) -> None:
    with pytest.raises(ValidationError, match="query.*must be a string"):
        store.search(NOTES, query=query)


@pytest.mark.parametrize("query", ["", " ", "\x00\ud800"])
def test_a_query_without_words_is_none(store: GraphmemStore, query: str) -> None:
    store.put(NOTES, "tea", TEA)
    assert [item.score for item in store.search(NOTES, query=query)] == [None]


def test_what_replaces_a_text_hides_it_from_search_and_leaves_it_in_the_history(
    store: GraphmemStore, memory: Memory
) -> None:
    store.put(NOTES, "k", TEA)
    store.put(NOTES, "k", COFFEE)
    (record,) = memory.get_all(user_id="ana")["results"]
    assert record["memory"] == COFFEE["text"]
    assert [event["old_memory"] for event in memory.history(record["id"])] == [None, TEA["text"]]


VALUE = {"text": "one", "content": {"b": ["two", "three"]}, "other": "four"}


@pytest.mark.parametrize(
    ("fields", "index", "remembered"),
    [
        (None, None, 'one\n{"b": ["two", "three"]}'),
        (None, ["other"], "four"),
        (None, ["content.b[*]", "text"], "two\nthree\none"),
        (None, ["$"], json.dumps(VALUE, sort_keys=True)),
        (None, [], None),
        (None, False, None),
        (["other", "missing"], None, "four"),
        (["missing"], None, None),
        (["other"], ["text"], "one"),
    ],
)
def test_fields_and_index_name_the_texts_to_remember(
    memory: Memory, fields: list[str] | None, index: Any, remembered: str | None
) -> None:
    GraphmemStore(memory, user_id="ana", fields=fields).put(NOTES, "k", VALUE, index=index)
    assert [record["memory"] for record in memory.get_all(user_id="ana")["results"]] == [
        text for text in [remembered] if text is not None
    ]


@pytest.mark.parametrize(
    ("value", "remembered"),
    [
        ({"likes": ["tea"]}, ['{"likes": ["tea"]}']),
        ({}, []),
        ({"kind": "Memory", "content": {"content": "Ana drinks tea."}}, ["Ana drinks tea."]),
        ({"content": {"likes": "tea"}}, ['{"likes": "tea"}']),
        ({"content": {}, "text": "tea"}, ["tea\n{}"]),
    ],
)
def test_a_value_is_remembered_by_its_usual_fields_or_whole(
    store: GraphmemStore, memory: Memory, value: dict[str, Any], remembered: list[str]
) -> None:
    store.put(NOTES, "k", value)
    assert [record["memory"] for record in memory.get_all(user_id="ana")["results"]] == remembered


@pytest.mark.parametrize("index", ["text", [1]])
def test_paths_are_a_list_of_strings(store: GraphmemStore, index: Any) -> None:
    with pytest.raises(ValidationError, match="index"):
        store.put(NOTES, "k", TEA, index=index)


@pytest.mark.parametrize(
    ("condition", "passing"),
    [
        ({"$gt": 1}, ["big", "float"]),
        ({"$gte": 1, "$lt": 2}, ["one", "float"]),
        ({"$lte": "b"}, ["text"]),
        ({"$lt": "ab"}, ["text"]),
        ({"$gt": None}, []),
        ({"$ne": 1}, ["big", "float", "missing", "null", "text", "true"]),
        ({"$eq": None}, ["missing", "null"]),
    ],
)
def test_order_operators_compare_numbers_with_numbers_and_strings_with_strings(
    store: GraphmemStore, condition: dict[str, Any], passing: list[str]
) -> None:
    values = {"one": 1, "float": 1.5, "big": 10**30, "text": "a", "null": None, "true": True}
    store.batch([PutOp(NOTES, key, {"n": value}) for key, value in values.items()])
    store.put(NOTES, "missing", {})
    expected = {*passing} - {"true"} if "$ne" in condition else {*passing}
    assert {*keys(store.search(NOTES, filter={"n": condition}))} == expected


def test_an_operator_may_stand_inside_lists_and_dicts(store: GraphmemStore) -> None:
    values = [{"v": [1, {"n": 2}]}, {"v": [0, {"n": 2}]}, {"v": [1, {"n": 9}]}, {"v": [1]}]
    store.batch([PutOp(NOTES, str(number), value) for number, value in enumerate(values)])
    assert keys(store.search(NOTES, filter={"v": [{"$gt": 0}, {"n": {"$lt": 5}}]})) == ["0"]


@pytest.mark.parametrize("condition", [{"n": {"$in": [1]}}, {"n": {"$or": []}}, {"a": [{"$gt": 1, "x": 2}]}, ["n"]])
def test_an_unknown_operator_is_refused_even_where_there_is_no_item(store: GraphmemStore, condition: Any) -> None:
    with pytest.raises(ValueError, match="filter"):
        store.search(NOTES, filter=condition)


def test_the_top_level_of_a_filter_has_names_of_fields_and_no_operators(store: GraphmemStore) -> None:
    store.put(NOTES, "p", {"$ref": "x", "$gt": 1})
    store.put(NOTES, "q", {"ref": "x"})
    assert keys(store.search(NOTES, filter={"$ref": "x"})) == ["p"]
    assert keys(store.search(NOTES, filter={"$gt": {"$gte": 1}})) == ["p"]


def test_without_vectors_a_query_still_returns_all_items(make_memory: Callable[..., Memory]) -> None:
    broken = False

    def embed(texts: list[str]) -> list[Any]:
        if broken:
            raise EmbeddingError("out of order")
        return hash_texts(texts)

    embedder = {"provider": "callable", "config": {"embed": embed, "embedding_dims": 64, "model": "hash"}}
    store = GraphmemStore(make_memory(embedder=embedder, delivery_wait=TIMEOUT), user_id="ana")
    store.put(NOTES, "tea", TEA)
    assert store.search(NOTES, query="tea")[0].score == 1.0
    broken = True
    store.put(NOTES, "coffee", COFFEE)
    assert keys(store.search(NOTES, query="black coffee")) == ["coffee", "tea"]


def test_a_memory_that_returns_bare_lists_can_be_searched(make_memory: Callable[..., Memory]) -> None:
    store = GraphmemStore(make_memory(version="v1.0", delivery_wait=TIMEOUT), user_id="ana")
    store.put(NOTES, "tea", TEA)
    assert store.search(NOTES, query="tea")[0].score == 1.0


# --- time to live ---------------------------------------------------------------------------------------------------


def stored(memory: Memory) -> list[Item]:
    """All items, in the order in which they were stored."""
    with memory.engine.ledger.read() as connection:
        return list(items.all_items(connection, None))


def minutes_left(memory: Memory) -> list[float]:
    """The minutes, rounded, after which the items expire."""
    return [round((item.expires_at - datetime.now(UTC)) / timedelta(minutes=1)) for item in stored(memory)]


def set_expiration(memory: Memory, moment: datetime) -> None:
    with memory.engine.ledger.write() as connection:
        connection.execute(schema.items.update().values(expires_at=int(moment.timestamp() * 1e6)))


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(minutes=5)


def test_an_expired_item_is_not_shown(store: GraphmemStore, memory: Memory) -> None:
    store.put(NOTES, "k", TEA, ttl=30)
    set_expiration(memory, datetime(2020, 1, 1, tzinfo=UTC))
    assert store.get(NOTES, "k") is None
    assert store.search(NOTES) == store.search(NOTES, query="tea") == store.list_namespaces() == []


@pytest.mark.parametrize(
    "read",
    [
        lambda store, **more: store.get(NOTES, "k", **more),
        lambda store, **more: store.search(NOTES, **more),
        lambda store, **more: store.search(NOTES, query="tea", **more),
    ],
)
@pytest.mark.parametrize(
    ("ttl", "refresh_ttl", "left"),
    [
        (None, None, 30),
        (None, False, 5),
        ({"refresh_on_read": False}, None, 5),
        ({"refresh_on_read": False}, True, 30),
    ],
)
def test_reading_postpones_the_expiration(
    memory: Memory, read: Callable[..., Any], ttl: TTLConfig | None, refresh_ttl: bool | None, left: int
) -> None:
    store = GraphmemStore(memory, user_id="ana", ttl=ttl)
    store.put(NOTES, "k", TEA, ttl=30)
    set_expiration(memory, soon())
    read(store, refresh_ttl=refresh_ttl)
    assert minutes_left(memory) == [left]


@SQLITE_ONLY
@pytest.mark.parametrize("read", [lambda store: [store.get(NOTES, "k")], lambda store: store.search(NOTES)])
def test_what_was_read_is_returned_when_its_expiration_cannot_be_postponed(
    make_memory: Callable[..., Memory],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    read: Callable[[GraphmemStore], Any],
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)  # how long a writer waits for another process
    memory = make_memory(tmp_path)
    store = GraphmemStore(memory, user_id="ana")
    store.put(NOTES, "k", TEA, ttl=30)
    memory.flush()
    set_expiration(memory, soon())
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as other_process:
        other_process.execute("BEGIN IMMEDIATE")
        assert [item.value for item in read(store)] == [TEA]
        with pytest.raises(StoreLocked, match="let that end its transaction, and try again"):
            store.batch([GetOp(NOTES, "k"), PutOp(NOTES, "new", TEA)])
    assert minutes_left(memory) == [5]
    assert [record.getMessage() for record in caplog.records if record.name == "graphmem"] == [
        "the expiration of 1 items was not postponed (StoreLocked)"
    ]


def test_only_the_items_of_the_page_are_refreshed(store: GraphmemStore, memory: Memory) -> None:
    put_numbered(store, 4, ttl=30)
    set_expiration(memory, soon())
    assert keys(store.search(NOTES, limit=1, offset=1, filter={"n": {"$gt": 0}})) == ["2"]
    assert minutes_left(memory) == [5, 5, 30, 5]


def test_reading_an_item_without_a_time_to_live_writes_nothing(
    store: GraphmemStore, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(NOTES, "k", TEA)
    memory.flush()
    monkeypatch.setattr(memory.engine, "commit", lambda *_: pytest.fail("a write"))
    store.get(NOTES, "k")


def test_the_default_time_to_live_is_that_of_new_items(memory: Memory) -> None:
    store = GraphmemStore(memory, user_id="ana", ttl={"default_ttl": 30, "sweep_interval_minutes": 1})
    store.put(NOTES, "default", TEA)
    store.put(NOTES, "own", TEA, ttl=90)
    assert minutes_left(memory) == [30, 90]
    store.put(NOTES, "default", TEA, ttl=None)
    store.delete(NOTES, "own")
    assert [item.expires_at for item in stored(memory)] == [None]


# --- asyncio, processes, graphs -------------------------------------------------------------------------------------


class BatchedStore(AsyncBatchedBaseStore):
    """Collects the operations of one turn of the event loop into a batch, as LangGraph's own asynchronous stores do."""

    def __init__(self, store: GraphmemStore) -> None:
        super().__init__()
        self.store = store
        self.batches: list[int] = []

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        self.batches.append(len(ops))
        return await self.store.abatch(ops)


async def test_operations_of_many_tasks_are_one_batch(store: GraphmemStore) -> None:
    batched = BatchedStore(store)
    await asyncio.gather(*(batched.aput(NOTES, str(n), {"n": n}, index=False) for n in range(20)))
    found, *got = await asyncio.gather(
        batched.asearch(NOTES, limit=50), *(batched.aget(NOTES, str(n)) for n in range(20))
    )
    assert [item.value["n"] for item in got] == list(range(20))
    assert {*keys(found)} == {str(n) for n in range(20)}
    assert len(batched.batches) < 10


async def test_the_asynchronous_methods_do_the_same(memory: Memory) -> None:
    store = GraphmemStore(AsyncMemory(sync=memory), user_id="ana")
    await store.aput(NOTES, "tea", TEA)
    assert (await store.aget(NOTES, "tea")).value == TEA
    assert keys(await store.asearch(NOTES, query="tea")) == ["tea"]
    assert await store.alist_namespaces() == [NOTES]
    await store.adelete(NOTES, "tea")
    assert await store.aget(NOTES, "tea") is None


def recalled_elsewhere(home: Path, user_id: str, *texts: str) -> list[list[str]]:
    """Runs the graph in a process of its own, once for each text."""
    program = Path(__file__).with_name("notes_graph.py")
    arguments = [sys.executable, str(program), str(home), user_id, *texts]
    return json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


@pytest.mark.thorough  # another process imports LangGraph
def test_a_graph_remembers_over_two_processes_on_one_folder(tmp_path: Path) -> None:
    tea, cello = "I drink green tea.", "My brother plays the cello."
    with open_memory(tmp_path) as memory:
        assert recalled(memory, "ana@x.org", tea) == []
        assert recalled_elsewhere(tmp_path, "ana@x.org", "Who drinks green tea?", cello) == [[tea], [tea]]
        assert recalled(memory, "ana@x.org", "What does my brother play?") == [cello]
        assert recalled(memory, "ben@x.org", "What does my brother play?") == []


def test_without_langgraph_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['langgraph'] = None\nimport graphmem\nimport graphmem.integrations.langgraph"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ConfigError: langgraph is not installed; install the extra langgraph: " in result.stderr
