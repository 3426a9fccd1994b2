"""All that the stores hold of a ledger, for tests that look for what has to be gone."""

from __future__ import annotations

from sqlalchemy import select

from graphmem import Memory
from graphmem.stores.ledger import schema


def stored_content(memory: Memory) -> dict[str, str]:
    """What each table, the points of the vector index on a server and the graph hold, as text in lower case."""
    engine = memory.engine
    index, graph = engine.backends.vector_index, engine.backends.graph
    with engine.ledger.read() as connection:
        content = {
            table.name: repr(connection.execute(select(table)).all()).lower() for table in schema.metadata.sorted_tables
        }
    if hasattr(index, "_collection"):
        from qdrant_client import models

        points, offset = [], None
        with index._collection.connected() as connection:
            while True:
                page, offset = connection.reader.scroll(
                    index._collection.name, models.Filter(must=[index._own_points()]), limit=100, offset=offset,
                    with_payload=True, with_vectors=False,
                )  # fmt: skip
                points += [point.payload for point in page]
                if offset is None:
                    break
        content["qdrant"] = repr(points).lower()
    if hasattr(graph, "_server"):
        query = "MATCH (n {ledger: $ledger}) OPTIONAL MATCH (n)-[r]->() RETURN n {.*} AS n, collect(r {.*}) AS r"
        records = graph._server.stream(query, {"ledger": engine.ledger.uuid})
        content["neo4j"] = repr([record.data() for record in records]).lower()
    elif hasattr(graph, "_graph"):
        content["graph"] = repr([*graph._graph.nodes(data=True), *graph._graph.edges(data=True)]).lower()
    return content
