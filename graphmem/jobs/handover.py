"""Jobs that no caller waits for, left to other processes: to `graphmem worker`, or by messages to workers of Celery.

A message has the row of a job and nothing else; it needs the extra `celery`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any

from graphmem.errors import ConfigError, install_extra
from graphmem.settings import Settings
from graphmem.settings.schema import CeleryConfig, CeleryWorkers, ThreadWorkers

if TYPE_CHECKING:
    from celery import Celery

logger = logging.getLogger("graphmem")

JOB_TASK, SWEEP_TASK = "graphmem.job", "graphmem.sweep"
# Seconds after which a row is sent again whose job nobody has claimed.
RESEND_SECONDS = 30.0
# Seconds that the broker may take to connect and to take a message; and those for which one that failed gets none.
SEND_SECONDS, AWAY_SECONDS = 1.0, 5.0


@dataclass(frozen=True, slots=True)
class HandOver:
    """How the rows of stored jobs reach the processes that do them.

    `send` is called after the commit, and never raises: jobs whose rows are lost on the way are found in the ledger
    after `seconds`.
    """

    send: Callable[[Sequence[int]], None]
    seconds: float


def hand_over_of(settings: Settings, *, in_memory: bool) -> HandOver | None:
    """Returns how jobs are handed over as the setting `workers` says, None if this process does them itself.

    Raises ConfigError for a memory that no other process can open, and without Celery where it is configured.
    """
    if isinstance(settings.workers, ThreadWorkers):
        return None
    if in_memory:
        raise ConfigError(
            'workers: no other process can do the jobs of Memory(":memory:"); give it a folder, or leave workers out'
        )
    if isinstance(settings.workers, CeleryWorkers):
        return HandOver(Sender(settings.workers.config).send, RESEND_SECONDS)
    return HandOver(lambda _: None, 0.0)  # `graphmem worker` looks into the ledger


def celery_app(config: CeleryConfig, **transport_options: Any) -> Celery:
    """Returns an application of Celery that knows the broker and the queue, and no tasks.

    `transport_options` are defaults of the configured ones. Raises ConfigError without the extra.
    """
    url = config.broker_url.get_secret_value()
    needed = ("celery", "redis") if url.startswith("redis") else ("celery",)
    if any(find_spec(name) is None for name in needed):
        raise ConfigError(f"workers: Celery and the client of its broker are needed; {install_extra('celery')}")
    from celery import Celery  # noqa: PLC0415  (an extra)

    app = Celery("graphmem", set_as_current=False)
    app.conf.update(
        broker_url=url,
        broker_transport_options={**transport_options, **config.transport_options},
        task_default_queue=config.queue,
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
    )
    return app


class Sender:
    """Sends rows of jobs; what it cannot send stays recorded, and `graphmem.sweep` sends it."""

    def __init__(self, config: CeleryConfig) -> None:
        """Raises ConfigError without the extra. Connects at the first use."""
        self._app = celery_app(
            config,
            socket_connect_timeout=SEND_SECONDS,
            socket_timeout=SEND_SECONDS,
            max_retries=1,
            interval_start=0,
            interval_step=0,
            retry_on_timeout=False,
        )
        self._app.conf.broker_connection_timeout = SEND_SECONDS
        self._away_until = 0.0

    def send(self, rows: Sequence[int]) -> None:
        """Sends the rows, each in a message of its own. Never raises.

        A broker that fails gets none for `AWAY_SECONDS`.
        """
        if monotonic() < self._away_until:
            return
        try:
            for row in rows:
                self._app.send_task(JOB_TASK, args=[row], retry=False, ignore_result=True)
        except Exception as error:  # noqa: BLE001  (each transport has errors of its own; the jobs are stored)
            self._away_until = monotonic() + AWAY_SECONDS
            logger.warning("the broker takes no messages (%s); its jobs are sent later", type(error).__name__)
