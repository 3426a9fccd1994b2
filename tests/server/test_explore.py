"""Every file that people run in Neo4j Browser answers what its first line asks, in both versions."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from neo4j import Driver, Record
from neo4j.graph import Node, Path, Relationship
from support.exploring import EXPLORE, FILES, continue_conversation, demo_memory, find_memory, parameters, partition
from support.neo4j_servers import VARIABLES, Server

from graphmem import Memory

pytestmark = pytest.mark.server
NAMES = [path.stem for path in FILES]


@pytest.fixture(scope="module", params=VARIABLES)
def at(request: Any) -> Server:
    return Server.at(request.param)


@pytest.fixture(scope="module")
def demo(at: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with demo_memory(at, tmp_path_factory.mktemp("home")) as memory:
        yield memory


@pytest.fixture(scope="module")
def driver(at: Server) -> Iterator[Driver]:
    with at.driver() as driver:
        yield driver


@pytest.fixture(scope="module")
def answers_on_the_demo(driver: Driver, demo: Memory) -> dict[str, list[Record]]:
    """The rows of each file while nothing but the demo is stored."""
    explore = Explorer(driver, partition(demo))
    return {name: explore.rows(name) for name in NAMES}


@pytest.fixture(scope="module")
def memory(demo: Memory, answers_on_the_demo: dict[str, list[Record]]) -> Memory:
    assert answers_on_the_demo
    continue_conversation(demo)
    return demo


class Explorer:
    """Runs files about the demo's partition. Returns rows, or the captions of the drawing."""

    def __init__(self, driver: Driver, partition: str) -> None:
        self._driver, self._partition = driver, partition

    def rows(self, file: str, /, **values: Any) -> list[Record]:
        path = EXPLORE / f"{file}.cypher"
        params = {**parameters(path), "user": self._partition, **values}
        return self._driver.execute_query(path.read_text("utf-8"), params).records

    def column(self, file: str, column: str, /, **values: Any) -> list[Any]:
        return [row[column] for row in self.rows(file, **values)]

    def drawn(self, file: str, /, **values: Any) -> set[str]:
        """The captions: names, texts, and arrows as "from -type or predicate-> to"."""
        drawn_parts = [part for row in self.rows(file, **values) for value in row.values() for part in parts(value)]
        return {words for part in drawn_parts for words in captions(part)}

    def names(self, file: str, /, **values: Any) -> set[str]:
        """The drawn names only."""
        return {words for words in self.drawn(file, **values) if "->" not in words and not words.endswith((".", "was"))}


def parts(value: Any) -> Iterator[Any]:
    """The nodes and relationships in a column."""
    if isinstance(value, Path):
        yield from (*value.nodes, *value.relationships)
    elif isinstance(value, list):
        yield from value
    else:
        yield value


def captions(value: Any) -> Iterator[str]:
    if isinstance(value, Node):
        yield caption(value)
    elif isinstance(value, Relationship) and "name" in (value.start_node or {}):
        yield f"{caption(value.start_node)} -{value.get('predicate', value.type)}-> {caption(value.end_node)}"
    elif isinstance(value, Relationship):
        yield f"-{value.type}->"


def caption(node: Node | None) -> str:
    assert node is not None
    return str(node.get("name") or node.get("text"))


@pytest.fixture
def explore(driver: Driver, memory: Memory) -> Explorer:
    return Explorer(driver, partition(memory))


@pytest.mark.parametrize("name", NAMES)
def test_each_file_has_an_answer_on_the_demo_alone(
    demo: Memory, answers_on_the_demo: dict[str, list[Record]], name: str
) -> None:
    rows = answers_on_the_demo[name]
    assert rows
    if name == "agent":  # which asks about all partitions
        assert partition(demo) in {row["m"]["partition"] for row in rows}


@pytest.mark.parametrize("name", NAMES)
def test_each_file_names_its_question_and_answers_it_with_its_parameters(
    driver: Driver, memory: Memory, explore: Explorer, name: str
) -> None:
    path = EXPLORE / f"{name}.cypher"
    text = path.read_text("utf-8")
    comments = [line for line in text.splitlines() if line.startswith("//")]
    assert text.startswith("// ")
    assert comments[0].endswith(("?", ".")) and len(comments) > 1
    assert set(parameters(path)) == set(re.findall(r"\$(\w+)", text))
    assert re.search(r"\nLIMIT \d+\n\Z", text)
    assert driver.execute_query(text, parameters(path)).records
    rows = explore.rows(name)
    assert 1 <= len(rows) <= 100


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("memory")  # an empty database warns of labels that it has never seen
def test_no_file_writes_or_draws_warnings(driver: Driver, name: str) -> None:
    path = EXPLORE / f"{name}.cypher"
    summary = driver.execute_query("EXPLAIN " + path.read_text("utf-8"), parameters(path)).summary
    assert summary.query_type == "r"
    assert not [status for status in summary.gql_status_objects if status.is_notification]


def test_nobody_elses_memories_are_shown(explore: Explorer, memory: Memory) -> None:
    for name in set(NAMES) - {"partitions", "agent"}:
        assert not explore.rows(name, user="nobody-of-that-name"), name
        for row in explore.rows(name):
            for value in row.values():
                partitions = {node["partition"] for node in parts(value) if isinstance(node, Node)}
                assert partitions <= {partition(memory)}, name


@pytest.mark.parametrize("name", ["paulo", "REYES", "Paulo Reyes"])
def test_names_are_found_by_parts_in_any_case(explore: Explorer, name: str) -> None:
    assert {"Paulo Reyes", "Marlow Clinic"} <= explore.names("around", name=name)


def test_a_part_inside_a_word_is_no_name(explore: Explorer) -> None:
    assert not explore.rows("around", name="eyes")


# --- results of each file ---------------------------------------------------------------------------------------------


def test_partitions(explore: Explorer, memory: Memory) -> None:
    (ours,) = [row for row in explore.rows("partitions") if row["ledger"] == memory.engine.ledger.uuid]
    assert (ours["partition"], ours["memories"]) == ("user:demo", 35)
    assert ours["next"] == f":param user => '{partition(memory)}'"


def test_map(explore: Explorer) -> None:
    names = explore.names("map")
    assert {"Bela Moravec", "Ljubljana", "Kestrel Ferries", "Greta Lindholm", "Old Brewery", "Hannah Osei"} <= names
    assert not {"lentils", "rent", "dust", "Harbour Street"} & names


def test_who_knows_whom(explore: Explorer) -> None:
    drawn = explore.drawn("who_knows_whom")
    assert {"Ines", "Bela Moravec", "Hannah Osei", "Tomas -run into-> Samir Haddad"} <= drawn
    assert not {"Ljubljana", "Kestrel Ferries"} & drawn


def test_timeline(explore: Explorer) -> None:
    rows = explore.rows("timeline", name="bela")
    assert [str(row["date"]) for row in rows] == sorted(str(row["date"]) for row in rows)
    texts = {row["memory"]: row for row in rows}
    (cellar,) = [row for text, row in texts.items() if "Harbour Street" in text]
    assert str(cellar["until"]) == "2025-06-02"
    assert "Ljubljana" in cellar["replaced by"]
    assert [row["until"] for row in rows].count(None) == len(rows) - 1
    assert any("postcard" in text for text in texts)  # it calls him by the other name


def test_facts(explore: Explorer) -> None:
    drawn = explore.drawn("facts")
    assert {"Samir Haddad -will record-> evening", "Tomas -run into-> Samir Haddad"} <= drawn


def test_around(explore: Explorer) -> None:
    assert {"Marlow Clinic", "Paulo Reyes", "Hannah Osei", "Ines", "Tomas"} <= explore.names("around")


def test_connection(explore: Explorer) -> None:
    drawn = explore.drawn("connection")
    assert {"Paulo Reyes", "Marlow Clinic", "Hannah Osei"} <= drawn
    assert len([words for words in drawn if "Marlow Clinic" in words and words.endswith(".")]) == 2


def test_way_to_memory(explore: Explorer, memory: Memory) -> None:
    wanted = find_memory(memory, "insist on Hannah Osei")
    assert {"Paulo Reyes", "Marlow Clinic"} <= explore.drawn("way_to_memory", memory=wanted)
    assert explore.drawn("way_to_memory", memory=wanted) == explore.drawn("way_to_memory", memory="INSIST ON hannah")


def test_based_on(explore: Explorer) -> None:
    assert any(words.startswith("With all the dust") for words in explore.drawn("based_on", memory="insist on"))
    drawn = explore.drawn("based_on", memory="cannot make it")
    assert any("itches" in words for words in drawn)
    assert any("glued the crack" in words for words in drawn)
    assert any("Harbour Street" in words for words in explore.drawn("based_on", memory="gone to live"))


def test_recent(explore: Explorer) -> None:
    drawn = explore.drawn("recent", days=1)
    assert "I have booked Kestrel Ferries for Maya." in drawn
    assert not any("Hannah Osei lives" in words for words in drawn)


def test_changes(explore: Explorer) -> None:
    changes = {row["change"] for row in explore.rows("changes")}
    assert {(change.start_node["text"], change.end_node["text"]) for change in changes} == {
        (
            "Bela Moravec has packed his tools and gone to live in Ljubljana.",
            "A tip for all with broken strings: Bela Moravec sits in a cellar on Harbour Street.",
        ),
        (
            "From now on we rehearse on Thursdays.",
            "Next rehearsal is on Tuesday, seven o'clock, and bring pencils.",
        ),
    }


def test_contradictions(explore: Explorer) -> None:
    pairs = [{row["says"], row["says too"]} for row in explore.rows("contradictions")]
    assert {"Ravi likes jazz.", "Ravi does not like jazz."} == pairs[0]
    assert {"Hannah Osei lives in Bergen.", "Hannah Osei lives in Oslo."} in pairs
    assert not any("musicians" in words for pair in pairs for words in pair)  # carries musicians and instruments


def test_fading(explore: Explorer) -> None:
    rows = explore.rows("fading")
    assert {("Ravi", "will cook", "lentils")} <= {(row["subject"], row["predicate"], row["object"]) for row in rows}
    assert min(row["days ago"] for row in rows) >= 60
    assert not explore.rows("fading", days=1000)


def test_hubs(explore: Explorer) -> None:
    hubs = {row["name"]: row["hub"] for row in explore.rows("hubs")}
    assert (hubs["Tomas"], hubs["Marlow Clinic"]) == (True, False)


def test_orphans(explore: Explorer) -> None:
    texts = explore.column("orphans", "memory")
    assert "It snowed on my bicycle this morning." in texts
    assert not any("Marlow" in text or "Kestrel" in text for text in texts)


def test_one_meaning(explore: Explorer) -> None:
    assert {"Bela Moravec", "Mr Moravec"} <= {
        row[side] for row in explore.rows("one_meaning") for side in ("name", "other")
    }


def test_agent(explore: Explorer) -> None:
    drawn = explore.drawn("agent", agent="HELPER")
    assert {"I have booked Kestrel Ferries for Maya.", "Kestrel Ferries", "Maya"} <= drawn


def test_the_guide_shows_all_of_them_as_they_are() -> None:
    guide = html.unescape((EXPLORE / "guide.html").read_text("utf-8"))
    blocks = re.findall(r'<pre class="code runnable">(.*?)</pre>', guide, re.DOTALL)
    assert {block for block in blocks if not block.startswith(":")} == {
        strip_parameter_comments(path.read_text("utf-8")) for path in FILES
    }


def strip_parameter_comments(text: str) -> str:
    """A file as the guide has it: without the comments about parameters, which stand beside it there."""
    first, *lines = text.splitlines()
    return "\n".join([first, *(line for line in lines if not line.startswith("//"))])
