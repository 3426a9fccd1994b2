"""Tells in which partitions a change set writes: on a server it waits only for those that write there too."""

from __future__ import annotations

from collections.abc import Iterable

from graphmem.commands.types import (
    AddAlias,
    AddFact,
    AddMessage,
    ChangeSet,
    CompleteJob,
    ComposeMemory,
    DeleteItem,
    DeleteMemory,
    EndSession,
    EnqueueExtraction,
    ForgetMemory,
    HoldMessage,
    MergeMemory,
    MoveMemory,
    PinMemory,
    PutItem,
    ReaffirmFact,
    RefreshItem,
    RememberMemory,
    RemoveAlias,
    RenameEntity,
    RestoreMemory,
    RetireMemory,
    StoreEnrichment,
    UpdateMemory,
)
from graphmem.stores.ledger import Ledger, jobs, memories

_OF_SCOPE = (
    AddMessage, EnqueueExtraction, ReaffirmFact, PutItem, DeleteItem, RefreshItem, AddAlias, RemoveAlias, RenameEntity
)  # fmt: skip
_OF_MEMORY = (
    StoreEnrichment, UpdateMemory, RetireMemory, RestoreMemory, ForgetMemory, MergeMemory, RememberMemory, MoveMemory,
    PinMemory, DeleteMemory,
)  # fmt: skip


def partitions_of(ledger: Ledger, change_set: ChangeSet) -> set[str] | None:
    """Returns the keys of the partitions in which a change set writes.

    None: it is to write alone, since its commands may write elsewhere, or name a memory or job that is not there. So it
    is in a file, which has one writer at a time anyway.
    """
    if not ledger.on_server:
        return None
    if change_set.partitions is not None:
        return set(change_set.partitions)
    keys: set[str] = set()
    ids: set[str] = set()
    rows: set[int] = set()
    for command in change_set.commands:
        if isinstance(command, _OF_SCOPE):
            keys.add(command.scope.partition)
        elif isinstance(command, _OF_MEMORY):
            ids.add(command.id)
        elif isinstance(command, HoldMessage):
            keys.add(command.message.scope.partition)
        elif isinstance(command, AddFact | ComposeMemory):
            keys.add(command.record.partition)
        elif isinstance(command, CompleteJob):
            keys.add(command.job.partition)
        elif isinstance(command, EndSession):
            rows.add(command.job)
        else:
            return None
    return keys if not (ids or rows) else _with_found(ledger, keys, ids, rows)


def _with_found(ledger: Ledger, keys: set[str], ids: Iterable[str], rows: Iterable[int]) -> set[str] | None:
    """Returns keys and those of the partitions of memories (ids) and jobs (rows); None if one of these is not there.

    A memory or a job never changes its partition.
    """
    with ledger.read() as connection:
        found = [*memories.partition_keys(connection, ids).values(), *jobs.partition_keys(connection, rows).values()]
    return keys.union(found) if len(found) == len([*ids, *rows]) else None
