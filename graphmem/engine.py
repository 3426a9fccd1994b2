"""The house behind the door: open stores, the pools, and the one way by which a plan reaches them."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Lock
from time import monotonic
from typing import Any
from weakref import WeakSet, finalize

from graphmem.commands.types import ChangeSet, Command, Outcome, ReindexMemory
from graphmem.commands.unit_of_work import commit
from graphmem.concurrency import Pool
from graphmem.errors import CLOSED, FORKED, ConfigError, GraphmemError, ModelError, StoreError, StoreUnavailable
from graphmem.ingest.enrichment import Enricher
from graphmem.ingest.facts.pipeline import FactPipeline, JobResult, PipelineConfig
from graphmem.jobs.worker import JobWorker
from graphmem.model import EmbeddingSpec, MemoryRecord, Scope
from graphmem.models.protocols import LanguageModel
from graphmem.models.script_support import ScriptSupport
from graphmem.retrieval.types import SearchDeps
from graphmem.settings import Settings
from graphmem.stores.ledger import embeddings, integrity, jobs, memories, model_usage, outbox
from graphmem.stores.ledger.jobs import JobKind
from graphmem.stores.projection import Progress, Projection
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.wiring import Backends, open_backends, record_embedder, recorded_embedder, storage_paths

logger = logging.getLogger("graphmem")
POOL_SIZE = 8
PROJECTION_NAMES = ("vectors", "graph")
# Seconds that `flush` gives a store for one batch: a server that has just started plans its first statements for some.
FLUSH_TIMEOUT = 30.0
# How long a piece of a model's work may take before another process may take it up: the calls of one, each with its
# own attempts, and some seconds.
LEASE_TIMEOUTS, LEASE_MARGIN = 6, 30.0
# A forked child inherits open files, locks and connections, but no thread that serves them. It keeps them as they are:
# to let go of them would take the parent's lock from it.
_open: WeakSet[Engine] = WeakSet()
_inherited: list[Engine] = []


class Engine:
    """Open stores and what keeps them in step. Safe to use from several threads."""

    def __init__(self, settings: Settings, *, in_memory: bool) -> None:
        self.settings = settings
        self._backends: Backends = open_backends(settings, in_memory=in_memory)
        self.kept = [] if in_memory else storage_paths(settings)
        self.ledger = self._backends.ledger
        self._gap = timedelta(minutes=settings.session_gap)
        # Leaf work only: nothing that runs in a pool waits for the same pool.
        self._pool = Pool(POOL_SIZE, thread_name_prefix="graphmem")
        self._background = Pool(1, thread_name_prefix="graphmem-background")
        self._scripts = ScriptSupport(self._backends.embedder)
        self._enricher = Enricher(self.ledger, self._backends.embedder, self._backends.extractor, self._pool)
        self._job_worker = self._make_job_worker()
        self._queue = Lock()
        self._scheduled: Future[None] | None = None
        self._closed = False
        # For those who forget to close: at the latest when the process ends. Work under way holds this house alive.
        self._finalizer = finalize(self, _close_projections, self._backends)
        _open.add(self)
        self._checked = False
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def projection_workers(self) -> list[ProjectionWorker]:
        """Who delivers: one for each projection."""
        return self._backends.projection_workers

    @property
    def projections(self) -> list[Projection]:
        """What has to be delivered to."""
        return [worker.projection for worker in self.projection_workers]

    @property
    def search_deps(self) -> SearchDeps:
        """What a search reads; checks on its first use that the vector index holds what it should."""
        self._check_index()
        p = self._backends
        return SearchDeps(
            p.ledger, p.index, p.vectors, p.graph, p.graph_copy, p.embedder, self._scripts, p.extractor, self._pool
        )

    @property
    def llm(self) -> LanguageModel | None:
        """The language model, if one is configured."""
        return self._backends.llm

    def _make_job_worker(self) -> JobWorker | None:
        if self.llm is None or self.settings.llm is None:
            return None
        chosen, parts = self.settings, self._backends
        rules = PipelineConfig(
            chosen.custom_fact_extraction_prompt or chosen.custom_instructions,
            chosen.custom_update_memory_prompt,
            chosen.summary_messages,
        )
        pipeline = FactPipeline(self.ledger, self.llm, self._enricher, parts.index, parts.vectors, rules)
        timeout = LEASE_TIMEOUTS * self.settings.llm.config.timeout + LEASE_MARGIN
        return JobWorker(self.ledger, pipeline, timeout, self.schedule_background_work)

    def job_worker(self) -> JobWorker:
        """Who asks the language model. Raises ConfigError without one."""
        if self._job_worker is None:
            raise ConfigError("this needs a language model, and none is configured; set llm (README, 'Configuration')")
        return self._job_worker

    @property
    def embedding_spec(self) -> EmbeddingSpec:
        """What is kept of each text."""
        return self._enricher.spec

    @property
    def dims(self) -> int:
        """The length of a vector."""
        return self._backends.embedder.dims

    def check_open(self) -> None:
        """Raises StoreUnavailable once closed, and in a process that was forked since."""
        if self in _inherited:
            raise StoreUnavailable(FORKED)
        if self._closed:
            raise StoreUnavailable(CLOSED)

    def check_embedder(self) -> None:
        """Raises ConfigError when the ledger's vectors are another model's."""
        known, mine = recorded_embedder(self.ledger), self._backends.embedder.model
        if known is None:
            record_embedder(self.ledger, mine)
        elif known != mine:
            raise ConfigError(
                f"embedder: this ledger's vectors are of {known!r}, the configuration says {mine!r}; "
                f"call rebuild() to embed everything anew, or configure {known!r} again"
            )

    def _begin(self) -> None:
        """Reaches servers, all at once; what a process that died owed is done in the background."""
        for opened in [self._pool.submit(worker.open) for worker in self.projection_workers]:
            opened.result()
        with self.ledger.read() as connection:
            owed = outbox.count_pending(connection)
        if owed:
            self.schedule_background_work()
        if self._job_worker is not None:
            self._job_worker.schedule()

    def _check_index(self) -> None:
        if self._checked:
            return
        self._checked = True
        try:
            self._backends.vectors.check_contents()
        except StoreError as error:
            logger.warning("the vector index could not be checked: %s", type(error).__name__)

    def commit(self, steps: Sequence[Command], within: Scope | None = None) -> list[Outcome]:
        """Carries out steps in one transaction; see `graphmem.commands.unit_of_work`."""
        return commit(self.ledger, ChangeSet(tuple(steps), datetime.now(UTC), within), self._gap)

    def run_job(
        self, job: int, records: Sequence[MemoryRecord], kind: JobKind, *, wait: bool
    ) -> tuple[JobResult | str, list[str]]:
        """What follows when facts or a procedure are to be drawn from what was said: beside its enrichment; delivery.

        Returns what came of it, or the name of what went wrong, and what lacks something.
        """
        job_worker = self.job_worker()
        thinking: Future[JobResult | str] | None = None
        with _left_for_later():
            thinking = job_worker.run(job, in_background=not wait)
        lacking = self.enrich_and_deliver(records, wait=wait)
        if thinking is None or not wait:
            return JobResult(), [kind.value, *lacking]
        try:
            learned = thinking.result()
            is_left = isinstance(learned, str) or (not learned.usage and self._is_left(job))
        except StoreError as error:
            learned, is_left = type(error).__name__, True
        if is_left:
            return learned, [kind.value, *lacking]
        with _left_for_later():
            job_worker.schedule()
        left = self.deliver([records[0].partition])
        return learned, lacking if set(lacking) >= set(PROJECTION_NAMES) else left

    def _is_left(self, job: int) -> bool:
        """Whether a piece of work is still to be done: then another process is at it."""
        with self.ledger.read() as connection:
            return jobs.get(connection, job) is not None

    def retry_failed(self) -> dict[str, Any]:
        """Does what a model has still to do, whoever held it; returns how much was done, what failed, what is left."""
        came = self.job_worker().drain(by_force=True)
        failed = Counter(one for one in came if isinstance(one, str))
        return {"done": len(came) - failed.total(), "failed": dict(failed), "pending": self._flushed()}

    def enrich_and_deliver(self, records: Sequence[MemoryRecord], *, wait: bool) -> list[str]:
        """What follows a commit: enrichment and delivery. Returns the projections that lack something of it.

        The words are durable: whatever a model or a store does now, also that this was closed in the meantime, makes it
        a pending call, never a failed one.
        """
        with _left_for_later():
            if wait:
                return self._finished(records)
            self.schedule_background_work()
        return list(PROJECTION_NAMES)

    def _finished(self, records: Sequence[MemoryRecord]) -> list[str]:
        with _left_for_later():
            self._enricher.process_pending([record.row for record in records])
        left = self.count_pending(records)
        pending = self.deliver(list({record.partition for record in records}))
        return list(PROJECTION_NAMES) if left else pending

    def count_pending(self, records: Sequence[MemoryRecord]) -> int:
        """How many of these still wait for enrichment."""
        with self.ledger.read() as connection:
            return len(outbox.pending_ids(connection, [record.id for record in records]))

    def deliver(self, partitions: Sequence[str]) -> list[str]:
        """Lets both projections catch up at once; returns those that have not within `delivery_wait`."""
        until = monotonic() + self.settings.delivery_wait
        jobs: list[tuple[ProjectionWorker, Future[None] | None]] = []
        for worker in self.projection_workers:
            job = None
            with _left_for_later():
                job = worker.schedule(partitions)
            jobs.append((worker, job))
        return [worker.name for worker, job in jobs if not worker.wait_for(job, max(0.0, until - monotonic()))]

    def schedule_background_work(self) -> None:
        """Does what is owed in the background; a second call before it has begun changes nothing."""
        with self._queue:
            if self._scheduled is None or self._scheduled.running() or self._scheduled.done():
                self._scheduled = self._background.submit(self._work)

    def _work(self) -> None:
        try:
            self._enricher.process_pending()
        except GraphmemError as error:
            logger.warning("background work failed (%s) and stays recorded", type(error).__name__)
        for settling in [
            self._pool.submit(worker.drain, self.settings.delivery_wait) for worker in self.projection_workers
        ]:
            settling.result()

    def flush(self) -> list[str]:
        """Does what is owed and waits for it; returns what still lacks something: projections, a model's work."""
        if self._job_worker is not None:
            self._job_worker.drain()
        return self._flushed()

    def _flushed(self) -> list[str]:
        self.schedule_background_work()
        self._background.submit(lambda: None).result()
        with self.ledger.read() as connection:
            thought = [] if self._job_worker is None else jobs.pending_kinds(connection)
            if outbox.count_pending(connection):
                return [*thought, *PROJECTION_NAMES]
        owing = [worker for worker in self.projection_workers if worker.projection.has_pending()]
        for settling in [self._pool.submit(worker.drain, FLUSH_TIMEOUT) for worker in owing]:
            settling.result()
        return thought + [projection.name for projection in self.projections if projection.has_pending()]

    def rebuild(self, projection: str | None, progress: Progress | None) -> None:
        """Throws projections away and fills them again; embeds anew only what the model has no vectors for."""
        self._embed_for_this_model()
        with self.ledger.write() as connection:
            integrity.recompute_derived(connection)
        for one in self.projections:
            if projection in {None, one.name}:
                one.rebuild(self.partitions(), progress)

    def _embed_for_this_model(self) -> None:
        with self.ledger.read() as connection:
            rows = embeddings.rows_without_embeddings(connection, self._enricher.spec)
            stale = list(memories.records_by_row(connection, rows).values())
        if stale:
            self.commit([ReindexMemory(record.id) for record in stale])
        record_embedder(self.ledger, self._backends.embedder.model)
        self._enricher.process_pending()
        with self.ledger.write() as connection:
            dropped = embeddings.delete_other_embeddings(connection, self._enricher.spec)
        if dropped:
            self.ledger.compact()

    def partitions(self) -> list[str]:
        """Every partition there is."""
        with self.ledger.read() as connection:
            return memories.all_partitions(connection)

    def verify(self) -> dict[str, Any]:
        """Compares the projections with the ledger and the derived columns with their rows."""
        damaged = self.ledger.check()
        with self.ledger.read() as connection:
            counted, derived, failed = (
                integrity.counts(connection),
                integrity.inconsistent_columns(connection),
                integrity.count_failed(connection),
            )
            damaged += integrity.altered_memories(connection)
        found = {worker.name: worker.verify() for worker in self.projection_workers}
        clean = not damaged and not derived and not failed and not any(any(lines.values()) for lines in found.values())
        return {
            "ok": clean, "ledger": counted, "damaged": damaged, "derived": derived, "failed": failed,
            "projections": found,
        }  # fmt: skip

    def stats(self, scope: Scope | None) -> dict[str, Any]:
        """Counts, sizes, what is pending; what models took, in all or for a scope."""
        with self.ledger.read() as connection:
            counted, embedded = integrity.counts(connection), integrity.embedding_bytes(connection)
            used, kinds = model_usage.usage_totals(connection, scope), jobs.pending_kinds(connection)
            unguarded = integrity.count_unprotected_tombstones(connection)
        return {
            **counted,
            "embedder": self._backends.embedder.model,
            "embedding_bytes": embedded,
            "bytes": self.ledger.size(),
            "unguarded": unguarded,
            "pending": kinds + [projection.name for projection in self.projections if projection.has_pending()],
            "usage": used,
        }

    def repair(self) -> None:
        """Brings everything up to date and mends what `verify` finds."""
        self.flush()
        with self.ledger.write() as connection:
            integrity.recompute_derived(connection)
        for projection in self.projections:
            projection.repair(projection.verify())

    def reset(self) -> list[str]:
        """Empties the ledger and the projections; returns those that are emptied later, once they can be reached."""
        with self.ledger.write() as connection:
            integrity.wipe(connection)
        pending = self.deliver([])
        self.ledger.compact()
        return pending

    def close(self) -> None:
        """Waits for background work, then lets go of everything. A second call does nothing, nor does a fork's."""
        if self in _inherited:
            return
        with self._queue:
            if self._closed:
                return
            self._closed = True
        if self._job_worker is not None:
            self._job_worker.close()
        self._background.shutdown(wait=True)
        for worker in self.projection_workers:
            worker.close(self.settings.delivery_wait)
        self._pool.shutdown(wait=True)
        self._finalizer()


@contextmanager
def _left_for_later() -> Iterator[None]:
    """What follows a commit and cannot be done now stays recorded."""
    try:
        yield
    except (ModelError, StoreError) as error:
        logger.warning("what follows a write failed (%s); it stays recorded and is tried again", type(error).__name__)


def _close_projections(parts: Backends) -> None:
    for worker in parts.projection_workers:
        worker.cancel_waits()
    try:
        parts.close_projections()
    finally:  # whatever became of the projections: the ledger's log has to be emptied
        parts.ledger.close()


def _fork() -> None:
    for house in _open:
        house._finalizer.detach()  # noqa: SLF001  (a part of the house, said here because it is about all of them)
        _inherited.append(house)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork)
