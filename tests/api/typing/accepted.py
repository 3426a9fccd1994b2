"""Uses of the public API that mypy accepts, strictly. Checked by `test_typing.py`, never run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from graphmem import AsyncMemory, ChatLink, Memory, Settings
from graphmem.errors import GraphmemError, PartialWrite


def remember(folder: Path) -> list[str]:
    with Memory(folder) as memory:
        result = memory.add([{"role": "user", "content": "I like tea."}], user_id="ana", metadata={"topic": "tea"})
        ids = [item["id"] for item in result["results"]]
        for hit in memory.search("tea", user_id="ana", top_k=3, explain=True)["results"]:
            score: float = hit["score"]
            text: str = hit["memory"]
            print(score, text)
        block: str = memory.context("tea", user_id="ana")
        record = memory.get(ids[0])
        if record is not None:
            print(record["memory"], block)
        return ids


def configured(settings: Settings, config: Mapping[str, object]) -> Memory:
    try:
        return Memory.from_config(config)
    except PartialWrite:
        raise
    except GraphmemError:
        return Memory(settings=settings)


def beside_a_chat(memory: Memory) -> str:
    link = ChatLink(memory, user_id="ana")
    try:
        return link.recall("And then?", [{"role": "user", "content": "Hello."}], top_k=5)
    finally:
        link.close()


async def awaited() -> int:
    awaited: AsyncMemory = await AsyncMemory.from_config({})
    await awaited.close()
    async with AsyncMemory(":memory:") as memory:
        await memory.add("I like tea.", user_id="ana")
        return (await memory.get_all(user_id="ana"))["total"]


asyncio.run(awaited())
