"""Answers of the service, compressed for clients that take gzip."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.service import client_of, ok

from graphmem import Memory
from graphmem.service import limits
from graphmem.service.middleware import Compression

LIST = "/memories?user_id=ana&kinds=episode"


@pytest.fixture
def told(memory: Memory) -> Memory:
    memory.add([{"role": "user", "content": f"Tea number {n} was good."} for n in range(20)], user_id="ana")
    memory.flush()
    return memory


def raw(client: TestClient, path: str, encodings: str, **more: Any) -> tuple[Any, bytes]:
    """An answer and the bytes of its body as they were sent."""
    with client.stream("GET", path, headers={"Accept-Encoding": encodings}, **more) as answer:
        return answer, b"".join(answer.iter_raw())


@pytest.mark.parametrize("encodings", ["gzip", "br, GZIP;q=0.5", "deflate, gzip ; q=1.0"])
def test_a_large_answer_is_compressed_and_says_so(told: Memory, encodings: str) -> None:
    with client_of(told) as client:
        plain, content = raw(client, LIST, "identity")
        assert "content-encoding" not in plain.headers and len(content) > limits.MIN_COMPRESSED_BYTES
        answer, body = raw(client, LIST, encodings)
        assert answer.headers["content-encoding"] == "gzip"
        assert plain.headers["vary"] == answer.headers["vary"] == "Accept-Encoding"
        assert answer.headers["content-length"] == str(len(body))
        assert gzip.decompress(body) == content
        assert len(body) < len(content) / 4 + limits.MAX_PADDING_BYTES


@pytest.mark.parametrize("encodings", ["", "identity", "br", "gzip;q=0", "gzip; q = 0.000", "notgzip"])
def test_a_client_that_does_not_take_gzip_gets_none(told: Memory, encodings: str) -> None:
    with client_of(told) as client:
        for path in (LIST, "/ui/", "/ui/app.js"):
            assert "content-encoding" not in raw(client, path, encodings)[0].headers


def test_lengths_of_one_answer_differ(told: Memory) -> None:
    with client_of(told) as client:
        answers = [raw(client, LIST, "gzip")[1] for _ in range(20)]
    assert len({gzip.decompress(body) for body in answers}) == 1
    assert len({len(body) for body in answers}) > 5  # 20 equal draws of 256 come once in 10^48 runs


def test_small_answers_problems_exports_and_new_keys_are_not_compressed(told: Memory) -> None:
    with client_of(told) as client:
        label = "\N{TEACUP WITHOUT HANDLE}" * 200
        answers = [
            client.get("/caller"), client.get(f"/memories?{'x' * 3000}=1"), client.get("/export?user_id=ana"),
            client.post("/api-keys", json={"label": label, "user_id": label}),
        ]  # fmt: skip
        assert [answer.status_code for answer in answers] == [200, 422, 200, 201]
        assert not [answer for answer in answers if "content-encoding" in answer.headers]
        assert len(answers[-1].content) > limits.MIN_COMPRESSED_BYTES
        assert ok(client.get("/openapi.json"))["info"]


async def test_streams_parts_and_encoded_answers_pass_at_once() -> None:
    """Each message of the application has been sent on when its `send` returns."""
    body = b" " * 5000
    length = (b"content-length", b"5000")
    json, events = (b"content-type", b"application/json"), (b"content-type", b"text/event-stream")
    for headers, path in (
        ([events], "/any"),
        ([json], "/any"),  # of unknown length
        ([json, length, (b"content-encoding", b"br")], "/any"),
        ([json, length], "/left/out"),
    ):
        sent: list[Any] = []

        async def application(
            scope: Any, receive: Any, send: Any, headers: Any = headers, sent: list[Any] = sent
        ) -> None:
            start = {"type": "http.response.start", "status": 200, "headers": list(headers)}
            for message in (start, {"type": "http.response.body", "body": body}):
                await send(message)
                assert sent[-1] == message

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        scope = {"type": "http", "path": path, "headers": [(b"accept-encoding", b"gzip")]}
        await Compression(application, {"/left/out"})(scope, None, send)  # type: ignore[arg-type]
        assert len(sent) == 2


async def test_an_answer_in_several_parts_is_sent_as_it_is() -> None:
    sent: list[Any] = []
    head = [(b"content-type", b"application/json"), (b"content-length", b"5000")]
    start = {"type": "http.response.start", "status": 200, "headers": head}
    parts = [{"type": "http.response.body", "body": b" " * 2500, "more_body": more} for more in (True, False)]

    async def application(scope: Any, receive: Any, send: Any) -> None:
        for message in (start, *parts):
            await send(message)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/any", "headers": [(b"accept-encoding", b"gzip")]}
    await Compression(application, ())(scope, None, send)  # type: ignore[arg-type]
    assert sent == [start, *parts]
