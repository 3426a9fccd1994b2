"""Unusable paths, configurations and arguments raise a GraphmemError that says what to do."""

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
from graphmem.integrations.base import sync_memory

MEM0 = Path(__file__).parents[1] / "data" / "mem0-1.0.11"
UNKNOWN_HOME, SURROGATE, LONG = "~no-such-user/memory", "memory\ud800", "x" * 300


def settings(**config: Any) -> Settings:
    return Settings.from_dict(fake_models(**config))


@pytest.fixture(autouse=True)
def _working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("as_path", [str, Path])
@pytest.mark.parametrize(
    ("path", "message"), [(UNKNOWN_HOME, "write it out"), (SURROGATE, "surrogate"), (LONG, "choose another")]
)
def test_impossible_folders_are_refused(path: str, message: str, as_path: type) -> None:
    with pytest.raises(GraphmemError, match=message) as error:
        Memory(as_path(path), settings=settings())
    str(error.value).encode()
    with pytest.raises(GraphmemError, match=message):
        Memory(as_path(path))


@pytest.mark.parametrize("path", [UNKNOWN_HOME, SURROGATE, LONG])
def test_impossible_paths_in_a_configuration_are_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraphmemError):
        Memory.from_config(fake_models(home=path))
    with pytest.raises(GraphmemError):
        Memory.from_config(fake_models(home="one", history_db_path=path))
    with pytest.raises(GraphmemError):
        Memory.from_file(f"{path}.json")
    if path == UNKNOWN_HOME:
        monkeypatch.setenv("GRAPHMEM_HOME", path)
        with pytest.raises(ConfigError, match="GRAPHMEM_HOME"):
            Memory(settings=settings())
    else:
        with pytest.raises(GraphmemError):
            Memory.from_config(fake_models(home="three", ledger_url=f"sqlite:///{path}"))


def test_the_local_qdrant_of_mem0_is_left_alone(tmp_path: Path) -> None:
    theirs = Path(shutil.copytree(MEM0 / "qdrant", tmp_path / "theirs"))
    before = {path: path.is_file() and path.read_bytes() for path in sorted(theirs.rglob("*"))}
    vector_store = {"config": {"path": str(theirs)}}
    with Memory.from_config(fake_models(home=str(tmp_path / "home"), vector_store=vector_store)) as memory:
        memory.add("I like tea", user_id="u")
        assert memory.search("tea", user_id="u")["results"]
    assert {path: path.is_file() and path.read_bytes() for path in sorted(theirs.rglob("*"))} == before


@pytest.mark.parametrize("value", [{}, [], "config.toml", 3])
def test_settings_of_another_type_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"settings: .*Memory\.from_config"):
        Memory(":memory:", settings=value)


@pytest.mark.parametrize(
    "kinds",
    [np.array("fact"), np.array(3), np.array([["fact", "episode"]]), np.array([1, 2]), np.array([])],
    ids=["no dimension", "a number", "two dimensions", "numbers", "empty"],
)
def test_arrays_as_kinds_are_validated(memory: Memory, kinds: Any) -> None:
    for call in (
        lambda: memory.search("tea", user_id="u", kinds=kinds),
        lambda: memory.get_all(user_id="u", kinds=kinds),
    ):
        with pytest.raises(ValidationError, match="kind"):
            call()
    assert memory.get_all(user_id="u", kinds=np.array(["fact"]))["total"] == 0
    with pytest.raises(ValidationError, match="projection"):
        memory.rebuild(np.array(["vectors", "graph"]))  # type: ignore[arg-type]


def nested(depth: int) -> list[Any]:
    content: list[Any] = []
    for _ in range(depth):
        content = [content]
    return content


def test_unusable_chat_messages_are_only_logged(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    ring: list[Any] = []
    ring.append(ring)
    with ChatLink(memory, user_id="u") as link:
        for content in (nested(100_000), ring):
            caplog.clear()
            link.saved([{"role": "user", "content": content}])
            link.flush()
            assert "1 messages of a saved chat were not stored" in caplog.text
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
def test_inject_refuses_anything_but_messages_and_a_text(memory: Memory, messages: Any, block: Any) -> None:
    with ChatLink(memory, user_id="u") as link, pytest.raises(ValidationError) as error:
        link.inject(messages, block)
    assert "secret" not in str(error.value)


@pytest.mark.skipif(os.name == "nt", reason="names of files")
@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", "--home", UNKNOWN_HOME],
        ["stats", "--home", LONG],
        ["stats", "--config", f"{LONG}.toml"],
        ["export", LONG, "--home", "home"],
        ["import", LONG, "--home", "home"],
        ["migrate", "mem0", "--qdrant", UNKNOWN_HOME, "--home", "home"],
        ["migrate", "mem0", "--qdrant", LONG, "--home", "home"],
        ["migrate", "mem0", "--qdrant", ".", "--history", UNKNOWN_HOME, "--home", "home"],
        ["migrate", "mem0", "--qdrant", ".", "--history", LONG, "--home", "home"],
    ],
)
def test_errors_at_the_command_line_are_one_line(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == (2 if "--config" in arguments or result.stderr.startswith("graphmem: --") else 1)
    assert result.stderr.startswith("graphmem: ")
    assert len(result.stderr.splitlines()) == 1


def test_pipes_are_refused_as_a_key_and_an_export(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.export(3, user_id="ana"),
        lambda memory: memory.on("memory.added", 3),
        lambda memory: ChatLink(memory, user_id="ana").inject(3, ""),
        lambda memory: ChatLink(memory, user_id="ana").inject([{"role": 3}], ""),
        lambda memory: sync_memory(3),
    ],
)
def test_an_error_about_a_wrong_type_does_not_read_as_if_the_value_were_its_name(call: Any) -> None:
    with Memory(":memory:", settings=settings()) as memory, pytest.raises(ValidationError, match="=<int>: must be"):
        call(memory)
