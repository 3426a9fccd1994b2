"""What the processes of `graphmem serve` and `graphmem worker` have in common: their log, and an end in time."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from threading import Event, Thread
from time import sleep
from types import FrameType
from typing import Any

from graphmem.service import limits

logger = logging.getLogger("graphmem")


def begin_log() -> None:
    """Makes this process log to standard error."""
    logging.basicConfig(level=logging.WARNING, format="graphmem: %(message)s")


def end_in_time(begin_end: Any, hand_back: Callable[[], None] | None = None) -> None:
    """Makes a signal end this process within `limits.END_SECONDS`, and its second coming at once.

    `begin_end` is a handler of signals, which begins the end. A terminal that is closed ends the process as SIGTERM
    does, unless SIGHUP is ignored, as under nohup. What is under way then stays recorded in the ledger, as after a
    kill: the next start goes on with it. `hand_back` is called first, for at most `limits.HAND_BACK_SECONDS`.
    """
    has_begun, seen = Event(), set[int]()

    def end_late() -> None:
        has_begun.wait()
        sleep(limits.END_SECONDS)
        logger.warning("work was still under way %.0f s after the signal; it stays recorded", limits.END_SECONDS)
        if hand_back is not None:
            handing_back = Thread(target=hand_back, name="graphmem-hand-back", daemon=True)
            handing_back.start()
            handing_back.join(limits.HAND_BACK_SECONDS)
        os._exit(128 + signal.SIGTERM)

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number in seen:
            os._exit(128 + number)
        seen.add(number)
        has_begun.set()
        begin_end(number, frame)

    Thread(target=end_late, name="graphmem-end", daemon=True).start()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, on_signal)
