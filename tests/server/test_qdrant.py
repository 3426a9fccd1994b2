"""A Qdrant server shared by ledgers, applications and processes; a server that changes, hangs or is stopped."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import numpy as np
import pytest
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, Settings
from graphmem.errors import ConfigError, StoreError, StoreUnavailable
from graphmem.model import EmbeddingSpec
from graphmem.plugins import StoreLost

sys.path.insert(0, str(Path(__file__).parents[1] / "stores"))

from graphmem.testing.conformance.vector_index import (
    DIMS,
    MULTILINGUAL_DIMS,
    Scope,
    at_cosine,
    in_both_spaces,
    in_multilingual_space,
    point,
    random_points,
    search_dense,
    search_multilingual,
    search_sparse,
    uid,
    unit_vector,
    view,
)  # noqa: E402

URL = os.environ.get("QDRANT_URL", "")
GRPC_PORT = int(os.environ.get("QDRANT_GRPC_PORT", "6334"))
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not URL, reason="set QDRANT_URL (and QDRANT_GRPC_PORT) to a Qdrant server's"),
]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    from qdrant_client import QdrantClient

    with closing(QdrantClient(URL, check_compatibility=False)) as client:
        yield client


@pytest.fixture
def name(client: Any) -> Iterator[str]:
    """A collection's name, this test's own."""
    name = f"graphmem-test-{uuid4().hex}"
    yield name
    client.delete_collection(name)


@pytest.fixture(params=[False, True], ids=["rest", "grpc"])
def open_index(request: pytest.FixtureRequest, name: str) -> Iterator[Callable[..., Any]]:
    """`open_index(ledger=None, model="fake", dims=DIMS, multilingual=None, **server)`: an index on its collection."""
    from graphmem.stores.qdrant.client import QdrantOptions
    from graphmem.stores.qdrant.server import ServerIndex

    opened: list[Any] = []

    def open_one(
        ledger: str | None = None,
        model: str = "fake",
        dims: int = DIMS,
        multilingual: str | None = None,
        **more: Any,
    ) -> Any:
        spec = EmbeddingSpec(model, dims, multilingual=multilingual, multilingual_dims=MULTILINGUAL_DIMS)
        options = {"url": URL, "collection": name, "grpc_port": GRPC_PORT, "prefer_grpc": request.param, **more}
        opened.append(ServerIndex(QdrantOptions(**options), ledger or str(uuid4()), spec))
        return opened[-1]

    yield open_one
    for index in opened:
        index.close()


# --- shared collections -----------------------------------------------------------------------------------------------


def test_two_ledgers_in_one_collection_never_see_each_other(open_index: Callable[..., Any]) -> None:
    one, other = open_index(), open_index()
    one.upsert([point(1), point(2, unit_vector(1), unit_vector(0, 1))])
    other.upsert([point(1, unit_vector(0, 1), weights={8: 1.0}, seq=40)])
    assert (one.count(), other.count()) == (3, 1)
    assert sorted(one.list_held()) == [(uid(1), 2, 1), (uid(2), 3, 2)]
    assert list(other.list_held()) == list(other.list_held(["user:alice"])) == [(uid(1), 40, 1)]
    assert search_dense(one) == search_sparse(one) == [uid(1), uid(2)]
    assert (search_dense(other), search_sparse(other)) == ([uid(1)], [])
    assert search_dense(other, view(anywhere=True)) == [uid(1)]
    assert other.delete([uid(1), uid(2)]) == 1
    other.wipe()
    assert (one.count(), other.count()) == (3, 0)
    one.wipe()
    assert one.count() == 0


def test_a_collection_of_another_application_is_left_as_it_is(
    client: Any, name: str, open_index: Callable[..., Any]
) -> None:
    from qdrant_client import models

    client.create_collection(
        name, models.VectorParams(size=4, distance=models.Distance.DOT), metadata={"owner": "someone"}
    )
    client.upsert(name, [models.PointStruct(id=1, vector=[1, 2, 3, 4], payload={"memory": uid(1)})])
    before = client.get_collection(name)
    for use in (
        lambda index: index.check(),
        lambda index: index.upsert([point(1)]),
        lambda index: index.wipe(),
        lambda index: index.delete([uid(1)]),
        lambda index: index.count(),
    ):
        with pytest.raises(ConfigError, match=r"not graphmem's.*choose another vector_store.config.collection_name"):
            use(open_index())
    assert client.get_collection(name).config == before.config
    assert client.count(name).count == 1


@pytest.mark.parametrize(("model", "dims"), [("other", DIMS), ("fake", DIMS * 2)])
def test_a_collection_of_another_model_is_not_mixed_with(open_index: Callable[..., Any], model: str, dims: int) -> None:
    first, second = open_index(), open_index(model=model, dims=dims)
    first.upsert([point(1)])
    for use in (second.check, second.count, second.wipe, lambda: second.upsert([point(2)])):
        with pytest.raises(ConfigError, match="holds vectors of 8 dimensions of 'fake'.*choose another") as caught:
            use()
        assert f"gives {dims} of '{model}'" in str(caught.value)
    assert list(first.list_held()) == [(uid(1), 2, 1)]


def test_a_ledger_alone_may_change_its_model(open_index: Callable[..., Any]) -> None:
    ledger = str(uuid4())
    before = open_index(ledger)
    before.upsert([point(1)])
    after = open_index(ledger, model="other", dims=DIMS * 2)
    after.wipe()
    wide = np.eye(DIMS * 2, dtype=np.float32)[0]
    after.upsert([point(1, wide)])
    assert after.dense(view(), wide, 3) == [(uid(1), pytest.approx(1))]
    with pytest.raises(ConfigError, match="16 dimensions of 'other'"):
        open_index(ledger).count()


def test_a_newer_schema_is_refused(client: Any, name: str, open_index: Callable[..., Any]) -> None:
    open_index().check()
    marker = client.get_collection(name).config.metadata["graphmem"]
    client.update_collection(name, metadata={"graphmem": {**marker, "schema": 2}})
    with pytest.raises(StoreError, match="upgrade") as caught:
        open_index().wipe()
    assert not isinstance(caught.value, StoreUnavailable)


def test_a_collection_of_one_space_serves_without_the_other_until_it_is_empty(
    client: Any, name: str, open_index: Callable[..., Any]
) -> None:
    old = open_index()
    old.upsert([point(1)])
    index = open_index(multilingual="fake-m")
    index.upsert([in_both_spaces(1, 0), in_multilingual_space(2, 0)])
    assert (search_dense(index), search_sparse(index), search_multilingual(index)) == ([uid(1)], [uid(1), uid(2)], [])
    index.wipe()
    assert search_dense(old) == [uid(1)]
    old.wipe()
    index.wipe()
    index.upsert([in_both_spaces(1, 0), in_multilingual_space(2, 0)])
    assert search_multilingual(index) == [(uid(1), 1.0), (uid(2), 1.0)]
    assert client.get_collection(name).config.metadata["graphmem"]["multilingual"] == "fake-m"


def test_several_processes_may_create_the_collection_at_once(name: str, open_index: Callable[..., Any]) -> None:
    program = (
        "import sys; from graphmem.stores.qdrant.server import *\n"
        "spec = EmbeddingSpec('fake', 8)\n"
        "index = ServerIndex(QdrantOptions(sys.argv[1], collection=sys.argv[2]), sys.argv[3], spec)\n"
        "print(index.count()); index.close()"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, URL, name, str(uuid4())], stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in processes] == [b"0"] * 3
    index = open_index()
    index.upsert([point(1)])
    assert search_dense(index) == [uid(1)]


# --- changes by others ------------------------------------------------------------------------------------------------


def test_a_deleted_collection_is_lost_until_it_is_filled_again(
    client: Any, name: str, open_index: Callable[..., Any]
) -> None:
    index = open_index()
    index.upsert([point(1)])
    client.delete_collection(name)
    for use in (
        index.count,
        lambda: search_dense(index),
        lambda: search_sparse(index),
        lambda: list(index.list_held()),
        lambda: index.upsert([point(2)]),
        lambda: index.delete([uid(1)]),
    ):
        with pytest.raises(StoreLost, match="gone"):
            use()
    index.wipe()
    index.upsert([point(1), point(2)])
    assert search_dense(index) == search_sparse(index) == [uid(1), uid(2)]


def test_missing_field_indexes_are_made(client: Any, name: str, open_index: Callable[..., Any]) -> None:
    open_index().check()
    client.delete_payload_index(name, "agent_id")
    open_index().check()
    fields = client.get_collection(name).payload_schema
    assert "agent_id" in fields
    assert fields["partition"].params.is_tenant


# --- stored data ------------------------------------------------------------------------------------------------------


def test_no_text_or_metadata_reaches_the_server(client: Any, name: str, open_index: Callable[..., Any]) -> None:
    open_index().upsert([point(1, text="xylophone", metadata={"note": "quagmire"})])
    (record,) = client.scroll(name, with_vectors=True)[0]
    assert "xylophone" not in str(record)
    assert "quagmire" not in str(record)


def test_a_quantised_collection_on_disk_returns_the_same_hits(
    client: Any, name: str, open_index: Callable[..., Any]
) -> None:
    from qdrant_client import models

    index = open_index(on_disk=True, quantized=True)
    index.check()
    config = client.get_collection(name).config
    assert config.params.vectors["dense"].on_disk
    assert config.quantization_config.scalar.always_ram
    # The server quantises segments above a threshold: here, all that are not empty.
    client.update_collection(name, optimizers_config=models.OptimizersConfigDiff(indexing_threshold=1))
    points = [point(n, at_cosine(1 - n / 2000)) for n in range(1, 1500)]
    index.upsert(points)
    hits = index.dense(view(), unit_vector(1), 20)
    assert [one for one, _ in hits] == [uid(n) for n in range(1, 21)]
    assert [score for _, score in hits] == pytest.approx([1 - n / 2000 for n in range(1, 21)], abs=1e-5)


def test_a_point_that_is_refused_is_no_outage(open_index: Callable[..., Any]) -> None:
    index = open_index()
    with pytest.raises(StoreError, match="refuses") as caught:
        index.upsert([point(1), point(2, np.ones(DIMS + 1, np.float32))])
    assert not isinstance(caught.value, StoreUnavailable)


def test_many_windows_go_in_several_requests(open_index: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    index = open_index()
    monkeypatch.setattr(index, "_points_per_request", 7)
    index.upsert([point(1, *[unit_vector(0, 1)] * 40), point(2, *[unit_vector(1)] * 3)])
    index.upsert([point(1, *[unit_vector(0, 1)] * 30, seq=60), point(2, *[unit_vector(1)] * 3)])
    assert sorted(index.list_held()) == [(uid(1), 60, 30), (uid(2), 3, 3)]


def test_a_large_ledger_is_wiped_in_parts(open_index: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmem.stores.qdrant.server._PAGE", 40)
    index = open_index()
    points = random_points(1)
    index.upsert(points)
    assert len(list(index.list_held())) == len(points)
    index.wipe()
    assert index.count() == 0


def test_by_agent_or_run_alone_all_partitions_are_searched(open_index: Callable[..., Any]) -> None:
    index = open_index()
    index.upsert([point(n, scope=Scope(f"u{n}", "a", "r")) for n in range(3)])
    assert search_dense(index, view(Scope(None, "a"), anywhere=True)) == [uid(0), uid(1), uid(2)]
    assert search_dense(index, view(Scope(None, None, "r"), anywhere=True)) == [uid(0), uid(1), uid(2)]


# --- connections ------------------------------------------------------------------------------------------------------


def test_grpc_is_used_where_it_answers_and_rest_elsewhere(open_index: Callable[..., Any]) -> None:
    for options, is_grpc in (({"prefer_grpc": None}, True), ({"prefer_grpc": None, "grpc_port": 1}, False)):
        index = open_index(**options)
        index.upsert([point(1)])
        assert index._collection._connection.reader._client._prefer_grpc is is_grpc
        assert search_dense(index) == [uid(1)]
    with pytest.raises(ConfigError, match="does not answer gRPC on port 1"):
        open_index(prefer_grpc=True, grpc_port=1).check()


class Gate:
    """A proxy of a server's port that can hang, or be stopped."""

    def __init__(self, port: int) -> None:
        self._to, self._open, self._pairs = port, Event(), []
        self._open.set()
        self.port = 0
        self.start()

    def start(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                one, _ = listening.accept()
                other = socket.create_connection(("127.0.0.1", self._to))
                self._pairs += [one, other]
                Thread(target=self._forward, args=(one, other), daemon=True).start()
                Thread(target=self._forward, args=(other, one), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                self._open.wait()
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def hang(self) -> None:
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()

    def stop(self) -> None:
        for end in (self._listening, *self._pairs):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._pairs.clear()


@pytest.fixture
def gates() -> Iterator[tuple[Gate, Gate]]:
    gates = Gate(urlsplit(URL).port or 6333), Gate(GRPC_PORT)
    yield gates
    for gate in gates:
        gate.go_on()
        gate.stop()


def behind(gates: tuple[Gate, Gate]) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{gates[0].port}", "grpc_port": gates[1].port}


def give_up(call: Callable[[], object]) -> None:
    """Asserts that a call gives up a server that is stopped or hangs."""
    with pytest.raises(StoreUnavailable, match="out of reach"):
        call()


def test_a_server_that_hangs_is_given_up(open_index: Callable[..., Any], gates: tuple[Gate, Gate]) -> None:
    index = open_index(**behind(gates))
    index.upsert([point(1)])
    for gate in gates:
        gate.hang()
    give_up(lambda: search_dense(index))
    give_up(index.count)
    give_up(lambda: list(index.list_held()))
    give_up(lambda: index.upsert([point(2)]))
    give_up(open_index(**behind(gates)).check)
    for gate in gates:
        gate.go_on()
    assert uid(1) in search_dense(index)


def test_threads_wait_for_a_server_that_hangs_once(
    open_index: Callable[..., Any], gates: tuple[Gate, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index(**behind(gates))
    for gate in gates:
        gate.hang()
    connect, together, tries = index._collection._connect, Barrier(4), []

    def try_to_connect() -> Any:
        tries.append(1)
        return connect()

    def look() -> None:
        together.wait(TIMEOUT)
        search_dense(index)

    monkeypatch.setattr(index._collection, "_connect", try_to_connect)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(give_up, [look] * 4))
    assert len(tries) < 4  # one, or more if a thread starts after the others have given up


def finds_the_point(index: Any) -> bool:
    with suppress(StoreUnavailable):
        return search_dense(index) == [uid(1)]
    return False


def test_a_restarted_server_is_found_again(open_index: Callable[..., Any], gates: tuple[Gate, Gate]) -> None:
    index = open_index(**behind(gates))
    index.upsert([point(1)])
    for calls_meanwhile in (0, 1, 5):
        for gate in gates:
            gate.stop()
        for _ in range(calls_meanwhile):
            give_up(lambda: search_dense(index))
        for gate in gates:
            gate.start()
        wait_until(lambda: finds_the_point(index))  # gRPC tries again twice a second


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://no-such-host.invalid:6333"])
def test_an_unreachable_server_fails_at_once_and_again(open_index: Callable[..., Any], url: str) -> None:
    index = open_index(url=url)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="out of reach"):
            index.count()


def test_something_else_at_that_address_is_named(open_index: Callable[..., Any]) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"version": "1.15.4", "title": "qdrant"}' if self.path == "/old/" else b"<html>")

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        Thread(target=other.serve_forever, args=(0.01,), daemon=True).start()
        base = f"http://127.0.0.1:{other.server_port}"
        with pytest.raises(ConfigError, match="no Qdrant server"):
            open_index(url=base).check()
        with pytest.raises(ConfigError, match=r"of version 1\.15\.4; graphmem needs 1\.16"):
            open_index(url=f"{base}/old/").check()
        other.shutdown()


def test_a_key_over_plain_http_is_warned_about_once() -> None:
    from graphmem.stores.qdrant.client import QdrantOptions
    from graphmem.stores.qdrant.server import ServerIndex

    with pytest.warns(UserWarning, match="plain http") as caught:
        ServerIndex(QdrantOptions("http://example.org:6333", api_key="hush"), "l", EmbeddingSpec("m", 8)).close()
    assert len(caught) == 1
    assert "hush" not in str(caught[0].message)
    ServerIndex(QdrantOptions("http://localhost:6333", api_key="hush"), "l", EmbeddingSpec("m", 8)).close()
    ServerIndex(QdrantOptions("https://example.org:6333", api_key="hush"), "l", EmbeddingSpec("m", 8)).close()


# --- journeys ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def open_memory(tmp_path: Path, name: str) -> Iterator[Callable[..., Memory]]:
    """`open_memory(folder="one", **overrides)`: a Memory with fake models on the server."""
    from support.fakes import fake_models

    memories: list[Memory] = []

    def make(folder: str = "one", **overrides: Any) -> Memory:
        store = {"config": {"url": URL, "grpc_port": GRPC_PORT, "collection_name": name}}
        config = fake_models(**{"home": tmp_path / folder, "vector_store": store, **overrides})
        memories.append(Memory(settings=Settings.from_dict(config)))
        return memories[-1]

    yield make
    for memory in memories:
        memory.close()


def search_texts(memory: Memory, words: str, **scope: str) -> list[str]:
    return [hit["memory"] for hit in memory.search(words, **(scope or {"user_id": "ana"}))["results"]]


def test_the_life_of_a_memory_on_the_server(client: Any, name: str, open_memory: Callable[..., Memory]) -> None:
    memory = open_memory()
    added = memory.add("I like tea", user_id="ana", agent_id="bot")
    assert "pending" not in added
    memory.add("I live in Bergen", user_id="ana")
    memory.add("I like coffee", user_id="bo", agent_id="bot")
    assert search_texts(memory, "tea")[0] == "I like tea"
    assert set(search_texts(memory, "like", agent_id="bot")) == {"I like tea", "I like coffee"}
    uid = added["results"][0]["id"]
    memory.update(uid, "I like cocoa")
    assert search_texts(memory, "cocoa")[0] == "I like cocoa"
    assert memory.verify()["ok"]
    assert memory.delete(uid)["erased"]["vectors"] == 1
    assert "I like cocoa" not in search_texts(memory, "cocoa")
    memory.rebuild()
    assert memory.verify()["ok"]
    assert client.count(name).count == 2
    memory.reset()
    assert client.count(name).count == 0


def test_two_memories_on_one_server(open_memory: Callable[..., Memory]) -> None:
    one, other = open_memory("one"), open_memory("other")
    one.add("I like tea", user_id="ana")
    other.add("I like coffee", user_id="ana")
    assert search_texts(one, "like") == ["I like tea"]
    one.reset()
    assert search_texts(other, "like") == ["I like coffee"]
    assert other.verify()["ok"]


def test_a_second_process_shares_the_index(open_memory: Callable[..., Memory]) -> None:
    one, two = open_memory(), open_memory()
    one.add("I like tea", user_id="ana")
    assert search_texts(two, "tea") == ["I like tea"]


def test_from_embedded_to_the_server(open_memory: Callable[..., Memory]) -> None:
    embedded = open_memory(vector_store={"config": {}})
    embedded.add("I like tea", user_id="ana")
    embedded.close()
    moved = open_memory()
    assert search_texts(moved, "tea") == ["I like tea"]
    assert moved.verify()["ok"]


def test_a_changed_embedder_is_rebuilt(client: Any, name: str, open_memory: Callable[..., Memory]) -> None:
    memory = open_memory()
    memory.add("I like tea", user_id="ana")
    memory.close()
    embedder = {"embed": lambda texts: [[1.0, 2.0] for _ in texts], "embedding_dims": 2, "model": "two"}
    changed = open_memory(embedder={"provider": "callable", "config": embedder})
    with pytest.raises(ConfigError, match="call rebuild"):
        changed.search("tea", user_id="ana")
    changed.rebuild()
    assert search_texts(changed, "tea") == ["I like tea"]
    assert client.get_collection(name).config.params.vectors["dense"].size == 2


def test_a_deleted_collection_is_filled_by_rebuild(client: Any, name: str, open_memory: Callable[..., Memory]) -> None:
    memory = open_memory()
    memory.add("I like tea", user_id="ana")
    client.delete_collection(name)
    assert memory.verify()["projections"]["vectors"]["missing"]
    memory.add("I like cocoa", user_id="ana")
    memory.rebuild()
    assert sorted(search_texts(memory, "like")) == ["I like cocoa", "I like tea"]


def test_a_memory_of_another_model_is_refused_at_opening(open_memory: Callable[..., Memory]) -> None:
    open_memory().add("I like tea", user_id="ana")
    embedder = {"embed": lambda texts: [[1.0, 2.0] for _ in texts], "embedding_dims": 2, "model": "two"}
    with pytest.raises(ConfigError, match=r"64 dimensions of 'hash'.*choose another vector_store.config.collection"):
        open_memory("other", embedder={"provider": "callable", "config": embedder})


def test_memories_are_stored_while_the_server_is_unreachable(open_memory: Callable[..., Memory]) -> None:
    away = open_memory(vector_store={"config": {"url": "http://127.0.0.1:1"}})
    assert away.add("I like tea", user_id="ana")["pending"] == ["vectors"]
    assert away.search("tea", user_id="ana")["degraded"]
    away.close()
    assert search_texts(open_memory(), "tea") == ["I like tea"]


def test_nothing_on_disk_leaves_nothing_on_a_server() -> None:
    with pytest.raises(ConfigError, match=":memory:"):
        Memory(":memory:", settings=Settings.from_dict({"vector_store": {"config": {"url": URL}}}))


def test_without_the_client_the_error_names_the_extra_to_install(
    open_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("graphmem.stores.qdrant.server", "graphmem.stores.qdrant.client"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[qdrant\]'"):
        open_memory()
