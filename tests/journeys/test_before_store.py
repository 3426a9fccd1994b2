"""`before_store`: a function of the user's sees every message first; what it takes out is nowhere."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.fakes import fake_models, hashed

from graphmem import Memory, Settings
from graphmem.errors import ConfigError, GraphmemError, NotFoundError, ValidationError

ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
MAIL = "ann.quillonbar@example.org"


def without_addresses(message: dict[str, Any]) -> dict[str, Any] | None:
    """As in the README; and some messages are not to be stored at all."""
    if "off the record" in message["content"]:
        return None
    message["content"] = ADDRESS.sub("[address]", message["content"])
    message["metadata"] = json.loads(ADDRESS.sub("[address]", json.dumps(message["metadata"])))
    if message["name"]:
        message["name"] = ADDRESS.sub("[address]", message["name"])
    return message


@pytest.fixture
def memory(make_memory):
    return make_memory(before_store=without_addresses)


def words(memory: Memory) -> list[str]:
    return [one["memory"] for one in memory.get_all(user_id="u")["results"]]


def test_text_that_the_hook_removes_is_stored_nowhere(make_memory, tmp_path):
    seen = []

    def embed(texts):
        seen.extend(texts)
        return hashed(texts)

    models = fake_models()
    models["embedder"]["config"]["embed"] = embed
    with make_memory(tmp_path / "home", before_store=without_addresses, **models) as memory:
        told = {"role": "user", "content": f"Write to {MAIL}.", "name": MAIL, "id": "1"}
        added = memory.add(told, user_id="u", metadata={"from": MAIL, "cc": [MAIL]})["results"]
        assert [one["memory"] for one in added] == ["Write to [address]."]
        (one,) = memory.get_all(user_id="u")["results"]
        assert (one["metadata"], one["actor_id"]) == ({"from": "[address]", "cc": ["[address]"]}, "[address]")
        changed = memory.update(one["id"], f"Write to {MAIL} or call.", metadata={"from": MAIL})
        assert changed["memory"] == "Write to [address] or call."
        assert changed["metadata"] == {"from": "[address]"}
        memory.search("whom to write to", user_id="u")
    assert not [text for text in seen if "quillonbar" in text]
    for file in Path(tmp_path).rglob("*"):
        assert file.is_dir() or b"quillonbar" not in file.read_bytes(), file


def test_what_it_refuses_gives_no_result(memory):
    said = ["One.", "Two, off the record.", "Three."]
    assert [one["memory"] for one in memory.add(said, user_id="u")["results"]] == ["One.", "Three."]
    assert memory.add(said[1], user_id="u") == {"results": [], "relations": []}
    assert sorted(words(memory)) == ["One.", "Three."]


def test_refusals_are_logged_once_for_a_call(make_memory, tmp_path, caplog):
    """Whoever forgets to return the message refuses all of them."""
    memory = make_memory(before_store=lambda message: message.update(content="x"))
    assert memory.add(["One.", "Two.", {"role": "system", "content": "x"}], user_id="u")["results"] == []
    told = "before_store returned None, or no words, for {} of {} messages; they are not stored"
    assert ours(caplog) == [("WARNING", told.format(2, 2))]
    plain = make_memory()
    plain.add(["One.", "Two, off the record.", "Three."], user_id="u")
    plain.export(tmp_path / "x")
    caplog.clear()
    some = make_memory(before_store=without_addresses)
    some.import_(tmp_path / "x")
    some.add("Fine.", user_id="u")
    assert ours(caplog) == [("WARNING", told.format(1, 3))]


def ours(caplog) -> list[tuple[str, str]]:
    """What we have logged, not what drivers have."""
    found = [record for record in caplog.records if record.name.startswith("graphmem")]
    return [(record.levelname, record.getMessage()) for record in found]


def test_it_sees_a_plain_message_of_its_own(make_memory):
    seen: list[dict[str, Any]] = []

    def hook(message):
        seen.append(json.loads(json.dumps(message)))
        message["metadata"].setdefault("tags", []).append(len(seen))
        return message

    memory = make_memory(before_store=hook)
    image = {"type": "image_url", "image_url": "http://x/y.png"}
    said = [
        {"role": "assistant", "name": "Ann", "content": ["Look:", image], "timestamp": "2024-05-01", "id": 7},
        {"role": "system", "content": "Never stored, so nobody is asked."},
        "And?",
    ]
    memory.add(said, user_id="u", metadata={"tags": ["x"]})
    first, second = seen
    assert first == {
        "role": "assistant",
        "content": "Look:",
        "name": "Ann",
        "timestamp": "2024-05-01T00:00:00+00:00",
        "id": "7",
        "metadata": {"tags": ["x"], "attachments": [image]},
    }
    assert (second["role"], second["content"], second["name"], second["id"]) == ("user", "And?", None, None)
    kept = [one["metadata"]["tags"] for one in memory.get_all(user_id="u")["results"]]
    assert sorted(kept) == [["x", 1], ["x", 2]]  # neither has seen the other's


def test_a_message_is_known_by_what_was_stored_of_it(memory):
    first, again, other = (
        memory.add({"role": "user", "content": f"I am {who}@example.org.", "id": "1"}, user_id="u")["results"][0]
        for who in ("ann", "ann", "bob")
    )
    assert [one["event"] for one in (first, again, other)] == ["ADD", "NONE", "NONE"]
    assert first["id"] == again["id"] == other["id"]
    without_id = [memory.add(MAIL, user_id="u", timestamp="2024-05-01")["results"][0]["event"] for _ in range(2)]
    assert without_id == ["ADD", "NONE"]
    untimed = [memory.add("No time was given.", user_id="u")["results"][0]["event"] for _ in range(2)]
    assert untimed == ["ADD", "ADD"]


def test_an_update_passes_it_too(memory):
    uid = memory.add("One.", user_id="u", metadata={"a": 1})["results"][0]["id"]
    with pytest.raises(ValidationError, match="before_store refuses it; the memory is as it was"):
        memory.update(uid, "Two, off the record.")
    assert words(memory) == ["One."]
    assert memory.update(uid, metadata={"b": MAIL})["metadata"] == {"b": "[address]"}
    assert memory.update(uid, expiration_date="2999-01-01")["memory"] == "One."
    with pytest.raises(NotFoundError):
        memory.update(uid, "Two.", user_id="other")


def test_what_was_stored_before_passes_it_when_it_is_touched(make_memory, tmp_path):
    with make_memory(tmp_path / "home") as memory:
        uid = memory.add(MAIL, user_id="u", metadata={"a": MAIL})["results"][0]["id"]
    with make_memory(tmp_path / "home", before_store=without_addresses) as memory:
        changed = memory.update(uid, metadata={"b": 1})
        assert (changed["memory"], changed["metadata"]) == ("[address]", {"b": 1})


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda message: 1 / 0, "before_store failed with ZeroDivisionError; nothing is stored without its answer"),
        (lambda message: message["content"], "before_store returned str; return the message"),
        (lambda message: {}, r"before_store returned what cannot be stored: messages=\[\]: has no"),
        (lambda message: {**message, "role": "admin"}, "before_store returned what cannot be stored: messages.role"),
        (
            lambda message: {**message, "contents": "x"},
            "before_store returned the unknown key 'contents'; did you mean 'content'",
        ),
        (
            lambda message: {**message, "colour": "x"},
            "unknown key 'colour'; known: role, content, name, timestamp, id, metadata",
        ),
        (lambda message: {**message, message["content"]: 1}, "unknown key that is no name"),
        (lambda message: {**message, "content": 5}, "before_store returned what cannot be stored: messages.content"),
        (lambda message: {**message, "metadata": {"a": object()}}, "before_store returned what cannot be stored"),
        (lambda message: {**message, "timestamp": "soon"}, "before_store returned what cannot be stored"),
    ],
)
def test_nothing_is_stored_if_the_hook_fails(make_memory, made, told):
    memory = make_memory(before_store=lambda m: made(m) if "quillonbar" in m["content"] else m)
    uid = memory.add("One.", user_id="u")["results"][0]["id"]
    for attempt in (lambda: memory.add(["Fine.", MAIL], user_id="u"), lambda: memory.update(uid, MAIL)):
        with pytest.raises(ConfigError, match=told) as caught:
            attempt()
        assert "quillonbar" not in str(caught.value)
    assert words(memory) == ["One."]
    assert len(memory.history(uid)) == 1


def test_a_message_may_lose_all_but_its_role(make_memory):
    memory = make_memory(before_store=lambda message: {"role": message["role"], "content": "[removed]"})
    memory.add({"role": "user", "name": "Ann", "content": MAIL, "id": "1"}, user_id="u", metadata={"a": MAIL})
    (one,) = memory.get_all(user_id="u")["results"]
    assert (one["memory"], one["metadata"], one["actor_id"]) == ("[removed]", {}, None)
    empty = make_memory(before_store=lambda message: {**message, "content": " "})
    assert empty.add("x", user_id="u")["results"] == []


def test_only_code_can_give_one(tmp_path):
    assert Settings.from_dict({"before_store": without_addresses}).before_store is without_addresses
    file = tmp_path / "c.json"
    file.write_text('{"before_store": "os.system"}')
    for attempt in (
        lambda: Settings.from_dict({"before_store": "os.system"}),
        lambda: Settings.from_file(file),
        lambda: Settings.from_env({"GRAPHMEM_BEFORE_STORE": "os.system"}),
    ):
        with pytest.raises(GraphmemError, match="(?i)before_store: must be a function; only code can give one"):
            attempt()


def test_imported_memories_pass_the_hook(make_memory, tmp_path):
    """With its history; what is told of it twice is known."""
    plain = make_memory()
    told = [
        {"role": "user", "content": f"Write to {MAIL}.", "name": MAIL, "id": "1"},
        {"role": "user", "content": "Off the record, off the record: nothing.", "id": "2"},
        {"role": "user", "content": "Nothing to hide.", "id": "3"},
    ]
    ids = [one["id"] for one in plain.add(told, user_id="u", metadata={"from": MAIL})["results"]]
    plain.update(ids[2], f"Write to {MAIL}.")
    plain.update(ids[2], "Nothing to hide at all.")
    plain.export(tmp_path / "all.jsonl")
    with make_memory(tmp_path / "home", before_store=without_addresses) as memory:
        done = memory.import_(tmp_path / "all.jsonl")
        assert (done["added"], done["refused"], done["unenriched"]) == (2, 1, 0)
        assert sorted(words(memory)) == ["Nothing to hide at all.", "Write to [address]."]
        assert memory.get(ids[0])["actor_id"] == "[address]"
        assert [one["new_memory"] for one in memory.history(ids[2])] == [
            "Nothing to hide.", "Write to [address].", "Nothing to hide at all.",
        ]  # fmt: skip
        (again,) = memory.add(told[0], user_id="u", metadata={"from": MAIL})["results"]
        assert (again["event"], again["id"]) == ("NONE", ids[0])
        assert memory.verify()["ok"]
        assert "quillonbar" not in repr([memory.history(uid) for uid in ids])
    assert not [
        file for file in (tmp_path / "home").rglob("*") if file.is_file() and b"quillonbar" in file.read_bytes()
    ]


UID = "00000000-0000-4000-8000-000000000001"


def imported(make_memory, hook, **more) -> Memory:
    record = {"type": "memory", "id": UID, "user_id": "ana", "text": "tea", "at": "2024-05-01", **more}
    memory = make_memory(before_store=hook)
    memory.import_([record])
    return memory


def test_the_hook_sees_each_imported_text_once(make_memory):
    seen = []

    def hook(message):
        seen.append((message["content"], message["name"], message["metadata"]))
        return message

    event = {"id": "1", "event": "ADD", "at": "2024-05-01", "new_memory": "te"}
    state = {"text": "te", "at": "2024-05-01"}
    update = {
        "id": "2",
        "event": "UPDATE",
        "at": "2024-05-02",
        "old_memory": "te",
        "new_memory": "tea",
        "previous_state": state,
    }
    imported(make_memory, hook, events=[event, update])
    assert seen == [("tea", None, {}), ("te", None, {})]
    seen.clear()
    imported(make_memory, hook, events=[{**event, "new_memory": "tea", "actor_id": "Bo"}], actor_id="Bo")
    assert seen == [("tea", "Bo", {})]


def test_what_an_earlier_state_says_passes_it_as_well(make_memory):
    """Undoing an update would bring it back."""
    state = {"text": "te", "at": "2024-05-01"}
    update = {"id": "1", "event": "UPDATE", "at": "2024-05-02", "old_memory": "te", "new_memory": "tea"}
    for before, kept in (
        ({**state, "metadata": {"a": MAIL}}, False),
        ({**state, "speaker": MAIL}, False),
        ({**state, "text": MAIL}, False),
        ({**state, "metadata": {"a": 1}}, True),
    ):
        memory = imported(make_memory, without_addresses, events=[{**update, "previous_state": before}])
        file = io.BytesIO()
        memory.export(file)
        assert b"quillonbar" not in file.getvalue()
        assert (json.loads(file.getvalue().splitlines()[1])["events"][0]["previous_state"] is not None) == kept


def test_it_sees_a_speaker_that_is_no_actor(make_memory):
    memory = imported(make_memory, without_addresses, speaker=MAIL)
    file = io.BytesIO()
    memory.export(file)
    record = json.loads(file.getvalue().splitlines()[1])
    assert (record["speaker"], record["actor_id"]) == ("[address]", None)
    same = imported(make_memory, without_addresses, speaker="Bo")
    assert same.get(UID)["actor_id"] is None


def test_the_names_in_a_history_pass_it(make_memory):
    told = {"id": "1", "event": "ADD", "at": "2024-05-01", "new_memory": "tea", "actor_id": MAIL}
    silent = {
        "id": "2",
        "event": "UPDATE",
        "at": "2024-05-02",
        "old_memory": "Off the record: off the record",
        "actor_id": MAIL,
    }
    memory = imported(make_memory, without_addresses, events=[told, silent], actor_id="Bo")
    assert [event["actor_id"] for event in memory.history(UID)] == ["[address]", None]


def test_where_it_fails_in_an_import_it_is_said_what_was_taken(make_memory):
    record = {"type": "memory", "user_id": "u", "at": "2024-05-01"}
    memory = make_memory(before_store=lambda message: message if message["content"] == "tea" else 1 / 0)
    with pytest.raises(ConfigError) as raised:
        memory.import_([{**record, "id": UID, "text": "tea"}, {**record, "id": UID[:-1] + "2", "text": "cake"}])
    assert str(raised.value) == (
        "record 2: before_store failed with ZeroDivisionError; nothing is stored without its answer; before that 1 "
        "memory was added. Correct before_store, and import all of it again; the memories added so far stay"
    )
    assert words(memory) == ["tea"]
