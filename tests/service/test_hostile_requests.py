"""Requests that no good client sends, to a real server, as bytes on a socket.

Each gets a problem that repeats nothing of it, and changes nothing; afterwards the service answers as before.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic import ValidationError as PydanticError
from support.raw_http import JSON, Answer, connect, head, read_answer, send_raw
from support.service import expired_key, served
from support.waiting import SLOWNESS, wait_until

from graphmem import Memory
from graphmem.service import limits
from graphmem.service.app import ROUTERS
from graphmem.service.connections import Connection
from graphmem.service.keys import Keys

LIMIT = 1024 * 1024
# Stands in everything that these requests send.
MARK = "Zanzibar"
ADD = {"user_id": "ana", "messages": f"Clara lives in {MARK}."}


class Door(NamedTuple):
    """A served memory, and a key of the role admin."""

    address: str
    key: str
    memory: Memory

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        """Sends a request with the key, as JSON if the headers do not say otherwise."""
        sent = {"X-API-Key": self.key, **JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
        parts = [head(method, target, sent, len(body)), body]
        return send_raw(self.address, *parts, method=method)

    def stored(self) -> list[str]:
        """The texts of all memories."""
        found = self.ask("GET", "/memories?limit=1000").json()
        return [one["memory"] for one in found["results"]]


@pytest.fixture
def door(memory: Memory) -> Iterator[Door]:
    key = Keys(memory).create("admin").text
    with served(memory, max_body_bytes=LIMIT) as address:
        yield Door(address, key, memory)
        assert send_raw(address, head("GET", "/healthz")).status == 200


def connect_small(address: str) -> socket.socket:
    """A connection whose client has room for 4 kB that it has not read."""
    host, _, port = address.removeprefix("http://").partition(":")
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.connect((host, int(port)))
    return wire


def check(answer: Answer, status: int, *words: str) -> None:
    """Checks that an answer is a problem of this status, whose detail has these words, and repeats nothing."""
    assert answer.status == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert set(body) - {"error"} == {"type", "title", "status", "detail", "code", "request_id"}
    assert body["request_id"] == answer.headers["x-request-id"]
    assert all(word in body["detail"] for word in words), body["detail"]
    assert MARK.lower() not in answer.text.lower()


# --- bodies ---------------------------------------------------------------------------------------------------------


def test_a_body_over_the_limit_is_refused_before_it_is_sent(door: Door) -> None:
    sent = {"X-API-Key": door.key, **JSON}
    for path in ("/memories", "/chats/saved", "/mcp", "/nowhere"):
        check(send_raw(door.address, head("POST", path, sent, LIMIT + 1)), 413, str(LIMIT))
        check(send_raw(door.address, head("POST", path, {**sent, "Expect": "100-continue"}, 10**12)), 413)


def test_a_body_without_a_length_is_refused_as_soon_as_it_is_over_the_limit(door: Door) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    for path in ("/memories", "/chats/saved", "/mcp"):
        chunked = head("POST", path, {"X-API-Key": door.key, **JSON, "Transfer-Encoding": "chunked"})
        check(send_raw(door.address, chunked, *[chunk] * (LIMIT // 0x10000), b"1\r\n \r\n"), 413)


def test_without_a_key_no_body_is_read(door: Door) -> None:
    check(send_raw(door.address, head("POST", "/memories", {**JSON, "Expect": "100-continue"}, LIMIT)), 401)


DEEP = "[" * 100_000
MANY_DIGITS = "9" * 5000
MARKED = f'"user_id": "ana", "messages": "{MARK}"'


BODIES = [
    (b"", 422),
    (f'{{{MARKED}, "x"'.encode(), 400),
    (f"{{{MARKED},}}".encode(), 400),
    (f"{{{MARKED}}} {MARK}".encode(), 400),
    (f"{MARK}".encode(), 400),
    (f'"{MARK}"'.encode(), 422),
    (f'["{MARK}"]'.encode(), 422),
    (b"null", 422),
    (f'{{"user_id": "ana", "messages": "{MARK} \xff"}}'.encode("latin-1"), 400),
    (f'{{"user_id": "ana", "messages": "{MARK}'.encode() + b'\xed\xa0\x80"}', 400),
    (f"{{{MARKED}}}".encode("utf-16")[:-1], 400),
    (f'{{{MARKED}, "metadata": {{"a": {DEEP}'.encode(), 400),
    (f'{{{MARKED}, "metadata": {{"a": {DEEP}{DEEP.replace("[", "]")}}}}}'.encode(), 400),
    (f'{{{MARKED}, "metadata": {{"a": {"[" * 500}{"]" * 500}}}}}'.encode(), 400),
    (f'{{{MARKED}, "metadata": {{"a": NaN}}}}'.encode(), 400),
    (f'{{{MARKED}, "metadata": {{"a": [1e999]}}}}'.encode(), 400),
    (f'{{{MARKED}, "metadata": {{"a": {MANY_DIGITS[:4000]}}}}}'.encode(), 400),
    (f'{{{MARKED}, "metadata": {{"a": {MANY_DIGITS}}}}}'.encode(), 400),
    (f'{{{MARKED}, "timestamp": -Infinity}}'.encode(), 400),
    (f'{{{MARKED}, "timestamp": 1e300}}'.encode(), 400),
    (f'{{{MARKED}, "infer": "{MARK}"}}'.encode(), 422),
    (f'{{{MARKED}, "immutable": "{MARK}"}}'.encode(), 422),
    (f'{{"user_id": "ana", "messages": "{MARK}\\u0000"}}'.encode(), 400),
    (f'{{"user_id": "ana", "messages": "{MARK}\\ud800"}}'.encode(), 400),
    (f'{{"user_id": "{MARK}\\u0000", "messages": "a"}}'.encode(), 400),
    (f'{{"user_id": "{MARK}\\udfff", "messages": "a"}}'.encode(), 400),
    (f'{{{MARKED}, "metadata": {{"\\ud800": "{MARK}"}}}}'.encode(), 400),
    (f'{{{MARKED}, "metadata": {{"a": "\\u0000 {MARK}"}}}}'.encode(), 400),
    (f'{{{MARKED}, "\\ud800": 1}}'.encode(), 422),
    (f'{{{MARKED}, "\\u0000\\r\\n": 1}}'.encode(), 422),
]


def test_unusable_bodies_store_nothing(door: Door) -> None:
    for body, status in BODIES:
        answer = door.ask("POST", "/memories", body)
        check(answer, status)
        assert "Redacted" not in answer.text
    assert door.stored() == []


def test_a_body_needs_the_content_type_of_json(door: Door) -> None:
    body = json.dumps(ADD).encode()
    for other in ("text/plain", "", f"text/{MARK}", "multipart/form-data; boundary=x", "json", "application/jsonx"):
        check(door.ask("POST", "/memories", body, Content_Type=other), 415, "application/json")
    check(send_raw(door.address, head("POST", "/memories", {"X-API-Key": door.key}, len(body)), body), 415)
    assert door.stored() == []
    for accepted in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/problem+json"):
        assert door.ask("POST", "/memories", body, Content_Type=accepted).status == 200


TWICE = [
    f'{{"user_id": "ana", "user_id": "{MARK}", "messages": "x"}}',
    f'{{"user_id": "{MARK}", "messages": "x", "\\u0075ser_id": "ana"}}',
    f'{{"messages": [{{"role": "user", "content": "x", "user_id": 1, "user_id": "{MARK}"}}], "user_id": "ana"}}',
    f'{{"messages": "x", "user_id": "ana", "metadata": {{"a": [[{{"user_id": "{MARK}", "user_id": "{MARK}"}}]]}}}}',
]


def test_a_member_that_is_there_twice_is_refused_at_any_depth(door: Door) -> None:
    """A proxy in front could read the first where we read the last."""
    for body in TWICE:
        check(door.ask("POST", "/memories", body.encode()), 400, "user_id: is there 2 times")
    assert door.stored() == []
    same = b'{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], "user_id": "ana"}'
    assert door.ask("POST", "/memories", same).status == 200


def test_every_route_with_a_body_refuses_a_member_that_is_there_twice(door: Door) -> None:
    """Those that pass it on leave it to the endpoint."""
    document, body = door.ask("GET", "/openapi.json").json(), b'{"\\ud800": 1, "\\ud800": 2}'
    operations = [
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {}) and not path.startswith("/v1/c")
    ]
    operations.remove(("POST", "/v1/embeddings"))
    assert len(operations) > 15  # noqa: PLR2004
    for method, path in operations:
        check(door.ask(method, re.sub(r"\{\w+\}", "x", path), body), 400, "2 times")


# --- addresses and headers --------------------------------------------------------------------------------------------


UNDECODABLE = [
    ("GET", f"/memories/{MARK}%FF"),
    ("GET", f"/memories?user_id={MARK}%FF"),
    ("GET", f"/memories?user_id={MARK}%C3%28"),
    ("GET", f"/memories?{MARK}%ED%A0%80=x"),
    ("DELETE", f"/entities/user/{MARK}%FE"),
    ("POST", f"/mcp?{MARK}%FF"),
    ("GET", f"/{MARK}%C3"),
]


def test_an_address_that_is_not_utf8_is_refused(door: Door) -> None:
    """Decoded with replacements, two such ids would be one."""
    for method, target in UNDECODABLE:
        check(door.ask(method, target), 400, "UTF-8")


ADDRESSES = [
    (f"/memories/{MARK}%00", 404),
    (f"/memories/{MARK}%2F..%2Fapi-keys", 404),
    (f"/memories/%2e%2e/api-keys/{MARK}", 404),
    (f"//memories/{MARK}", 404),
    (f"/MEMORIES?{MARK}", 404),
    (f"http://{MARK}.example/healthz", 404),
    (f"/memories/{MARK}" + "x" * 8000, 404),
    (f"/memories?user_id={MARK}%00", 400),
    (f"/memories?user_id={MARK}" + "x" * 8000, 400),
    (f"/memories?user_id=ana&cursor={MARK}", 400),
    (f"/memories?user_id=ana&as_of={MARK}", 400),
    (f"/memories?user_id=ana&limit={MARK}", 422),
    ("/memories?user_id=ana&limit=" + MANY_DIGITS, 422),
    (f"/memories?app_id={MARK}", 422),
]


def test_unusable_addresses(door: Door) -> None:
    for target, status in ADDRESSES:
        check(door.ask("GET", target), status)


def test_a_parameter_that_is_there_twice_is_refused(door: Door) -> None:
    door.memory.add("Clara drinks tea.", user_id="ana")
    for query in (f"user_id=ana&user_id={MARK}", "user_id=ana&user%5Fid=ana", "limit=1&limit=2", "user_id=&user_id="):
        check(door.ask("GET", f"/memories?{query}"), 400, "2 times")
        check(door.ask("DELETE", f"/memories?{query}"), 400, "2 times")
    listed = door.ask("GET", "/memories?user_id=ana&kinds=fact&kinds=episode&fields=a&fields=b")
    assert len(listed.json()["results"]) == 1
    # A query that is passed on is the endpoint's.
    check(door.ask("GET", "/v1/models?a=1&a=2"), 409, "upstream_url")


def test_ids_with_slashes_are_ids(door: Door) -> None:
    for user in ("a/b", "a", "a/../b"):
        door.memory.add("Clara drinks tea.", user_id=user)
    assert door.ask("DELETE", "/entities/user/a%2Fb").status == 200
    assert door.ask("DELETE", "/v2/entities/user/a%2F..%2Fb/").status == 200
    assert [one["id"] for one in door.ask("GET", "/entities").json()] == ["a"]


def test_another_host_is_refused(door: Door) -> None:
    for host in ("evil.example", f"{MARK}.localhost", "localhost.evil.example", "localhost@evil.example", "", "[::1]x"):
        for path in ("/healthz", "/memories", "/mcp"):
            check(door.ask("GET", path, Host=host), 421)
    check(send_raw(door.address, b"GET /healthz HTTP/1.0\r\n\r\n"), 421)


def test_floods_of_headers_are_refused(door: Door) -> None:
    start = head("GET", "/healthz").removesuffix(b"\r\n")
    flood = b"".join(b"X-%d: %s\r\n" % (number, MARK.encode()) for number in range(20_000))
    for parts in ([start, flood], [start, b"X: " + MARK.encode() * 100_000], [b"GET /" + MARK.encode() * 100_000]):
        try:
            check(send_raw(door.address, *parts), 400, "HTTP")
        except (ConnectionError, socket.timeout):  # closed while it was sent
            continue
        finally:
            assert send_raw(door.address, head("GET", "/healthz")).status == 200


NOT_HTTP = [
    f"{MARK}\r\n\r\n",
    f"GET /healthz {MARK}\r\n\r\n",
    f"GET /healthz HTTP/1.1\r\nX: {MARK}\r\n\r\n",
    f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: {MARK}\r\n\r\n",
    f"GET /healthz HTTP/1.1\r\nHost : localhost\r\nX: {MARK}\r\n\r\n",
    f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {MARK}\0\r\n\r\n",
    f"GET /{MARK}\xe9 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    f"POST /memories HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 5\r\nX: {MARK}\r\n\r\nabcde",
    f"POST /memories HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\nX: {MARK}\r\n\r\n",
    f"POST /memories HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MARK}\r\n\r\n",
    f"POST /memories HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: {MARK}\r\n\r\n",
    f"GET /requests HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding:\r\nX: {MARK}\r\n\r\n",
]


def test_what_is_not_http_is_refused_by_the_server(door: Door) -> None:
    for request_head in NOT_HTTP:
        check(send_raw(door.address, request_head.encode("latin-1")), 400, "HTTP")


def test_a_head_over_a_limit_that_comes_at_once_is_refused(door: Door) -> None:
    """The server itself limits only the parts of a head that it waits for."""
    start = head("GET", "/healthz").removesuffix(b"\r\n")
    long = b"X: " + MARK.encode() * (limits.MAX_HEAD_BYTES // len(MARK)) + b"\r\n\r\n"
    many = b"".join(b"X-%d: %s\r\n" % (number, MARK.encode()) for number in range(limits.MAX_HEADERS)) + b"\r\n"
    for wire_bytes in (start + long, start + many, head("GET", f"/healthz?x={'a' * limits.MAX_HEAD_BYTES}")):
        answer = send_raw(door.address, wire_bytes)
        check(answer, 431, str(limits.MAX_HEADERS))
        assert answer.headers["connection"] == "close"


def test_a_length_beside_chunks_ends_the_connection(door: Door) -> None:
    """What follows the last chunk is no second request of a hidden body, whichever length a proxy in front reads."""
    body = json.dumps(ADD).encode()
    sent = [("X-API-Key", door.key), *JSON.items(), ("Transfer-Encoding", "chunked"), ("Content-Length", "3")]
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with connect(door.address) as wire:
        start = head("POST", "/memories", sent).replace(b"Connection: close\r\n", b"")
        wire.sendall(start + chunks + head("DELETE", "/memories?user_id=ana"))
        check(read_answer(wire), 400, "Content-Length", "Transfer-Encoding")
        with contextlib.suppress(ConnectionError):
            assert wire.recv(100) == b""
    assert door.stored() == []


def test_a_request_to_change_the_protocol_is_answered_without_that(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    socket_headers = {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    for protocol in ("websocket", "h2c", MARK):
        upgrade = head("GET", "/healthz", {**socket_headers, "Upgrade": protocol})
        assert send_raw(door.address, upgrade.replace(b"Connection: close", b"Connection: Upgrade")).status == 200
    assert [
        one.getMessage() for one in caplog.records if one.name.startswith("uvicorn") and one.levelname != "INFO"
    ] == []


def test_pipelined_requests_are_answered_in_their_order(door: Door) -> None:
    body = json.dumps(ADD).encode()
    sent = {"X-API-Key": door.key, **JSON}
    adding = head("POST", "/memories", sent, len(body)).replace(b"Connection: close\r\n", b"") + body
    unknown = head("GET", f"/{MARK}", sent).replace(b"Connection: close\r\n", b"")
    with connect(door.address) as wire:
        wire.sendall(adding + unknown + adding + head("GET", "/healthz", sent))
        received = b"".join(iter(lambda: wire.recv(65536), b""))
    assert re.findall(rb"HTTP/1\.1 (\d+)", received) == [b"200", b"404", b"200", b"200"]
    assert received.index(b'"ADD"') < received.index(b"no_such_path") < received.rindex(b'"status":"ok"')


# --- methods ----------------------------------------------------------------------------------------------------------


def test_other_methods_are_refused_with_all_that_a_path_takes(door: Door) -> None:
    paths: dict[str, Any] = door.ask("GET", "/openapi.json").json()["paths"]
    for template, operations in paths.items():
        path = re.sub(r"\{\w+\}", "user", template)
        refused = door.ask("BREW", path)
        check(refused, 405)
        taken = {method.upper() for method in operations}
        assert taken <= set(refused.headers["allow"].split(", ")), template
        for method in ("OPTIONS", "TRACE", "HEAD", "PATCH"):
            is_probe = method == "HEAD" and template in {"/healthz", "/readyz"}
            # mem0's client may send this: it is refused with what to do instead.
            is_mem0 = method == "PATCH" and template.startswith("/api/v1/orgs/")
            if method not in taken and not is_probe and not is_mem0:
                answer = door.ask(method, path)
                assert answer.status == 405, (method, template)
                assert answer.headers["allow"] == refused.headers["allow"]
                assert (answer.body == b"") == (method == "HEAD")


# --- requests whose check could cost more than they do --------------------------------------------------------------


def body_models(model: Any) -> Iterator[type[BaseModel]]:
    """The classes of bodies of all routes."""
    for route in model.routes:
        if isinstance(route, APIRoute) and route.body_field is not None:
            found = route.body_field.field_info.annotation
            if isinstance(found, type) and issubclass(found, BaseModel):
                yield found


def test_a_body_gives_few_errors_however_many_of_its_parts_are_wrong() -> None:
    """pydantic makes an error of several hundred bytes of each; the time for an answer grew with their square."""
    models = {field for router in ROUTERS for field in body_models(router)}
    assert len(models) > 8
    for model in models:
        bodies: list[Any] = [{f"unknown {number}": 1 for number in range(5000)}, [0] * 5000]
        bodies += [
            {name: [wrong] * 5000} for name in model.model_fields for wrong in (0, {}, [[]], {"content": [0] * 9})
        ]
        for body in bodies:
            try:
                model.model_validate(body)
            except PydanticError as error:
                assert error.error_count() < 20, (model, str(body)[:60])


def test_many_wrong_parts_of_a_body_are_told_in_few_words(door: Door) -> None:
    items = json.dumps({"user_id": "ana", "messages": [MARK, *[0] * 300_000]}).encode()
    check(door.ask("POST", "/memories", items), 422, "messages.0")
    fields = json.dumps({f"{MARK} {number}": 1 for number in range(30_000)}).encode()
    check(door.ask("POST", "/search", fields), 422, "at most 100 fields")


def test_a_saved_chat_of_more_messages_than_are_read_is_refused(door: Door) -> None:
    """All users' chats are stored in one thread."""
    messages = [{"role": "user", "content": MARK}] * (limits.MAX_MESSAGES + 1)
    check(door.ask("POST", "/chats/saved", json.dumps({"user_id": "ana", "messages": messages}).encode()), 422, "2000")


def test_a_long_text_in_place_of_a_time_is_refused(door: Door) -> None:
    for name in ("as_of", "since", "until"):
        check(door.ask("GET", f"/memories?user_id=ana&{name}={'T00' * 10_000}"), 400, name)


# --- slow clients, and those that leave -------------------------------------------------------------------------------


def test_slow_heads_hold_up_nobody_and_are_cut_off(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    start = f"GET /healthz?{MARK} HTTP/1.1\r\nHost: loc".encode()
    with ExitStack() as stack:
        waiting = [stack.enter_context(connect(door.address)) for _ in range(100)]
        for wire in waiting:
            wire.sendall(start)
        assert send_raw(door.address, head("GET", "/healthz")).status == 200
        monkeypatch.setattr(limits, "HEAD_SECONDS", 0.05)
        waiting[0].sendall(b"alhost\r\n\r\n")
        assert read_answer(waiting[0]).status == 200
        silent, slow = (stack.enter_context(connect(door.address)) for _ in range(2))
        slow.sendall(start)
        for wire in (silent, slow, waiting[0]):
            with contextlib.suppress(ConnectionError):
                assert wire.recv(100) == b""


@pytest.mark.thorough
def test_a_body_may_take_longer_than_the_head(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEAD_SECONDS", SLOWNESS)
    monkeypatch.setattr(limits, "BODY_SECONDS", 2 * SLOWNESS)
    check(send_raw(door.address, head("POST", "/memories", {"X-API-Key": door.key, **JSON}, 10)), 408)


def test_a_slow_body_is_refused_and_stores_nothing(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.05)
    body = json.dumps(ADD).encode()
    sent = {"X-API-Key": door.key, **JSON}
    for path in ("/memories", "/search", "/mcp"):
        check(send_raw(door.address, head("POST", path, sent, len(body) + 1), body), 408)
    assert door.stored() == []


def test_a_new_connection_takes_the_place_of_one_that_waits(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 4)
    start = f"GET /healthz?{MARK} HTTP/1.1\r\nHost: loc".encode()
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(door.address)) for _ in range(8)]
        for wire in slow:
            with contextlib.suppress(ConnectionError):
                wire.sendall(start)
        assert send_raw(door.address, head("GET", "/healthz")).status == 200
        for wire in slow[:4]:
            with contextlib.suppress(ConnectionError):
                assert wire.recv(100) == b""
        slow[-1].sendall(b"alhost\r\n\r\n")
        assert read_answer(slow[-1]).status == 200


def test_connections_over_the_limit_get_an_answer_while_the_others_are_busy(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 2)
    sent = {"X-API-Key": door.key, **JSON}
    with ExitStack() as stack:
        for _ in range(2):
            wire = stack.enter_context(connect(door.address))
            wire.sendall(head("POST", "/memories", {**sent, "Expect": "100-continue"}, 10))
            assert wire.recv(100).startswith(b"HTTP/1.1 100 ")  # it is being answered
        check(send_raw(door.address, b""), 503, "connections")
    wait_until(lambda: send_raw(door.address, head("GET", "/healthz")).status == 200)


@pytest.mark.parametrize("key", ["", "unknown"])
def test_the_rest_of_a_body_that_nobody_reads_gives_way_and_has_an_end(
    door: Door, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 2)
    method, path, status = ("POST", "/memories", 401) if key else ("GET", "/healthz", 200)
    asking = head(method, path, {"X-API-Key": key, **JSON}, LIMIT).replace(b"Connection: close\r\n", b"")
    with ExitStack() as stack:
        for _ in range(2):
            wire = stack.enter_context(connect(door.address))
            wire.sendall(asking)
            assert read_answer(wire).status == status
            wire.sendall(b"[")  # the connection no longer counts as one that is kept alive
        assert send_raw(door.address, head("GET", "/healthz")).status == 200
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.05)
    with connect(door.address) as wire:
        wire.sendall(asking)
        assert read_answer(wire).status == status
        wire.sendall(b"[")
        wait_until(lambda: not Connection._all, "the connection is still there")


def test_the_rest_of_an_answer_that_nobody_takes_gives_way_and_has_an_end(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 2)

    def ask_and_take_nothing() -> socket.socket:
        before = len(Connection._all)
        wire = connect_small(door.address)
        wait_until(lambda: len(Connection._all) > before)
        for one in Connection._all:  # on loopback the system takes megabytes
            one.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        wire.sendall(head("GET", "/ui/style.css"))
        wait_until(lambda: all(one.transport.is_closing() for one in Connection._all))
        return wire

    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(ask_and_take_nothing())
        assert len(Connection._all) == 2  # noqa: PLR2004
        assert send_raw(door.address, head("GET", "/healthz")).status == 200
    wait_until(lambda: not Connection._all)
    monkeypatch.setattr(limits, "STALL_SECONDS", 0.05)
    with ask_and_take_nothing():
        wait_until(lambda: not Connection._all, "the connection is still there")


def test_answers_that_nobody_takes_do_not_fill_the_memory(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_UNSENT_BYTES", 50_000)
    monkeypatch.setattr(limits, "STALL_SECONDS", 1e6)
    note = {"messages": "A note.", "user_id": "ana", "metadata": {"a": "x" * 250_000}}
    assert door.ask("POST", "/memories", json.dumps(note).encode()).status == 200
    with ExitStack() as stack:
        for _ in range(4):
            wire = stack.enter_context(connect_small(door.address))
            asking = head("GET", "/memories", {"X-API-Key": door.key}).replace(b"Connection: close\r\n", b"")
            wire.sendall(asking * 40)
        wait_until(lambda: len(Connection._all) < 4, "no connection was closed")
        assert len(door.stored()) == 1


def test_the_connections_of_one_user_leave_room_for_others(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 8)
    ana, ben = (Keys(door.memory).create("user", user_id=name).text for name in ("ana", "ben"))
    with ExitStack() as stack:
        for _ in range(2):
            wire = stack.enter_context(connect(door.address))
            wire.sendall(head("POST", "/memories", {"X-API-Key": ana, **JSON, "Expect": "100-continue"}, 10))
            assert wire.recv(100).startswith(b"HTTP/1.1 100 ")
        refused = send_raw(door.address, head("GET", "/memories", {"X-API-Key": ana}))
        check(refused, 503, "this user")
        assert refused.headers["retry-after"] == "1"
        assert send_raw(door.address, head("GET", "/memories", {"X-API-Key": ben})).status == 200
    wait_until(lambda: send_raw(door.address, head("GET", "/memories", {"X-API-Key": ana})).status == 200)


def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALL_SECONDS", 0.05)
    with connect(door.address) as wire:
        request = head("GET", "/openapi.json").replace(b"Connection: close\r\n", b"")
        wire.sendall(request * 200)  # its answers are more than the buffers between take
        wait_until(lambda: not Connection._all, "the connection is still there")


def test_nothing_is_stored_for_a_client_that_leaves(door: Door) -> None:
    message = [{"role": "user", "content": f"Clara lives in {MARK}."}]
    body = json.dumps({"user_id": "ana", "messages": message}).encode()
    paths = ("/memories", "/chats/saved", "/v3/memories/add/", "/mcp")
    for path in paths:
        for is_reset in (True, False):
            for part in (body[:-5], body):  # the second would be a whole body but for the declared length
                with connect(door.address) as wire:
                    wire.sendall(head("POST", path, {"X-API-Key": door.key, **JSON}, len(body) + 1) + part)
                    if is_reset:
                        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # A reset may discard a request before it is read.
    wait_until(lambda: all(len(requests_of(door, path)) >= 2 for path in paths), "the requests did not end")  # noqa: PLR2004
    assert door.stored() == []
    door.memory.flush()
    assert door.memory.verify()["ok"]


def requests_of(door: Door, route: str) -> list[dict[str, Any]]:
    """The latest requests of a route."""
    return [one for one in door.ask("GET", "/requests?limit=200").json() if one["route"] == route]


# --- another tenant ---------------------------------------------------------------------------------------------------


def test_on_every_route_ids_of_another_tenant_read_as_unknown_ones(door: Door) -> None:
    ana = door._replace(key=Keys(door.memory).create("user", user_id="ana").text)
    bens = door.memory.add(f"Ben lives in {MARK}.", user_id="ben")["results"][0]["id"]
    event = door.memory.history(bens, user_id="ben")[0]["id"]
    body = json.dumps({"text": "x"}).encode()
    paths: dict[str, Any] = door.ask("GET", "/openapi.json").json()["paths"]
    by_id = [(path, method.upper()) for path in paths if "_id}" in path for method in paths[path]]
    assert len(by_id) > 8  # noqa: PLR2004
    for path, method in by_id:
        answers = [
            ana.ask(method, re.sub(r"\{\w+\}", text, path), body if method in {"POST", "PUT", "PATCH"} else b"")
            for text in (bens, event, "5d1a2d4e-0000-4000-8000-000000000000")
        ]
        assert answers[0].status in {400, 403, 404, 422}, (method, path)
        assert len({(one.status, one.body.replace(one.headers["x-request-id"].encode(), b"")) for one in answers}) == 1
        assert MARK not in "".join(one.text for one in answers)
    assert door.stored() == [f"Ben lives in {MARK}."]


# --- keys -------------------------------------------------------------------------------------------------------------


def wrong_keys(memory: Memory) -> list[str]:
    """Keys that are not valid."""
    keys = Keys(memory)
    revoked, expired, good = keys.create("admin"), expired_key(memory), keys.create("admin")
    keys.revoke(revoked.key.id)
    secret = good.text.rpartition("_")[2]
    return [
        revoked.text, expired.text, f"{good.text}x", good.text[:-1], good.text.upper(), f"gm_00000000_{secret}",
        f"gm_{good.key.id}_{MARK}", f"gm_{good.key.id}_", MARK, "gm_", f"{MARK}\xe9", f"{MARK} " * 1000,
        "null", "' OR 1=1 --",
    ]  # fmt: skip


def test_keys_that_are_not_valid_are_refused_in_every_header(memory: Memory) -> None:
    with served(memory, forwarded_allow_ips="127.0.0.1") as served_at:
        for number, key in enumerate(wrong_keys(memory)):
            address = f"192.0.2.{number}"  # refusals are counted for each address
            for header, value in (
                ("X-API-Key", key),
                ("Authorization", f"Bearer {key}"),
                ("Authorization", f"Token {key}"),
            ):
                for path in ("/memories", "/mcp", "/nowhere", "/api-keys"):
                    answer = send_raw(served_at, head("POST", path, {header: value, "X-Forwarded-For": address}))
                    check(answer, 401)
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert key not in answer.text


def refused_from(address: str, forwarded: str) -> list[int]:
    """The statuses of 21 requests with a wrong key, each with another number in place of {} in its headers."""
    return [
        send_raw(address, head("GET", "/memories", {"X-API-Key": MARK, **dict.fromkeys(FORWARDED, sent)})).status
        for sent in (forwarded.format(number) for number in range(21))
    ]


FORWARDED = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP", "True-Client-IP")


def test_no_header_escapes_the_count_of_refused_keys(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own variable
    assert refused_from(door.address, "192.0.2.{}") == [401] * 20 + [429]
    # Behind a proxy, the address that it appends counts, not what its client sent.
    with served(door.memory, forwarded_allow_ips="127.0.0.1") as behind:
        assert refused_from(behind, "192.0.2.{}, 198.51.100.7") == [401] * 20 + [429]
        other = {"X-API-Key": MARK, "X-Forwarded-For": "192.0.2.1, 198.51.100.8"}
        assert send_raw(behind, head("GET", "/memories", other)).status == 401  # noqa: PLR2004


# Paths of REST, of mem0's platform, of MCP and of the proxy.
ENTRANCES = ("/memories", "/v3/memories/add/", "/mcp", "/v1/chat/completions")


def test_two_keys_are_refused(door: Door) -> None:
    """A proxy in front may have checked the one, and we would have read the other."""
    ana, ben = (Keys(door.memory).create("user", user_id=user).text for user in ("ana", "ben"))
    body = b'{"messages": "Clara drinks tea."}'
    for path in ENTRANCES:
        for first, second in ((ana, ben), (f"{ana}x", ana), (MARK, ana), (ana, MARK)):
            for scheme in ("Bearer", "token"):
                both = [*JSON.items(), ("X-API-Key", first), ("Authorization", f"{scheme} {second}")]
                refused = send_raw(door.address, head("POST", path, both, len(body)), body)
                check(refused, 400, "X-API-Key and Authorization")
                assert ana not in refused.text
    for allowed in (f"Bearer {ana}", f"Basic {ben}", "Bearer"):
        one_key = [("X-API-Key", ana), ("Authorization", allowed)]
        assert send_raw(door.address, head("GET", "/memories", one_key)).status == 200
    assert door.stored() == []


def test_a_header_that_says_who_calls_or_for_whom_is_there_once(door: Door) -> None:
    for name in ("Authorization", "X-API-Key", "X-Graphmem-User", "X-Graphmem-Agent", "X-OpenWebUI-User-Id"):
        key = [] if name in {"Authorization", "X-API-Key"} else [("X-API-Key", door.key)]
        for path in ENTRANCES:
            for second in (f"Bearer {door.key}", f"Basic {MARK}", f"Bearer {MARK}"):
                twice = [*JSON.items(), *key, (name, f"Bearer {door.key}"), (name.lower(), second)]
                check(send_raw(door.address, head("POST", path, twice, 2), b"{}"), 400, f"{name}: is there 2 times")


def test_a_key_of_an_idempotent_request_may_be_any_bytes(door: Door) -> None:
    body = json.dumps(ADD).encode()
    answers = [door.ask("POST", "/memories", body, Idempotency_Key=key) for key in ("\xff\xfe", "\xff\xfe", "\xff")]
    events = [answer.json()["results"][0]["event"] for answer in answers]
    assert events == ["ADD", "NONE", "ADD"]
