"""The engine of a `Memory`: opens stores, pools and workers, commits changes and keeps the projections up to date."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet, finalize

from graphmem.accesses import AccessLog
from graphmem.commands.types import ChangeSet, Command, DeleteExpiredItems, Outcome, ReindexMemory
from graphmem.commands.unit_of_work import commit
from graphmem.concurrency import Pool
from graphmem.errors import CLOSED, FORKED, ConfigError, ModelError, StoreError, StoreUnavailable
from graphmem.ingest.enrichment import Enricher
from graphmem.ingest.facts.job_result import JobResult
from graphmem.jobs.worker import NO_MODEL, JobFailure, JobWorker
from graphmem.lifecycle.rules import Rules
from graphmem.logs import log_text
from graphmem.model import LISTED_KINDS, EmbeddingSpec, ListFilter, MemoryRecord, Scope, View, optional_micros
from graphmem.models.observed import ObservedModel
from graphmem.models.protocols import LanguageModel, TokenEmbedder
from graphmem.models.script_support import ScriptSupport
from graphmem.observers import Observers
from graphmem.queries import gauges
from graphmem.retrieval.types import SearchDeps
from graphmem.settings import Settings
from graphmem.stores.ledger import embeddings, integrity, items, jobs, memories, model_usage, vitals
from graphmem.stores.ledger.embedder import (
    check_embedder,
    record_embedder,
    recorded_embedder,
    recorded_spaces,
)
from graphmem.stores.ledger.jobs import AT, MODEL_KINDS, Job, JobKind
from graphmem.stores.projection import Progress, Projection
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.wiring import Backends, open_backends, storage_paths

if TYPE_CHECKING:
    from graphmem.ingest.facts.pipeline import FactPipeline
    from graphmem.jobs.cycle import Cycle, CycleResult

logger = logging.getLogger("graphmem")
# Threads are started as they are needed. Each call that enriches takes two or three; the models let them take turns.
POOL_SIZE, WORK_POOL_SIZE = 8, 64
PROJECTION_NAMES = ("vectors", "graph")
# Seconds that `flush` waits for a store to take one batch: a server that has just started is slow to plan its first
# statements.
FLUSH_TIMEOUT = 30.0
# The most expired items that one transaction deletes.
EXPIRED_BATCH = 200
# Another process may claim a job of the language model after 9 x `timeout` + 30 s: time for the calls of one job
# (summary, facts, decision), each with its retries.
CLAIM_TIMEOUTS, CLAIM_MARGIN = 9, 30.0
# A forked child inherits open files, locks and connections, but no thread that serves them. It never closes them: that
# would release the parent's lock.
_open_engines: WeakSet[Engine] = WeakSet()
_inherited: list[Engine] = []


class Closable(Protocol):
    """An object with work that `close` ends."""

    def close(self) -> None:
        """Ends the work, within a time limit of the object's own."""


class Engine:
    """Open stores, their projection workers and the job worker. Safe to use from several threads.

    `storage_paths` are the files and folders of this memory, which an export must not overwrite. `observers` are told
    of changes, searches and calls of models. Raises ConfigError or StoreError when a store cannot be opened.
    """

    def __init__(self, settings: Settings, *, in_memory: bool) -> None:
        self.settings = settings
        self.observers = Observers()
        self._backends: Backends = open_backends(settings, in_memory=in_memory)
        model = self._backends.llm
        self._llm = None if model is None else ObservedModel(model, self.observers)
        self.storage_paths = [] if in_memory else storage_paths(settings)
        self.ledger = self._backends.ledger
        self._session_gap = timedelta(minutes=settings.session_gap)
        # Against deadlock, no task of a pool waits for a task of the same pool. Searches have a pool of their own, in
        # which no task takes long: enrichment and deliveries can take all threads of theirs for minutes.
        self._search_pool = Pool(POOL_SIZE, thread_name_prefix="graphmem-search")
        self._pool = Pool(WORK_POOL_SIZE, thread_name_prefix="graphmem")
        self._scripts = ScriptSupport(self._backends.embedder)
        self._enricher = Enricher(
            self.ledger, self._backends.embedder, self._backends.extractor, self._pool, self.observers
        )
        self._job_worker = self._make_job_worker()
        self.accesses = AccessLog(self.ledger)
        self._close_lock = Lock()
        self._closed = False
        self._before_close: WeakSet[Closable] = WeakSet()
        # Closes the stores of an engine that nobody closed, at the latest when the process ends. Running work keeps the
        # engine alive.
        self._finalizer = finalize(self, _close_projections, self._backends)
        _open_engines.add(self)
        self._index_is_checked = False
        try:
            self._open_projections()
        except BaseException:
            self.close()
            raise

    @property
    def projection_workers(self) -> list[ProjectionWorker]:
        """The workers that deliver to the projections, one for each."""
        return self._backends.projection_workers

    @property
    def projections(self) -> list[Projection]:
        """The projections: the vector index and, unless it is the ledger's own tables, the graph."""
        return [worker.projection for worker in self.projection_workers]

    @property
    def search_deps(self) -> SearchDeps:
        """The stores and models that a search reads; the first use checks the contents of the vector index."""
        self._check_index()
        backends = self._backends
        return SearchDeps(
            backends.ledger,
            backends.vector_index,
            backends.vector_worker,
            backends.graph,
            backends.graph_worker,
            backends.embedder,
            self._scripts,
            backends.extractor,
            self._search_pool,
            self.observers,
        )

    @property
    def llm(self) -> LanguageModel | None:
        """The language model, None if none is configured."""
        return self._llm

    @property
    def makes_summaries(self) -> bool:
        """Whether the language model, if there is one, summarises sessions."""
        return self.settings.summary_messages > 0

    def _make_job_worker(self) -> JobWorker:
        pipeline, claim_seconds = None, 0.0
        if self.llm is not None and self.settings.llm is not None:
            pipeline = self._make_pipeline(self.llm)
            claim_seconds = CLAIM_TIMEOUTS * self.settings.llm.config.timeout + CLAIM_MARGIN
        return JobWorker(
            self.ledger,
            self._enricher,
            self._pool,
            pipeline,
            claim_seconds,
            self._finish_background_work,
            self.settings.lifecycle.nights(self.settings.zone),
            self.settings.lifecycle.purge_after,
            self._run_nightly_cycle,
        )

    def _make_pipeline(self, model: LanguageModel) -> FactPipeline:
        from graphmem.ingest.facts.pipeline import FactPipeline, PipelineConfig  # noqa: PLC0415  (only a model needs it)

        settings, backends = self.settings, self._backends
        config = PipelineConfig(
            settings.custom_fact_extraction_prompt or settings.custom_instructions,
            settings.custom_update_memory_prompt,
            settings.summary_messages,
            self._session_gap,
            settings.conflicts == "confidence",
            self.rules if settings.extract == "matching" else None,
            settings.lifecycle.enabled,
        )
        return FactPipeline(
            self.ledger, model, self._enricher, backends.vector_index, backends.vector_worker, config, self.observers
        )

    def job_worker(self) -> JobWorker:
        """Returns the worker that runs the language model's jobs. Raises ConfigError without a model."""
        if self._llm is None:
            raise ConfigError(NO_MODEL)
        return self._job_worker

    @property
    def embedding_spec(self) -> EmbeddingSpec:
        """The embeddings stored for each text."""
        return self._enricher.spec

    def check_open(self) -> None:
        """Raises StoreUnavailable after `close`, and in a process that was forked after opening."""
        if self in _inherited:
            raise StoreUnavailable(FORKED)
        if self._closed:
            raise StoreUnavailable(CLOSED)

    @property
    def rules(self) -> Rules:
        """The rules of importance. Raises ConfigError for a file of rules that is not usable."""
        return self.settings.lifecycle.read_rules()

    def note_found(self, records: Iterable[MemoryRecord], view: View) -> None:
        """Counts that a search of the present found these memories, if the lifecycle is enabled."""
        if self.settings.lifecycle.enabled and view.as_of is None:
            self.accesses.note(record.row for record in records)

    def check_embedder(self) -> None:
        """Raises ConfigError when the ledger's vectors are of another embedder than the configured one.

        Records the configured one in a ledger that has none yet.
        """
        check_embedder(self.ledger, self.embedding_spec)

    @property
    def needs_rebuild(self) -> bool:
        """Whether the ledger's vectors are of another embedder, so that `check_embedder` raises. Reads the ledger."""
        with self.ledger.read() as connection:
            return recorded_embedder(connection) not in {None, self.embedding_spec.embedder}

    def _open_projections(self) -> None:
        """Connects to the servers, all at the same time, and schedules the work that an ended process left behind."""
        for opening in [self._pool.submit(worker.open) for worker in self.projection_workers]:
            opening.result()
        if self.settings.lifecycle.rules is not None:
            self.settings.lifecycle.read_rules()  # a file that is not usable is told now, not in the night
        if self.settings.lifecycle.enabled:
            self._begin_lifecycle()
        # The processes of a file are mostly one after the other, and the one before may have died.
        self._job_worker.schedule(texts_by_force=not self.ledger.on_server)

    def _begin_lifecycle(self) -> None:
        """Records when the lifecycle was first enabled, if it is for the first time."""
        with self.ledger.read() as connection:
            has_begun = vitals.lifecycle_since(connection) is not None
        if not has_begun:
            with self.ledger.write() as connection:
                vitals.begin_lifecycle(connection, datetime.now(UTC))

    def load_models(self) -> None:
        """Loads the models that run in this process, side by side, so that the first search need not wait for them.

        Never raises: a broken model raises when a search needs it.
        """
        from graphmem.retrieval import pipeline  # noqa: F401, PLC0415  (imported by the first search otherwise)

        extractor, embedder = self._backends.extractor, self._backends.embedder
        with suppress(ModelError, StoreUnavailable), Pool(1, thread_name_prefix="graphmem-loading") as pool:
            parsing = None if extractor is None else pool.submit(extractor.keys, "Anna")
            # Only a TokenEmbedder runs in this process; any other embedder would send the word to its server.
            if isinstance(embedder, TokenEmbedder):
                embedder.embed_question("Anna")
            if parsing is not None:
                parsing.result()

    def prepare_searches(self) -> None:
        """Does now what the first search would wait for: loads models and checks the contents of the vector index.

        Never raises, as `load_models`.
        """
        self.load_models()
        with suppress(StoreError):
            if not self.needs_rebuild:
                self._check_index()

    def _check_index(self) -> None:
        if self._index_is_checked:
            return
        self._index_is_checked = True
        try:
            self._index_is_checked = self._backends.vector_worker.check_contents()
        except StoreError as error:
            logger.warning("the vector index could not be checked: %s", type(error).__name__)

    def commit(
        self, commands: Sequence[Command], scope: Scope | None = None, *, now: datetime | None = None
    ) -> list[Outcome]:
        """Commits commands in one transaction and returns their outcomes, in order.

        `scope`, if given, hides memories outside it from the commands; `now` is the time of the changes, by default the
        present. See `graphmem.commands.unit_of_work`.
        """
        outcomes = commit(self.ledger, ChangeSet(tuple(commands), now or datetime.now(UTC), scope), self._session_gap)
        self.observers.committed(commands, outcomes)
        return outcomes

    def run_job(
        self, job: int, records: Sequence[MemoryRecord], kind: JobKind, *, wait: bool
    ) -> tuple[JobResult | JobFailure, list[str]]:
        """Runs a job (facts or procedure) on newly stored messages while enriching them; then delivers the results.

        `job` is the job's number, `records` the source messages. Returns the job's result, or its failure, and what is
        still pending: the job's kind and names of projections. With `wait=False` it returns an empty result at once.
        """
        job_worker = self.job_worker()
        future: Future[JobResult | JobFailure] | None = None
        with _log_and_leave_pending():
            future = job_worker.run(job, kind, in_background=not wait)
        pending = self.enrich_and_deliver(records, wait=wait)
        if future is None or not wait:
            return JobResult(), [kind.value, *pending]
        try:
            result = future.result()
            is_unfinished = isinstance(result, JobFailure) or (not result.usage and self._is_unfinished(job))
        except StoreError as error:
            result, is_unfinished = JobFailure.of(error), True
        if is_unfinished:
            return result, [kind.value, *pending]
        with _log_and_leave_pending():
            job_worker.schedule()
        still_pending = self.deliver([records[0].partition])
        return result, pending if set(pending) >= set(PROJECTION_NAMES) else still_pending

    def _is_unfinished(self, job: int) -> bool:
        """Returns True if a job is still recorded, because another process is working on it."""
        with self.ledger.read() as connection:
            return jobs.get(connection, job) is not None

    def retry_failed(self) -> dict[str, Any]:
        """Runs all recorded jobs of the language model now, and waits for them; see `Memory.retry_failed`."""
        results = self.job_worker().drain(by_force=True)
        failures = [result for result in results if isinstance(result, JobFailure)]
        answer: dict[str, Any] = {
            "done": len(results) - len(failures),
            "failed": dict(Counter(failure.error for failure in failures)),
            "pending": self._flush_background(),
        }
        if causes := {failure.error: failure.cause for failure in failures if failure.cause is not None}:
            answer["causes"] = causes
        return answer

    def enrich_and_deliver(self, records: Sequence[MemoryRecord], *, wait: bool) -> list[str]:
        """Enriches and delivers committed memories; returns the projections that still lack some of them.

        The words are durable already, so no failure of a model or store, and no `close` meanwhile, raises an error
        here: the work stays pending.
        """
        is_enriched = False
        with _log_and_leave_pending():
            is_enriched = self._job_worker.enrich(records, wait=wait)
        lagging = self.deliver(list({record.partition for record in records})) if wait else []
        return lagging if is_enriched else list(PROJECTION_NAMES)

    def deliver(self, partitions: Sequence[str]) -> list[str]:
        """Delivers to all projections in parallel.

        `partitions` are those with changes. Returns the names of the projections that lag after `delivery_wait`
        seconds.
        """
        deadline = monotonic() + self.settings.delivery_wait
        deliveries: list[tuple[ProjectionWorker, Future[None] | None]] = []
        for worker in self.projection_workers:
            delivery = None
            with _log_and_leave_pending():
                delivery = worker.schedule(partitions)
            deliveries.append((worker, delivery))
        return [
            worker.name
            for worker, delivery in deliveries
            if not worker.wait_for(delivery, max(0.0, deadline - monotonic()))
        ]

    def wait_for_background_work(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds for the enrichment that this process has begun, except of long texts.

        Returns whether it has ended; at once if there is none, as after `flush`.
        """
        return self._job_worker.wait_for_texts(timeout, also_long=False)

    def schedule_background_work(self) -> None:
        """Delivers pending changes and deletes expired items, in the background."""
        with _log_and_leave_pending():
            self._pool.submit(self._finish_background_work)

    def _finish_background_work(self) -> None:
        """Delivers what a background job has changed, without waiting, and deletes expired items. Logs errors."""
        with _log_and_leave_pending():
            for worker in self.projection_workers:
                worker.schedule([])
            self._delete_expired_items()

    def _delete_expired_items(self) -> None:
        while True:
            with self.ledger.read() as connection:
                if not items.expired(connection, datetime.now(UTC), 1):
                    return
            self.commit([DeleteExpiredItems(EXPIRED_BATCH)])

    def flush(self) -> list[str]:
        """Finishes background work and jobs, waits for both, and makes durable what was delivered.

        Returns the kinds of jobs and the projections that are still pending.
        """
        self._job_worker.drain()
        self.accesses.write()
        return self._flush_background()

    def _flush_background(self) -> list[str]:
        with _log_and_leave_pending():
            self._delete_expired_items()
        with _log_and_leave_pending():
            self._enrich_all()
        with self.ledger.read() as connection:
            pending_jobs = jobs.pending_kinds(connection, self._job_worker.kinds)
            is_unenriched = jobs.count_enrichments(connection) > 0
        lagging = [worker for worker in self.projection_workers if worker.projection.has_pending()]
        for draining in [self._pool.submit(worker.drain, FLUSH_TIMEOUT) for worker in lagging if not is_unenriched]:
            draining.result()
        is_durable = {worker.name: worker.flush() for worker in self.projection_workers}
        if is_unenriched:
            return [*pending_jobs, *PROJECTION_NAMES]
        return pending_jobs + [
            projection.name
            for projection in self.projections
            if not is_durable[projection.name] or projection.has_pending()
        ]

    def _enrich_all(self) -> None:
        """Enriches all texts that wait for it. Raises the error of one that fails; its job stays recorded."""
        self._job_worker.wait_for_texts()  # those in work may fail, for example for another embedder
        futures = self._job_worker.enrich_recorded(by_force=True)
        self._job_worker.wait_for_texts()
        for future in futures:
            future.result()

    def _run_nightly_cycle(self, partition: str) -> None:
        self.check_embedder()
        result = self.run_cycle(partition, None, dry_run=False, force=False)
        if result.plan.brake is not None:
            logger.warning(
                "a nightly cycle over %d memories did nothing: the brake held it; look at a dry run of tend",
                result.plan.processed,
            )

    def run_cycle(self, partition: str, now: datetime | None, *, dry_run: bool, force: bool) -> CycleResult:
        """Runs a cycle of the lifecycle over a partition; see `Memory.tend`. Finishes its enrichment first.

        With a `now` of the past all that it does happens at that time, else each commit has its own: what it decides
        for a time to come happens now.
        """
        present = datetime.now(UTC)
        cycle = self._ready_cycle(now if now is not None and now < present else None)
        return cycle.run(partition, now or present, dry_run=dry_run, force=force)

    def abstract(
        self, partition: str, ids: Sequence[str] | None, level: int, now: datetime
    ) -> tuple[str, list[Outcome], dict[str, str]]:
        """Makes abstractions of memories; see `Memory.abstract`. Finishes their enrichment first."""
        return self._ready_cycle(None).abstract(partition, ids, level, now)

    def _ready_cycle(self, now: datetime | None) -> Cycle:
        """Returns what runs cycles, whose changes happen at `now`, or (None) when they are committed."""
        from graphmem.jobs.cycle import Cycle  # noqa: PLC0415  (only the lifecycle needs it)

        settings = self.settings.lifecycle
        self.accesses.write()
        with _log_and_leave_pending():
            self._enrich_all()
        with self.ledger.read() as connection:
            since = vitals.lifecycle_since(connection)
        return Cycle(
            self.ledger,
            self.embedding_spec,
            partial(self.commit, now=now),
            None if self._llm is None else partial(self._run_compositions, now=now),
            settings.policy(since or datetime.now(UTC)),
            self.rules,
            documents=settings.documents,
        )

    def _run_compositions(self, compositions: Sequence[Job], now: datetime | None) -> list[JobResult | JobFailure]:
        """Records jobs that make one memory of several, and waits for their results, in the same order."""
        at = optional_micros(now)
        with self.ledger.write() as connection:
            rows = [jobs.enqueue(connection, replace(job, request={**job.request, AT: at})).row for job in compositions]
        futures = [self._job_worker.run(row, JobKind.COMPOSITION, in_background=False) for row in rows]
        return [future.result() for future in futures]

    def rebuild(self, projection: str | None, progress: Progress | None) -> None:
        """Drops projections (`projection`, or None for all) and fills them again.

        Embeds texts that have no vectors of the configured embedder, unless only the graph is rebuilt.
        `progress(name, done, total)` is called after each batch.
        """
        if projection != "graph":
            self._embed_for_this_embedder()
        with self.ledger.write() as connection:
            integrity.recompute_derived(connection)
        for target in self.projections:
            if projection in {None, target.name}:
                target.rebuild(self.partitions(), progress)

    def _embed_for_this_embedder(self) -> None:
        with self.ledger.read() as connection:
            rows = embeddings.rows_without_embeddings(connection, self._enricher.spec)
            outdated = list(memories.records_by_row(connection, rows).values())
        if outdated:
            self.commit([ReindexMemory(record.id) for record in outdated])
        record_embedder(self.ledger, self._enricher.spec)
        self._enrich_all()
        with self.ledger.write() as connection:
            deleted = embeddings.delete_other_embeddings(connection, self._enricher.spec)
        if deleted:
            self.ledger.compact()

    def partitions(self) -> list[str]:
        """Returns all partitions of the ledger."""
        with self.ledger.read() as connection:
            return memories.all_partitions(connection)

    def verify(self) -> dict[str, Any]:
        """Checks the ledger's file, its derived columns and its texts, and compares each projection with the ledger.

        A derived column is wrong if it differs from the value computed from the rows it is derived from, such as
        `entities.mentions` from the number of mentions. Returns the report that `Memory.verify` documents.
        """
        damaged = self.ledger.check()
        with self.ledger.read() as connection:
            counts, inconsistent, failed = (
                integrity.counts(connection),
                integrity.inconsistent_columns(connection),
                jobs.count_enrichments(connection, failed=True),
            )
            damaged += integrity.altered_memories(connection)
        projections = {worker.name: worker.verify() for worker in self.projection_workers}
        is_ok = (
            not damaged
            and not inconsistent
            and not failed
            and not any(any(report.values()) for report in projections.values())
        )
        return {
            "ok": is_ok, "ledger": counts, "damaged": damaged, "derived": inconsistent, "failed": failed,
            "projections": projections,
        }  # fmt: skip

    def stats(self, scope: Scope | None) -> dict[str, Any]:
        """Returns counts, sizes in bytes, pending work and the models' usage, as `Memory.stats` documents.

        `scope` restricts the usage only.
        """
        with self.ledger.read() as connection:
            counts, embedding_bytes = integrity.counts(connection), integrity.embedding_bytes(connection)
            everybodys = View(Scope(), datetime.now(UTC), kinds=LISTED_KINDS)
            listed, _ = memories.count_records(connection, everybodys, ListFilter(), with_sources=False)
            usage = model_usage.usage_totals(connection, scope)
            pending_jobs = jobs.pending_kinds(connection, MODEL_KINDS | {JobKind.CYCLE})
            hidden = memories.count_hidden(connection, everybodys.now)
            unguarded = integrity.count_unprotected_tombstones(connection)
            stores = gauges.store_states(connection, self.ledger, self.projection_workers)
            job_counts = [count._asdict() for count in jobs.count_jobs(connection)]
            configured = self.embedding_spec.embedder
            recorded, multilingual = recorded_spaces(connection)
            recorded = recorded or configured
        other = {"configured_embedder": configured.model, "configured_embedder_dims": configured.dims}
        return {
            "memories": counts.pop("memories"),
            "listed": listed,
            **hidden,
            **counts,
            "embedder": recorded.model,
            "embedder_dims": recorded.dims,
            "multilingual_embedder": multilingual,
            **(other if recorded != configured else {}),
            "embedding_bytes": embedding_bytes,
            "bytes": self.ledger.size(),
            "unguarded": unguarded,
            "pending": pending_jobs + [projection.name for projection in self.projections if projection.has_pending()],
            "stores": stores,
            "job_counts": job_counts,
            "usage": usage,
        }

    def repair(self) -> None:
        """Finishes pending work, corrects the differences that `verify` reports and compacts after erasures."""
        self.flush()
        with self.ledger.write() as connection:
            integrity.recompute_derived(connection)
        for projection in self.projections:
            projection.repair(projection.verify())
        self.ledger.compact_after_erasures()

    def reset(self) -> list[str]:
        """Empties the ledger and the projections; returns the projections that are emptied later."""
        with self.ledger.write() as connection:
            integrity.wipe(connection)
        pending = self.deliver([])
        self.ledger.compact()
        return pending

    def call_before_close(self, user: Closable) -> None:
        """Lets `close` begin with `user.close()`, which ends work that needs the open stores. Keeps no reference."""
        self._before_close.add(user)

    def close(self, *, wait: bool = True) -> None:
        """Waits for the users of the engine and for background work, then closes all stores.

        Long texts that are not enriched yet stay recorded, without `wait` all texts. Does nothing in a second call, or
        in a forked process.
        """
        if self in _inherited:
            return
        for user in list(self._before_close):
            user.close()
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        self._job_worker.close(finish=wait)
        self.accesses.close()
        for worker in self.projection_workers:
            worker.close(self.settings.delivery_wait)
        self._search_pool.shutdown(wait=True)
        self._pool.shutdown(wait=True)
        self._finalizer()


@contextmanager
def _log_and_leave_pending() -> Iterator[None]:
    """Logs a failure of a model or store after a commit; the unfinished work stays recorded and is tried again.

    Also logs the ConfigError for a changed embedder: `undo` embeds the restored text without checking the embedder.
    """
    try:
        yield
    except (ModelError, StoreError, ConfigError) as error:
        logger.warning("work after a write failed (%s); it stays recorded and is tried again", log_text(error))


def _close_projections(backends: Backends) -> None:
    for worker in backends.projection_workers:
        worker.cancel_waits()
    try:
        backends.close_projections()
    finally:  # also after an error above: closing the ledger empties its write-ahead log
        backends.ledger.close()


def _mark_inherited() -> None:
    for engine in _open_engines:
        engine._finalizer.detach()  # noqa: SLF001  (part of Engine; here because it concerns all engines)
        _inherited.append(engine)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_inherited)
