"""The graph in Neo4j passes the conformance class, in the oldest and the newest supported version."""

from __future__ import annotations

import pytest
from support.databases import SQLITE_ONLY
from support.neo4j_servers import Server  # first: it puts the conformance classes on the path

from graph_index_conformance import ProjectedGraphContract  # isort: skip

from graphmem.plugins import GraphIndex
from graphmem.stores.ledger import Ledger

# Both databases deliver the same states to a graph; `test_neo4j_same.py` uses PostgreSQL, too.
pytestmark = [pytest.mark.server, SQLITE_ONLY]


class OnNeo4j(ProjectedGraphContract):
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
