"""The engine of a `Memory`: opens stores, pools and workers, commits changes and keeps the projections up to date."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Lock
from time import monotonic
from weakref import WeakSet, finalize

from graphmem.accesses import AccessLog
from graphmem.background import begin_lifecycle, description_jobs, finish_background_work, run_nightly_cycle
from graphmem.commands.shared_commits import SharedCommits
from graphmem.commands.types import AddMessage, ChangeSet, Command, EndSession, HoldMessage, Outcome, PutItem
from graphmem.concurrency import Pool, SearchLoad, close_only_here, is_inherited
from graphmem.errors import CLOSED, FORKED, StoreError, StoreUnavailable
from graphmem.events_bus import EventBus
from graphmem.given import Given
from graphmem.ingest.enrichment import Enricher
from graphmem.ingest.hooks import Describer
from graphmem.ingest.model_jobs import JobResult
from graphmem.jobs.handover import hand_over_of
from graphmem.jobs.worker import JobFailure, JobWorker
from graphmem.logs import log_and_leave_pending
from graphmem.model import EventType, MemoryRecord, SaidMessage, Scope, View
from graphmem.models.script_support import ScriptSupport
from graphmem.observers import ObservedModel, Observers
from graphmem.plugins import Closeable, LanguageModel
from graphmem.retrieval.types import SearchDeps
from graphmem.settings import Settings
from graphmem.stores.blobs import erase_unused
from graphmem.stores.ledger import jobs
from graphmem.stores.ledger.jobs import JobKind
from graphmem.stores.ledger.ledger_state import check_embedder
from graphmem.stores.projection_worker import ProjectionWorker
from graphmem.webhooks import Webhooks
from graphmem.wiring import NOTHING_GIVEN, Backends, fact_pipeline, open_backends, storage_paths
from graphmem.working import Working

# Threads are started as they are needed. Each call that enriches takes two or three; the models let them take turns.
POOL_SIZE, WORK_POOL_SIZE = 8, 64
PROJECTION_NAMES = ("vectors", "graph")


class Engine:
    """Open stores, their projection workers and the job worker. Safe to use from several threads.

    `given` are parts in place of configured ones. `storage_paths` are the files and folders of this memory, which an
    export must not overwrite. `llm` is None without a language model; `has_reranker` tells of a reranker. `observers`
    are told of changes, searches and calls of models. `projections` are the vector index and, unless it is the ledger's
    own tables, the graph. `graphmem.background` does its work that no caller waits for, `graphmem.administration`
    checks and repairs it. `is_worker`: this process does the jobs of others, and leaves to them whatever they have
    claimed. Raises ConfigError or StoreError when a store cannot be opened.
    """

    def __init__(
        self, settings: Settings, given: Given = NOTHING_GIVEN, *, in_memory: bool, is_worker: bool = False
    ) -> None:
        self.settings = settings
        self.observers = Observers()
        self.search_load = SearchLoad()
        hand_over = hand_over_of(settings, in_memory=in_memory)
        self.backends = backends = open_backends(settings, given, in_memory=in_memory)
        llm = None if backends.llm is None else ObservedModel(backends.llm, self.observers)
        self.llm: LanguageModel | None = llm
        self.has_reranker = backends.reranker is not None
        self.storage_paths = [] if in_memory else storage_paths(settings)
        self.ledger = backends.ledger
        self.events = EventBus(self.ledger)
        self.observers.add(self.events)
        self.webhooks = Webhooks(self.ledger, settings.webhooks)
        self._session_gap = timedelta(minutes=settings.session_gap)
        self._commits = SharedCommits(self.ledger, self._session_gap, self.observers)
        # Against deadlock, no task of a pool waits for a task of the same pool. Searches have a pool of their own, in
        # which no task takes long: enrichment and deliveries can take all threads of theirs for minutes.
        self._search_pool = Pool(POOL_SIZE, thread_name_prefix="graphmem-search")
        self.pool = Pool(WORK_POOL_SIZE, thread_name_prefix="graphmem")
        self._scripts = ScriptSupport(backends.embedder)
        self._enricher = Enricher(self.ledger, backends.embedder, backends.extractor, self.pool, self.observers)
        self.embedding_spec = self._enricher.spec
        self.projection_workers = backends.projection_workers
        self.projections = [worker.projection for worker in self.projection_workers]
        described = description_jobs(self)
        self.describer = Describer(settings.describe, frozenset() if described is None else described.kinds)
        pipeline = None if llm is None else fact_pipeline(settings, backends, llm, self._enricher, self.observers)
        self.job_worker = JobWorker(
            self.ledger,
            self._enricher,
            self.pool,
            pipeline,
            described,
            settings,
            on_background_done=partial(finish_background_work, self),
            run_cycle=partial(run_nightly_cycle, self),
            ends_sessions=lambda: self.ends_sessions,
            end_session=lambda job: self.commit([EndSession(job)]),
            hand_over=hand_over,
        )
        self._has_checked_embedder = False
        self.accesses = AccessLog(self.ledger, self.events)
        self.working = None
        if backends.working is not None and settings.working is not None:
            most = settings.working.config
            self.working = Working(self.ledger, backends.working, self._session_gap, most.rounds, most.tokens)
        self._close_lock = Lock()
        self._closed = False
        self._before_close: WeakSet[Closeable] = WeakSet()
        # Closes the stores of an engine that nobody closed, at the latest when the process ends. Running work keeps the
        # engine alive.
        self._finalizer = finalize(self, _close_stores, self.events, backends)
        close_only_here(self, self._finalizer)
        try:
            self.webhooks.start(self.events)
            # Connects to the servers, all at the same time, and schedules what a process that died has left behind.
            for opening in [self.pool.submit(worker.open) for worker in self.projection_workers]:
                opening.result()
            begin_lifecycle(self)
            erase_unused(self.ledger)
            # The processes of a file are mostly one after the other, and the one before may have died.
            self.job_worker.schedule(texts_by_force=not self.ledger.on_server and not is_worker)
        except BaseException:
            self.close()
            raise

    def check_open(self) -> None:
        """Raises StoreUnavailable after `close`, and in a process that was forked after opening."""
        if is_inherited(self):
            raise StoreUnavailable(FORKED)
        if self._closed:
            raise StoreUnavailable(CLOSED)

    def check_embedder(self) -> None:
        """Raises ConfigError when the ledger's vectors are of another embedder than the configured one.

        Records the configured one in a ledger that has none yet.
        """
        check_embedder(self.ledger, self.embedding_spec)

    @property
    def search_deps(self) -> SearchDeps:
        """The stores and models that a search reads; the first use checks the contents of a given vector index."""
        backends = self.backends
        if backends.vector_worker is not None:
            backends.vector_worker.check_contents()
        return SearchDeps(
            backends.ledger,
            backends.vector_index,
            backends.vector_worker,
            backends.graph,
            backends.graph_worker,
            backends.embedder,
            self.embedding_spec,
            self._scripts,
            self._search_pool,
            self.observers,
            self.search_load,
            backends.reranker,
        )

    def note_found(self, records: Iterable[MemoryRecord], view: View) -> None:
        """Counts that a search of the present found these memories, if the lifecycle or a handler is to know."""
        is_counted = self.settings.lifecycle.enabled or self.events.has_handlers_of(EventType.MEMORY_ACCESSED)
        if is_counted and view.as_of is None:
            self.accesses.note(record.row for record in records)

    def commit(
        self, commands: Sequence[Command], scope: Scope | None = None, *, now: datetime | None = None
    ) -> list[Outcome]:
        """Commits commands in one transaction and returns their outcomes, in order.

        `scope`, if given, hides memories outside it from the commands; `now` is the time of the changes, by default the
        present. See `graphmem.commands.dispatch`.
        """
        ends_sessions = self.ends_sessions
        adds = any(isinstance(command, AddMessage | HoldMessage) for command in commands)
        embedding = self.embedding_spec if adds else None
        if adds and self.ledger.on_server and not self._has_checked_embedder:
            # In the transaction of the first memory it would have all other writers wait for that one.
            self.check_embedder()
            self._has_checked_embedder = True
        change_set = ChangeSet(tuple(commands), now or datetime.now(UTC), scope, ends_sessions, embedding)
        outcomes = self._commits.commit(change_set)
        if ends_sessions and any(isinstance(command, AddMessage | PutItem) for command in commands):
            with log_and_leave_pending():
                self.job_worker.look_within(self._session_gap.total_seconds())
        if self.working is not None:
            self.working.committed(commands, outcomes)
        return outcomes

    def said_before(self, scope: Scope) -> list[SaidMessage]:
        """Returns what was said just before under exactly this scope, oldest first; nothing without working memory."""
        return [] if self.working is None else self.working.said_before(scope)

    @property
    def extracts_at_session_end(self) -> bool:
        """Whether facts are drawn once a session has ended, and not at each `add`."""
        return self.llm is not None and self.settings.extract == "session"

    @property
    def ends_sessions(self) -> bool:
        """Whether somebody in this process is to know when a session ends."""
        return self.extracts_at_session_end or self.events.has_handlers_of(EventType.SESSION_END)

    def run_job(
        self, job: int, records: Sequence[MemoryRecord], kind: JobKind, *, wait: bool
    ) -> tuple[JobResult | JobFailure, list[str]]:
        """Runs a job (facts or procedure) on newly stored messages while enriching them; then delivers the results.

        `job` is the job's number, `records` the source messages. Returns the job's result, or its failure, and what is
        still pending: the job's kind and names of projections. With `wait=False` it returns an empty result at once.
        """
        future: Future[JobResult | JobFailure] | None = None
        with log_and_leave_pending():
            if wait:
                future = self.job_worker.run(job, kind, in_background=False)
            else:
                self.job_worker.start(job, kind)
        pending = self.enrich_and_deliver(records, wait=wait)
        if future is None:
            return JobResult(), [kind.value, *pending]
        try:
            result = future.result()
            is_unfinished = isinstance(result, JobFailure)
            if isinstance(result, JobResult) and not result.usage:  # perhaps another process works on the job
                with self.ledger.read() as connection:
                    is_unfinished = jobs.get(connection, job) is not None
        except StoreError as error:
            result, is_unfinished = JobFailure.of(error), True
        if is_unfinished:
            return result, [kind.value, *pending]
        with log_and_leave_pending():
            self.job_worker.schedule()
        still_pending = self.deliver([records[0].partition])
        return result, pending if set(pending) >= set(PROJECTION_NAMES) else still_pending

    def enrich_and_deliver(self, records: Sequence[MemoryRecord], *, wait: bool) -> list[str]:
        """Enriches and delivers committed memories; returns the projections that still lack some of them.

        The words are durable already, so no failure of a model or store, and no `close` meanwhile, raises an error
        here: the work stays pending.
        """
        is_enriched = False
        with log_and_leave_pending():
            is_enriched = self.job_worker.enrich(records, wait=wait)
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
            with log_and_leave_pending():
                delivery = worker.schedule(partitions)
            deliveries.append((worker, delivery))
        return [
            worker.name
            for worker, delivery in deliveries
            if not worker.wait_for(delivery, max(0.0, deadline - monotonic()))
        ]

    def call_before_close(self, user: Closeable) -> None:
        """Lets `close` begin with `user.close()`, which ends work that needs the open stores. Keeps no reference."""
        self._before_close.add(user)

    def close(self, *, wait: bool = True) -> None:
        """Waits for the users of the engine and for background work, then closes all stores.

        Long texts that are not enriched yet stay recorded, without `wait` all texts. Does nothing in a second call, or
        in a forked process.
        """
        if is_inherited(self):
            return
        for user in list(self._before_close):
            user.close()
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        self.job_worker.close(finish=wait)
        self.accesses.close()
        self.events.close()
        self.webhooks.close()
        for worker in self.projection_workers:
            worker.close(self.settings.delivery_wait)
        self._search_pool.shutdown(wait=True)
        self.pool.shutdown(wait=True)
        self._finalizer()


def _close_stores(events: EventBus, backends: Backends) -> None:
    events.close()  # its followers read the ledger
    backends.close()
