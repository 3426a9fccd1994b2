"""Lists memories a page at a time, and limits other answers that have memories, for REST and for MCP.

A cursor tells where the next page of a result begins. It is opaque, and bound to the arguments of the call.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn
from zlib import crc32

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


def cursor_at(place: object, arguments: Mapping[str, Any]) -> str:
    """Returns the opaque cursor of a place (JSON) in the result for these arguments."""
    return base64.urlsafe_b64encode(json.dumps([place, _checksum(arguments)]).encode()).decode()


def place_of(cursor: str, arguments: Mapping[str, Any]) -> Any:
    """Returns the place of a cursor. Raises ValidationError for one of another call."""
    try:
        place, checksum = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, RecursionError):
        refuse_cursor(cursor)
    if checksum != _checksum(arguments):
        refuse_cursor(cursor)
    return place


def offset_at(cursor: str, arguments: Mapping[str, Any]) -> int:
    """Returns the offset that a cursor stands for, 0 for "". Raises ValidationError for a cursor of another call."""
    if not cursor:
        return 0
    place = place_of(cursor, arguments)
    if type(place) is not int or place < 0:
        refuse_cursor(cursor)
    return place


def cursor_after(memory: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Returns the cursor of the place after a memory in a list of memories."""
    return cursor_at([memory["at"], memory["id"]], arguments)


def place_after(cursor: str, arguments: Mapping[str, Any]) -> tuple[datetime, str] | None:
    """Returns the time and the id of the memory that a cursor of `cursor_after` names, None for "".

    Raises ValidationError for another cursor.
    """
    if not cursor:
        return None
    place = place_of(cursor, arguments)
    if not (isinstance(place, list) and len(place) == 2 and all(isinstance(part, str) for part in place)):  # noqa: PLR2004
        refuse_cursor(cursor)
    try:
        return datetime.fromisoformat(place[0]).astimezone(UTC), validation.memory_id(place[1])
    except (ValueError, OverflowError):
        refuse_cursor(cursor)


def refuse_cursor(cursor: str) -> NoReturn:
    """Raises ValidationError for a cursor that the call did not return."""
    validation.refuse("cursor", cursor, "is no next_cursor of this call; leave it out to begin again")


def _checksum(arguments: Mapping[str, Any]) -> int:
    return crc32(json.dumps(arguments, sort_keys=True).encode())
