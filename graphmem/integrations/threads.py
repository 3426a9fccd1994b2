"""Daemon threads for calls that may hang, in place of the threads of an event loop.

`asyncio.to_thread` has few threads for the whole program, and an event loop and a process wait for them at their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from threading import BoundedSemaphore, Thread
from typing import ParamSpec, TypeVar

from graphmem.concurrency import start_thread

P = ParamSpec("P")
R = TypeVar("R")

# Seconds between two looks for a free thread.
POLL_SECONDS = 0.01


class DaemonThreads:
    """Awaits functions in daemon threads, at most `size` at once. Serves any number of event loops."""

    def __init__(self, size: int, name: str) -> None:
        self._slots = BoundedSemaphore(size)
        self._name = name

    async def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Returns a function's result, or raises its error; waits for a free thread first.

        When the caller is cancelled, a function that has begun goes on, and nobody waits for it. Raises
        StoreUnavailable if no thread can be started.
        """
        answer: Future[R] = Future()
        work = partial(copy_context().run, function, *args, **kwargs)

        def run() -> None:
            try:
                answer.set_result(work())
            except BaseException as error:  # noqa: BLE001  (it is raised where the result is awaited)
                answer.set_exception(error)
            finally:
                self._slots.release()

        while not self._slots.acquire(blocking=False):  # noqa: ASYNC110  (it serves several event loops)
            await asyncio.sleep(POLL_SECONDS)
        answer.set_running_or_notify_cancel()  # a running future cannot be cancelled, so `run` may always set it
        try:
            start_thread(Thread(target=run, name=self._name, daemon=True))
        except BaseException:
            self._slots.release()
            raise
        return await asyncio.wrap_future(answer)
