"""The graph in Neo4j: a `GraphIndex` that people can also browse. Its statements are in `cypher/`.

    (:Memory {ledger, id, partition, user_id, agent_id, run_id, further_runs, kind, speaker, text, date, until,
              at, valid_from, valid_to, expires_at, forgotten_at, row, seq})
    (:Entity:<type> {ledger, id, partition, key, name, type, seq})
    (:Memory)-[:MENTIONS {ledger, kind, ekey, rank}]->(:Entity)
    (:Memory)-[:NEXT | DRAWN_FROM | REPLACES | COMPRESSES | ABSTRACTS {ledger}]->(:Memory)
    (:Entity)-[:RELATES_TO {ledger, id, partition, predicate, fact, facts, memory_ids, source, target, confidence,
                            since, until, at, valid_at, invalid_at, seq}]->(:Entity)
    (:Entity)-[:SAME_AS {ledger}]->(:Entity)
    (:GraphmemLedger {ledger, schema})

`date`, `since` and `until` are for people; all other times are integers, in microseconds. A memory without a `seq` is
a placeholder: others refer to it, but it has not been delivered yet. An entity has a `seq` only if it has a state: a
chosen name or an alias. The :GraphmemLedger node marks that a ledger's graph exists, and is the lock of its writers;
without it the graph counts as lost. So `wipe` leaves it, also at a reset: other processes may write right after it.

One transaction writes: it upserts and deletes states, and prunes unreferenced nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import tzinfo
from typing import Any

from neo4j import ManagedTransaction, Record

from graphmem import __version__
from graphmem.errors import StoreError, StoreUnavailable
from graphmem.model import EPOCH, GraphBounds, Scope, Seeds, Subgraph, View
from graphmem.plugins import EntityState, MemoryState, RelationState, StoreLost
from graphmem.stores.neo4j import rows
from graphmem.stores.neo4j.client import READ_TIMEOUT, Neo4jClient, statement, statements

# The most memories, relations or entities per deleting transaction, and the most nodes per transaction of a wipe.
CHUNK = 1000
WIPE_CHUNK = 2000
# In seconds. A server that has just started needs time to plan the neighbourhood statement; planning that is cancelled
# starts again from the beginning at the next attempt.
PLANNING_TIMEOUT = 30.0
# How often the neighbourhood statement is run, with seeds that match nothing, before searches use it: the first run
# takes a second or more, the third a hundredth of a second.
WARM_UP_RUNS = 3
_EMPTY_VIEW, _EMPTY_SEEDS = View(Scope("nobody"), EPOCH, partition=""), Seeds(("nothing",), ("nothing",))
# The version of nodes, relationships and indexes. A graph of an older version is rebuilt.
SCHEMA_VERSION = 1


class Neo4jIndex:
    """The graph of one ledger in a Neo4j database, which other applications may share. Connects at its first use.

    Dates of nodes and relations are by the clock of `zone` (None: UTC).
    """

    def __init__(
        self, url: str, username: str, password: str, database: str, ledger_uuid: str, zone: tzinfo | None = None
    ) -> None:
        self._ledger = ledger_uuid
        self._zone = zone
        self._server = Neo4jClient(url, username, password, database, user_agent=f"graphmem/{__version__}")

    def check(self) -> None:
        """Connects and, if the graph exists, runs the statement that reads the neighbourhood of a search's seeds.

        Neo4j plans the statement at its first run, which may take longer than a search waits. A missing graph is no
        error. Raises ConfigError when the server refuses the name, password or database or is too old, StoreError when
        a newer graphmem wrote the graph, StoreUnavailable when the server is out of reach.
        """
        self._server.check()
        self._check_not_newer()
        with suppress(StoreLost):
            self._warm_up()

    def _check_not_newer(self) -> None:
        with suppress(StoreLost):
            self._check_exists()

    def _check_exists(self) -> None:
        marker_rows = self._server.read(statement("runtime/marker"), {"ledger": self._ledger}, PLANNING_TIMEOUT)
        check_marker(marker_rows[0]["schema"] if marker_rows else None)

    def neighbourhood(self, view: View, seeds: Seeds, limits: GraphBounds) -> Subgraph:
        (row,) = self._read_neighbourhood(view, seeds, limits, READ_TIMEOUT)
        check_marker(row["schema"])
        return rows.parse_subgraph(row)

    def _read_neighbourhood(self, view: View, seeds: Seeds, limits: GraphBounds, timeout: float) -> list[Record]:
        parameters = rows.neighbourhood_parameters(self._ledger, view, seeds, limits)
        return self._server.read(statement("runtime/neighbourhood"), parameters, timeout)

    def _warm_up(self) -> None:
        """Runs the neighbourhood statement, so that Neo4j has planned it and filled its caches before a search."""
        for _ in range(WARM_UP_RUNS):
            self._read_neighbourhood(_EMPTY_VIEW, _EMPTY_SEEDS, GraphBounds(), PLANNING_TIMEOUT)

    def upsert(
        self,
        memories: Sequence[MemoryState] = (),
        relations: Sequence[RelationState] = (),
        entities: Sequence[EntityState] = (),
    ) -> None:
        def write(transaction: ManagedTransaction) -> None:
            writer = WriteTransaction(transaction, self._ledger, self._zone)
            writer.upsert_memories(memories)
            writer.upsert_relations(relations)
            writer.upsert_entities(entities)

        self._server.write(write)

    def delete(self, memories: Sequence[str], relations: Sequence[str] = (), entities: Sequence[str] = ()) -> int:
        longest = max(len(memories), len(relations), len(entities))
        return sum(
            self._delete_chunk(*(ids[start : start + CHUNK] for ids in (memories, relations, entities)))
            for start in range(0, longest, CHUNK)
        )

    def _delete_chunk(self, memories: Sequence[str], relations: Sequence[str], entities: Sequence[str]) -> int:
        def write(transaction: ManagedTransaction) -> int:
            writer = WriteTransaction(transaction, self._ledger)
            writer.delete(memories, relations, entities)
            return writer.removed

        return self._server.write(write)

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int]]:
        self._check_exists()
        stored_names = [f"{self._ledger}/{partition}" for partition in partitions or ()]
        parameters = {"ledger": self._ledger, "partitions": stored_names, "all": partitions is None}
        for row in self._server.stream(statement("runtime/list_held"), parameters):
            yield row["id"], row["seq"]

    def count(self) -> int:
        count_rows = self._server.read(statement("runtime/count"), {"ledger": self._ledger}, PLANNING_TIMEOUT)
        check_marker(count_rows[0]["schema"] if count_rows else None)
        return int(count_rows[0]["memories"])

    def wipe(self) -> None:
        """Creates constraints and indexes, removes this ledger's nodes, and marks its graph as existing (and empty).

        If it is interrupted, the next call continues.
        """
        self._check_not_newer()
        for schema_statement in statements("schema"):
            self._server.run(schema_statement, {})
        self._server.run(statement("runtime/await_indexes"), {})
        self._wipe_nodes("wipe_memories")
        self._wipe_nodes("wipe_entities")
        self._server.run(statement("runtime/set_marker"), {"ledger": self._ledger, "schema": SCHEMA_VERSION})
        with suppress(StoreUnavailable):  # new indexes need new plans; slow planning is no reason to wipe again
            self._warm_up()

    def _wipe_nodes(self, name: str) -> None:
        parameters = {"ledger": self._ledger, "chunk": WIPE_CHUNK}
        while self._server.run(statement(f"runtime/{name}"), parameters).counters.nodes_deleted:
            pass  # until none is left, including nodes that another writer adds meanwhile

    def close(self) -> None:
        self._server.close()


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
