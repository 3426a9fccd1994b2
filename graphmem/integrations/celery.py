"""Workers of Celery that do the jobs of a ledger; see "Leave work to workers" in the documentation.

`celery -A graphmem.integrations.celery worker` takes the settings from GRAPHMEM_* variables, and from the file that
GRAPHMEM_CONFIG names. Needs the extra `celery`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from graphmem.background import take_up_work
from graphmem.engine import Engine
from graphmem.errors import ConfigError, GraphmemError
from graphmem.integrations.base import required
from graphmem.jobs.handover import JOB_TASK, RESEND_SECONDS, SWEEP_TASK, celery_app
from graphmem.jobs.worker import CYCLE_SECONDS, model_job_seconds
from graphmem.logs import log_text
from graphmem.settings import Settings
from graphmem.settings.schema import CeleryWorkers
from graphmem.settings.sources import CONFIG_VARIABLE

with required("celery", extra="celery"):
    from celery import Celery, signals

logger = logging.getLogger("graphmem")
# Seconds by which a message comes again later than the claim of its job ends, if a worker dies with its machine.
VISIBILITY_MARGIN = 60.0
# Seconds in which a process of a worker has to open the ledger.
START_SECONDS = 60.0


class _Worker:
    """The engine of one process of a worker. It is opened after the fork: a child cannot use its parent's."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._engine: Engine | None = None

    def open(self, **_: Any) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = Engine(self._settings, in_memory=False, is_worker=True)
            return self._engine

    def close(self, **_: Any) -> None:
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close(wait=False)


def make_app(settings: Settings) -> Celery:
    """Returns the application of Celery whose workers do the jobs of the ledger that the settings name.

    Its tasks are `graphmem.job(row)`, which does a job, and `graphmem.sweep()`, which beat sends every 30 s: it sends
    the rows of jobs again whose messages were lost, and those of jobs that are due. Raises ConfigError for settings
    without `workers.provider` "celery".
    """
    if not isinstance(settings.workers, CeleryWorkers):
        raise ConfigError("workers.provider: must be 'celery' for workers of Celery, with workers.config.broker_url")
    longest_job = max(CYCLE_SECONDS, model_job_seconds(settings, has_llm=settings.llm is not None))
    app = celery_app(settings.workers.config, visibility_timeout=longest_job + VISIBILITY_MARGIN)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_proc_alive_timeout=START_SECONDS,
        broker_connection_retry_on_startup=True,
        beat_schedule={SWEEP_TASK: {"task": SWEEP_TASK, "schedule": RESEND_SECONDS}},
    )
    worker = _Worker(settings)

    def job(row: int) -> None:
        with _leaving_for_later():
            worker.open().job_worker.perform(row)

    def sweep() -> None:
        with _leaving_for_later():
            engine = worker.open()
            engine.job_worker.sweep()
            take_up_work(engine)

    def open_early(**_: Any) -> None:
        with _leaving_for_later():
            worker.open()

    app.task(job, name=JOB_TASK)
    app.task(sweep, name=SWEEP_TASK)
    signals.worker_process_init.connect(open_early, weak=False)
    # A pool of threads has no processes of its own, and ends with its worker.
    signals.worker_process_shutdown.connect(worker.close, weak=False)
    signals.worker_shutdown.connect(worker.close, weak=False)
    return app


@contextmanager
def _leaving_for_later() -> Iterator[None]:
    """Logs an error without what it may quote: Celery would log its stack. The job stays recorded."""
    try:
        yield
    except GraphmemError as error:
        logger.warning("recorded work could not be taken up (%s)", log_text(error))


def __getattr__(name: str) -> Celery:
    """Makes `app`, by which Celery finds the application, when it is first asked for."""
    if name != "app":
        raise AttributeError(name)
    path = os.environ.get(CONFIG_VARIABLE)
    app = globals()["app"] = make_app(Settings.from_file(path) if path else Settings.from_env())
    return app
