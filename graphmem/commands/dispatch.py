"""Carries out a change set in one transaction. All writes of memories go through `commit`.

A handler for each command type (`messages`, `memories`, `lifecycle`, `facts`, `imports`, `entities`, `items`) writes
rows, events, sequence numbers and jobs on the connection of a `UnitOfWork`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import singledispatch
from itertools import groupby
from typing import Any

from graphmem.commands import entities
from graphmem.commands.entities import execute_entity_command
from graphmem.commands.facts import (
    add_fact,
    complete_job,
    end_session,
    enqueue_extraction,
    put_off_session_ends,
    reaffirm_fact,
)
from graphmem.commands.imports import (
    count_lacking_key,
    import_alias,
    import_cycle,
    import_entity_name,
    import_lifecycle,
    import_memories,
    import_tombstone,
)
from graphmem.commands.items import (
    change_settings,
    delete_expired_items,
    delete_item,
    delete_items,
    delete_settings,
    import_item,
    import_setting,
    judge_memory,
    put_item,
    refresh_item,
)
from graphmem.commands.lifecycle import (
    compose_memory,
    forget_memory,
    merge_memory,
    move_memory,
    pin_memory,
    remember_memory,
)
from graphmem.commands.memories import (
    delete_memory,
    reindex_memory,
    restore_memory,
    retire_memory,
    store_enrichments,
    undo_event,
    update_memory,
)
from graphmem.commands.messages import add_messages, drop_held_messages, hold_message
from graphmem.commands.types import (
    AddAlias,
    AddFact,
    AddMessage,
    ChangeSet,
    ChangeSettings,
    Command,
    CompleteJob,
    ComposeMemory,
    CountLackingKey,
    DeleteExpiredItems,
    DeleteItem,
    DeleteItems,
    DeleteMemory,
    DeleteSettings,
    DropHeldMessages,
    EndSession,
    EnqueueExtraction,
    ForgetMemory,
    HoldMessage,
    ImportAlias,
    ImportCycle,
    ImportEntityName,
    ImportItem,
    ImportLifecycle,
    ImportMemory,
    ImportSetting,
    ImportTombstone,
    JudgeMemory,
    MergeMemory,
    MoveMemory,
    Outcome,
    PinMemory,
    PutItem,
    ReaffirmFact,
    RefreshItem,
    ReindexMemory,
    RememberMemory,
    RemoveAlias,
    RenameEntity,
    RestoreMemory,
    RetireMemory,
    StoreEnrichment,
    UndoEvent,
    UpdateMemory,
)
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.observers import Observers
from graphmem.stores.blobs import erase_unused
from graphmem.stores.ledger import Ledger, jobs, ledger_state, memories

_OF_SCOPE = (
    AddMessage, EnqueueExtraction, ReaffirmFact, PutItem, DeleteItem, RefreshItem, AddAlias, RemoveAlias, RenameEntity
)  # fmt: skip
_OF_MEMORY = (
    StoreEnrichment, UpdateMemory, RetireMemory, RestoreMemory, ForgetMemory, MergeMemory, RememberMemory, MoveMemory,
    PinMemory, DeleteMemory, JudgeMemory,
)  # fmt: skip


def commit(
    ledger: Ledger, change_set: ChangeSet, session_gap: timedelta, observers: Observers | None = None
) -> list[Outcome]:
    """Carries out all commands of a change set, or none, and then tells the observers.

    `session_gap` is the longest pause between two messages of one session. Returns one outcome for each command, in
    order. Raises NotFoundError for an unknown id (or one outside `change_set.visible_scope`), ValidationError for a
    message id that is stored with other content, EmbedderChanged for new messages where the ledger's vectors are of
    another embedder than `change_set.embedding`, DecisionConflict and JobAlreadyDone for a job, StoreUnavailable.
    """
    is_derived = all(isinstance(command, StoreEnrichment) for command in change_set.commands)
    places = partitions_of(ledger, change_set)
    with ledger.write_derived(places) if is_derived else ledger.write(places) as connection:
        uow = UnitOfWork(connection, ledger, change_set, session_gap)
        outcomes = execute_all(change_set.commands, uow)
        if uow.ends_sessions:
            put_off_session_ends(uow)
        for partition in uow.partitions_with_stale_names:
            entities.delete_unmentioned_names(connection, partition)
        if uow.has_erased:
            ledger_state.count_erasure(connection)
    if uow.has_erased:
        ledger.columns.clear()
    erase_unused(ledger, uow.erased_data)
    if observers is not None:
        observers.committed(change_set.commands, outcomes, uow.events)
    return outcomes


def execute_all(commands: Sequence[Command], uow: UnitOfWork) -> list[Outcome]:
    """Carries out commands in order and returns the outcome of each."""
    outcomes: list[Outcome] = []
    for kind, run in groupby(commands, type):
        if kind in RUN_HANDLERS:
            outcomes += RUN_HANDLERS[kind](list(run), uow)
        else:
            outcomes += [execute(command, uow) for command in run]
    return outcomes


@singledispatch
def execute(command: Command, uow: UnitOfWork) -> Outcome:
    """Carries out one command with the handler of its type."""
    raise NotImplementedError(type(command).__name__)


execute.register(HoldMessage, hold_message)
execute.register(DropHeldMessages, drop_held_messages)
execute.register(ReindexMemory, reindex_memory)
execute.register(UpdateMemory, update_memory)
execute.register(RetireMemory, retire_memory)
execute.register(RestoreMemory, restore_memory)
execute.register(ForgetMemory, forget_memory)
execute.register(MergeMemory, merge_memory)
execute.register(ComposeMemory, compose_memory)
execute.register(RememberMemory, remember_memory)
execute.register(MoveMemory, move_memory)
execute.register(PinMemory, pin_memory)
execute.register(UndoEvent, undo_event)
execute.register(DeleteMemory, delete_memory)
execute.register(EnqueueExtraction, enqueue_extraction)
execute.register(EndSession, end_session)
execute.register(CompleteJob, complete_job)
execute.register(AddFact, add_fact)
execute.register(ReaffirmFact, reaffirm_fact)
execute.register(ImportTombstone, import_tombstone)
execute.register(ImportAlias, import_alias)
execute.register(ImportEntityName, import_entity_name)
execute.register(ImportLifecycle, import_lifecycle)
execute.register(ImportCycle, import_cycle)
execute.register(ImportItem, import_item)
execute.register(ImportSetting, import_setting)
execute.register(CountLackingKey, count_lacking_key)
execute.register(PutItem, put_item)
execute.register(DeleteItem, delete_item)
execute.register(DeleteItems, delete_items)
execute.register(DeleteExpiredItems, delete_expired_items)
execute.register(RefreshItem, refresh_item)
execute.register(JudgeMemory, judge_memory)
execute.register(ChangeSettings, change_settings)
execute.register(DeleteSettings, delete_settings)
execute.register(AddAlias, execute_entity_command)
execute.register(RemoveAlias, execute_entity_command)
execute.register(RenameEntity, execute_entity_command)
# Handlers that carry out consecutive commands of a type together: each of their statements is for all of these.
RUN_HANDLERS: Mapping[type[Command], Callable[[list[Any], UnitOfWork], list[Outcome]]] = {
    AddMessage: add_messages,
    ImportMemory: import_memories,
    StoreEnrichment: store_enrichments,
}


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
