"""Renews the claims of the jobs that run in this process, so that those of a process that was killed end soon."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Thread
from time import monotonic

from graphmem.concurrency import start_thread
from graphmem.errors import GraphmemError
from graphmem.stores.ledger import Ledger, jobs

logger = logging.getLogger("graphmem")
# Seconds for which a job is claimed, and after which its claim is renewed while it runs: two may fail.
CLAIM_SECONDS, RENEW_SECONDS = 60.0, 20.0


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
