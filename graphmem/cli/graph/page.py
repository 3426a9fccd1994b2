"""The graph as a page: one file with its data, its library and no way to the network.

What comes from memories is in one block of JSON that no text can end, and one escaped title. The Content Security
Policy lets these very scripts and styles run, by their hashes, and nothing be loaded or sent.
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

# So many nodes a browser lays out in some seconds and a person can still look through.
MAX_NODES = 2_000
LIBRARY, LICENCES = "vendor/force-graph.min.js", "vendor/LICENSES.txt"
# Style sheets that the library puts into the page, by hash: for its canvas, for a tooltip that is not used, and empty.
LIBRARY_STYLES = [
    "sha256-9xjtvxMT1ApHlgn9ohbh2FNfvK5Tqtzy94BjfXBeMSY=",
    "sha256-jtRRMYY2VbEXuBKbHvqM1/fPT8vazFrEooXdvwUK4y8=",
    "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
]
# Inside an element of a page these begin markup; JSON has another way to write them.
_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_GROUPS = [*EntityType, *Kind]


def page(drawn: nx.MultiDiGraph[str]) -> str:
    """The page's text. A larger graph is cut to the newest memories and the best connected entities, and says so."""
    shown = limit_nodes(drawn, MAX_NODES)
    note = ""
    if len(shown) < len(drawn):
        note = (
            f"{len(shown):,} of {len(drawn):,} nodes are shown: the newest memories, and the entities that most of "
            "them mention. --around NAME shows a part as a whole."
        )
        typer.echo(f"graphmem: {note}", err=True)
    script, style, library = _file("page.js"), _file("page.css"), f"/*\n{_file(LICENCES)}*/\n{_file(LIBRARY)}"
    title = drawn.graph["partition"].partition(":")[2]
    return Template(_file("page.html")).substitute(
        policy=_policy([library, script], style),
        title=escape(title),
        style=style,
        library=library,
        script=script,
        data=_json(_data(shown, drawn, title, note)),
    )


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _policy(scripts: list[str], style: str) -> str:
    rules = {"script-src": list(map(_hash, scripts)), "style-src": [_hash(style), *LIBRARY_STYLES]}
    allowed = [f"{kind} " + " ".join(f"'{value}'" for value in values) for kind, values in rules.items()]
    return "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _json(value: object) -> str:
    """ASCII only: no line separator ends a line, and half a surrogate pair is no error."""
    return json.dumps(value, separators=(",", ":")).translate(_MARKUP)


# --- what is shown --------------------------------------------------------------------------------------------------


def limit_nodes(drawn: nx.MultiDiGraph[str], most: int) -> nx.MultiDiGraph[str]:
    """At most so many nodes, half of them memories if there are as many: the newest, and what most of them mention."""
    if len(drawn) <= most:
        return drawn
    memories = [node for node, data in drawn.nodes(data=True) if data["node"] == "memory"]
    memories.sort(key=lambda node: (drawn.nodes[node]["at"], node), reverse=True)
    kept = memories[: max(most // 2, most - (len(drawn) - len(memories)))]
    mentioned = Counter(target for _, target, key in drawn.out_edges(kept, keys=True) if key == "MENTIONS")
    entities = sorted(set(drawn) - set(memories), key=lambda node: (-mentioned[node], node))
    return drawn.subgraph([*kept, *entities[: most - len(kept)]])


def _data(shown: nx.MultiDiGraph[str], drawn: nx.MultiDiGraph[str], title: str, note: str) -> dict[str, Any]:
    mentions = Counter(target for _, target, key in drawn.edges(keys=True) if key == "MENTIONS")
    nodes = [_node(node, data, mentions[node]) for node, data in sorted_nodes(shown)]
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
            for source, target, _, data in sorted_edges(shown)
        ],
    }


def _node(node: str, data: Mapping[str, Any], mentions: int) -> dict[str, Any]:
    if data["node"] == "entity":
        return {"id": node, "node": "entity", "group": data["type"], "name": data["name"], "mentions": mentions}
    said = {"text": data["memory"], "speaker": data["speaker"], "at": data["at"]}
    return {"id": node, "node": "memory", "group": data["kind"], **said}
