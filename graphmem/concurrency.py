"""Threads: pools that refuse work with our errors, and a single one for numpy while our products are computed.

Those products are too small to be worth several, and a BLAS's idle threads wait by spinning: on two cores they took
half of the parser's and the model's time. Counted, so that whoever comes first sets the limit and whoever goes last
lifts it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock, Thread, current_thread, main_thread
from typing import Any, ParamSpec, TypeVar

from graphmem.errors import CLOSED, NO_THREAD, StoreUnavailable

P = ParamSpec("P")
R = TypeVar("R")

_lock = Lock()
_inside: list[Any] = []


class Pool(ThreadPoolExecutor):
    """Threads; work that comes after the closing, or for which there can be no thread, is refused with our error."""

    _is_closed = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise StoreUnavailable(CLOSED if self._is_closed else NO_THREAD) from error

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        self._is_closed = True
        super().shutdown(wait, cancel_futures=cancel_futures)


def start_thread(thread: Thread) -> None:
    """Starts a thread. Raises StoreUnavailable where there can be none."""
    try:
        thread.start()
    except RuntimeError as error:
        raise StoreUnavailable(NO_THREAD) from error


def is_caller_timeout(error: BaseException) -> bool:
    """Whether an error is what a program's own handler of an alarm usually raises, and no system call's.

    Handlers run in the main thread only.
    """
    return isinstance(error, TimeoutError) and error.errno is None and current_thread() is main_thread()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Limits the BLAS libraries of this process to one thread. Safe to nest and to enter from several threads."""
    with _lock:
        # The outermost one's limiter knows what was before; the others only count.
        _inside.append(_limited() if not _inside else None)
    try:
        yield
    finally:
        with _lock:
            if len(_inside) == 1:
                _release()
                _inside[0].restore_original_limits()
                _release()
            _inside.pop()


def _limited() -> Any:
    _release()
    return _controller().limit(limits=1, user_api="blas")


def _release() -> None:
    """Lets any thread set the limit, and not only the one that did so first.

    From 3.7 on threadpoolctl ignores, without a word, what every other thread sets for as long as that one lives.
    """
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415  (it looks through the process's libraries)

    return ThreadpoolController()


def _fork() -> None:
    """A thread that held the lock when this process was forked is not here to give it back."""
    global _lock  # noqa: PLW0603
    _lock = Lock()
    _inside.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork)
