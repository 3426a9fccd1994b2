"""Exceptions raised by a signal's handler at any moment, such as a job's time limit: they reach the caller, and the
interrupted work is not recorded as refused.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import pytest
from child import open_memory
from support.fakes import fake_models
from support.waiting import TIMEOUT

from graphmem import Memory, Settings
from graphmem.errors import StoreUnavailable
from graphmem.testing import HashEmbedder, NumpyIndex


class TimeLimit(Exception):  # noqa: N818  (as celery's SoftTimeLimitExceeded is)
    """A job's soft time limit."""


KINDS = [TimeLimit, Exception, TimeoutError]


@contextmanager
def raising(kind: type[Exception], at: str) -> Iterator[None]:
    """Sends one signal, whose handler raises, when the main thread enters a function of this name."""
    raised = False

    def handle(*_: Any) -> None:
        raise kind("took too long")

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal raised
        if event == "call" and frame.f_code.co_name == at and not raised:
            raised = True
            signal.raise_signal(signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, handle)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGALRM, before)
    assert raised


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", ["points", "upsert"])
def test_no_row_becomes_a_dead_letter_for_a_signal(kind: type[Exception], at: str) -> None:
    config = Settings.from_dict(fake_models())
    with Memory(":memory:", settings=config, vector_index=NumpyIndex()) as memory:
        memory.add([f"Adam likes thing{n}" for n in range(5)], user_id="u")
        with pytest.raises(kind, match="took too long"), raising(kind, at):
            memory.rebuild("vectors")
        report = memory.verify()
        assert report["projections"]["vectors"]["dead_letters"] == []
        assert memory.flush() == {"pending": []}
        assert memory.verify()["ok"]
        assert memory.search("thing3", user_id="u")["results"]


@pytest.mark.parametrize("at", ["visible", "unread", "term_scores"])
def test_a_search_interrupted_by_a_signal_leaves_columns_that_answer(tmp_path: Path, at: str) -> None:
    with open_memory(tmp_path / "home") as memory:
        memory.add(["Adam likes tea", "Bella likes cocoa"], user_id="u")
        memory.search("tea", user_id="u")
        with pytest.raises(TimeLimit, match="took too long"), raising(TimeLimit, at):
            memory.search("tea", user_id="u")
        found = memory.search("tea", user_id="u")
        assert (found["results"][0]["memory"], "degraded" in found) == ("Adam likes tea", False)


@pytest.mark.parametrize("at", ["enrich_and_deliver", "enrich", "deliver"])
def test_a_write_interrupted_by_a_signal_is_stored(tmp_path: Path, at: str) -> None:
    with open_memory(tmp_path / "home") as memory:
        with pytest.raises(TimeLimit, match="took too long"), raising(TimeLimit, at):
            memory.add("Adam likes tea", user_id="u")
        assert memory.flush() == {"pending": []}
        assert [one["memory"] for one in memory.get_all(user_id="u")["results"]] == ["Adam likes tea"]
        assert memory.verify()["ok"]


def test_a_signal_during_embedding_is_no_embedding_error(tmp_path: Path) -> None:
    """The signal comes while the caller waits. Errors of the function itself are EmbeddingErrors, and pending."""

    struck = Event()

    def slow(texts: list[str]) -> list[Any]:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert struck.wait(TIMEOUT)
        return [HashEmbedder(8).embed_query(text) for text in texts]

    def handle(*_: Any) -> None:
        struck.set()
        raise TimeLimit

    config = {"embed": slow, "embedding_dims": 8, "model": "slow"}
    settings = Settings.from_dict(
        {"embedder": {"provider": "callable", "config": config}, "extractor": {"provider": "none"}}
    )
    before = signal.signal(signal.SIGALRM, handle)
    try:
        with Memory(tmp_path / "home", settings=settings) as memory:
            with pytest.raises(TimeLimit):
                memory.add("Adam likes tea", user_id="u")
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            assert memory.flush() == {"pending": []}
            assert memory.verify()["ok"]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_only_errors_of_a_client_library_are_translated() -> None:
    """Errors of Qdrant's client and of Neo4j's driver, and errors about values; a time limit is neither."""
    qdrant = pytest.importorskip("graphmem.stores.qdrant.client")
    server = pytest.importorskip("graphmem.stores.neo4j.client")
    for limit in (TimeLimit(), TimeoutError("took too long")):
        assert not qdrant._is_client_error(limit)
    for error in (ValueError(), OSError(5, "x"), RuntimeError("can't start new thread"), ConnectionError()):
        assert qdrant._is_client_error(error)
    assert qdrant._failure_of(RuntimeError()) == qdrant._failure_of(OSError(5, "x")) == "unreachable"
    assert qdrant._failure_of(ValueError()) == "refused"
    neo4j = server.Neo4jClient("bolt://127.0.0.1:1", "neo4j", "x", "neo4j", user_agent="test")
    for limit in (TimeLimit(), TimeoutError("took too long")):
        with pytest.raises(type(limit)), neo4j._translated_errors():
            raise limit
    with pytest.raises(StoreUnavailable), neo4j._translated_errors():
        raise ConnectionResetError(104, "reset")
    neo4j.close()
