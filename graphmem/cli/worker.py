"""`graphmem worker`: does the jobs of a ledger in a process of its own."""

from __future__ import annotations

import logging
from threading import Event
from time import monotonic

import typer

from graphmem.cli.options import CommandContext, service_command
from graphmem.errors import GraphmemError
from graphmem.logs import log_text

logger = logging.getLogger("graphmem")
# Seconds between two looks for jobs; a look itself takes at most a tenth of the time.
LOOK_SECONDS, LOOK_SHARE = 0.5, 0.1


@service_command
def worker(call: CommandContext) -> None:
    """Does the jobs of other programs until it is stopped.

    With the setting workers.provider=process the programs that have the memory open leave it to this one, nightly
    cycles of the lifecycle included.
    """
    from graphmem.engine import Engine  # noqa: PLC0415  (takes a second, for which --help need not wait)
    from graphmem.service.process import begin_log, end_in_time  # noqa: PLC0415
    from graphmem.settings.schema import ThreadWorkers  # noqa: PLC0415

    begin_log()
    stopped = Event()
    engine = Engine(call.settings().model_copy(update={"workers": ThreadWorkers()}), in_memory=False, is_worker=True)
    try:
        end_in_time(lambda *_: stopped.set(), engine.job_worker.release)
        typer.echo("graphmem: doing the jobs of this ledger", err=True)
        pause = 0.0
        while not stopped.wait(pause):
            begun = monotonic()
            try:
                engine.take_up_work()
            except GraphmemError as error:
                logger.warning("recorded work could not be taken up (%s)", log_text(error))
            pause = max(LOOK_SECONDS, (monotonic() - begun) / LOOK_SHARE)
    finally:
        engine.close(wait=False)
