"""Counts how often memories are found, in memory, and writes the counts now and then: a search is no write."""

from __future__ import annotations

import logging
from collections.abc import Iterable
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
            for row in rows:
                times = self._counts[row].times if row in self._counts else 0
                self._counts[row] = Access(times + 1, now)
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
                for row, access in counts.items():
                    times = self._counts[row].times if row in self._counts else 0
                    self._counts[row] = Access(times + access.times, access.last)

    def close(self) -> None:
        """Writes the counts, and sets no timer any more."""
        with self._lock:
            self._closed = True
        self.write()
