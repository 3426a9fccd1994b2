"""The Neo4j servers that the environment names, and graphs on them that are removed at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from neo4j import Driver, GraphDatabase

from graphmem.stores.neo4j.index import Neo4jIndex

# The conformance classes that every backend runs.
sys.path.insert(0, str(Path(__file__).parents[1] / "stores"))

VARIABLES = ["NEO4J_URI", "NEO4J2026_URI"]


@dataclass(frozen=True)
class Server:
    """A server that an environment variable names."""

    uri: str
    username: str
    password: str

    @classmethod
    def at(cls, variable: str) -> Server:
        if not (uri := os.environ.get(variable)):
            pytest.skip(f"{variable} names no Neo4j server")
        return cls(uri, os.environ.get("NEO4J_USERNAME", "neo4j"), os.environ.get("NEO4J_PASSWORD", ""))

    def graph(self, ledger: str | None = None) -> Neo4jIndex:
        return Neo4jIndex(self.uri, self.username, self.password, "neo4j", ledger or str(uuid4()))

    @contextmanager
    def filled(self, ledger: str | None = None) -> Iterator[Neo4jIndex]:
        """A graph that can be written to, for a ledger of its own; removed at the end."""
        named = ledger or str(uuid4())
        graph = self.graph(named)
        graph.wipe()
        try:
            yield graph
        finally:
            graph.close()
            self.remove(named)

    def remove(self, ledger: str) -> None:
        """Removes all nodes of a ledger, the marker too."""
        graph = self.graph(ledger)
        graph.wipe()
        graph.close()
        with self.driver() as driver:
            driver.execute_query("MATCH (n:GraphmemLedger {ledger: $ledger}) DELETE n", {"ledger": ledger})

    def driver(self) -> Driver:
        return GraphDatabase.driver(self.uri, auth=(self.username, self.password))
