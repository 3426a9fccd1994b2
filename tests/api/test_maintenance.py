"""`verify`, `repair`, `rebuild`, `reset`, `stats`, `flush`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.contract import Make, added, ids, texts, with_embedder
from support.databases import SQLITE_ONLY
from support.fakes import hash_texts

from graphmem import Memory
from graphmem.errors import (
    ConfigError,
    ModelError,
    ValidationError,
)
from graphmem.stores.ledger import schema


@pytest.fixture(params=["memory", "folder", "networkx"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path, make_memory: Make) -> Memory:
    if request.param == "networkx":
        return make_memory(graph_store={"provider": "networkx"})
    return make_memory(tmp_path / "home" if request.param == "folder" else None)


def test_the_life_cycle_in_every_configuration(anywhere: Memory) -> None:
    memory_ids = ids(anywhere.add(["I like tea", "I like cake", "The car is red"], user_id="u1"))
    anywhere.update(memory_ids[0], "I like green tea")
    anywhere.delete(memory_ids[2])
    assert texts(anywhere.search("green tea", user_id="u1"))[0] == "I like green tea"
    report = anywhere.verify()
    assert report["ok"], report
    assert anywhere.stats()["memories"] == 2
    assert anywhere.rebuild()["ok"]
    assert anywhere.repair()["ok"]
    assert set(ids(anywhere.search("tea", user_id="u1"))) == set(memory_ids[:2])
    anywhere.reset()
    assert anywhere.get_all(user_id="u1")["total"] == 0
    assert ids(anywhere.search("tea", user_id="u1")) == []
    assert anywhere.verify()["ok"]
    added(anywhere, "I like tea")
    assert texts(anywhere.search("tea", user_id="u1")) == ["I like tea"]


@SQLITE_ONLY
def test_reset_leaves_other_files_alone(tmp_path: Path, make_memory: Make) -> None:
    memory = make_memory(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    memory.add("tea", user_id="u1")
    memory.reset()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "other").is_dir()


@SQLITE_ONLY
def test_verify_finds_and_repairs_a_memory_whose_vectors_were_lost(tmp_path: Path, make_memory: Make) -> None:
    memory = make_memory(tmp_path)
    uid = added(memory, "tea")
    memory.search("tea", user_id="u1")
    with memory.engine.ledger.write() as connection:
        connection.execute(schema.embeddings.delete())
    report = memory.verify()
    assert (report["ok"], report["projections"]["vectors"]["missing"]) == (False, [uid])
    repair_report = memory.verify(repair=True)
    assert (repair_report["ok"], repair_report["repaired"]["projections"]["vectors"]["missing"]) == (True, [uid])
    assert ids(memory.search("tea", user_id="u1")) == [uid]


def test_rebuild_reports_progress_and_refuses_unknown_projections(tmp_path: Path, make_memory: Make) -> None:
    memory = make_memory(tmp_path)
    memory.add(["tea", "cake"], user_id="u1")
    progress: list[tuple[Any, ...]] = []
    memory.rebuild("vectors", lambda *step: progress.append(step))
    assert [name for name, *_ in progress] == ["vectors"] and progress[-1][1] == progress[-1][2]
    assert memory.rebuild("graph")["ok"]
    with pytest.raises(ValidationError):
        memory.rebuild("everything")


def test_another_embedding_model_raises_until_a_rebuild(tmp_path: Path, make_memory: Make) -> None:
    first = make_memory(tmp_path)
    uid = added(first, "tea")
    first.close()
    other = make_memory(tmp_path, **with_embedder(lambda texts: [v[:32] + 0.01 for v in hash_texts(texts)], "half", 32))
    for call in (lambda: other.search("tea", user_id="u1"), lambda: other.add("cake", user_id="u1")):
        with pytest.raises(ConfigError, match="rebuild"):
            call()
    assert other.get(uid)["memory"] == "tea"
    assert other.rebuild()["ok"]
    response = other.search("tea", user_id="u1")
    assert (ids(response), response.get("degraded")) == ([uid], None)
    assert response["results"][0]["similarity"] == pytest.approx(1, abs=1e-5)


def shorter(texts: list[str]) -> Any:
    return [vector[:32] + 0.01 for vector in hash_texts(texts)]


def embedded(folder: Path) -> dict[str, Any]:
    """Embedded Qdrant, also beside PostgreSQL: a server's collection keeps the length of vectors it was made with."""
    return {"vector_store": {"config": {"path": str(folder / "vectors")}}}


@pytest.mark.parametrize("call", ["search", "add", "update", "context"])
def test_the_same_model_name_with_another_length_asks_for_a_rebuild(
    tmp_path: Path, make_memory: Make, call: str
) -> None:
    first = make_memory(tmp_path)
    uid = added(first, "tea")
    first.close()
    other = make_memory(tmp_path, **with_embedder(shorter, dims=32))
    arguments = (uid, "cake") if call == "update" else ("cake",)
    with pytest.raises(ConfigError, match=r"'hash' \(64 dimensions\).*'hash' \(32 dimensions\).*rebuild"):
        getattr(other, call)(*arguments, user_id="u1")


def test_a_ledger_is_whole_after_a_visit_with_another_length(tmp_path: Path, make_memory: Make) -> None:
    first = make_memory(tmp_path, **embedded(tmp_path))
    added(first, "tea")
    erased = added(first, "cake")
    first.close()
    visitor = make_memory(tmp_path, **embedded(tmp_path), **with_embedder(shorter, dims=32))
    assert "pending" not in visitor.delete(erased)
    assert visitor.verify()["ok"]
    visitor.close()
    assert make_memory(tmp_path, **embedded(tmp_path)).verify()["ok"]


def test_rebuild_embeds_anew_with_another_length_under_the_same_name(tmp_path: Path, make_memory: Make) -> None:
    first = make_memory(tmp_path)
    uid = added(first, "tea")
    first.close()
    other = make_memory(tmp_path, **with_embedder(shorter, dims=32))
    assert other.rebuild()["ok"]
    assert ids(other.search("tea", user_id="u1")) == [uid]
    other.close()
    with pytest.raises(ConfigError, match=r"'hash' \(32 dimensions\).*rebuild"):
        make_memory(tmp_path).search("tea", user_id="u1")


def test_words_restored_under_another_embedder_wait_for_that_of_the_ledger(tmp_path: Path, make_memory: Make) -> None:
    first = make_memory(tmp_path)
    uid = added(first, "tea")
    first.update(uid, "coffee")
    event = first.explain(uid)["events"][-1]["id"]
    first.close()
    visitor = make_memory(tmp_path, **with_embedder(hash_texts, "other"))
    assert "vectors" in visitor.undo(event)["pending"]
    visitor.close()
    again = make_memory(tmp_path)
    assert again.flush()["pending"] == []
    assert again.search("tea", user_id="u1")["results"][0]["similarity"] == pytest.approx(1, abs=1e-5)


def test_a_rebuild_of_the_graph_alone_keeps_the_vectors(tmp_path: Path, make_memory: Make) -> None:
    first = make_memory(tmp_path, **embedded(tmp_path))
    added(first, "tea")
    first.close()
    visitor = make_memory(tmp_path, **embedded(tmp_path), **with_embedder(shorter, dims=32))
    assert visitor.rebuild("graph")["ok"]
    visitor.close()
    assert texts(make_memory(tmp_path, **embedded(tmp_path)).search("tea", user_id="u1")) == ["tea"]


def test_stats_name_the_embedder_of_the_vectors_and_the_configured_one(tmp_path: Path, make_memory: Make) -> None:
    first = make_memory(tmp_path)
    added(first, "tea")
    stats = first.stats()
    assert (stats["embedder"], stats["embedder_dims"]) == ("hash", 64)
    assert "configured_embedder" not in stats
    first.close()
    stats = make_memory(tmp_path, **with_embedder(shorter, "half", 32)).stats()
    assert (stats["embedder"], stats["embedder_dims"]) == ("hash", 64)
    assert (stats["configured_embedder"], stats["configured_embedder_dims"]) == ("half", 32)


def test_stats_count(memory: Memory) -> None:
    memory.add(["tea", "cake"], user_id="u1")
    stats = memory.stats()
    assert (stats["memories"], stats["events"], stats["pending"]) == (2, 2, [])


@SQLITE_ONLY
def test_the_ledger_is_the_only_store_of_an_embedded_memory(memory: Memory) -> None:
    added(memory, "tea")
    (ledger,) = memory.stats()["stores"]
    assert (ledger["name"], ledger["provider"], ledger["pending"]) == ("ledger", "sqlite", 0)


@SQLITE_ONLY
def test_a_store_in_memory_has_no_sequence_number(make_memory: Make) -> None:
    memory = make_memory(graph_store={"provider": "networkx"})
    added(memory, "tea")
    private = {"name": "graph", "provider": "networkx", "available": True, "dead_letters": 0}
    expected = {**private, "seq": None, "pending": 0, "oldest_pending_at": None}
    assert memory.stats()["stores"][1:] == [expected]


def test_stats_count_pending_work_by_its_state(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.stats()["job_counts"] == []

    def refuse(*_: Any) -> None:
        raise ModelError("no memory left")

    monkeypatch.setattr(memory.engine.backends.embedder, "embed", refuse)
    added(memory, "tea")
    expected = {"kind": "enrichment", "state": "failed", "number": 1, "oldest_seconds": pytest.approx(0, abs=60)}
    assert memory.stats()["job_counts"] == [expected]


def test_every_result_is_ready_for_json(anna: Memory, memory: Memory) -> None:
    uid = added(memory, "tea", metadata={"a": (1, 2.5, None)}, wait=False)
    results = [
        memory.flush(),
        memory.get(uid),
        memory.get_all(user_id="u1"),
        memory.search("tea", user_id="u1", explain=True),
        memory.history(uid),
        memory.explain(uid),
        memory.stats(),
        memory.verify(repair=True),
        memory.repair(),
        memory.rebuild(),
        memory.update(uid, "green tea"),
        memory.delete(uid),
        memory.delete_all(user_id="u1"),
        anna.search("Siemens", user_id="u1", explain=True),
        anna.entities(user_id="u1"),
        anna.entity("Siemens", user_id="u1"),
    ]
    for result in results:
        assert json.loads(json.dumps(result, allow_nan=False)) == result
