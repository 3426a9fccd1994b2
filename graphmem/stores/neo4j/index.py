"""The graph in Neo4j: a `GraphIndex` that people can look at. See `cypher/` for the statements.

    (:Memory {ledger, id, partition, user_id, agent_id, run_id, further_runs, kind, speaker, text, date, until,
              at, valid_from, valid_to, expires_at, row, version})
    (:Entity:<type> {ledger, id, partition, key, name, type, version})
    (:Memory)-[:MENTIONS {ledger, kind, ekey, rank}]->(:Entity)
    (:Memory)-[:NEXT | DRAWN_FROM | REPLACES {ledger}]->(:Memory)
    (:Entity)-[:RELATES_TO {ledger, id, partition, predicate, fact, facts, memory_ids, source, target, confidence,
                            since, until, at, valid_at, invalid_at, version}]->(:Entity)
    (:Entity)-[:SAME_AS {ledger}]->(:Entity)
    (:GraphmemLedger {ledger, schema})

`date`, `since` and `until` are for people; integers are microseconds. Nodes without a version are only referred to so
far (an entity has one if something is said of it beyond the texts). The marker says that the graph of a ledger is here:
where it is gone, so is the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from neo4j import ManagedTransaction, Record

from graphmem import __version__
from graphmem.errors import StoreUnavailable
from graphmem.model import EPOCH, GraphBounds, Scope, Seeds, Subgraph, View
from graphmem.stores.cypher import statement, statements
from graphmem.stores.neo4j import rows
from graphmem.stores.neo4j.client import READ_TIMEOUT, Neo4jClient
from graphmem.stores.neo4j.writer import SCHEMA, WriteTransaction, check_marker
from graphmem.stores.protocols import EntityState, MemoryState, RelationState, StoreLost

# Memories, relations or entities that one transaction deletes, and nodes that one transaction of a wipe does.
CHUNK = 1000
WIPE_CHUNK = 2000
# Seconds for a server that has just started to plan the statement of a neighbourhood, before its first use. Planning
# that is given up begins anew the next time.
PLANNING_TIMEOUT = 30.0
# How often it is asked for nothing then: the first time takes a second or more, the third a hundredth.
WARM_UP_RUNS = 3
_NOBODY, _NOTHING = View(Scope("nobody"), EPOCH, partition=""), Seeds(("nothing",), ("nothing",))


class Neo4jIndex:
    """The graph of one ledger in a Neo4j database that others may use as well. Connects when it is first used."""

    def __init__(self, url: str, username: str, password: str, database: str, ledger_uuid: str) -> None:
        self._ledger = ledger_uuid
        self._server = Neo4jClient(url, username, password, database, user_agent=f"graphmem/{__version__}")

    def check(self) -> None:
        """Whether this can be used at all; if so, has the hot statement planned.

        Raises ConfigError when the server refuses the name, password or database or is too old, StoreError when a newer
        graphmem has filled it, StoreUnavailable when it is out of reach. That there is nothing yet is no error.
        """
        self._server.check()
        self._check_not_newer()
        with suppress(StoreLost):
            self._plan()

    def _check_not_newer(self) -> None:
        with suppress(StoreLost):
            self._check_here()

    def _check_here(self) -> None:
        found = self._server.read(statement("runtime/marker"), {"ledger": self._ledger}, PLANNING_TIMEOUT)
        check_marker(found[0]["schema"] if found else None)

    def neighbourhood(self, view: View, seeds: Seeds, limits: GraphBounds) -> Subgraph:
        (found,) = self._ask(view, seeds, limits, READ_TIMEOUT)
        check_marker(found["schema"])
        return rows.parse_subgraph(found)

    def _ask(self, view: View, seeds: Seeds, limits: GraphBounds, patience: float) -> list[Record]:
        asked = rows.neighbourhood_parameters(self._ledger, view, seeds, limits)
        return self._server.read(statement("runtime/neighbourhood"), asked, patience)

    def _plan(self) -> None:
        """Has the statement planned, and a server that has just started warmed, before a search waits for it."""
        for _ in range(WARM_UP_RUNS):
            self._ask(_NOBODY, _NOTHING, GraphBounds(), PLANNING_TIMEOUT)

    def upsert(
        self,
        memories: Sequence[MemoryState] = (),
        relations: Sequence[RelationState] = (),
        entities: Sequence[EntityState] = (),
    ) -> None:
        def write(transaction: ManagedTransaction) -> None:
            writing = WriteTransaction(transaction, self._ledger)
            writing.memories(memories)
            writing.relations(relations)
            writing.entities(entities)

        self._server.write(write)

    def delete(self, memories: Sequence[str], relations: Sequence[str] = (), entities: Sequence[str] = ()) -> int:
        most = max(len(memories), len(relations), len(entities))
        return sum(
            self._delete(*(ids[start : start + CHUNK] for ids in (memories, relations, entities)))
            for start in range(0, most, CHUNK)
        )

    def _delete(self, memories: Sequence[str], relations: Sequence[str], entities: Sequence[str]) -> int:
        def write(transaction: ManagedTransaction) -> int:
            writing = WriteTransaction(transaction, self._ledger)
            writing.delete(memories, relations, entities)
            return writing.removed

        return self._server.write(write)

    def list_held(self, partitions: Sequence[str] | None = None) -> Iterator[tuple[str, int]]:
        self._check_here()
        named = [f"{self._ledger}/{partition}" for partition in partitions or ()]
        asked = {"ledger": self._ledger, "partitions": named, "all": partitions is None}
        for found in self._server.stream(statement("runtime/list_held"), asked):
            yield found["id"], found["version"]

    def count(self) -> int:
        found = self._server.read(statement("runtime/count"), {"ledger": self._ledger}, PLANNING_TIMEOUT)
        check_marker(found[0]["schema"] if found else None)
        return int(found[0]["memories"])

    def wipe(self) -> None:
        """Removes this ledger's nodes, then says that its graph is here. Broken off, the next call goes on."""
        self._check_not_newer()
        for each in statements("schema"):
            self._server.run(each, {})
        self._server.run(statement("runtime/await_indexes"), {})
        self._wipe("wipe_memories")
        self._wipe("wipe_entities")
        self._server.run(statement("runtime/set_marker"), {"ledger": self._ledger, "schema": SCHEMA})
        with suppress(StoreUnavailable):  # the indexes are new, so every plan is; a slow one is no reason to wipe again
            self._plan()

    def _wipe(self, name: str) -> None:
        asked = {"ledger": self._ledger, "chunk": WIPE_CHUNK}
        while self._server.run(statement(f"runtime/{name}"), asked).counters.nodes_deleted:
            pass  # until none is left, also of those that a writer has put there meanwhile

    def close(self) -> None:
        self._server.close()
