"""Working memory in this process."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from time import monotonic
from typing import NamedTuple

from graphmem.model import SaidMessage, Scope
from graphmem.recent import Recent

# The most lists; the least recently used leave first.
MAX_LISTS = 1_000


class _List(NamedTuple):
    deadline: float
    messages: tuple[SaidMessage, ...]


class ProcessWorkingMemory:
    """The lists of one process; see `WorkingMemory`. One that nothing is added to for `seconds` leaves."""

    is_away = False

    def __init__(self, seconds: float, most: int) -> None:
        self.most = most
        self._seconds = seconds
        self._lock = Lock()
        self._lists: Recent[Scope, _List] = Recent(MAX_LISTS)

    def recent(self, scope: Scope) -> list[SaidMessage] | None:
        """Returns the list of a scope, None if there is none."""
        with self._lock:
            found = self._unexpired(scope)
            if found is None:
                return None
            self._lists[scope] = found  # used last
            return list(found.messages)

    def push(self, scope: Scope, messages: Sequence[SaidMessage]) -> None:
        """Adds messages to a scope's list, if there is one."""
        with self._lock:
            if (found := self._unexpired(scope)) is not None:
                self._set(scope, (*found.messages, *messages))

    def replace(self, scope: Scope, messages: Sequence[SaidMessage]) -> None:
        """Begins a scope's list anew."""
        with self._lock:
            self._set(scope, tuple(messages))

    def clear(self, scope: Scope) -> None:
        """Drops the list of a scope."""
        with self._lock:
            self._lists.pop(scope, None)

    def drop(self, partition: str) -> None:
        """Drops the lists of a partition."""
        with self._lock:
            for scope in [one for one in self._lists if one.partition == partition]:
                del self._lists[scope]

    def drop_all(self) -> None:
        """Drops all lists."""
        with self._lock:
            self._lists.clear()

    def close(self) -> None:
        """Drops all lists."""
        self.drop_all()

    def _set(self, scope: Scope, messages: tuple[SaidMessage, ...]) -> None:
        self._lists[scope] = _List(monotonic() + self._seconds, messages[-self.most :])

    def _unexpired(self, scope: Scope) -> _List | None:
        """Returns the list of a scope. Those that were used longest ago leave if their time is over."""
        now = monotonic()
        while self._lists and next(iter(self._lists.values())).deadline <= now:
            self._lists.popitem(last=False)
        found = self._lists.get(scope)
        return None if found is None or found.deadline <= now else found
