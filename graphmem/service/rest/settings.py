"""Routes for the settings that change while the service runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from graphmem import prompts
from graphmem.model import iso
from graphmem.retrieval.fallback import REWRITE
from graphmem.service import problems
from graphmem.service.auth import Caller
from graphmem.service.chat_settings import (
    MAXIMA,
    ChatSettings,
    SettingsChange,
    SettingsView,
    change_settings,
    view_settings,
)
from graphmem.service.problems import Problem
from graphmem.service.rest.dependencies import CallerParam, JsonRoute, Service, ServiceParam

router = APIRouter(route_class=JsonRoute, tags=["settings"], responses=problems.documented())


class SettingsOf(BaseModel):
    """Whose settings: those of `user_id`. An admin that names no user means those of all users."""

    model_config = ConfigDict(extra="forbid")

    user_id: str | None = None


class OwnSetting(BaseModel):
    """A setting that was set for this user, or for all users; null: it was removed. `changed_by` is the id of a key."""

    value: Any
    changed_at: str
    changed_by: str


class InheritedSetting(BaseModel):
    """The value of a setting that is not set for this user (or for all users), and where it is from."""

    value: Any
    source: Literal["all_users", "configuration"]


class SettingsAnswer(BaseModel):
    """The settings in force, and those that were set or removed for this user (null: for all users).

    `inherited` has each setting as it is when it is not set here. `maxima` has the greatest numbers and the most
    characters, the least being 1; `built_in_prompt` is the prompt where `rewrite_prompt` is null. Without a
    `language_model` no question is rewritten.
    """

    user_id: str | None
    settings: ChatSettings
    own: dict[str, OwnSetting]
    inherited: dict[str, InheritedSetting]
    maxima: dict[str, int]
    built_in_prompt: str
    language_model: bool


@router.get("/settings")
async def get_settings(
    of: Annotated[SettingsOf, Query()], caller: CallerParam, service: ServiceParam
) -> SettingsAnswer:
    """Returns the settings of a user, or of all users.

    A setting that a user does not have is that of all users, else the default.
    """
    user_id = _named_user(caller, of)
    view = await service.run(view_settings, service.memory.sync, user_id, service.chat_defaults)
    return _answer(service, user_id, view)


@router.put("/settings")
async def put_settings(
    of: Annotated[SettingsOf, Query()], body: SettingsChange, caller: CallerParam, service: ServiceParam
) -> SettingsAnswer:
    """Changes settings of a user, or of all users, and returns them. The next request has them in force.

    A field that is left out stays as it is, and null removes a setting. The settings belong to a user as a whole: a key
    that is bound to one agent may only read them.
    """
    user_id = _named_user(caller, of)
    if caller.agent_id is not None:
        raise Problem(403, "This key is bound to an agent, and settings are those of all agents.", "other_scope")

    def change() -> SettingsView:
        change_settings(service.memory.sync, user_id, body, caller.key_id)
        return view_settings(service.memory.sync, user_id, service.chat_defaults)

    return _answer(service, user_id, await service.run(change))


def _named_user(caller: Caller, of: SettingsOf) -> str | None:
    """Returns the user whose settings a caller names, None for those of all users. Raises Problem as `scope` does."""
    return of.user_id if caller.role == "admin" else caller.scope({"user_id": of.user_id})["user_id"]


def _answer(service: Service, user_id: str | None, view: SettingsView) -> SettingsAnswer:
    own = {
        change.name: OwnSetting(value=change.value, changed_at=iso(change.at), changed_by=change.changed_by)
        for change in view.changes
    }
    inherited = {
        name: InheritedSetting(value=value, source="all_users" if name in view.shared else "configuration")
        for name, value in view.inherited.model_dump().items()
    }
    return SettingsAnswer(
        user_id=user_id,
        settings=view.in_force,
        own=own,
        inherited=inherited,
        maxima=MAXIMA,
        built_in_prompt=prompts.load(REWRITE),
        language_model=service.engine.llm is not None,
    )
