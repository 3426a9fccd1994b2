"""`AsyncMemory`."""

from __future__ import annotations

import asyncio
import inspect
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from support.fakes import fake_models

from graphmem import AsyncMemory, Memory, Settings
from graphmem.errors import (
    ConfigError,
    StoreUnavailable,
    ValidationError,
)


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_async_memory_has_the_same_methods_and_signatures() -> None:
    assert public(Memory) <= public(AsyncMemory)
    for name in public(Memory):
        mine, other = getattr(Memory, name), getattr(AsyncMemory, name)
        if name not in {"from_config", "from_file"}:
            assert inspect.iscoroutinefunction(inspect.unwrap(other, stop=inspect.iscoroutinefunction)), name
            assert other.__doc__ == mine.__doc__
        assert list(inspect.signature(other).parameters.values()) == list(inspect.signature(mine).parameters.values())


def test_async_memory_adds_searches_updates_and_deletes() -> None:
    async def live() -> None:
        async with AsyncMemory(":memory:", settings=Settings.from_dict(fake_models())) as memory:
            responses = await asyncio.gather(*(memory.add(f"tea {n}", user_id="u1") for n in range(5)))
            uid = responses[0]["results"][0]["id"]
            assert len((await memory.search("tea", user_id="u1"))["results"]) == 5
            assert (await memory.update(uid, "cake"))["memory"] == "cake"
            assert (await memory.get(uid))["memory"] == "cake"
            assert (await memory.get_all(user_id="u1"))["total"] == 5
            assert len(await memory.history(uid)) == 2
            assert "cake" in await memory.context("cake", user_id="u1")
            assert (await memory.delete(uid))["deleted"] == [uid]
            with pytest.raises(ValidationError):
                await memory.search("tea")
            assert (await memory.verify())["ok"]
        with pytest.raises(StoreUnavailable):
            await memory.stats()
        await memory.close()

    asyncio.run(live())


def test_an_open_memory_is_awaited_in_the_threads_that_are_given(tmp_path: Path) -> None:
    is_used = Event()
    with Memory(":memory:", settings=Settings.from_dict(fake_models())) as memory:
        with ThreadPoolExecutor(1, initializer=is_used.set) as threads:
            awaited = AsyncMemory(sync=memory, executor=threads)
            assert asyncio.run(awaited.add("tea", user_id="u1"))["results"]
        assert memory.get_all(user_id="u1")["total"] == 1
        with pytest.raises(ConfigError, match="^sync: is a memory that is open already"):
            AsyncMemory(tmp_path / "other", sync=memory)
    assert is_used.is_set()
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("awaits", [False, True])
def test_from_config_may_be_awaited_as_in_mem0(tmp_path: Path, awaits: bool) -> None:
    async def live() -> None:
        opened = AsyncMemory.from_config(fake_models(home=str(tmp_path)))
        async with (await opened) if awaits else opened as memory:
            assert memory is opened
            assert (await memory.add("tea", user_id="u1"))["results"]

    asyncio.run(live())


def test_the_tests_need_no_variable_of_ours() -> None:
    assert not [name for name in os.environ if name.startswith("GRAPHMEM_") and name != "GRAPHMEM_SERVERS"]
