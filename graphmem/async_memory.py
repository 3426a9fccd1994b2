"""AsyncMemory: the methods of `Memory` for asyncio. Each call runs the synchronous method in a worker thread."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from pydantic import BaseModel

from graphmem.errors import ConfigError, StoreUnavailable
from graphmem.events_bus import Subscription
from graphmem.memory import Memory
from graphmem.model import MemoryEvent

if TYPE_CHECKING:
    from graphmem.plugins import Embedder, LanguageModel, Reranker, VectorIndex

P = ParamSpec("P")
R = TypeVar("R")


def _awaited(method: Callable[Concatenate[Memory, P], R]) -> Callable[Concatenate[AsyncMemory, P], Awaitable[R]]:
    @functools.wraps(method)
    async def call(self: AsyncMemory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await run_in(self.executor, method, self.sync, *args, **kwargs)

    return call


async def run_in(executor: Executor | None, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs a function in a thread of the executor (None: of the event loop), with the context of the caller."""
    call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(executor, call)


def _run_in_loop(
    loop: asyncio.AbstractEventLoop, handler: Callable[[MemoryEvent], Coroutine[Any, Any, object]], event: MemoryEvent
) -> object:
    """Runs the handler of an event in its loop, from the thread that tells of events, which waits for it."""
    if loop.is_closed():
        raise StoreUnavailable("the event loop of this handler has ended")
    return asyncio.run_coroutine_threadsafe(handler(event), loop).result()


class AsyncMemory:
    """`Memory` for asyncio, with the same arguments, results and errors; `async with` closes it.

    `sync` is the Memory behind it: `AsyncMemory(sync=memory)` takes one that is open. `executor` has the threads of the
    calls, by default those of the event loop. Awaiting an AsyncMemory returns it: `await AsyncMemory.from_config(…)`
    works as in mem0. Cancelling a call does not stop the method that its thread has begun.
    """

    def __init__(self, *args: Any, sync: Memory | None = None, executor: Executor | None = None, **kwargs: Any) -> None:
        if sync is not None and (args or kwargs):
            raise ConfigError(
                "sync: is a memory that is open already; leave the other arguments out, or leave out sync"
            )
        self.sync = Memory(*args, **kwargs) if sync is None else sync
        self.executor = executor

    @classmethod
    def from_config(
        cls,
        config_dict: Mapping[str, Any] | BaseModel,
        *,
        vector_index: VectorIndex | None = None,
        embedder: Embedder | None = None,
        llm: LanguageModel | None = None,
        reranker: Reranker | None = None,
    ) -> AsyncMemory:
        """Opens a memory as `Memory.from_config` does."""
        parts: dict[str, Any] = {
            "vector_index": vector_index, "embedder": embedder, "llm": llm, "reranker": reranker
        }  # fmt: skip
        return cls(sync=Memory.from_config(config_dict, **parts))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> AsyncMemory:
        """Opens a memory as `Memory.from_file` does."""
        return cls(sync=Memory.from_file(path))

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @functools.wraps(Memory.on)
    async def on(
        self, event: str, handler: Callable[[MemoryEvent], object], *, name: str | None = None
    ) -> Subscription:
        """A handler that is a coroutine function runs in the event loop of this call."""
        if inspect.iscoroutinefunction(handler):
            handler = functools.partial(_run_in_loop, asyncio.get_running_loop(), handler)
        return await run_in(self.executor, Memory.on, self.sync, event, handler, name=name)

    add = _awaited(Memory.add)
    update = _awaited(Memory.update)
    undo = _awaited(Memory.undo)
    forget = _awaited(Memory.forget)
    pin = _awaited(Memory.pin)
    unpin = _awaited(Memory.unpin)
    tend = _awaited(Memory.tend)
    abstract = _awaited(Memory.abstract)
    undo_cycle = _awaited(Memory.undo_cycle)
    lifecycle_status = _awaited(Memory.lifecycle_status)
    pending_deletion = _awaited(Memory.pending_deletion)
    why_not = _awaited(Memory.why_not)
    purge = _awaited(Memory.purge)
    dead_letters = _awaited(Memory.dead_letters)
    retry_dead_letter = _awaited(Memory.retry_dead_letter)
    drop_dead_letter = _awaited(Memory.drop_dead_letter)
    delete = _awaited(Memory.delete)
    delete_all = _awaited(Memory.delete_all)
    search = _awaited(Memory.search)
    context = _awaited(Memory.context)
    profile = _awaited(Memory.profile)
    get = _awaited(Memory.get)
    get_all = _awaited(Memory.get_all)
    history = _awaited(Memory.history)
    explain = _awaited(Memory.explain)
    end_session = _awaited(Memory.end_session)
    entities = _awaited(Memory.entities)
    entity = _awaited(Memory.entity)
    alias = _awaited(Memory.alias)
    unalias = _awaited(Memory.unalias)
    rename_entity = _awaited(Memory.rename_entity)
    graph = _awaited(Memory.graph)
    count_by_day = _awaited(Memory.count_by_day)
    forget_subscriber = _awaited(Memory.forget_subscriber)
    flush = _awaited(Memory.flush)
    retry_failed = _awaited(Memory.retry_failed)
    stats = _awaited(Memory.stats)
    verify = _awaited(Memory.verify)
    repair = _awaited(Memory.repair)
    rebuild = _awaited(Memory.rebuild)
    export = _awaited(Memory.export)
    import_ = _awaited(Memory.import_)
    reset = _awaited(Memory.reset)
    close = _awaited(Memory.close)
