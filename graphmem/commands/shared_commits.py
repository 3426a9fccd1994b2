"""Commits change sets. Those that only add messages share one transaction, and its sync, with all that wait for theirs.

A transaction costs a wait for the disk, whatever it writes. So of several threads that add messages to a file at the
same time one commits for all ("group commit": DeWitt and others, "Implementation techniques for main memory database
systems", 1984). A server syncs several commits together itself, and has writers of different partitions beside each
other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain, islice
from threading import Lock, current_thread, main_thread

from graphmem.commands.dispatch import commit
from graphmem.commands.types import AddMessage, ChangeSet, Outcome
from graphmem.errors import StoreLocked
from graphmem.observers import Observers
from graphmem.stores.ledger import Ledger

# Messages of a transaction that several callers share: whoever comes next waits for it.
MOST_SHARED = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A change set whose caller waits for its outcomes."""

    change_set: ChangeSet
    outcomes: Future[list[Outcome]] = field(default_factory=Future)


class SharedCommits:
    """Commits the change sets of all threads; `session_gap` and `observers` as in `dispatch.commit`."""

    def __init__(self, ledger: Ledger, session_gap: timedelta, observers: Observers) -> None:
        self._ledger = ledger
        self._session_gap = session_gap
        self._observers = observers
        self._waiting: deque[_Waiting] = deque()
        self._turn = Lock()

    def commit(self, change_set: ChangeSet) -> list[Outcome]:
        """Commits a change set, or nothing of it, as `dispatch.commit` does, which says what it returns and raises.

        What another caller's change set is refused for concerns no other one.
        """
        if not self._can_share(change_set):
            return self._commit(change_set)
        own = _Waiting(change_set)
        self._waiting.append(own)
        with self._turn:
            if not own.outcomes.done():
                # What else is being written ends first; who comes meanwhile takes part.
                with self._ledger.turn_to_write():
                    self._commit_together(self._take(own))
        return own.outcomes.result()

    def _can_share(self, change_set: ChangeSet) -> bool:
        """Returns whether a change set means the same beside others: it reads nothing but what its own messages need.

        In a main thread a signal handler may raise an error between the commit and the outcomes of the others.
        """
        return (
            not self._ledger.on_server
            and current_thread() is not main_thread()
            and change_set.visible_scope is None
            and 0 < len(change_set.commands) <= MOST_SHARED
            and all(isinstance(one, AddMessage) and one.repeat_window is None for one in change_set.commands)
        )

    def _take(self, own: _Waiting) -> list[_Waiting]:
        """Removes and returns what is to be committed now: `own`, and the oldest of the others that have room."""
        taken, messages = [own], len(own.change_set.commands)
        self._waiting.remove(own)
        while self._waiting:
            messages += len(self._waiting[0].change_set.commands)
            if messages > MOST_SHARED:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _commit_together(self, waiting: Sequence[_Waiting]) -> None:
        """Commits change sets in one transaction or, if that is refused, each in its own."""
        try:
            outcomes = iter(self._commit(_merged([one.change_set for one in waiting])))
        except BaseException as error:  # noqa: BLE001  (whoever waits gets it: nobody else would settle these)
            is_of_all = isinstance(error, StoreLocked)  # each would wait for the lock as long again
            for one in waiting:
                if len(waiting) == 1 or is_of_all:
                    one.outcomes.set_exception(error)
                else:
                    self._commit_together([one])
        else:
            for one in waiting:
                one.outcomes.set_result(list(islice(outcomes, len(one.change_set.commands))))

    def _commit(self, change_set: ChangeSet) -> list[Outcome]:
        return commit(self._ledger, change_set, self._session_gap, self._observers)


def _merged(change_sets: Sequence[ChangeSet]) -> ChangeSet:
    """Returns one change set with the commands of several, at the time of the latest."""
    return replace(
        change_sets[0],
        commands=tuple(chain.from_iterable(one.commands for one in change_sets)),
        now=max(one.now for one in change_sets),
        ends_sessions=any(one.ends_sessions for one in change_sets),
    )
