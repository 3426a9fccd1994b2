"""The embedded graph: the ledger's own tables behind the `Graph` protocol. Always up to date, nothing to deliver."""

from __future__ import annotations

from graphmem.model import GraphBounds, Seeds, Subgraph, View
from graphmem.stores.ledger import Ledger, graph_neighbourhood


class EmbeddedGraph:
    """A `Graph` that reads the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def neighbourhood(self, view: View, seeds: Seeds, limits: GraphBounds) -> Subgraph:
        with self._ledger.read() as connection:
            return graph_neighbourhood.neighbourhood(connection, view, seeds, limits)
