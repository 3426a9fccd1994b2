"""Processes killed while they migrate a ledger: it is migrated or unchanged, and loses nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from operations import Open
from rounds import DIED, Place
from support.newer_schema import REVISION, newer_schema
from victims import Server, assert_verified, in_memory

from graphmem.stores.ledger import schema

SEED = os.environ.get("FAULTS_SEED", "6")
POINTS = 12
WORDS = [f"omega Olga owns boat{number}" for number in range(5)]


@pytest.fixture(scope="module")
def server():
    with closing(Server("alembic.command", "alembic.config", "alembic.script")) as new_server:
        yield new_server


@pytest.fixture(scope="module")
def older(server: Server):
    """A place with a ledger of the code's schema, opened from then on by a release of the next one."""
    with in_memory() as folder:
        place = Place(folder / "older", server)
        with place.open() as memory:
            for text in WORDS:
                memory.add(text, user_id="u")
        yield Place(place.home, server, patches=newer_schema(folder))


@pytest.mark.parametrize("share", [number / POINTS for number in range(POINTS)])
def test_killed_while_migrating(older: Place, share: float, tmp_path: Path) -> None:
    """Killed at points spread evenly over the opening, and once more at the next opening."""
    rehearsal = copy_of(older, tmp_path / "rehearsal")
    code, lines = rehearsal.play(Open())
    assert code == 0
    assert schema_of(rehearsal) == REVISION
    events = lines[-1]["events"]
    place = copy_of(older, tmp_path / "killed")
    first = str(1 + int(share * events))
    second = str(Random(f"{SEED}:{share}").randint(1, events))
    assert place.play(Open(), first)[0] in DIED
    place.play(Open(), second)
    assert place.play(Open())[0] == 0
    check(place)


def copy_of(place: Place, home: Path) -> Place:
    shutil.copytree(place.home, home)
    return Place(home, place.server, patches=place.patches)


def schema_of(place: Place) -> str:
    with closing(sqlite3.connect(place.home / "ledger.sqlite")) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def check(place: Place) -> None:
    """Migrated as a whole, and with every word: the new schema's values are there, and the old release's reads work."""
    assert schema_of(place) == REVISION
    with closing(sqlite3.connect(place.home / "ledger.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        lengths = dict(connection.execute("SELECT m.text, l.length FROM memories m JOIN lengths l ON l.memory = m.uid"))
        assert lengths == {text: len(text) for text in WORDS}
        connection.execute("UPDATE alembic_version SET version_num = ?", (schema.REVISION,))
        connection.commit()
    with place.open() as memory:
        assert_verified(memory)
        hit_texts = {hit["memory"] for hit in memory.search("boat3", user_id="u")["results"]}
        assert WORDS[3] in hit_texts
        assert memory.get_all(user_id="u")["total"] == len(WORDS)
