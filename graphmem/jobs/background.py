"""A thread for work that no caller waits for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Lock

from graphmem.concurrency import Pool


class BackgroundTask:
    """Runs a function in a thread of its own, once for all requests that come before it begins."""

    def __init__(self, run: Callable[[], None], thread_name_prefix: str) -> None:
        self._run = run
        self._pool = Pool(1, thread_name_prefix=thread_name_prefix)
        self._lock = Lock()
        self._last_run: Future[None] | None = None

    def schedule(self) -> None:
        """Schedules a run. Has no effect while a scheduled run has not begun. Raises StoreUnavailable after `close`."""
        with self._lock:
            if self._last_run is None or self._last_run.running() or self._last_run.done():
                self._last_run = self._pool.submit(self._run)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits up to `timeout` seconds for the runs scheduled so far; returns whether they have ended.

        Returns at once if there is none.
        """
        with self._lock:
            last_run = self._last_run
        return last_run is None or not wait([last_run], timeout).not_done

    def close(self) -> None:
        """Waits for the scheduled runs and ends the thread."""
        self._pool.shutdown(wait=True)
