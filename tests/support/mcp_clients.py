"""MCP clients of a server in process, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from graphmem import Memory
from graphmem.model import Scope
from graphmem.service.mcp.http import Key, mcp_app
from graphmem.service.mcp.server import create_server
from support.waiting import TIMEOUT

KEYS = {
    "gm_ana": Key("k1", "ana@x.org"),
    "gm_ben": Key("k2", "ben"),
    "gm_app": Key("k3", None),
    "gm_ana_bot": Key("k4", "ana@x.org", "bot"),
}
ANA = "ana@x.org"
_HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def server_of(memory: Memory, user_id: str = ANA, **options: Any) -> Any:
    """A server in this process whose clients are one user's."""
    scope = Scope(user_id=user_id)
    return create_server(memory, lambda _: scope, **options)


def command(home: Path, *arguments: str, user_id: str = ANA) -> StdioServerParameters:
    """The command `graphmem mcp` on a folder."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "graphmem", "mcp", "--user", user_id, "--home", str(home), *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("GRAPHMEM_")},
    )


class RawServer:
    """A running `graphmem mcp`, to which a test writes messages itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._stdin, self.stdout = process, process.stdin, process.stdout

    def write(self, line: str) -> None:
        """Writes a line."""
        self._stdin.write(f"{line}\n".encode())

    def send(self, **message: Any) -> None:
        """Writes a message; without an `id` it is a notification."""
        self.write(json.dumps({"jsonrpc": "2.0", **message}))

    async def request(self, number: int, method: str, **params: Any) -> dict[str, Any]:
        """Writes a request; returns the answer, which has to be the next line."""
        self.send(id=number, method=method, params=params)
        answer: dict[str, Any] = json.loads(await self.stdout.readline())
        assert answer["id"] == number
        return answer

    async def connect(self) -> dict[str, Any]:
        """Makes the handshake of the older protocol; returns the server's answer."""
        answer = await self.request(0, "initialize", **_HANDSHAKE)
        self.send(method="notifications/initialized")
        return answer


@asynccontextmanager
async def raw_server(home: Path) -> AsyncIterator[RawServer]:
    """Starts `graphmem mcp` on a folder, and kills it at the end if it still runs."""
    parameters, pipe = command(home), asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        parameters.command, *parameters.args, env=parameters.env, stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        yield RawServer(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@asynccontextmanager
async def serving(memory: Memory, **options: Any) -> AsyncIterator[str]:
    """Serves a memory over HTTP on a free port; yields the address."""
    app = mcp_app(memory, **{"find_key": find_key, **options})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        task = asyncio.create_task(server.serve([listener]))
        async with asyncio.timeout(TIMEOUT):
            while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
                await asyncio.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.should_exit = True
            await task


async def find_key(text: str) -> Key | None:
    """Finds one of the keys of these tests."""
    return KEYS.get(text)


@asynccontextmanager
async def http_client(url: str, key: str, mode: str = "auto", **headers: str) -> AsyncIterator[Client]:
    """A client with a key."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}", **headers}) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def connected(way: str, mode: str, memory: Memory, home: Path) -> AsyncIterator[Client]:
    """A client of Ana's, connected in process, over stdio or over HTTP, by the current or the older protocol."""
    if way == "http":
        async with serving(memory) as url, http_client(url, "gm_ana", mode) as client:
            yield client
    else:
        async with Client(server_of(memory) if way == "process" else command(home), mode=mode) as client:
            yield client
