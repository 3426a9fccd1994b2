"""The embedded graph: the `Graph` protocol over the ledger's own tables and the columns of them in memory.

It is no copy, so it is always up to date and needs no cursor and no delivery.
"""

from __future__ import annotations

from graphmem.model import GraphBounds, Seeds, Subgraph, View
from graphmem.stores.ledger import Ledger, graph_neighbourhood


class EmbeddedGraph:
    """The `Graph` of a ledger without a graph server."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def neighbourhood(self, view: View, seeds: Seeds, limits: GraphBounds) -> Subgraph:
        with self._ledger.read() as connection:
            columns = self._ledger.columns.visible(connection, view)
            return graph_neighbourhood.neighbourhood(connection, view, seeds, limits, columns)
