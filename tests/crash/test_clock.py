"""The clock of the machine jumps back an hour: while a folder is open, and between two openings.

Leases under a changed clock are in tests/stores/test_projection_worker.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from child import open_memory
from victims import assert_verified, in_memory

import graphmem.administration
import graphmem.engine
import graphmem.jobs.enrichment_lane
import graphmem.memory
from graphmem import Memory

HOUR = timedelta(hours=1)


class Clock(datetime):
    """A clock that is `behind` the machine's."""

    behind = timedelta(0)

    @classmethod
    def now(cls, tz=None) -> datetime:
        return datetime.now(tz) - cls.behind


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    for module in (graphmem.memory, graphmem.administration, graphmem.engine, graphmem.jobs.enrichment_lane):
        monkeypatch.setattr(module, "datetime", Clock)
    monkeypatch.setattr(Clock, "behind", timedelta(0))
    return Clock


@pytest.fixture
def home() -> Iterator[Path]:
    with in_memory() as folder:
        yield folder / "home"


def add(memory: Memory, text: str, key: str) -> dict:
    return memory.add({"role": "user", "content": text, "id": key}, user_id="u")["results"][0]


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("graph", ["ledger", "networkx"])
def test_the_clock_is_set_back(graph: str, reopened: bool, home: Path, clock: type[Clock]) -> None:
    memory = open_memory(home, graph=graph)
    first, deleted = (add(memory, text, text[:2])["id"] for text in ("Ada keeps zebrafinches", "Bob keeps mudskippers"))
    memory.add("Ada sings", user_id="u", wait=False)
    memory.rename_entity("ada", "Countess", user_id="u")
    clock.behind = HOUR
    if reopened:
        memory.close()
        memory = open_memory(home, graph=graph)
    with memory:
        assert add(memory, "Ada keeps zebrafinches", "Ad")["event"] == "NONE"
        later = add(memory, "Ada feeds pangolins", "3")["id"]
        memory.update(first, "Ada keeps nightjars")
        memory.delete(deleted)
        assert add(memory, "Bob keeps mudskippers", "Bo")["reason"] == "erased"
        assert memory.flush() == {"pending": []}
        assert [event["event"] for event in memory.history(first)] == ["ADD", "UPDATE"]
        assert [event["event"] for event in memory.history(deleted)] == ["ADD", "DELETE"]
        assert memory.get_all(user_id="u")["total"] == 3
        assert memory.get(later)["at"] < memory.get(first)["at"]
        for uid, word in ((later, "pangolins"), (first, "nightjars")):
            assert memory.search(word, user_id="u")["results"][0]["id"] == uid
        assert all(hit["id"] != deleted for hit in memory.search("mudskippers", user_id="u")["results"])
        assert_verified(memory)
        clock.behind = timedelta(0)
        memory.update(later, "Ada feeds hornbills")
        assert memory.search("hornbills", user_id="u")["results"][0]["id"] == later
        assert_verified(memory)
    with open_memory(home, graph=graph) as again:
        assert_verified(again)
        assert again.get_all(user_id="u")["total"] == 3


def test_the_name_chosen_last_is_the_one_whatever_the_clock_said(home: Path, clock: type[Clock]) -> None:
    with open_memory(home) as memory:
        add(memory, "Ada keeps zebrafinches. Quentin sings.", "1")
        memory.alias("ada", "quentin", user_id="u")
        memory.rename_entity("ada", "Countess", user_id="u")
        clock.behind = HOUR
        assert memory.rename_entity("quentin", "Duke", user_id="u")["name"] == "Duke"
        memory.unalias("ada", "quentin", user_id="u")
        assert memory.alias("ada", "quentin", user_id="u")["name"] == "Duke"
