"""What every request to the service passes: host, size, key, rate; problems, health, and the log."""

from __future__ import annotations

import gzip
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.fakes import DIMS, hash_texts
from support.log_guard import listening
from support.raw_http import JSON
from support.service import client_of, headers, ok
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, responses
from graphmem.errors import StoreUnavailable
from graphmem.extraction.spacy import extractor
from graphmem.models import minilm
from graphmem.models.loading import PerProcess
from graphmem.service import limits, middleware
from graphmem.service.keys import Keys
from graphmem.service.mcp import results
from graphmem.service.middleware import RateLimits
from graphmem.service.problems import Problem
from graphmem.settings.schema import ServeSettings
from graphmem.stores.projection_worker import ProjectionWorker

Make = Callable[..., Memory]


@pytest.fixture
def client(memory: Memory) -> Iterator[TestClient]:
    with client_of(memory, role=None) as client:
        yield client


def problem(response: Any, status: int) -> dict[str, Any]:
    """Checks the shape of a problem and returns it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert set(body) - {"error"} == {"type", "title", "status", "detail", "code", "request_id"}
    assert body["status"] == status
    assert body["request_id"] == response.headers["x-request-id"]
    return body


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["X-API-Key: {}", "Authorization: Bearer {}", "Authorization: token {}"])
def test_a_key_is_taken_from_each_header(client: TestClient, memory: Memory, header: str) -> None:
    name, _, value = header.partition(": ")
    text = Keys(memory).create("admin").text
    assert client.get("/nowhere", headers={name: value.format(text)}).status_code == 404
    assert client.get("/nowhere", headers={name: value.format(f"{text}x")}).status_code == 401


def test_without_a_valid_key_the_answer_is_401(client: TestClient, memory: Memory) -> None:
    missing = client.get("/nowhere")
    assert "missing" in problem(missing, 401)["detail"]
    assert missing.headers["www-authenticate"] == "Bearer"
    key = Keys(memory).create("app")
    Keys(memory).revoke(key.key.id)
    for text in (key.text, "gm_00000000_x", "nonsense", "Basic abc"):
        assert "not valid" in problem(client.get("/nowhere", headers={"X-API-Key": text}), 401)["detail"]
    assert "missing" in problem(client.get("/nowhere", headers={"Authorization": "Basic abc"}), 401)["detail"]


def test_the_key_of_the_configuration_is_an_admin(memory: Memory) -> None:
    with client_of(memory, role=None, admin_api_key="sixteen-characters-or-more") as client:
        assert client.get("/nowhere", headers={"X-API-Key": "sixteen-characters-or-more"}).status_code == 404
        assert client.get("/nowhere", headers={"X-API-Key": "sixteen-characters-or-mor"}).status_code == 401


@pytest.mark.parametrize("trouble", ["hangs", "fails"])
def test_a_known_key_is_taken_while_the_ledger_does_not_answer(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    go_on, known, unknown = threading.Event(), headers(memory, "app"), headers(memory, "app")

    def read(*_: Any) -> None:
        if trouble == "hangs":
            go_on.wait(TIMEOUT)
        raise StoreUnavailable("a private text")

    monkeypatch.setattr(limits, "KEY_SECONDS", 0.2)
    with client_of(memory, role=None) as client:
        assert client.get("/nowhere", headers=known).status_code == 404
        monkeypatch.setattr(Keys, "find", read)
        assert client.get("/nowhere", headers=known).status_code == 404
        assert problem(client.get("/nowhere", headers=unknown), 503)["code"] == "store_unavailable"
        monkeypatch.setattr(limits, "RECENT_SECONDS", -1)
        problem(client.get("/nowhere", headers=known), 503)
        go_on.set()


def test_a_revoked_key_is_refused_also_when_the_ledger_fails_afterwards(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = Keys(memory).create("app")
    with client_of(memory, role=None) as client:
        sent = {"X-API-Key": key.text}
        assert client.get("/nowhere", headers=sent).status_code == 404
        Keys(memory).revoke(key.key.id)
        problem(client.get("/nowhere", headers=sent), 401)
        memory.close()
        problem(client.get("/nowhere", headers=sent), 503)


def test_without_authentication_no_key_is_needed(memory: Memory) -> None:
    with client_of(memory, role=None, needs_key=False) as client:
        assert client.get("/nowhere").status_code == 404


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_key_over_its_rate_waits_and_other_keys_do_not(memory: Memory) -> None:
    with client_of(memory, rate="2/hour") as client:
        left = [client.get("/nowhere").headers["ratelimit-remaining"] for _ in range(2)]
        assert left == ["1", "0"]
        refused = client.get("/nowhere")
        problem(refused, 429)
        assert int(refused.headers["retry-after"]) > 0
        assert client.get("/nowhere", headers=headers(memory)).status_code == 404
        assert client.get("/healthz").status_code == 200


def test_an_address_with_many_wrong_keys_is_refused_and_its_right_key_is_not(
    client: TestClient, memory: Memory
) -> None:
    statuses = [client.get("/nowhere", headers={"X-API-Key": "gm_0_x"}).status_code for _ in range(21)]
    assert statuses == [401] * 20 + [429]
    assert client.get("/nowhere", headers=headers(memory)).status_code == 404


async def test_addresses_of_one_ipv6_network_are_counted_together() -> None:
    limits = RateLimits(ServeSettings())
    for number in range(20):
        await limits.count_refusal(f"2001:db8:1:2::{number:x}")
        await limits.count_refusal(f"::ffff:192.0.2.{number}")
    with pytest.raises(Problem, match="20 per 1 minute"):
        await limits.count_refusal("2001:db8:1:2:ffff:ffff:ffff:ffff")
    for other in ("2001:db8:1:3::1", "192.0.2.1", "::ffff:192.0.2.1", "a socket"):
        await limits.count_refusal(other)


def test_no_answer_is_kept_or_taken_for_another_type(memory: Memory) -> None:
    memory.add("I like tea.", user_id="ana")
    with client_of(memory) as client:
        hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        answers = [
            client.get("/memories?user_id=ana"), client.get("/nowhere"), client.get("/openapi.json"),
            client.get("/memories", headers={"X-API-Key": "wrong"}), client.get("/healthz"), client.get("/metrics"),
            client.get("/healthz", headers={"Host": "evil.example"}), client.get("/export?user_id=ana"),
            client.post("/api-keys", json={"label": "x"}), client.post("/memories", content=b"{", headers=JSON),
            client.post("/mcp", json=hello, headers={"Accept": "application/json"}), client.get("/ui/nothing"),
            client.get("/", follow_redirects=False),
        ]  # fmt: skip
        assert {answer.status_code for answer in answers} == {200, 201, 307, 400, 401, 404, 421}
        for answer in answers:
            assert answer.headers.get_list("cache-control") == ["no-store"], answer.url
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        # A browser asks for the page's files each time, and gets 304.
        assert client.get("/ui/").headers.get_list("cache-control") == ["no-cache"]


def test_a_declared_body_over_the_limit_is_refused_before_it_is_read(memory: Memory) -> None:
    with client_of(memory, max_body_bytes=1024) as client:
        body = iter(lambda: pytest.fail("the body was read"), None)
        refused = client.post("/nowhere", content=body, headers={"Content-Length": "1025"})
        assert "1024 bytes" in problem(refused, 413)["detail"]


def test_another_host_name_is_refused(client: TestClient) -> None:
    problem(client.get("/healthz", headers={"Host": "evil.example.org"}), 421)
    assert client.get("/healthz", headers={"Host": "LOCALHOST:1234"}).status_code == 200


def test_only_named_origins_may_call_from_a_page(memory: Memory) -> None:
    origin = "https://chat.example.org"
    with client_of(memory, cors_origins=[origin]) as client:
        allowed = client.get("/nowhere", headers={"Origin": origin})
        assert allowed.headers["access-control-allow-origin"] == origin
        assert "access-control-allow-credentials" not in allowed.headers
        refused = client.get("/healthz", headers={"Origin": "https://x.org"})
        assert "access-control-allow-origin" not in refused.headers
        assert problem(refused, 403)["code"] == "other_origin"


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://testserver.evil.example", "http://testserver:1"]
)
def test_a_foreign_page_reaches_nothing_also_where_no_key_is_needed(memory: Memory, origin: str) -> None:
    memory.add("I like tea.", user_id="ana")
    with client_of(memory, role=None, needs_key=False) as client:
        for path in ("/reset", "/repair", "/v1/chat/completions", "/import", "/mcp"):
            problem(client.post(path, headers={"Origin": origin, "Content-Type": "text/plain"}), 403)
        assert client.get("/memories", headers={"Origin": "http://testserver"}).json()["total"] == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/reset?user_id=ana", None),
        ("POST", "/reset", {"user_id": "ana"}),
        ("POST", "/reset", "broken"),
        ("DELETE", "/memories?user_id=ana", {"agent_id": "maid"}),
        ("DELETE", "/entities/user/ana?foo=1", None),
        ("DELETE", "/entities/user/ana", {"agent_id": "maid"}),
        ("POST", "/search?agent_id=maid", {"user_id": "ana", "query": "tea"}),
        ("POST", "/memories?agent_id=maid", {"user_id": "ana", "messages": "tea"}),
        ("POST", "/chats/saved?user_id=bob", {"user_id": "ana", "messages": []}),
        ("POST", "/flush?user_id=ana", None),
        ("GET", "/memories?user_id=ana", {"agent_id": "maid"}),
    ],
)
def test_what_a_route_does_not_read_is_refused(memory: Memory, method: str, path: str, body: Any) -> None:
    memory.add("I like tea.", user_id="ana")
    with client_of(memory) as client:
        content = {} if body is None else {"content": body} if isinstance(body, str) else {"json": body}
        refused = client.request(method, path, **content)
        assert problem(refused, 422)["code"] == "invalid_request"
        assert "ana" not in refused.text and "maid" not in refused.text
        assert client.get("/memories?user_id=ana").json()["total"] == 1


def test_an_encoded_body_is_refused(memory: Memory) -> None:
    with client_of(memory) as client:
        body = gzip.compress(b'{"user_id": "ana", "messages": "tea"}')
        sent = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        problem(client.post("/memories", content=body, headers=sent), 415)


def test_watchers_may_send_head(client: TestClient) -> None:
    for path in ("/healthz", "/readyz"):
        answer = client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")


# --- problems -------------------------------------------------------------------------------------------------------


def test_unknown_paths_and_methods_are_problems(memory: Memory) -> None:
    with client_of(memory) as client:
        problem(client.get("/nowhere"), 404)
        refused = client.post("/healthz")
        problem(refused, 405)
        assert refused.headers["allow"] == "GET"


def test_a_request_id_is_taken_over_and_a_strange_one_replaced(client: TestClient) -> None:
    assert client.get("/healthz", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert client.get("/healthz", headers={"X-Request-ID": "a b"}).headers["x-request-id"] != "a b"


# --- health, log ----------------------------------------------------------------------------------------------------


def test_ready_names_projections_out_of_reach_and_is_503_without_the_ledger(
    make_memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make_memory(graph_store={"provider": "networkx"})
    with client_of(memory) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"status": "ready", "degraded": []}
        monkeypatch.setattr(ProjectionWorker, "is_unavailable", property(lambda worker: worker.name == "graph"))
        assert client.get("/readyz").json() == {"status": "ready", "degraded": ["graph"]}
        memory.close()
        unavailable = client.get("/readyz")
        assert (unavailable.status_code, unavailable.json()["status"]) == (503, "unavailable")
        assert client.get("/healthz").status_code == 200


def test_a_service_that_is_ready_has_loaded_what_a_search_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models, each once, and an index that a new folder has to fill: the first search waits for none of them."""
    loaded = Counter[str]()

    def count_calls(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            loaded[f"{owner.__name__}.{name}"] += 1
            return function(*arguments)

        monkeypatch.setattr(owner, name, counted)

    monkeypatch.setattr(minilm, "_models", PerProcess(lambda: minilm._load()))
    monkeypatch.setattr(extractor, "_loaded", {})
    count_calls(minilm, "_load")
    count_calls(extractor, "_load")
    with Memory(tmp_path) as memory, client_of(memory) as client:
        assert client.get("/readyz").status_code == 200
        at_ready = loaded.copy()
        assert client.post("/search", json={"query": "Who drinks tea?", "user_id": "ana"}).status_code == 200
    assert loaded == at_ready
    assert sorted(loaded.values()) == [1, 1]


def test_another_embedder_needs_a_rebuild_before_the_service_is_ready(tmp_path: Path, make_memory: Any) -> None:
    before = make_memory(tmp_path)
    before.add("Clara drinks tea.", user_id="ana")
    before.close()
    other = {"provider": "callable", "config": {"embed": hash_texts, "embedding_dims": DIMS, "model": "other"}}
    memory = make_memory(tmp_path, embedder=other)
    with client_of(memory) as client:
        unready = client.get("/readyz")
        assert (unready.status_code, unready.json()["status"]) == (503, "needs_rebuild")
        asked = {"messages": "Clara drinks wine.", "user_id": "ana"}, {"query": "tea", "user_id": "ana"}
        for path, body in zip(("/memories", "/search"), asked, strict=True):
            problem = client.post(path, json=body)
            assert (problem.status_code, problem.json()["code"]) == (409, "not_configured")
            assert "graphmem rebuild" in problem.json()["detail"]
        assert client.get("/memories?user_id=ana").json()["total"] == 1
        memory.rebuild()
        assert client.get("/readyz").json()["status"] == "ready"


def test_the_log_has_a_line_for_each_request_without_path_and_query(memory: Memory) -> None:
    with client_of(memory) as client, listening() as listener:
        client.get("/healthz?user_id=ana@example.org", headers={"X-Request-ID": "r1"})
        client.get("/someone/private")
    lines = [line for line in listener.lines if " ms " in line]
    assert lines[0].startswith("GET /healthz 200 ")
    assert lines[0].endswith(" ms r1 -")
    assert lines[1].startswith("GET - 404 ")
    assert lines[1].endswith(" admin")
    assert "private" not in str(listener.lines)
    assert "ana@" not in str(listener.lines)


async def test_an_error_inside_is_logged_by_its_kind_and_answered_as_a_problem() -> None:
    async def failing(*_: Any) -> None:
        raise RuntimeError("a private text")

    client = TestClient(middleware.RequestLog(failing), raise_server_exceptions=False)
    with listening() as listener:
        body = problem(client.get("/healthz"), 500)
    assert "private" not in str(body) + str(listener.lines)
    assert any("RuntimeError" in line for line in listener.lines)


class Panic(BaseException):
    """An error as libraries in Rust raise it: no Exception."""


@pytest.mark.parametrize("error", [Panic("a private text"), MemoryError(), KeyError("a private text")], ids=repr)
def test_a_library_that_fails_costs_one_request(
    memory: Memory, error: BaseException, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    memory.add("Clara drinks tea.", user_id="ana")
    body, status = {"query": "tea", "user_id": "ana"}, 500 if isinstance(error, KeyError) else 503
    call = {"method": "tools/call", "params": {"name": "search_memories", "arguments": {"query": "tea"}}}
    message = {"jsonrpc": "2.0", "id": 1, **call}
    accepting = {"Accept": "application/json, text/event-stream", "X-Graphmem-User": "ana"}
    with client_of(memory) as client:
        for place, name in ((responses, "hit"), (memory.engine.ledger, "read")):  # in the event loop, and in a thread
            with monkeypatch.context() as failing:
                failing.setattr(place, name, fail)
                answer = client.post("/search", json=body)
            problem(answer, status)
        with monkeypatch.context() as failing:
            failing.setattr(results.Result, "model_dump", fail)
            assert "cannot be used now" in ok(client.post("/mcp", json=message, headers=accepting))["error"]["message"]
        assert "Clara" in client.post("/mcp", json=message, headers=accepting).text
        assert len(ok(client.post("/search", json=body))["results"]) == 1
    assert [one.levelname for one in caplog.records if one.levelno >= logging.WARNING] == ["WARNING"] * 3
    assert "private" not in caplog.text


def test_more_calls_than_may_wait_are_refused(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, body = threading.Event(), {"query": "tea", "user_id": "ana"}
    monkeypatch.setattr(Memory, "context", lambda *_, **__: go_on.wait(TIMEOUT) and "")
    with client_of(memory, threads=1, queue=1) as client:
        answers: list[Any] = []
        threads = [
            threading.Thread(target=lambda: answers.append(client.post("/context", json=body))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: answers)
        finally:
            go_on.set()
        for thread in threads:
            thread.join()
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(refused) == 1
    assert problem(refused[0], 503)["code"] == "overloaded"
    assert refused[0].headers["retry-after"] == "1"


def test_the_slow_calls_of_one_user_leave_threads_and_places_to_others(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them, however the user's calls come: by a key of the user, by an application's, or over MCP."""
    go_on, begun = threading.Event(), list[str]()

    def context(*_: Any, user_id: str, **__: Any) -> str:
        if user_id == "ana":
            begun.append(user_id)
            go_on.wait(TIMEOUT)
        return ""

    monkeypatch.setattr(Memory, "context", context)
    ana, ben = headers(memory, "user", user_id="ana"), headers(memory, "user", user_id="ben")
    app, admin = headers(memory, "app"), headers(memory)
    with client_of(memory, role=None, threads=2, queue=4) as client:

        def ask(key: dict[str, str], **named: str) -> Any:
            return client.post("/context", json={"query": "tea", **named}, headers=key)

        with ThreadPoolExecutor(4) as threads:
            slow = [threads.submit(ask, ana) for _ in range(4)]
            try:
                # The fourth is refused: three of six places are ana's.
                wait_until(lambda: begun and any(one.done() for one in slow))
                for key in (ana, app):
                    refused = ask(key, user_id="ana")
                    assert problem(refused, 503)["code"] == "overloaded"
                    assert refused.headers["retry-after"] == "1"
                assert "of this user wait already" in called_over_mcp(client, ana)
                assert begun == ["ana"]  # one of two threads
                assert [ask(ben).status_code, ask(app, user_id="ben").status_code] == [200, 200]
                assert ask(admin, user_id="ben").status_code == 200
                assert '"isError":false' in called_over_mcp(client, ben)
            finally:
                go_on.set()
        assert sorted(one.result().status_code for one in slow) == [200, 200, 200, 503]
        assert ask(ana).status_code == 200


def called_over_mcp(client: TestClient, key: dict[str, str]) -> str:
    """The answer to a search over MCP."""
    params = {"name": "search_memories", "arguments": {"query": "tea"}}
    sent = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18", **key}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return client.post("/mcp", json=call, headers=sent).text
