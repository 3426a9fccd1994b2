"""Counts how often memories are found, in memory, and writes the counts now and then: a search is no write."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from threading import Lock, Timer

from graphmem.concurrency import start_thread
from graphmem.errors import StoreError, StoreUnavailable
from graphmem.logs import log_text
from graphmem.stores.ledger import Ledger, vitals
from graphmem.stores.ledger.vitals import Access

logger = logging.getLogger("graphmem")
# Seconds, and memories, after which the counts are written. A process that is killed loses at most these.
WRITE_SECONDS, WRITE_ROWS = 60.0, 500


class AccessLog:
    """The accesses that are not written yet. Safe to use from several threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
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
            with self._ledger.write() as connection:
                vitals.record_accesses(connection, counts)
        except StoreError as error:
            logger.warning("how often memories were found could not be recorded (%s)", log_text(error))
            with self._lock:
                self._count(counts)

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
