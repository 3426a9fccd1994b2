"""Connections take turns to begin requests: the protocol on an event loop, with transports that keep what it writes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.waiting import TIMEOUT
from uvicorn.server import ServerState

from graphmem.service import limits
from graphmem.service.connections import Connection
from graphmem.service.server import server_config
from graphmem.settings.schema import ServeSettings


class Wire(asyncio.Transport):
    """The transport of a client that reads nothing and never leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def requests(*paths: str) -> bytes:
    return b"".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths)


def test_a_request_comes_before_those_that_others_have_pipelined(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections pipeline: one request begins in a pass here, and a new one's comes next."""
    monkeypatch.setattr(limits, "REQUESTS_PER_PASS", 1)
    begun, count, each, all_answered = list[str](), 8, 4, asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(scope["path"])
        if scope["path"] == "/0/1":  # the first of those that were pipelined
            connection().data_received(requests("/late"))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})
        if len(begun) == count * each + 1:
            all_answered.set()

    def connection() -> Connection:
        made = Connection(config, ServerState(), {})
        made.connection_made(Wire())
        return made

    async def serve() -> None:
        made = [connection() for _ in range(count)]
        for number, one in enumerate(made):
            one.data_received(requests(*(f"/{number}/{place}" for place in range(each)))[:-2])
            assert begun == []
            one.data_received(b"\r\n")
        gone = connection()
        gone.data_received(requests("/gone"))
        gone.connection_lost(None)
        await asyncio.wait_for(all_answered.wait(), TIMEOUT)
        for one in made:
            assert isinstance(one.transport, Wire)
            assert one.transport.written.count(b"204 No Content") == each
            one.connection_lost(None)

    config = server_config(app, ServeSettings(), lifespan="off")
    config.load()
    asyncio.run(serve())
    rounds = [f"/{number}/{place}" for place in range(each) for number in range(count)]
    assert [path for path in begun if path != "/late"] == rounds
    assert begun.index("/late") - begun.index("/0/1") <= 2
