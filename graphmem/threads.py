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
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from graphmem.errors import CLOSED, StoreUnavailable

P = ParamSpec("P")
R = TypeVar("R")

_lock = Lock()
_inside: list[Any] = []


class Pool(ThreadPoolExecutor):
    """Threads; work that comes after the closing is refused with an error of ours."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise StoreUnavailable(CLOSED) from error


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits the BLAS libraries of this process to one thread. Safe to nest and to enter from several threads."""
    with _lock:
        # The outermost one's limiter knows what was before; the others only count.
        _inside.append(_controller().limit(limits=1, user_api="blas") if not _inside else None)
    try:
        yield
    finally:
        with _lock:
            if len(_inside) == 1:
                _inside[0].restore_original_limits()
            _inside.pop()


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
