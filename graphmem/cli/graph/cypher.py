"""The graph as Cypher statements that rebuild it in a Neo4j of one's own: a file to run by hand, no way of storing.

Labels, types and property names are from closed lists (those of the Neo4j projection); what comes from memories stands
in string literals only. Every node carries `export`, by which it is found again: what else is in that database is left
alone, and running a file twice, or the files of two neighbourhoods, changes or adds to the same nodes.
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

# Rows for each statement: a transaction for each row takes minutes, one for all of them much memory.
ROWS_PER_STATEMENT = 200
_MEMORY = "kind speaker at valid_from valid_to user_id agent_id run_id version".split()
_TIMES = frozenset({"at", "valid_from", "valid_to", "valid_at", "invalid_at"})
_ENDS = {
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


def cypher(drawn: nx.MultiDiGraph[str]) -> str:
    """All of it as one text, statement after statement, each ended by a semicolon at the end of a line."""
    export = f"{drawn.graph['ledger']}/{drawn.graph['partition']}"
    text = [_HEADER.replace("$", _string(export))]
    for rows, pattern in [*_nodes(drawn, export), *_edges(drawn, export)]:
        todo = pattern.replace("$", _string(export))
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            listed = ",\n  ".join(map(_literal, rows[start : start + ROWS_PER_STATEMENT]))
            text.append(f"UNWIND [\n  {listed}\n] AS row\n{todo};\n")
    return "".join(text)


def _nodes(drawn: nx.MultiDiGraph[str], export: str) -> Iterator[tuple[list[Row], str]]:
    """Rows, and what is to be done with each; `$` stands for the export's id."""
    nodes = sorted_nodes(drawn)
    memories: list[Row] = [
        {"id": node, "partition": export, "text": data["memory"], **{name: data[name] for name in _MEMORY}}
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
    """A memory's id as it is; an entity's canonical key behind its partition."""
    return f"{export}/{node.removeprefix('entity:')}" if node.startswith("entity:") else node


def _edges(drawn: nx.MultiDiGraph[str], export: str) -> Iterator[tuple[list[Row], str]]:
    """The same for relationships, kind by kind."""
    edges = sorted_edges(drawn)
    for kind, (source, target) in _ENDS.items():
        rows: list[Row] = [
            {"source": _key(a, export), "target": _key(b, export), "properties": _properties(drawn, a, b, key, data)}
            for a, b, key, data in edges
            if data["relationship"] == kind
        ]
        own = " {id: row.properties.id}" if kind == "RELATES_TO" else ""
        yield rows, f"MATCH {source}\nMATCH {target}\nMERGE (a)-[r:{kind}{own}]->(b)\nSET r += row.properties"


def _properties(drawn: nx.MultiDiGraph[str], source: str, target: str, key: str, data: Row) -> Row:
    entities = {"source": source.removeprefix("entity:"), "target": target.removeprefix("entity:")}
    match data["relationship"]:
        case "MENTIONS":
            return {"ekey": entities["target"], "at": drawn.nodes[source]["at"], "kind": data["kind"]}
        case "RELATES_TO":
            kept = {name: data[name] for name in ("predicate", "memory_ids", "confidence", "valid_at", "invalid_at")}
            return {"id": key, **entities, "fact": "\n".join(data["facts"]), **kept}
        case "SAME_AS":
            return {"origin": data["origin"]}
        case _:
            return {}


def _literal(value: object) -> str:
    """A value as Cypher writes it. Names of a mapping are ours; what is None is left out of it."""
    if isinstance(value, Mapping):
        known = {name: one for name, one in value.items() if one is not None}
        return "{" + ", ".join(f"{n}: {_time(v) if n in _TIMES else _literal(v)}" for n, v in known.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return _string(value) if isinstance(value, str) else repr(value)


def _time(value: str) -> str:
    return f"datetime({_string(value)})"


def _string(text: str) -> str:
    r"""A string literal in one line, which no text can end.

    Some versions of Cypher read \uXXXX before anything else, also behind an escaped backslash: a backslash and the u
    after it are kept in two literals. Half a surrogate pair is no text for a database: U+FFFD stands for it.
    """
    return "'" + _TO_ESCAPE.sub(_escaped, text) + "'"


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if "\ud800" <= character <= "\udfff":
        return "\ufffd"
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"
