"""Memories whose stores are all on servers: PostgreSQL, Qdrant and Neo4j, where environment variables name them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from graphmem import Memory, Settings
from graphmem.errors import GraphmemError
from support.waiting import SERVER_TIMEOUT, TIMEOUT

NEO4J, QDRANT = os.environ.get("NEO4J_URI", ""), os.environ.get("QDRANT_URL", "")
PASSWORD = os.environ.get("NEO4J_PASSWORD", "")
GRPC_PORT = int(os.environ.get("QDRANT_GRPC_PORT", "6334"))


def graph_config() -> dict[str, Any]:
    return {"provider": "neo4j", "config": {"url": NEO4J, "password": PASSWORD}}


def vector_config(collection: str) -> dict[str, Any]:
    return {"config": {"url": QDRANT, "grpc_port": GRPC_PORT, "collection_name": collection}}


class Servers:
    """The collections and ledgers that a session's tests create on shared servers: removed at its end."""

    def __init__(self) -> None:
        self._name = f"journeys-{uuid4().hex[:8]}"
        self._collections: dict[tuple[str, int], str] = {}
        self._ledgers: set[str] = set()

    def with_stores(self, config: dict[str, Any]) -> dict[str, Any]:
        """Adds the servers' stores to a configuration that names none; each embedding model has a collection."""
        if not (NEO4J and QDRANT):
            return config
        model = config["embedder"]["config"]
        # Named by number: drivers log a collection's name, and the model's is one that tests hand in.
        key = (model["model"], model["embedding_dims"])
        collection = self._collections.setdefault(key, f"{self._name}-{len(self._collections)}")
        # A slow answer means a busy machine here, not an outage.
        on_servers = {
            "vector_store": vector_config(collection),
            "graph_store": graph_config(),
            "delivery_wait": TIMEOUT,
        }
        return {**on_servers, **config}

    def note(self, memory: Memory) -> None:
        self._ledgers.add(memory.engine.ledger.uuid)

    def warm(self) -> None:
        """Waits for a first write: servers that have just started take long to plan and load it, which is no outage."""
        if not (NEO4J and QDRANT):
            return
        embedder = {"embed": lambda texts: [[1.0, 0.0] for _ in texts], "embedding_dims": 2, "model": "warm"}
        models = {"embedder": {"provider": "callable", "config": embedder}, "extractor": {"provider": "none"}}
        with (
            TemporaryDirectory() as home,
            Memory(home, settings=Settings.from_dict(self.with_stores(models))) as memory,
        ):
            self.note(memory)
            until = monotonic() + SERVER_TIMEOUT
            memory.add("Warm words.", user_id="warm")
            while memory.flush()["pending"] and monotonic() < until:
                sleep(1)
            memory.search("words", user_id="warm")

    def clean(self) -> None:
        if self._collections:
            from qdrant_client import QdrantClient

            client = QdrantClient(QDRANT, check_compatibility=False, timeout=int(TIMEOUT))
            for collection in self._collections.values():
                client.delete_collection(collection)
            client.close()
        for ledger in self._ledgers if self._collections else ():
            from graphmem.stores.neo4j.index import Neo4jIndex

            graph = Neo4jIndex(NEO4J, "neo4j", PASSWORD, "neo4j", ledger)
            with suppress(GraphmemError):
                graph.wipe()
                graph._server.run("MATCH (n:GraphmemLedger {ledger: $ledger}) DELETE n", {"ledger": ledger})
            graph.close()


@contextmanager
def session() -> Iterator[Servers]:
    servers = Servers()
    try:
        servers.warm()
        yield servers
    finally:
        servers.clean()
