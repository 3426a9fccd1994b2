"""Runs recorded jobs (facts, summaries, procedures) with a language model in background threads, and retries them.

A job is claimed, so that only one worker has it at a time; it stays recorded until it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, replace
from threading import RLock, Timer
from typing import TYPE_CHECKING
from uuid import uuid4

from graphmem.concurrency import Pool, start_thread
from graphmem.errors import GraphmemError
from graphmem.ingest.facts.job_result import JobResult
from graphmem.logs import cause_of, log_text
from graphmem.models.protocols import Usage
from graphmem.stores.ledger import Ledger, jobs
from graphmem.stores.ledger.jobs import SUMMARY_JOB, Job, JobKind

if TYPE_CHECKING:
    from graphmem.ingest.facts.pipeline import FactPipeline

logger = logging.getLogger("graphmem")
# Parallel jobs; their threads mostly wait for the endpoint.
WORKER_THREADS = 8
# Seconds until a failed job is tried again: doubled with each attempt, up to an hour.
RETRY_BASE, RETRY_MAX = 30.0, 3600.0
# At most so many doublings: after thousands of failures 2 ** attempts would be too large for a float.
MAX_DOUBLINGS = 10


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The failure of a job: the name of the error's class, and its text (None if that may quote messages)."""

    error: str
    cause: str | None

    @classmethod
    def of(cls, error: Exception) -> JobFailure:
        """Returns the failure that an error is."""
        return cls(type(error).__name__, cause_of(error))


class JobWorker:
    """Runs the recorded jobs of a ledger in its own threads. Safe to use from several threads and processes.

    A job claimed for more than `claim_seconds` may be claimed by another process, as if its worker had died; if it
    had not, the ledger accepts only the first result. `on_background_done` is called after each job that no caller
    waits for.
    """

    def __init__(
        self, ledger: Ledger, pipeline: FactPipeline, claim_seconds: float, on_background_done: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._claim_seconds = claim_seconds
        self._on_background_done = on_background_done
        self._holder = str(uuid4())
        self._pool = Pool(WORKER_THREADS, thread_name_prefix="graphmem-model")
        self._lock = RLock()  # reentrant: the callback of a future that is done already runs at once, in this thread
        self._running: dict[int, Future[JobResult | JobFailure]] = {}
        self._timer: Timer | None = None
        self._closed = False

    def run(self, row: int, *, in_background: bool = True, by_force: bool = False) -> Future[JobResult | JobFailure]:
        """Starts a job, unless it is running here; its future has the result, or the failure.

        `in_background`: no caller waits, so the worker also has the result delivered and due summaries started.
        `by_force`: runs the job even if another process has claimed it.
        """
        with self._lock:
            running = self._running.get(row)
            if running is None or running.done():  # done: a job that failed may run again
                running = self._running[row] = self._pool.submit(
                    copy_context().run, self._run_claimed, row, in_background=in_background, by_force=by_force
                )
                running.add_done_callback(lambda future: self._forget(row, future))
            return running

    def _forget(self, row: int, future: Future[JobResult | JobFailure]) -> None:
        with self._lock:
            if self._running.get(row) is future:
                del self._running[row]

    def schedule(self) -> None:
        """Starts all jobs that are due, and sets a timer for the next one."""
        with self._ledger.read() as connection:
            due_rows = jobs.claimable(connection)
        for row in due_rows:
            self.run(row)
        self._set_timer_for_next_job()

    def drain(self, *, by_force: bool = False) -> list[JobResult | JobFailure]:
        """Runs all jobs once, also those that wait after a failure, waits for them, and returns their results.

        `by_force`: also jobs claimed by another process, which may have died.
        """
        results: list[JobResult | JobFailure] = []
        failed: set[int] = set()
        while True:  # a job may record another one
            with self._ledger.read() as connection:
                recorded = jobs.all_jobs(connection) if by_force else jobs.claimable(connection, also_waiting=True)
            with self._lock:
                running = {row: future for row, future in self._running.items() if not future.done()}
            rows = [row for row in recorded if row not in failed and row not in running]
            if not rows and not running:
                return results
            started = {**running, **{row: self.run(row, by_force=by_force) for row in rows}}
            done = {row: future.result() for row, future in started.items()}
            failed |= {row for row, result in done.items() if isinstance(result, JobFailure)}
            results += done.values()

    def close(self) -> None:
        """Waits for the running jobs; all others stay recorded."""
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
        self._pool.shutdown(wait=True)

    def _set_timer_for_next_job(self) -> None:
        with self._ledger.read() as connection:
            seconds = jobs.next_due(connection)
        if seconds is not None:
            self._set_timer(seconds + 0.1)

    def _set_timer(self, seconds: float) -> None:
        with self._lock:
            if self._closed:
                return
            if self._timer is not None:
                self._timer.cancel()
            self._timer = Timer(seconds, self._on_timer)
            self._timer.daemon = True
            start_thread(self._timer)

    def _on_timer(self) -> None:
        try:
            self.schedule()
        except GraphmemError as error:
            logger.warning("a language model's work could not be taken up (%s)", type(error).__name__)
            self._set_timer(RETRY_BASE)

    def _run_claimed(self, row: int, *, in_background: bool, by_force: bool) -> JobResult | JobFailure:
        with self._ledger.write() as connection:
            is_claimed = jobs.claim(connection, row, self._holder, self._claim_seconds, by_force=by_force)
            job = jobs.get(connection, row) if is_claimed else None
        if job is None:
            return JobResult()
        try:
            result = self._run(job)
            if in_background:
                self._on_background_done()
        except Exception as error:  # noqa: BLE001  (an answer is untrusted text: whatever it causes, the job stays)
            return self._record_failure(row, job.attempts, error)
        if in_background and job.kind is JobKind.FACTS:
            self._schedule_summary()
        return result

    def _schedule_summary(self) -> None:
        """Starts the due jobs after new facts, which may have made a session's summary due. Errors are only logged."""
        try:
            self.schedule()
        except GraphmemError as error:  # closed meanwhile: the job stays recorded
            logger.debug("a summary is left for later (%s)", type(error).__name__)

    def _run(self, job: Job) -> JobResult:
        from graphmem.ingest.facts import summaries  # noqa: PLC0415  (only a model's jobs need it)

        if job.kind is JobKind.PROCEDURE:
            return summaries.record_procedure(job, self._pipeline, self._ledger)
        if job.kind is JobKind.SUMMARY:
            return summaries.summarise(job, self._pipeline, self._ledger)
        usage = self._run_summary(job.request[SUMMARY_JOB]) if SUMMARY_JOB in job.request else {}
        result = self._pipeline.run(job)
        return replace(result, usage={**usage, **result.usage})

    def _run_summary(self, row: int) -> Mapping[str, Usage]:
        """Runs the job of a summary that a request for facts is to show, in this thread, and returns its usage.

        If it fails, it stays recorded, and the facts are drawn without it: they do not depend on it.
        """
        result = self._run_claimed(row, in_background=True, by_force=False)
        with self._lock:
            other = self._running.get(row)
        # Another thread has claimed it. One that is still queued has not: waiting for it could be waiting for this one.
        if other is not None and other.running():
            other.result()
        return result.usage if isinstance(result, JobResult) else {}

    def _record_failure(self, row: int, attempts: int, error: Exception) -> JobFailure:
        failure = JobFailure.of(error)
        logger.warning("a language model's work failed (%s); it stays recorded and is tried again", log_text(error))
        delay = min(RETRY_MAX, RETRY_BASE * 2 ** min(attempts, MAX_DOUBLINGS))
        with self._ledger.write() as connection:
            jobs.record_failure(connection, row, failure.error, delay)
        self._set_timer_for_next_job()  # no other call may start the worker for a long time
        return failure
