"""The routes that mem0's platform client (`MemoryClient`) calls; the answers are those of the routes beside them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from graphmem.integrations.base import result_dict
from graphmem.memory import DEFAULT_LIST_LIMIT
from graphmem.service import limits, problems
from graphmem.service.listing import within_answer
from graphmem.service.problems import Problem
from graphmem.service.rest import answers, mem0, mem0_admin
from graphmem.service.rest.dependencies import AdminParam, CallerParam, ServiceParam, until_client_leaves
from graphmem.service.rest.json_route import JsonRoute
from graphmem.service.schemas import IdsBody, Mem0Fields

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


@router.post("/v3/memories/add/", response_model_exclude_unset=True)
async def add(
    body: PlatformAddBody,
    caller: CallerParam,
    service: ServiceParam,
    response: Response,
    idempotency_key: mem0.IdempotencyKey = None,
) -> answers.AddAnswer:
    """Stores messages as `POST /memories` does."""
    ids, conditions = mem0.scope_and_conditions(body, body.filters, caller)
    if conditions:
        raise Problem(400, "filters: takes only ids here")
    return await mem0.store_messages(body, ids, service, response, idempotency_key)


router.post("/v3/memories/search/", response_model_exclude_unset=True)(mem0.search_memories)


class ListBody(IdsBody, Mem0Fields):
    """Whose memories are listed: by ids, here or in `filters`, which may also have conditions."""

    filters: dict[str, Any] | None = None
    show_expired: bool | None = None
    show_retired: bool | None = None


class PageQuery(BaseModel):
    """Which page of the list."""

    model_config = ConfigDict(extra="forbid")

    page: int = Field(default=1, ge=1, le=1_000_000)
    page_size: int = Field(default=DEFAULT_LIST_LIMIT, ge=1, le=limits.MAX_PAGE)


class PlatformPage(BaseModel):
    """A page of memories, newest first; `next` and `previous` are the addresses of the pages beside it."""

    count: int
    next: str | None
    previous: str | None
    results: list[answers.MemoryAnswer]


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
    ids, conditions = mem0.scope_and_conditions(body, body.filters, caller)
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
        }
    )


router.get("/v1/memories/{memory_id}/", response_model_exclude_unset=True)(mem0.get_memory)
router.put("/v1/memories/{memory_id}/", response_model_exclude_unset=True)(mem0.update_memory)
router.delete("/v1/memories/{memory_id}/", response_model_exclude_unset=True)(mem0.delete_memory)
router.get("/v1/memories/{memory_id}/history/")(mem0.memory_history)
router.delete("/v1/memories/", response_model_exclude_unset=True)(mem0.delete_memories)


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


router.delete("/v2/entities/{entity_type}/{entity_id:path}/", response_model_exclude_unset=True)(
    mem0_admin.delete_entity
)
