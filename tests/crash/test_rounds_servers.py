"""The rounds of test_rounds.py with everything on servers: PostgreSQL, Qdrant and Neo4j."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from rounds import Place, Rehearsals, Story
from support import servers as on_servers
from support.databases import postgres
from victims import Server, in_memory

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not (on_servers.NEO4J and on_servers.QDRANT), reason="set NEO4J_URI and QDRANT_URL"),
]
SEED = os.environ.get("FAULTS_SEED", "6")
SEQUENCES, ROUNDS = 2, 10
# Drivers: imported once.
MODULES = ("psycopg", "graphmem.stores.neo4j.index", "graphmem.stores.qdrant.client")
# Whoever dies while he delivers is succeeded sooner than in life.
PATCHES = {"graphmem.stores.projection:LEASE": 2.0}
REPLAY = os.environ.get("FAULTS_ROUND", "")


@pytest.fixture(scope="module")
def server():
    with closing(Server(*MODULES)) as made:
        yield made


@contextmanager
def place(server: Server, servers: on_servers.Servers, home: Path) -> Iterator[Place]:
    """A ledger of its own, in a database that is empty."""
    with postgres() as url:
        # Names the collection. The model's own name is in what is imported, and a client logs where it connects to.
        given = servers.laid_under({"embedder": {"config": {"model": "rounds", "embedding_dims": 64}}})
        config = {key: value for key, value in given.items() if key != "embedder"}
        made = Place(home, server, {**config, "ledger_url": url}, PATCHES)
        with made.open() as memory:
            servers.note(memory)
        yield made


@pytest.fixture(scope="module")
def rehearsals(server: Server, servers: on_servers.Servers):
    with in_memory() as folder, place(server, servers, folder / "home") as made:
        yield Rehearsals(made)


@pytest.mark.skipif(bool(REPLAY), reason="FAULTS_ROUND asks for another play")
@pytest.mark.parametrize("sequence", range(SEQUENCES))
def test_rounds(
    sequence: int, server: Server, servers: on_servers.Servers, rehearsals: Rehearsals, tmp_path: Path
) -> None:
    with place(server, servers, tmp_path / "home") as made:
        story = Story(made, f"{SEED}:{sequence}", rehearsals)
        story.play(ROUNDS)
        assert story.deaths > ROUNDS // 2


@pytest.mark.skipif(not REPLAY, reason="FAULTS_ROUND names no play")
def test_a_play_once_more(server: Server, servers: on_servers.Servers, tmp_path: Path) -> None:
    with place(server, servers, tmp_path / "home") as made:
        Story.once_more(made, REPLAY)
