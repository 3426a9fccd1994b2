"""The proxy between a hostile endpoint and its clients: what reaches the client, and which keys reach the endpoint."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient
from support.service import client_of, served
from support.waiting import TIMEOUT

from graphmem import Memory
from graphmem.service import limits
from graphmem.service.proxy.upstream import KeyForms
from graphmem.testing import ModelEndpoint, behaviours
from graphmem.testing.behaviours import Behaviour

CHAT, MODELS = "/v1/chat/completions", "/v1/models"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Am I allergic?"}]}
ANSWER = json.dumps(
    {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}]}
).encode()
ADMIN_KEY = "correct/horse&battery"


class RawEndpoint:
    """A server that answers each connection with the same bytes, whatever HTTP says about them."""

    def __init__(self) -> None:
        self.answer, self.requests = b"", list[bytes]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            with connection:
                received = b""
                while b"\r\n\r\n" not in received:
                    received += connection.recv(65536)
                head, _, body = received.partition(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                missing = (int(lengths[0].partition(b":")[2]) if lengths else 0) - len(body)
                while missing > 0:
                    missing -= len(connection.recv(65536))
                self.requests.append(received)
                connection.sendall(self.answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def raw() -> Iterator[RawEndpoint]:
    endpoint = RawEndpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture
def client(memory: Memory, raw: RawEndpoint) -> Iterator[TestClient]:
    with client_of(memory, "user", proxy={"upstream_url": raw.url}) as client:
        yield client


def answered(*lines: str, status: str = "200 OK", body: bytes = ANSWER) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", "Content-Type: application/json", "Connection: close", *lines, "", ""])
    return head.encode() + body


def whole(*lines: str, **more: Any) -> bytes:
    return answered(f"Content-Length: {len(ANSWER)}", *lines, **more)


# --- answers of the endpoint ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["999 Odd", "600 Odd", "101 Switching Protocols", "304 Not Modified", "300 Choose"])
def test_a_status_that_no_client_may_get_is_an_error_of_ours(client: TestClient, raw: RawEndpoint, status: str) -> None:
    raw.answer = whole(status=status)
    for answer in (client.post(CHAT, json=BODY), client.get(MODELS)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")


def test_informational_answers_are_left_out(client: TestClient, raw: RawEndpoint) -> None:
    raw.answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n" + whole()
    answer = client.post(CHAT, json=BODY)
    assert (answer.status_code, answer.content) == (200, ANSWER)
    assert "link" not in answer.headers


def test_a_length_beside_chunks_does_not_cut_the_answer_off(client: TestClient, raw: RawEndpoint) -> None:
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(ANSWER), ANSWER)
    raw.answer = answered("Content-Length: 10", "Transfer-Encoding: chunked", body=chunks)
    answer = client.post(CHAT, json=BODY)
    assert (answer.status_code, answer.content) == (200, ANSWER)
    assert answer.headers.get("content-length") != "10"


def test_two_lengths_are_an_error_of_ours(client: TestClient, raw: RawEndpoint) -> None:
    raw.answer = answered("Content-Length: 10", "Content-Length: 20")
    assert client.post(CHAT, json=BODY).status_code == 502


def test_an_answer_without_a_body_has_no_length(client: TestClient, raw: RawEndpoint) -> None:
    raw.answer = answered("Content-Length: 5", status="204 No Content", body=b"")
    answer = client.post(CHAT, json=BODY)
    assert (answer.status_code, answer.content, answer.headers.get("content-length")) == (204, b"", None)


@pytest.mark.parametrize("path", [CHAT, MODELS])
def test_of_the_headers_only_those_that_a_client_needs_are_returned(
    client: TestClient, raw: RawEndpoint, path: str
) -> None:
    wanted = {
        "retry-after": "7", "retry-after-ms": "70", "x-should-retry": "false", "x-ratelimit-remaining-tokens": "5",
        "openai-processing-ms": "12", "content-language": "en",
    }  # fmt: skip
    unwanted = {
        "set-cookie": "sid=1", "clear-site-data": '"*"', "access-control-allow-origin": "*", "ratelimit-remaining": "x",
        "ratelimit-limit": "x", "www-authenticate": "Basic", "strict-transport-security": "max-age=9", "alt-svc": "h3",
        "link": "</x>; rel=preload", "refresh": "0; url=http://x", "service-worker-allowed": "/", "nel": "{}",
        "report-to": "{}", "location": "http://x", "x-request-id": "theirs", "x-graphmem": "theirs",
        "x-content-type-options": "sniff", "cache-control": "public", "content-disposition": "attachment",
        "content-security-policy": "default-src *", "openai-organization": "theirs", "x-powered-by": "theirs",
    }  # fmt: skip
    raw.answer = whole(*(f"{name}: {value}" for name, value in (wanted | unwanted).items()))
    answer = client.get(path) if path == MODELS else client.post(path, json=BODY)
    assert answer.content == ANSWER
    assert {name: answer.headers.get(name) for name in wanted} == wanted
    assert [name for name, value in unwanted.items() if answer.headers.get(name) == value] == []


def test_headers_pass_byte_for_byte(memory: Memory, raw: RawEndpoint) -> None:
    raw.answer = whole("Content-Language: 小雨", "X-RateLimit-Reset: \x80")
    with served(memory, needs_key=False, proxy={"upstream_url": raw.url}) as url:
        for answer in (httpx2.post(url + CHAT, json=BODY), httpx2.get(url + MODELS)):
            assert answer.content == ANSWER
            returned = {name.lower(): value for name, value in answer.headers.raw}
            assert returned[b"content-language"] == "小雨".encode()
            assert returned[b"x-ratelimit-reset"] == "\x80".encode()


def test_a_list_of_models_is_limited_and_unpacked(
    client: TestClient, raw: RawEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_MODELS_BYTES", 10_000)
    packed = gzip.compress(b" " * 20_000)
    raw.answer = answered("Content-Encoding: gzip", f"Content-Length: {len(packed)}", body=packed)
    assert client.get(MODELS).status_code == 502
    packed = gzip.compress(b'{"data": []}')
    raw.answer = answered("Content-Encoding: gzip", f"Content-Length: {len(packed)}", body=packed)
    first, second = client.get(MODELS), client.get(MODELS)
    assert first.json() == second.json() == {"data": []}
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


@pytest.mark.parametrize("behaviour", [behaviours.silent(), behaviours.stalled()])
def test_an_endpoint_is_not_waited_for_without_end(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour
) -> None:
    monkeypatch.setattr(limits, "UPSTREAM_SECONDS", 0.4)
    with ModelEndpoint([behaviour], default="Yes, you are.") as upstream:
        with client_of(memory, "user", proxy={"upstream_url": upstream.url}) as client:
            answer = client.post(CHAT, json={**BODY, "stream": True})
            assert upstream.requests[-1].abandoned.wait(TIMEOUT)
    if behaviour.end == "silent":
        assert answer.status_code == 502
    else:
        assert b"[DONE]" not in answer.content
    assert [one["memory"] for one in memory.get_all(user_id="ana")["results"]] == ["Am I allergic?"]


# --- keys of the service ----------------------------------------------------------------------------------------------


@contextmanager
def keyed(memory: Memory, role: str = "app", **proxy: Any) -> Iterator[tuple[TestClient, ModelEndpoint]]:
    with ModelEndpoint(default="I see.") as upstream:
        settings = {"upstream_url": upstream.url, **proxy}
        with client_of(memory, role, proxy=settings, admin_api_key=ADMIN_KEY) as client:
            yield client, upstream


def sent(upstream: ModelEndpoint) -> str:
    request = upstream.requests[-1]
    return f"{request.path} {request.headers} {request.raw!r}"


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings", "/v1/completions", MODELS])
def test_a_key_in_a_query_does_not_reach_the_endpoint(memory: Memory, raw: RawEndpoint, path: str) -> None:
    raw.answer = answered("Content-Length: 2", status="400 Bad Request", body=b"{}")
    with client_of(memory, "app", proxy={"upstream_url": raw.url}, admin_api_key=ADMIN_KEY) as client:
        ours = client.headers["X-API-Key"]
        for key in (ours, ours.replace("_", "%5F"), f"key%3D{ours}", f"x_{ours}", "correct%2Fhorse%26battery"):
            address = f"{path}?a=1&api_key={key}&b=%7E"
            assert (client.get(address) if path == MODELS else client.post(address, json=BODY)).status_code == 400
            request_line = raw.requests[-1].partition(b"\r\n")[0]
            assert request_line.endswith(b"?a=1&b=%7E HTTP/1.1")
            assert not any(part in raw.requests[-1] for part in (b"gm_", b"gm%5F", b"horse"))


def test_a_key_in_a_header_does_not_reach_the_endpoint(memory: Memory) -> None:
    with keyed(memory, forward_authorization=True) as (client, upstream):
        ours = client.headers["X-API-Key"]
        for key in (ours, f"key_{ours}", ADMIN_KEY, f"Bearer {ADMIN_KEY}", "correct%2Fhorse%26battery"):
            assert client.post(CHAT, json=BODY, headers={"X-Custom": key, "Referer": f"http://x/#{key}"}).is_success
            assert not any(part in sent(upstream) for part in ("gm_", "horse"))
            count = len(upstream.requests)
            assert client.post(CHAT, json=BODY, headers={"Authorization": f"Bearer {key}"}).status_code == 401
            assert len(upstream.requests) == count


@pytest.mark.parametrize(
    ("path", "words"), [(CHAT, "messages"), ("/v1/embeddings", "input"), ("/v1/completions", "prompt")]
)
def test_a_key_in_a_body_is_refused_unless_somebody_says_it(memory: Memory, path: str, words: str) -> None:
    with keyed(memory) as (client, upstream):
        for key in (client.headers["X-API-Key"], ADMIN_KEY):
            others = len(upstream.requests)
            said: Any = [{"role": "user", "content": key}] if words == "messages" else key
            for member in ({"user": key}, {"metadata": {"a": [f"key={key}"]}}, {key: 1}):
                refused = client.post(path, json={"model": "m", words: said, **member})
                assert (refused.status_code, key in refused.text) == (400, False)
            for body in (json.dumps({"user": key, words: said})[:-1] + ', "user": "x"}', f'{{"user": "{key}"'):
                assert client.post(path, content=body).status_code == 400
            escaped = json.dumps({"user": key, words: said}).replace("/", r"\/")  # as PHP writes it
            assert client.post(path, content=escaped).status_code == 400
            escaped = json.dumps({"user": "?", words: said}).replace("?", "".join(f"\\u{ord(c):04x}" for c in key))
            assert client.post(path, content=escaped).status_code == 400
            assert len(upstream.requests) == others
            assert client.post(path, json={"model": "m", words: said}, headers={"X-Graphmem": "off"}).status_code == 200
        assert client.post(path, json={"model": "m", words: "horse gm_"}).status_code == 200


@pytest.mark.parametrize(
    "written",
    [
        "gm_01234567_", "x%67m_0123456%37_", "gm%5F01234567%5f", r"\u0067m_01234567\u005F", r"\u002567m_\u00301234567_",
        r"%\u00367m_01234567_", f"{ADMIN_KEY}x", ADMIN_KEY.replace("/", r"\/"), ADMIN_KEY.replace("/", "%2F"),
        "".join(f"%{byte:02X}" for byte in ADMIN_KEY.encode()),
    ],
)  # fmt: skip
def test_a_key_is_found_however_it_is_written(written: str) -> None:
    assert KeyForms(ADMIN_KEY).are_in(f"%gm{written}")
    assert not KeyForms(None).are_in(f"%gm{written[:-2]}")


def test_a_key_is_looked_for_in_as_many_steps_as_a_text_is_long() -> None:
    """A text of percent signs took 190 times its size in memory: 32 MiB of them 6 GB, and 14 s in the event loop."""
    for part in ("%", "gm_0000000", r"\u0067", "%67%6d", ADMIN_KEY[:-1]):
        text = part * (1_000_000 // len(part))
        tracemalloc.start()
        try:
            assert not KeyForms(ADMIN_KEY).are_in(text)
            assert tracemalloc.get_traced_memory()[1] < len(text)
        finally:
            tracemalloc.stop()


def test_a_chat_with_more_members_or_values_than_are_read_has_no_memory(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_CHAT_VALUES", 1000)
    with keyed(memory) as (client, upstream):
        many_members = {f"m{number}": 1 for number in range(limits.MAX_FIELDS)}
        for more, outcome in (
            (many_members, "off; no-chat"),
            ({"x": [{}] * 500}, "off; no-chat"),
            ({"x": [0]}, "on; "),
        ):
            answer = client.post(CHAT, json={**BODY, **more, "user": "ana"})
            assert answer.status_code == 200
            assert answer.headers["x-graphmem"].startswith(outcome)
            sent_on = json.loads(upstream.requests[-1].raw)
            assert (sent_on["messages"][-1], *(sent_on[name] for name in more)) == (
                BODY["messages"][-1],
                *more.values(),
            )
