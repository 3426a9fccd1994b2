"""The kept files of each schema version, and what all of them hold."""

from __future__ import annotations

import shutil
from pathlib import Path

from graphmem import Memory

# Of those that have a secret it lies beside them, under their own name.
FILES = sorted((Path(__file__).parents[1] / "data").glob("ledger-*.sqlite"))
MODEL = "hash"  # graphmem.testing.HashEmbedder, under this name


def put(kept: Path, path: Path) -> None:
    """Copies a kept file, and its secret."""
    shutil.copy(kept, path)
    if (key := kept.with_suffix(".key")).exists():
        shutil.copy(key, path.with_name("secret.key"))


def check_what_they_held(memory: Memory) -> None:
    found = [hit["memory"] for hit in memory.search("where is the lab?", user_id="tom")["results"]]
    assert found[0] == "Nordlicht is building a lab in Tromsø."
    assert len(found) == 2
    changed = next(one for one in memory.get_all(user_id="tom")["results"] if "lab" in one["memory"])
    assert [event["event"] for event in memory.history(changed["id"])] == ["ADD", "UPDATE"]
    again = {"role": "user", "name": "Tom", "content": "This will be forgotten.", "id": "3"}
    assert memory.add(again, user_id="tom", timestamp="2024-03-01")["results"][0]["reason"] == "erased"
    assert memory.verify()["ok"]
