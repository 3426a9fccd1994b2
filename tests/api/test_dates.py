"""`as_of`, validity and expiration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from support.contract import JANUARY, JUNE, added, ids

from graphmem import Memory
from graphmem.commands.types import RestoreMemory, RetireMemory


def test_a_retired_memory_is_seen_as_of_its_time(memory: Memory) -> None:
    old = added(memory, "Anna lives in Rome", timestamp=JANUARY)
    new = added(memory, "Anna lives in Oslo", timestamp=JUNE)
    memory.engine.commit([RetireMemory(old, at=JUNE, reason="moved", successor=new)])
    list_ids = lambda **more: (
        ids(memory.search("Anna lives", user_id="u1", **more)),
        ids(memory.get_all(user_id="u1", **more)),
    )
    assert list_ids() == ([new], [new])
    assert list_ids(as_of="2024-03-01") == ([old], [old])
    assert list_ids(as_of=JANUARY - timedelta(seconds=1)) == ([], [])
    assert list_ids(as_of=JUNE) == ([new], [new])
    assert memory.get(old)["valid_to"] == "2024-06-01T00:00:00.000000+00:00"
    assert "Rome" not in memory.context("Where does Anna live?", user_id="u1")
    assert [event["event"] for event in memory.history(old)] == ["ADD", "RETIRE"]
    memory.engine.commit([RestoreMemory(old, "did not")])
    assert set(list_ids()[0]) == set(list_ids()[1]) == {old, new}
    assert memory.get(old)["valid_to"] is None
    assert memory.verify()["ok"]


def test_retired_memories_are_shown_and_counted_on_demand(memory: Memory) -> None:
    old = added(memory, "Anna lives in Rome", timestamp=JANUARY)
    new = added(memory, "Anna lives in Oslo", timestamp=JUNE)
    memory.engine.commit([RetireMemory(old, at=JUNE, reason="moved", successor=new)])
    hidden, shown = memory.get_all(user_id="u1"), memory.get_all(user_id="u1", show_retired=True)
    assert (ids(hidden), hidden["total"], hidden["retired"]) == ([new], 1, 1)
    assert (ids(shown), shown["total"], shown["retired"]) == ([new, old], 2, 1)
    assert shown["results"][1]["valid_to"] == "2024-06-01T00:00:00.000000+00:00"
    assert memory.get_all(user_id="u1", filters={"at": {"gte": JUNE.isoformat()}}).get("retired") is None
    assert memory.get_all(user_id="u1", as_of="2024-03-01") == memory.get_all(
        user_id="u1", as_of="2024-03-01", show_retired=True
    )
    found = memory.search("Anna lives in Rome", user_id="u1", show_retired=True)
    assert set(ids(found)) == {old, new}
    assert old in memory.graph(user_id="u1", show_retired=True)
    assert old not in memory.graph(user_id="u1")
    by_day = memory.count_by_day(user_id="u1", utc_offset=0, show_retired=True)
    assert [one["day"] for one in by_day] == ["2024-01-01", "2024-06-01"]
    assert (memory.stats()["listed"], memory.stats()["retired"]) == (1, 1)
    memory.delete(old, user_id="u1")
    assert "retired" not in memory.get_all(user_id="u1", show_retired=True)


def test_expired_memories_are_shown_on_demand(memory: Memory) -> None:
    valid_id = added(memory, "tea tomorrow", expiration_date=datetime.now(UTC) + timedelta(days=1))
    expired_id = added(memory, "tea yesterday", expiration_date="2020-12-31")
    for call in (
        lambda **more: memory.search("tea", user_id="u1", **more),
        lambda **more: memory.get_all(user_id="u1", **more),
    ):
        assert ids(call()) == [valid_id]
        assert set(ids(call(show_expired=True))) == {valid_id, expired_id}
    assert memory.get(expired_id)["expiration_date"].startswith("2020-12-31T23:59:59")
    memory.update(expired_id, expiration_date=None)
    assert set(ids(memory.search("tea", user_id="u1"))) == {valid_id, expired_id}
    memory.update(valid_id, expiration_date="2020-01-01")
    assert ids(memory.search("tea", user_id="u1")) == [expired_id]


def test_a_memory_is_visible_on_its_day_of_expiration(memory: Memory) -> None:
    today = added(memory, "tea", expiration_date=datetime.now(UTC).date())
    assert ids(memory.get_all(user_id="u1")) == [today]
