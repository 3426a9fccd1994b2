"""One transaction that writes: what has to be said to Neo4j so that it holds the states it is given, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from neo4j import ManagedTransaction

from graphmem.errors import StoreError
from graphmem.stores.cypher import statement
from graphmem.stores.neo4j import rows
from graphmem.stores.protocols import EntityState, MemoryState, RelationState, StoreLost

# The version of nodes, relationships and indexes. A graph of another one is filled again.
SCHEMA = 1


def check_marker(schema: int | None) -> None:
    """Raises StoreLost where no graph of this schema is, StoreError where a newer graphmem has made one."""
    if schema is None:
        raise StoreLost("Neo4j no longer holds this ledger's graph; rebuild() fills it again")
    if schema > SCHEMA:
        raise StoreError(
            f"the graph in Neo4j is of schema {schema}, this graphmem knows {SCHEMA}; upgrade graphmem, or open "
            "without graph_store, or with another database in graph_store.config.database"
        )
    if schema < SCHEMA:
        raise StoreLost(f"the graph in Neo4j is of the older schema {schema}; rebuild() fills it again")


class WriteTransaction:
    """A transaction of one ledger. Holds the ledger's lock from the beginning: no other writer comes in between."""

    def __init__(self, transaction: ManagedTransaction, ledger: str) -> None:
        self._transaction = transaction
        self._ledger = ledger
        self.removed = 0
        check_marker(self._run("lock").get("schema"))

    def _run(self, name: str, **parameters: Any) -> dict[str, Any]:
        """Runs a statement; returns its row, if it has one."""
        result = self._transaction.run(statement(f"runtime/{name}"), {"ledger": self._ledger, **parameters})
        found = result.single()
        counters = result.consume().counters
        self.removed += counters.nodes_deleted + counters.relationships_deleted
        return {} if found is None else found.data()

    def _put(self, name: str, given: Sequence[Any]) -> dict[str, Any]:
        return self._run(name, rows=given) if given else {}

    def memories(self, states: Iterable[MemoryState]) -> None:
        """Writes memories with what they mention and refer to."""
        newest = {state.record.id: state for state in sorted(states, key=lambda state: state.record.seq)}
        done = self._put("upsert_memories", [rows.memory_row(self._ledger, state) for state in newest.values()])
        written = [newest[uid] for uid in done.get("written", ())]
        before = self._run("withdraw", ids=done["known"]) if done.get("known") else {}
        self._put("upsert_entities", rows.mentioned_entity_rows(self._ledger, written))
        self._put("link_mentions", [rows.mention_rows(state) for state in written if state.mentions])
        self._put("link_next", [[s.record.id, s.previous] for s in written if s.previous is not None])
        self._put("link_drawn_from", [[s.record.id, source] for s in written for source in s.drawn_from])
        self._put("link_replaces", [[s.record.id, retired] for s in written for retired in s.replaces])
        self._prune(**before)

    def relations(self, states: Iterable[RelationState]) -> None:
        """Writes relations between entities, which are made if the memories that mention them are yet to come."""
        newest = {state.relation.id: state for state in sorted(states, key=lambda state: state.seq)}
        self._put("upsert_endpoints", rows.endpoint_rows(self._ledger, newest.values()))
        self._prune(
            **self._put("upsert_relations", [rows.relation_row(self._ledger, state) for state in newest.values()])
        )

    def entities(self, states: Iterable[EntityState]) -> None:
        """Writes what entities are called and linked to."""
        newest = {state.id: state for state in sorted(states, key=lambda state: state.seq)}
        names = {uid: rows.entity_name_row(self._ledger, state) for uid, state in newest.items()}
        self._put("upsert_entities", list(names.values()))
        written = self._put("upsert_entity_names", list(names.values())).get("written", ())
        self._put("link_same_as", [[uid, other] for uid in written for other in names[uid]["same_as"]])

    def delete(self, memories: Sequence[str], relations: Sequence[str], entities: Sequence[str]) -> None:
        """Removes memories, relations and what is said of entities, and the entities that nothing holds any more."""
        if memories:
            self._prune(**self._run("delete_memories", ids=list(memories)))
        if relations:
            self._prune(**self._run("delete_relations", ids=list(relations)))
        if entities:
            self._prune(**self._run("clear_entity_names", ids=list(entities)))

    def _prune(self, entities: Sequence[str] = (), memories: Sequence[str] = ()) -> None:
        if entities or memories:
            self._run("prune", entities=list(entities), memories=list(memories))
