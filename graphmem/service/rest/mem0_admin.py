"""The routes of mem0's own server beside memories: configuration, entities, requests, keys, reset."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic import ValidationError as PydanticError

from graphmem.memory import Memory
from graphmem.model import LISTED_KINDS, Scope, View
from graphmem.queries.memories import list_scopes
from graphmem.service import limits, problems
from graphmem.service.chat_settings import SettingsChange, change_settings
from graphmem.service.keys import PREFIX
from graphmem.service.middleware import METHODS, RequestItem
from graphmem.service.problems import Problem
from graphmem.service.rest import answers
from graphmem.service.rest.dependencies import AdminParam, CallerParam, JsonRoute, ServiceParam
from graphmem.service.schemas import Body
from graphmem.settings import Settings
from graphmem.stores.ledger.service_tables import ApiKey
from graphmem.types import Receipt

REDACTED = "***"

router = APIRouter(route_class=JsonRoute, tags=["administration"], responses=problems.documented())

EntityType = Literal["user", "agent", "run"]


# --- configuration --------------------------------------------------------------------------------------------------


class Providers(BaseModel):
    """The names that `provider` may have in the configuration."""

    llm: list[str]
    embedder: list[str]


@router.get("/configure")
async def get_configuration(_: AdminParam, service: ServiceParam) -> dict[str, Any]:
    """Returns the running configuration, with "***" for each secret."""
    settings = service.engine.settings
    redacted: dict[str, Any] = _redacted(settings.model_dump())
    return redacted


def _redacted(value: Any) -> Any:
    """Returns a value of settings in JSON types."""
    match value:
        case SecretStr():
            return REDACTED
        case Mapping():
            return {name: _redacted(part) for name, part in value.items()}
        case list() | tuple():
            return [_redacted(part) for part in value]
        case Path():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:  # a function
            return getattr(value, "__name__", type(value).__name__)


@router.get("/configure/providers")
async def get_providers(_: CallerParam) -> Providers:
    """Returns the providers that a configuration may name."""
    return Providers(llm=_providers("llm"), embedder=_providers("embedder"))


def _providers(section: str) -> list[str]:
    annotation = Settings.model_fields[section].annotation
    models = [model for model in get_args(annotation) or (annotation,) if hasattr(model, "model_fields")]
    return sorted(name for model in models for name in get_args(model.model_fields["provider"].annotation))


@router.post("/configure")
async def configure(values: dict[str, Any], caller: AdminParam, service: ServiceParam) -> answers.MessageAnswer:
    """Changes the settings of all users that may change while the service runs, as PUT /settings does.

    All others are changed in the configuration file.
    """
    if not values.keys() <= SettingsChange.model_fields.keys():
        raise Problem(409, "These settings cannot change while the service runs; change the configuration file.")
    try:
        change = SettingsChange.model_validate(values)
    except PydanticError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None
    await service.run(change_settings, service.memory.sync, None, change, caller.key_id)
    return answers.MessageAnswer(message="Configuration set successfully")


# --- users, agents and runs -----------------------------------------------------------------------------------------


class EntityItem(BaseModel):
    """A user, an agent or a run, with the number of its memories as GET /memories lists them."""

    id: str
    type: EntityType
    total_memories: int
    created_at: datetime
    updated_at: datetime


class EntitiesQuery(BaseModel):
    """How many entities are listed, and which of their memories are counted."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=10_000, ge=1, le=limits.MAX_OWNERS)
    show_retired: bool = Field(default=False, description="Count also the memories that are no longer true.")
    show_forgotten: bool = Field(default=False, description="Count also the memories that were forgotten.")


@router.get("/entities")
async def get_entities(
    query: Annotated[EntitiesQuery, Query()], _: AdminParam, service: ServiceParam
) -> list[EntityItem]:
    """Lists the users, agents and runs of which there are memories. The graph's entities are at /graph/entities."""
    shown = query.model_dump(include={"show_retired", "show_forgotten"})
    return await service.run(entity_items, service.memory.sync, query.limit, **shown)


def entity_items(
    memory: Memory, limit: int, *, show_retired: bool = False, show_forgotten: bool = False
) -> list[EntityItem]:
    """Returns the first `limit` users, agents and runs of a memory."""
    engine = memory.engine
    engine.check_open()
    view = View(
        Scope(), datetime.now(UTC), kinds=LISTED_KINDS, show_retired=show_retired, show_forgotten=show_forgotten
    )
    return [
        EntityItem(
            id=found.id,
            type=found.name.removesuffix("_id"),  # type: ignore[arg-type]  # the names of a scope
            total_memories=found.memories,
            created_at=found.created_at,
            updated_at=found.updated_at,
        )
        for found in list_scopes(engine.ledger, view, limit)
    ]


@router.delete("/entities/{entity_type}/{entity_id:path}")
async def delete_entity(entity_type: EntityType, entity_id: str, _: AdminParam, service: ServiceParam) -> Receipt:
    """Erases all memories of a user, an agent or a run."""
    receipt = await service.memory.delete_all(**{f"{entity_type}_id": entity_id})
    receipt["message"] = "Entity deleted"
    return receipt


# --- requests -------------------------------------------------------------------------------------------------------


class RequestsQuery(BaseModel):
    """How many requests are listed."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=50, ge=1, le=limits.MAX_REQUESTS)


@router.get("/requests")
async def get_requests(
    query: Annotated[RequestsQuery, Query()], _: AdminParam, service: ServiceParam
) -> list[RequestItem]:
    """Lists the latest requests of this process, newest first."""
    return service.requests.newest(query.limit)


# --- keys -----------------------------------------------------------------------------------------------------------


class KeyBody(Body):
    """A key to make. Its role is by default "user" with a `user_id`, else "app"."""

    label: str
    role: Literal["user", "app", "admin", "metrics"] | None = None
    user_id: str | None = Field(default=None, description="The user to whom a key of the role user is bound.")
    agent_id: str | None = Field(default=None, description="Narrows such a key to one agent's memories.")
    expires_at: str | float | None = Field(default=None, description="A time, or the last day.")
    rate: str | None = Field(default=None, description="Its most requests, such as 600/minute; null: as configured.")


class KeyItem(BaseModel):
    """A key without its secret."""

    id: str
    label: str
    key_prefix: str
    role: str
    user_id: str | None
    agent_id: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rate: str | None
    last_used_at: datetime | None


class NewKeyAnswer(KeyItem):
    """A key that was just made. `key` is what its client sends; it cannot be read again."""

    key: str


def _key_item(key: ApiKey) -> dict[str, Any]:
    values = {name: getattr(key, name) for name in KeyItem.model_fields if name != "key_prefix"}
    return {**values, "key_prefix": f"{PREFIX}_{key.id}"}


@router.post("/api-keys", status_code=201)
async def create_key(body: KeyBody, _: AdminParam, service: ServiceParam) -> NewKeyAnswer:
    """Makes a key and returns it, this once."""
    role = body.role or ("app" if body.user_id is None else "user")
    made = await service.run(
        service.keys.create,
        role,
        user_id=body.user_id,
        agent_id=body.agent_id,
        label=body.label,
        expires_at=body.expires_at,
        rate=body.rate,
    )
    return NewKeyAnswer.model_validate({**_key_item(made.key), "key": made.text})


@router.get("/api-keys")
async def get_keys(_: AdminParam, service: ServiceParam) -> list[KeyItem]:
    """Lists all keys without their secrets, also revoked and expired ones, oldest first."""
    return [KeyItem.model_validate(_key_item(key)) for key in await service.run(service.keys.all)]


@router.delete("/api-keys/{key_id}", responses=problems.documented(404))
async def revoke_key(key_id: str, _: AdminParam, service: ServiceParam) -> answers.MessageAnswer:
    """Revokes a key: from now on it is refused."""
    await service.run(service.keys.revoke, key_id)
    return answers.MessageAnswer(message="API key revoked.")


# --- the whole service ----------------------------------------------------------------------------------------------


class ResetAnswer(answers.MessageAnswer):
    """`pending`: projections out of reach or being delivered to, which are emptied later."""

    pending: list[str]


@router.post("/reset")
async def reset(_: AdminParam, service: ServiceParam) -> ResetAnswer:
    """Erases all memories of all users. Keys stay."""
    return ResetAnswer(message="All memories reset", **await service.memory.reset())


@router.get("/", status_code=307, response_class=RedirectResponse)
async def home() -> str:
    """Leads to the page of the service."""
    return "/ui/"


async def no_accounts() -> None:
    """Refuses mem0's routes for accounts and passwords."""
    raise Problem(404, "There are no accounts here; requests carry a key, which POST /api-keys makes.", "no_such_path")


async def no_instructions() -> None:
    """Refuses mem0's route that writes instructions with a language model."""
    detail = "Instructions are not generated here; set custom_fact_extraction_prompt in the configuration file."
    raise Problem(404, detail, "no_such_path")


for path, endpoint in (("/auth/{rest:path}", no_accounts), ("/generate-instructions", no_instructions)):
    router.add_api_route(path, endpoint, methods=sorted(METHODS), include_in_schema=False)
