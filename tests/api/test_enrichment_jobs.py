"""Texts of several callers, and of several processes, are enriched together, once, and apart from those that fail."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from support.contract import Make, ids, texts, with_embedder
from support.databases import SQLITE_ONLY
from support.fakes import hash_texts
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory
from graphmem.errors import ConfigError, EmbedderUnavailable, ModelError
from graphmem.models.callable import CallableEmbedder
from graphmem.stores.ledger import jobs, schema
from graphmem.stores.ledger.sql import now_micros

BAD = "poison"


class Embedder:
    """Embeds texts, fails at those with a bad word, and keeps what it was asked; can be held up."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.bad = BAD

    def __call__(self, batch: list[str]) -> Any:
        self.batches.append(batch)
        self.begun.set()
        assert self.go_on.wait(TIMEOUT)
        if any(self.bad in text for text in batch):
            raise RuntimeError("no")
        return hash_texts(batch)


@contextmanager
def adding(memory: Memory, embedder: Embedder, words: list[str]) -> Iterator[list[Future[Any]]]:
    """Adds texts of one user each: all but the first while the embedder is held up with that one."""
    embedder.go_on.clear()
    embedder.begun.clear()
    before = len(embedder.batches)
    with ThreadPoolExecutor(len(words)) as callers:
        adds = [callers.submit(memory.add, words[0], user_id="user 0")]
        assert embedder.begun.wait(TIMEOUT)
        adds += [callers.submit(memory.add, text, user_id=f"user {n}") for n, text in enumerate(words) if n]
        wait_until(lambda: len(memory.engine.job_worker._awaited._entries) == len(words) - 1)
        assert len(embedder.batches) == before + 1
        embedder.go_on.set()
        yield adds


def test_calls_that_come_while_a_text_is_embedded_share_the_next_batch(make_memory: Make) -> None:
    embedder = Embedder()
    memory = make_memory(**with_embedder(embedder))
    words = [f"tea number {n}" for n in range(6)]
    with adding(memory, embedder, words) as adds:
        responses = [add.result(TIMEOUT) for add in adds]
    assert [len(batch) for batch in embedder.batches] == [1, 5]
    assert not any("pending" in response for response in responses)
    for n, text in enumerate(words):
        assert texts(memory.search("tea number", user_id=f"user {n}")) == [text]
    assert memory.verify()["ok"]


def test_a_text_that_fails_in_a_shared_batch_is_pending_for_its_own_call_only(make_memory: Make) -> None:
    embedder = Embedder()
    memory = make_memory(**with_embedder(embedder))
    words = ["tea", "cocoa", BAD, "juice", "milk", "water", "coffee"]
    with adding(memory, embedder, words) as adds:
        responses = [add.result(TIMEOUT) for add in adds]
    assert [word for word, response in zip(words, responses, strict=True) if "pending" in response] == [BAD]
    report = memory.verify()
    assert (report["ok"], report["failed"], report["ledger"]["jobs"]) == (False, 1, 1)
    embedder.bad = "none"
    assert memory.flush() == {"pending": []}
    assert memory.verify()["ok"]


@pytest.mark.parametrize("wait", [True, False])
def test_a_text_that_fails_does_not_keep_others_of_a_list_back(make_memory: Make, *, wait: bool) -> None:
    embedder = Embedder()
    memory = make_memory(**with_embedder(embedder))
    words = [f"tea number {n}" for n in range(40)]
    words[17] = BAD
    memory.add(words, user_id="u", wait=wait)
    wait_until(lambda: memory.verify()["ledger"]["jobs"] == 1)
    assert memory.verify()["ledger"]["embeddings"] == 39
    assert texts(memory.search("tea number 39", user_id="u"))[0] == "tea number 39"
    assert memory.stats()["job_counts"] == [
        {"kind": "enrichment", "state": "failed", "number": 1, "oldest_seconds": pytest.approx(0, abs=TIMEOUT)}
    ]


def test_texts_that_failed_are_tried_again_without_another_call(
    make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "RETRY_BASE", 0.05)
    embedder = Embedder()
    memory = make_memory(**with_embedder(embedder))
    assert memory.add([BAD, "tea", BAD + " again"], user_id="u")["pending"]
    embedder.bad = "none"
    wait_until(lambda: memory.stats()["job_counts"] == [])
    wait_until(lambda: memory.stats()["pending"] == [])


@SQLITE_ONLY
def test_a_text_whose_commit_fails_is_tried_again_after_growing_pauses(make_memory: Make) -> None:
    embedder = Embedder()
    memory = make_memory(**with_embedder(embedder))
    ledger = memory.engine.ledger

    def waits() -> list[tuple[int, int]]:
        """The failed attempts of each job, and its pause in units of the first one."""
        pause = (schema.jobs.c.claimable_at - now_micros()) / (jobs.RETRY_BASE * 1_000_000)
        with ledger.read() as connection:
            found = connection.execute(select(schema.jobs.c.attempts, pause)).all()
        return [(attempts, math.ceil(units)) for attempts, units in found]

    with ledger.write() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER full BEFORE UPDATE OF embedding ON memories BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    assert memory.add("tea", user_id="u")["pending"]
    assert waits() == [(1, 1)]
    assert memory.engine.job_worker.enrich_recorded() == []  # not before the pause is over
    assert memory.flush()["pending"]
    assert waits() == [(2, 2)]
    assert memory.verify()["failed"] == 1
    assert len(embedder.batches) == 2
    with ledger.write() as connection:
        connection.exec_driver_sql("DROP TRIGGER full")
    assert memory.flush() == {"pending": []}
    assert memory.verify()["ok"]


def test_a_model_that_is_down_is_asked_no_more_than_three_times_for_any_number_of_texts(make_memory: Make) -> None:
    embedder = Embedder()
    embedder.bad = ""
    memory = make_memory(**with_embedder(embedder))
    memory.add([f"tea number {n}" for n in range(2000)], user_id="u", wait=False)
    wait_until(lambda: not memory.engine.job_worker._short._is_running)
    assert len(embedder.batches) == 3
    assert memory.verify()["ledger"]["jobs"] == 2000


def test_an_endpoint_that_cannot_be_reached_is_asked_once(make_memory: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def fail(_: Any, batch: list[str]) -> Any:
        asked.append(len(batch))
        raise EmbedderUnavailable("the embedding endpoint cannot be reached")

    monkeypatch.setattr(CallableEmbedder, "embed", fail)
    memory = make_memory(**with_embedder(hash_texts))
    assert memory.add(["tea", "cocoa", "milk"], user_id="u")["pending"] == ["vectors", "graph"]
    assert asked == [3]


@SQLITE_ONLY
def test_another_process_does_not_enrich_what_this_one_has_just_stored(tmp_path: Path, make_memory: Make) -> None:
    """Until the claim ends, as if the process had died."""
    embedder, others = Embedder(), Embedder()
    embedder.go_on.clear()
    memory = make_memory(tmp_path, **with_embedder(embedder))
    other = make_memory(tmp_path, **with_embedder(others))
    with ThreadPoolExecutor(1) as caller:
        add = caller.submit(memory.add, "tea", user_id="u")
        assert embedder.begun.wait(TIMEOUT)
        other.engine.job_worker.schedule()
        assert other.engine.job_worker.wait_for_texts(TIMEOUT)
        assert others.batches == []
        expire_claims(memory)
        other.engine.job_worker.schedule()
        wait_until(lambda: others.batches == [["tea"]])
        assert other.engine.job_worker.wait_for_texts(TIMEOUT)
        embedder.go_on.set()
        response = add.result(TIMEOUT)
    assert "pending" not in response
    assert ids(memory.search("tea", user_id="u")) == ids(response)
    assert memory.verify()["ok"]


def expire_claims(memory: Memory) -> None:
    with memory.engine.ledger.write() as connection:
        connection.exec_driver_sql("UPDATE jobs SET claimable_at = 0")


def test_a_text_that_changes_while_it_is_embedded_is_embedded_anew(make_memory: Make) -> None:
    embedder = Embedder()
    memory = make_memory(**with_embedder(embedder))
    embedder.go_on.clear()
    memory.add("tea", user_id="u", wait=False)
    assert embedder.begun.wait(TIMEOUT)
    with ThreadPoolExecutor(1) as caller:
        (uid,) = ids(memory.get_all(user_id="u"))
        update = caller.submit(memory.update, uid, "cocoa")
        wait_until(lambda: memory.get(uid)["memory"] == "cocoa")
        embedder.go_on.set()
        update.result(TIMEOUT)
    assert texts(memory.search("cocoa", user_id="u")) == ["cocoa"]
    assert memory.flush() == {"pending": []}
    assert memory.verify()["ok"]


@pytest.mark.parametrize("error", [ModelError("no parser"), ConfigError("no parser"), RecursionError()])
def test_whatever_the_extractor_raises_is_a_failure_that_verify_counts(
    make_memory: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail(*_: Any) -> None:
        raise error

    memory = make_memory(extractor={"provider": "spacy"})
    monkeypatch.setattr(memory.engine.backends.extractor, "extract", fail)
    assert memory.add("Clara paints boats.", user_id="u1")["pending"] == ["vectors", "graph"]
    memory.flush()
    report = memory.verify()
    assert (report["ok"], report["failed"]) == (False, 1)
    assert [one["state"] for one in memory.stats()["job_counts"]] == ["failed"]
    reason = "no parser" if isinstance(error, ModelError) else type(error).__name__
    assert [line for line in caplog.messages if "ModelError" in line and reason in line]
    monkeypatch.undo()
    assert memory.repair()["ok"]
