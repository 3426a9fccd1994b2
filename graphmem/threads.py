"""One thread for numpy's matrix products while ours are computed.

They are too small to be worth several, and a BLAS's idle threads wait by spinning: on two cores they took half of the
parser's and the model's time. Counted, so that whoever comes first sets the limit and whoever goes last lifts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

_lock = Lock()
_inside: list[Any] = []


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
