"""Processes killed while they open a ledger of an older version: it is migrated, or as it was, and loses nothing."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from operations import Open
from rounds import DIED, Place
from support.old_ledgers import FILES, MODEL, check_what_they_held, put
from victims import Server, in_memory

from graphmem.stores.ledger import schema

SEED = os.environ.get("FAULTS_SEED", "6")
OLDER = [file for file in FILES if schema.REVISION not in file.stem]
KILLS = 5  # for each file


@pytest.fixture(scope="module")
def server():
    with closing(Server("alembic.command", "alembic.config", "alembic.script")) as made:
        yield made


@pytest.mark.parametrize("kept", OLDER, ids=lambda path: path.stem)
def test_killed_while_migrating(kept: Path, server: Server) -> None:
    dice = Random(f"{SEED}:{kept.stem}:{KILLS}")
    with in_memory() as folder:
        rehearsal = place_of(kept, folder / "rehearsal", server)
        code, lines = rehearsal.play(Open())
        assert code == 0
        for number in range(KILLS):
            place = place_of(kept, folder / f"{number}", server)
            # Twice: what is left of the first attempt is what the second finds.
            points = [str(dice.randint(1, lines[-1]["events"])) for _ in range(2)]
            codes = [place.play(Open(), point)[0] for point in points]
            assert codes[0] in DIED, (codes, points)
            with place.open() as memory:
                check_what_they_held(memory)


def place_of(kept: Path, home: Path, server: Server) -> Place:
    home.mkdir()
    put(kept, home / "ledger.sqlite")
    return Place(home, server, {"model": MODEL})
