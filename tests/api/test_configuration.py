"""Opening a memory by configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.contract import Make, added
from support.fakes import fake_models

from graphmem import Memory, errors
from graphmem.errors import (
    ConfigError,
    NotFoundError,
    ValidationError,
)


def test_version_1_0_gives_bare_lists_and_warns(make_memory: Make) -> None:
    memory = make_memory(version="v1.0")
    for call in (
        lambda: memory.add("tea", user_id="u1"),
        lambda: memory.search("tea", user_id="u1"),
        lambda: memory.get_all(user_id="u1"),
    ):
        with pytest.warns(DeprecationWarning, match="v1.1"):
            (one,) = call()
        assert one["memory"] == "tea"


def test_a_memory_is_made_from_a_config_and_a_file(tmp_path: Path) -> None:
    with Memory.from_config({**fake_models(), "home": str(tmp_path / "a")}) as memory:
        added(memory, "tea")
    assert (tmp_path / "a" / "ledger.sqlite").exists()
    (tmp_path / "config.json").write_text(
        json.dumps({"home": str(tmp_path / "b"), "history_db_path": str(tmp_path / "h.db")})
    )
    with Memory.from_file(tmp_path / "config.json") as memory:
        assert memory.stats()["memories"] == 0
    assert (tmp_path / "h.db").exists()
    for bad in ({"vectorstore": {}}, {"llm": {"provider": "litellm"}}, {"vector_store": {"provider": "pinecone"}}):
        with pytest.raises(ConfigError):
            Memory.from_config(bad)


@pytest.mark.parametrize("key", ["history_db_path", "ledger_url"])
def test_a_named_folder_is_where_the_ledger_is(tmp_path: Path, key: str) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "other.sqlite"
    with Memory(home, config={**fake_models(), "home": str(tmp_path / "another")}):
        assert [path.name for path in tmp_path.iterdir()] == ["home"]
    place = {"history_db_path": str(elsewhere), "ledger_url": f"sqlite:///{elsewhere}"}[key]
    for path in (home, ":memory:"):
        with pytest.raises(ConfigError, match="^path: a folder was named, but history_db_path or ledger_url in config"):
            Memory(path, config={**fake_models(), key: place})
    assert not elsewhere.exists()


def test_the_home_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMEM_HOME", str(tmp_path / "home"))
    with Memory() as memory:
        assert memory.get_all(user_id="u1")["total"] == 0
    assert (tmp_path / "home" / "ledger.sqlite").exists()


def test_errors_have_these_parents() -> None:
    assert issubclass(ValidationError, ValueError) and issubclass(NotFoundError, LookupError)
    assert issubclass(NotFoundError, ValueError)
    parents = {
        "ConfigError": "GraphmemError", "ValidationError": "GraphmemError", "NotFoundError": "GraphmemError",
        "StoreError": "GraphmemError", "StoreUnavailable": "StoreError", "StoreLocked": "StoreError",
        "PartialWrite": "GraphmemError", "ModelError": "GraphmemError", "EmbeddingError": "ModelError",
        "LLMError": "ModelError",
    }  # fmt: skip
    for child, parent in parents.items():
        assert issubclass(getattr(errors, child), getattr(errors, parent))
