"""Parts of a memory's graph as results of the MCP tools. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from graphmem.service.mcp.results import shortened

if TYPE_CHECKING:
    import networkx as nx


def graph_around(graph: nx.MultiDiGraph[str], starts: Iterable[str], hops: int, limit: int) -> dict[str, Any]:
    """Returns the entities, relations and memories at most `hops` edges away from the starts, nearest first.

    `graph` is that of `Memory.graph`; `starts` are ids of memories or keys of entities, and those that it does not have
    are ignored. Each list has at most `limit` entries; `is_cut` says whether one had more.
    """
    known = [node for start in starts for node in (start, f"entity:{start}") if node in graph]
    return _parts(graph, _nearest(graph, known, hops), limit)


def whole_graph(graph: nx.MultiDiGraph[str], limit: int) -> dict[str, Any]:
    """Returns all of a graph as `graph_around` does."""
    return _parts(graph, list(graph), limit)


def entity_shape(entity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an entity, of the graph or of a result of `Memory`, as it is shown."""
    return {"name": shortened(entity["name"], 100), "type": entity["type"]}


def _nearest(graph: nx.MultiDiGraph[str], starts: list[str], hops: int) -> list[str]:
    """Returns the nodes within `hops` edges in either direction, by their distance."""
    undirected = graph.to_undirected(as_view=True)
    reached, border = dict.fromkeys(starts), starts
    for _ in range(hops):
        border = [node for start in border for node in undirected[start] if node not in reached]
        reached.update(dict.fromkeys(border))
    return list(reached)


def _parts(graph: nx.MultiDiGraph[str], nodes: list[str], limit: int) -> dict[str, Any]:
    data = {node: graph.nodes[node] for node in nodes}
    entities = {node: entity_shape(one) for node, one in data.items() if one["node"] == "entity"}
    memories = [
        {
            **{
                name: one[name]
                for name in ("kind", "at", "speaker", "valid_to", "forgotten_at")
                if one[name] is not None
            },
            "id": node,
            "memory": shortened(one["memory"]),
        }
        for node, one in data.items()
        if one["node"] == "memory"
    ]
    relations = [
        {
            "source": entities[source]["name"],
            "relationship": one["predicate"],
            "target": entities[target]["name"],
            "memory_ids": one["memory_ids"][:limit],
        }
        for source, target, one in graph.subgraph(entities).edges(data=True)
        if one["relationship"] == "RELATES_TO"
    ]
    found: dict[str, list[Any]] = {
        "entities": list(entities.values()), "relations": relations, "memories": memories
    }  # fmt: skip
    return {
        **{name: items[:limit] for name, items in found.items()},
        "is_cut": any(len(items) > limit for items in found.values()),
    }
