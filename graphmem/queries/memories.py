"""Reads of memories that are not searches: one by its id, and a page of those inside a view."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from graphmem.boundary.filters import Filter, fields_of
from graphmem.model import MemoryRecord, Relation, Scope, View
from graphmem.stores.ledger import Ledger, graph_reads, memories

# Relations in one page, the newest; `queries.graph` reads all.
RELATION_LIMIT = 100


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """A page of memories. `total` counts the memories on all pages; `relations` are the view's newest."""

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


def list_memories(
    ledger: Ledger, view: View, metadata_filter: Filter | None, *, start: int, limit: int, with_sources: bool
) -> MemoryPage:
    """Returns `limit` memories from position `start` of those inside a view that match the filter.

    The newest observation comes first. Source messages are left out unless `with_sources`.
    """
    with ledger.read() as connection:
        matching = [
            record
            for record in memories.list_records(connection, view, with_sources=with_sources)
            if metadata_filter is None or metadata_filter.matches(fields_of(record))
        ]
        relations = graph_reads.relations_in(connection, view, RELATION_LIMIT)
    return MemoryPage(list(islice(matching, start, start + limit)), relations, len(matching))
