"""Columns in memory answer as the tables do, whatever was changed since they were read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.columns import assert_columns_agree
from support.fakes import two_space_embedder

from graphmem import Memory
from graphmem.errors import GraphmemError
from graphmem.plugins import Embedder, embedding_spec_of
from graphmem.settings import Settings
from graphmem.stores.ledger.columns import PartitionColumns
from graphmem.testing import HashEmbedder, WordExtractor

TEXTS = (
    "Ann met Bob in Bergen",
    "Bob likes tea",
    "Ann likes tea",
    "Dora visited Ann",
    "I like Bergen",
    "Tea for Dora",
    "Bob met Böb in Tromsø",
)
START = datetime(2026, 3, 1, tzinfo=UTC)
SCOPES = ({"user_id": "ann"}, {"user_id": "ann", "agent_id": "helper"}, {"user_id": "ann", "run_id": "run-1"},
          {"user_id": "bob", "run_id": "run-1"}, {"agent_id": "helper", "run_id": "run-1"})  # fmt: skip
CONFIG = {"lifecycle": {"enabled": True, "daily_at": "never"}}
numbers = st.integers(0, 5)
changes = st.one_of(
    st.tuples(
        st.just("add"), st.sampled_from(SCOPES), st.lists(st.tuples(st.sampled_from(TEXTS), numbers), min_size=1)
    ),
    st.tuples(st.just("update"), numbers, st.sampled_from(TEXTS)),
    st.tuples(st.just("expire"), numbers, st.booleans()),
    st.tuples(st.sampled_from(("delete", "forget", "pin", "undo")), numbers),
    st.tuples(st.sampled_from(("delete_all", "tend", "repair", "rebuild", "reset", "alias")), st.sampled_from(SCOPES)),
)


@contextmanager
def opened(embedder: Embedder | None = None, path: Path | str = ":memory:", **config) -> Iterator[Memory]:
    """Opens a memory with models that answer in microseconds."""
    with (
        patch("graphmem.wiring._embedder", lambda _: embedder or HashEmbedder()),
        patch("graphmem.wiring._extractor", lambda _: WordExtractor()),
        Memory(path, settings=Settings.from_dict({**CONFIG, **config})) as memory,
    ):
        yield memory


def agree(memory: Memory) -> int:
    return assert_columns_agree(memory.engine.ledger, embedding_spec_of(memory.engine.backends.embedder))


def searched(memory: Memory, user: str = "ann") -> list[str]:
    return [hit["memory"] for hit in memory.search("Who likes tea?", user_id=user)["results"]]


def change(memory: Memory, call: str, *arguments) -> None:
    """Calls the memory; numbers choose among the memories that it holds."""
    ids = [one["id"] for scope in SCOPES for one in memory.get_all(**scope, limit=100)["results"]]
    if call == "add":
        scope, said = arguments
        at = [START + timedelta(hours=hours) for _, hours in said]
        messages = [
            {"role": "user", "content": text, "timestamp": when} for (text, _), when in zip(said, at, strict=True)
        ]
        memory.add(messages, **scope)
    elif call in {"delete_all", "tend"}:
        getattr(memory, call)(**arguments[0])
    elif call == "alias":
        memory.alias("Ann", "Dora", **arguments[0])
    elif call in {"repair", "rebuild", "reset"}:
        getattr(memory, call)()
    elif ids:
        uid = ids[arguments[0] % len(ids)]
        if call == "update":
            memory.update(uid, arguments[1])
        elif call == "expire":
            memory.update(uid, expiration_date=START if arguments[1] else None)
        elif call == "undo":
            memory.undo(memory.history(uid)[-1]["id"])
        else:
            getattr(memory, call)(uid)


@pytest.mark.parametrize("examples", [4, pytest.param(80, marks=pytest.mark.thorough)])
def test_columns_answer_as_the_tables_do_after_any_changes(examples):
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(sequence=st.lists(changes, min_size=6, max_size=12))
    def compare(sequence):
        with opened(two_space_embedder()) as memory:
            for call, *arguments in sequence:
                try:
                    change(memory, call, *arguments)
                except GraphmemError:
                    continue
                memory.flush()
                agree(memory)

    compare()


def test_what_another_process_changes_is_seen_by_the_next_search(tmp_path):
    with opened(path=tmp_path) as mine, opened(path=tmp_path) as theirs:
        ids = [one["id"] for one in theirs.add(list(TEXTS[:3]), user_id="ann")["results"]]
        assert searched(mine) == searched(mine) == searched(mine)
        theirs.delete(ids[1])
        theirs.update(ids[2], "Ann likes coffee and tea")
        theirs.add("Dora likes tea", user_id="ann")
        assert set(searched(mine)) == {TEXTS[0], "Ann likes coffee and tea", "Dora likes tea"}
        assert agree(mine)


def test_threads_that_add_and_search_leave_columns_that_agree():
    with opened() as memory, ThreadPoolExecutor(4) as pool:
        calls = [
            pool.submit(memory.add, f"{text} {number}", user_id="ann") if number % 2 else pool.submit(searched, memory)
            for number in range(10)
            for text in TEXTS
        ]
        for call in calls:
            call.result()
        assert agree(memory)


def test_what_a_search_of_earlier_columns_keeps_is_of_no_memory_that_changed():
    with opened() as memory:
        (one,) = memory.add("Bob likes tea", user_id="ann")["results"]
        ledger = memory.engine.ledger

        def present():
            memory.flush()
            with ledger.read() as connection:
                return ledger.columns.of(connection, "user:ann") or ledger.columns.of(connection, "user:ann")

        first = present()
        memory.add("Ann likes tea", user_id="ann")
        second = present()
        assert second.tokens is first.tokens
        memory.update(one["id"], "Bob likes coffee")
        third = present()
        row = third.candidates[third.positions_by_id[one["id"]]].row
        second.tokens.add("model", "tokens", {row: [b"of tea"]})
        assert row not in third.tokens.of("model", "tokens")


def test_an_erasure_leaves_nothing_in_memory():
    with opened() as memory:
        uid = memory.add("Bob likes tea", user_id="ann")["results"][0]["id"]
        assert searched(memory) == searched(memory)
        columns = memory.engine.ledger.columns
        assert columns.size_bytes > 0
        memory.delete(uid)
        assert columns.size_bytes == 0


def test_no_more_memory_is_used_than_configured():
    with opened(search_cache_mb=1) as memory:
        columns = memory.engine.ledger.columns
        for user in range(5):
            memory.add([f"{text} {number}" for text in TEXTS for number in range(16)], user_id=f"user {user}")
            assert searched(memory, f"user {user}") == searched(memory, f"user {user}")
            assert columns.size_bytes <= 2**20
        assert columns.size_bytes > 2**19


def test_a_partition_that_has_no_room_is_read_from_the_ledger_without_more_attempts():
    with opened(search_cache_mb=1) as memory:
        memory.add([f"{text} {number}" for text in TEXTS for number in range(50)], user_id="ann")
        columns = memory.engine.ledger.columns
        first = searched(memory)
        real = PartitionColumns.with_changes
        with patch.object(PartitionColumns, "with_changes", autospec=True, side_effect=real) as read:
            assert [searched(memory) for _ in range(4)] == [first] * 4
        assert read.call_count <= 1
        assert columns.size_bytes <= 2**20


def test_searches_read_the_ledger_where_nothing_is_kept():
    with opened(search_cache_mb=0) as memory:
        memory.add(list(TEXTS), user_id="ann")
        assert searched(memory) == searched(memory)
        assert memory.engine.ledger.columns.size_bytes == 0
