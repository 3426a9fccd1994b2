"""Export and import: nothing lost, duplicated, taken from other scopes or left half done."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.fakes import fake_models
from support.ledger_snapshot import contents, exported, same

import graphmem.wiring as wiring
from graphmem import AsyncMemory, Memory, Settings
from graphmem.commands.types import RestoreMemory, RetireMemory
from graphmem.errors import ConfigError, ValidationError
from graphmem.testing import HashEmbedder, WordExtractor
from graphmem.transfer.importer import import_records

Make = Callable[..., Memory]
FilledMemory = tuple[Memory, dict[str, str]]
JUNE = datetime(2024, 6, 1, 12, tzinfo=UTC)
QUESTIONS = ("Where does Anna work?", "Siemens", "trains in Krefeld", "Who met Dora?", "Bob", "harbour in june")
KINDS = ["episode", "fact", "summary"]


def fill_memory(memory: Memory) -> dict[str, str]:
    """Adds memories with every kind of content and history. Returns their ids by label."""
    ids: dict[str, str] = {}

    def add(label: str, text: str, **more: Any) -> str:
        message = {"role": "user", "content": text, **{k: more.pop(k) for k in ("id", "name", "role") if k in more}}
        arguments = {"user_id": "ana", "timestamp": JUNE + timedelta(minutes=7 * len(ids)), **more}
        ids[label] = memory.add(message, **arguments)["results"][0]["id"]
        return ids[label]

    add("works", "Anna Berg works at Siemens.", name="Tom")
    add("trains", "Siemens builds trains in Krefeld.", id="message-1", metadata={"tags": ["x", {"a": None}], "n": 1.5})
    add("berg", "Anna met Dora. Did Anna Berg like the harbour?", name="Bob", memory_type="episodic")
    add("short", "I like cake", name="Frida")
    add("long", "I like tea", name="Frida Lund")
    add("first", "Hello from Rome", name="Tomas")
    add("last", "Hello from Oslo", name="Tomas Stein")
    add("corrected", "Carl lives in Rome", id="message-2")
    memory.update(ids["corrected"], "Carl Stein lives in Bergen", metadata={"sure": True}, expiration_date="2099-01-01")
    memory.update(ids["corrected"], expiration_date=None)
    add("expired", "Dora has a blue ticket", expiration_date="2024-06-03")
    add("old", "Bob works at Nokia.")
    add("new", "Bob works at Adobe.")
    add("late", "Bob left Adobe for Intel.", timestamp=JUNE - timedelta(days=3))
    commit = memory.engine.commit
    commit([RetireMemory(ids["old"], JUNE + timedelta(days=1), "changed", successor=ids["new"])])
    commit([RetireMemory(ids["late"], JUNE + timedelta(days=2), "turned round", successor=ids["trains"])])
    commit([RetireMemory(ids["new"], JUNE + timedelta(days=2), "a mistake", successor=ids["berg"])])
    commit([RestoreMemory(ids["new"], "it was not")])
    for name in ("twin", "other twin"):
        ids[name] = memory.add(["Twice is nice"] * 2, user_id="ana", timestamp=JUNE)["results"][name == "other twin"][
            "id"
        ]
    add("run", "Emil paints Fagott", run_id="r1")
    add("other run", "Emil paints Geneva", run_id="r2")
    add("agent", "Hanna helps Igor", agent_id="helper", role="assistant")
    add("lone agent", "Igor says hello to Hanna", user_id=None, agent_id="helper")
    add("lone run", "Jana reads Kafka", user_id=None, run_id="r1")
    add("bob", "Zelda sings in Zurich", user_id="bob")
    add("erased", "Nobody knows Leo Quartz", id="message-3", run_id="r1")
    add("erased too", "Leo Quartz has a kite")
    add("erased of bob", "Zelda hides in Xanten", user_id="bob")
    memory.alias("Carl Stein", "Dora", user_id="ana")
    memory.unalias("frida", "frida lund", user_id="ana")
    memory.rename_entity("siemens", "Siemens AG", user_id="ana")
    memory.rename_entity("zelda", "Princess", user_id="bob")
    for name in ("erased", "erased too", "erased of bob"):
        memory.update(ids[name], f"{name}: Leo Quartz")
        memory.delete(ids[name])
    import_derived_memories(memory, ids)
    return ids


def import_derived_memories(memory: Memory, ids: dict[str, str]) -> None:
    """Imports a fact and a summary, which otherwise only a language model makes, with their sources."""

    def make_record(label: str, text: str, **more: Any) -> dict[str, Any]:
        ids[label] = str(uuid4())
        at = (JUNE + timedelta(days=3)).isoformat()
        return {"type": "memory", "id": ids[label], "user_id": "ana", "text": text, "at": at, **more}

    result = import_records(
        memory.engine,
        [
            make_record("source", "We went to Bergen, Tom said", source_only=True, actor_id="Tom", role="user"),
            make_record(
                "fact", "Tom went to Bergen", kind="fact", links=[{"kind": "drawn_from", "memory": ids["source"]}]
            ),
            make_record(
                "summary", "People go to Bergen.", kind="summary", links=[{"kind": "drawn_from", "memory": ids["fact"]}]
            ),
        ],
    )
    assert (result["added"], result["unenriched"], result["skipped_links"]) == (3, 0, 0)


def search_all(memory: Memory, **scope: str) -> list[Any]:
    now = JUNE + timedelta(days=30)
    responses = []
    for question in QUESTIONS:
        for options in ({}, {"as_of": JUNE + timedelta(hours=20)}, {"show_expired": True, "kinds": KINDS}):
            responses.append(
                round_floats(memory.search(question, **scope, explain=True, reference_date=now, **options))
            )
            # Relations of the same moment have no defined order.
            responses[-1]["relations"].sort(key=json.dumps)
    return responses


def round_floats(value: Any) -> Any:
    """The value with all floats rounded: a sum depends on the order in which a server returns the summands."""
    if isinstance(value, dict):
        return {name: round_floats(one) for name, one in value.items()}
    if isinstance(value, list):
        return [round_floats(one) for one in value]
    return round(value, 9) if isinstance(value, float) else value


@pytest.fixture
def filled_memory(make: Make) -> FilledMemory:
    memory = make()
    return memory, fill_memory(memory)


# --- round trips -----------------------------------------------------------------------------------------------------


def test_everything_comes_back_as_it_was(filled_memory: FilledMemory, make: Make, tmp_path: Path) -> None:
    memory, ids = filled_memory
    path, export_calls = tmp_path / "all.jsonl", []
    export_result = memory.export(path, progress=lambda *call: export_calls.append(call))
    assert export_result == {
        "memories": 23,
        "erased": 3,
        "aliases": export_result["aliases"],
        "names": 2,
        "items": 0,
        "settings": 0,
        "keys": 0,
        "path": str(path),
    }
    assert export_result["aliases"] >= 2
    assert export_calls[-1] == ("export", 23, 23)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["all.jsonl"]
    target, import_calls = make(), []
    import_result = target.import_(path, progress=lambda *call: import_calls.append(call))
    name_count = export_result["aliases"] + 2
    assert import_result == {
        "added": 23, "known": 0, "erased": 0, "refused": 0, "tombstones": 3, "named": name_count, "skipped_links": 0,
        "skipped_data": 0,
        "items": 0, "settings": 0, "keys": 0, "unenriched": 0,
    }  # fmt: skip
    assert import_calls[-1][0] == "import" and import_calls[-1][1] == import_calls[-1][2] == 23 + 3 + name_count
    same(memory, target)
    for scope in ({"user_id": "ana"}, {"user_id": "bob"}, {"run_id": "r1"}, {"agent_id": "helper"}):
        assert search_all(memory, **scope) == search_all(target, **scope)
        assert memory.get_all(**scope) == target.get_all(**scope)
        assert memory.entities(**scope) == target.entities(**scope)
    for uid in ids.values():
        assert memory.history(uid) == target.history(uid)
        assert (memory.get(uid) is None) == (target.get(uid) is None)
        if memory.get(uid):
            mine, theirs = memory.explain(uid), target.explain(uid)
            assert mine == theirs


def test_from_one_database_into_another(filled_memory: FilledMemory, make: Make, tmp_path: Path) -> None:
    """Where `make` gives PostgreSQL: from there to SQLite and back."""
    memory, _ = filled_memory
    memory.export(tmp_path / "x")
    with Memory(":memory:", settings=Settings.from_dict(fake_models())) as other:
        other.import_(tmp_path / "x")
        same(memory, other)
        other.export(tmp_path / "y")
    target = make()
    target.import_(tmp_path / "y")
    same(memory, target)


def test_no_model_is_called_for_imported_enrichment(
    filled_memory: FilledMemory, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled_memory[0].export(tmp_path / "x")
    target = make()
    fail = lambda *_: pytest.fail("a model was called")
    monkeypatch.setattr(HashEmbedder, "embed_tokens", fail)
    monkeypatch.setattr(WordExtractor, "extract", fail)
    assert target.import_(tmp_path / "x")["unenriched"] == 0


def test_importing_twice_changes_nothing(filled_memory: FilledMemory, make: Make, tmp_path: Path) -> None:
    memory, _ = filled_memory
    memory.export(tmp_path / "x")
    assert memory.import_(tmp_path / "x") == {
        "added": 0, "known": 26, "erased": 0, "refused": 0, "tombstones": 0,
        "named": 0, "skipped_links": 0, "skipped_data": 0, "items": 0, "settings": 0, "keys": 0, "unenriched": 0,
    }  # fmt: skip
    target = make()
    target.import_(tmp_path / "x")
    before = contents(target)
    assert target.import_(tmp_path / "x")["added"] == 0
    assert contents(target) == before
    same(memory, target)


def test_messages_are_known_in_the_other_ledger(filled_memory: FilledMemory, make: Make, tmp_path: Path) -> None:
    memory, ids = filled_memory
    memory.export(tmp_path / "x")
    target = make()
    target.import_(tmp_path / "x")
    scope = {"user_id": "ana"}
    response = target.add({"role": "user", "content": "Siemens builds trains in Krefeld.", "id": "message-1"}, **scope)
    assert [(one["event"], one["id"]) for one in response["results"]] == [("NONE", ids["trains"])]
    results = target.add(["Twice is nice"] * 3, timestamp=JUNE, **scope)["results"]
    assert [(one["event"], one["id"]) for one in results[:2]] == [("NONE", ids["twin"]), ("NONE", ids["other twin"])]
    assert results[2]["event"] == "ADD"
    results = target.add({"role": "user", "content": "Carl lives in Rome", "id": "message-2"}, **scope)["results"]
    assert [(one["event"], one["id"]) for one in results] == [("NONE", ids["corrected"])]
    with pytest.raises(ValidationError, match="message-2"):
        target.add({"role": "user", "content": "Carl Stein lives in Bergen", "id": "message-2"}, **scope)


def test_the_same_ledger_after_a_reset_knows_the_messages_of_erased_memories(
    filled_memory: FilledMemory, tmp_path: Path
) -> None:
    memory, ids = filled_memory
    memory.export(tmp_path / "x")
    before = contents(memory)
    memory.reset()
    memory.import_(tmp_path / "x")
    assert contents(memory) == before
    response = memory.add(
        {"role": "user", "content": "Nobody knows Leo Quartz", "id": "message-3"}, user_id="ana", run_id="r1"
    )
    assert response["results"][0] | {"memory": ""} == {
        "id": ids["erased"], "memory": "", "event": "NONE", "kind": "episode", "reason": "erased"
    }  # fmt: skip


def test_open_files_of_bytes_and_text_and_compressed(filled_memory: FilledMemory, make: Make, tmp_path: Path) -> None:
    memory, _ = filled_memory
    with gzip.open(tmp_path / "x.gz", "wb") as file:
        assert memory.export(file)["path"] is None
    with (tmp_path / "x").open("w", encoding="utf-8", newline="\n") as file:
        memory.export(file)
    with (tmp_path / "raw").open("wb", buffering=0) as file:
        memory.export(file)
    text = io.StringIO()
    memory.export(text)
    text.seek(0)
    for source in (
        gzip.open(tmp_path / "x.gz"),
        (tmp_path / "x").open(encoding="utf-8"),
        (tmp_path / "raw").open("rb"),
        text,
    ):
        target = make()
        with source:
            target.import_(source)
            assert not source.closed
        same(memory, target)


def test_async_export_and_import(tmp_path: Path, hash_models: dict[str, Any]) -> None:
    async def round_trip() -> dict[str, Any]:
        async with AsyncMemory(":memory:", settings=Settings.from_dict(hash_models)) as memory:
            await memory.add("tea", user_id="u")
            await memory.export(tmp_path / "x")
            return await memory.import_(tmp_path / "x")

    assert asyncio.run(round_trip())["known"] == 1


def test_pending_enrichment_is_exported_as_pending_and_completed(
    memory: Memory, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.engine.job_worker, "enrich", lambda *_, **__: False)
    memory.add("tea with Anna", user_id="u", wait=False)
    (record,) = [one for one in exported(memory) if one["type"] == "memory"]
    assert record["mentions"] is record["embeddings"] is None
    target = make_memory()
    assert import_records(target.engine, exported(memory))["unenriched"] == 0
    assert [hit["memory"] for hit in target.search("Anna", user_id="u")["results"]] == ["tea with Anna"]


@pytest.mark.thorough
def test_the_real_models_give_the_same_answers(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "name": "Tom", "content": "My sister Anna works at Nordlicht."},
        {"role": "user", "name": "Anna", "content": "Nordlicht is building a new lab in Bergen."},
        {"role": "user", "name": "Tom", "content": "她在北京的实验室工作。"},
        {
            "role": "user",
            "content": "Bergen\nBergen is a city on the west coast of Norway. " + "It rains there often. " * 60,
        },
    ]
    questions = ("Where does the company Tom's sister works for build?", "rain in Norway", "北京", "Anna")
    with Memory(tmp_path / "one") as one, Memory(tmp_path / "two") as two:
        one.add(messages, user_id="tom", timestamp="2024-03-01")
        one.export(tmp_path / "x")
        assert two.import_(tmp_path / "x")["unenriched"] == 0
        same(one, two)
        for question in questions:
            mine, theirs = (m.search(question, user_id="tom", explain=True, reference_date=JUNE) for m in (one, two))
            assert mine == theirs


# --- into a ledger with other data -----------------------------------------------------------------------------------


def test_into_a_ledger_with_other_data(filled_memory: FilledMemory, make: Make, tmp_path: Path) -> None:
    memory, ids = filled_memory
    memory.export(tmp_path / "x")
    target = make()
    own_id = target.add("Anna Berg works at Siemens.", user_id="ana", timestamp=JUNE + timedelta(minutes=3))["results"][
        0
    ]["id"]
    known_id = target.add({"role": "user", "content": "other words", "id": "message-1"}, user_id="ana")["results"][0][
        "id"
    ]
    target.rename_entity("siemens", "Mine", user_id="ana")
    result = target.import_(tmp_path / "x")
    assert (result["added"], result["known"], result["skipped_links"]) == (22, 1, 1)
    assert target.get(known_id)["memory"] == "other words"
    assert target.get(ids["trains"]) is None  # its message is known
    assert target.entity("siemens", user_id="ana")["name"] == "Mine"
    assert {target.get(own_id)["id"], ids["works"]} <= {
        hit["id"] for hit in target.search("Anna", user_id="ana")["results"]
    }
    assert target.verify()["ok"]


def test_an_id_of_another_scope_stays_as_it_is(make: Make) -> None:
    memory = make()
    uid = memory.add("mine", user_id="u1")["results"][0]["id"]
    before = contents(memory)
    theirs = {"type": "memory", "id": uid, "user_id": "u2", "text": "theirs", "at": "2024-01-01"}
    assert import_records(memory.engine, [theirs])["known"] == 1
    assert contents(memory) == before
    assert memory.get(uid, user_id="u2") is None


def test_links_stay_inside_a_partition(make: Make) -> None:
    memory = make()
    secret = memory.add("a secret", user_id="u1")["results"][0]["id"]
    mine = {
        "type": "memory", "id": str(uuid4()), "user_id": "u2", "kind": "fact", "text": "mine", "at": "2024-01-01",
        "links": [{"kind": "drawn_from", "memory": secret}, {"kind": "replaces", "by": str(uuid4())}],
    }  # fmt: skip
    assert import_records(memory.engine, [mine])["skipped_links"] == 2
    assert "secret" not in json.dumps(memory.explain(mine["id"]))


def test_another_embedder_embeds_anew_and_keeps_the_graph(
    filled_memory: FilledMemory, make: Make, tmp_path: Path
) -> None:
    memory, ids = filled_memory
    memory.export(tmp_path / "x")
    target = make(None, 32)
    assert target.import_(tmp_path / "x")["unenriched"] == 0
    same(memory, target, but="embeddings")
    assert ids["works"] in [hit["id"] for hit in target.search("Anna Berg works", user_id="ana")["results"]]


def test_an_embedder_changed_without_rebuild_is_refused(make: Make, tmp_path: Path) -> None:
    memory = make(tmp_path / "home")
    memory.add("tea", user_id="u")
    memory.export(tmp_path / "x")
    memory.close()
    with pytest.raises(ConfigError, match="rebuild"):
        make(tmp_path / "home", 32).import_(tmp_path / "x")


def test_a_graph_without_vectors_keeps_its_mentions(make: Make) -> None:
    """For records of another program's knowledge graph, which has relations but no embeddings."""
    memory = make()
    record = {
        "type": "memory", "id": str(uuid4()), "user_id": "u", "kind": "fact", "text": "bob fnords carl", "at": 0,
        "mentions": [{"key": "bob", "name": "Bob", "type": "Person"}, {"key": "carl"}],
        "statements": [{"subject": "bob", "predicate": "fnord", "object": "carl", "fact": "bob fnords carl"}],
    }  # fmt: skip
    assert import_records(memory.engine, [record])["unenriched"] == 0
    (relation,) = memory.search("fnords", user_id="u")["relations"]
    assert (relation["source"], relation["relationship"], relation["target"]) == ("Bob", "fnord", "carl")
    assert memory.verify()["ok"]
    memory.delete(record["id"])
    assert contents(memory)["entities"] == contents(memory)["relations"] == []
    assert memory.verify()["ok"]


def test_memories_imported_with_mentions_only_can_be_erased_and_corrected_before_embedding(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make()
    monkeypatch.setattr(HashEmbedder, "embed_tokens", lambda *_: (_ for _ in ()).throw(wiring.ConfigError("away")))
    records = [
        {"type": "memory", "id": str(uuid4()), "user_id": "u", "text": text, "at": 0, "mentions": [{"key": "bob"}]}
        for text in ("one", "two")
    ]
    from graphmem.errors import EmbeddingError

    def fail_embedding(*_: Any) -> Any:
        raise EmbeddingError("away")

    monkeypatch.setattr(HashEmbedder, "embed_tokens", fail_embedding)
    result = import_records(memory.engine, records)
    assert (result["unenriched"], set(result["pending"])) == (2, {"vectors", "graph"})
    memory.delete(records[0]["id"])
    monkeypatch.undo()
    memory.update(records[1]["id"], "Carl is here")
    memory.flush()
    assert [row["key"] for row in contents(memory)["entities"]] == ["carl"]
    assert memory.verify()["ok"]


def test_a_converter_needs_few_fields(make: Make) -> None:
    memory = make()
    first, second = str(uuid4()), str(uuid4())
    calls: list[Any] = []
    result = import_records(
        memory.engine,
        (
            {"type": "memory", "id": uid, "user_id": "ana", "text": text, "at": "2024-05-01T10:00:00Z"}
            for uid, text in ((first, "I met Bob."), (second, "Then Carl came."))
        ),
        progress=lambda *call: calls.append(call),
    )
    assert (result["added"], calls) == (2, [("import", 2, 2)])
    one, other = memory.get(first), memory.get(second)
    assert one["kind"] == "episode" and one["valid_from"] == one["at"] == "2024-05-01T10:00:00.000000+00:00"
    assert one["session"] == other["session"]
    assert [event["event"] for event in memory.history(first)] == ["ADD"]
    assert memory.entity("Bob", user_id="ana")["memories"][0]["id"] == first
    assert memory.entity("Ana", user_id="ana")["memories"]  # the speaker, as after add
    assert memory.verify()["ok"]


# --- erased memories -------------------------------------------------------------------------------------------------


def test_memories_erased_here_are_imported_only_with_restore(
    filled_memory: FilledMemory, make: Make, tmp_path: Path
) -> None:
    memory, ids = filled_memory
    memory.export(tmp_path / "x")
    before = contents(memory)
    erased_ids = [ids["corrected"], ids["trains"]]
    for uid in erased_ids:
        memory.delete(uid)
    result = memory.import_(tmp_path / "x")
    assert (result["added"], result["erased"]) == (0, 2)
    assert memory.get(erased_ids[0]) is None
    assert "Rome" not in json.dumps(memory.history(erased_ids[0]))
    result = memory.import_(tmp_path / "x", restore=True)
    assert (result["added"], result["erased"]) == (2, 0)
    assert memory.get(erased_ids[0])["memory"] == "Carl Stein lives in Bergen"
    events = [(event["event"], event["new_memory"]) for event in memory.history(erased_ids[0])]
    words = "Carl Stein lives in Bergen"
    assert events == [
        ("ADD", "Carl lives in Rome"), ("UPDATE", words), ("UPDATE", words), ("DELETE", None), ("RESTORE", words)
    ]  # fmt: skip
    results = memory.add({"role": "user", "content": "Carl lives in Rome", "id": "message-2"}, user_id="ana")["results"]
    assert results[0]["event"] == "NONE"
    after = contents(memory)
    for table in (
        "tombstones",
        "messages",
        "mentions",
        "entities",
        "supports",
        "embeddings",
        "terms",
        "aliases",
        "names",
    ):
        assert after[table] == before[table], table
    assert memory.verify()["ok"]
    assert erased_ids[1] in [hit["id"] for hit in memory.search("trains in Krefeld", user_id="ana")["results"]]


def test_a_message_erased_under_another_id_is_imported_only_with_restore(make: Make) -> None:
    memory = make()
    message = {"role": "user", "content": "tea", "id": "m1"}
    memory.delete(memory.add(message, user_id="u")["results"][0]["id"])
    record = {"type": "memory", "id": str(uuid4()), "user_id": "u", "text": "tea", "at": 0, "message_id": "m1"}
    assert import_records(memory.engine, [record])["erased"] == 1
    assert import_records(memory.engine, [record], restore=True)["added"] == 1
    assert memory.add(message, user_id="u")["results"][0]["id"] == record["id"]


def test_memories_erased_elsewhere_are_not_imported_later(filled_memory: FilledMemory, make: Make) -> None:
    memory, ids = filled_memory
    records = exported(memory)
    memory.delete(ids["works"])
    target = make()
    import_records(target.engine, exported(memory))
    assert import_records(target.engine, records)["erased"] == 1
    assert target.get(ids["works"]) is None
    assert [event["event"] for event in target.history(ids["works"])] == ["ADD", "DELETE"]
    assert "Anna Berg works" not in json.dumps(target.history(ids["works"]))


def test_a_tombstone_of_the_file_erases_nothing_here(make: Make) -> None:
    memory = make()
    uid = memory.add("tea", user_id="u")["results"][0]["id"]
    assert import_records(memory.engine, [{"type": "erased", "id": uid, "user_id": "u", "at": 0}])["known"] == 1
    assert memory.get(uid)["memory"] == "tea"


def test_names_of_entities_without_mentions_here_are_not_imported(make: Make) -> None:
    memory = make()
    memory.add("Anna is here", user_id="u")
    records = [
        {"type": "alias", "user_id": "u", "key": "anna", "other": "leo quartz"},
        {"type": "name", "user_id": "u", "key": "leo quartz", "name": "Leo"},
        {"type": "name", "user_id": "unknown", "key": "anna", "name": "A."},
    ]
    import_records(memory.engine, records)
    assert (contents(memory)["aliases"], contents(memory)["names"]) == ([], [])
    assert contents(memory)["partitions"] == [("user:u", 1)]


# --- scopes ----------------------------------------------------------------------------------------------------------


SCOPES: list[tuple[dict[str, str], int]] = [
    ({"user_id": "ana"}, 20),
    ({"user_id": "bob"}, 1),
    ({"run_id": "r1"}, 2),
    ({"user_id": "ana", "run_id": "r1"}, 1),
    ({"agent_id": "helper"}, 2),
    ({"user_id": "nobody"}, 0),
]


def test_an_export_of_a_scope_has_its_own_memories_only(filled_memory: FilledMemory) -> None:
    memory, ids = filled_memory
    for scope, memory_count in SCOPES:
        records = exported(memory, **scope)
        assert records[0]["scope"] == scope
        mine = [one for one in records if one["type"] in {"memory", "erased"}]
        assert len([one for one in mine if one["type"] == "memory"]) == memory_count
        assert all(one[name] == value for one in mine for name, value in scope.items())
        text = json.dumps(records)
        assert not [uid for uid in set(ids.values()) - {one["id"] for one in mine} if uid in text]
        # Aliases and chosen names are exported with whole partitions only: they reveal entities outside smaller scopes.
        name_records = [one for one in records if one["type"] in {"alias", "name"}]
        assert all({"user_id": one.get("user_id")} == scope for one in name_records)
        for word, allowed in {
            "Siemens AG": "ana",
            "quartz": "",
            "Nokia": "ana",
            "Zelda": "bob",
            "Princess": "bob",
        }.items():
            assert word not in text or (scope == {"user_id": allowed}), (word, scope)


def test_links_out_of_a_scope_are_left_out(make: Make) -> None:
    memory = make()
    one = memory.add("Bob works at Nokia", user_id="u", run_id="r1")["results"][0]["id"]
    other = memory.add("Bob works at Adobe", user_id="u", run_id="r2")["results"][0]["id"]
    memory.engine.commit([RetireMemory(one, datetime.now(UTC), "changed", successor=other)])
    for run in ("r1", "r2"):
        (memory_record,) = [record for record in exported(memory, run_id=run) if record["type"] == "memory"]
        assert memory_record["links"] == []
    target = make()
    import_records(target.engine, exported(memory, user_id="u"))
    same(memory, target)


def test_each_scope_is_restored_from_its_own_export(filled_memory: FilledMemory, make: Make, tmp_path: Path) -> None:
    memory, _ = filled_memory
    target = make()
    for user in ("ana", "bob"):
        memory.export(tmp_path / user, user_id=user)
        target.import_(tmp_path / user)
        assert target.get_all(user_id=user) == memory.get_all(user_id=user)
        assert search_all(target, user_id=user) == search_all(memory, user_id=user)
    assert target.verify()["ok"]
