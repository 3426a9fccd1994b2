"""Enriches stored texts in a thread, for all callers together: what they ask for meanwhile shares the next batch."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Lock
from time import monotonic

from graphmem.commands.dispatch import commit
from graphmem.commands.types import VECTORS_ERASED, ChangeSet, StoreEnrichment
from graphmem.concurrency import Pool, WorkStopped, raise_if_stopped, stoppable, take_next
from graphmem.errors import GraphmemError, ModelError, StoreError, StoreUnavailable
from graphmem.ingest.enrichment import Enricher
from graphmem.logs import log_text
from graphmem.model import MemoryRecord
from graphmem.stores.ledger import Ledger, jobs
from graphmem.stores.ledger.jobs import CLAIM_SECONDS, UnenrichedText

logger = logging.getLogger("graphmem")
# Texts per commit, and their characters but for a single text. Models batch texts of similar length, so 256 is a fifth
# faster than 64; a crash repeats one batch, and whoever's turn is next waits for one.
BATCH, BATCH_CHARS = 256, 32_000
# Texts per commit of several partitions, which take turns, and of a lane that callers wait for.
SHARED_BATCH = 32
NO_RECORDS: Mapping[int, MemoryRecord] = {}
# A first claim is renewed when no more than so many seconds of it are left.
SAFETY_SECONDS = 2.0


class _Call:
    """A call that waits for texts; its future is what `EnrichmentLane.add` returns."""

    def __init__(self, rows: Collection[int]) -> None:
        self.future: Future[bool] = Future()
        self._rows = set(rows)
        self._is_complete = True
        self._error: BaseException | None = None
        self._resolve_if_settled()

    def settle(self, row: int, *, is_enriched: bool, error: BaseException | None) -> None:
        self._rows.discard(row)
        self._is_complete &= is_enriched
        self._error = self._error or error
        self._resolve_if_settled()

    def _resolve_if_settled(self) -> None:
        if self._rows or self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._is_complete)
        else:
            self.future.set_exception(self._error)


@dataclass(slots=True, eq=False)
class _Entry:
    """A text in the queue, the calls that wait for it, and until when (`monotonic`) nobody else can claim it.

    `record` is the memory as the call that stored it has it; the commit compares its version with the stored one.
    """

    text: UnenrichedText
    record: MemoryRecord | None
    held_until: float
    context: Context
    by_force: bool = False
    calls: list[_Call] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Results:
    """What became of a batch, by row: enrichment to be stored, errors of models, and all that stays pending (None:
    another process has claimed it).
    """

    enrichments: Mapping[int, StoreEnrichment] = field(default_factory=dict)
    failed: Mapping[int, ModelError] = field(default_factory=dict)
    unfinished: Mapping[int, BaseException | None] = field(default_factory=dict)


class EnrichmentLane:
    """A thread that enriches the texts in its queue, batch by batch; partitions take turns. Safe for several threads.

    Nobody waits for a lane with `on_committed`, which is called after each batch; when a whole batch fails there, the
    rest of the queue stays recorded for later. `on_unfinished` is called when something stays pending.
    """

    def __init__(
        self,
        ledger: Ledger,
        enricher: Enricher,
        commit_pool: Pool,
        name: str,
        on_unfinished: Callable[[], None],
        on_committed: Callable[[], None] | None = None,
    ) -> None:
        self._ledger = ledger
        self._enricher = enricher
        self._commit_pool = commit_pool
        self._on_unfinished = on_unfinished
        self._on_committed = on_committed
        self._pool = Pool(1, thread_name_prefix=name)
        self._lock = Lock()
        self._stopped = Event()
        self._is_running, self._last_run = False, Future[None]()
        self._last_run.set_result(None)
        self._entries: dict[int, _Entry] = {}
        self._queue: dict[str, deque[_Entry]] = {}  # by partition: the one whose turn it is comes first
        self._taken: set[int] = set()

    def holds(self, row: int) -> bool:
        """Returns whether a text is in the queue or in work."""
        return row in self._entries or row in self._taken

    def add(
        self,
        texts: Sequence[UnenrichedText],
        records: Mapping[int, MemoryRecord] = NO_RECORDS,
        *,
        held_seconds: float = 0.0,
        by_force: bool = False,
    ) -> Future[bool]:
        """Queues texts. The future tells whether all are enriched; it has an error if one of them failed.

        It is False if another process has claimed one. For `held_seconds` none can have; `by_force`: they are enriched
        all the same. `records` are memories that the caller has just stored, by row, which are not read again. Raises
        StoreUnavailable after `close`, or if no thread can be started.
        """
        call = _Call([text.row for text in texts])
        held_until, context = monotonic() + held_seconds - SAFETY_SECONDS, copy_context()
        with self._lock:
            if texts and not self._is_running:
                self._last_run = self._pool.submit(self._run)  # waits for the lock
                self._is_running = True
            for text in texts:
                entry = self._entries.get(text.row)
                if entry is None:
                    entry = self._entries[text.row] = _Entry(text, records.get(text.row), held_until, context)
                    self._queue.setdefault(text.partition, deque()).append(entry)
                else:
                    entry.record = None  # it may have been changed since it was stored
                entry.by_force |= by_force
                entry.calls.append(call)
        return call.future

    def wait(self, timeout: float | None = None) -> bool:
        """Waits up to `timeout` seconds until the queue is empty; returns whether it is."""
        with self._lock:
            last_run = self._last_run
        return not wait([last_run], timeout).not_done

    def close(self, *, finish: bool) -> None:
        """Ends the thread, with `finish` once its queue is empty; what is left stays recorded."""
        if not finish:
            self._stopped.set()
        self._pool.shutdown(wait=True)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        committing: Future[None] | None = None
        batch: list[_Entry] = []
        try:
            while batch := self._take_batch():
                results = batch[0].context.run(self._compute, batch)
                if committing is not None:
                    wait([committing])
                if results.enrichments:  # committed while the models compute the next batch
                    committing = self._commit_pool.submit(self._commit, batch, results)
                else:
                    self._commit(batch, results)
        except BaseException as error:  # noqa: BLE001  (else whoever waits would wait for ever)
            if isinstance(error, WorkStopped):
                logger.info("closed before all texts were enriched; they stay recorded")
            with self._lock:
                self._is_running = False
            self._settle(batch, {entry.text.row: error for entry in batch})
            self._abandon_queue(error)
        if committing is not None:
            wait([committing])

    def _take_batch(self) -> list[_Entry]:
        """Returns the next texts, each in the turn of its partition; none if the queue is empty: then the run ends."""
        with self._lock:
            most = SHARED_BATCH if len(self._queue) > 1 or self._on_committed is None else BATCH
            batch, chars = list[_Entry](), 0
            while self._queue and len(batch) < most:
                partition, entries = next(iter(self._queue.items()))
                text = entries[0].text
                if batch and chars + text.chars > BATCH_CHARS:
                    break
                chars += text.chars
                most = min(most, max(1, BATCH >> text.attempts))  # those that failed may spoil a batch again
                batch.append(take_next(self._queue, partition))
            for entry in batch:
                del self._entries[entry.text.row]
                self._taken.add(entry.text.row)
            self._is_running = bool(batch)
            return batch

    def _compute(self, batch: Sequence[_Entry]) -> _Results:
        # Without the pool the results could not be committed.
        with stoppable(lambda: self._stopped.is_set() or not self._commit_pool.takes_tasks):
            raise_if_stopped()
            try:
                records, claimed_elsewhere = self._claim(batch)
                enrichments, failed = self._enricher.compute_each(records)
            except WorkStopped:
                raise
            except GraphmemError as error:  # not about a text: the ledger cannot be read, or has another embedder
                return _Results(unfinished={entry.text.row: error for entry in batch})
            return _Results(enrichments, failed, {**dict.fromkeys(claimed_elsewhere), **failed})

    def _claim(self, batch: Sequence[_Entry]) -> tuple[list[MemoryRecord], set[int]]:
        """Returns the memories of a batch that are to be enriched, and the rows that another process has claimed."""
        now = monotonic()
        unclaimed = [entry.text.row for entry in batch if entry.held_until <= now]
        given = {entry.text.row: entry.record for entry in batch if entry.record and entry.held_until > now}
        rows = [entry.text.row for entry in batch if entry.text.row not in given]
        if not rows:
            return list(given.values()), set()
        own = set(rows).difference(unclaimed)
        if unclaimed:
            by_force = any(entry.by_force for entry in batch)
            with self._ledger.write(of=()) as connection:
                own |= jobs.claim_enrichments(
                    connection, unclaimed, self._ledger.job_holder, CLAIM_SECONDS, by_force=by_force
                )
        with self._ledger.read() as connection:
            unenriched = jobs.unenriched_records(connection, rows)
        read = [record for row, record in unenriched.items() if row in own]
        return [*given.values(), *read], unenriched.keys() - own

    def _commit(self, batch: Sequence[_Entry], results: _Results) -> None:
        unfinished = dict(results.unfinished)
        try:
            if results.enrichments:
                partitions = frozenset(entry.text.partition for entry in batch)
                commands = tuple(results.enrichments.values())
                change_set = ChangeSet(commands, datetime.now(UTC), partitions=partitions)
                outcomes = commit(self._ledger, change_set, timedelta(0))
                done = zip(results.enrichments, outcomes, strict=True)
                unfinished.update({row: None for row, outcome in done if outcome.reason == VECTORS_ERASED})
            if results.failed:
                self._record_failures(list(results.failed), next(iter(results.failed.values())))
        except BaseException as error:  # noqa: BLE001  (as above)
            unfinished = {entry.text.row: error for entry in batch}
            with suppress(StoreError):  # of a ledger that is out of reach: the claims end of themselves
                self._record_failures(list(results.enrichments), error)
        self._settle(batch, unfinished)
        errors = [error for error in unfinished.values() if error is not None]
        if len(errors) == len(batch) and self._on_committed is not None:
            self._abandon_queue(errors[0])

    def _record_failures(self, rows: Sequence[int], error: BaseException) -> None:
        """Has the texts of some memories tried again after a pause, whether a model fails at them or their commit."""
        with self._ledger.write(of=()) as connection:
            jobs.record_enrichment_failures(connection, rows, type(error).__name__)

    def _abandon_queue(self, error: BaseException) -> None:
        """Empties the queue; its texts stay recorded."""
        with self._lock:
            entries = list(self._entries.values())
            self._entries, self._queue = {}, {}
        self._settle(entries, {entry.text.row: error for entry in entries})

    def _settle(self, entries: Sequence[_Entry], unfinished: Mapping[int, BaseException | None]) -> None:
        """Tells the calls, and the owner of the lane, what became of some texts."""
        error = next((error for error in unfinished.values() if error is not None), None)
        if error is not None and self._on_committed is not None and not isinstance(error, WorkStopped):
            logger.warning("background work failed (%s) and stays recorded", log_text(error))
        with self._lock:
            for entry in entries:
                row = entry.text.row
                self._taken.discard(row)
                for call in entry.calls:
                    call.settle(row, is_enriched=row not in unfinished, error=unfinished.get(row))
        with suppress(StoreUnavailable):  # closing
            if self._on_committed is not None and entries:
                self._on_committed()
            if unfinished:
                self._on_unfinished()
