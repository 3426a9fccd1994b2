"""The thread that delivers to one projection and keeps track of whether its store can be reached."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from graphmem.concurrency import Pool, start_thread
from graphmem.errors import ConfigError, GraphmemError, StoreError, StoreUnavailable
from graphmem.plugins import StoreLost
from graphmem.stores.projection import CLEAN_REPORT, Projection

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying

logger = logging.getLogger("graphmem")
T = TypeVar("T")
# In seconds: the pause before a retry is random between 0 and a bound that grows from RETRY_BASE to RETRY_MAX. Random,
# so that many processes do not all connect at once to a server that has just come back.
RETRY_BASE, RETRY_MAX = 0.5, 5.0
# Seconds that a read waits at least for a shared store inside this process: a delivery to it waits for the ledger's
# write lock, which another process may hold for half a minute. Four busy processes held it, in turn, for over 3 s.
EMBEDDED_CATCH_UP_SECONDS = 10.0


def retrying(
    closing: Event, *errors: type[Exception], least_pause: Callable[[BaseException | None], float] = lambda _: 0.0
) -> Retrying:
    """Returns what calls a function again after these errors, until it succeeds or `closing` is set; then it raises.

    The pauses grow up to `RETRY_MAX` seconds; none is shorter than `least_pause` of the error.
    """
    import tenacity  # noqa: PLC0415  (only a store on a server is tried again)

    growing = tenacity.wait_random_exponential(RETRY_BASE, RETRY_MAX)

    def pause(state: RetryCallState) -> float:
        error = None if state.outcome is None else state.outcome.exception()
        return max(growing(state), least_pause(error))

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(errors),
        wait=pause,
        stop=tenacity.stop_when_event_set(closing),
        sleep=tenacity.sleep_using_event(closing),
        reraise=True,
    )


class ProjectionWorker:
    """Delivers to one projection in a thread of its own: a store that hangs delays a caller by at most its timeout.

    While a store is unavailable, only one background thread retries, until it has connected and delivered everything
    that is pending; calls in the meantime fail at once. `check` connects to a store on a server (see `VectorIndex`). It
    is None for a store inside this process; a call waits for such a store itself without a timeout.
    """

    def __init__(self, projection: Projection, check: Callable[[], None] | None = None) -> None:
        self.projection = projection
        self.name = projection.name
        self._check = check
        self._pool = Pool(1, thread_name_prefix=f"graphmem-{projection.name}")
        self._unavailable, self._closing, self._lock = Event(), Event(), Lock()
        self._last_delivery: Future[None] | None = None
        self._overdue_delivery: Future[None] | None = None
        self._is_schedule_requested = False  # `schedule` was called while a delivery was overdue
        self._reconnect_thread: Thread | None = None
        self._contents_are_checked = False

    @property
    def is_on_server(self) -> bool:
        """True if the store is on a server."""
        return self._check is not None

    @property
    def is_unavailable(self) -> bool:
        """True if the last access to the store failed and the background thread has not reached it since."""
        return self._unavailable.is_set()

    @property
    def is_overdue(self) -> bool:
        """True if a delivery is in progress for which a caller waited until its timeout."""
        return self._overdue_delivery is not None and not self._overdue_delivery.done()

    def open(self) -> None:
        """Connects to a store on a server; then, in the background, checks its contents for loss.

        Raises ConfigError if only a change of the configuration can help. A store out of reach is no error: the
        background thread retries.
        """
        if self._check is None:
            return
        try:
            self._check()
        except StoreUnavailable as error:
            self.mark_unavailable(error)
        else:
            self._submit(self.projection.check_for_loss)

    def schedule(self, partitions: Sequence[str]) -> Future[None] | None:
        """Starts to deliver the pending changes of these partitions.

        Returns None while the store is unavailable, and while a delivery to a server is overdue; in the second case
        another delivery follows as soon as that one ends. A delivery to a shared projection that has not begun yet
        covers this call, too.
        """
        if self.is_unavailable:
            return None
        with self._lock:
            if self.is_overdue and self._check is not None:
                self._is_schedule_requested = True
                return None
        last = self._last_delivery
        if self.projection.shared and last is not None and not last.running() and not last.done():
            return last
        self._last_delivery = delivery = self._submit(lambda: self.projection.deliver(partitions))
        return delivery

    def _submit(self, task: Callable[[], None]) -> Future[None]:
        delivery = self._pool.submit(task)
        delivery.add_done_callback(self._on_done)
        return delivery

    def _on_done(self, delivery: Future[None]) -> None:
        error = None if delivery.cancelled() else delivery.exception()
        if isinstance(error, StoreUnavailable) and self._check is not None:
            self.mark_unavailable(error)
        elif error is not None:
            logger.warning("%s could not be delivered (%s); it stays recorded", self.name, type(error).__name__)
        with self._lock:
            is_requested, self._is_schedule_requested = self._is_schedule_requested, False
        if is_requested:
            with suppress(GraphmemError):  # the worker is closing, or no thread can be started
                self.schedule([])

    def wait_for(self, delivery: Future[None] | None, timeout: float | None) -> bool:
        """Returns True if the delivery succeeds within `timeout` seconds; after that it goes on as overdue."""
        if delivery is None:
            return False
        try:
            return delivery.exception(timeout) is None  # `_on_done` logs an error; the commit is durable all the same
        except TimeoutError:
            self._overdue_delivery = delivery
            return False

    def drain(self, timeout: float) -> bool:
        """Waits until everything is delivered, as long as a batch is delivered every `timeout` seconds.

        Returns True if everything is delivered.
        """
        is_delivered = covers_all = False
        while not covers_all:
            is_overdue = self.is_overdue
            delivery = self._overdue_delivery if is_overdue else self.schedule([])
            batches = -1
            while delivery is not None and not delivery.done() and batches != self.projection.batches_delivered:
                batches = self.projection.batches_delivered
                self.wait_for(delivery, timeout if self._check is not None else None)
            is_delivered = delivery is not None and delivery.done() and self.wait_for(delivery, 0)
            # An overdue delivery began before the last changes; another one brings these.
            covers_all = not (is_overdue and is_delivered)
        return is_delivered

    def catch_up(self, partitions: Sequence[str] | None, timeout: float) -> bool:
        """Brings the projection up to date with all commits before a read; a shared one within `timeout` seconds.

        A read of these partitions (None: of all) does not wait for changes of others, of which there may be thousands.
        For a shared one inside this process, `timeout` is at least `EMBEDDED_CATCH_UP_SECONDS`. Returns True if the
        projection is up to date for these partitions.
        """
        if not self.projection.shared:
            self.projection.catch_up(partitions or [])
            return True
        if self._check is None:
            timeout = max(timeout, EMBEDDED_CATCH_UP_SECONDS)
        return self.is_up_to_date(partitions) or self.wait_for(self.schedule(partitions or []), timeout)

    def is_up_to_date(self, partitions: Sequence[str] | None) -> bool:
        """Returns True if nothing of these partitions (None: of any) waits; False for a projection that is not shared.

        Reads the ledger alone, so it may be called in a snapshot.
        """
        return self.projection.shared and not self.projection.has_pending(partitions)

    def read(self, query: Callable[[], T]) -> T:
        """Calls `query`, which reads from the store. Raises StoreUnavailable at once while the store is unavailable."""
        if self.is_unavailable:
            raise StoreUnavailable(f"{self.name} is out of reach; it is tried again in the background")
        try:
            return query()
        except StoreUnavailable as error:
            if self._check is not None:
                self.mark_unavailable(error)
            raise

    def check_contents(self) -> bool:
        """Refills a store inside this process that lost rows, before its first read; `open` does it for servers.

        Later calls do nothing. Returns False, without a check, if the store cannot be brought up to date within
        `EMBEDDED_CATCH_UP_SECONDS`: then the next call checks. Waits as long for the check itself, and logs the error
        of a store that fails.
        """
        if self._check is not None or self._contents_are_checked:
            return True
        self._contents_are_checked = True
        try:
            if self.is_overdue or not self.catch_up(None, EMBEDDED_CATCH_UP_SECONDS):
                self._contents_are_checked = False
                return False
            self.wait_for(self._submit(self.projection.check_for_loss), EMBEDDED_CATCH_UP_SECONDS)
        except StoreError as error:
            logger.warning("the contents of %s could not be checked: %s", self.name, type(error).__name__)
        return True

    def verify(self) -> dict[str, list[str]]:
        """Returns the report of `Projection.verify`; without a comparison if the store is unavailable or overdue.

        Schedules a delivery if rows are missing because the store lost its contents.
        """
        if self.is_unavailable or self.is_overdue:
            return {
                **CLEAN_REPORT,
                "unreachable": [f"{self.name} is out of reach, or behind; it is being brought up to date"],
            }
        report = self.projection.verify()
        if report["missing"] and self.projection.has_pending():
            self.schedule([])
        return report

    def mark_unavailable(self, error: StoreUnavailable) -> None:
        """Records that the store is unavailable and starts the background thread that reconnects."""
        with self._lock:
            if self.is_unavailable or self._closing.is_set():
                return
            self._unavailable.set()
            logger.warning("%s is out of reach (%s); it is tried again in the background", self.name, error)
            # A daemon: a program must be able to end while a server is unavailable.
            self._reconnect_thread = Thread(
                target=self._reconnect, args=(error,), name=f"graphmem-{self.name}-reconnect", daemon=True
            )
            try:
                start_thread(self._reconnect_thread)
            except StoreUnavailable:  # the next call meets the store itself and may start the thread
                self._reconnect_thread = None
                self._unavailable.clear()

    def _reconnect(self, error: StoreUnavailable) -> None:
        retry = retrying(self._closing, StoreUnavailable, ConfigError)
        start = monotonic()
        try:
            if isinstance(error, StoreLost):
                self.projection.invalidate()
            retry(self._connect_and_catch_up)
        except GraphmemError as last_error:
            if not self._closing.is_set():
                logger.warning("%s could not be brought up to date (%s)", self.name, type(last_error).__name__)
        else:
            logger.warning("%s is back after %.0f s and up to date", self.name, monotonic() - start)
        finally:
            self._unavailable.clear()
            if not self._closing.is_set():
                with suppress(GraphmemError):  # a write that just ended could not schedule its own delivery
                    self.schedule([])

    def _connect_and_catch_up(self) -> None:
        if self._check is not None:
            self._check()
        self.projection.check_for_loss()

    def cancel_waits(self) -> None:
        """Ends all waits of this worker's threads: for a retry and for a lease."""
        self._closing.set()
        self.projection.stop()

    def close(self, timeout: float) -> None:
        """Starts no more deliveries and waits for the one in progress; on a server, at most `timeout` seconds."""
        self.cancel_waits()
        is_done = True
        try:
            self._pool.submit(lambda: None).result(None if self._check is None else timeout)
        except TimeoutError:
            is_done = False
            logger.warning("%s does not answer; closed without waiting for it", self.name)
        except StoreUnavailable:  # no thread can be started, so no delivery is in progress
            pass
        self._pool.shutdown(wait=is_done)
        if self._reconnect_thread is not None:
            self._reconnect_thread.join(timeout)
