"""AsyncMemory: the methods of `Memory` for asyncio. Each call runs the synchronous method in a worker thread."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from pydantic import BaseModel

from graphmem.boundary import validation
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


class AsyncSubscription:
    """A handler that is told of events, until `await close()` or the end of an `async with` block."""

    def __init__(self, handler: Callable[[MemoryEvent], object], loop: asyncio.AbstractEventLoop) -> None:
        self._handler = handler
        self._loop = loop
        self._subscription: Subscription | None = None

    async def open(self, memory: AsyncMemory, event: str, name: str | None) -> Self:
        """Subscribes."""
        self._subscription = await run_in(memory.executor, Memory.on, memory.sync, event, self._call, name=name)
        return self

    def _call(self, event: MemoryEvent) -> None:
        """Calls the handler in the thread that tells of events, which waits for what it returns to be awaited."""
        if not inspect.iscoroutinefunction(self._handler):
            awaitable = self._handler(event)
            if not inspect.isawaitable(awaitable):
                return
        elif self._loop.is_closed():
            raise StoreUnavailable("the event loop of this handler has ended")
        else:
            awaitable = self._handler(event)
        asyncio.run_coroutine_threadsafe(self._await(awaitable), self._loop).result()

    async def _await(self, awaitable: Awaitable[object]) -> None:
        _in_handlers_of.set((*_in_handlers_of.get(), self))
        await awaitable

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the subscription as `Subscription.close` does; in its own handler it does not wait for this one."""
        if self._subscription is not None:
            wait = self not in _in_handlers_of.get()
            await run_in(None, self._subscription.close, wait=wait)


# The subscriptions whose handlers the running task is in.
_in_handlers_of: contextvars.ContextVar[tuple[AsyncSubscription, ...]] = contextvars.ContextVar(
    "graphmem_in_handlers_of", default=()
)


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
    ) -> AsyncSubscription:
        """What the handler returns is awaited in the event loop of this call, if it can be: a coroutine runs there."""
        checked = validation.handler(handler, may_be_awaited=True)
        return await AsyncSubscription(checked, asyncio.get_running_loop()).open(self, event, name)

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
    judge = _awaited(Memory.judge)
    judgements = _awaited(Memory.judgements)
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
