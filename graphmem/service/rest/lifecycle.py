"""Routes of the lifecycle: its state, cycles over a user's memories, taking them back, and what they have forgotten."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from graphmem.errors import ValidationError
from graphmem.service import limits, problems
from graphmem.service.listing import within_answer
from graphmem.service.rest.dependencies import CallerParam, JsonRoute, ServiceParam
from graphmem.service.schemas import Body, Ids, Items, Moment, QueryMoment
from graphmem.types import AbstractionResult, CycleDict, ForgottenResult, LifecycleDict, Receipt

router = APIRouter(route_class=JsonRoute, tags=["lifecycle"], responses=problems.documented(404))


class CycleBody(Body):
    """How a cycle is run: `dry_run` only says what it would do, `force` lifts the brake, `now` is its moment."""

    dry_run: bool = False
    force: bool = False
    now: Moment | None = None


class AbstractionBody(Body):
    """What is abstracted, `ids` or (null) groups of like memories, and to which `level` (1 to 3)."""

    ids: Items[str] | None = None
    level: int = 1


class UndoBody(Body):
    """The id of the cycle that is taken back."""

    cycle: str


class UndoneAnswer(BaseModel):
    """The ids of the memories that are as before, the number of changes that stay because of later ones, and that of
    memories that are erased, by the cycle or since.
    """

    undone: list[str]
    skipped: int
    erased: int


class StatusQuery(Ids):
    """Whose lifecycle is told, and how many of its cycles."""

    limit: int = Field(default=50, ge=1, le=limits.MAX_PAGE)


class PageQuery(Ids):
    """Whose memories are listed, and how many."""

    limit: int = Field(default=100, ge=1, le=limits.MAX_PAGE)


class PurgeQuery(Ids):
    """Whose forgotten memories are erased: all, or those forgotten before a time. `confirm` says that it is meant."""

    forgotten_before: QueryMoment | None = None
    confirm: bool = False


@router.get("/lifecycle")
async def read_lifecycle(
    query: Annotated[StatusQuery, Query()], caller: CallerParam, service: ServiceParam
) -> LifecycleDict:
    """Returns the state of the lifecycle: a user's memories by layer, and the cycles over them."""
    return await service.memory.lifecycle_status(**caller.scope(query.named()), limit=query.limit)


@router.post("/lifecycle/cycles")
async def run_cycle(
    query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam, body: CycleBody | None = None
) -> CycleDict:
    """Runs a cycle of the lifecycle over the memories of a user, or says what it would do."""
    options = (body or CycleBody()).model_dump()
    scope = caller.scope(query.named())
    with within_answer("dry_run", "graphmem lifecycle run --dry-run prints all of it"):
        return await service.memory.tend(**scope, **options)


@router.post("/lifecycle/abstractions")
async def abstract_memories(
    body: AbstractionBody, query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam
) -> AbstractionResult:
    """Stores what memories have in common, in one sentence; they stay."""
    scope = caller.scope(query.named(), required=body.ids is None)
    return await service.memory.abstract(body.ids, level=body.level, **scope)


@router.post("/lifecycle/undo")
async def undo_cycle(
    body: UndoBody, query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam
) -> UndoneAnswer:
    """Takes back what a cycle did."""
    result: dict[str, Any] = await service.memory.undo_cycle(body.cycle, **caller.scope(query.named(), required=False))
    return UndoneAnswer.model_validate(result)


@router.get("/lifecycle/forgotten")
async def list_forgotten(
    query: Annotated[PageQuery, Query()], caller: CallerParam, service: ServiceParam
) -> ForgottenResult:
    """Lists the memories of a user that are forgotten and not erased."""
    scope = caller.scope(query.named())
    with within_answer("limit", "ask for fewer memories"):
        return await service.memory.pending_deletion(**scope, limit=query.limit)


@router.delete("/lifecycle/forgotten")
async def purge_forgotten(query: Annotated[PurgeQuery, Query()], caller: CallerParam, service: ServiceParam) -> Receipt:
    """Erases the forgotten memories of a user; what else has their words stays."""
    scope = caller.scope(query.named())
    if not query.confirm:
        raise ValidationError(
            "confirm: is not true, and what is erased cannot be brought back; look at GET /lifecycle/forgotten, then "
            "add confirm=true to the query"
        )
    return await service.memory.purge(**scope, forgotten_before=query.forgotten_before, confirm=True)
