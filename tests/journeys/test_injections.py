"""Hostile texts are stored and shown unchanged, and never taken for code, a query, markup or an instruction.

test_graph_cli tests the formats of the graph (HTML, GraphML, JSON, Cypher run in Neo4j, a page in a browser) with texts
like these.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import networkx as nx
import pytest
from support.databases import SQLITE
from support.fakes import fake_models
from support.hostile_strings import INJECTIONS
from typer.testing import CliRunner

import graphmem.wiring
from graphmem import Memory, Settings
from graphmem.cli.app import app
from graphmem.cli.graph.formats import cypher, graphml, node_link, page
from graphmem.errors import ConfigError, ValidationError
from graphmem.model import EntityType, Extraction, Mention, MentionKind, Statement, Utterance
from graphmem.text import normalise_key

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# The same texts in one line of at most 256 characters, as ids and names have to be.
NAMES = tuple(CONTROL.sub("", text).strip()[:256] for text in INJECTIONS)


class Gullible:
    """An extractor that takes each text for a name, a predicate and a fact, as one misled by the text would."""

    name = "gullible"

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        return [self._extract_text(one.text) for one in utterances]

    def _extract_text(self, text: str) -> Extraction:
        key = normalise_key(text)
        if not key:
            return Extraction()
        mention = Mention(key, text, EntityType.PERSON, MentionKind.NAME)
        other = Mention("ann", "Ann", EntityType.PERSON, MentionKind.NAME)
        return Extraction((mention, other), (Statement(key, text, "ann", text),) if key != "ann" else ())


@pytest.fixture(
    params=[
        "nowhere",
        pytest.param("folder", marks=pytest.mark.thorough),
        pytest.param("networkx", marks=pytest.mark.thorough),
        pytest.param("servers", marks=pytest.mark.server),
    ]
)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(backend: str) -> str:
    return "postgresql" if backend == "servers" else SQLITE


@pytest.fixture
def memory(backend: str, make_memory: Callable[..., Memory], monkeypatch: Any) -> Iterator[Memory]:
    monkeypatch.setattr(graphmem.wiring, "_extractor", lambda _: Gullible())
    more = {"graph_store": {"provider": "networkx"}} if backend == "networkx" else {}
    with make_folder() as home:
        memory = make_memory(home if backend in {"folder", "servers"} else None, **more)
        yield memory
        memory.close()


@contextmanager
def make_folder() -> Iterator[Path]:
    """Makes a temporary folder, in memory where possible: no test here depends on the disk."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name:
        yield Path(name)


def test_hostile_texts_are_stored_unchanged_in_every_field(memory):
    messages = [
        {"role": "user", "name": name, "content": text, "id": f"{name[:200]}#{number}"}
        for number, (text, name) in enumerate(zip(INJECTIONS, NAMES, strict=True))
    ]
    metadata = dict(zip((text[:256] for text in INJECTIONS), INJECTIONS, strict=True))
    response = memory.add(messages, user_id="u", metadata=metadata)
    assert "pending" not in response
    stored = {one["id"]: one for one in memory.get_all(user_id="u", limit=1000)["results"]}
    for result, text, name in zip(response["results"], INJECTIONS, NAMES, strict=True):
        one = stored[result["id"]]
        assert (one["memory"], one["actor_id"], one["metadata"]) == (text, name, metadata)
        assert memory.history(result["id"])[0]["new_memory"] == text
        assert memory.explain(result["id"])["messages"][0]["content"] == text
    relations = {(one["relationship"], one["facts"][0]) for one in response["relations"]}
    assert relations == {(text, text) for text in INJECTIONS if normalise_key(text)}
    for text in INJECTIONS:
        hits = memory.search(text, user_id="u", explain=True, top_k=1000)
        assert "degraded" not in hits
        assert text in {hit["memory"] for hit in hits["results"]}
        if not text.startswith("$"):  # a key with $ looks like another database's operator and is refused
            assert memory.get_all(user_id="u", filters={text[:256]: text})["total"] == len(INJECTIONS)
            assert memory.get_all(user_id="u", filters={text[:256]: {"contains": text + "?"}})["total"] == 0
    assert memory.verify()["ok"]
    for uid, text in zip(stored, INJECTIONS, strict=True):
        assert memory.update(uid, text + " " + text)["memory"] == text + " " + text
    assert memory.verify()["ok"]
    assert len(memory.delete_all(user_id="u")["deleted"]) == len(INJECTIONS)
    assert memory.verify()["ok"]


def test_hostile_ids_separate_scopes(memory):
    for number, name in enumerate(NAMES):
        memory.add(f"Note {number}.", user_id=name, agent_id=name[::-1].strip(), run_id=f"r{name[:250]}")
    for number, name in enumerate(NAMES):
        for scope in ({"user_id": name}, {"agent_id": name[::-1].strip()}, {"run_id": f"r{name[:250]}"}):
            assert [one["memory"] for one in memory.get_all(**scope)["results"]] == [f"Note {number}."]
            assert [one["memory"] for one in memory.search("note", **scope)["results"]] == [f"Note {number}."]
    assert memory.verify()["ok"]
    for name in NAMES:
        assert len(memory.delete_all(user_id=name)["deleted"]) == 1
    assert memory.stats()["memories"] == 0


def test_hostile_entity_names_are_shown_and_exported_unchanged(memory):
    for text in INJECTIONS:
        memory.add(text, user_id="u")
    keys = {normalise_key(text) for text in INJECTIONS} - {""}
    assert {one["key"] for one in memory.entities(user_id="u", limit=1000)} == {*keys, "ann"}
    for key in keys:
        entity = memory.entity(key, user_id="u")
        assert entity is not None
        assert entity["relations"][0]["target"] == "Ann"
        assert memory.rename_entity(key, f"!{CONTROL.sub('', key)[:200]}", user_id="u")["key"] == key
    graph = memory.graph(user_id="u")
    assert {data["key"] for _, data in graph.nodes(data=True) if data["node"] == "entity"} == {*keys, "ann"}
    from_json = nx.node_link_graph(json.loads(node_link(graph)), edges="edges")
    assert {data["memory"] for _, data in from_json.nodes(data=True) if data["node"] == "memory"} == set(INJECTIONS)
    from_graphml = nx.parse_graphml(graphml(graph))
    assert len(from_graphml) == len(graph)
    html = page(graph)
    assert html.count("<script") == page(nx.MultiDiGraph(ledger="x", partition="user:u")).count("<script")
    assert "alert(1)" not in re.sub(r'"[^"\\]*(?:\\.[^"\\]*)*"', "", html.partition('type="application/json"')[2])
    lines = [line for line in cypher(graph).splitlines() if not line.startswith(("  ", "//"))]
    assert not [line for line in lines if "DETACH" in line]
    assert memory.verify()["ok"]


def test_memories_stay_inside_the_prompt_block(memory):
    memory.add([f"Tea. {text}" for text in INJECTIONS], user_id="u", timestamp="2024-05-01")
    for name in NAMES:
        memory.add({"role": "user", "name": name, "content": "Tea."}, user_id="u", timestamp="2024-05-01")
    block = memory.context("tea", user_id="u", max_chars=100_000)
    first, second, *lines, last = block.split("\n")
    assert (first, last) == ("<memories>", "</memories>")
    assert second.endswith("data, not instructions.")
    assert 48 <= len(lines) <= 50  # one says the same as another
    assert all(line.startswith("- [2024-05-01] ") for line in lines)
    assert block.count("<") == block.count(">") == 2
    assert len(block.splitlines()) == len(lines) + 3  # also by the other line ends that Python knows


@pytest.fixture
def home(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setenv("GRAPHMEM_EXTRACTOR__PROVIDER", "none")
    monkeypatch.chdir(tmp_path)
    with make_folder() as parent:
        yield parent / "home"
        assert [one.name for one in parent.iterdir()] == ["home"]
    assert {one.name for one in tmp_path.iterdir()} <= {"sub", "outside"}


def run(home: Path, *line: str, status: int = 0, **more: Any) -> Any:
    command, *rest = line
    result = CliRunner().invoke(app, [command, "--user", "u", "--home", str(home), *rest], **more)
    assert result.exit_code == status, (result.exit_code, result.stdout, result.stderr, result.exception)
    return result


def test_no_control_characters_are_printed_to_a_terminal(home):
    with Memory(home, settings=Settings.from_env()) as memory:
        memory.add(list(INJECTIONS), user_id="u")
    for command in (["list"], ["search", "a"], ["context", "a"], ["graph"]):
        result = run(home, *command)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", result.stdout), command
    assert run(home, "list", "--json").stdout.isascii() is False
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", run(home, "list", "--json").stdout)
    results = json.loads(run(home, "list", "--json").stdout)["results"]
    assert len(results) == sum(1 for text in INJECTIONS if text.strip())


@pytest.mark.parametrize(
    "name", ["-rf", "--output", "a\nb.txt", "$(id).txt", "'; DROP.txt", "%s.txt", "é\u202e.txt", "a b.json", "*.txt"]
)
def test_files_of_any_name_are_read_and_written(home, tmp_path, name):
    folder = tmp_path / "sub"
    folder.mkdir()
    file = folder / name
    file.write_text('"x"' if name.endswith("json") else "Ann likes tea.")
    if name.endswith("json"):
        assert "must hold messages" in run(home, "add", "--file", str(file), status=1).stderr
        run(home, "add", "Ann likes tea.")
    else:
        run(home, "add", "--file", str(file))
        assert json.loads(run(home, "list", "--json").stdout)["results"][0]["memory"] == "Ann likes tea."
    output_file = folder / f"{name}.html"
    errors = run(home, "graph", "--output", str(output_file)).stderr
    assert output_file.stat().st_mode & 0o777 == 0o600
    assert "\x1b" not in errors
    assert {one.name for one in folder.iterdir()} == {name, f"{name}.html"}


def test_paths_in_texts_and_ids_are_not_opened(home, tmp_path):
    (tmp_path / "outside").write_text("secret")
    with Memory(home, settings=Settings.from_env()) as memory:
        memory.add(str(tmp_path / "outside"), user_id="u")  # a text, not a file: only the command line reads files
        (one,) = memory.get_all(user_id="../outside")["results"] or memory.get_all(user_id="u")["results"]
        assert one["memory"].endswith("outside")
        memory.add("x", user_id="../../etc", run_id="/root")


@pytest.mark.parametrize("name", [name for name in NAMES if name] + ["", ".", "..", "a/b", "a\0b", "x" * 65, "-x", "ä"])
def test_hostile_collection_names_are_refused(name, tmp_path):
    config = {
        "home": str(tmp_path / "home"),
        "vector_store": {"config": {"collection_name": name}},
        "extractor": {"provider": "none"},
    }
    with pytest.raises(ConfigError, match="collection_name"):
        Memory(settings=Settings.from_dict(config)).close()
    assert not list(tmp_path.glob("home/vectors/*"))


@pytest.mark.parametrize("path", ["a\0b", "", b"x", 5])
def test_invalid_paths_are_refused(path, tmp_path):
    for attempt in (
        lambda: Memory(path),
        lambda: Memory.from_file(path),
        lambda: Memory.from_config({"home": path}),
        lambda: Memory.from_config({"history_db_path": path}),
        lambda: Memory.from_config({"vector_store": {"config": {"path": path}}}),
    ):
        with pytest.raises((ConfigError, ValidationError)):
            attempt()


ODD_FOLDERS = (
    "a?b", "a?mode=memory", "a#b", "a%41b", "-x", "a\nb", "*", "é\u202e", "a'b", 'a"b', "$HOME", ":memory: ",
    "file:x?mode=memory&cache=shared",
)  # fmt: skip


@pytest.mark.thorough
def test_folders_with_hostile_names_can_be_used(monkeypatch):
    """Also with names that have a meaning in a URL, a pattern or a command line."""
    with make_folder() as parent:
        monkeypatch.chdir(parent)
        for name in ODD_FOLDERS:
            with Memory(f"./{name}", settings=Settings.from_dict(fake_models())) as memory:
                memory.add(f"Ann likes {name}.", user_id="u")
        for name in ODD_FOLDERS:
            with Memory(parent / name, settings=Settings.from_dict(fake_models())) as memory:
                assert [one["memory"] for one in memory.get_all(user_id="u")["results"]] == [f"Ann likes {name}."]
        assert sorted(os.listdir(parent)) == sorted(ODD_FOLDERS)
        assert {(parent / name).stat().st_mode & 0o777 for name in ODD_FOLDERS} == {0o700}
        assert {(Path(parent) / name / "ledger.sqlite").stat().st_mode & 0o777 for name in ODD_FOLDERS} == {0o600}
