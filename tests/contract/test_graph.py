"""Both embedded graphs keep the contract."""

from __future__ import annotations

from typing import Any

from databases import SQLITE_ONLY
from graph import GraphContract, tell
from graph_index import GraphIndexContract

from graphmem.remember.plan import Revise
from graphmem.stores.base import Graph, GraphIndex
from graphmem.stores.ledger import Ledger
from graphmem.stores.ledger.graphs import LedgerGraph
from graphmem.stores.networkx import NetworkxGraph


class TestLedgerGraph(GraphContract):
    def reading(self, clerk: Any) -> Graph:
        return LedgerGraph(clerk.ledger)


@SQLITE_ONLY  # what the ledger tells it is the same from both databases
class TestNetworkxGraph(GraphIndexContract):
    def fresh(self, ledger: Ledger) -> GraphIndex:
        return NetworkxGraph()

    def test_a_memory_delivered_again_keeps_the_relations_it_supports(self, clerk: Any) -> None:
        record = tell(clerk, "anna", "acme")
        self.reading(clerk)
        clerk.commit(Revise(record.id, metadata={"seen": True}))
        self.reading(clerk)
        edges = self.copy._graph.edges(("entity", "user:alice", "anna"), keys=True, data=True)
        assert [data["relation"].predicate for *_, data in edges] == ["meets"]
