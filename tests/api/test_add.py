"""`add`: the stored form of messages, and recognition of messages added before."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from support.contract import JANUARY, JUNE, RELATION, added, check, ids, texts

from graphmem import Memory
from graphmem.errors import (
    ConfigError,
    ValidationError,
)


def test_add_gives_one_result_for_each_message_in_order(memory: Memory) -> None:
    response = memory.add(
        [{"role": "user", "content": "I like tea"}, "and cake", {"role": "assistant", "content": "Noted."}],
        user_id="u1",
    )
    assert texts(response) == ["I like tea", "and cake", "Noted."]
    assert {one["event"] for one in response["results"]} == {"ADD"}
    assert {one["kind"] for one in response["results"]} == {"episode"}
    assert len(set(ids(response))) == 3
    assert response["relations"] == []
    # A server that has just started may take longer than a write waits for it.
    assert "pending" not in response or memory.flush() == {"pending": []}


def test_the_same_words_within_a_window_are_one_memory(memory: Memory) -> None:
    def events(messages: Any, **more: Any) -> list[str]:
        results = memory.add(messages, **{"user_id": "u1", "repeat_window": 60, **more})["results"]
        return [one["event"] for one in results]

    first = added(memory, "I moved to Bergen.")
    (again,) = memory.add("I moved to Bergen.", user_id="u1", repeat_window=60)["results"]
    assert (again["id"], again["event"], again["reason"]) == (first, "NONE", "known")
    others: list[dict[str, Any]] = [{"user_id": "u2"}, {"run_id": "r"}, {"metadata": {"tags": ["home"]}}]
    for other in others:
        assert events("I moved to Bergen.", **other) == ["ADD"]
    assert events({"role": "user", "content": "I moved to Bergen.", "name": "Ben"}) == ["ADD"]
    chat = [{"role": "user", "content": "Yes."}, {"role": "assistant", "content": "Good."}]
    assert events(chat * 2) == ["ADD"] * 4
    assert events(chat) == ["NONE"] * 2
    assert events(chat * 3) == ["ADD"] * 6
    assert events([*chat, "And you?"]) == ["ADD"] * 3
    assert events(["I moved to Bergen.", "Where to?"], user_id="u2") == ["ADD"] * 2
    memory.delete(first)
    assert events("I moved to Bergen.") == ["ADD"]
    for unusable in (0, -1, "soon", 86_401):
        with pytest.raises(ValidationError, match="repeat_window"):
            events("tea", repeat_window=unusable)


def test_words_said_before_the_window_are_new(memory: Memory) -> None:
    added(memory, "I moved to Bergen.", timestamp=datetime.now(UTC) - timedelta(minutes=2))
    for window, event in ((60, "ADD"), (60, "NONE")):
        (one,) = memory.add("I moved to Bergen.", user_id="u1", repeat_window=window)["results"]
        assert one["event"] == event


def test_add_takes_a_string_a_message_or_a_list(memory: Memory) -> None:
    for words in ("tea", {"role": "user", "content": "cake"}, ["bread"], ({"role": "user", "content": "jam"},)):
        assert len(memory.add(words, user_id="u1")["results"]) == 1
    assert memory.add([], user_id="u1") == {"results": [], "relations": []}
    assert memory.get_all(user_id="u1")["total"] == 4


def test_add_stores_the_relations_of_a_message(anna: Memory) -> None:
    (relation,) = [one for one in anna.get_all(user_id="u1")["relations"] if one["source"] == "Anna"]
    check(relation, RELATION)
    assert relation["target"] == "Siemens"
    assert [anna.get(uid)["memory"] for uid in relation["memory_ids"]] == ["Anna works at Siemens."]


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "function"])
def test_these_roles_are_remembered(memory: Memory, role: str) -> None:
    uid = added(memory, {"role": role, "content": "tea", "name": "Ann"})
    assert (memory.get(uid)["role"], memory.get(uid)["actor_id"]) == (role, "Ann")


@pytest.mark.parametrize("role", ["system", "developer"])
def test_these_roles_are_never_remembered(memory: Memory, role: str) -> None:
    response = memory.add([{"role": role, "content": "be nice"}, {"role": "user", "content": "tea"}], user_id="u1")
    assert texts(response) == texts(memory.get_all(user_id="u1")) == ["tea"]


def test_an_unknown_role_stores_nothing_of_the_call(memory: Memory) -> None:
    with pytest.raises(ValidationError, match="role"):
        memory.add(["tea", {"role": "robot", "content": "x"}], user_id="u1")
    assert memory.get_all(user_id="u1")["total"] == 0


def test_messages_without_text_give_no_result(memory: Memory) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
    response = memory.add(
        [
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
            {"role": "user", "content": [image]},
            {"role": "user", "content": "   "},
            {"role": "user", "content": "tea"},
        ],
        user_id="u1",
    )
    assert texts(response) == ["tea"]


PARTS = [
    {"type": "text", "text": "Look at"},
    {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
    {"type": "text", "text": "my cat"},
]


def test_of_content_parts_the_text_is_taken(memory: Memory) -> None:
    assert memory.get(added(memory, {"role": "user", "content": PARTS}))["memory"] == "Look at\nmy cat"


def test_of_content_parts_other_than_text_a_reference_is_kept(memory: Memory) -> None:
    kept = memory.get(added(memory, {"role": "user", "content": PARTS}, metadata={"attachments": "mine"}))
    reference = {"kind": "image", "ref": "https://example.org/cat.png", "caption": None, "transcript": None}
    assert (kept["attachments"], kept["metadata"]) == ([reference], {"attachments": "mine"})
    assert "attachments" not in memory.get(added(memory, "tea"))


def test_texts_are_stored_to_the_character(memory: Memory) -> None:
    words = "  Zoë said:\t“naïve”\r\n\n😀 \u202e 日本語 <b>'; DROP TABLE memories; --  "
    assert memory.get(added(memory, words))["memory"] == words
    assert memory.search("naïve", user_id="u1")["results"][0]["memory"] == words


@pytest.mark.parametrize(
    ("timestamp", "at"),
    [
        (datetime(2024, 1, 2, 3, tzinfo=UTC), "2024-01-02T03:00:00"),
        (datetime(2024, 1, 2, 3), "2024-01-02T03:00:00"),
        ("2024-01-02T03:00:00+02:00", "2024-01-02T01:00:00"),
        ("2024-01-02", "2024-01-02T00:00:00"),
        (1704164400, "2024-01-02T03:00:00"),
        (1704164400.5, "2024-01-02T03:00:00.500000"),
    ],
)
def test_timestamps_say_when_it_was_said(memory: Memory, timestamp: Any, at: str) -> None:
    for uid in (
        added(memory, "tea", timestamp=timestamp),
        added(memory, {"role": "user", "content": "cake", "timestamp": timestamp}, timestamp=JUNE),
    ):
        record = memory.get(uid)
        assert datetime.fromisoformat(record["at"]) == datetime.fromisoformat(at).replace(tzinfo=UTC)
        assert record["valid_from"] == record["at"]
        assert record["at"].endswith("+00:00")


def test_without_a_timestamp_it_was_said_now(memory: Memory) -> None:
    before = datetime.now(UTC)
    record = memory.get(added(memory, "tea"))
    assert before <= datetime.fromisoformat(record["at"]) <= datetime.now(UTC)


@pytest.mark.parametrize("bad", ["yesterday", float("nan"), 1e18, True, [2024], "2024-13-01"])
def test_a_bad_timestamp_is_refused(memory: Memory, bad: Any) -> None:
    with pytest.raises(ValidationError, match="timestamp"):
        memory.add("tea", user_id="u1", timestamp=bad)


@pytest.mark.parametrize(
    "bad", [None, 7, b"tea", [None], {"content": "x"}, {"role": "user"}, {"role": "user", "content": 7}, [[]], "a\x00b"]
)
def test_bad_messages_are_refused(memory: Memory, bad: Any) -> None:
    with pytest.raises(ValidationError):
        memory.add(bad, user_id="u1")


def test_metadata_and_memory_type_are_kept(memory: Memory) -> None:
    uid = added(memory, "tea", metadata={"a": [1, {"b": None}], "tags": ("x",)}, memory_type="procedural_memory")
    assert memory.get(uid)["metadata"] == {"a": [1, {"b": None}], "tags": ["x"]}
    assert memory.get(uid)["memory_type"] == "procedural"


def test_metadata_in_a_message_overrides_that_of_the_call(memory: Memory) -> None:
    message = {"role": "user", "content": "tea", "metadata": {"topic": "drinks", "at": date(2024, 5, 1)}}
    results = memory.add([message, "cake"], user_id="alice", metadata={"topic": "food", "from": "chat"})["results"]
    tea, cake = (memory.get(one["id"])["metadata"] for one in results)
    assert tea == {"topic": "drinks", "from": "chat", "at": "2024-05-01"}
    assert cake == {"topic": "food", "from": "chat"}
    (hit,) = memory.search("tea", user_id="alice", filters={"topic": "drinks"})["results"]
    assert hit["memory"] == "tea"
    for bad, pattern in ((7, "=7: must be a dict"), ({"a": {1}}, ".a="), ({"a": "x" * 300_000}, "takes 300")):
        with pytest.raises(ValidationError, match=r"messages\[1\]\.metadata" + f".*{pattern}"):
            memory.add(["x", {**message, "metadata": bad}], user_id="alice")


def test_metadata_is_not_shared_with_the_caller(memory: Memory) -> None:
    mine = {"a": [1]}
    uid = added(memory, "tea", metadata=mine)
    mine["a"].append(2)
    memory.get(uid)["metadata"]["a"].append(3)
    assert memory.get(uid)["metadata"] == {"a": [1]}


def test_infer_true_needs_a_model(memory: Memory) -> None:
    with pytest.raises(ConfigError, match="model"):
        memory.add("tea", user_id="u1", infer=True)
    for infer in (None, False):
        assert memory.add("tea", user_id="u1", infer=infer)["results"][0]["kind"] == "episode"


def test_a_message_with_a_known_id_is_stored_once(memory: Memory) -> None:
    message = {"role": "user", "content": "tea", "id": "m1"}
    uid = added(memory, message)
    (again,) = memory.add([message], user_id="u1", timestamp=JUNE)["results"]
    assert (again["event"], again["id"], again["memory"]) == ("NONE", uid, "tea")
    assert memory.get_all(user_id="u1")["total"] == 1


def test_a_known_id_with_other_words_stores_nothing_of_the_call(memory: Memory) -> None:
    added(memory, {"role": "user", "content": "tea", "id": "m1"})
    with pytest.raises(ValidationError, match="m1"):
        memory.add(["before", {"role": "user", "content": "coffee", "id": "m1"}, "after"], user_id="u1")
    assert texts(memory.get_all(user_id="u1")) == ["tea"]


def test_ids_are_known_within_their_scope_only(memory: Memory) -> None:
    message = {"role": "user", "content": "tea", "id": "m1"}
    scopes = [{"user_id": "u1"}, {"user_id": "u2"}, {"user_id": "u1", "agent_id": "a"}, {"agent_id": "u1"}]
    assert {memory.add(message, **scope)["results"][0]["event"] for scope in scopes} == {"ADD"}


@pytest.mark.parametrize("where", ["call", "message"])
def test_the_same_words_at_the_same_given_time_are_stored_once(memory: Memory, where: str) -> None:
    message = {"role": "user", "content": "tea"} | ({"timestamp": JUNE} if where == "message" else {})
    more = {"timestamp": JUNE} if where == "call" else {}
    first = memory.add([message, message], user_id="u1", **more)
    assert [one["event"] for one in first["results"]] == ["ADD", "ADD"]  # equal, but two messages
    again = memory.add([message, message, message], user_id="u1", **more)
    assert [one["event"] for one in again["results"]] == ["NONE", "NONE", "ADD"]
    assert ids(again)[:2] == ids(first)


def test_another_speaker_time_or_word_is_another_message(memory: Memory) -> None:
    message = {"role": "user", "content": "tea", "timestamp": JUNE}
    for other in ({}, {"role": "assistant"}, {"name": "Ann"}, {"content": "Tea"}, {"timestamp": JANUARY}):
        assert memory.add({**message, **other}, user_id="u1")["results"][0]["event"] == "ADD"


def test_without_a_given_time_the_same_words_are_new(memory: Memory) -> None:
    assert added(memory, "tea") != added(memory, "tea")


@pytest.mark.parametrize("more", [{"id": "m1"}, {"timestamp": JUNE}])
def test_an_erased_message_is_not_stored_again_by_a_replay(memory: Memory, more: Any) -> None:
    message = {"role": "user", "content": "tea", **more}
    uid = added(memory, message)
    memory.delete(uid)
    (again,) = memory.add(message, user_id="u1")["results"]
    assert (again["event"], again["reason"], again["id"]) == ("NONE", "erased", uid)
    assert memory.get_all(user_id="u1")["total"] == 0


def test_adding_an_erased_text_anew_makes_a_new_memory(memory: Memory) -> None:
    uid = added(memory, "tea")
    memory.delete(uid)
    assert added(memory, "tea") != uid


def test_the_message_of_a_corrected_memory_is_still_recognised(memory: Memory) -> None:
    message = {"role": "user", "content": "tea", "id": "m1"}
    uid = added(memory, message)
    memory.update(uid, "green tea")
    (again,) = memory.add(message, user_id="u1")["results"]
    assert (again["event"], again["id"]) == ("NONE", uid)
    assert memory.get(uid)["memory"] == "green tea"
