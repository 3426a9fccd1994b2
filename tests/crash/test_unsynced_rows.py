"""A power cut after an `add`, whose derived rows are committed without a sync: what was said is not lost with them."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import power
import pytest
import sqlalchemy
from child import SEEDS, open_memory, settings

SAID = "delta Dora Amber moonladder"
FULL, NORMAL = 2, 1


def copying(home: Path, synced: Path) -> dict[str, Any]:
    """An embedder that copies the folder while it embeds: what is there then was committed before, and synced."""
    section = settings(home).embedder.config
    copied: list[int] = []

    def embed(texts: list[str]) -> Any:
        if texts == [SAID] or any(SAID in text for text in texts):
            power.copy(home, synced)
            copied.append(1)
        return section.embed(texts)

    return {
        "copied": copied,
        "embedder": {
            "provider": "callable",
            "config": {"embed": embed, "embedding_dims": section.embedding_dims, "model": section.model},
        },
    }


@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0])
@pytest.mark.quick
def test_a_power_cut_loses_derived_rows_at_most(kept: float, tmp_path: Path) -> None:
    home, synced, left = tmp_path / "home", tmp_path / "synced", tmp_path / "left"
    with open_memory(home) as memory:
        memory.add([{"role": "user", "content": text} for text in SEEDS], user_id="u")
    parts = copying(home, synced)
    with open_memory(home, embedder=parts["embedder"]) as memory:
        added = memory.add(SAID, user_id="u")
        assert "pending" not in added and parts["copied"]
        power.copy(home, left)  # as it is, without the sync of a close
    power.cut_power(left, synced, kept, random.Random(kept))
    with closing(sqlite3.connect(left / "ledger.sqlite")) as ledger:
        derived = ledger.execute("SELECT count(*) FROM memories WHERE embedding IS NOT NULL").fetchone()[0]
        tasks = ledger.execute("SELECT count(*) FROM jobs WHERE kind = 'enrichment'").fetchone()[0]
    assert derived + tasks == len(SEEDS) + 1  # each text has its vectors or the task to compute them
    assert derived == len(SEEDS) + (kept == 1) or kept == 0.5
    shutil.rmtree(home)
    left.rename(home)
    with open_memory(home) as memory:
        memory.flush()
        assert memory.get(added["results"][0]["id"])["memory"] == SAID
        assert [hit["memory"] for hit in memory.search(SAID, user_id="u", top_k=1)["results"]] == [SAID]
        assert {one["name"] for one in memory.entities(user_id="u")} >= {"Dora", "Amber"}
        assert memory.verify()["ok"]


@pytest.mark.quick
def test_only_derived_rows_are_committed_without_a_sync(tmp_path: Path) -> None:
    modes: list[int] = []

    def note(connection: sqlalchemy.Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        if connection.get_execution_options()["graphmem_begin"] == "BEGIN IMMEDIATE":
            modes.append(driver.execute("PRAGMA synchronous").fetchone()[0])

    with open_memory(tmp_path / "home") as memory:
        memory.add(SEEDS[0], user_id="u")
        sqlalchemy.event.listen(sqlalchemy.engine.Engine, "commit", note)
        try:
            memory.add(SEEDS[1], user_id="u")
            added = list(modes)
            memory.delete(memory.get_all(user_id="u")["results"][0]["id"])
            deleted = modes[len(added) :]
        finally:
            sqlalchemy.event.remove(sqlalchemy.engine.Engine, "commit", note)
    assert added[:2] == [FULL, NORMAL]
    assert deleted and set(deleted) <= {FULL}
