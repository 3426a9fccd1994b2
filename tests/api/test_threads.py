"""Several threads on one memory."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from support.contract import Make, added, ids
from support.waiting import TIMEOUT

from graphmem import AsyncMemory, ChatLink, Memory
from graphmem.errors import ModelError
from graphmem.extraction.spacy.extractor import SpacyExtractor
from graphmem.models.two_spaces import TwoSpaceEmbedder


@pytest.mark.parametrize("on_disk", [False, True])
def test_threads_may_share_a_memory(tmp_path: Path, make_memory: Make, on_disk: bool) -> None:
    memory = make_memory(tmp_path if on_disk else None)
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for n in range(5):
                uid = added(memory, f"{name} tea {n}", user_id=name)
                memory.search("tea", user_id=name)
                if n % 2:
                    memory.delete(uid)
                else:
                    memory.update(uid, f"{name} cake {n}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"u{n % 3}",)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert memory.stats()["memories"] == 15
    assert memory.verify()["ok"]


def test_a_memory_is_neither_pickled_nor_copied(memory: Memory) -> None:
    for part in (memory, AsyncMemory(sync=memory), ChatLink(memory, user_id="u1")):
        for act in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="a Memory cannot be pickled or copied, .*; open one in each process"):
                act(part)


def test_one_message_id_added_by_many_threads_is_stored_once(memory: Memory) -> None:
    responses: list[Any] = []
    message = {"role": "user", "content": "tea", "id": "m1"}
    threads = [threading.Thread(target=lambda: responses.append(memory.add(message, user_id="u1"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one["results"][0]["event"] for one in responses) == ["ADD"] + ["NONE"] * 5
    assert len({ids(one)[0] for one in responses}) == 1


def test_models_are_loaded_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    both_load = Barrier(2)
    loaded: list[str] = []

    def load(self: object, _: object) -> None:
        both_load.wait(TIMEOUT)
        loaded.append(type(self).__name__)

    monkeypatch.setattr(SpacyExtractor, "extract", load)
    monkeypatch.setattr(TwoSpaceEmbedder, "embed_question", load)
    with Memory(":memory:") as memory:
        memory.engine.backends.load_models()
    assert sorted(loaded) == ["SpacyExtractor", "TwoSpaceEmbedder"]


@pytest.mark.parametrize("broken", [SpacyExtractor, TwoSpaceEmbedder])
def test_a_model_that_cannot_be_loaded_leaves_the_other_loaded(monkeypatch: pytest.MonkeyPatch, broken: type) -> None:
    loaded: list[str] = []

    def load(self: object, _: object) -> None:
        if isinstance(self, broken):
            raise ModelError("broken")
        loaded.append(type(self).__name__)

    monkeypatch.setattr(SpacyExtractor, "extract", load)
    monkeypatch.setattr(TwoSpaceEmbedder, "embed_question", load)
    with Memory(":memory:") as memory:
        memory.engine.backends.load_models()
    assert len(loaded) == 1
