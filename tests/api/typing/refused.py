"""Mistakes that mypy finds: one in each line that ends in `# error`. Checked by `test_typing.py`, never run."""

from __future__ import annotations

from graphmem import AsyncMemory, Memory

memory = Memory(":memory:")
memory.serach("tea", user_id="ana")  # error
memory.get("id")["memory"]  # error
memory.search("tea", user_id="ana")["hits"]  # error
count: str = memory.get_all(user_id="ana")["total"]  # error
memory.context("tea", user_id="ana").append("x")  # error
memory.delete("id")["receipt"]  # error
Memory(settings={"home": "here"})  # error


async def not_awaited(memory: AsyncMemory) -> None:
    memory.get_all(user_id="ana")["total"]  # error
