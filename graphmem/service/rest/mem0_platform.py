"""The routes that mem0's platform client (`MemoryClient`) calls; the answers are those of the routes beside them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from graphmem.boundary import validation
from graphmem.integrations.base import result_dict
from graphmem.memory import DEFAULT_LIST_LIMIT, delete_together, update_together
from graphmem.service import limits, problems
from graphmem.service.auth import Caller
from graphmem.service.listing import within_answer
from graphmem.service.problems import Problem
from graphmem.service.rest import answers, mem0, mem0_admin
from graphmem.service.rest.dependencies import AdminParam, CallerParam, JsonRoute, ServiceParam, until_client_leaves
from graphmem.service.schemas import Body, IdsBody, Items, Mem0Fields, given
from graphmem.types import AddResult, MemoryDict, Receipt

# The one organisation and project of a service, which the client asks for.
PROJECT = "graphmem"

router = APIRouter(route_class=JsonRoute, tags=["mem0's platform client"], responses=problems.documented(404, 502))


class Ping(BaseModel):
    """Whose key it is, as mem0's client reads it."""

    status: str = "ok"
    org_id: str = PROJECT
    project_id: str = PROJECT
    user_email: str = PROJECT


@router.get("/v1/ping/")
async def ping(_: CallerParam) -> Ping:
    """Tells a client that its key is valid."""
    return Ping()


class PlatformAddBody(mem0.AddBody):
    """Messages to store, and whose they are: by ids, here or in `filters`."""

    filters: dict[str, Any] | None = None


@router.post("/v3/memories/add/")
async def add(
    body: PlatformAddBody,
    caller: CallerParam,
    service: ServiceParam,
    response: Response,
    idempotency_key: mem0.IdempotencyKey = None,
) -> AddResult:
    """Stores messages as `POST /memories` does."""
    ids, conditions = mem0.scope_and_conditions(body, body.filters, caller)
    if conditions:
        app_id = conditions.pop("app_id", None)
        if conditions or not isinstance(app_id, str) or body.app_id not in (None, app_id):
            raise Problem(400, "filters: takes only ids here, each of them one")
        body = body.model_copy(update={"app_id": app_id})
    return await mem0.store_messages(body, ids, service, response, idempotency_key)


router.post("/v3/memories/search/")(mem0.search_memories)


class ListBody(IdsBody, Mem0Fields):
    """Whose memories are listed: by ids, here or in `filters`, which may also have conditions."""

    app_id: str | None = Field(default=None, description="List the memories with this `app_id` in their metadata.")
    filters: dict[str, Any] | None = None
    show_expired: bool | None = None
    show_retired: bool | None = None
    retired_only: bool | None = None
    show_forgotten: bool | None = None


class PageQuery(BaseModel):
    """Which page of the list."""

    model_config = ConfigDict(extra="forbid")

    page: int = Field(default=1, ge=1, le=1_000_000)
    page_size: int = Field(default=DEFAULT_LIST_LIMIT, ge=1, le=limits.MAX_PAGE)


class PlatformPage(BaseModel):
    """A page of memories, newest first; `next` and `previous` are the addresses of the pages beside it.

    `retired`, if there are any, counts the memories that match and are no longer true.
    """

    count: int
    retired: int = 0
    next: str | None
    previous: str | None
    results: list[MemoryDict]


@router.post("/v3/memories/", response_model_exclude_unset=True)
async def get_all(
    body: ListBody,
    query: Annotated[PageQuery, Query()],
    caller: CallerParam,
    service: ServiceParam,
    request: Request,
    response: Response,
) -> PlatformPage:
    """Lists memories by numbered pages. Pages by cursors, which changes do not shift, are at `GET /memories`.

    A page that takes more than 16 MiB is refused: ask for smaller ones.
    """
    body.name_ignored(response)
    ids, conditions = mem0.scope_and_conditions(body, body.filters, caller, body.app_id)
    start = (query.page - 1) * query.page_size
    async with until_client_leaves(request):
        with within_answer("page_size", "ask for smaller pages, or list them by GET /memories"):
            listed = await service.memory.get_all(
                **ids,
                filters=conditions,
                limit=query.page_size,
                offset=start,
                show_expired=bool(body.show_expired),
                show_retired=bool(body.show_retired),
                retired_only=bool(body.retired_only),
                show_forgotten=bool(body.show_forgotten),
            )
    found = result_dict(listed)

    def address(page: int) -> str:
        return str(request.url.include_query_params(page=page, page_size=query.page_size))

    return PlatformPage.model_validate(
        {
            "count": found["total"],
            "next": address(query.page + 1) if start + query.page_size < found["total"] else None,
            "previous": address(query.page - 1) if query.page > 1 else None,
            "results": found["results"],
            **given(retired=found.get("retired")),
        }
    )


router.get("/v1/memories/{memory_id}/")(mem0.get_memory)
router.put("/v1/memories/{memory_id}/")(mem0.update_memory)
router.delete("/v1/memories/{memory_id}/")(mem0.delete_memory)
router.get("/v1/memories/{memory_id}/history/")(mem0.memory_history)
router.delete("/v1/memories/")(mem0.delete_memories)


class BatchUpdate(Body):
    """The changes of one of several memories."""

    memory_id: str
    text: str | None = None
    metadata: dict[str, Any] | None = None


class BatchUpdateBody(Body):
    """The changes of several memories."""

    memories: Annotated[Items[BatchUpdate], Field(min_length=1, max_length=limits.MAX_BATCH)]


class BatchDelete(Body):
    """One of several memories."""

    memory_id: str


class BatchDeleteBody(Body):
    """Several memories."""

    memories: Annotated[Items[BatchDelete], Field(min_length=1, max_length=limits.MAX_BATCH)]


class BatchAnswer(answers.MessageAnswer):
    """The memories after their changes."""

    results: list[MemoryDict]


@router.put("/v1/batch/", response_model_exclude_unset=True)
async def update_batch(
    body: BatchUpdateBody,
    query: Annotated[mem0.ScopeQuery, Query()],
    caller: CallerParam,
    service: ServiceParam,
    response: Response,
) -> BatchAnswer:
    """Changes several memories, as `PUT /memories/{memory_id}` does one: all of them, or none."""
    query.name_ignored(response)
    scope = validation.scope(**caller.scope(query.named(), required=False))[0]
    changes = [(one.memory_id, {"text": one.text, "metadata": one.metadata}) for one in body.memories]
    updated = await service.run(update_together, service.engine, service.memory.sync.limits, changes, scope)
    return BatchAnswer.model_validate({"message": f"Successfully updated {len(updated)} memories", "results": updated})


@router.delete("/v1/batch/")
async def delete_batch(
    body: BatchDeleteBody,
    query: Annotated[mem0.ScopeQuery, Query()],
    caller: CallerParam,
    service: ServiceParam,
    response: Response,
) -> Receipt:
    """Erases several memories, as `DELETE /memories/{memory_id}` does one: all of them, or none."""
    query.name_ignored(response)
    scope = validation.scope(**caller.scope(query.named(), required=False))[0]
    ids = list(dict.fromkeys(one.memory_id for one in body.memories))
    message = f"Successfully deleted {len(ids)} memories"
    return await service.run(delete_together, service.engine, ids, scope, message)


ProjectField = Literal["custom_instructions", "custom_categories"]


class ProjectQuery(BaseModel):
    """Which fields of the project are answered; by default all."""

    model_config = ConfigDict(extra="forbid")

    fields: list[ProjectField] | None = None
    org_id: Literal["graphmem"] | None = None
    project_id: Literal["graphmem"] | None = None


class Project(BaseModel):
    """The one project of a service. Memories have no categories."""

    custom_instructions: str | None = None
    custom_categories: None = None


_PROJECT_PATH = f"/api/v1/orgs/organizations/{PROJECT}/projects/{PROJECT}/"


@router.get(_PROJECT_PATH, response_model_exclude_unset=True)
async def get_project(query: Annotated[ProjectQuery, Query()], _: AdminParam, service: ServiceParam) -> Project:
    """Returns the instructions for drawing facts that the configuration has."""
    settings = service.engine.settings
    instructions = settings.custom_fact_extraction_prompt or settings.custom_instructions
    values = {"custom_instructions": instructions, "custom_categories": None}
    return Project.model_validate({name: value for name, value in values.items() if name in (query.fields or values)})


async def no_project_changes(_: AdminParam) -> None:
    """Refuses mem0's route that changes a project."""
    detail = "A project does not change while the service runs; change the configuration file."
    raise Problem(405, detail, headers={"Allow": "GET"})


# Routes of mem0's platform that have nothing here, and why. 404 would be to its client that there is no such memory.
_NO_EXPORTS = "No model fills a schema here; GET /export returns all that is kept."
_NO_PROFILES = "There are no profiles here; POST /context returns what is known for a question."
_NOTHING_HERE = {
    "/v1/feedback/": "Feedback names no question; PUT /memories/{id}/judgement says whether a memory answers one.",
    "/v1/exports/": _NO_EXPORTS,
    "/v1/exports/get/": _NO_EXPORTS,
    "/v2/profiles/settings/": _NO_PROFILES,
    "/v2/entities/user/{name}/profile/": _NO_PROFILES,
    "/api/v1/webhooks/{rest:path}": "The setting webhooks names them here; GET /memories?since=… lists what is new.",
}


def _nothing_here(detail: str) -> Callable[[Caller], Awaitable[None]]:
    async def refuse(_: CallerParam) -> None:
        raise Problem(422, detail, "not_supported")

    return refuse


router.add_api_route(_PROJECT_PATH, no_project_changes, methods=["PATCH"], include_in_schema=False)
for path, why in _NOTHING_HERE.items():
    methods = ["GET", "POST", "PUT", "PATCH"] + (
        ["DELETE"] if "{name}" not in path else []
    )  # a user may be "x/profile"
    router.add_api_route(path, _nothing_here(why), methods=methods, include_in_schema=False)


class PlatformEntity(mem0_admin.EntityItem):
    """A user, an agent or a run; `name` is its id."""

    name: str


class PlatformEntities(BaseModel):
    """All users, agents and runs on one page."""

    count: int
    next: None = None
    previous: None = None
    results: list[PlatformEntity]


@router.get("/v1/entities/")
async def get_entities(_: AdminParam, service: ServiceParam) -> PlatformEntities:
    """Lists the users, agents and runs of which there are memories."""
    items = await service.run(mem0_admin.entity_items, service.memory.sync, limits.MAX_OWNERS)
    results = [PlatformEntity(name=item.id, **dict(item)) for item in items]
    return PlatformEntities(count=len(results), results=results)


router.delete("/v2/entities/{entity_type}/{entity_id:path}/")(mem0_admin.delete_entity)
