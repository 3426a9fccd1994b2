"""The write transaction of one ledger's graph in Neo4j: upserts and deletes states, and prunes unreferenced nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import Any

from neo4j import ManagedTransaction

from graphmem.errors import StoreError
from graphmem.plugins import EntityState, MemoryState, RelationState, StoreLost
from graphmem.stores.cypher import statement
from graphmem.stores.neo4j import rows

# The version of nodes, relationships and indexes. A graph of an older version is rebuilt.
SCHEMA_VERSION = 1


def check_marker(schema: int | None) -> None:
    """Raises StoreLost if the graph is missing or of an older schema, StoreError if a newer graphmem wrote it."""
    if schema is None:
        raise StoreLost("Neo4j no longer holds this ledger's graph; rebuild() fills it again")
    if schema > SCHEMA_VERSION:
        raise StoreError(
            f"the graph in Neo4j is of schema {schema}, this graphmem knows {SCHEMA_VERSION}; upgrade graphmem, or "
            "open without graph_store, or with another database in graph_store.config.database"
        )
    if schema < SCHEMA_VERSION:
        raise StoreLost(f"the graph in Neo4j is of the older schema {schema}; rebuild() fills it again")


class WriteTransaction:
    """A transaction of one ledger, the only writer of its graph: it holds the ledger's lock from its beginning.

    `removed` counts the nodes and relationships that it deleted.
    """

    def __init__(self, transaction: ManagedTransaction, ledger: str, zone: tzinfo | None = None) -> None:
        self._transaction = transaction
        self._ledger = ledger
        self._zone = zone
        self.removed = 0
        check_marker(self._run("lock").get("schema"))

    def _run(self, name: str, **parameters: Any) -> dict[str, Any]:
        """Runs a statement of `cypher/runtime/` and returns its row, or an empty dict."""
        result = self._transaction.run(statement(f"runtime/{name}"), {"ledger": self._ledger, **parameters})
        row = result.single()
        counters = result.consume().counters
        self.removed += counters.nodes_deleted + counters.relationships_deleted
        return {} if row is None else row.data()

    def _run_rows(self, name: str, parameter_rows: Sequence[Any]) -> dict[str, Any]:
        return self._run(name, rows=parameter_rows) if parameter_rows else {}

    def upsert_memories(self, states: Iterable[MemoryState]) -> None:
        """Writes memories with their mentions and links; skips states older than the stored ones."""
        newest = {state.record.id: state for state in sorted(states, key=lambda state: state.record.seq)}
        result = self._run_rows(
            "upsert_memories", [rows.memory_row(self._ledger, state, self._zone) for state in newest.values()]
        )
        written = [newest[uid] for uid in result.get("written", ())]
        formerly_linked = self._run("delete_memory_links", ids=result["updated"]) if result.get("updated") else {}
        self._run_rows("upsert_entities", rows.mentioned_entity_rows(self._ledger, written))
        self._run_rows("link_mentions", [rows.mention_rows(state) for state in written if state.mentions])
        self._run_rows("link_next", [[s.record.id, s.previous] for s in written if s.previous is not None])
        self._run_rows("link_drawn_from", [[s.record.id, source] for s in written for source in s.drawn_from])
        self._run_rows("link_replaces", [[s.record.id, retired] for s in written for retired in s.replaces])
        self._run_rows("link_compresses", [[s.record.id, merged] for s in written for merged in s.compresses])
        self._run_rows("link_abstracts", [[s.record.id, source] for s in written for source in s.abstracts])
        self._prune(**formerly_linked)

    def upsert_relations(self, states: Iterable[RelationState]) -> None:
        """Writes relations; creates endpoint entities whose memories have not been delivered yet."""
        newest = {state.relation.id: state for state in sorted(states, key=lambda state: state.seq)}
        self._run_rows("upsert_endpoints", rows.endpoint_rows(self._ledger, newest.values()))
        self._prune(
            **self._run_rows(
                "upsert_relations", [rows.relation_row(self._ledger, state, self._zone) for state in newest.values()]
            )
        )

    def upsert_entities(self, states: Iterable[EntityState]) -> None:
        """Writes the names and aliases of entities."""
        newest = {state.id: state for state in sorted(states, key=lambda state: state.seq)}
        name_rows = {uid: rows.entity_name_row(self._ledger, state) for uid, state in newest.items()}
        self._run_rows("upsert_entities", list(name_rows.values()))
        written = self._run_rows("upsert_entity_names", list(name_rows.values())).get("written", ())
        self._run_rows("link_same_as", [[uid, alias] for uid in written for alias in name_rows[uid]["same_as"]])

    def delete(self, memories: Sequence[str], relations: Sequence[str], entities: Sequence[str]) -> None:
        """Removes memories, relations and entity states, and then the nodes that nothing refers to any more."""
        if memories:
            self._prune(**self._run("delete_memories", ids=list(memories)))
        if relations:
            self._prune(**self._run("delete_relations", ids=list(relations)))
        if entities:
            self._prune(**self._run("clear_entity_names", ids=list(entities)))

    def _prune(self, entities: Sequence[str] = (), memories: Sequence[str] = ()) -> None:
        if entities or memories:
            self._run("prune", entities=list(entities), memories=list(memories))
