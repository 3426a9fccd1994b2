"""Scopes: whose memories a call sees."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.contract import SCOPED, added, ids

from graphmem import Memory
from graphmem.errors import (
    NotFoundError,
    ValidationError,
)


@pytest.mark.parametrize("call", SCOPED)
def test_these_calls_need_a_scope(memory: Memory, call: str) -> None:
    with pytest.raises(ValidationError, match="user_id"):
        SCOPED[call](memory)
    for bad in ("", "   ", "a\nb", "a\x00", "*", True, ["u1"], {"in": ["u1"]}, b"u1", "x" * 300, float("nan")):
        with pytest.raises(ValidationError):
            SCOPED[call](memory, user_id=bad)


def test_ids_are_trimmed_and_numbers_converted(memory: Memory) -> None:
    uid = added(memory, "tea", user_id=42)
    assert ids(memory.get_all(user_id=" 42\t")) == [uid]
    assert memory.get(uid)["user_id"] == "42"


def test_a_search_sees_the_memories_that_have_the_ids_of_its_scope(memory: Memory) -> None:
    scopes = [
        {"user_id": "u"}, {"user_id": "u", "agent_id": "a"}, {"user_id": "u", "agent_id": "a", "run_id": "r"},
        {"user_id": "u", "run_id": "r"}, {"agent_id": "a"}, {"user_id": "v", "agent_id": "a"}, {"run_id": "r"},
    ]  # fmt: skip
    memory_ids = [memory.add("tea", **scope)["results"][0]["id"] for scope in scopes]
    for search_scope in scopes:
        wanted = {uid for uid, scope in zip(memory_ids, scopes, strict=True) if search_scope.items() <= scope.items()}
        assert set(ids(memory.search("tea", **search_scope))) == wanted
        assert set(ids(memory.get_all(**search_scope))) == wanted


def test_scope_ids_inside_filters_are_a_scope(memory: Memory) -> None:
    uid = added(memory, "tea", agent_id="a")
    assert ids(memory.search("tea", filters={"user_id": "u1"})) == [uid]
    assert ids(memory.get_all(filters={"user_id": "u1", "agent_id": " a "})) == [uid]
    assert ids(memory.search("tea", user_id="u1", filters={"user_id": "u1"})) == [uid]
    assert ids(memory.search("tea", user_id="u1", filters={"agent_id": "b"})) == []


@pytest.mark.parametrize(
    "filters",
    [
        {"user_id": "u2"},
        {"user_id": "*"},
        {"user_id": ["u1", "u2"]},
        {"user_id": {"in": ["u1"]}},
        {"user_id": {"ne": "x"}},
        {"AND": [{"user_id": "u2"}]},
        {"OR": [{"user_id": "u1"}, {"user_id": "u2"}]},
        {"NOT": [{"user_id": "u1"}]},
        {"NOT": {"agent_id": "a"}},
        {"a": {"b": {"run_id": "r"}}},
    ],
)
def test_nothing_in_filters_can_widen_the_scope(memory: Memory, filters: Any) -> None:
    for call in (
        lambda: memory.search("x", user_id="u1", filters=filters),
        lambda: memory.get_all(user_id="u1", filters=filters),
    ):
        with pytest.raises(ValidationError):
            call()


def test_an_id_outside_the_scope_reads_as_absent(memory: Memory) -> None:
    uid = added(memory, "tea")
    assert memory.get(uid, user_id="u1")["id"] == uid
    assert memory.get(uid, user_id="u2") is None
    assert memory.get(uid, user_id="u1", agent_id="a") is None
    assert memory.history(uid, agent_id="a") == []
    messages = []
    for wrong in (uid, "no such id"):
        for call in (memory.delete, memory.explain, lambda i, **s: memory.update(i, "x", **s)):
            with pytest.raises(NotFoundError) as caught:
                call(wrong, user_id="u2")
            messages.append(str(caught.value).replace(wrong, "ID"))
    assert messages[:3] == messages[3:]
    assert memory.get(uid)["memory"] == "tea"


def test_paths_relations_and_entities_show_nothing_from_outside_the_scope(anna: Memory) -> None:
    response = anna.search("Who works for Siemens in Krefeld?", user_id="u1", agent_id="a", explain=True)
    assert response["results"]
    output = json.dumps([
        response,
        anna.context("Siemens Krefeld", user_id="u1", agent_id="a"),
        anna.entities(user_id="u1", agent_id="a"),
        anna.entity("Siemens", user_id="u1", agent_id="a"),
        anna.get_all(user_id="u1", agent_id="a"),
        list(anna.graph(user_id="u1", agent_id="a").nodes(data=True)),
    ])  # fmt: skip
    for secret in ("Krefeld", "krefeld", "trains", "Bob", "bob"):
        assert secret not in output
    assert anna.entity("Krefeld", user_id="u1", agent_id="a") is None
