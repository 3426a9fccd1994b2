"""`graphmem mcp` killed while tools add memories: each that was acknowledged is there afterwards."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

from support.mcp_clients import ANA, raw_server

from graphmem import Memory


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
    async with raw_server(home) as server:
        await server.connect()
        for number in range(1, 200):
            arguments = {"content": f"Fact {number} of {label}: Clara met Tom in Lisbon."}
            server.send(id=number, method="tools/call", params={"name": "add_memory", "arguments": arguments})
        lines = [await server.stdout.readline() for _ in range(chance.randrange(5, 40))]
        server.process.send_signal(signal.SIGKILL)
        rest, _ = await server.process.communicate()
    lines += rest.splitlines(keepends=True)
    answers = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return {answer["result"]["structuredContent"]["results"][0]["id"] for answer in answers}
