"""The house behind the door: open stores, the pools, and the one way by which a plan reaches them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, ParamSpec, TypeVar
from weakref import finalize

from graphmem.backends import Backends, embedder_of, note_embedder, open_backends
from graphmem.errors import ConfigError, GraphmemError, ModelError, StoreError, StoreUnavailable
from graphmem.model import MemoryRecord, Scope
from graphmem.recall.channels import Stores
from graphmem.remember.commit import commit
from graphmem.remember.enrich import Enricher
from graphmem.remember.plan import Outcome, Plan, Renew, Step
from graphmem.settings import Settings
from graphmem.stores.deliver import Progress, Projection
from graphmem.stores.ledger import audit, log, memories, statistics

logger = logging.getLogger("graphmem")
WORKERS = 8
CLOSED = "this Memory is closed; open a new one"
P = ParamSpec("P")
R = TypeVar("R")
ENRICHMENT = ("vectors", "graph")


class Pool(ThreadPoolExecutor):
    """Threads; work that comes after the closing is refused with an error of ours."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise StoreUnavailable(CLOSED) from error


class House:
    """Open stores and what keeps them in step. Safe to use from several threads."""

    def __init__(self, settings: Settings, *, in_memory: bool) -> None:
        self.settings = settings
        self._parts: Backends = open_backends(settings, in_memory=in_memory)
        self.ledger = self._parts.ledger
        self._gap = timedelta(minutes=settings.session_gap)
        # Leaf work only: nothing that runs in a pool waits for the same pool.
        self._pool = Pool(WORKERS, thread_name_prefix="graphmem")
        self._couriers = Pool(len(self.projections), thread_name_prefix="graphmem-deliver")
        self._background = Pool(1, thread_name_prefix="graphmem-background")
        self._enricher = Enricher(self.ledger, self._parts.embedder, self._parts.extractor, self._pool)
        self._queue = Lock()
        self._queued: Future[None] | None = None
        self._closed = False
        # For those who forget to close: at the latest when the process ends. Work under way holds this house alive.
        self._let_go = finalize(self, _let_go, self._parts)
        self._checked = False
        self._begin()

    @property
    def projections(self) -> list[Projection]:
        """What has to be delivered to."""
        copy = self._parts.graph_copy
        return [self._parts.vectors] if copy is None else [self._parts.vectors, copy]

    @property
    def stores(self) -> Stores:
        """What a search reads; checks on its first use that the vector index holds what it should."""
        self._check_index()
        p = self._parts
        return Stores(p.ledger, p.index, p.vectors, p.graph, p.graph_copy, p.embedder, p.extractor, self._pool)

    def check_open(self) -> None:
        """Raises StoreUnavailable once closed."""
        if self._closed:
            raise StoreUnavailable(CLOSED)

    def check_embedder(self) -> None:
        """Raises ConfigError when the ledger's vectors are another model's."""
        known, mine = embedder_of(self.ledger), self._parts.embedder.model
        if known is None:
            note_embedder(self.ledger, mine)
        elif known != mine:
            raise ConfigError(
                f"embedder: this ledger's vectors are of {known!r}, the configuration says {mine!r}; "
                f"call rebuild() to embed everything anew, or configure {known!r} again"
            )

    def _begin(self) -> None:
        """What a process that died owed is done in the background."""
        with self.ledger.read() as connection:
            owed = log.count_owed(connection)
        if owed:
            self.work_later()

    def _check_index(self) -> None:
        if self._checked:
            return
        self._checked = True
        vectors = self._parts.vectors
        try:
            self.deliver([])
            with self.ledger.read() as connection:
                expected = statistics.total_windows(connection)
            if not vectors.pending() and self._parts.index.count() != expected and vectors.shared:
                logger.warning("the vector index lost points; giving them again from the ledger")
                vectors.mend(vectors.verify())
        except StoreError as error:
            logger.warning("the vector index could not be checked: %s", type(error).__name__)

    def commit(self, steps: Sequence[Step], within: Scope | None = None) -> list[Outcome]:
        """Carries out steps in one transaction; see `graphmem.remember.commit`."""
        return commit(self.ledger, Plan(tuple(steps), datetime.now(UTC), within), self._gap)

    def finish(self, records: Sequence[MemoryRecord], *, wait_for_it: bool) -> list[str]:
        """What follows a commit: enrichment and delivery. Returns the projections that lack something of it."""
        if not wait_for_it:
            self.work_later()
            return list(ENRICHMENT)
        try:
            self._enricher.work([record.row for record in records])
        except (ModelError, StoreError) as error:  # the words are durable: never a failed call, but a pending one
            logger.warning("enrichment failed (%s); it stays recorded and is tried again", type(error).__name__)
        with self.ledger.read() as connection:
            left = log.owed_uids(connection, [record.id for record in records])
        pending = self.deliver(list({record.space for record in records}))
        return list(ENRICHMENT) if left else pending

    def deliver(self, spaces: Sequence[str]) -> list[str]:
        """Lets both projections catch up at once; returns those that have not within `delivery_wait`."""
        jobs = {p.name: self._couriers.submit(p.deliver, spaces) for p in self.projections}
        wait(jobs.values(), timeout=self.settings.delivery_wait)
        return [name for name, job in jobs.items() if not _went_well(name, job)]

    def work_later(self) -> None:
        """Does what is owed in the background; a second call before it has begun changes nothing."""
        with self._queue:
            if self._queued is None or self._queued.running() or self._queued.done():
                self._queued = self._background.submit(self._work)

    def _work(self) -> None:
        try:
            self._enricher.work()
        except GraphmemError as error:
            logger.warning("background work failed (%s) and stays recorded", type(error).__name__)
        self.deliver([])

    def flush(self) -> list[str]:
        """Does what is owed and waits for it; returns the projections that still lack something."""
        self.work_later()
        self._background.submit(lambda: None).result()
        with self.ledger.read() as connection:
            if log.count_owed(connection):
                return list(ENRICHMENT)
        return [projection.name for projection in self.projections if projection.pending()]

    def rebuild(self, projection: str | None, progress: Progress | None) -> None:
        """Throws projections away and fills them again; embeds anew only what the model has no vectors for."""
        self._embed_for_this_model()
        with self.ledger.write() as connection:
            audit.recompute(connection)
        for one in self.projections:
            if projection in {None, one.name}:
                one.rebuild(self.spaces(), progress)

    def _embed_for_this_model(self) -> None:
        with self.ledger.read() as connection:
            rows = statistics.unembedded(connection, self._enricher.forms)
            stale = list(memories.records_by_row(connection, rows).values())
        if stale:
            self.commit([Renew(record.id) for record in stale])
        note_embedder(self.ledger, self._parts.embedder.model)
        self._enricher.work()
        with self.ledger.write() as connection:
            dropped = statistics.drop_other_forms(connection, self._enricher.forms)
        if dropped:
            self.ledger.compact()

    def spaces(self) -> list[str]:
        """Every space there is."""
        with self.ledger.read() as connection:
            return memories.all_spaces(connection)

    def verify(self) -> dict[str, Any]:
        """Compares the projections with the ledger and the derived columns with their rows."""
        with self.ledger.read() as connection:
            counted, derived, failed = audit.counts(connection), audit.wrong(connection), audit.failed(connection)
        found = {projection.name: projection.verify() for projection in self.projections}
        clean = not derived and not failed and not any(any(lines.values()) for lines in found.values())
        return {"ok": clean, "ledger": counted, "derived": derived, "failed": failed, "projections": found}

    def stats(self) -> dict[str, Any]:
        """Counts, sizes, what is pending."""
        with self.ledger.read() as connection:
            counted, embedded = audit.counts(connection), audit.embedding_bytes(connection)
        path = self.ledger.path
        return {
            **counted,
            "embedder": self._parts.embedder.model,
            "embedding_bytes": embedded,
            "bytes": 0 if path is None else path.stat().st_size,
            "pending": [projection.name for projection in self.projections if projection.pending()],
        }

    def repair(self) -> None:
        """Brings everything up to date and mends what `verify` finds."""
        self.flush()
        with self.ledger.write() as connection:
            audit.recompute(connection)
        for projection in self.projections:
            projection.mend(projection.verify())

    def reset(self) -> None:
        """Empties the ledger and the projections."""
        with self.ledger.write() as connection:
            audit.wipe(connection)
        self.deliver([])
        self.ledger.compact()

    def close(self) -> None:
        """Waits for background work, then lets go of everything. A second call does nothing."""
        with self._queue:
            if self._closed:
                return
            self._closed = True
        for pool in (self._background, self._couriers, self._pool):
            pool.shutdown(wait=True)
        self._let_go()


def _let_go(parts: Backends) -> None:
    try:
        parts.index.close()
    finally:  # whatever became of the index: the ledger's log has to be emptied
        parts.ledger.close()


def _went_well(name: str, job: Future[None]) -> bool:
    if not job.done():
        return False
    error = job.exception()
    if error is None:
        return True
    if not isinstance(error, StoreError):
        raise error
    logger.warning(
        "%s could not be delivered (%s); the next write, or repair(), tries again", name, type(error).__name__
    )
    return False
