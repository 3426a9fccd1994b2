"""Converts the graph to an HTML page: the view of the graph of the page at `/ui/`, alone, in a file without a network.

The modules of the view are joined into one script. Texts of memories occur in one block of JSON, which no text can end,
and in the escaped title. The Content Security Policy allows the page's own scripts and styles, by their hashes, and
forbids to load or send anything else.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from graphmem.cli.graph.formats import sorted_edges, sorted_nodes

if TYPE_CHECKING:
    import networkx as nx

# As many memories as the page at /ui/ reads of a graph. It draws the newest, or what is around a name, of them.
MAX_MEMORIES = 10_000
UI = files("graphmem.service") / "ui"
# Modules of the file; all others are those of the page. The view asks the first for its data.
OWN_MODULES = {"api.js": "answers.js", "page.js": "page.js"}
LIBRARY = "force-graph.min.js"
VENDOR = UI / "vendor"
# Attributes that the view shows.
_SHOWN = {
    "memory": "node memory kind actor_id role at valid_to user_id".split(),
    "entity": "node key name type".split(),
}
# Characters that begin or end markup in HTML, with their JSON escapes; half a surrogate pair, which no address holds.
_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
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
