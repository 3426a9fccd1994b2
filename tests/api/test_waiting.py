"""`wait`, `pending`, `strict`: how far a write waits for projections and models."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.contract import Make, added, ids, sqlite_rows, texts, with_embedder
from support.databases import SQLITE_ONLY
from support.fakes import hash_texts
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory
from graphmem.errors import (
    PartialWrite,
)
from graphmem.jobs import enrichment_lane, worker
from graphmem.stores.ledger import sqlite


def test_without_waiting_the_result_names_pending_projections_and_flush_waits_for_them(memory: Memory) -> None:
    response = memory.add("tea", user_id="u1", wait=False)
    assert set(response["pending"]) == {"vectors", "graph"}
    assert memory.get(ids(response)[0])["memory"] == "tea"
    assert memory.flush() == {"pending": []}
    assert memory.verify()["ok"]
    assert ids(memory.search("tea", user_id="u1")) == ids(response)


LAG = "SELECT ledger.seq - cursors.seq FROM ledger, cursors"


@SQLITE_ONLY
def test_closing_waits_for_background_work(tmp_path: Path, make_memory: Make) -> None:
    memory = make_memory(tmp_path)
    memory.add([f"memory {n}" for n in range(70)], user_id="u1", wait=False)
    memory.close()
    assert sqlite_rows(tmp_path, "SELECT count(*) FROM jobs") == [(0,)]


def test_a_short_text_does_not_wait_for_a_long_one(make_memory: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MAX_SHORT_CHARS", 100)
    started, go_on = threading.Event(), threading.Event()

    def embed(texts: list[str]) -> Any:
        if any(len(text) > 100 for text in texts):
            started.set()
            assert go_on.wait(TIMEOUT)
        return hash_texts(texts)

    memory = make_memory(**with_embedder(embed))
    memory.add("Anna met Clara. " * 10, user_id="ana", wait=False)
    assert started.wait(TIMEOUT)
    memory.add("tea", user_id="ben", wait=False)
    wait_until(lambda: memory.verify()["ledger"]["jobs"] == 1)
    assert memory.verify()["ledger"]["embeddings"] == 1
    go_on.set()
    assert memory.flush() == {"pending": []}
    assert memory.verify()["ledger"]["jobs"] == 0


def test_texts_of_several_users_take_turns_in_small_batches(make_memory: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat of thousands of messages holds up nobody else's message; those of one user keep their order."""
    monkeypatch.setattr(enrichment_lane, "BATCH", 4)
    monkeypatch.setattr(enrichment_lane, "SHARED_BATCH", 2)
    monkeypatch.setattr(enrichment_lane, "BATCH_CHARS", 60)
    started, go_on, batches = threading.Event(), threading.Event(), list[list[str]]()

    def embed(embedded: list[str]) -> Any:
        batches.append([text.removeprefix("Ana: ") for text in embedded])
        started.set()
        assert go_on.wait(TIMEOUT)
        return hash_texts(embedded)

    memory = make_memory(**with_embedder(embed))
    memory.add([f"tea {n}" for n in range(10)], user_id="ana", wait=False)
    assert started.wait(TIMEOUT)
    memory.add(["cocoa", "a cup of milk" + 50 * " ." + " 2", "juice"], user_id="ben", wait=False)
    go_on.set()
    assert memory.flush() == {"pending": []}
    users = [["tea" in text for text in batch] for batch in batches]
    # The first batch was taken before Ben's texts came. His second text is too long to share a batch.
    assert users == [[True] * 4, [True, False], [True], [False], [True, False], [True] * 3]
    assert [text for batch in batches for text in batch if "tea" in text] == [f"tea {n}" for n in range(10)]
    assert memory.verify()["ok"]
    assert memory.verify()["ledger"]["jobs"] == 0


def test_a_search_does_not_wait_for_calls_that_enrich(make_memory: Make) -> None:
    """However many calls wait for texts to be embedded, a search has threads of its own."""
    embedded, go_on = threading.Semaphore(0), threading.Event()

    def embed(texts: list[str]) -> Any:
        if any("held" in text for text in texts):
            embedded.release()
            assert go_on.wait(TIMEOUT)
        return hash_texts(texts)

    memory = make_memory(**with_embedder(embed))
    memory.add("tea", user_id="ben")
    with ThreadPoolExecutor(10) as callers:
        adds = [callers.submit(memory.add, f"held {n}", user_id="ana") for n in range(10)]
        try:
            assert embedded.acquire(timeout=TIMEOUT)
            found = callers_search(memory)
        finally:
            go_on.set()
        assert all(add.result(TIMEOUT)["results"] for add in adds)
    assert found == ["tea"]


def callers_search(memory: Memory) -> list[str]:
    """The texts that a search finds, within the time limit of a test."""
    with ThreadPoolExecutor(1) as caller:
        return texts(caller.submit(memory.search, "tea", user_id="ben").result(TIMEOUT))


def fail_to_embed(texts: list[str]) -> Any:
    raise RuntimeError("no model today")


def failing_after(calls: int) -> Callable[[list[str]], Any]:
    left = [calls]

    def embed(texts: list[str]) -> Any:
        left[0] -= 1
        return fail_to_embed(texts) if left[0] < 0 else hash_texts(texts)

    return embed


def test_with_a_failing_model_the_text_is_stored_and_pending(make_memory: Make) -> None:
    memory = make_memory(**with_embedder(fail_to_embed))
    response = memory.add("tea", user_id="u1")
    assert "vectors" in response["pending"]
    assert texts(memory.get_all(user_id="u1")) == ["tea"]
    assert "vectors" in memory.flush()["pending"]
    report = memory.verify()
    assert (report["ok"], report["failed"]) == (False, 1)


def test_the_log_has_the_cause_of_a_failing_embedder(make_memory: Make, caplog: pytest.LogCaptureFixture) -> None:
    memory = make_memory(**with_embedder(hash_texts, dims=32))
    memory.add("tea", user_id="u1")
    assert "(EmbeddingError: the embedder function returned vectors of 64 numbers where 32 are expected" in caplog.text


def test_verify_does_not_count_pending_work_as_a_fault(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.engine.job_worker, "enrich", lambda *_, **__: False)
    memory.add("tea", user_id="u1", wait=False)
    report = memory.verify()
    assert (report["ok"], report["failed"], report["ledger"]["jobs"]) == (True, 0, 1)


def test_strict_raises_with_the_result_when_something_is_pending(make_memory: Make) -> None:
    memory = make_memory(**with_embedder(fail_to_embed))
    with pytest.raises(PartialWrite) as caught:
        memory.add("tea", user_id="u1", strict=True)
    assert ids(caught.value.result) == ids(memory.get_all(user_id="u1"))
    assert caught.value.result["pending"]


def test_strict_does_not_raise_when_nothing_is_pending(memory: Memory) -> None:
    assert "pending" not in memory.add("tea", user_id="u1", strict=True)


def test_a_search_without_its_model_says_that_it_is_degraded(make_memory: Make) -> None:
    memory = make_memory(**with_embedder(failing_after(1)))
    uid = added(memory, "tea and cake")
    response = memory.search("cake", user_id="u1")
    assert (ids(response), response["degraded"]) == ([uid], ["vectors"])
    assert "degraded" not in make_memory().search("cake", user_id="u1")


@SQLITE_ONLY
def test_a_search_does_not_wait_for_another_process_that_holds_the_write_lock(
    tmp_path: Path, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 100 * TIMEOUT)
    memory = make_memory(tmp_path)
    uid = added(memory, "tea and cake")
    with (
        closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as other,
        ThreadPoolExecutor() as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        searches = [pool.submit(memory.search, "cake", user_id="u1") for _ in range(2)]
        try:
            responses = [search.result(TIMEOUT) for search in searches]
        finally:
            other.rollback()
    assert [(ids(response), "degraded" in response) for response in responses] == [([uid], False)] * 2
