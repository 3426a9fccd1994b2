"""Runs the recorded jobs in threads of its own and retries them: enrichment, those for a language model, and the
nightly cycles of the lifecycle.

A job is claimed, so that only one worker has it at a time; it stays recorded until it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from threading import Condition, RLock, Thread, Timer
from time import monotonic, sleep
from typing import TYPE_CHECKING

from graphmem.concurrency import Pool, start_thread
from graphmem.errors import ConfigError, GraphmemError
from graphmem.ingest.enrichment import Enricher
from graphmem.ingest.model_jobs import JobResult
from graphmem.jobs.enrichment_lane import NO_RECORDS, SHARED_BATCH, EnrichmentLane
from graphmem.jobs.handover import HandOver
from graphmem.logs import cause_of, log_text
from graphmem.model import MemoryRecord, optional_micros
from graphmem.plugins import Usage
from graphmem.settings import OpenaiLlm, Settings
from graphmem.stores.ledger import Ledger, jobs
from graphmem.stores.ledger.jobs import (
    AT,
    CLAIM_SECONDS,
    FIRST_CLAIM_SECONDS,
    MODEL_KINDS,
    SUMMARY_JOB,
    Job,
    JobKind,
    UnenrichedText,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from graphmem.ingest.facts.pipeline import FactPipeline
    from graphmem.jobs.describing import DescriptionJobs

logger = logging.getLogger("graphmem")
NO_MODEL = (
    "this needs a language model, and none is configured; set llm (docs/reference/configuration.md, 'Configuration' in "
    "the documentation)"
)
# Parallel jobs for a model; their threads mostly wait for the endpoint. Cycles compute, so they run one by one.
MODEL_THREADS, CYCLE_THREADS = 8, 1
# A job of a model may take 9 x `timeout` + 30 s: its calls (summary, facts, decision), each with its retries. One that
# takes longer hangs: another process may claim it, and if both end, the ledger accepts only the first result.
JOB_TIMEOUTS, JOB_MARGIN = 9, 30.0
# Seconds after which a cycle hangs. One that gives way to searches takes several times as long as one that does not.
CYCLE_SECONDS = 3600.0
# The longest time in seconds after which the clock is looked at again for the next night: it may have been set.
NIGHT_CHECK_SECONDS = 3600.0
# The longest time in seconds after which a session that another process has begun is looked for.
SESSION_CHECK_SECONDS = 60.0
# Seconds between two looks at jobs that other processes do, and the most jobs that one sweep sends.
LOOK_SECONDS, MOST_SENT = 0.05, 1000
# Characters of the longest text that is no long text: a few seconds of work, which closing waits for.
MAX_SHORT_CHARS = 50_000
# Seconds after which a job's claim is renewed while it runs: two may fail.
RENEW_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The failure of a job: the name of the error's class, and its text (None if that may quote messages)."""

    error: str
    cause: str | None

    @classmethod
    def of(cls, error: Exception) -> JobFailure:
        """Returns the failure that an error is."""
        return cls(type(error).__name__, cause_of(error))


def model_job_seconds(settings: Settings, *, has_llm: bool) -> float:
    """Returns the longest time in seconds of a job of a model; `has_llm`: of a language model, also a given one."""
    llm = (settings.llm or OpenaiLlm()) if has_llm else None
    models = (llm, settings.vision, settings.speech)
    timeout = max((model.config.timeout for model in models if model is not None), default=0.0)
    return JOB_TIMEOUTS * timeout + JOB_MARGIN


class JobWorker:
    """Runs the recorded jobs of a ledger in its own threads. Safe to use from several threads and processes.

    `on_background_done` is called after work that no caller waits for. Without a `pipeline` no jobs for a language
    model are done, without `descriptions` none for models of images and speech. The settings of the lifecycle say when
    cycles are due; `run_cycle` runs one over the partition with a key. `ends_sessions` tells whether sessions are ended
    here, `end_session` ends one that is due, by its job.

    With a `hand_over` other processes do the jobs that no caller waits for: then this one starts none by itself.
    """

    def __init__(
        self,
        ledger: Ledger,
        enricher: Enricher,
        commit_pool: Pool,
        pipeline: FactPipeline | None,
        descriptions: DescriptionJobs | None,
        settings: Settings,
        on_background_done: Callable[[], None],
        run_cycle: Callable[[str], object],
        ends_sessions: Callable[[], bool],
        end_session: Callable[[int], object],
        hand_over: HandOver | None = None,
    ) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._descriptions = descriptions
        self._model_job_seconds = model_job_seconds(settings, has_llm=pipeline is not None)
        self._claims = RenewedClaims(ledger)
        self._on_background_done = on_background_done
        self._nights = nights = settings.lifecycle.nights(settings.zone)
        self._purge_after = settings.lifecycle.purge_after
        self._run_cycle = run_cycle
        self._ends_sessions, self._end_session = ends_sessions, end_session
        self._hand_over = hand_over
        self._enqueued_night: datetime | None = None
        # The kinds of jobs, besides enrichment and the ends of sessions, that are done here.
        self.kinds = (
            (frozenset() if pipeline is None else MODEL_KINDS)
            | (frozenset() if descriptions is None else {JobKind.DESCRIPTION})
            | (frozenset() if nights is None else {JobKind.CYCLE})
        )
        # A few texts that callers wait for, many short texts, and long texts hold each other up in no queue.
        # Some of the texts that stay pending were never tried, because others failed before them.
        retry = partial(self._set_timer_for_next_job, at_most=jobs.RETRY_BASE)
        lane = partial(EnrichmentLane, ledger, enricher, commit_pool, on_unfinished=retry)
        self._awaited = lane("graphmem-awaited-texts")
        self._short = lane("graphmem-short-texts", on_committed=on_background_done)
        self._long = lane("graphmem-long-texts", on_committed=on_background_done)
        self._lanes = (self._awaited, self._short, self._long)
        self._model_pool = Pool(MODEL_THREADS, thread_name_prefix="graphmem-model")
        self._cycle_pool = Pool(CYCLE_THREADS, thread_name_prefix="graphmem-cycle")
        self._lock = RLock()  # reentrant: the callback of a future that is done already runs at once, in this thread
        self._running: dict[int, Future[JobResult | JobFailure]] = {}
        self._timer: Timer | None = None
        self._timer_ends_at = inf
        self._closed = self._leaves_queued = False

    @property
    def hands_over(self) -> bool:
        """Whether other processes do the jobs that no caller waits for."""
        return self._hand_over is not None

    def run(
        self,
        row: int,
        kind: JobKind,
        *,
        in_background: bool = True,
        also_waiting: bool = False,
        by_force: bool = False,
    ) -> Future[JobResult | JobFailure]:
        """Starts a job, unless it is running here; its future has the result, or the failure.

        `in_background`: no caller waits, so the worker also has the result delivered and due summaries started.
        `also_waiting`: runs the job even if it waits after a failure; `by_force`: even if another process has it.
        """
        with self._lock:
            running = self._running.get(row)
            if running is None or running.done():  # done: a job that failed may run again
                pool = self._cycle_pool if kind is JobKind.CYCLE else self._model_pool
                running = self._running[row] = pool.submit(
                    copy_context().run,
                    self._run_claimed,
                    row,
                    in_background=in_background,
                    also_waiting=also_waiting,
                    by_force=by_force,
                )
                running.add_done_callback(lambda future: self._forget(row, future))
            return running

    def _forget(self, row: int, future: Future[JobResult | JobFailure]) -> None:
        with self._lock:
            if self._running.get(row) is future:
                del self._running[row]

    def start(self, row: int, kind: JobKind) -> None:
        """Starts a new job that no caller waits for, or hands it over."""
        if self._hand_over is None:
            self.run(row, kind)
            return
        with self._ledger.write(of=()) as connection:
            jobs.hand_over(connection, [row], self._hand_over.seconds)
        self._hand_over.send([row])

    def perform(self, row: int) -> None:
        """Does the job with this row and waits for it, unless it is done, or another process has claimed it.

        A job that fails is tried again later, when its row is sent again.
        """
        with self._ledger.read() as connection:
            text = jobs.unenriched_text(connection, row)
            job = jobs.get(connection, row) if text is None else None
        if text is not None:
            wait(self._enrich([text], self._short))
        elif job is not None and job.kind in self.kinds:
            self.run(row, job.kind).result()

    def sweep(self) -> None:
        """Sends the rows of claimable jobs to the processes that do them, and those of cycles that are due.

        Does nothing if this process does them itself.
        """
        if self._hand_over is None:
            return
        self._end_sessions()
        self._enqueue_cycles()
        with self._ledger.write(of=()) as connection:
            rows = jobs.hand_over_claimable(connection, self._all_kinds, self._hand_over.seconds, MOST_SENT)
        self._hand_over.send(rows)

    def wait_for_others(self, patience: float) -> None:
        """Waits while other processes work on jobs, and up to `patience` seconds for one that begins with the next.

        Does not wait for jobs that failed and are tried again later.
        """
        fewest, give_up_at = inf, monotonic() + patience
        while True:
            with self._ledger.read() as connection:
                unfinished = jobs.count_unfinished(connection, self._all_kinds)
            if unfinished.number == 0:
                return
            if unfinished.number < fewest or unfinished.is_claimed:
                fewest, give_up_at = min(fewest, unfinished.number), monotonic() + patience
            elif monotonic() > give_up_at:
                return
            sleep(LOOK_SECONDS)

    @property
    def _all_kinds(self) -> frozenset[JobKind]:
        return self.kinds | {JobKind.ENRICHMENT}

    def release(self) -> None:
        """Lets other processes claim the jobs that are still running here; if both end them, one result counts."""
        with self._ledger.write(of=()) as connection:
            jobs.release(connection, self._ledger.job_holder)

    def enrich(self, records: Sequence[MemoryRecord], *, wait: bool) -> bool:
        """Enriches memories that this process has just stored. Returns whether all are: False at once without `wait`.

        A lane (`enrichment_lane`) claims their texts, has `ingest.enrichment` compute vectors, terms and mentions, and
        commits these; then `background.finish_background_work` has the projections deliver them.
        Raises the error of one that failed; all that failed are tried again later.
        """
        if self._hand_over is not None and not wait:
            with self._ledger.write(of=()) as connection:
                rows = jobs.hand_over_enrichments(
                    connection, [record.row for record in records], self._hand_over.seconds
                )
            self._hand_over.send(rows)
            return False
        texts = [UnenrichedText(record.row, len(record.text), record.partition) for record in records]
        is_small = wait and len(texts) <= SHARED_BATCH
        # Only those of a small call: a queue of thousands would hold their texts in memory.
        known = {record.row: record for record in records} if is_small else NO_RECORDS
        lane = self._awaited if is_small else self._short
        futures = self._enrich(texts, lane, known, held_seconds=FIRST_CLAIM_SECONDS)
        if not wait:
            return False
        results = [future.result() for future in futures]  # all are waited for
        return all(results)

    def _enrich(
        self,
        texts: Sequence[UnenrichedText],
        lane: EnrichmentLane,
        records: Mapping[int, MemoryRecord] = NO_RECORDS,
        *,
        held_seconds: float = 0,
        by_force: bool = False,
    ) -> list[Future[bool]]:
        short = [text for text in texts if text.chars <= MAX_SHORT_CHARS]
        long = [text for text in texts if text.chars > MAX_SHORT_CHARS]
        return [
            each.add(chosen, records, held_seconds=held_seconds, by_force=by_force)
            for each, chosen in ((lane, short), (self._long, long))
            if chosen
        ]

    def enrich_recorded(self, *, by_force: bool = False) -> list[Future[bool]]:
        """Starts the enrichment of all texts that this worker may claim and that it has not in work already.

        `by_force`: also of those that another process has claimed, or that wait after a failure. The futures tell
        whether all are enriched, and have the error of one that failed.
        """
        with self._ledger.read() as connection:
            texts = jobs.claimable_enrichments(connection, self._ledger.job_holder, by_force=by_force)
        new = [text for text in texts if not any(lane.holds(text.row) for lane in self._lanes)]
        return self._enrich(new, self._short, by_force=by_force)

    def enrich_all(self) -> None:
        """Enriches all texts that wait for it. Raises the error of one that fails; its job stays recorded."""
        self.wait_for_texts()  # those in work may fail, for example for another embedder
        futures = self.enrich_recorded(by_force=True)
        self.wait_for_texts()
        for future in futures:
            future.result()

    def compose(self, compositions: Sequence[Job], now: datetime | None) -> list[JobResult | JobFailure]:
        """Records jobs that make one memory of several, and waits for their results, in the same order.

        The changes happen at `now`, or (None) when they are committed.
        """
        at = optional_micros(now)
        with self._ledger.write({job.partition for job in compositions}) as connection:
            rows = [jobs.enqueue(connection, replace(job, request={**job.request, AT: at})).row for job in compositions]
        futures = [self.run(row, JobKind.COMPOSITION, in_background=False, also_waiting=True) for row in rows]
        return [future.result() for future in futures]

    def wait_for_texts(self, timeout: float | None = None, *, also_long: bool = True) -> bool:
        """Waits up to `timeout` seconds for the enrichment that has begun here; returns whether it has ended."""
        return self._short.wait(timeout) and (
            not also_long or (self._awaited.wait(timeout) and self._long.wait(timeout))
        )

    def schedule(self, *, texts_by_force: bool = False) -> None:
        """Starts all jobs that are due, and sets a timer; if other processes do them, only those that end sessions.

        `texts_by_force`: also the enrichment of texts that another process has claimed: it may have died.
        """
        if self._hand_over is not None:
            self._end_sessions()
            return
        self._enqueue_cycles()
        with self._ledger.read() as connection:
            due = jobs.claimable(connection, self.kinds) | self._ended_sessions(connection)
            self.enrich_recorded(by_force=texts_by_force)
            for row, kind in due.items():
                self.run(row, kind)
        self._set_timer_for_next_job()

    def _end_sessions(self) -> None:
        """Ends the sessions that are due, and looks for others later: whoever is told of ends cannot leave them."""
        if not self._ends_sessions():
            return
        with self._ledger.read() as connection:
            ended = self._ended_sessions(connection)
        for row, kind in ended.items():
            self.run(row, kind)
        self.look_within(SESSION_CHECK_SECONDS)

    def _ended_sessions(self, connection: Connection) -> dict[int, JobKind]:
        return jobs.claimable(connection, {JobKind.SESSION}) if self._ends_sessions() else {}

    def _enqueue_cycles(self) -> None:
        """Records the cycles that are due since the last night, once in a night."""
        if self._nights is None:
            return
        night = self._nights.last(datetime.now(UTC))
        if night != self._enqueued_night:
            with self._ledger.write(of=()) as connection:
                jobs.enqueue_cycles(connection, night, self._purge_after)
            self._enqueued_night = night

    def drain(self, *, by_force: bool = False) -> list[JobResult | JobFailure]:
        """Runs all jobs of `kinds` once, also those that wait after a failure, and returns their results.

        `by_force`: also jobs claimed by another process, which may have died.
        """
        results: list[JobResult | JobFailure] = []
        failed: set[int] = set()
        while True:  # a job may record another one
            with self._ledger.read() as connection:
                recorded = (
                    jobs.all_jobs(connection, self.kinds)
                    if by_force
                    else jobs.claimable(connection, self.kinds, also_waiting=True)
                ) | self._ended_sessions(connection)
            with self._lock:
                running = {row: future for row, future in self._running.items() if not future.done()}
            new = {row: kind for row, kind in recorded.items() if row not in failed and row not in running}
            if not new and not running:
                return results
            started = {
                **running,
                **{row: self.run(row, kind, also_waiting=True, by_force=by_force) for row, kind in new.items()},
            }
            done = {row: future.result() for row, future in started.items()}
            failed |= {row for row, result in done.items() if isinstance(result, JobFailure)}
            results += done.values()

    def close(self, *, finish: bool) -> None:
        """Waits for the running jobs, with `finish` also for queued short texts; all others stay recorded.

        With `finish` jobs for a model that are queued are done too, cycles are not.
        """
        with self._lock:
            self._closed, self._leaves_queued = True, not finish
            if self._timer is not None:
                self._timer.cancel()
        self._cycle_pool.shutdown(wait=True, cancel_futures=True)  # first: a cycle waits for jobs of the model
        self._model_pool.shutdown(wait=True)
        for lane in self._lanes:
            lane.close(finish=finish and lane is not self._long)

    def _set_timer_for_next_job(self, *, at_most: float = inf) -> None:
        """Sets a timer for the next job that becomes claimable or night, for at most so many seconds."""
        if self._hand_over is not None:
            return
        replaced = self._timer  # before the read: what is recorded after it may set one that ends sooner
        with self._ledger.read() as connection:
            due = jobs.next_due(connection)
        seconds = min(at_most, inf if due is None else due + 0.1)
        if self._nights is not None:
            now = datetime.now(UTC)
            seconds = min(seconds, (self._nights.next(now) - now).total_seconds() + 0.1, NIGHT_CHECK_SECONDS)
        if self._ends_sessions():  # other processes may have begun some
            seconds = min(seconds, SESSION_CHECK_SECONDS)
        if seconds < inf:
            self.look_within(seconds, replaced)

    def look_within(self, seconds: float, replaced: Timer | None = None) -> None:
        """Looks for jobs that are due within so many seconds, by a timer in place of `replaced` or of a later one."""
        with self._lock:
            ends_at = monotonic() + seconds
            if self._closed or (self._timer is not replaced and self._timer_ends_at <= ends_at):
                return
            if self._timer is not None:
                self._timer.cancel()
            self._timer = Timer(seconds, self._on_timer)
            self._timer_ends_at = ends_at
            self._timer.daemon = True
            start_thread(self._timer)

    def _on_timer(self) -> None:
        self._timer_ends_at = inf
        try:
            self.schedule()
        except GraphmemError as error:
            logger.warning("recorded work could not be taken up (%s)", type(error).__name__)
            self.look_within(jobs.RETRY_BASE)

    def _run_claimed(
        self, row: int, *, in_background: bool, also_waiting: bool = False, by_force: bool = False
    ) -> JobResult | JobFailure:
        if self._leaves_queued:
            return JobResult()
        with self._ledger.write(of=()) as connection:
            job = jobs.get(connection, row)
            # The end of a session is one transaction, which needs no claim.
            is_claimed = (job is not None and job.kind is JobKind.SESSION) or jobs.claim(
                connection, row, self._ledger.job_holder, CLAIM_SECONDS, also_waiting=also_waiting, by_force=by_force
            )
        if job is None or not is_claimed:
            return JobResult()
        longest = CYCLE_SECONDS if job.kind is JobKind.CYCLE else self._model_job_seconds
        try:
            with self._claims.renewed(row, longest):
                result = self._run(job)
            if in_background:
                self._on_background_done()
        except Exception as error:  # noqa: BLE001  (an answer is untrusted text: whatever it causes, the job stays)
            failure = JobFailure.of(error)
            logger.warning("a recorded job failed (%s); it stays recorded and is tried again", log_text(error))
            with self._ledger.write(of=()) as connection:
                jobs.record_failure(connection, row, failure.error)
            self._set_timer_for_next_job()  # no other call may start the worker for a long time
            return failure
        if in_background:
            try:
                self.schedule()  # it may have made others due, such as a session's summary
            except GraphmemError as error:  # closed meanwhile: they stay recorded
                logger.debug("a job is left for later (%s)", type(error).__name__)
        return result

    def _run(self, job: Job) -> JobResult:
        if job.kind is JobKind.CYCLE:
            return self._run_nightly_cycle(job)
        if job.kind is JobKind.DESCRIPTION:
            if self._descriptions is None:
                raise ConfigError(NO_MODEL)
            return self._descriptions.run(job)
        if job.kind is JobKind.SESSION:
            self._end_session(job.row)
            return JobResult()
        return self._run_model_job(job)

    def _run_model_job(self, job: Job) -> JobResult:
        from graphmem.ingest.facts import compositions, summaries  # noqa: PLC0415  (only a model's jobs need it)

        if (pipeline := self._pipeline) is None:
            raise ConfigError(NO_MODEL)
        if job.kind is JobKind.PROCEDURE:
            return summaries.record_procedure(job, pipeline, self._ledger)
        if job.kind is JobKind.SUMMARY:
            return summaries.summarise(job, pipeline, self._ledger)
        if job.kind is JobKind.COMPOSITION:
            return compositions.compose(job, pipeline, self._ledger)
        usage = self._run_summary(job.request[SUMMARY_JOB]) if SUMMARY_JOB in job.request else {}
        result = pipeline.run(job)
        return replace(result, usage={**usage, **result.usage})

    def _run_nightly_cycle(self, job: Job) -> JobResult:
        """Runs a cycle, unless another process has run one since the last night or none is to be run any more."""
        if self._nights is not None:
            night = self._nights.last(datetime.now(UTC))
            with self._ledger.read() as connection:
                is_due = jobs.is_cycle_due(connection, job.partition, night, self._purge_after)
            if is_due:
                self._run_cycle(job.partition)
        with self._ledger.write(of=()) as connection:
            jobs.complete(connection, job.row)
        return JobResult()

    def _run_summary(self, row: int) -> Mapping[str, Usage]:
        """Runs the job of a summary that a request for facts is to show, in this thread, and returns its usage.

        If it fails, it stays recorded, and the facts are drawn without it: they do not depend on it.
        """
        result = self._run_claimed(row, in_background=True, also_waiting=True)
        with self._lock:
            other = self._running.get(row)
        # Another thread has claimed it. One that is still queued has not: waiting for it could be waiting for this one.
        if other is not None and other.running():
            other.result()
        return result.usage if isinstance(result, JobResult) else {}


class RenewedClaims:
    """The claims of the jobs that run here. Safe to use from several threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changed = Condition()
        self._until: dict[int, float] = {}
        self._thread: Thread | None = None

    @contextmanager
    def renewed(self, row: int, longest: float) -> Iterator[None]:
        """Renews the claim of a job, by its row, during the block, but for no longer than `longest` seconds.

        A job that takes longer hangs, though its process lives: then another one may claim it.
        """
        with self._changed:
            self._until[row] = monotonic() + longest
            if self._thread is None:
                self._thread = Thread(target=self._run, name="graphmem-claims", daemon=True)
                start_thread(self._thread)
        try:
            yield
        finally:
            with self._changed:
                self._until.pop(row, None)
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: not self._until, RENEW_SECONDS):
                    self._thread = None
                    return
                now = monotonic()
                rows = [row for row, until in self._until.items() if until > now]
            try:
                with self._ledger.write(of=()) as connection:
                    jobs.renew(connection, rows, self._ledger.job_holder, CLAIM_SECONDS)
            except GraphmemError as error:
                logger.debug("claims are not renewed this time (%s)", type(error).__name__)
