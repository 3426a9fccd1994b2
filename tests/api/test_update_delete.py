"""`update`, `delete`, `delete_all`, `history`."""

from __future__ import annotations

import json

import pytest
from support.contract import JANUARY, added, ids

from graphmem import Memory
from graphmem.errors import (
    NotFoundError,
    ValidationError,
)


@pytest.mark.quick
def test_update_changes_in_place_and_history_keeps_the_old_text(memory: Memory) -> None:
    uid = added(memory, "I like tea", timestamp=JANUARY)
    before = memory.get(uid)
    changed = memory.update(uid, "I like coffee")
    assert isinstance(changed.pop("message"), str)
    assert changed == memory.get(uid)
    assert (changed["id"], changed["memory"], changed["at"]) == (uid, "I like coffee", before["at"])
    assert changed["hash"] != before["hash"]
    assert changed["updated_at"] > before["updated_at"] and changed["created_at"] == before["created_at"]
    (hit,) = memory.search("I like coffee", user_id="u1")["results"]
    assert (hit["memory"], hit["similarity"]) == ("I like coffee", pytest.approx(1, abs=1e-5))
    assert [(e["event"], e["old_memory"], e["new_memory"]) for e in memory.history(uid)] == [
        ("ADD", None, "I like tea"), ("UPDATE", "I like tea", "I like coffee"),
    ]  # fmt: skip


def test_update_takes_mem0s_text_and_metadata(memory: Memory) -> None:
    uid = added(memory, "tea", metadata={"a": 1, "b": 2})
    memory.update(uid, text="coffee")
    assert memory.get(uid)["metadata"] == {"a": 1, "b": 2}
    memory.update(uid, metadata={"b": 0, "c": 3})
    assert (memory.get(uid)["memory"], memory.get(uid)["metadata"]) == ("coffee", {"a": 1, "b": 0, "c": 3})
    assert memory.update(uid, metadata={})["message"].startswith("Nothing to change")
    memory.update(uid, metadata={"d": 4}, replace_metadata=True)
    assert memory.get(uid)["metadata"] == {"d": 4}
    memory.update(uid, metadata={}, replace_metadata=True)
    assert memory.get(uid)["metadata"] == {}


def test_metadata_that_many_updates_add_has_the_limit_of_one(memory: Memory) -> None:
    size = memory.limits.max_metadata_bytes * 2 // 3
    uid = added(memory, "tea", metadata={"a": "x" * size})
    with pytest.raises(ValidationError, match="bytes as JSON"):
        memory.update(uid, metadata={"b": "x" * size})
    memory.update(uid, metadata={"b": "x" * size}, replace_metadata=True)
    assert list(memory.get(uid)["metadata"]) == ["b"]


def test_undo_takes_back_what_an_update_added_to_the_metadata(memory: Memory) -> None:
    uid = added(memory, "tea", metadata={"a": 1})
    memory.update(uid, metadata={"b": 2})
    assert memory.undo(memory.history(uid)[-1]["id"])["metadata"] == {"a": 1}


def test_a_memory_that_is_missing_is_a_value_error_as_in_mem0(memory: Memory) -> None:
    for call in (lambda: memory.update("unknown", "x"), lambda: memory.delete("unknown")):
        with pytest.raises(ValueError, match="unknown") as caught:
            call()
        assert isinstance(caught.value, NotFoundError)


def test_update_refuses_unusable_arguments(memory: Memory) -> None:
    uid = added(memory, "tea")
    for bad in (
        {},
        {"data": ""},
        {"data": "  "},
        {"data": 7},
        {"data": "a", "text": "b"},
        {"metadata": [1]},
        {"metadata": {}, "replace_metadata": "yes"},
        {"expiration_date": "soon"},
    ):
        with pytest.raises(ValidationError):
            memory.update(uid, **bad)
    with pytest.raises(NotFoundError):
        memory.update("no such", "x")
    assert len(memory.history(uid)) == 1


def test_history_has_mem0s_ten_columns_and_is_retired(memory: Memory) -> None:
    uid = added(memory, {"role": "user", "content": "tea", "name": "Ann"})
    memory.delete(uid)
    first, last = memory.history(uid)
    columns = [
        "id",
        "memory_id",
        "old_memory",
        "new_memory",
        "event",
        "created_at",
        "updated_at",
        "is_deleted",
        "actor_id",
        "role",
        "is_retired",
    ]
    assert list(first) == list(last) == columns
    assert (first["event"], first["is_deleted"], last["event"], last["is_deleted"]) == ("ADD", False, "DELETE", True)
    assert (first["actor_id"], first["role"], first["memory_id"]) == ("Ann", "user", uid)
    assert memory.history("no such") == []


def test_delete_gives_a_receipt_and_leaves_a_history_without_texts(memory: Memory) -> None:
    uid = added(memory, "I like oolong")
    memory.update(uid, "I love oolong")
    receipt = memory.delete(uid)
    assert receipt["deleted"] == [uid]
    assert set(receipt["erased"]) == {"ledger", "vectors", "graph", "derived"}
    assert (receipt["erased"]["ledger"], receipt["erased"]["vectors"]) == (1, 1)
    assert isinstance(receipt["message"], str) and "pending" not in receipt
    assert memory.get(uid) is None
    assert ids(memory.search("oolong", user_id="u1")) == ids(memory.get_all(user_id="u1")) == []
    assert [event["event"] for event in memory.history(uid)] == ["ADD", "UPDATE", "DELETE"]
    assert "oolong" not in json.dumps(memory.history(uid))
    for call in (memory.delete, memory.explain, lambda i: memory.update(i, "x")):
        with pytest.raises(NotFoundError):
            call(uid)
    assert memory.verify()["ok"]


def test_delete_all_erases_only_its_scope(memory: Memory) -> None:
    mine = ids(memory.add(["tea", "cake"], user_id="u1", agent_id="a"))
    others = [added(memory, "bread"), added(memory, "jam", user_id="u2", agent_id="b")]
    receipt = memory.delete_all(agent_id="a")
    assert sorted(receipt["deleted"]) == sorted(mine)
    assert receipt["erased"]["ledger"] == 2
    assert memory.delete_all(agent_id="a")["deleted"] == []
    assert all(memory.get(uid) for uid in others)
    assert memory.verify()["ok"]
