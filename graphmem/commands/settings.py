"""The handlers of settings commands, for `graphmem.commands.dispatch`."""

from __future__ import annotations

from graphmem.commands.types import (
    ChangeSettings,
    DeleteSettings,
    ErasureReport,
    ImportSetting,
    Outcome,
    OutcomeType,
)
from graphmem.commands.unit_of_work import UnitOfWork
from graphmem.stores.ledger import service_tables, tombstones
from graphmem.stores.ledger.service_tables import StoredSetting


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
