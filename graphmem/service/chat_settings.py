"""Settings of recalling and saving that change while the service runs.

They are rows of the ledger that are read at each request, so a change is in force at the next one, in every process.
What a request says comes before the user's settings, these before those of all users, those before the configuration.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from graphmem.boundary import validation
from graphmem.chat import MAX_ROUNDS
from graphmem.commands.types import ChangeSettings
from graphmem.errors import ValidationError
from graphmem.memory import Memory
from graphmem.service import limits
from graphmem.service.schemas import Body
from graphmem.settings.schema import ProxySettings
from graphmem.stores.ledger import service_tables
from graphmem.stores.ledger.service_tables import StoredSetting

logger = logging.getLogger("graphmem")


def _checked_prompt(value: str) -> str:
    try:
        return validation.content(value, "rewrite_prompt")
    except ValidationError:
        raise PydanticCustomError("unusable_text", "should have a word, and no character that no store keeps") from None


Prompt = Annotated[str, Field(max_length=limits.MAX_PROMPT_CHARS), AfterValidator(_checked_prompt)]
"""Instructions to the language model that rewrites a question."""
TopK = Annotated[int, Field(ge=1, le=validation.MAX_TOP_K)]
MaxChars = Annotated[int, Field(ge=1, le=limits.MAX_CONTEXT_CHARS)]
Rounds = Annotated[int, Field(ge=1, le=MAX_ROUNDS)]
# The greatest values of numbers, and the most characters of texts; the least are 1.
MAXIMA = {
    "top_k": validation.MAX_TOP_K,
    "max_chars": limits.MAX_CONTEXT_CHARS,
    "rounds": MAX_ROUNDS,
    "rewrite_prompt": limits.MAX_PROMPT_CHARS,
}
Inject = Literal["system", "user"]


class ChatSettings(BaseModel):
    """Settings in force, with their defaults. Values are checked here too: an import stores what another ledger has.

    `rewrite`: a language model may rewrite a question that finds too little, by the instructions `rewrite_prompt`
    (null: the built-in ones). `recall`, `save`: whether memories are recalled, and chats stored. `top_k`, `max_chars`:
    the most memories and characters of a block; `inject`: the message of a prompt to which a proxy adds it. `rounds`:
    how many of the last rounds of a chat are stored.
    """

    model_config = ConfigDict(frozen=True)

    rewrite: bool = True
    rewrite_prompt: Prompt | None = None
    recall: bool = True
    save: bool = True
    top_k: TopK = 5
    max_chars: MaxChars = 1200
    inject: Inject = "system"
    rounds: Rounds = 2


def configured_settings(proxy: ProxySettings) -> ChatSettings:
    """Returns the settings that the configuration has; the others have their defaults."""
    return ChatSettings(
        **{name: value for name, value in proxy.model_dump().items() if name in ChatSettings.model_fields}
    )


class SettingsChange(Body):
    """Settings to be set; null removes one, and those that are left out stay."""

    rewrite: bool | None = None
    rewrite_prompt: Prompt | None = None
    recall: bool | None = None
    save: bool | None = None
    top_k: TopK | None = None
    max_chars: MaxChars | None = None
    inject: Inject | None = None
    rounds: Rounds | None = None


@dataclass(frozen=True, slots=True)
class SettingsView:
    """The settings in force for a user (None: for all users), and the changes made for this user, or for all.

    `inherited`: the settings that would be in force without these changes; those of `shared` (names) are set for all
    users, the others in the configuration.
    """

    in_force: ChatSettings
    changes: list[StoredSetting]
    inherited: ChatSettings
    shared: frozenset[str]


def change_settings(memory: Memory, user_id: str | None, change: SettingsChange, changed_by: str) -> None:
    """Sets or removes settings of a user, or (None) of all users. `changed_by` is the id of the caller's key.

    Raises ValidationError for an unusable user, StoreError.
    """
    memory.engine.check_open()
    values = change.model_dump(include=change.model_fields_set)
    memory.engine.commit([ChangeSettings(_checked_user(user_id), values, changed_by)])


def view_settings(memory: Memory, user_id: str | None, defaults: ChatSettings) -> SettingsView:
    """Returns the settings of a user, or (None) of all users; `defaults` are those of the configuration.

    Raises as `change_settings` does.
    """
    memory.engine.check_open()
    user = _checked_user(user_id)
    with memory.engine.ledger.read() as connection:
        changes_of_all = service_tables.settings_of_user(connection, None)
        if user is None:
            return SettingsView(_changed(defaults, changes_of_all), changes_of_all, defaults, frozenset())
        changes = service_tables.settings_of_user(connection, user)
    inherited = _changed(defaults, changes_of_all)
    shared = frozenset(change.name for change in changes_of_all if change.value is not None)
    return SettingsView(_changed(inherited, changes), changes, inherited, shared)


def _changed(inherited: ChatSettings, changes: list[StoredSetting]) -> ChatSettings:
    """Returns the settings with the changes that have usable values. A newer version may have stored other ones."""
    names = ChatSettings.model_fields
    stored = {change.name: change.value for change in changes if change.value is not None and change.name in names}
    values = inherited.model_dump()
    try:
        return ChatSettings.model_validate(values | stored)
    except pydantic.ValidationError as error:
        logger.warning("%d stored settings have unusable values and are left out", error.error_count())
        unusable = {one["loc"][0] for one in error.errors()}
        return ChatSettings.model_validate(
            values | {name: value for name, value in stored.items() if name not in unusable}
        )


def settings_in_force(memory: Memory, user_id: str | None, defaults: ChatSettings, **of_request: Any) -> ChatSettings:
    """Returns the settings for a request of a user (None: of no user); values that it does not give are None.

    `defaults` are those of the configuration. Raises as `change_settings` does.
    """
    given = {name: value for name, value in of_request.items() if value is not None}
    return view_settings(memory, user_id, defaults).in_force.model_copy(update=given)


def _checked_user(user_id: str | None) -> str | None:
    return None if user_id is None else validation.identifier(user_id, "user_id")
