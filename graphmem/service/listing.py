"""Lists memories a page at a time, and limits other answers that have memories, for REST and for MCP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from graphmem import responses
from graphmem.answer_size import answer_limit
from graphmem.boundary import validation
from graphmem.memory import Memory
from graphmem.model import LISTED_KINDS, ListFilter, Scope, View
from graphmem.queries.memories import memories_after
from graphmem.service import limits
from graphmem.types import MemoryDict


def within_answer(argument: str, remedy: str) -> AbstractContextManager[None]:
    """Makes calls in this context raise ValidationError once an answer takes more than `limits.MAX_PAGE_BYTES`."""
    refusal = f"{argument}: what was found takes more than {limits.MAX_PAGE_BYTES:,} bytes; {remedy}"
    return answer_limit(limits.MAX_PAGE_BYTES, refusal)


@dataclass(frozen=True, slots=True)
class Listing:
    """Part of a list of memories, with the numbers of a `MemorySlice`."""

    results: list[MemoryDict]
    total: int
    retired: int
    is_last: bool


def list_memories(
    memory: Memory,
    ids: Mapping[str, Any],
    after: tuple[datetime, str] | None,
    *,
    limit: int,
    kinds: str | Sequence[str] | None = None,
    as_of: str | float | None = None,
    show_expired: bool = False,
    show_retired: bool = False,
    retired_only: bool = False,
    show_forgotten: bool = False,
    q: str | None = None,
    mentions_type: str | None = None,
    since: str | float | None = None,
    until: str | float | None = None,
) -> Listing:
    """Returns up to `limit` memories of a scope, newest first, after the memory with this time and id.

    They take about `limits.MAX_PAGE_BYTES` in an answer at most, or are one alone.

    The list is that of `Memory.get_all`, and of the whole ledger where `ids` names nothing. `mentions_type`, `since`,
    `until`, `retired_only`, which implies `show_retired`, and the words of `q` are the conditions of a `ListFilter`.
    Raises ValidationError.
    """
    engine = memory.engine
    engine.check_open()
    scope, zone = validation.scope(**ids)[0], memory.limits.timezone
    view = View(
        scope=scope or Scope(),
        now=datetime.now(UTC),
        partition=None if scope is None else scope.read_partition,
        kinds=validation.kinds(kinds) or LISTED_KINDS,
        as_of=None if as_of is None else validation.moment(as_of, "as_of", zone),
        show_expired=show_expired,
        show_retired=show_retired or retired_only,
        show_forgotten=show_forgotten,
    )
    list_filter = ListFilter(
        mentions_type=None if mentions_type is None else validation.entity_type(mentions_type, "mentions_type"),
        since=None if since is None else validation.moment(since, "since", zone),
        until=None if until is None else validation.moment(until, "until", zone),
        words=() if q is None else tuple(dict.fromkeys(validation.query(q, "q", limits.MAX_WORDS_CHARS).split())),
        retired_only=retired_only,
    )
    found = memories_after(
        engine.ledger,
        view,
        list_filter,
        after,
        limit=limit,
        max_bytes=limits.MAX_PAGE_BYTES,
        with_sources=kinds is not None,
    )
    return Listing([responses.memory(record) for record in found.records], found.total, found.retired, found.is_last)
