"""Makes a list of calls and kills this process in the middle: at the k-th event, or after so many seconds.

An event is a call into the library, one of its calls into C, or a call that reaches a database, a server or a folder,
and the return from these, in whichever thread. Between two events nothing outside of the process changes.
"""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import graphmem

LIBRARY = str(Path(graphmem.__file__).parent)
# Modules in C whose calls leave the process, from any caller; and functions that change folders.
STORES = {"sqlite3", "psycopg_binary", "_socket"}
FOLDERS = {"mkdir", "rename", "replace", "rmdir", "unlink"}


class EventKiller:
    """Kills this process once armed: at the `event`-th event, or after so many `seconds`; without either it counts."""

    def __init__(self, event: int | None = None, seconds: float | None = None) -> None:
        self._event, self._seconds = event, seconds
        self._numbers = itertools.count(1)  # one step of the interpreter, so that threads need no lock
        self._armed_at: float | None = None
        self.events, self.seconds = 0, 0.0
        threading.setprofile(self._count_event)
        sys.setprofile(self._count_event)

    def arm(self) -> None:
        """Counts from now on. A second call changes nothing."""
        if self._armed_at is None:
            self._armed_at = time.monotonic()
            if self._seconds is not None:
                # Nothing handles SIGALRM, so it ends the process as SIGKILL does, also inside of C code.
                signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def disarm(self) -> None:
        sys.setprofile(None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.seconds = time.monotonic() - (self._armed_at or time.monotonic())
        self._armed_at = None

    def _count_event(self, frame: Any, event: str, argument: Any) -> None:
        if self._armed_at is None or not _is_event(frame, event, argument):
            return
        self.events = next(self._numbers)
        if self.events == self._event:
            os.kill(os.getpid(), signal.SIGKILL)


def _is_event(frame: Any, event: str, argument: Any) -> bool:
    ours = frame.f_code.co_filename.startswith(LIBRARY)
    if event in {"call", "return"}:
        return ours and event == "call"
    if ours or getattr(argument, "__name__", "") in FOLDERS:
        return True
    module = getattr(argument, "__module__", None) or type(getattr(argument, "__self__", None)).__module__
    return module.partition(".")[0] in STORES


def make_calls(order: dict[str, Any], open_memory: Any, note: Any) -> None:
    """Opens a Memory, makes the calls, closes it. The journal gets `begun`, each call `done` with its result, and
    `closed` with the number of events and seconds.

    `patches` are constants of the library to be set first; `from_opening`: events count from before the opening.
    """
    for where, value in order["patches"].items():
        module, _, name = where.partition(":")
        setattr(importlib.import_module(module), name, value)
    killer = EventKiller(**order["kill"])
    if order["from_opening"]:
        killer.arm()
    memory = open_memory(Path(order["home"]), **order["config"])
    note(begun=[name for name, _, _ in order["calls"]])
    killer.arm()
    for name, positional, named in order["calls"]:
        note(done=name, result=getattr(memory, name)(*positional, **named))
    memory.close()
    killer.disarm()
    note(closed=True, events=killer.events, seconds=killer.seconds)
