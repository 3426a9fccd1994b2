"""The handlers of commands about exact values, for `graphmem.commands.dispatch`: items, with the memories of their
texts, judgements of memories, and settings of the service.

An item and the memory of its text change in one transaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Row

from graphmem.commands.memories import delete_memory, update_memory
from graphmem.commands.messages import add_messages
from graphmem.commands.types import (
    ChangeSettings,
    DeleteExpiredItems,
    DeleteItem,
    DeleteItems,
    DeleteMemory,
    DeleteSettings,
    ErasureReport,
    ImportItem,
    ImportSetting,
    JudgeMemory,
    Outcome,
    OutcomeType,
    PutItem,
    RefreshItem,
    UpdateMemory,
)
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.model import Item
from graphmem.stores.ledger import items, judgements, memories, service_tables, tombstones
from graphmem.stores.ledger.service_tables import StoredSetting


def put_item(command: PutItem, uow: UnitOfWork) -> Outcome:
    """Stores a value, new or in place of the one under its key, and its text as the item's memory."""
    item = Item(
        command.scope,
        command.namespace,
        command.key,
        command.value,
        created_at=uow.now,
        updated_at=uow.now,
        ttl_minutes=command.ttl_minutes,
        expires_at=items.expiration(uow.now, command.ttl_minutes),
    )
    stored = items.find_row(uow.connection, command.scope, command.namespace, command.key)
    if stored is not None and items.is_expired(stored, uow.now):
        _delete(stored, uow)
        stored = None
    former_memory = None if stored is None else stored.memory_uid
    message, outcome = command.remember, None
    if message is not None and former_memory is None:
        outcome = add_messages([replace(message, expires_at=item.expires_at)], uow)[0]
    elif message is not None and former_memory is not None:
        text, metadata = message.message.content, message.metadata
        outcome = update_memory(UpdateMemory(former_memory, text, metadata, expires_at=item.expires_at), uow)
    memory_row = None if outcome is None or outcome.record is None else outcome.record.row
    items.put(uow.connection, stored, item, memory_row)
    if former_memory is not None and command.remember is None:
        # After the item has lost this memory: a memory that is erased takes its items along.
        delete_memory(DeleteMemory(former_memory, missing_ok=True), uow)
    remembered = None if outcome is None or outcome.event is OutcomeType.NONE else outcome.record
    return Outcome(OutcomeType.PUT_ITEM, item.key, record=remembered)


def delete_item(command: DeleteItem, uow: UnitOfWork) -> Outcome:
    """Deletes an item and, unless it is to stay, its memory."""
    stored = items.find_row(uow.connection, command.scope, command.namespace, command.key)
    if stored is None:
        return Outcome(OutcomeType.NONE, command.key, reason="not there")
    erased = _delete(stored, uow, with_memory=command.with_memory, is_erasure=command.is_erasure)
    return Outcome(OutcomeType.DELETE_ITEM, command.key, erased=erased)


def _delete(stored: Row[Any], uow: UnitOfWork, *, with_memory: bool = True, is_erasure: bool = True) -> ErasureReport:
    uow.has_erased |= is_erasure
    items.delete(uow.connection, [stored.id])
    if stored.memory_uid is None or not with_memory:
        return ErasureReport(rows=1)
    return ErasureReport(rows=1) + delete_memory(DeleteMemory(stored.memory_uid, missing_ok=True), uow).erased


def delete_items(command: DeleteItems, uow: UnitOfWork) -> Outcome:
    """Deletes the items of a scope below a namespace. Their memories stay."""
    deleted = items.delete_below(uow.connection, command.scope, command.namespace)
    uow.has_erased = uow.has_erased or deleted > 0
    return Outcome(OutcomeType.DELETE_ITEM, "", erased=ErasureReport(rows=deleted))


def delete_expired_items(command: DeleteExpiredItems, uow: UnitOfWork) -> Outcome:
    """Deletes the items whose time is over, and erases their memories."""
    expired = items.expired(uow.connection, uow.now, command.limit)
    erased = sum((_delete(stored, uow) for stored in expired), ErasureReport())
    return Outcome(OutcomeType.DELETE_ITEM if expired else OutcomeType.NONE, "", erased=erased)


def refresh_item(command: RefreshItem, uow: UnitOfWork) -> Outcome:
    """Postpones the expiration of an item and of its memory. The memory's history does not show it."""
    stored = items.find_row(uow.connection, command.scope, command.namespace, command.key)
    expires_at = None if stored is None else items.expiration(uow.now, stored.ttl_minutes)
    if stored is None or expires_at is None or items.is_expired(stored, uow.now):
        return Outcome(OutcomeType.NONE, command.key, reason="nothing to postpone")
    items.set_expiration(uow.connection, stored.id, expires_at)
    if stored.memory_uid is not None and (memory := memories.find(uow.connection, stored.memory_uid)) is not None:
        memories.update(uow.connection, replace(memory, expires_at=expires_at, seq=uow.next_seq()))
    return Outcome(OutcomeType.PUT_ITEM, command.key)


def import_item(command: ImportItem, uow: UnitOfWork) -> Outcome:
    """Stores an imported item, unless its key is taken here or its memory was erased here."""
    connection, item = uow.connection, command.item
    if items.find_row(connection, item.scope, item.namespace, item.key) is not None:
        return Outcome(OutcomeType.NONE, item.key, reason="item known")
    memory = None if item.memory_id is None else memories.find(connection, item.memory_id)
    if memory is None and item.memory_id is not None and tombstones.find_tombstone(connection, item.memory_id):
        return Outcome(OutcomeType.NONE, item.key, reason="item erased")
    # A memory of another scope would let the item be found, and erased, by the wrong user.
    is_own = memory is not None and memory.is_in(item.scope)
    if not is_own and judgements.is_judgement(item):
        return Outcome(OutcomeType.NONE, item.key, reason="the judged memory is not here")
    items.insert(connection, item, memory.row if memory is not None and is_own else None)
    return Outcome(OutcomeType.PUT_ITEM, item.key)


def judge_memory(command: JudgeMemory, uow: UnitOfWork) -> Outcome:
    """Stores a judgement as an item that goes with the memory, or deletes the one that is there."""
    connection, memory = uow.connection, uow.find(command.id)
    item = judgements.encode(command.judgement)
    stored = items.find_row(connection, item.scope, item.namespace, item.key)
    if command.judgement.verdict is None:
        if stored is None:
            return Outcome(OutcomeType.NONE, item.key, reason="not judged")
        return Outcome(OutcomeType.DELETE_ITEM, item.key, erased=_delete(stored, uow, with_memory=False))
    items.put(connection, stored, item, memory.row)
    return Outcome(OutcomeType.PUT_ITEM, item.key)


def change_settings(command: ChangeSettings, uow: UnitOfWork) -> Outcome:
    """Sets and removes settings, with the time and the key of the change."""
    for name, value in command.values.items():
        service_tables.put_setting(
            uow.connection, command.user_id, StoredSetting(name, value, uow.now, command.changed_by)
        )
    return Outcome(OutcomeType.CHANGE_SETTINGS, command.user_id or "")


def delete_settings(command: DeleteSettings, uow: UnitOfWork) -> Outcome:
    """Deletes the settings of a user, and the record of their changes. A tombstone keeps an import from undoing it."""
    deleted = service_tables.delete_settings(uow.connection, command.user_id)
    if deleted:
        uow.has_erased = True
        tombstones.add_settings_tombstone(uow.connection, command.user_id, uow.now, uow.next_seq())
    return Outcome(OutcomeType.CHANGE_SETTINGS, command.user_id, erased=ErasureReport(rows=deleted))


def import_setting(command: ImportSetting, uow: UnitOfWork) -> Outcome:
    """Stores an imported setting, unless it is known here or was erased with all settings of its user."""
    connection, user_id, setting = uow.connection, command.user_id, command.setting
    name = user_id or ""
    if any(stored.name == setting.name for stored in service_tables.settings_of_user(connection, user_id)):
        return Outcome(OutcomeType.NONE, name, reason="setting known")
    erased_at = None if user_id is None else tombstones.settings_erased_at(connection, user_id)
    if erased_at is not None and setting.at <= erased_at and not command.restore:
        return Outcome(OutcomeType.NONE, name, reason="setting erased")
    service_tables.put_setting(connection, user_id, setting)
    return Outcome(OutcomeType.CHANGE_SETTINGS, name)
