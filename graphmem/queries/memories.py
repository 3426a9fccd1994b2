"""Reads of memories that are not searches: one by its id, and a page of those inside a view."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice

from graphmem.boundary.filters import Filter, Matcher
from graphmem.model import ListFilter, MemoryRecord, Relation, Scope, View
from graphmem.stores.ledger import Ledger, graph_reads, memories

# Relations in one page, the newest; `queries.graph` reads all.
RELATION_LIMIT = 100


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """A page of memories. `total` counts the memories on all pages; `relations` are the newest that these state."""

    records: list[MemoryRecord]
    relations: list[Relation]
    total: int


def find_memory(ledger: Ledger, memory_id: str, scope: Scope | None) -> MemoryRecord | None:
    """Returns a memory by its id, also a retired or expired one, or None if the scope has none with this id.

    Without a scope it is looked for in the whole ledger.
    """
    with ledger.read() as connection:
        record = memories.find(connection, memory_id)
    return record if record is not None and (scope is None or record.is_in(scope)) else None


def count_by_day(ledger: Ledger, view: View, utc_offset: timedelta) -> list[tuple[date, int]]:
    """Returns the numbers of memories inside a view by the day since which they are valid, the earliest first."""
    with ledger.read() as connection:
        return memories.count_by_day(connection, view, utc_offset)


def list_memories(
    ledger: Ledger, view: View, metadata_filter: Filter | None, *, start: int, limit: int, with_sources: bool
) -> MemoryPage:
    """Returns `limit` memories from position `start` of those inside a view that match the filter.

    The newest observation comes first. Source messages are left out unless `with_sources`.
    """
    with ledger.read() as connection:
        listed = memories.list_records(connection, view, with_sources=with_sources)
        matching = list(filter(Matcher(metadata_filter).matches, listed))
        if view.as_of is not None:  # facts that were updated since had other times then
            matching.sort(key=lambda record: (record.at, record.row), reverse=True)
        records = list(islice(matching, start, start + limit))
        relations = graph_reads.relations_stated_by(connection, view, [record.id for record in records])
    return MemoryPage(records, relations[:RELATION_LIMIT], len(matching))


@dataclass(frozen=True, slots=True)
class MemorySlice:
    """Part of a list of memories. `total` counts the whole list; `is_last`: no memory comes after these."""

    records: list[MemoryRecord]
    total: int
    is_last: bool


def memories_after(
    ledger: Ledger,
    view: View,
    list_filter: ListFilter,
    after: tuple[datetime, str] | None,
    *,
    limit: int,
    with_sources: bool,
) -> MemorySlice:
    """Returns up to `limit` memories of a view that match a filter, newest observation first, after a place.

    `after` is the time and the id of the memory at that place (None: from the beginning), so that changes between two
    calls move nothing from one part of the list to another. A view whose scope is empty holds the whole ledger.
    """
    with ledger.read() as connection:
        records = memories.list_page(
            connection, view, list_filter, after=after, limit=limit + 1, with_sources=with_sources
        )
        total = memories.count_records(connection, view, list_filter, with_sources=with_sources)
    return MemorySlice(records[:limit], total, len(records) <= limit)
