"""Requests to `/mcp` of the service: errors repeat nothing of them, and which web pages may send them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.types.version import LATEST_MODERN_VERSION
from starlette.testclient import TestClient
from support.mcp_clients import raw_server
from support.service import TEST_HOST, client_of, headers, ok, served

from graphmem import Memory

# Stands in everything that the refused requests send.
MARK = "Zanzibar"
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
OLDER = {**ACCEPT, "MCP-Protocol-Version": "2025-06-18"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": LATEST_MODERN_VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}  # fmt: skip


@pytest.fixture
def client(memory: Memory) -> Iterator[TestClient]:
    """A client with a key of the role app, whose requests name their user."""
    with client_of(memory, role="app") as client:
        yield client


def call(method: str, params: Any = None, /, **members: Any) -> bytes:
    """A request as JSON."""
    given = {} if params is None else {"params": params}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, **given, **members}).encode()


BODIES = [
    b"", MARK.encode(), f'"{MARK}"'.encode(), f'["{MARK}"]'.encode(), b"\xff" + MARK.encode(),
    b"[" * 100_000 + MARK.encode(), f'{{"jsonrpc": "2.0", "id": 1, "method": "ping", "a": "{MARK}"'.encode(),
    f"[{LIST}]".replace("'", '"').encode(),
    call("tools/call", MARK), call("tools/call", [MARK]), call("tools/call", {"name": [MARK], "arguments": MARK}),
    call("tools/call", {"name": "get_memory", "arguments": MARK}), call(MARK), call(MARK, {MARK: MARK}),
    call(f"tools/{MARK}"), call("ping", jsonrpc=MARK), call("ping", id={"a": MARK}), call("ping", id=[MARK]),
    call("ping", method={"a": MARK}), call("ping", {"_meta": MARK}), call("tools/list", {"cursor": [MARK]}),
    call("initialize", {"protocolVersion": [MARK], "capabilities": MARK}), call("prompts/get", {"name": MARK}),
    call("prompts/get", {"name": "recall", "arguments": {MARK: MARK}}), call("prompts/get", {"name": [MARK]}),
    call("prompts/get", {"name": "recall", "arguments": {"topic": [MARK]}}),
    call("resources/read", {"uri": f"memory://{MARK}/recent"}), call("resources/read", {"uri": f"{MARK}://["}),
    call("resources/read", {"uri": f"memory://ana/{MARK}"}), call("resources/read", {"uri": {"a": MARK}}),
    call("resources/subscribe", {"uri": f"memory://{MARK}/recent"}), call("logging/setLevel", {"level": MARK}),
    call("completion/complete", {"ref": {"type": MARK}, "argument": MARK}), call("subscriptions/listen", {"a": MARK}),
    f'{{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {{"a": "{MARK}", "a": "{MARK}"}}}}'.encode(),
    f'{{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {{"a": "{MARK}", "b": NaN}}}}'.encode(),
]  # fmt: skip


@pytest.mark.parametrize("version", [None, "2025-06-18", LATEST_MODERN_VERSION])
def test_no_error_repeats_a_body(client: TestClient, version: str | None) -> None:
    for body in BODIES:
        sent = {**ACCEPT, "X-Graphmem-User": "ana"}
        if version is not None:
            sent["MCP-Protocol-Version"] = version
        if version == LATEST_MODERN_VERSION:
            body, sent["MCP-Method"] = with_envelope(body)
        answer = client.post("/mcp", content=body, headers=sent)
        assert "error" in answer.json(), body
        assert MARK.lower() not in f"{answer.headers}{answer.text}".lower(), body


def with_envelope(body: bytes) -> tuple[bytes, str]:
    """A request with the envelope of the current protocol, if it can have one, and its method as a header."""
    try:
        message = json.loads(body)
        message["params"]["_meta"] = ENVELOPE
    except (ValueError, TypeError, KeyError, RecursionError):
        return body, MARK
    return json.dumps(message).encode(), str(message["method"])


CALLS = [
    ("get_memory", {"memory_id": MARK}), (MARK, {}), ("search_memories", {"query": MARK, "as_of": MARK}),
    ("search_memories", {"query": MARK, "memory_types": [MARK]}), ("search_memories", {"query": MARK, "top_k": MARK}),
    ("search_memories", {"query": MARK, "cursor": MARK}), ("add_memory", {"content": [MARK]}),
    ("add_memory", {"content": f"{MARK}\0"}), ("update_memory", {"memory_id": MARK, "content": MARK}),
    ("undo_change", {"event_id": MARK}), ("get_entity", {"name": MARK}),
    ("delete_all_memories", {"confirm_user": MARK}),
]  # fmt: skip


def test_no_error_of_a_tool_repeats_an_argument(client: TestClient) -> None:
    for name, arguments in CALLS:
        body = call("tools/call", {"name": name, "arguments": arguments})
        answer = ok(client.post("/mcp", content=body, headers={**OLDER, "X-Graphmem-User": "ana"}))
        assert answer["result"]["isError"], name
        assert MARK.lower() not in json.dumps(answer).lower(), name


HEADERS = [
    {"Accept": MARK}, {"Content-Type": MARK}, {"MCP-Protocol-Version": MARK}, {"Last-Event-ID": MARK},
    {"MCP-Protocol-Version": f"2020-01-0{MARK}"}, {"X-Graphmem-User": MARK * 100}, {"Mcp-Session-Id": f"{MARK}\xe9"},
    {"MCP-Protocol-Version": LATEST_MODERN_VERSION, "Mcp-Method": MARK, "Mcp-Name": MARK},
]  # fmt: skip


def test_no_error_repeats_a_header(client: TestClient) -> None:
    for sent in HEADERS:
        user = {"X-Graphmem-User": "ana", **sent}
        raw = [(name.encode(), value.encode("latin-1")) for name, value in {**ACCEPT, **user}.items()]
        for method in ("POST", "DELETE", "PUT"):
            body = call("resources/list") if method == "POST" else b""
            answer = client.request(method, "/mcp", content=body, headers=raw)  # type: ignore[arg-type]
            assert MARK.lower() not in f"{answer.headers}{answer.text}".lower(), sent


def test_an_error_tells_the_remedy(client: TestClient) -> None:
    def error(body: bytes, **sent: str) -> Any:
        return client.post("/mcp", content=body, headers={**OLDER, **sent}).json()["error"]

    assert '"method"' in error(call("tools/call", MARK))["message"]
    twice = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"b": {"a": 1, "a": 2}}}'
    assert error(twice)["message"] == "a: is there 2 times in one object; send it once"
    unspoken = error(call("ping"), **{"MCP-Protocol-Version": MARK})
    assert (unspoken["code"], LATEST_MODERN_VERSION in unspoken["data"]["supported"]) == (-32022, True)
    assert error(call("ping"), **{"MCP-Protocol-Version": "1999-12-31"})["code"] in {-32022, -32602}
    assert "X-Graphmem-User: is missing" in error(call("resources/list"))["message"]


@pytest.mark.thorough  # it loads the models
async def test_over_stdio_no_error_repeats_a_request(tmp_path: Path) -> None:
    async with raw_server(tmp_path) as server:
        server.write(f'{{"jsonrpc": "2.0", "id": 1, "method": "ping", "a": "{MARK}"')
        server.write(call("tools/call", MARK).decode())
        envelope = {"_meta": {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": MARK}}
        answers = [
            await server.request(2, "tools/list", **envelope),
            await server.request(3, f"{MARK}/list", _meta=ENVELOPE),
            await server.request(4, "initialize", protocolVersion=MARK),
        ]
    assert all("error" in answer for answer in answers)
    assert answers[0]["error"]["data"]["supported"]
    assert MARK not in json.dumps(answers)


# --- pages ------------------------------------------------------------------------------------------------------------

PAGE = "https://chat.example.org"


def test_no_stream_is_opened_that_would_outlive_its_key(client: TestClient) -> None:
    for sent in (ACCEPT, OLDER):
        answer = client.get("/mcp", headers={**sent, "X-Graphmem-User": "ana"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST, DELETE")


def test_pages_of_its_own_and_of_configured_origins_may_call(memory: Memory) -> None:
    with client_of(memory, role=None, needs_key=False, default_user="ana", cors_origins=[PAGE]) as client:
        for origin in (f"http://{TEST_HOST}", PAGE):
            for sent in (OLDER, ACCEPT):
                answer = client.post("/mcp", json=HELLO, headers={**sent, "Origin": origin})
                assert ok(answer)["result"]["serverInfo"]["name"] == "graphmem"
        for origin in ("https://evil.example", "null", f"http://{TEST_HOST}:1"):
            assert client.post("/mcp", json=HELLO, headers={**OLDER, "Origin": origin}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8700", "127.0.0.1:8700", "[::1]:8700"])
def test_names_that_were_pointed_at_this_machine_reach_nothing(memory: Memory, host: str) -> None:
    with client_of(memory, role=None, needs_key=False) as client:
        sent = {**OLDER, "Host": host, "Origin": f"http://{host}"}
        assert client.post("/mcp", json=HELLO, headers=sent).status_code == 200
        evil = {**OLDER, "Host": "evil.example.com", "Origin": "http://evil.example.com"}
        assert client.post("/mcp", json=HELLO, headers=evil).status_code == 421


def test_a_browser_may_send_and_read_the_headers_of_the_protocol(memory: Memory) -> None:
    names = "authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id"
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": names}
    with client_of(memory, role=None, cors_origins=[PAGE]) as client:
        preflight = client.options("/mcp", headers={**asked, "Origin": PAGE})
        assert preflight.status_code == 200
        allowed = preflight.headers["access-control-allow-headers"]
        assert {name.strip() for name in allowed.lower().split(",")} >= set(names.split(", "))
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert preflight.headers["access-control-allow-origin"] == PAGE
        for sent, status in ((headers(memory, "user", user_id="ana"), 200), ({}, 401)):
            answer = client.post("/mcp", json=HELLO, headers={**OLDER, **sent, "Origin": PAGE})
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == PAGE
            # Every header, as no answer allows credentials.
            assert answer.headers["access-control-expose-headers"] == "*"
            assert "access-control-allow-credentials" not in answer.headers
        assert client.options("/mcp", headers={**asked, "Origin": "https://evil.example"}).status_code == 400


@pytest.mark.thorough  # npx fetches 60 MB
def test_the_conformance_suite_of_the_protocol(memory: Memory, tmp_path: Path) -> None:
    """Its scenario of names that were pointed at this machine."""
    if (npx := shutil.which("npx")) is None:
        pytest.skip("there is no npx")
    packages = [f"--package={package}" for package in ("node@22", "@modelcontextprotocol/conformance@0.1.16")]
    fetched = {**os.environ, "npm_config_cache": str(tmp_path / "npm")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [npx, "--yes", *packages, "conformance", *arguments]
        return subprocess.run(line, cwd=tmp_path, env=fetched, capture_output=True, text=True, check=False)

    if (listed := run("list")).returncode:
        pytest.skip(f"npx cannot fetch the suite: {listed.stderr[-200:]}")
    with served(memory, needs_key=False) as address:
        result = run("server", "--url", f"{address}/mcp", "--scenario", "dns-rebinding-protection")
    assert (result.returncode, "Passed: 2/2" in result.stdout) == (0, True), result.stdout
