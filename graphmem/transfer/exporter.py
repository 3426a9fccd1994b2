"""Exports a scope's memories, tombstones, aliases, entity names, cycles and items as records, from one snapshot.

An export without a scope has the settings of the service, its keys, without secrets, and since when the lifecycle is
enabled, as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from sqlalchemy import Connection

from graphmem.model import Scope
from graphmem.stores.ledger import Ledger, export_queries, items, service_tables, vitals
from graphmem.stores.ledger.ledger_state import recorded_embedder
from graphmem.stores.projection import Progress
from graphmem.transfer import serialization
from graphmem.transfer.records import Record


def export_records(
    ledger: Ledger, scope: Scope | None, write: Callable[[Record], object], progress: Progress | None
) -> None:
    """Passes the records of a scope (None: of all scopes) to `write`, in an order in which they can be imported.

    A memory follows those with which it is linked; aliases and chosen names follow the memories that mention their
    entities, cycles those of their partitions, items those of their texts. Calls `progress("export", memories written,
    memories in all)` after each page.
    """
    with ledger.read() as connection:  # all reads inside it see one snapshot
        embedder = recorded_embedder(connection)
        model = None if embedder is None else embedder.model
        total, done = export_queries.count(connection, scope), 0
        write(serialization.header(ledger.digests, model, scope, datetime.now(UTC)))
        since = vitals.lifecycle_since(connection)
        if scope is None and since is not None:
            write(serialization.lifecycle(since))
        for page in export_queries.memory_pages(connection, scope, model):
            for exported_memory in page:
                write(serialization.memory(exported_memory, ledger.digests, model, ledger.blobs))
            done += len(page)
            if progress is not None:
                progress("export", done, total)
        for record in _records_after_memories(connection, scope):
            write(record)


def _records_after_memories(connection: Connection, scope: Scope | None) -> Iterator[Record]:
    """Yields all further records of a scope; of all scopes also the settings of all users, and the keys."""
    for tombstones in export_queries.tombstone_pages(connection, scope):
        yield from map(serialization.tombstone, tombstones)
    yield from map(serialization.entity_name, export_queries.list_entity_names(connection, scope))
    for partition, last in export_queries.last_cycles(connection, scope):
        yield serialization.cycle(partition, last)
    yield from map(serialization.item, items.all_items(connection, scope))
    if scope is None:
        for user_id, setting in service_tables.all_settings(connection):
            yield serialization.setting(user_id, setting)
        yield from map(serialization.key, service_tables.list_keys(connection))
