"""What cannot be a path, a configuration or an argument: an error of ours that says what to do, never a traceback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fakes import fake_models
from typer.testing import CliRunner

from graphmem import ChatLink, Memory, Settings
from graphmem.cli.app import app
from graphmem.errors import ConfigError, GraphmemError, StoreError, StoreUnavailable, ValidationError
from graphmem.stores.qdrant.embedded import EmbeddedIndex

NOBODYS, SURROGATE, LONG = "~no-such-user/memory", "memory\ud800", "x" * 300


def settings(**config: Any) -> Settings:
    return Settings.from_dict(fake_models(**config))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("as_path", [str, Path])
@pytest.mark.parametrize(
    ("path", "told"), [(NOBODYS, "write it out"), (SURROGATE, "surrogate"), (LONG, "choose another")]
)
def test_a_folder_that_cannot_be(path: str, told: str, as_path: type) -> None:
    with pytest.raises(GraphmemError, match=told) as error:
        Memory(as_path(path), settings=settings())
    str(error.value).encode()
    with pytest.raises(GraphmemError, match=told):
        Memory(as_path(path))


@pytest.mark.parametrize("path", [NOBODYS, SURROGATE, LONG])
def test_such_paths_in_a_configuration(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraphmemError):
        Memory.from_config(fake_models(home=path))
    with pytest.raises(GraphmemError):
        Memory.from_config(fake_models(home="one", history_db_path=path))
    with pytest.raises(GraphmemError):
        Memory.from_config(fake_models(home="two", vector_store={"config": {"path": path}}))
    with pytest.raises(GraphmemError):
        Memory.from_file(f"{path}.json")
    if path == NOBODYS:
        monkeypatch.setenv("GRAPHMEM_HOME", path)
        with pytest.raises(ConfigError, match="GRAPHMEM_HOME"):
            Memory(settings=settings())
    else:
        with pytest.raises(GraphmemError):
            Memory.from_config(fake_models(home="three", ledger_url=f"sqlite:///{path}"))


def test_a_lock_that_cannot_be_taken(tmp_path: Path) -> None:
    Memory(tmp_path / "home", settings=settings()).close()
    (lock,) = (tmp_path / "home" / "vectors").glob("*.lock")
    lock.unlink()
    lock.mkdir()
    with pytest.raises(StoreUnavailable, match=r"cannot lock .*Is a directory; check the path"):
        Memory(tmp_path / "home", settings=settings())


def test_an_index_that_cannot_be_made_names_what_can_be_done_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that would have to be called on the memory, which is not open."""
    monkeypatch.setattr(EmbeddedIndex, "_config", lambda _: "what Edge does not take")
    with pytest.raises(StoreError, match="remove that folder") as error:
        Memory(tmp_path / "home", settings=settings())
    assert "repair" not in str(error.value)
    monkeypatch.undo()
    Memory(tmp_path / "home", settings=settings()).close()  # its lock was let go of


@pytest.mark.parametrize("given", [{}, [], "config.toml", 3])
def test_settings_that_are_none(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"settings: .*Memory\.from_config"):
        Memory(":memory:", settings=given)


@pytest.mark.parametrize(
    "kinds",
    [np.array("fact"), np.array(3), np.array([["fact", "episode"]]), np.array([1, 2]), np.array([])],
    ids=["no dimension", "a number", "two dimensions", "numbers", "empty"],
)
def test_arrays_as_kinds(memory: Memory, kinds: Any) -> None:
    for ask in (
        lambda: memory.search("tea", user_id="u", kinds=kinds),
        lambda: memory.get_all(user_id="u", kinds=kinds),
    ):
        with pytest.raises(ValidationError, match="kind"):
            ask()
    assert memory.get_all(user_id="u", kinds=np.array(["fact"]))["total"] == 0
    with pytest.raises(ValidationError, match="projection"):
        memory.rebuild(np.array(["vectors", "graph"]))  # type: ignore[arg-type]


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def test_a_chat_that_is_none_is_only_logged(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    ring: list[Any] = []
    ring.append(ring)
    with ChatLink(memory, user_id="u") as link:
        for content in (nested(100_000), ring):
            caplog.clear()
            link.saved([{"role": "user", "content": content}])
            assert "could not be taken" in caplog.text
        link.saved([{"role": "user", "content": "I like tea"}])
        link.flush()
    assert [one["memory"] for one in memory.get_all(user_id="u")["results"]] == ["I like tea"]


@pytest.mark.parametrize(
    ("messages", "block"),
    [
        (3, "b"),
        (None, "b"),
        ("secret", "b"),
        ({"role": "user", "content": "secret"}, "b"),
        ([3], "b"),
        (["secret"], "b"),
        (np.array([1, 2]), "b"),
        ([{"role": np.array([1, 2]), "content": "secret"}], "b"),
        ([{"role": "system", "content": np.array([1, 2])}], "b"),
        ([{"role": "system", "content": 3}], "b"),
        ([{"role": "system", "content": "secret"}], 3),
        ([{"role": "system", "content": "secret"}], np.array([1, 2])),
    ],
)
def test_what_is_injected_into_are_messages(memory: Memory, messages: Any, block: Any) -> None:
    with ChatLink(memory, user_id="u") as link, pytest.raises(ValidationError) as error:
        link.inject(messages, block)
    assert "secret" not in str(error.value)


@pytest.mark.skipif(os.name == "nt", reason="names of files")
@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", "--home", NOBODYS],
        ["stats", "--home", LONG],
        ["stats", "--config", f"{LONG}.toml"],
        ["export", LONG, "--home", "home"],
        ["import", LONG, "--home", "home"],
        ["migrate", "mem0", "--qdrant", NOBODYS, "--home", "home"],
        ["migrate", "mem0", "--qdrant", LONG, "--home", "home"],
        ["migrate", "mem0", "--qdrant", ".", "--history", NOBODYS, "--home", "home"],
        ["migrate", "mem0", "--qdrant", ".", "--history", LONG, "--home", "home"],
    ],
)
def test_on_the_command_line_it_is_one_line(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 1
    assert done.stderr.startswith("graphmem: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_removed_folder_of_vectors_is_made_anew(tmp_path: Path) -> None:
    with Memory(tmp_path / "home", settings=Settings.from_dict(fake_models())) as memory:
        memory.add("Tea is nice.", user_id="ann")
        shutil.rmtree(tmp_path / "home" / "vectors")
        assert memory.add("Coffee, too.", user_id="ann")["pending"] == ["vectors"]
        assert memory.rebuild("vectors")["ok"]
        assert memory.flush() == {"pending": []}
        assert len(memory.search("tea", user_id="ann")["results"]) == 2


def test_a_pipe_is_no_key_and_no_export(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with Memory(":memory:", settings=Settings.from_dict(fake_models())) as memory:
        with pytest.raises(StoreError, match="is no file"):
            memory.import_(tmp_path / "pipe")
        with pytest.raises(ValidationError):
            memory.import_(np.array("tea"))
    (tmp_path / "home").mkdir()
    os.mkfifo(tmp_path / "home" / "secret.key")
    with pytest.raises(StoreUnavailable, match="is no file"):
        Memory(tmp_path / "home", settings=Settings.from_dict(fake_models()))
