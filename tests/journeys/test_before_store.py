"""`before_store`: a function of the caller gets every message first; text that it removes is stored nowhere."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.fakes import fake_models, hash_texts

from graphmem import Memory, Settings
from graphmem.errors import ConfigError, GraphmemError, NotFoundError, ValidationError

ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
MAIL = "ann.quillonbar@example.org"


def remove_addresses(message: dict[str, Any]) -> dict[str, Any] | None:
    """Removes e-mail addresses, as docs/how-to/before-store.md does, and refuses messages that are off the record."""
    if "off the record" in message["content"]:
        return None
    message["content"] = ADDRESS.sub("[address]", message["content"])
    message["metadata"] = json.loads(ADDRESS.sub("[address]", json.dumps(message["metadata"])))
    if message["name"]:
        message["name"] = ADDRESS.sub("[address]", message["name"])
    return message


@pytest.fixture
def memory(make_memory):
    return make_memory(before_store=remove_addresses)


def list_texts(memory: Memory) -> list[str]:
    return [one["memory"] for one in memory.get_all(user_id="u")["results"]]


def test_text_that_the_hook_removes_is_stored_nowhere(make_memory, tmp_path):
    embedded_texts = []

    def embed(texts):
        embedded_texts.extend(texts)
        return hash_texts(texts)

    models = fake_models()
    models["embedder"]["config"]["embed"] = embed
    with make_memory(tmp_path / "home", before_store=remove_addresses, **models) as memory:
        message = {"role": "user", "content": f"Write to {MAIL}.", "name": MAIL, "id": "1"}
        results = memory.add(message, user_id="u", metadata={"from": MAIL, "cc": [MAIL]})["results"]
        assert [one["memory"] for one in results] == ["Write to [address]."]
        (one,) = memory.get_all(user_id="u")["results"]
        assert (one["metadata"], one["actor_id"]) == ({"from": "[address]", "cc": ["[address]"]}, "[address]")
        result = memory.update(one["id"], f"Write to {MAIL} or call.", metadata={"from": MAIL})
        assert result["memory"] == "Write to [address] or call."
        assert result["metadata"] == {"from": "[address]", "cc": ["[address]"]}
        memory.search("whom to write to", user_id="u")
    assert not [text for text in embedded_texts if "quillonbar" in text]
    for file in Path(tmp_path).rglob("*"):
        assert file.is_dir() or b"quillonbar" not in file.read_bytes(), file


def test_refused_messages_give_no_results(memory):
    messages = ["One.", "Two, off the record.", "Three."]
    assert [one["memory"] for one in memory.add(messages, user_id="u")["results"]] == ["One.", "Three."]
    assert memory.add(messages[1], user_id="u") == {"results": [], "relations": []}
    assert sorted(list_texts(memory)) == ["One.", "Three."]


def test_refusals_are_logged_once_for_a_call(make_memory, tmp_path, caplog):
    """A hook that forgets to return the message refuses all of them."""
    memory = make_memory(before_store=lambda message: message.update(content="x"))
    assert memory.add(["One.", "Two.", {"role": "system", "content": "x"}], user_id="u")["results"] == []
    warning = "before_store returned None, or no words, for {} of {} messages; no memory is made of them"
    assert list_log_records(caplog) == [("WARNING", warning.format(2, 2))]
    source = make_memory()
    source.add(["One.", "Two, off the record.", "Three."], user_id="u")
    source.export(tmp_path / "x")
    caplog.clear()
    target = make_memory(before_store=remove_addresses)
    target.import_(tmp_path / "x")
    target.add("Fine.", user_id="u")
    assert list_log_records(caplog) == [("WARNING", warning.format(1, 3))]


def list_log_records(caplog) -> list[tuple[str, str]]:
    """Levels and texts of graphmem's own log records, without those of drivers."""
    records = [record for record in caplog.records if record.name.startswith("graphmem")]
    return [(record.levelname, record.getMessage()) for record in records]


def test_the_hook_gets_its_own_plain_copy_of_each_message(make_memory):
    hook_messages: list[dict[str, Any]] = []

    def hook(message):
        hook_messages.append(json.loads(json.dumps(message)))
        message["metadata"].setdefault("tags", []).append(len(hook_messages))
        return message

    memory = make_memory(before_store=hook)
    image = {"type": "image_url", "image_url": "http://x/y.png", "caption": "A cat"}
    messages = [
        {"role": "assistant", "name": "Ann", "content": ["Look:", image], "timestamp": "2024-05-01", "id": 7},
        {"role": "system", "content": "Never stored, so nobody is asked."},
        "And?",
    ]
    memory.add(messages, user_id="u", metadata={"tags": ["x"]})
    first, second = hook_messages
    assert first == {
        "role": "assistant",
        "content": "Look:",
        "name": "Ann",
        "timestamp": "2024-05-01T00:00:00+00:00",
        "id": "7",
        "metadata": {"tags": ["x"]},
        "attachments": [
            {"kind": "image", "ref": "http://x/y.png", "mime": None, "caption": "A cat", "transcript": None}
        ],
    }
    assert (second["role"], second["content"], second["name"], second["id"]) == ("user", "And?", None, None)
    tags = [one["metadata"]["tags"] for one in memory.get_all(user_id="u")["results"]]
    assert sorted(tags) == [["x", 1], ["x", 2]]  # the messages share no metadata


def test_a_known_message_is_recognised_by_its_stored_text(memory):
    first, repeat, other = (
        memory.add({"role": "user", "content": f"I am {who}@example.org.", "id": "1"}, user_id="u")["results"][0]
        for who in ("ann", "ann", "bob")
    )
    assert [one["event"] for one in (first, repeat, other)] == ["ADD", "NONE", "NONE"]
    assert first["id"] == repeat["id"] == other["id"]
    without_id = [memory.add(MAIL, user_id="u", timestamp="2024-05-01")["results"][0]["event"] for _ in range(2)]
    assert without_id == ["ADD", "NONE"]
    untimed = [memory.add("No time was given.", user_id="u")["results"][0]["event"] for _ in range(2)]
    assert untimed == ["ADD", "ADD"]


def test_updates_pass_the_hook(memory):
    uid = memory.add("One.", user_id="u", metadata={"a": 1})["results"][0]["id"]
    with pytest.raises(ValidationError, match="before_store refuses it; the memory is as it was"):
        memory.update(uid, "Two, off the record.")
    assert list_texts(memory) == ["One."]
    assert memory.update(uid, metadata={"b": MAIL})["metadata"] == {"a": 1, "b": "[address]"}
    assert memory.update(uid, expiration_date="2999-01-01")["memory"] == "One."
    with pytest.raises(NotFoundError):
        memory.update(uid, "Two.", user_id="other")


def test_updates_pass_stored_text_through_the_hook(make_memory, tmp_path):
    with make_memory(tmp_path / "home") as memory:
        uid = memory.add(MAIL, user_id="u", metadata={"a": MAIL})["results"][0]["id"]
    with make_memory(tmp_path / "home", before_store=remove_addresses) as memory:
        result = memory.update(uid, metadata={"b": 1})
        assert (result["memory"], result["metadata"]) == ("[address]", {"a": "[address]", "b": 1})


@pytest.mark.parametrize(
    ("hook", "error_text"),
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
        (
            lambda message: {**message, "attachments": [{"kind": "image", "ref": "x"}] * 101},
            "before_store returned what cannot be stored: attachments=.*: has 101 items; give at most 100",
        ),
    ],
)
def test_nothing_is_stored_if_the_hook_fails(make_memory, hook, error_text):
    memory = make_memory(before_store=lambda m: hook(m) if "quillonbar" in m["content"] else m)
    uid = memory.add("One.", user_id="u")["results"][0]["id"]
    for attempt in (lambda: memory.add(["Fine.", MAIL], user_id="u"), lambda: memory.update(uid, MAIL)):
        with pytest.raises(ConfigError, match=error_text) as error:
            attempt()
        assert "quillonbar" not in str(error.value)
    assert list_texts(memory) == ["One."]
    assert len(memory.history(uid)) == 1


def test_a_message_may_lose_all_but_its_role(make_memory):
    memory = make_memory(before_store=lambda message: {"role": message["role"], "content": "[removed]"})
    memory.add({"role": "user", "name": "Ann", "content": MAIL, "id": "1"}, user_id="u", metadata={"a": MAIL})
    (one,) = memory.get_all(user_id="u")["results"]
    assert (one["memory"], one["metadata"], one["actor_id"]) == ("[removed]", {}, None)
    empty = make_memory(before_store=lambda message: {**message, "content": " "})
    assert empty.add("x", user_id="u")["results"] == []


def test_before_store_can_only_be_set_in_code(tmp_path):
    assert Settings.from_dict({"before_store": remove_addresses}).before_store is remove_addresses
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
    """Their history passes the hook too; an imported message that is added again is known."""
    source = make_memory()
    messages = [
        {"role": "user", "content": f"Write to {MAIL}.", "name": MAIL, "id": "1"},
        {"role": "user", "content": "Off the record, off the record: nothing.", "id": "2"},
        {"role": "user", "content": "Nothing to hide.", "id": "3"},
    ]
    ids = [one["id"] for one in source.add(messages, user_id="u", metadata={"from": MAIL})["results"]]
    source.update(ids[2], f"Write to {MAIL}.")
    source.update(ids[2], "Nothing to hide at all.")
    source.export(tmp_path / "all.jsonl")
    with make_memory(tmp_path / "home", before_store=remove_addresses) as memory:
        result = memory.import_(tmp_path / "all.jsonl")
        assert (result["added"], result["refused"], result["unenriched"]) == (2, 1, 0)
        assert sorted(list_texts(memory)) == ["Nothing to hide at all.", "Write to [address]."]
        assert memory.get(ids[0])["actor_id"] == "[address]"
        assert [one["new_memory"] for one in memory.history(ids[2])] == [
            "Nothing to hide.", "Write to [address].", "Nothing to hide at all.",
        ]  # fmt: skip
        (known_message,) = memory.add(messages[0], user_id="u", metadata={"from": MAIL})["results"]
        assert (known_message["event"], known_message["id"]) == ("NONE", ids[0])
        assert memory.verify()["ok"]
        assert "quillonbar" not in repr([memory.history(uid) for uid in ids])
    assert not [
        file for file in (tmp_path / "home").rglob("*") if file.is_file() and b"quillonbar" in file.read_bytes()
    ]


UID = "00000000-0000-4000-8000-000000000001"


def import_record(make_memory, hook, **more) -> Memory:
    record = {"type": "memory", "id": UID, "user_id": "ana", "text": "tea", "at": "2024-05-01", **more}
    memory = make_memory(before_store=hook)
    memory.import_([record])
    return memory


def test_the_hook_sees_each_imported_text_once(make_memory):
    hook_messages = []

    def hook(message):
        hook_messages.append((message["content"], message["name"], message["metadata"]))
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
    import_record(make_memory, hook, events=[event, update])
    assert hook_messages == [("tea", None, {}), ("te", None, {})]
    hook_messages.clear()
    import_record(make_memory, hook, events=[{**event, "new_memory": "tea", "actor_id": "Bo"}], actor_id="Bo")
    assert hook_messages == [("tea", "Bo", {})]


def test_previous_states_pass_the_hook(make_memory):
    """Undoing an update would bring their text back."""
    state = {"text": "te", "at": "2024-05-01"}
    update = {"id": "1", "event": "UPDATE", "at": "2024-05-02", "old_memory": "te", "new_memory": "tea"}
    for previous_state, is_kept in (
        ({**state, "metadata": {"a": MAIL}}, False),
        ({**state, "speaker": MAIL}, False),
        ({**state, "text": MAIL}, False),
        ({**state, "metadata": {"a": 1}}, True),
    ):
        memory = import_record(make_memory, remove_addresses, events=[{**update, "previous_state": previous_state}])
        file = io.BytesIO()
        memory.export(file)
        assert b"quillonbar" not in file.getvalue()
        assert (json.loads(file.getvalue().splitlines()[1])["events"][0]["previous_state"] is not None) == is_kept


def test_the_hook_gets_a_speaker_that_is_no_actor(make_memory):
    memory = import_record(make_memory, remove_addresses, speaker=MAIL)
    file = io.BytesIO()
    memory.export(file)
    record = json.loads(file.getvalue().splitlines()[1])
    assert (record["speaker"], record["actor_id"]) == ("[address]", None)
    other = import_record(make_memory, remove_addresses, speaker="Bo")
    assert other.get(UID)["actor_id"] is None


def test_names_in_a_history_pass_the_hook(make_memory):
    add_event = {"id": "1", "event": "ADD", "at": "2024-05-01", "new_memory": "tea", "actor_id": MAIL}
    update_event = {
        "id": "2",
        "event": "UPDATE",
        "at": "2024-05-02",
        "old_memory": "Off the record: off the record",
        "actor_id": MAIL,
    }
    memory = import_record(make_memory, remove_addresses, events=[add_event, update_event], actor_id="Bo")
    assert [event["actor_id"] for event in memory.history(UID)] == ["[address]", None]


def test_a_hook_that_fails_during_an_import_reports_the_memories_added(make_memory):
    record = {"type": "memory", "user_id": "u", "at": "2024-05-01"}
    memory = make_memory(before_store=lambda message: message if message["content"] == "tea" else 1 / 0)
    with pytest.raises(ConfigError) as error:
        memory.import_([{**record, "id": UID, "text": "tea"}, {**record, "id": UID[:-1] + "2", "text": "cake"}])
    assert str(error.value) == (
        "record 2: before_store failed with ZeroDivisionError; nothing is stored without its answer; before that 1 "
        "memory was added. Correct before_store, and import all of it again; the memories added so far stay"
    )
    assert list_texts(memory) == ["tea"]
