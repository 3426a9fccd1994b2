"""The graph for other programs: networkx's node-link data, and GraphML for Gephi, yEd and the like.

Both are sorted, so that the same memories give the same bytes.
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
    from collections.abc import Iterator, Mapping

LABEL_CHARS = 60
# What XML 1.0 has no way to write, not even escaped.
_NO_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def node_link(drawn: nx.MultiDiGraph[str]) -> str:
    """What `networkx.node_link_graph(…, edges="edges")` reads."""
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(**drawn.graph)
    graph.add_nodes_from(sorted_nodes(drawn))
    for source, target, key, data in sorted_edges(drawn):
        graph.add_edge(source, target, key=key, **data)
    return json_text(json.dumps(nx.node_link_data(graph, edges="edges"), ensure_ascii=False, indent=2)) + "\n"


def sorted_nodes(drawn: nx.MultiDiGraph[str]) -> list[tuple[str, dict[str, Any]]]:
    """Each node with its attributes."""
    return [(node, drawn.nodes[node]) for node in sorted(drawn)]


def sorted_edges(drawn: nx.MultiDiGraph[str]) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Source, target, key and attributes of each edge, in an order that depends on the edges alone."""
    return sorted(drawn.edges(keys=True, data=True), key=lambda edge: edge[:3])


def graphml(drawn: nx.MultiDiGraph[str]) -> str:
    """GraphML: every attribute a scalar, lists as JSON, None left out.

    Nodes and edges have a `label` to be shown by, edges an id of their own. Characters that XML cannot hold are
    replaced by U+FFFD.
    """
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(**_flat(drawn.graph))
    for node, data in sorted_nodes(drawn):
        graph.add_node(_xml(node), label=_xml(_label(data)), **_flat(data))
    for number, (source, target, key, data) in enumerate(sorted_edges(drawn)):
        related = data["relationship"] == "RELATES_TO"
        label = _xml(data["predicate"]) if related else data["relationship"]
        own = key if related else f"{data['relationship'].lower()}-{number}"
        graph.add_edge(_xml(source), _xml(target), key=own, label=label, **_flat(data))
    file = BytesIO()
    write_graphml_xml(graph, file)
    return xml_text(file.getvalue().decode())


def _label(node: Mapping[str, Any]) -> str:
    if node["node"] == "entity":
        return str(node["name"])
    words = " ".join(node["memory"].split())
    return words if len(words) <= LABEL_CHARS else f"{words[: LABEL_CHARS - 1]}…"


def _flat(data: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_scalars(data))


def _scalars(data: Mapping[str, Any]) -> Iterator[tuple[str, str | float | bool]]:
    for name, value in data.items():
        if isinstance(value, str):
            yield name, _xml(value)
        elif isinstance(value, list):
            yield name, _xml(json.dumps(value, ensure_ascii=False))
        elif value is not None:
            yield name, value


def _xml(text: str) -> str:
    """A text as XML can hold it: a reader makes one sort of line break of all, so that is done here."""
    return _NO_XML.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
