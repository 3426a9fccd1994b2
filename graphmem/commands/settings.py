"""The handlers of settings commands, for `graphmem.commands.unit_of_work`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem.commands.types import ChangeSettings, DeleteSettings, ErasureReport, Outcome, OutcomeType
from graphmem.stores.ledger import settings
from graphmem.stores.ledger.settings import StoredSetting

if TYPE_CHECKING:
    from graphmem.commands.unit_of_work import UnitOfWork


def change_settings(command: ChangeSettings, uow: UnitOfWork) -> Outcome:
    """Sets and removes settings, with the time and the key of the change."""
    for name, value in command.values.items():
        settings.put(uow.connection, command.user_id, StoredSetting(name, value, uow.now, command.changed_by))
    return Outcome(OutcomeType.CHANGE_SETTINGS, command.user_id or "")


def delete_settings(command: DeleteSettings, uow: UnitOfWork) -> Outcome:
    """Deletes the settings of a user, and the record of their changes."""
    deleted = settings.delete(uow.connection, command.user_id)
    uow.has_erased = uow.has_erased or deleted > 0
    return Outcome(OutcomeType.CHANGE_SETTINGS, command.user_id, erased=ErasureReport(rows=deleted))
