"""`get` and `get_all`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from support.contract import RECORD, added, check, texts

from graphmem import Memory
from graphmem.errors import (
    ValidationError,
)


def test_get_gives_the_memory_or_none(memory: Memory) -> None:
    uid = added(memory, {"role": "user", "content": "tea", "name": "Ann"}, agent_id="a", run_id="r")
    record = memory.get(uid)
    check(record, RECORD)
    assert (record["user_id"], record["agent_id"], record["run_id"]) == ("u1", "a", "r")
    for absent in ("no such", "", "x" * 10_000, "' OR 1=1"):
        assert memory.get(absent) is None
    for bad in (None, 7, b"x"):
        with pytest.raises(ValidationError):
            memory.get(bad)


def test_get_all_lists_the_newest_observation_first(memory: Memory) -> None:
    for month in (3, 1, 5, 2, 4):
        memory.add(f"month {month}", user_id="u1", timestamp=datetime(2024, month, 1))
    everything = memory.get_all(user_id="u1")
    assert texts(everything) == [f"month {month}" for month in (5, 4, 3, 2, 1)]
    assert everything["total"] == 5
    page = memory.get_all(user_id="u1", limit=2, offset=1)
    assert (texts(page), page["total"]) == (["month 4", "month 3"], 5)
    assert (texts(memory.get_all(user_id="u1", offset=9)), memory.get_all(user_id="u1", offset=9)["total"]) == ([], 5)
    for bad in ({"limit": 0}, {"limit": "2"}, {"offset": -1}, {"limit": 1, "top_k": 2}):
        with pytest.raises(ValidationError):
            memory.get_all(user_id="u1", **bad)


def test_get_all_gives_the_relations_that_the_listed_memories_state(make_memory: Any) -> None:
    memory = make_memory(extractor={"provider": "spacy"})
    for n, text in enumerate(("Anna lives in Oslo.", "Tom lives in Rome.", "Ida lives in Riga.")):
        memory.add(text, user_id="u1", metadata={"n": n}, timestamp=datetime(2024, 1 + n, 1))

    def list_targets(**options: Any) -> set[str]:
        return {relation["target"] for relation in memory.get_all(user_id="u1", **options)["relations"]}

    assert list_targets() == {"Oslo", "Rome", "Riga"}
    assert list_targets(filters={"n": 0}) == {"Oslo"}
    assert list_targets(filters={"n": 9}) == set()
    assert list_targets(top_k=1) == {"Riga"}
    assert list_targets(limit=1, offset=1) == {"Rome"}
