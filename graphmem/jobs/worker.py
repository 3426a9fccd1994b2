"""What a language model does beside the caller's path: recorded work, taken up by one at a time, tried again later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from threading import RLock, Timer
from uuid import uuid4

from graphmem.concurrency import Pool, start_thread
from graphmem.errors import GraphmemError
from graphmem.ingest.facts.pipeline import FactPipeline, JobResult
from graphmem.ingest.facts.summaries import record_procedure, summarise
from graphmem.stores.ledger import Ledger, jobs
from graphmem.stores.ledger.jobs import Job, JobKind

logger = logging.getLogger("graphmem")
# Requests at a time: they only wait.
WORKER_THREADS = 8
# Seconds after which work that failed is tried again: doubled each time, up to an hour.
RETRY_BASE, RETRY_MAX = 30.0, 3600.0
# How often it is doubled at most: work may fail thousands of times, and no number is that large.
MAX_DOUBLINGS = 10


class JobWorker:
    """Does recorded work in threads of its own. Safe to use from several threads and processes.

    `timeout` is how many seconds one piece of work may take at most before another process may think that its holder
    has died; what it does all the same is taken by the ledger only once. `after` is called after what nobody waits for.
    """

    def __init__(self, ledger: Ledger, pipeline: FactPipeline, timeout: float, after: Callable[[], None]) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._timeout = timeout
        self._after = after
        self._holder = str(uuid4())
        self._pool = Pool(WORKER_THREADS, thread_name_prefix="graphmem-model")
        self._lock = RLock()  # of what is done at once it is also told at once, in the same thread
        self._running: dict[int, Future[JobResult | str]] = {}
        self._timer: Timer | None = None
        self._closed = False

    def run(self, row: int, *, alone: bool = True, by_force: bool = False) -> Future[JobResult | str]:
        """Begins one piece of work: its result is what came of it, or the name of what went wrong.

        `alone`: nobody waits for it, who would see to the rest.
        """
        with self._lock:
            known = self._running.get(row)
            if known is None or known.done():  # what is done may have left its number to other work
                known = self._running[row] = self._pool.submit(
                    copy_context().run, self._do, row, alone=alone, by_force=by_force
                )
                known.add_done_callback(lambda job: self._forget(row, job))
            return known

    def _forget(self, row: int, job: Future[JobResult | str]) -> None:
        with self._lock:
            if self._running.get(row) is job:
                del self._running[row]

    def schedule(self) -> None:
        """Begins what is due, and sees to it that what is to wait a while is not forgotten."""
        with self._ledger.read() as connection:
            due = jobs.claimable(connection)
        for row in due:
            self.run(row)
        self._wake()

    def drain(self, *, by_force: bool = False) -> list[JobResult | str]:
        """Does all there is, also what waits after a failure, and waits for it; what came of each.

        `by_force`: also what another process holds, which may have died.
        """
        came: list[JobResult | str] = []
        failed: set[int] = set()
        while True:  # one piece of work may record another, in a ledger that gives numbers again under its own
            with self._ledger.read() as connection:
                left = jobs.all_jobs(connection) if by_force else jobs.claimable(connection, also_waiting=True)
            with self._lock:
                under_way = {row: job for row, job in self._running.items() if not job.done()}
            rows = [row for row in left if row not in failed and row not in under_way]
            if not rows and not under_way:
                return came
            begun = {**under_way, **{row: self.run(row, by_force=by_force) for row in rows}}
            done = {row: job.result() for row, job in begun.items()}
            failed |= {row for row, one in done.items() if isinstance(one, str)}
            came += done.values()

    def close(self) -> None:
        """Waits for what has been begun; what waits after a failure stays recorded."""
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
        self._pool.shutdown(wait=True)

    def _wake(self) -> None:
        with self._ledger.read() as connection:
            due = jobs.next_due(connection)
        if due is not None:
            self._look_again(due + 0.1)

    def _look_again(self, seconds: float) -> None:
        with self._lock:
            if self._closed:
                return
            if self._timer is not None:
                self._timer.cancel()
            self._timer = Timer(seconds, self._woken)
            self._timer.daemon = True
            start_thread(self._timer)

    def _woken(self) -> None:
        try:
            self.schedule()
        except GraphmemError as error:
            logger.warning("a language model's work could not be taken up (%s)", type(error).__name__)
            self._look_again(RETRY_BASE)

    def _do(self, row: int, *, alone: bool, by_force: bool) -> JobResult | str:
        with self._ledger.write() as connection:
            mine = jobs.claim(connection, row, self._holder, self._timeout, by_force=by_force)
            job = jobs.get(connection, row) if mine else None
        if job is None:
            return JobResult()
        try:
            learned = self._work(job)
            if alone:
                self._after()
        except Exception as error:  # noqa: BLE001  (an answer is anybody's text: whatever it does, the work stays)
            return self._failed(row, job.attempts, error)
        if alone and job.kind is JobKind.FACTS:
            self._go_on()
        return learned

    def _go_on(self) -> None:
        """Begins the summary that facts may have made due."""
        try:
            self.schedule()
        except GraphmemError as error:  # closed meanwhile: it stays recorded
            logger.debug("a summary is left for later (%s)", type(error).__name__)

    def _work(self, job: Job) -> JobResult:
        if job.kind is JobKind.PROCEDURE:
            return record_procedure(job, self._pipeline, self._ledger)
        if job.kind is JobKind.SUMMARY:
            summarise(job, self._pipeline, self._ledger)
            return JobResult()
        return self._pipeline.run(job)

    def _failed(self, row: int, attempts: int, error: Exception) -> str:
        name = type(error).__name__
        logger.warning("a language model's work failed (%s); it stays recorded and is tried again", name)
        pause = min(RETRY_MAX, RETRY_BASE * 2 ** min(attempts, MAX_DOUBLINGS))
        with self._ledger.write() as connection:
            jobs.record_failure(connection, row, name, pause)
        self._wake()  # the call it was part of may be the last one for a long time
        return name
