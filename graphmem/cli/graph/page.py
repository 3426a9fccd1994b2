"""Converts the graph to an HTML page: one file with data and library, which needs no network.

Texts of memories occur in one block of JSON, which no text can end, and in the escaped title. The Content Security
Policy allows the page's own scripts and styles, by their hashes, and forbids to load or send anything else.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import typer

from graphmem.cli.graph.formats import sorted_edges, sorted_nodes
from graphmem.model import EntityType, Kind

if TYPE_CHECKING:
    import networkx as nx

# A browser lays out so many nodes in some seconds, and a person can still survey them.
MAX_NODES = 2_000
# The page of the service draws with the same file of the library; its manifest has the hashes of the style sheets that
# the library puts into a page: for its canvas, for a tooltip that is not used, and empty.
LIBRARY = "force-graph.min.js"
VENDOR = files("graphmem.service") / "ui" / "vendor"
# Characters that begin or end markup in HTML, with their JSON escapes.
_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_GROUPS = [*EntityType, *Kind]


def page(graph: nx.MultiDiGraph[str]) -> str:
    """Returns the page's text. A graph over MAX_NODES is cut (see `limit_nodes`); page and standard error say so."""
    subgraph = limit_nodes(graph, MAX_NODES)
    note = ""
    if len(subgraph) < len(graph):
        note = (
            f"{len(subgraph):,} of {len(graph):,} nodes are shown: the newest memories, and the entities that most of "
            "them mention. --around NAME shows a part as a whole."
        )
        typer.echo(f"graphmem: {note}", err=True)
    script, style, library = _file("page.js"), _file("page.css"), _library()
    title = graph.graph["partition"].partition(":")[2]
    return Template(_file("page.html")).substitute(
        policy=_policy([library, script], style),
        title=escape(title),
        style=style,
        library=library,
        script=script,
        data=_json(_data(subgraph, graph, title, note)),
    )


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _library() -> str:
    """Returns the library's text, which begins with its licences."""
    licences = (VENDOR / _manifest_entry()["licences"]).read_text("utf-8")
    return f"/*\n{licences}*/\n{(VENDOR / LIBRARY).read_text('utf-8')}"


def _manifest_entry() -> dict[str, Any]:
    entry: dict[str, Any] = json.loads((VENDOR / "manifest.json").read_text("utf-8"))[LIBRARY]
    return entry


def _policy(scripts: list[str], style: str) -> str:
    rules = {"script-src": list(map(_hash, scripts)), "style-src": [_hash(style), *_manifest_entry()["styles"]]}
    allowed = [f"{kind} " + " ".join(f"'{value}'" for value in values) for kind, values in rules.items()]
    return "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _json(value: object) -> str:
    """Returns JSON in ASCII: no line separator can end a line, and half a surrogate pair raises no error."""
    return json.dumps(value, separators=(",", ":")).translate(_MARKUP)


# --- data of the page -----------------------------------------------------------------------------------------------


def limit_nodes(graph: nx.MultiDiGraph[str], max_nodes: int) -> nx.MultiDiGraph[str]:
    """Returns a subgraph of at most `max_nodes` nodes: the newest memories, and the entities that most of them mention.

    Half of the nodes are memories, unless the graph has fewer memories or entities than that.
    """
    if len(graph) <= max_nodes:
        return graph
    memories = [node for node, data in graph.nodes(data=True) if data["node"] == "memory"]
    memories.sort(key=lambda node: (graph.nodes[node]["at"], node), reverse=True)
    newest = memories[: max(max_nodes // 2, max_nodes - (len(graph) - len(memories)))]
    mentions = Counter(target for _, target, key in graph.out_edges(newest, keys=True) if key == "MENTIONS")
    entities = sorted(set(graph) - set(memories), key=lambda node: (-mentions[node], node))
    return graph.subgraph([*newest, *entities[: max_nodes - len(newest)]])


def _data(subgraph: nx.MultiDiGraph[str], graph: nx.MultiDiGraph[str], title: str, note: str) -> dict[str, Any]:
    mentions = Counter(target for _, target, key in graph.edges(keys=True) if key == "MENTIONS")
    nodes = [_node(node, data, mentions[node]) for node, data in sorted_nodes(subgraph)]
    counts = Counter(node["group"] for node in nodes)
    return {
        "title": title,
        "note": note,
        "groups": {
            group.value: {"entity": isinstance(group, EntityType), "count": counts[group]}
            for group in _GROUPS
            if counts[group]
        },
        "nodes": nodes,
        "links": [
            {"source": source, "target": target, "kind": data["relationship"], "caption": data.get("predicate", "")}
            for source, target, _, data in sorted_edges(subgraph)
        ],
    }


def _node(node: str, data: Mapping[str, Any], mentions: int) -> dict[str, Any]:
    if data["node"] == "entity":
        return {"id": node, "node": "entity", "group": data["type"], "name": data["name"], "mentions": mentions}
    content = {"text": data["memory"], "speaker": data["speaker"], "at": data["at"]}
    return {"id": node, "node": "memory", "group": data["kind"], **content}
