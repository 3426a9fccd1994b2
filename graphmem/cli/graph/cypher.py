"""Converts the graph to Cypher statements that rebuild it in any Neo4j database: a file to be run by hand.

Labels, types and property names come from closed lists (those of the Neo4j projection); texts of memories occur in
string literals only. Every node has a property `export`, by which statements find it: other nodes of the database are
left alone, and running a file twice, or the files of two neighbourhoods, updates or adds to the same nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from graphmem.cli.graph.formats import sorted_edges, sorted_nodes
from graphmem.model import EntityType

if TYPE_CHECKING:
    import networkx as nx

Row = Mapping[str, Any]

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
