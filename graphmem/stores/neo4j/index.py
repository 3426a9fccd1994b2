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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import tzinfo

from neo4j import ManagedTransaction, Record

from graphmem import __version__
from graphmem.errors import StoreUnavailable
from graphmem.model import EPOCH, GraphBounds, Scope, Seeds, Subgraph, View
from graphmem.plugins import EntityState, MemoryState, RelationState, StoreLost
from graphmem.stores.cypher import statement, statements
from graphmem.stores.neo4j import rows
from graphmem.stores.neo4j.client import READ_TIMEOUT, Neo4jClient
from graphmem.stores.neo4j.writer import SCHEMA_VERSION, WriteTransaction, check_marker

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
