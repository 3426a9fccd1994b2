"""A chat goes on as without memory, whatever fails in it: thirty causes, each while a chat is going on."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.databases import SQLITE_ONLY
from support.service import client_of, headers
from support.waiting import TIMEOUT

from graphmem import Memory, chat_worker
from graphmem.chat_worker import ChatWorker
from graphmem.errors import EmbeddingError, GraphmemError, StoreUnavailable
from graphmem.retrieval import context
from graphmem.service import limits, middleware
from graphmem.service.calls import CallPool
from graphmem.service.keys import Keys
from graphmem.service.proxy import proxy
from graphmem.stores.ledger import Ledger
from graphmem.testing import ModelEndpoint, behaviours

# Seconds that a request may wait for memories in these tests.
TIME_LIMIT = 0.3
LEDGER_FILE = "ledger.sqlite"


@dataclass
class Scene:
    """A memory in a folder, of which chats are served, and what a cause needs to break it."""

    memory: Memory
    folder: Path
    patch: pytest.MonkeyPatch
    llm: ModelEndpoint
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def engine(self) -> Any:
        return self.memory.engine

    def fails(self, owner: Any, name: str, error: BaseException | type[BaseException]) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        self.patch.setattr(owner, name, fail)

    def hangs(self, owner: Any, name: str) -> None:
        self.patch.setattr(owner, name, lambda *_, **__: self.released.wait(TIMEOUT) and None)


def close(scene: Scene) -> None:
    scene.memory.close()


def delete_the_folder(scene: Scene) -> None:
    shutil.rmtree(scene.folder, ignore_errors=True)


def overwrite_the_ledger(scene: Scene) -> None:
    with closing(sqlite3.connect(scene.folder / LEDGER_FILE)) as other, other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file = scene.folder / LEDGER_FILE
    with file.open("r+b") as opened:  # a mapped file that is truncated would end the process
        opened.write(b"x" * file.stat().st_size)


def drop_the_tables(scene: Scene) -> None:
    with closing(sqlite3.connect(scene.folder / LEDGER_FILE)) as other, other:
        for table in ("settings", "api_keys", "memories"):
            other.execute(f"DROP TABLE {table}")


def odd_settings(scene: Scene) -> None:
    with closing(sqlite3.connect(scene.folder / LEDGER_FILE)) as other, other:
        other.execute("INSERT INTO settings VALUES ('', 'top_k', '\"many\"', 'somebody', 0)")


@contextmanager
def locked_by_another_process(scene: Scene) -> Iterator[None]:
    other = sqlite3.connect(scene.folder / LEDGER_FILE)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.close()


CAUSES: dict[str, Callable[[Scene], Any]] = {
    "memory closed": close,
    "folder deleted": delete_the_folder,
    "ledger overwritten": overwrite_the_ledger,
    "tables dropped": drop_the_tables,
    "ledger locked": locked_by_another_process,
    "settings of another kind": odd_settings,
    "ledger cannot be read": lambda scene: scene.fails(scene.memory.engine.ledger, "read", StoreUnavailable("gone")),
    "ledger cannot be written": lambda scene: scene.fails(Ledger, "write", StoreUnavailable("disk full")),
    "reading the ledger hangs": lambda scene: scene.hangs(scene.memory.engine.ledger, "read"),
    "writing the ledger hangs": lambda scene: scene.hangs(Ledger, "write"),
    "keys cannot be read": lambda scene: scene.fails(Keys, "find", StoreUnavailable("gone")),
    "reading keys hangs": lambda scene: scene.hangs(Keys, "find"),
    "reading settings fails": lambda scene: scene.fails(proxy, "settings_in_force", StoreUnavailable("gone")),
    "reading settings hangs": lambda scene: scene.hangs(proxy, "settings_in_force"),
    "too many calls": lambda scene: scene.fails(CallPool, "submit", StoreUnavailable("full")),
    "search fails": lambda scene: scene.fails(chat_worker, "search", StoreUnavailable("gone")),
    "search breaks": lambda scene: scene.fails(chat_worker, "search", RuntimeError("a private text")),
    "search hangs": lambda scene: scene.hangs(chat_worker, "search"),
    "embedding fails": lambda scene: scene.fails(scene.engine.search_deps.embedder, "embed_query", EmbeddingError("x")),
    "embedding breaks": lambda scene: scene.fails(scene.engine.search_deps.embedder, "embed_query", MemoryError),
    "embedding hangs": lambda scene: scene.hangs(scene.engine.search_deps.embedder, "embed_query"),
    "making the block breaks": lambda scene: scene.fails(context, "context_block", ValueError("a private text")),
    "recalls cannot begin": lambda scene: scene.fails(ChatWorker, "_start", StoreUnavailable("no thread")),
    "recalling breaks": lambda scene: scene.fails(ChatWorker, "arecall_steps", TypeError("a private text")),
    "storing cannot begin": lambda scene: scene.fails(ChatWorker, "store_part", StoreUnavailable("no thread")),
    "storing breaks": lambda scene: scene.fails(Memory, "add", RuntimeError("a private text")),
    "storing hangs": lambda scene: scene.hangs(Memory, "add"),
    "language model fails": lambda scene: scene.llm.then(*[behaviours.failed(500)] * 9),
    "language model answers nonsense": lambda scene: scene.llm.then(*["\x00{" * 1000] * 9),
    "language model hangs": lambda scene: scene.llm.then(*[behaviours.silent()] * 9),
    "rate limits cannot be counted": lambda scene: scene.fails(
        middleware.SlidingWindowCounterRateLimiter, "hit", middleware.StorageError(OSError())
    ),
}


QUICK = ("memory closed", "ledger locked", "reading keys hangs", "search hangs", "search breaks")


@SQLITE_ONLY
@pytest.mark.parametrize(
    "cause", [pytest.param(one, marks=[] if one in QUICK else [pytest.mark.thorough]) for one in CAUSES]
)
def test_a_chat_goes_on_without_memory(
    make_memory: Callable[..., Memory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    monkeypatch.setattr(limits, "KEY_SECONDS", 0.1)
    monkeypatch.setattr(limits, "STALLED_SECONDS", 0.1)
    with ModelEndpoint() as llm, ModelEndpoint(default="I see.") as upstream:
        config = {"model": "m", "openai_base_url": llm.url, "timeout": 1}
        memory = make_memory(tmp_path / "home", llm={"provider": "openai", "config": config})
        memory.add("The pottery course is on Friday.", user_id="ana", infer=False)
        settings = {"upstream_url": upstream.url, "time_limit": TIME_LIMIT}
        scene = Scene(memory, tmp_path / "home", monkeypatch, llm)
        with client_of(memory, role=None, proxy=settings) as client:
            client.headers.update(headers(memory, "user", user_id="ana"))

            def ask(text: str) -> Any:
                messages = [{"role": "user", "content": text}]
                return client.post("/v1/chat/completions", json={"model": "m", "messages": messages})

            assert ask("When is pottery?").headers["x-graphmem"] == "on; memories=1"
            broken = CAUSES[cause](scene)
            with broken or threading.Lock():
                answer = ask("And then?")
                assert answer.status_code == 200, answer.text
                assert answer.json()["choices"][0]["message"]["content"] == "I see."
                assert answer.headers["x-graphmem"].startswith("on; ")
                assert upstream.requests[-1].body["messages"][-1] == {"role": "user", "content": "And then?"}
                scene.released.set()
        monkeypatch.undo()
        with suppress(GraphmemError):  # the index in a deleted folder
            memory.close()
