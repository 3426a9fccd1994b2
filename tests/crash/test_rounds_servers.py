"""The rounds of test_rounds.py with everything on servers: PostgreSQL, Qdrant and Neo4j."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from rounds import Place, Rehearsals, RoundSequence
from support import servers as on_servers
from support.databases import postgres
from victims import Server, in_memory

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not (on_servers.NEO4J and on_servers.QDRANT), reason="set NEO4J_URI and QDRANT_URL"),
]
SEED = os.environ.get("FAULTS_SEED", "6")
SEQUENCES, ROUNDS = 2, 10
# Drivers, imported before the first fork.
MODULES = ("psycopg", "graphmem.stores.neo4j.index", "graphmem.stores.qdrant.client")
# A shorter lease: the next process need not wait long for one that died while it delivered.
PATCHES = {"graphmem.stores.projection:LEASE": 2.0}
REPLAY = os.environ.get("FAULTS_ROUND", "")


@pytest.fixture(scope="module")
def server():
    with closing(Server(*MODULES)) as new_server:
        yield new_server


@contextmanager
def place(server: Server, servers: on_servers.Servers, home: Path) -> Iterator[Place]:
    """A ledger of its own, in a database that is empty."""
    with postgres() as url:
        # The model's name selects the collection. It is not the fake's own name, which imported records hold: the
        # client logs the collection's address.
        server_config = servers.with_stores({"embedder": {"config": {"model": "rounds", "embedding_dims": 64}}})
        config = {key: value for key, value in server_config.items() if key != "embedder"}
        new_place = Place(home, server, {**config, "ledger_url": url}, PATCHES)
        with new_place.open() as memory:
            servers.note(memory)
        yield new_place


@pytest.fixture(scope="module")
def rehearsals(server: Server, servers: on_servers.Servers):
    with in_memory() as folder, place(server, servers, folder / "home") as new_place:
        yield Rehearsals(new_place)


@pytest.mark.skipif(bool(REPLAY), reason="FAULTS_ROUND asks for another play")
@pytest.mark.parametrize("sequence", range(SEQUENCES))
def test_rounds(
    sequence: int, server: Server, servers: on_servers.Servers, rehearsals: Rehearsals, tmp_path: Path
) -> None:
    with place(server, servers, tmp_path / "home") as new_place:
        rounds = RoundSequence(new_place, f"{SEED}:{sequence}", rehearsals)
        rounds.play(ROUNDS)
        assert rounds.deaths > ROUNDS // 2


@pytest.mark.skipif(not REPLAY, reason="FAULTS_ROUND names no play")
def test_replay_of_a_printed_sequence(server: Server, servers: on_servers.Servers, tmp_path: Path) -> None:
    with place(server, servers, tmp_path / "home") as new_place:
        RoundSequence.replay(new_place, REPLAY)
