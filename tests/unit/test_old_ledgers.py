"""A file of each schema version is kept in tests/data: all of them open, migrated, with everything they held."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.old_ledgers import FILES, MODEL, check_what_they_held, put

from graphmem import Memory
from graphmem.stores.ledger import Ledger, schema
from graphmem.testing import HashEmbedder

pytestmark = pytest.mark.thorough
EMBEDDER = HashEmbedder()


def opened(path: Path, home: Path) -> Memory:
    def embed(texts: list[str]) -> list[list[float]]:
        return [windows[0].tolist() for windows in EMBEDDER.embed(texts)]

    config = {"embed": embed, "embedding_dims": EMBEDDER.dims, "model": MODEL}
    return Memory.from_config({
        "home": str(home), "history_db_path": str(path), "embedder": {"provider": "callable", "config": config},
    })  # fmt: skip


def columns(path: Path) -> dict[str, list[tuple[str, str, int]]]:
    with closing(sqlite3.connect(path)) as connection:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        ]
        return {
            table: sorted(
                (name, kind, required)
                for _, name, kind, required, *_ in connection.execute(f"PRAGMA table_info({table})")
            )
            for table in tables
        }


def test_there_is_a_file_of_this_version() -> None:
    assert FILES[-1].name == f"ledger-{schema.REVISION}.sqlite"


@pytest.mark.parametrize("kept", FILES, ids=lambda path: path.stem)
def test_an_older_file_is_migrated_with_everything_it_held(kept: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    put(kept, path)
    with opened(path, tmp_path / "home") as memory:
        check_what_they_held(memory)
        memory.reset()
        assert memory.get_all(user_id="tom")["total"] == 0


@pytest.mark.parametrize("kept", FILES, ids=lambda path: path.stem)
def test_an_update_of_an_older_file_is_taken_back(kept: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    shutil.copy(kept, path)
    with opened(path, tmp_path / "home") as memory:
        for one in memory.get_all(user_id="tom", limit=1000)["results"]:
            for event in memory.history(one["id"]):
                if event["event"] == "UPDATE":
                    memory.update(one["id"], metadata={"later": True})
                    back = memory.undo(event["id"])
                    assert (back["memory"], back["metadata"]) == (event["old_memory"], {"later": True})
                    return
        pytest.fail("no update is kept in the file")


@pytest.mark.parametrize("kept", FILES, ids=lambda path: path.stem)
def test_a_migrated_file_has_the_schema_of_a_new_one(kept: Path, tmp_path: Path) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new" / "new.sqlite"
    put(kept, old)
    Ledger(old).close()
    Ledger(new).close()
    assert columns(old) == columns(new)


@pytest.mark.parametrize("kept", FILES, ids=lambda path: path.stem)
def test_a_migrated_file_has_no_digests_left_that_it_could_confirm_itself(kept: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(kept)) as connection:
        keyed = "secret" in {name for _, name, *_ in connection.execute("PRAGMA table_info(ledger)")}
        before = [digest for row in connection.execute("SELECT key, words FROM messages") for digest in row if digest]
    put(kept, tmp_path / "ledger.sqlite")
    Ledger(tmp_path / "ledger.sqlite").close()
    content = (tmp_path / "ledger.sqlite").read_bytes()
    assert {digest.encode() in content for digest in before} == {keyed}
