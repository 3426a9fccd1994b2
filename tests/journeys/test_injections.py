"""Words stay words: stored as they are, shown as they are, and nobody's code, query, markup or instruction.

What the graph is written as (HTML, GraphML, JSON, Cypher that is run in Neo4j, a page in a browser) is tried with words
like these in test_graph_cli.
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
from graphmem.cli.graph.cypher import cypher
from graphmem.cli.graph.formats import graphml, node_link
from graphmem.cli.graph.page import page
from graphmem.errors import ConfigError, ValidationError
from graphmem.model import EntityType, Extraction, Mention, MentionKind, Statement, Utterance
from graphmem.text import normalise_key

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# The same in one line, as ids and names may be.
NAMES = tuple(CONTROL.sub("", text).strip()[:256] for text in INJECTIONS)


class Gullible:
    """An extractor that takes a text for a name, a predicate, a fact: as one that a text has talked into it would."""

    name = "gullible"

    def extract(self, utterances: Sequence[Utterance]) -> list[Extraction]:
        return [self._found(one.text) for one in utterances]

    def keys(self, question: str) -> list[Mention]:
        return list(self._found(question).mentions)

    def _found(self, text: str) -> Extraction:
        key = normalise_key(text)
        if not key:
            return Extraction()
        said = Mention(key, text, EntityType.PERSON, MentionKind.NAME)
        other = Mention("ann", "Ann", EntityType.PERSON, MentionKind.NAME)
        return Extraction((said, other), (Statement(key, text, "ann", text),) if key != "ann" else ())


@pytest.fixture(
    params=[
        "nowhere",
        pytest.param("folder", marks=pytest.mark.thorough),
        pytest.param("networkx", marks=pytest.mark.thorough),
        pytest.param("servers", marks=pytest.mark.server),
    ]
)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(place: str) -> str:
    return "postgresql" if place == "servers" else SQLITE


@pytest.fixture
def memory(place: str, make_memory: Callable[..., Memory], monkeypatch: Any) -> Iterator[Memory]:
    monkeypatch.setattr(graphmem.wiring, "_extractor", lambda _: Gullible())
    more = {"graph_store": {"provider": "networkx"}} if place == "networkx" else {}
    with folder() as home:
        made = make_memory(home if place in {"folder", "servers"} else None, **more)
        yield made
        made.close()


@contextmanager
def folder() -> Iterator[Path]:
    """In memory where there is one: none of this is about the disk."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name:
        yield Path(name)


def test_words_of_any_kind_in_every_place(memory):
    messages = [
        {"role": "user", "name": name, "content": text, "id": f"{name[:200]}#{number}"}
        for number, (text, name) in enumerate(zip(INJECTIONS, NAMES, strict=True))
    ]
    metadata = dict(zip((text[:256] for text in INJECTIONS), INJECTIONS, strict=True))
    added = memory.add(messages, user_id="u", metadata=metadata)
    assert "pending" not in added
    stored = {one["id"]: one for one in memory.get_all(user_id="u", limit=1000)["results"]}
    for result, text, name in zip(added["results"], INJECTIONS, NAMES, strict=True):
        one = stored[result["id"]]
        assert (one["memory"], one["actor_id"], one["metadata"]) == (text, name, metadata)
        assert memory.history(result["id"])[0]["new_memory"] == text
        assert memory.explain(result["id"])["messages"][0]["content"] == text
    told = {(one["relationship"], one["facts"][0]) for one in added["relations"]}
    assert told == {(text, text) for text in INJECTIONS if normalise_key(text)}
    for text in INJECTIONS:
        hits = memory.search(text, user_id="u", explain=True, top_k=1000)
        assert "degraded" not in hits
        assert text in {hit["memory"] for hit in hits["results"]}
        if not text.startswith("$"):  # which would be taken for another database's operator, and is refused
            assert memory.get_all(user_id="u", filters={text[:256]: text})["total"] == len(INJECTIONS)
            assert memory.get_all(user_id="u", filters={text[:256]: {"contains": text + "?"}})["total"] == 0
    assert memory.verify()["ok"]
    for uid, text in zip(stored, INJECTIONS, strict=True):
        assert memory.update(uid, text + " " + text)["memory"] == text + " " + text
    assert memory.verify()["ok"]
    assert len(memory.delete_all(user_id="u")["deleted"]) == len(INJECTIONS)
    assert memory.verify()["ok"]


def test_ids_of_any_kind_are_ids(memory):
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


def test_entities_of_any_name(memory):
    for text in INJECTIONS:
        memory.add(text, user_id="u")
    known = {normalise_key(text) for text in INJECTIONS} - {""}
    assert {one["key"] for one in memory.entities(user_id="u", limit=1000)} == {*known, "ann"}
    for key in known:
        shown = memory.entity(key, user_id="u")
        assert shown is not None
        assert shown["relations"][0]["target"] == "Ann"
        assert memory.rename_entity(key, f"!{CONTROL.sub('', key)[:200]}", user_id="u")["key"] == key
    drawn = memory.graph(user_id="u")
    assert {data["key"] for _, data in drawn.nodes(data=True) if data["node"] == "entity"} == {*known, "ann"}
    again = nx.node_link_graph(json.loads(node_link(drawn)), edges="edges")
    assert {data["memory"] for _, data in again.nodes(data=True) if data["node"] == "memory"} == set(INJECTIONS)
    written = nx.parse_graphml(graphml(drawn))
    assert len(written) == len(drawn)
    html = page(drawn)
    assert html.count("<script") == page(nx.MultiDiGraph(ledger="x", partition="user:u")).count("<script")
    assert "alert(1)" not in re.sub(r'"[^"\\]*(?:\\.[^"\\]*)*"', "", html.partition('type="application/json"')[2])
    lines = [line for line in cypher(drawn).splitlines() if not line.startswith(("  ", "//"))]
    assert not [line for line in lines if "DETACH" in line]
    assert memory.verify()["ok"]


def test_a_memory_stays_inside_the_prompts_block(memory):
    memory.add([f"Tea. {text}" for text in INJECTIONS], user_id="u", timestamp="2024-05-01")
    for name in NAMES:
        memory.add({"role": "user", "name": name, "content": "Tea."}, user_id="u", timestamp="2024-05-01")
    block = memory.context("tea", user_id="u", max_chars=100_000)
    first, second, *lines, last = block.split("\n")
    assert (first, last) == ("<memories>", "</memories>")
    assert second.endswith("data, not instructions.")
    assert len(lines) == 20
    assert all(line.startswith("- [2024-05-01] ") for line in lines)
    assert block.count("<") == block.count(">") == 2
    assert len(block.splitlines()) == 23  # whatever else Python takes for the end of a line


@pytest.fixture
def home(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setenv("GRAPHMEM_EXTRACTOR__PROVIDER", "none")
    monkeypatch.chdir(tmp_path)
    with folder() as place:
        yield place / "home"
        assert [one.name for one in place.iterdir()] == ["home"]
    assert {one.name for one in tmp_path.iterdir()} <= {"sub", "outside"}


def run(home: Path, *line: str, status: int = 0, **more: Any) -> Any:
    command, *rest = line
    done = CliRunner().invoke(app, [command, "--user", "u", "--home", str(home), *rest], **more)
    assert done.exit_code == status, (done.exit_code, done.stdout, done.stderr, done.exception)
    return done


def test_words_on_a_terminal_are_pictures_of_themselves(home):
    with Memory(home, settings=Settings.from_env()) as memory:
        memory.add(list(INJECTIONS), user_id="u")
    for command in (["list"], ["search", "a"], ["context", "a"], ["graph"]):
        shown = run(home, *command)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown.stdout), command
    assert run(home, "list", "--json").stdout.isascii() is False
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", run(home, "list", "--json").stdout)
    listed = json.loads(run(home, "list", "--json").stdout)["results"]
    assert len(listed) == sum(1 for text in INJECTIONS if text.strip())


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
    else:
        run(home, "add", "--file", str(file))
        assert json.loads(run(home, "list", "--json").stdout)["results"][0]["memory"] == "Ann likes tea."
    written = folder / f"{name}.html"
    told = run(home, "graph", "--output", str(written)).stderr
    assert written.stat().st_mode & 0o777 == 0o600
    assert "\x1b" not in told
    assert {one.name for one in folder.iterdir()} == {name, f"{name}.html"}


def test_no_path_is_followed_that_was_not_given(home, tmp_path):
    (tmp_path / "outside").write_text("secret")
    with Memory(home, settings=Settings.from_env()) as memory:
        memory.add(str(tmp_path / "outside"), user_id="u")  # words, not a file: only the command line reads files
        (one,) = memory.get_all(user_id="../outside")["results"] or memory.get_all(user_id="u")["results"]
        assert one["memory"].endswith("outside")
        memory.add("x", user_id="../../etc", run_id="/root")


@pytest.mark.parametrize("name", [name for name in NAMES if name] + ["", ".", "..", "a/b", "a\0b", "x" * 65, "-x", "ä"])
def test_a_collections_name_is_a_plain_one(name, tmp_path):
    config = {
        "home": str(tmp_path / "home"),
        "vector_store": {"config": {"collection_name": name}},
        "extractor": {"provider": "none"},
    }
    with pytest.raises(ConfigError, match="collection_name"):
        Memory(settings=Settings.from_dict(config)).close()
    assert not list(tmp_path.glob("home/vectors/*"))


@pytest.mark.parametrize("path", ["a\0b", "", b"x", 5])
def test_a_path_that_is_none(path, tmp_path):
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
def test_a_folder_of_any_name_is_that_folder(monkeypatch):
    """Also where it is a part of a URL, a pattern or an option to somebody on the way to the file."""
    with folder() as place:
        monkeypatch.chdir(place)
        for name in ODD_FOLDERS:
            with Memory(f"./{name}", settings=Settings.from_dict(fake_models())) as memory:
                memory.add(f"Ann likes {name}.", user_id="u")
        for name in ODD_FOLDERS:
            with Memory(place / name, settings=Settings.from_dict(fake_models())) as memory:
                assert [one["memory"] for one in memory.get_all(user_id="u")["results"]] == [f"Ann likes {name}."]
        assert sorted(os.listdir(place)) == sorted(ODD_FOLDERS)
        assert {(place / name).stat().st_mode & 0o777 for name in ODD_FOLDERS} == {0o700}
        assert {(Path(place) / name / "ledger.sqlite").stat().st_mode & 0o777 for name in ODD_FOLDERS} == {0o600}
