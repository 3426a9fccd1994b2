"""Converts the graph to networkx's node-link data, and to GraphML for Gephi, yEd and similar programs.

Nodes and edges are sorted, so that the same memories give the same bytes.
"""

from __future__ import annotations

import json
import re
from io import BytesIO
from typing import TYPE_CHECKING, Any

import networkx as nx
from networkx.readwrite.graphml import write_graphml_xml

from graphmem.escapes import json_text, xml_text

if TYPE_CHECKING:
    from collections.abc import Mapping

# Characters of a memory in its label.
LABEL_CHARS = 60
# Characters that XML 1.0 cannot represent, not even escaped.
_NO_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
