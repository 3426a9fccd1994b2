"""`graphmem graph --format …`: a neighbourhood as a page, as GraphML, as node-link data, as Cypher."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import networkx as nx
import pytest
from support.chromium import find_chromium, open_page
from support.waiting import TIMEOUT, wait_until
from typer.testing import CliRunner

import graphmem.cli.graph as commands
from graphmem import Memory
from graphmem.cli.app import app
from graphmem.cli.demo import USER, messages
from graphmem.cli.graph import formats
from graphmem.cli.graph.formats import LIBRARY, VENDOR, cypher, graphml, node_link

LIBRARY_ENTRY = json.loads((VENDOR / "manifest.json").read_text("utf-8"))[LIBRARY]
HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'`&amp;<!-- ]]> ${x} $data "
    "\u2028\u2029 \\ \\u0027 \\\\u0027}) DETACH DELETE n // \x00\x1b[31m\x85\ud800 \r\nтекст 北京 🐈 __proto__"
)
runner = CliRunner()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The demo's conversation, with an alias."""
    folder = tmp_path_factory.mktemp("graph") / "home"
    with Memory(folder) as memory:
        memory.add(list(messages()), user_id=USER)
        memory.alias("Bela Moravec", "Hannah Osei", user_id=USER)
    return folder


@pytest.fixture
def demo_graph(home):
    with Memory(home) as memory:
        return memory.graph(user_id=USER)


@pytest.fixture
def hostile_graph(demo_graph):
    """The demo's graph with text that imitates markup and code in every text field."""
    for _, data in demo_graph.nodes(data=True):
        data["name" if data["node"] == "entity" else "memory"] = HOSTILE
        if data["node"] == "memory":
            data["speaker"] = data["user_id"] = HOSTILE
    for *_, data in demo_graph.edges(data=True):
        if data["relationship"] == "RELATES_TO":
            data |= {"predicate": HOSTILE, "facts": [HOSTILE]}
    demo_graph.graph["partition"] = f"user:{HOSTILE}"
    return nx.relabel_nodes(demo_graph, {"entity:ravi": f"entity:{HOSTILE}"})


def run(home, *arguments, status=0):
    result = runner.invoke(app, ["graph", "--user", USER, "--home", str(home), *arguments])
    assert result.exit_code == status, (result.exit_code, result.stdout, result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    return result


# --- formats and options -------------------------------------------------------------------------------------------


def test_without_a_format_the_graph_is_printed_for_people(home):
    output = run(home).stdout
    assert output.startswith("27 memories, ")
    assert "Greta Lindholm  Person, 2" in output


def test_option_json_equals_format_json(home):
    output = run(home, "--json").stdout
    assert output == run(home, "--format", "json").stdout == run(home, "--format", " JSON", "--json").stdout
    graph = nx.node_link_graph(json.loads(output), edges="edges")
    assert graph.nodes["entity:greta lindholm"]["type"] == "Person"
    assert graph.graph["partition"] == "user:demo"


def test_formats_are_equal_on_standard_output_and_in_a_file(home, tmp_path):
    for form in commands.OutputFormat:
        file = tmp_path / f"graph.{form}"
        stdout_result = run(home, "--format", form, "--around", "greta lindholm")
        file_result = run(home, "--output", str(file), "--around", "Greta Lindholm")
        assert file.read_bytes() == stdout_result.stdout_bytes, form
        assert (file_result.stdout, stdout_result.stderr) == ("", "")
        assert file_result.stderr == f"graphmem: written to {file}\n"


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        (["--format", "grapml"], "'grapml' is not one of html, graphml, json, cypher. Did you mean graphml?"),
        (["--format", "pdf"], "'pdf' is not one of"),
        (["--output", "graph.pdf"], "'graph.pdf' does not tell the format; add --format."),
        (["--output", "graph.htm"], "Did you mean html?"),
        (["--json", "--format", "html"], "contradict"),
        (["--json", "--output", "graph.html", "--format", "html"], "contradict"),
    ],
)
def test_unknown_formats_are_usage_errors(home, tmp_path, monkeypatch, arguments, error_text):
    monkeypatch.chdir(tmp_path)
    result = run(home, *arguments, status=2)
    assert error_text in result.stderr
    assert result.stdout == ""
    assert not list(tmp_path.iterdir())


def test_an_html_page_is_not_printed_to_a_terminal(home, monkeypatch):
    with monkeypatch.context() as terminal:
        terminal.setattr(commands, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
        assert "name a file with --output" in run(home, "--format", "html", status=2).stderr
    assert run(home, "--format", "json").stdout.startswith("{")


def test_an_unknown_name_is_an_error_with_suggestions(home, tmp_path):
    for more in ([], ["--output", str(tmp_path / "graph.html")], ["--json"]):
        result = run(home, "--around", "Gretta Lindhom", *more, status=1)
        assert result.stderr.startswith("graphmem: no memory there mentions 'Gretta Lindhom'")
        assert "the nearest: 'Greta Lindholm'" in result.stderr
        assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert not list(tmp_path.iterdir())
    assert "'graphmem graph' shows all" in run(home, "--around", "Zyxwvut", status=1).stderr


def test_hops_and_scope_limit_the_output(home):
    near = json.loads(run(home, "--around", "Greta Lindholm", "--hops", "1", "--json").stdout)
    assert {node["id"] for node in near["nodes"] if node["node"] == "entity"} <= {
        "entity:greta lindholm",
        "entity:rent",
        "entity:board",
    }
    assert all("Greta" in node["memory"] for node in near["nodes"] if node["node"] == "memory")
    other = runner.invoke(app, ["graph", "--user", "somebody", "--home", str(home), "--json"])
    assert (other.exit_code, json.loads(other.stdout)["nodes"]) == (0, [])
    assert "nothing is remembered there" in other.stderr


# --- output files --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="file modes")
def test_output_is_private_and_written_atomically(home, tmp_path, monkeypatch):
    file, link = tmp_path / "graph.json", tmp_path / "link.json"
    file.write_text("old")
    file.chmod(0o644)
    link.symlink_to(file)
    old_umask = os.umask(0)
    try:
        assert "is a link" in run(home, "--output", str(link), status=1).stderr
        assert (file.read_text(), link.is_symlink()) == ("old", True)
        run(home, "--output", str(file))
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["nodes"]

    def fail_replace(self, target):
        raise OSError(28, "No space left on device")

    old_content = file.read_bytes()
    monkeypatch.setattr(Path, "replace", fail_replace)
    assert "No space left on device" in run(home, "--output", str(file), status=1).stderr
    assert file.read_bytes() == old_content
    assert {one.name for one in tmp_path.iterdir()} == {"graph.json", "link.json"}


@pytest.mark.skipif(os.name == "nt", reason="named pipes")
def test_output_to_pipes_and_folders_is_refused(home, tmp_path):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert "is no file" in run(home, "--output", str(pipe), status=1).stderr
    assert "is no file" in run(home, "--format", "json", "--output", str(tmp_path), status=1).stderr
    result = run(home, "--output", str(tmp_path / "nowhere" / "graph.json"), status=1)
    assert "cannot be written" in result.stderr
    assert result.stderr.count("\n") == 1
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["ledger.sqlite", "secret.key", "graph.json", "vectors/graph.json"])
def test_output_into_the_memory_folder_is_refused(home, name):
    ledger = (home / "ledger.sqlite").read_bytes()
    result = run(home, "--format", "json", "--output", str(home / name), status=1)
    assert "where the memories themselves are kept" in result.stderr
    assert (home / "ledger.sqlite").read_bytes() == ledger
    assert not list(home.rglob("graph.json"))


@pytest.mark.thorough
def test_a_reader_that_closes_the_pipe_is_no_error(home):
    command = [sys.executable, "-m", "graphmem", "graph", "--user", USER, "--home", str(home), "--format", "html"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=TIMEOUT)
    assert errors == ""


@pytest.mark.parametrize("form", [graphml, node_link, cypher])
def test_formats_contain_no_control_characters(form, hostile_graph):
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", form(hostile_graph))


def test_the_same_memories_give_the_same_bytes(home, demo_graph):
    shuffled_graph = nx.MultiDiGraph(**demo_graph.graph)
    shuffled_graph.add_nodes_from(reversed(list(demo_graph.nodes(data=True))))
    for source, target, key, data in reversed(list(demo_graph.edges(keys=True, data=True))):
        shuffled_graph.add_edge(source, target, key=key, **data)
    for form in (node_link, graphml, cypher, formats.page):
        assert form(demo_graph) == form(shuffled_graph), form


# --- other programs ------------------------------------------------------------------------------------------------


def test_graphml_round_trips(demo_graph):
    parsed_graph = nx.read_graphml(io.BytesIO(graphml(demo_graph).encode()), force_multigraph=True, edge_key_type=str)
    assert set(parsed_graph) == set(demo_graph)
    assert Counter(parsed_graph.edges()) == Counter(demo_graph.edges())
    for node, data in demo_graph.nodes(data=True):
        attributes = {name: value for name, value in data.items() if value is not None}
        assert {name: parsed_graph.nodes[node][name] for name in attributes} == attributes
    assert parsed_graph.nodes["entity:greta lindholm"]["label"] == "Greta Lindholm"
    relations = {key: data for *_, key, data in demo_graph.edges(keys=True, data=True) if "predicate" in data}
    assert relations
    for *_, key, data in parsed_graph.edges(keys=True, data=True):
        if data["relationship"] == "RELATES_TO":
            assert data["label"] == data["predicate"] == relations[key]["predicate"]
            assert json.loads(data["facts"]) == relations[key]["facts"]
    keys = (
        re.findall(r'<key id="(\w+)"', graphml(demo_graph)),
        re.findall(r'<edge [^>]*id="([^"]+)"', graphml(demo_graph)),
    )
    for ids in keys:
        assert len(set(ids)) == len(ids) > 5


def test_hostile_text_survives_export_unchanged(hostile_graph):
    node_link_data = json.loads(node_link(hostile_graph))
    assert {node["memory"] for node in node_link_data["nodes"] if node["node"] == "memory"} == {HOSTILE}
    assert not re.search("[\x7f-\x9f\ud800-\udfff]", node_link(hostile_graph))
    parsed_graph = nx.read_graphml(io.BytesIO(graphml(hostile_graph).encode()), force_multigraph=True)
    xml = HOSTILE.replace("\r\n", "\n").replace("\x00", "\ufffd").replace("\x1b", "\ufffd").replace("\ud800", "\ufffd")
    assert {data["memory"] for _, data in parsed_graph.nodes(data=True) if data["node"] == "memory"} == {xml}
    assert f"entity:{xml}" in parsed_graph


# --- the page ------------------------------------------------------------------------------------------------------


def split_page(text):
    """The page's data, its executable scripts and its style."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return (
        data,
        re.findall(r"<script>(.*?)</script>", text, re.DOTALL),
        re.findall(r"<style>(.*?)</style>", text, re.DOTALL),
    )


def hash_source(text):
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_page_holds_the_graph(demo_graph):
    text = formats.page(demo_graph)
    data = json.loads(split_page(text)[0])
    assert "<title>demo</title>" in text
    assert {node["id"]: node.get("name") for node in data["nodes"]} == dict(demo_graph.nodes(data="name"))
    greta = next(node for node in data["nodes"] if node["id"] == "entity:greta lindholm")
    assert greta == {
        "id": greta["id"],
        "node": "entity",
        "key": "greta lindholm",
        "name": "Greta Lindholm",
        "type": "Person",
    }
    assert data["total"] == sum(node["node"] == "memory" for node in data["nodes"]) == 27
    edges = {(edge["source"], edge["target"], edge["key"]): edge["relationship"] for edge in data["edges"]}
    assert edges == {edge[:3]: edge[3] for edge in demo_graph.edges(keys=True, data="relationship")}
    assert set(edges.values()) == {"MENTIONS", "NEXT", "RELATES_TO", "SAME_AS"}
    assert all(bool(edge["predicate"]) == (edge["relationship"] == "RELATES_TO") for edge in data["edges"])


def test_the_page_is_the_view_of_the_service_in_one_script(demo_graph):
    _, (library, script), (style,) = split_page(formats.page(demo_graph))
    assert not re.search(r"^(import|export)\b|\bimport\(", script, re.MULTILINE)
    joined = re.findall(r"^modules\['([^']+)'\] = ", script, re.MULTILINE)
    assert {"graph.js", "graph_canvas.js", "graph_data.js", "graph_panel.js", "words/graph.js", "api.js"} <= set(joined)
    assert joined[-1] == "page.js"
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|sendBeacon)\b", script)
    assert style == (formats.UI / "style.css").read_text("utf-8")
    assert library.endswith((VENDOR / LIBRARY).read_text("utf-8"))
    assert "Permission is hereby granted" in library and "Apache License" in script and "Jason Miller" in script


def test_hostile_text_does_not_break_out_of_the_page(hostile_graph, demo_graph):
    text = formats.page(hostile_graph)
    data, scripts, styles = split_page(text)
    assert data.isascii()
    assert not set("<>&\n") & set(data)
    shown = HOSTILE.replace("\ud800", "\ufffd")  # half of a pair, which no address holds
    assert {node["memory"] for node in json.loads(data)["nodes"] if node["node"] == "memory"} == {shown}
    harmless = split_page(formats.page(demo_graph))
    assert (scripts, styles) == harmless[1:]
    assert len(scripts) == 2
    (title,) = re.findall("<title>(.*?)</title>", text, re.DOTALL)
    assert not set("<>\"'") & set(title)
    assert "alert(1)" not in text.replace(title, "").replace(data, "")


def test_the_policy_allows_these_scripts_and_no_network(demo_graph):
    text = formats.page(demo_graph)
    _, scripts, (style,) = split_page(text)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    rules = {name: values for name, *values in (rule.split() for rule in policy.split("; "))}
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert rules["script-src"] == [f"'{hash_source(script)}'" for script in scripts]
    assert rules["style-src"] == [f"'{one}'" for one in [hash_source(style), *LIBRARY_ENTRY["styles"]]]
    assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    assert text.index("Content-Security-Policy") < text.index("<title>")
    document = text.replace(scripts[0], "").replace(scripts[1], "")
    own = "".join(path.read_text("utf-8") for path in Path(formats.__file__).parent.glob("*.js"))
    assert not re.search(r"https?:|//[a-z]|\bsrc=|<link|@import|url\(", document + own)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval", own)


def test_the_manifest_names_the_version_and_the_styles_of_the_library():
    library = (VENDOR / LIBRARY).read_bytes()
    assert library.startswith(f"// Version {LIBRARY_ENTRY['version']} force-graph".encode())
    assert len(library) < 500_000
    css = re.findall(r'createTextNode\(t\)\)\}\}\("([^"]*)"', library.decode())
    assert {hash_source(json.loads(f'"{one}"')) for one in [*css, ""]} == set(LIBRARY_ENTRY["styles"])
    assert (VENDOR / LIBRARY_ENTRY["licences"]).read_text("utf-8").count("Permission") > 5


def test_a_page_of_many_memories_has_the_newest_and_says_of_how_many(home, monkeypatch):
    monkeypatch.setattr(formats, "MAX_MEMORIES", 5)
    result = run(home, "--format", "html")
    assert result.stderr == "graphmem: only the newest 5 of 27 memories were read\n"
    data = json.loads(split_page(result.stdout)[0])
    assert (data["total"], sum(node["node"] == "memory" for node in data["nodes"])) == (27, 5)
    around = run(home, "--format", "html", "--around", "Greta Lindholm", "--hops", "1")
    assert (json.loads(split_page(around.stdout)[0])["total"], around.stderr) == (2, "")


# --- Cypher --------------------------------------------------------------------------------------------------------


def split_statements(text):
    lines = [line for line in text.split("\n") if not line.startswith("//")]
    return [one for one in "\n".join(lines).split(";\n") if one.strip()]


def test_cypher_takes_labels_and_names_from_closed_lists_only(hostile_graph):
    text = cypher(hostile_graph)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", text)
    without = re.sub(r"'(?:[^'\\]|\\.)*'", "''", text)
    assert "alert" not in without
    assert "DETACH" not in "\n".join(split_statements(without))
    labels = set(re.findall(r"(?<=\w):([A-Z]\w+)", without))
    types = {"Person", "Organization", "Place", "Event", "Concept", "Other"}
    assert labels == {"Memory", "Entity", "MENTIONS", "NEXT", "RELATES_TO", "SAME_AS", *types}
    assert not re.search(r"\\\\u", text), "some versions would read this as one letter"


@pytest.fixture
def database():
    neo4j = pytest.importorskip("neo4j")
    uri = os.environ.get("NEO4J_URI")
    if uri is None:
        pytest.skip("NEO4J_URI names no server")
    login = os.environ.get("NEO4J_USERNAME", "neo4j"), os.environ.get("NEO4J_PASSWORD", "")
    with neo4j.GraphDatabase.driver(uri, auth=login) as driver:
        yield lambda query, **values: driver.execute_query(query, values).records


@pytest.mark.server
@pytest.mark.parametrize("words", ["harmless", "hostile"])
def test_cypher_rebuilds_the_graph_in_neo4j(database, request, words):
    graph = request.getfixturevalue("demo_graph" if words == "harmless" else "hostile_graph")
    export = f"{graph.graph['ledger']}/{graph.graph['partition']}".replace("\ud800", "\ufffd")
    indexes = "SHOW INDEXES YIELD name WHERE name STARTS WITH 'graphmem_export_' RETURN collect(name) AS names"
    before = database(indexes)[0]["names"]
    try:
        for statement in split_statements(cypher(graph)) * 2:  # the second time changes nothing
            database(statement)
        nodes = database("MATCH (n {export: $export}) RETURN n, labels(n) AS labels", export=export)
        memories = {row["n"]["id"]: row["n"] for row in nodes if "Memory" in row["labels"]}
        entities = {row["n"]["key"]: row for row in nodes if "Entity" in row["labels"]}
        assert len(nodes) == len(graph) == len(memories) + len(entities)
        for node, data in graph.nodes(data=True):
            if data["node"] == "memory":
                assert memories[node]["text"] == data["memory"].replace("\ud800", "\ufffd")
                assert memories[node]["at"].iso_format()[:16] == data["at"][:16]
        assert all(row["n"]["type"] in row["labels"] for row in entities.values())
        query = "MATCH ({export: $export})-[r]->({export: $export}) RETURN type(r) AS type, r, r.predicate AS predicate"
        edges = database(query, export=export)
        assert Counter(row["type"] for row in edges) == Counter(d["relationship"] for *_, d in graph.edges(data=True))
        predicates = [row["predicate"] for row in edges if row["type"] == "RELATES_TO"]
        expected = [d["predicate"] for *_, d in graph.edges(data=True) if "predicate" in d]
        assert Counter(predicates) == Counter(one.replace("\ud800", "\ufffd") for one in expected)
    finally:
        database("MATCH (n {export: $export}) DETACH DELETE n", export=export)
        for name in set(database(indexes)[0]["names"]) - set(before):
            database(f"DROP INDEX {name} IF EXISTS")


# --- a real browser ------------------------------------------------------------------------------------------------


@pytest.fixture
def open_file():
    """Opens a page in a browser. Checks at the end that it requested nothing from the network and logged no error."""
    if not (chromium := find_chromium()):
        pytest.skip("no Chromium is installed")
    pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
    with open_page(chromium, 1200, 800) as tab:
        errors, requests = [], []
        tab.on("console", lambda message: errors.extend([message.text] if message.type == "error" else []))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("dialog", lambda dialog: (errors.append(dialog.message), dialog.dismiss()))
        tab.on("request", lambda request: requests.append(request.url))

        def open_path(path):
            tab.goto(path.as_uri())
            tab.wait_for_timeout(700)
            return tab

        yield open_path
        assert errors == []
        assert [url for url in requests if not url.startswith("file:")] == []
        assert len(requests) == 1


# The number of pixels of the graph's canvas that are drawn on, read from a copy, as reading makes a canvas slow.
PIXELS = """() => {
    const canvas = document.querySelector(".net canvas");
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((value, place) => place % 4 === 3 && value).length;
}"""


def count_pixels(tab):
    return tab.evaluate(PIXELS)


@pytest.mark.server
def test_in_a_browser_the_graph_is_shown(home, tmp_path, open_file):
    file = tmp_path / "graph.html"
    run(home, "--output", str(file))
    tab = open_file(file)
    panel = tab.locator("aside.panel")
    wait_until(lambda: count_pixels(tab) > 5_000)
    assert (tab.title(), tab.inner_text("h1")) == ("demo · graphmem", "demo")
    tab.keyboard.press("/")
    tab.keyboard.type("greta lindholm")
    tab.keyboard.press("Enter")
    panel.get_by_text("Named in 2 memories").wait_for()
    panel.get_by_role("link", name="Imagine, Greta Lindholm sits on the board of Kestrel Ferries.").click()
    panel.get_by_role("link", name="Organization Kestrel Ferries").click()
    panel.get_by_role("heading", name="Kestrel Ferries").wait_for()
    assert panel.get_by_role("button", name="Rename").count() == 0
    tab.keyboard.press("Escape")
    panel.get_by_role("heading", name="Greta Lindholm").wait_for()
    tab.keyboard.press("Escape")
    panel.get_by_role("heading", name="In this graph").wait_for()
    tab.fill("input[type=search]", "LENTILS, HE says")
    tab.press("input[type=search]", "Enter")
    panel.get_by_text("One spoonful of lentils").wait_for()
    assert "Greta" not in panel.inner_text()
    tab.get_by_role("button", name="中文").click()
    panel.get_by_role("heading", name="此图谱中").wait_for()
    for button in tab.query_selector_all(".legend button"):
        button.click()
    wait_until(lambda: count_pixels(tab) == 0)


@pytest.mark.server
def test_in_a_browser_two_names_of_one_entity_are_one_node(home, tmp_path, open_file):
    file = tmp_path / "graph.html"
    run(home, "--output", str(file))
    tab = open_file(file)
    tab.locator("aside.panel").get_by_role("link", name="Person Bela Moravec").click()
    also = tab.locator("aside.panel section", has=tab.get_by_role("heading", name="Also called"))
    also.get_by_role("link", name="Person Hannah Osei").wait_for()
    assert tab.locator("aside.panel").get_by_text("Marlow Clinic insist on Hannah Osei").count() == 1


@pytest.mark.server
def test_in_a_browser_a_click_selects_a_node_and_dark_mode_is_dark(home, tmp_path, open_file):
    file = tmp_path / "graph.html"
    run(home, "--around", "Greta Lindholm", "--hops", "0", "--output", str(file))
    tab = open_file(file)
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    tab.locator("aside.panel").get_by_role("heading", name="Greta Lindholm").wait_for()
    background = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(background)
    tab.emulate_media(color_scheme="dark")
    assert tab.evaluate(background) != light


@pytest.mark.server
def test_in_a_browser_hostile_text_is_shown_as_text(hostile_graph, tmp_path, open_file):
    file = tmp_path / "graph.html"
    file.write_text(formats.page(hostile_graph), "utf-8", errors="replace")
    tab = open_file(file)
    assert "</script><script>alert(1)</script>" in tab.inner_text("aside.panel")
    tab.locator("aside.panel .chip").first.click()
    tab.locator("aside.panel h2.named", has_text="<img src=x").wait_for()
    tab.locator("aside.panel .quote a").first.click()
    tab.locator("aside.panel p.named", has_text="<img src=x").wait_for()
    tab.evaluate("hash => { location.hash = hash; }", f"#graph?around={quote(HOSTILE, errors='replace')}")
    box = tab.locator(".net").bounding_box()
    for step in range(12):
        tab.mouse.move(box["x"] + box["width"] * step / 12, box["y"] + box["height"] / 2)
    assert tab.query_selector_all("img, iframe, #page script") == []


@pytest.mark.server
def test_in_a_browser_two_thousand_nodes_are_drawn_while_they_find_their_places(tmp_path, open_file):
    large_graph = nx.MultiDiGraph(ledger="l", partition="user:much")
    said = {"memory": "words", "kind": "episode", "actor_id": None, "role": "user", "valid_to": None, "user_id": "much"}
    for i in range(1_000):
        at = f"20{i // 50:02}-01-01T00:00:00+00:00"
        large_graph.add_node(f"m{i}", node="memory", at=at, **said)
        large_graph.add_node(f"entity:{i}", node="entity", key=str(i), name=f"Name {i}", type="Place")
        for other in {i, i // 2, i // 7}:
            large_graph.add_edge(f"m{i}", f"entity:{other}", key="MENTIONS", relationship="MENTIONS")
    file = tmp_path / "graph.html"
    file.write_text(formats.page(large_graph), "utf-8")
    tab = open_file(file)
    tab.get_by_text("The newest 300 memories of 1,000 are drawn.").wait_for()
    tab.wait_for_function("() => !document.querySelector('.net').ariaBusy")
    # Pictures of all of them, seen before the layout is complete.
    tab.evaluate(
        f"""() => {{
            window.seen = [];
            const look = () => {{
                const {{ ariaLabel, ariaBusy }} = document.querySelector(".net");
                if (ariaBusy && ariaLabel.startsWith("1,000 names and 1,000")) window.seen.push(({PIXELS})());
                requestAnimationFrame(look);
            }};
            look();
        }}"""
    )
    tab.get_by_role("button", name="Draw all").click()
    tab.wait_for_function("() => window.seen.length && !document.querySelector('.net').ariaBusy")
    seen = tab.evaluate("window.seen")
    assert len([pixels for pixels in seen if pixels > 1_000]) > 20
    assert count_pixels(tab) > 1_000
