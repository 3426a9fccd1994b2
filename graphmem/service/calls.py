"""Threads for the calls of a memory, with an end to the queue in front of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from graphmem.concurrency import DrainablePool
from graphmem.errors import StoreUnavailable

P = ParamSpec("P")
R = TypeVar("R")


class Overloaded(StoreUnavailable):
    """More calls wait for a thread than the service lets wait."""

    is_loggable = True


class CallPool(DrainablePool):
    """A pool of `threads` threads in front of which at most `queue` calls wait; the next one raises Overloaded."""

    def __init__(self, threads: int, queue: int) -> None:
        super().__init__(threads, thread_name_prefix="graphmem-call")
        self._capacity = threads + queue
        self._unfinished = 0
        self._count_lock = Lock()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        with self._count_lock:
            if self._unfinished >= self._capacity:
                raise Overloaded("Too many requests wait already; try again in a second.")
            self._unfinished += 1
        try:
            task = super().submit(fn, *args, **kwargs)
        except BaseException:
            self._finish()
            raise
        task.add_done_callback(self._finish)
        return task

    def _finish(self, _: Future[Any] | None = None) -> None:
        with self._count_lock:
            self._unfinished -= 1
