"""Converts the graph for other programs: node-link data, GraphML for Gephi and yEd, Cypher statements, an HTML page.

Nodes and edges are sorted, so that the same memories give the same bytes.

The statements rebuild the graph in any Neo4j database: a file to be run by hand. Labels, types and property names come
from closed lists (those of the Neo4j projection); texts of memories occur in string literals only. Every node has a
property `export`, by which statements find it: other nodes of the database are left alone, and running a file twice, or
the files of two neighbourhoods, updates or adds to the same nodes.

The page is the view of the graph of the page at `/ui/`, alone, in a file without a network. The modules of the view are
joined into one script. Texts of memories occur in one block of JSON, which no text can end, and in the escaped title.
The Content Security Policy allows the page's own scripts and styles, by their hashes, and forbids to load or send
anything else.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from io import BytesIO
from typing import Any

import networkx as nx
from networkx.readwrite.graphml import write_graphml_xml

from graphmem.escapes import json_text, xml_text
from graphmem.model import EntityType

# Characters of a memory in its label.
LABEL_CHARS = 60
# Characters that XML 1.0 cannot represent, not even escaped.
_NO_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
Row = Mapping[str, Any]
UI = files("graphmem.service") / "ui"
# Characters that begin or end markup in HTML, with their JSON escapes; half a surrogate pair, which no address holds.
_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def node_link(graph: nx.MultiDiGraph[str]) -> str:
    """Returns the graph as JSON that `networkx.node_link_graph(…, edges="edges")` reads."""
    sorted_graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(**graph.graph)
    sorted_graph.add_nodes_from(sorted_nodes(graph))
    for source, target, key, data in sorted_edges(graph):
        sorted_graph.add_edge(source, target, key=key, **data)
    return json_text(json.dumps(nx.node_link_data(sorted_graph, edges="edges"), ensure_ascii=False, indent=2)) + "\n"


def sorted_nodes(graph: nx.MultiDiGraph[str]) -> list[tuple[str, dict[str, Any]]]:
    """Returns each node with its attributes, sorted by name."""
    return [(node, graph.nodes[node]) for node in sorted(graph)]


def sorted_edges(graph: nx.MultiDiGraph[str]) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Returns (source, target, key, attributes) of each edge, sorted by the first three."""
    return sorted(graph.edges(keys=True, data=True), key=lambda edge: edge[:3])


def graphml(graph: nx.MultiDiGraph[str]) -> str:
    """Returns the graph as GraphML, with scalar attributes: lists become JSON, None is left out.

    Nodes and edges have a `label` for display, edges a unique id. Characters that XML cannot hold are
    replaced by U+FFFD.
    """
    flat_graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(**_flatten(graph.graph))
    for node, data in sorted_nodes(graph):
        flat_graph.add_node(_xml(node), label=_xml(_label(data)), **_flatten(data))
    for number, (source, target, key, data) in enumerate(sorted_edges(graph)):
        is_relation = data["relationship"] == "RELATES_TO"
        label = _xml(data["predicate"]) if is_relation else data["relationship"]
        edge_id = key if is_relation else f"{data['relationship'].lower()}-{number}"
        flat_graph.add_edge(_xml(source), _xml(target), key=edge_id, label=label, **_flatten(data))
    file = BytesIO()
    write_graphml_xml(flat_graph, file)
    return xml_text(file.getvalue().decode())


def _label(node: Mapping[str, Any]) -> str:
    if node["node"] == "entity":
        return str(node["name"])
    text = " ".join(node["memory"].split())
    return text if len(text) <= LABEL_CHARS else f"{text[: LABEL_CHARS - 1]}…"


def _flatten(data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attributes as scalars: lists become JSON, None is left out."""
    scalars: dict[str, str | float | bool] = {}
    for name, value in data.items():
        if isinstance(value, str):
            scalars[name] = _xml(value)
        elif isinstance(value, list):
            scalars[name] = _xml(json.dumps(value, ensure_ascii=False))
        elif value is not None:
            scalars[name] = value
    return scalars


def _xml(text: str) -> str:
    """Replaces characters that XML cannot hold by U+FFFD, and all line breaks by line feeds, as XML parsers do."""
    return _NO_XML.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


# Rows in one statement: one transaction for each row takes minutes, one for all rows takes much memory.
ROWS_PER_STATEMENT = 200
_MEMORY_PROPERTIES = "kind speaker at valid_from valid_to forgotten_at user_id agent_id run_id version".split()
_TIME_PROPERTIES = frozenset({"at", "valid_from", "valid_to", "forgotten_at", "valid_at", "invalid_at"})
# Patterns of source and target for each type of relationship; `$` stands for the export's id.
_ENDPOINT_PATTERNS = {
    "MENTIONS": ("(a:Memory {export: $, id: row.source})", "(b:Entity {export: $, key: row.target})"),
    "NEXT": ("(a:Memory {export: $, id: row.source})", "(b:Memory {export: $, id: row.target})"),
    "RELATES_TO": ("(a:Entity {export: $, key: row.source})", "(b:Entity {export: $, key: row.target})"),
    "SAME_AS": ("(a:Entity {export: $, key: row.source})", "(b:Entity {export: $, key: row.target})"),
}
_ESCAPES = {"\\u": "\\\\' + 'u", "\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TO_ESCAPE = re.compile("\\\\u|[\\\\'\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_HEADER = """\
// A part of a graphmem memory, for Neo4j 5 or later: cypher-shell < FILE
// To take it out again: MATCH (n {export: $}) DETACH DELETE n
CREATE INDEX graphmem_export_memory IF NOT EXISTS FOR (n:Memory) ON (n.export, n.id);
CREATE INDEX graphmem_export_entity IF NOT EXISTS FOR (n:Entity) ON (n.export, n.key);
CALL db.awaitIndexes();
"""


def cypher(graph: nx.MultiDiGraph[str]) -> str:
    """Returns all statements as one text; each ends with a semicolon at the end of a line."""
    export = f"{graph.graph['ledger']}/{graph.graph['partition']}"
    statements = [_HEADER.replace("$", _string(export))]
    for rows, pattern in [*_nodes(graph, export), *_edges(graph, export)]:
        clauses = pattern.replace("$", _string(export))
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            literals = ",\n  ".join(map(_literal, rows[start : start + ROWS_PER_STATEMENT]))
            statements.append(f"UNWIND [\n  {literals}\n] AS row\n{clauses};\n")
    return "".join(statements)


def _nodes(graph: nx.MultiDiGraph[str], export: str) -> Iterator[tuple[list[Row], str]]:
    """Yields rows of nodes with the Cypher clauses for each row; `$` stands for the export's id."""
    nodes = sorted_nodes(graph)
    memories: list[Row] = [
        {"id": node, "partition": export, "text": data["memory"], **{name: data[name] for name in _MEMORY_PROPERTIES}}
        for node, data in nodes
        if data["node"] == "memory"
    ]
    yield memories, "MERGE (n:Memory {export: $, id: row.id})\nSET n += row"
    for kind in EntityType:
        entities: list[Row] = [
            {"key": _key(node, export), "partition": export, "name": data["name"], "type": kind.value}
            for node, data in nodes
            if data["node"] == "entity" and data["type"] == kind.value
        ]
        yield entities, f"MERGE (n:Entity {{export: $, key: row.key}})\nSET n += row, n:{kind.value}"


def _key(node: str, export: str) -> str:
    """Returns a memory's id unchanged, an entity's canonical key with `export` and a slash before it."""
    return f"{export}/{node.removeprefix('entity:')}" if node.startswith("entity:") else node


def _edges(graph: nx.MultiDiGraph[str], export: str) -> Iterator[tuple[list[Row], str]]:
    """Yields rows of relationships, type by type, with the Cypher clauses for each row."""
    edges = sorted_edges(graph)
    for kind, (source, target) in _ENDPOINT_PATTERNS.items():
        rows: list[Row] = [
            {"source": _key(a, export), "target": _key(b, export), "properties": _properties(graph, a, b, key, data)}
            for a, b, key, data in edges
            if data["relationship"] == kind
        ]
        identity = " {id: row.properties.id}" if kind == "RELATES_TO" else ""
        yield rows, f"MATCH {source}\nMATCH {target}\nMERGE (a)-[r:{kind}{identity}]->(b)\nSET r += row.properties"


def _properties(graph: nx.MultiDiGraph[str], source: str, target: str, key: str, data: Row) -> Row:
    entities = {"source": source.removeprefix("entity:"), "target": target.removeprefix("entity:")}
    match data["relationship"]:
        case "MENTIONS":
            return {"ekey": entities["target"], "at": graph.nodes[source]["at"], "kind": data["kind"]}
        case "RELATES_TO":
            values = {name: data[name] for name in ("predicate", "memory_ids", "confidence", "valid_at", "invalid_at")}
            return {"id": key, **entities, "fact": "\n".join(data["facts"]), **values}
        case "SAME_AS":
            return {"origin": data["origin"]}
        case _:
            return {}


def _literal(value: object) -> str:
    """Returns a value as a Cypher literal. Keys of mappings come from closed lists; None values are left out."""
    if isinstance(value, Mapping):
        properties = [
            f"{name}: {f'datetime({_string(item)})' if name in _TIME_PROPERTIES else _literal(item)}"
            for name, item in value.items()
            if item is not None
        ]
        return "{" + ", ".join(properties) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return _string(value) if isinstance(value, str) else repr(value)


def _string(text: str) -> str:
    r"""Returns a string literal in one line, which no text can end.

    Some versions of Cypher decode \uXXXX before anything else, even after an escaped backslash, so a backslash and a u
    after it go into two literals. Half a surrogate pair, which no database stores, becomes U+FFFD.
    """
    return "'" + _TO_ESCAPE.sub(_escape, text) + "'"


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":
        return "\ufffd"
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


# As many memories as the page at /ui/ reads of a graph. It draws the newest, or what is around a name, of them.
MAX_MEMORIES = 10_000
# Modules of the file; all others are those of the page. The view asks the first for its data.
OWN_MODULES = {"api.js": "answers.js", "page.js": "page.js"}
LIBRARY = "force-graph.min.js"
VENDOR = UI / "vendor"
# Attributes that the view shows.
_SHOWN = {
    "memory": "node memory kind actor_id role at valid_to user_id".split(),
    "entity": "node key name type".split(),
}
_HALF_PAIR = re.compile("[\ud800-\udfff]")
# The forms of import and export that the modules have.
_IMPORT = re.compile(r'^import (?:(?P<names>\{[^}]*\}|\w+) from )?"\./(?P<path>[^"]+)";$', re.MULTILINE)
_LATE_IMPORT = re.compile(r'\bimport\("\./([^"]+)"\)')
_EXPORT = re.compile(r"^export (?P<form>(?:async )?function|const|class) (?P<name>\w+)", re.MULTILINE)
_EXPORT_LIST = re.compile(r"export\{([^}]*)\};$", re.MULTILINE)


def page(graph: nx.MultiDiGraph[str], total: int | None = None) -> str:
    """Returns the page's text: the document of the page at `/ui/`, with all that it loads put into it.

    `total` is the number of memories of which the graph has the newest; by default, all of them are in it.
    """
    document = (UI / "index.html").read_text("utf-8")
    style = (UI / "style.css").read_text("utf-8")
    library = _licences(LIBRARY) + (VENDOR / LIBRARY).read_text("utf-8")
    script = _licences("htm-preact.js") + _joined_modules("page.js")
    title = f"<title>{escape(_text(graph.graph['partition'].partition(':')[2]))}</title>"
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy([library, script], style)}">'
    head = f'{policy}\n<meta name="referrer" content="no-referrer">\n{title}\n<style>{style}</style>'
    data = f'<script type="application/json" id="data">{_json(_data(graph, total))}</script>'
    document = re.sub("^<(?:link|script).*\n|^<!-- .*\n", "", document, flags=re.MULTILINE)
    document = document.replace("<title>graphmem</title>", head)
    return document.replace("</body>", f"{data}\n<script>{library}</script>\n<script>{script}</script>\n</body>")


def _licences(file: str) -> str:
    """Returns the licences of a bundled library as a comment, which is in each copy of it."""
    return f"/*\n{(VENDOR / _manifest()[file]['licences']).read_text('utf-8')}*/\n"


def _manifest() -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((VENDOR / "manifest.json").read_text("utf-8"))
    return manifest


def _joined_modules(start: str) -> str:
    """Returns a module with those that it needs as one script, each as a function that returns what it exports."""
    joined: dict[str, str] = {f"vendor/{LIBRARY}": ""}

    def join(path: str) -> None:
        if path in joined:
            return
        own = OWN_MODULES.get(path)
        text = (files(__package__) / own if own else UI / path).read_text("utf-8")
        for needed in [*(one["path"] for one in _IMPORT.finditer(text)), *_LATE_IMPORT.findall(text)]:
            join(needed)
        joined[path] = f"modules[{path!r}] = (() => {{\n{_module_body(text)}\n}})();\n"

    join(start)
    return '"use strict";\nconst modules = {};\n' + "".join(joined.values())


def _module_body(text: str) -> str:
    """Returns a module as the body of a function: what it imports is in `modules`, what it exports is returned."""

    def imported(match: re.Match[str]) -> str:
        if not (names := match["names"]):
            return ""
        source = f"modules[{match['path']!r}]"
        return f"const {names.replace(' as ', ': ')} = {source}{'' if names.startswith('{') else '.default'};"

    exports = [f"{one['name']}" for one in _EXPORT.finditer(text)]
    for listed in _EXPORT_LIST.findall(text):
        exports += [f"{name}: {own}" for own, name in (one.split(" as ") for one in listed.split(","))]
    text = _EXPORT_LIST.sub("", _EXPORT.sub(r"\g<form> \g<name>", _IMPORT.sub(imported, text)))
    text = _LATE_IMPORT.sub(r'Promise.resolve(modules["\1"])', text)
    text = re.sub("^export default ", "return { default: ", text, flags=re.MULTILINE)
    return (
        re.sub(r"};\s*\Z", "} };", text)
        if "return { default: " in text
        else f"{text}\nreturn {{ {', '.join(exports)} }};"
    )


def _policy(scripts: list[str], style: str) -> str:
    rules = {"script-src": list(map(_hash, scripts)), "style-src": [_hash(style), *_manifest()[LIBRARY]["styles"]]}
    allowed = [f"{kind} " + " ".join(f"'{value}'" for value in values) for kind, values in rules.items()]
    return "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _data(graph: nx.MultiDiGraph[str], total: int | None) -> dict[str, Any]:
    nodes = [{"id": node} | {name: data[name] for name in _SHOWN[data["node"]]} for node, data in sorted_nodes(graph)]
    edges = [
        {"source": source, "target": target, "key": key}
        | {"relationship": data["relationship"], "predicate": data.get("predicate", "")}
        for source, target, key, data in sorted_edges(graph)
    ]
    memories = sum(node["node"] == "memory" for node in nodes)
    return {"total": memories if total is None else total, "nodes": nodes, "edges": edges}


def _json(value: object) -> str:
    """Returns JSON that no text in it can end or begin markup with."""
    return json.dumps(json.loads(_text(json.dumps(value, ensure_ascii=False))), separators=(",", ":")).translate(
        _MARKUP
    )


def _text(text: str) -> str:
    return _HALF_PAIR.sub("\ufffd", text)
