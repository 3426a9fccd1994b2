"""Counts how often memories are found, in memory, and writes the counts now and then: a search is no write."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from threading import Lock, Timer
from uuid import uuid4

from sqlalchemy import Connection, select

from graphmem.concurrency import start_thread
from graphmem.errors import StoreError, StoreUnavailable
from graphmem.events_bus import EventBus
from graphmem.logs import log_text
from graphmem.model import EventType, MemoryEvent, Scope
from graphmem.stores.ledger import Ledger, event_log, outbox, vitals
from graphmem.stores.ledger.vitals import Access

logger = logging.getLogger("graphmem")
# Seconds, and memories, after which the counts are written. A process that is killed loses at most these.
WRITE_SECONDS, WRITE_ROWS = 60.0, 500


class AccessLog:
    """The accesses that are not written yet. Safe to use from several threads."""

    def __init__(self, ledger: Ledger, events: EventBus) -> None:
        self._ledger = ledger
        self._events = events
        self._lock = Lock()
        self._counts: dict[int, Access] = {}
        self._timer: Timer | None = None
        self._closed = False

    def note(self, rows: Iterable[int]) -> None:
        """Counts an access to each of these memories, by their rows; returns at once but for every 500 memories."""
        now = datetime.now(UTC)
        with self._lock:
            self._count({row: Access(1, now) for row in rows})
            is_full = len(self._counts) >= WRITE_ROWS
            if self._counts and self._timer is None and not self._closed:
                self._timer = Timer(WRITE_SECONDS, self.write)
                self._timer.daemon = True
                with suppress(StoreUnavailable):  # no thread can be started: `flush` and `close` write
                    start_thread(self._timer)
        if is_full:
            self.write()

    def write(self) -> None:
        """Writes the counts so far. A ledger that fails keeps them for the next time; the log says so."""
        with self._lock:
            counts, self._counts = self._counts, {}
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if not counts:
            return
        try:
            with self._ledger.read() as connection:
                found = vitals.found_memories(connection, counts)
        except StoreError as error:
            self._keep(counts, error)
            return
        # On a server in a transaction for each partition: one for all would hold up those whose turn it is for others.
        for partitions in [[key] for key in found] if self._ledger.on_server else [list(found)]:
            written = {row: counts[row] for key in partitions for row in found[key]}
            try:
                with self._ledger.write(partitions) as connection:
                    vitals.record_accesses(connection, written)
                    told = self._events_about(written, connection)
                    for event in told:
                        event_log.append(connection, event)
            except StoreError as error:
                self._keep(written, error)
            else:
                self._events.tell(told)

    def _keep(self, counts: Mapping[int, Access], error: StoreError) -> None:
        """Keeps counts that could not be written for the next time."""
        logger.warning("how often memories were found could not be recorded (%s)", log_text(error))
        with self._lock:
            self._count(counts)

    def _events_about(self, counts: Mapping[int, Access], connection: Connection) -> list[MemoryEvent]:
        """Returns what subscribers are told of accesses, one event for each partition; none if nobody listens."""
        of_type = EventType.MEMORY_ACCESSED
        if not (self._events.has_handlers_of(of_type) or connection.scalar(select(outbox.is_followed(of_type)))):
            return []
        return [
            MemoryEvent.of(
                of_type,
                Scope.of_partition(partition),
                str(uuid4()),
                datetime.now(UTC),
                memory_ids=list(found.values()),
                accesses=sum(counts[row].times for row in found),
            )
            for partition, found in vitals.found_memories(connection, counts).items()
        ]

    def _count(self, accesses: Mapping[int, Access]) -> None:
        for row, access in accesses.items():
            earlier = self._counts.get(row)
            times, last = (0, access.last) if earlier is None else earlier
            self._counts[row] = Access(times + access.times, max(last, access.last))

    def close(self) -> None:
        """Writes the counts, and sets no timer any more."""
        with self._lock:
            self._closed = True
        self.write()
