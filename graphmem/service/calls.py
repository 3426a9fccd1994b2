"""Threads for the calls of a memory, with an end to the queue in front of them, of which nobody may take the whole."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from graphmem.concurrency import Pool
from graphmem.errors import StoreUnavailable

P = ParamSpec("P")
R = TypeVar("R")

calling_user: ContextVar[str | None] = ContextVar("calling_user", default=None)
"""The user whose share of a pool the calls of this context take; None: nobody's, as an admin's."""


class Overloaded(StoreUnavailable):
    """More calls wait for a thread than the service lets wait."""

    is_loggable = True


class ShareTaken(Overloaded):
    """As many calls of one user run and wait as may."""


@dataclass(eq=False, slots=True)
class _Call:
    """A call. `is_claimed`: a thread has taken it from the queue, or it was given up without one."""

    user: str | None
    function: Callable[[], Any]
    future: Future[Any]
    is_claimed: bool = False


@dataclass(slots=True)
class _Calls:
    """The unfinished calls of one user: how many have a thread or wait for one, and those that wait for these."""

    started: int = 0
    waiting: deque[_Call] = field(default_factory=deque)


class CallPool(Pool):
    """A pool of `threads` threads in front of which at most `queue` calls wait; the next one raises Overloaded.

    The calls of one user (`calling_user`) take this share of the threads and of the queue, however slow and many they
    are; the next one raises ShareTaken.
    """

    def __init__(self, threads: int, queue: int, share: float = 1.0) -> None:
        super().__init__(threads, thread_name_prefix="graphmem-call")
        self._capacity = threads + queue
        self._own_threads, self._own_capacity = math.ceil(share * threads), math.ceil(share * self._capacity)
        self._unfinished = 0
        self._calls: dict[str | None, _Calls] = {}
        self._lock = Lock()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        call = _Call(calling_user.get(), partial(fn, *args, **kwargs), future)
        with self._lock:
            if self._unfinished >= self._capacity:
                raise Overloaded("Too many requests wait already; try again in a second.")
            calls, is_limited = self._calls.get(call.user) or _Calls(), call.user is not None
            if is_limited and calls.started + len(calls.waiting) >= self._own_capacity:
                raise ShareTaken("Too many requests of this user wait already; try again in a second.")
            self._calls[call.user] = calls
            self._unfinished += 1
            if is_limited and calls.started >= self._own_threads:
                calls.waiting.append(call)
                return future
            calls.started += 1
        self._start(call)
        return future

    def _start(self, call: _Call) -> None:
        try:
            super().submit(self._run, call)
        except StoreUnavailable:
            # The pool is closed, or no thread can be started; then the call is in the queue all the same.
            if self._claim(call):
                self._finish(call)
                raise

    def _claim(self, call: _Call) -> bool:
        with self._lock:
            is_first, call.is_claimed = not call.is_claimed, True
        return is_first

    def _run(self, call: _Call) -> None:
        if not self._claim(call):
            return
        is_wanted, result = call.future.set_running_or_notify_cancel(), None
        try:
            result = call.function() if is_wanted else None
        except BaseException as error:  # noqa: BLE001  (whoever waits for the call gets it)
            self._finish(call)
            call.future.set_exception(error)
            return
        self._finish(call)  # first: whoever has the result may send the next request
        if is_wanted:
            call.future.set_result(result)

    def _finish(self, call: _Call) -> None:
        with self._lock:
            self._unfinished -= 1
            calls = self._calls[call.user]
            following = calls.waiting.popleft() if calls.waiting else None
            calls.started -= following is None
            if not calls.started:
                del self._calls[call.user]
        if following is None:
            return
        try:
            self._start(following)
        except StoreUnavailable as error:
            if following.future.set_running_or_notify_cancel():
                following.future.set_exception(error)
