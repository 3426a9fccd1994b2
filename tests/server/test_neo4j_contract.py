"""The graph in Neo4j keeps the contract, in the oldest and the newest version we name."""

from __future__ import annotations

import pytest
from support.databases import SQLITE_ONLY
from support.neo4j_servers import Server  # first: it shows the way to the contracts

from graph_index_conformance import GraphIndexContract  # isort: skip

from graphmem.stores.ledger import Ledger
from graphmem.stores.protocols import GraphIndex

# What the ledger tells a graph is the same from both databases; `test_neo4j_same.py` has it from PostgreSQL.
pytestmark = [pytest.mark.server, SQLITE_ONLY]


class OnNeo4j(GraphIndexContract):
    variable: str

    def fresh(self, ledger: Ledger) -> GraphIndex:
        return Server.at(self.variable).graph(ledger.uuid)

    def leave(self, ledger: Ledger) -> None:
        Server.at(self.variable).remove(ledger.uuid)


@pytest.mark.quick
class TestNeo4j5(OnNeo4j):
    variable = "NEO4J_URI"


class TestNeo4j2026(OnNeo4j):
    variable = "NEO4J2026_URI"
