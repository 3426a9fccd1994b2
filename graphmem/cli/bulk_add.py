"""Adds what was read: all of it or nothing, with a progress bar where it takes long."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from datetime import UTC, datetime
from typing import Any

from graphmem.boundary import validation
from graphmem.cli.render import ProgressBar
from graphmem.errors import ValidationError
from graphmem.memory import Memory

# So many are done in about a second.
PROGRESS_FROM = 50
POLL_SECONDS = 0.3


def add_all(
    memory: Memory, source: str, messages: list[Any], options: Mapping[str, Any], *, wait: bool
) -> dict[str, Any]:
    """What `add` returns, also for more messages than one call takes. Raises ValidationError: nothing is stored then.

    Many messages are stored first, which is quick; what is computed from them follows, and what of it an interruption
    leaves undone is done by whoever opens the memory next.
    """
    most = memory.limits.max_messages
    pieces = [messages[start : start + most] for start in range(0, len(messages), most)] or [[]]
    try:
        for piece in pieces[1:]:
            validation.message_list(piece, timestamp=options["timestamp"], now=datetime.now(UTC), limits=memory.limits)
        at_once = wait and len(messages) <= PROGRESS_FROM
        done = [memory.add(piece, **options, wait=at_once) for piece in pieces]
    except ValidationError as error:
        raise (ValidationError(f"{source}: {error}") if str(error).startswith("messages") else error) from None
    pending = list(dict.fromkeys(name for result in done for name in result.get("pending", ())))
    if pending and wait and not at_once:
        pending = _finish(memory)
    added: dict[str, Any] = {
        "results": [one for result in done for one in result["results"]],
        "relations": [one for result in done for one in result["relations"]],
    }
    for name in ("failed", "usage"):
        told = [result[name] for result in done if name in result]
        added |= {name: told[-1]} if told else {}
    return added | ({"pending": pending} if pending else {})


def _finish(memory: Memory) -> list[str]:
    """Waits for the background work; returns the projections that still lack something."""
    owed = memory.stats()["tasks"]
    pool = ThreadPoolExecutor(1)
    with ProgressBar() as bar:
        job = pool.submit(memory.flush)
        pool.shutdown(wait=False)  # somebody who interrupts does not want to wait for it
        while not job.done():
            left = memory.stats()["tasks"]
            bar.update("vectors and graph", max(0, owed - left), owed)
            wait_for([job], timeout=POLL_SECONDS)
        return job.result()["pending"]
