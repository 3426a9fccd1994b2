"""`close`, and calls that are running or come afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from support.contract import SCOPED, Make, added, damage, sqlite_rows, with_embedder
from support.databases import SQLITE_ONLY
from support.fakes import fake_models, hash_texts
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.errors import (
    GraphmemError,
    StoreUnavailable,
)
from graphmem.extraction.spacy import extractor
from graphmem.jobs import enrichment_lane, worker
from graphmem.stores.ledger import schema


def test_after_closing_every_call_raises_store_unavailable(make_memory: Make) -> None:
    memory = make_memory()
    uid = added(memory, "tea")
    memory.close()
    memory.close()
    calls = [
        *(lambda call=call: call(memory, user_id="u1") for call in SCOPED.values()),
        lambda: memory.get(uid), lambda: memory.update(uid, "x"), lambda: memory.delete(uid),
        lambda: memory.history(uid), lambda: memory.explain(uid), memory.flush, memory.stats, memory.verify,
        memory.repair, memory.rebuild, memory.reset,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(StoreUnavailable, match="closed"):
            call()


def test_leaving_the_with_block_closes(tmp_path: Path) -> None:
    with Memory(tmp_path, settings=Settings.from_dict(fake_models())) as memory:
        added(memory, "tea")
    with pytest.raises(StoreUnavailable):
        memory.stats()


@pytest.mark.thorough
@pytest.mark.parametrize("on_disk", [False, True])
def test_closing_under_a_running_call_lets_only_our_errors_out(
    tmp_path: Path, make_memory: Make, on_disk: bool
) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow(texts: list[str]) -> Any:
        started.set()
        assert go_on.wait(TIMEOUT)
        return hash_texts(texts)

    memory = make_memory(tmp_path if on_disk else None, **with_embedder(slow))
    caught: list[BaseException | None] = []

    def add() -> None:
        try:
            memory.add("tea", user_id="u1")
            caught.append(None)
        except BaseException as error:
            caught.append(error)

    adding = threading.Thread(target=add)
    adding.start()
    assert started.wait(TIMEOUT)
    closing = threading.Thread(target=memory.close)
    closing.start()
    closing.join(1)
    go_on.set()
    adding.join(TIMEOUT)
    closing.join(TIMEOUT)
    assert len(caught) == 1
    assert caught[0] is None or isinstance(caught[0], GraphmemError)


LONG_TEXT = "Anna met Clara in Lisbon on Monday. " * 500
SPACY = {"extractor": {"provider": "spacy"}}


@SQLITE_ONLY
def test_closing_leaves_a_long_text_between_two_batches_and_the_next_memory_finishes_it(
    tmp_path: Path, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    with_subjects = extractor._with_subjects
    memory = make_memory(tmp_path, **SPACY)

    def wait_for_close(nlp: Any, segments: Any) -> Any:
        batches.append(len(segments))
        wait_until(lambda: memory.engine._closed and memory.engine.job_worker._long._stopped.is_set())
        return with_subjects(nlp, segments)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "MAX_SHORT_CHARS", 100)
        patch.setattr(extractor, "_with_subjects", wait_for_close)
        memory.add(LONG_TEXT, user_id="u1", wait=False)
        wait_until(lambda: batches)
        memory.close()
    assert len(batches) == 1
    assert sqlite_rows(tmp_path, "SELECT count(*) FROM jobs") == [(1,)]
    reopened = make_memory(tmp_path, **SPACY)
    assert reopened.flush() == {"pending": []}
    assert "Clara" in {entity["name"] for entity in reopened.entities(user_id="u1")}


PROGRAM = """
import sys
from support.fakes import fake_models
from support.waiting import wait_until
from graphmem import Memory, Settings
from graphmem.extraction.spacy import extractor
from graphmem.stores.ledger import schema
from graphmem.jobs import enrichment_lane, worker

batches = []
with_subjects = extractor._with_subjects

def wait_for_the_end(nlp, segments):
    batches.append(None)
    print("batch", flush=True)
    wait_until(lambda: not memory.engine.pool.takes_tasks)
    return with_subjects(nlp, segments)

extractor._with_subjects = wait_for_the_end
worker.MAX_SHORT_CHARS = int(sys.argv[2])
memory = Memory(sys.argv[1], settings=Settings.from_dict(fake_models(extractor={"provider": "spacy"})))
memory.add("Anna met Clara in Lisbon on Monday. " * 500, user_id="u1", wait=False)
wait_until(lambda: batches)
"""


@pytest.mark.parametrize("max_short_chars", [100, pytest.param(1_000_000, marks=pytest.mark.thorough)])
def test_a_program_that_ends_without_closing_does_not_wait_for_a_text(tmp_path: Path, max_short_chars: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(max_short_chars)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment, check=False)
    assert (ended.returncode, ended.stdout) == (0, "batch\n"), ended.stderr
    assert sqlite_rows(tmp_path, "SELECT count(*) FROM jobs") == [(1,)]


@SQLITE_ONLY
def test_closing_a_damaged_ledger_logs_one_warning_and_releases_all_files(
    tmp_path: Path, make_memory: Make, caplog: pytest.LogCaptureFixture
) -> None:
    memory = make_memory(tmp_path)
    added(memory, "tea")
    damage(tmp_path)
    with pytest.raises(StoreUnavailable, match="it is damaged"):
        memory.get_all(user_id="u1")
    memory.close()
    assert ["it is damaged" in record.message for record in caplog.records] == [True]
    descriptors = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    assert not [path for path in descriptors if path.startswith(str(tmp_path))]


@pytest.mark.parametrize("config", [{}, {"graph_store": {"provider": "networkx"}}])
def test_a_receipt_without_pending_means_that_the_memory_is_erased_everywhere(
    make_memory: Make, config: dict[str, Any]
) -> None:
    memory = make_memory(**config)
    uid = added(memory, "tea")
    memory.search("tea", user_id="u1")
    assert "pending" not in memory.delete(uid)
    with memory.engine.ledger.read() as connection:
        assert connection.scalar(select(func.count()).select_from(schema.embeddings)) == 0


@pytest.mark.parametrize("config", [{}, {"graph_store": {"provider": "networkx"}}])
def test_after_a_reset_the_indexes_are_empty(make_memory: Make, config: dict[str, Any]) -> None:
    memory = make_memory(**config)
    added(memory, "tea")
    memory.search("tea", user_id="u1")
    memory.reset()
    assert not any(list(projection._sink.list_held(None)) for projection in memory.engine.projections)
    assert memory.search("tea", user_id="u1")["results"] == []


@pytest.mark.parametrize("path", ["", b"x", 7, "a\x00b"])
def test_a_path_that_cannot_be_one_is_our_error(path: Any) -> None:
    with pytest.raises(GraphmemError):
        Memory(path, settings=Settings.from_dict(fake_models()))


def test_closing_without_waiting_leaves_texts_to_the_next_memory(tmp_path: Path) -> None:
    """The first batch is held up until the memory closes; what comes after it is not begun."""
    begun, go_on, calls = threading.Event(), threading.Event(), list[list[str]]()

    def slow(texts: list[str]) -> Any:
        calls.append(texts)
        begun.set()
        assert go_on.wait(TIMEOUT)
        return hash_texts(texts)

    texts = [f"tea number {number}" for number in range(2 * enrichment_lane.BATCH)]
    memory = Memory(tmp_path, settings=Settings.from_dict(with_embedder(slow)))
    memory.add([{"role": "user", "content": text} for text in texts], user_id="u1", wait=False)
    assert begun.wait(TIMEOUT)
    closing = threading.Thread(target=lambda: memory.close(wait=False))
    closing.start()
    wait_until(lambda: memory.engine.job_worker._short._stopped.is_set())
    go_on.set()
    closing.join(TIMEOUT)
    assert sum(map(len, calls)) < len(texts)
    with Memory(tmp_path, settings=Settings.from_dict(with_embedder(slow))) as memory:
        assert memory.flush()["pending"] == []
        assert memory.verify()["ok"]
        assert memory.get_all(user_id="u1", limit=1000)["total"] == len(texts)
