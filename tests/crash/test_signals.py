"""What the handler of a signal raises, at any moment and in a class of its own, such as a job's time limit: it reaches
the caller, and nothing of what was under way is taken for refused.
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
from qdrant_edge import EdgeShard
from support.waiting import PATIENCE

from graphmem import Memory, Settings
from graphmem.errors import StoreError, StoreUnavailable
from graphmem.stores.qdrant import embedded
from graphmem.stores.qdrant.embedded import EmbeddedIndex
from graphmem.testing import HashEmbedder


class TimeLimit(Exception):  # noqa: N818  (as celery's SoftTimeLimitExceeded is)
    """A job's soft time limit."""


KINDS = [TimeLimit, Exception, TimeoutError]


@contextmanager
def raising(kind: type[Exception], at: str) -> Iterator[None]:
    """A signal comes when a function of this name is entered in the main thread, once; its handler raises."""
    sent = False

    def handle(*_: Any) -> None:
        raise kind("took too long")

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal sent
        if event == "call" and frame.f_code.co_name == at and not sent:
            sent = True
            signal.raise_signal(signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, handle)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGALRM, before)
    assert sent


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", ["_edge_points", "_keep_private"])
def test_no_row_becomes_a_dead_letter_for_it(tmp_path: Path, kind: type[Exception], at: str) -> None:
    with open_memory(tmp_path / "home") as memory:
        memory.add([f"Adam likes thing{n}" for n in range(5)], user_id="u")
        with pytest.raises(kind, match="took too long"), raising(kind, at):
            memory.rebuild("vectors")
        found = memory.verify()
        assert found["projections"]["vectors"]["dead_letters"] == []
        assert memory.flush() == {"pending": []}
        assert memory.verify()["ok"]
        assert memory.search("thing3", user_id="u")["results"]


def test_an_index_is_not_thrown_away_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the opening, where whatever is wrong with the folder makes a new one."""
    with open_memory(tmp_path / "home") as memory:
        memory.add("Adam likes tea", user_id="u")
    load = EdgeShard.load

    def slow(*given: Any) -> Any:
        with raising(TimeLimit, "some_time"):
            some_time()
        return load(*given)

    monkeypatch.setattr(embedded.EdgeShard, "load", slow, raising=False)
    before = sorted((tmp_path / "home" / "vectors").rglob("*"))
    with pytest.raises(TimeLimit, match="took too long"):
        open_memory(tmp_path / "home")
    assert sorted((tmp_path / "home" / "vectors").rglob("*")) == before
    monkeypatch.undo()
    with open_memory(tmp_path / "home") as memory:
        assert memory.search("tea", user_id="u")["results"]


def some_time() -> None:
    pass


@pytest.mark.parametrize("at", ["enrich_and_deliver", "compute", "deliver"])
def test_a_write_is_broken_off_by_it_and_kept(tmp_path: Path, at: str) -> None:
    with open_memory(tmp_path / "home") as memory:
        with pytest.raises(TimeLimit, match="took too long"), raising(TimeLimit, at):
            memory.add("Adam likes tea", user_id="u")
        assert memory.flush() == {"pending": []}
        assert [one["memory"] for one in memory.get_all(user_id="u")["results"]] == ["Adam likes tea"]
        assert memory.verify()["ok"]


def test_an_embedder_that_is_slow_is_not_blamed_for_it(tmp_path: Path) -> None:
    """The limit strikes while the caller waits; the function's own errors are EmbeddingErrors, and pending."""

    struck = Event()

    def slow(texts: list[str]) -> list[Any]:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert struck.wait(PATIENCE)
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


def test_what_edge_says_itself_is_still_told(tmp_path: Path) -> None:
    index = EmbeddedIndex(tmp_path / "index", 8)
    index._shard.close()
    with pytest.raises(StoreError, match="verify"):
        index.count()


def test_files_that_cannot_be_used_are_no_refusal_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = EmbeddedIndex(tmp_path / "index", 8)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(EmbeddedIndex, "_keep_private", full)
    with pytest.raises(StoreUnavailable, match="No space left"):
        index._unflushed = True
        index.delete(["a"])
    monkeypatch.undo()
    index.close()


def test_what_is_the_clients_of_a_server() -> None:
    """Of Qdrant's client and of Neo4j's driver: their own errors, and those about values. A limit is neither."""
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
