"""Jobs that no caller waits for, left to other processes: to `graphmem worker`, or by messages to workers of Celery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphmem.errors import ConfigError
from graphmem.settings import Settings
from graphmem.settings.schema import CeleryWorkers, ThreadWorkers


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
        from graphmem.jobs.celery_messages import RESEND_SECONDS, Sender  # noqa: PLC0415  (an extra)

        return HandOver(Sender(settings.workers.config).send, RESEND_SECONDS)
    return HandOver(lambda _: None, 0.0)  # `graphmem worker` looks into the ledger
