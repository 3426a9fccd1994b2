"""`graphmem mcp` killed while tools add memories: each that was acknowledged is there afterwards."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from support.mcp_clients import ANA, command

from graphmem import Memory

CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.mark.quick
async def test_what_was_acknowledged_is_stored(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for seed in range(2):
        acknowledged |= await killed_run(tmp_path, random.Random(seed), f"run {seed}")  # noqa: S311
    assert acknowledged
    with Memory(tmp_path) as memory:
        stored = {one["id"] for one in memory.get_all(user_id=ANA, limit=10_000)["results"]}
        assert acknowledged <= stored
        memory.flush()
        assert memory.verify()["ok"]


async def killed_run(home: Path, chance: random.Random, label: str) -> set[str]:
    """Sends calls of add_memory without waiting for answers; kills the server after some; returns the ids it gave."""
    parameters = command(home)
    process = await asyncio.create_subprocess_exec(
        parameters.command, *parameters.args, env=parameters.env,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None

    def send(**message: Any) -> None:
        process.stdin.write(f"{json.dumps({'jsonrpc': '2.0', **message})}\n".encode())

    send(id=0, method="initialize", params=CLIENT)
    await process.stdout.readline()
    send(method="notifications/initialized")
    for number in range(1, 200):
        arguments = {"content": f"Fact {number} of {label}: Clara met Tom in Lisbon."}
        send(id=number, method="tools/call", params={"name": "add_memory", "arguments": arguments})
    lines = [await process.stdout.readline() for _ in range(chance.randrange(5, 40))]
    process.send_signal(signal.SIGKILL)
    lines += (await process.stdout.read()).splitlines(keepends=True)
    await process.wait()
    answers = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return {answer["result"]["structuredContent"]["results"][0]["id"] for answer in answers}
