"""Giving out what a scope holds as records, from one snapshot, a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from graphmem.model import Scope
from graphmem.stores.ledger import Ledger, export_queries
from graphmem.stores.projection import Progress
from graphmem.transfer import serialization
from graphmem.wiring import recorded_embedder


def export_records(
    ledger: Ledger, scope: Scope | None, put: Callable[[serialization.Record], object], progress: Progress | None
) -> None:
    """Puts the records of a scope, or of everything, in the order in which they can be taken.

    A memory comes after those it is linked with, and what is said of names after the memories that mention them.
    `progress` hears ("export", memories done, of) after each page.
    """
    with ledger.read() as connection:  # reads inside it see the same snapshot
        model = recorded_embedder(ledger)
        total, done = export_queries.count(connection, scope), 0
        put(serialization.header(ledger.digests, model, scope, datetime.now(UTC)))
        for page in export_queries.memory_pages(connection, scope, model):
            for one in page:
                put(serialization.memory(one, ledger.digests, model))
            done += len(page)
            if progress is not None:
                progress("export", done, total)
        for buried in export_queries.tombstone_pages(connection, scope):
            for gone in buried:
                put(serialization.tombstone(gone))
        for said in export_queries.entity_names(connection, scope):
            put(serialization.entity_name(said))
