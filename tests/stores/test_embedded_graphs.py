"""Both embedded graphs pass the conformance tests of their protocols."""

from __future__ import annotations

from typing import Any

from graph_conformance import GraphContract, store_memory
from graph_index_conformance import ProjectedGraphContract
from support.databases import SQLITE_ONLY

from graphmem.commands.types import UpdateMemory
from graphmem.model import GraphBounds, Seeds, Subgraph, View
from graphmem.plugins import Graph, GraphIndex
from graphmem.stores.ledger import Ledger
from graphmem.stores.ledger.embedded_graph import EmbeddedGraph
from graphmem.stores.networkx_graph import NetworkxIndex


class TestLedgerGraph(GraphContract):
    def reading(self, clerk: Any) -> Graph:
        return EmbeddedGraph(clerk.ledger)


class SearchedTwice(EmbeddedGraph):
    """Reads from columns in memory, which a partition has from its second search on."""

    def neighbourhood(self, view: View, seeds: Seeds, limits: GraphBounds) -> Subgraph:
        super().neighbourhood(view, seeds, limits)
        return super().neighbourhood(view, seeds, limits)


class TestGraphOfColumns(GraphContract):
    def reading(self, clerk: Any) -> Graph:
        return SearchedTwice(clerk.ledger)


@SQLITE_ONLY  # its input from the ledger is the same with both databases
class TestNetworkxGraph(ProjectedGraphContract):
    def fresh(self, ledger: Ledger) -> GraphIndex:
        return NetworkxIndex()

    def test_a_memory_delivered_again_keeps_the_relations_it_supports(self, clerk: Any) -> None:
        record = store_memory(clerk, "anna", "acme")
        self.reading(clerk)
        clerk.commit(UpdateMemory(record.id, metadata={"seen": True}))
        self.reading(clerk)
        edges = self.index._graph.edges(("entity", "user:alice", "anna"), keys=True, data=True)
        assert [data["relation"].predicate for *_, data in edges] == ["meets"]
