"""Who brings a projection up to date, and knows whether its store can be reached."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, sleep_using_event, stop_when_event_set, wait_random_exponential

from graphmem.concurrency import Pool, start_thread
from graphmem.errors import ConfigError, GraphmemError, StoreUnavailable
from graphmem.stores.projection import CLEAN_REPORT, Projection
from graphmem.stores.protocols import StoreLost

logger = logging.getLogger("graphmem")
T = TypeVar("T")
# Seconds between tries: at first less than one, later up to five, each a random part of that, so that many
# processes do not fall upon a server that has just come back.
RETRY_BASE, RETRY_MAX = 0.5, 5.0


class ProjectionWorker:
    """Delivers to one projection in a thread of its own: a store that hangs costs a caller his patience, no more.

    When a store is out of reach, a background thread alone tries again until it gets through and has delivered what was
    left; meanwhile every call learns at once that it is away. `check` reaches a store on a server (see `VectorIndex`);
    None for stores inside this process, which are simply waited for.
    """

    def __init__(self, projection: Projection, check: Callable[[], None] | None = None) -> None:
        self.projection = projection
        self.name = projection.name
        self._check = check
        self._thread = Pool(1, thread_name_prefix=f"graphmem-{projection.name}")
        self._away, self._closing, self._lock = Event(), Event(), Lock()
        self._late: Future[None] | None = None
        self._has_refused = False  # whether a late delivery kept `schedule` from beginning another one
        self._looker: Thread | None = None

    @property
    def is_unavailable(self) -> bool:
        """Whether the store is out of reach, as far as is known."""
        return self._away.is_set()

    @property
    def is_overdue(self) -> bool:
        """Whether a delivery is under way that somebody has given up waiting for."""
        return self._late is not None and not self._late.done()

    def open(self) -> None:
        """Reaches a store on a server, and sees to it that it holds what it should; the latter in the background.

        Raises ConfigError for what only a change of the configuration helps; a store out of reach is no error.
        """
        if self._check is None:
            return
        try:
            self._check()
        except StoreUnavailable as error:
            self.mark_unavailable(error)
        else:
            self._do(self.projection.check_for_loss)

    def schedule(self, partitions: Sequence[str]) -> Future[None] | None:
        """Begins to deliver what these partitions need; None where that is hopeless for now.

        What it is asked for while a delivery is late is delivered when that one has ended.
        """
        if self.is_unavailable:
            return None
        with self._lock:
            if self.is_overdue and self._check is not None:
                self._has_refused = True
                return None
        return self._do(lambda: self.projection.deliver(partitions))

    def _do(self, act: Callable[[], None]) -> Future[None]:
        job = self._thread.submit(act)
        job.add_done_callback(self._done)
        return job

    def _done(self, job: Future[None]) -> None:
        error = None if job.cancelled() else job.exception()
        if isinstance(error, StoreUnavailable) and self._check is not None:
            self.mark_unavailable(error)
        elif error is not None:
            logger.warning("%s could not be delivered (%s); it stays recorded", self.name, type(error).__name__)
        with self._lock:
            is_asked_again, self._has_refused = self._has_refused, False
        if is_asked_again:
            with suppress(GraphmemError):  # it is closing, or there can be no thread
                self.schedule([])

    def wait_for(self, job: Future[None] | None, timeout: float | None) -> bool:
        """Whether a delivery succeeds within so many seconds. One that is late goes on."""
        if job is None:
            return False
        try:
            return job.exception(timeout) is None  # `_done` has logged one; what was written is durable all the same
        except TimeoutError:
            self._late = job
            return False

    def drain(self, timeout: float) -> bool:
        """Waits until all is delivered, as long as something moves every `timeout` seconds; whether it is."""
        job = self._late if self.is_overdue else self.schedule([])
        seen = -1
        while job is not None and not job.done() and seen != self.projection.delivered:
            seen = self.projection.delivered
            self.wait_for(job, timeout if self._check is not None else None)
        return job is not None and job.done() and self.wait_for(job, 0)

    def catch_up(self, partitions: Sequence[str], timeout: float) -> bool:
        """Before a read: whether the projection is up to date with all commits; on a server within `timeout`."""
        if self._check is None:
            self.projection.catch_up(partitions)
            return True
        return not self.projection.has_pending() or self.wait_for(self.schedule(partitions), timeout)

    def read(self, act: Callable[[], T]) -> T:
        """Reads from the store. Raises StoreUnavailable at once while it is away."""
        if self.is_unavailable:
            raise StoreUnavailable(f"{self.name} is out of reach; it is tried again in the background")
        try:
            return act()
        except StoreUnavailable as error:
            if self._check is not None:
                self.mark_unavailable(error)
            raise

    def check_contents(self) -> None:
        """Before a first read: sees to it that a store in this process holds what it should; servers are at opening."""
        if self._check is None:
            self.projection.check_for_loss()

    def verify(self) -> dict[str, list[str]]:
        """What the projection's `verify` says, or at once that the store is away; a lost one is begun to be filled."""
        if self.is_unavailable or self.is_overdue:
            return {
                **CLEAN_REPORT,
                "unreachable": [f"{self.name} is out of reach, or behind; it is being brought up to date"],
            }
        found = self.projection.verify()
        if found["missing"] and self.projection.has_pending():
            self.schedule([])
        return found

    def mark_unavailable(self, error: StoreUnavailable) -> None:
        """Notes that the store is away, and begins to look for it."""
        with self._lock:
            if self.is_unavailable or self._closing.is_set():
                return
            self._away.set()
            logger.warning("%s is out of reach (%s); it is tried again in the background", self.name, error)
            # A daemon: a program that ends while a server is away must not wait for it.
            self._looker = Thread(target=self._look, args=(error,), name=f"graphmem-{self.name}-look", daemon=True)
            try:
                start_thread(self._looker)
            except StoreUnavailable:  # whoever asks next finds out, and may begin to look
                self._looker = None
                self._away.clear()

    def _look(self, error: StoreUnavailable) -> None:
        again = Retrying(
            retry=retry_if_exception_type((StoreUnavailable, ConfigError)),
            wait=wait_random_exponential(RETRY_BASE, RETRY_MAX),
            stop=stop_when_event_set(self._closing),
            sleep=sleep_using_event(self._closing),
            reraise=True,
        )
        begun = monotonic()
        try:
            if isinstance(error, StoreLost):
                self.projection.invalidate()
            again(self._reach)
        except GraphmemError as last:
            if not self._closing.is_set():
                logger.warning("%s could not be brought up to date (%s)", self.name, type(last).__name__)
        else:
            logger.warning("%s is back after %.0f s and up to date", self.name, monotonic() - begun)
        finally:
            self._away.clear()
            if not self._closing.is_set():
                with suppress(GraphmemError):  # whoever wrote just now was told that the store is away
                    self.schedule([])

    def _reach(self) -> None:
        if self._check is not None:
            self._check()
        self.projection.check_for_loss()

    def cancel_waits(self) -> None:
        """Ends what waits for something."""
        self._closing.set()
        self.projection.stop()

    def close(self, timeout: float) -> None:
        """Lets what is under way end, for so many seconds, and begins nothing new."""
        self.cancel_waits()
        is_done = True
        try:
            self._thread.submit(lambda: None).result(None if self._check is None else timeout)
        except TimeoutError:
            is_done = False
            logger.warning("%s does not answer; closed without waiting for it", self.name)
        except StoreUnavailable:  # there can be no thread, so nothing is under way
            pass
        self._thread.shutdown(wait=is_done)
        if self._looker is not None:
            self._looker.join(timeout)
