"""Working memory: bounded copies of what was said last under each scope, beside the ledger, which stays the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphmem.model import SaidMessage, Scope

# A round is a user's message with its answers. Calls of tools make it longer, so twice two messages are kept of each.
MESSAGES_PER_ROUND = 4


class WorkingMemory(Protocol):
    """Keeps a list of the last messages of each scope for a while. Safe to use from several threads; raises nothing.

    It may lose any list at any time. Whether a list is complete and up to date is for its reader to check, against
    the ledger (`graphmem.working`).
    """

    @property
    def most(self) -> int:
        """The most messages of a list; the oldest leave first."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether its server did not answer when it was last asked."""
        ...

    def recent(self, scope: Scope) -> list[SaidMessage] | None:
        """Returns the list of exactly this scope, in the order of the calls of `push`; None if there is none."""
        ...

    def push(self, scope: Scope, messages: Sequence[SaidMessage]) -> None:
        """Adds new messages to a scope's list, if there is one: `replace` begins it."""
        ...

    def replace(self, scope: Scope, messages: Sequence[SaidMessage]) -> None:
        """Begins a scope's list anew, with all messages that it is to have."""
        ...

    def clear(self, scope: Scope) -> None:
        """Drops the list of a scope."""
        ...

    def drop(self, partition: str) -> None:
        """Drops the lists of all scopes of a partition."""
        ...

    def drop_all(self) -> None:
        """Drops all lists of this ledger."""
        ...

    def close(self) -> None:
        """Closes connections. Lists on a server stay, until their time is over."""
        ...
