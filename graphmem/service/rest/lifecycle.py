"""Routes of the lifecycle: its state, cycles over a user's memories, taking them back, and what they have forgotten."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from graphmem.errors import ValidationError
from graphmem.service import limits, problems
from graphmem.service.listing import within_answer
from graphmem.service.rest import answers
from graphmem.service.rest.dependencies import CallerParam, JsonRoute, ServiceParam
from graphmem.service.schemas import Body, Ids, Items, Moment, QueryMoment

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


class Abstraction(answers.MemoryAnswer):
    """An abstraction, and the ids of the memories that it was made of."""

    abstracts: list[str]


class AbstractionAnswer(BaseModel):
    """New abstractions; `cycle` is the id by which they are taken back, `skipped` says what was left out and why."""

    cycle: str
    results: list[Abstraction]
    skipped: dict[str, str]


class UndoBody(Body):
    """The id of the cycle that is taken back."""

    cycle: str


class Change(BaseModel):
    """What a dry run would do to a memory: "promote", "forget" or "purge" it, or "merge", "summarize" or "abstract" it
    with others.
    """

    id: str
    memory: str
    change: str
    reason: str


class CycleAnswer(BaseModel):
    """What a cycle did, in numbers of memories; `cycle` is its id, null for a dry run, which lists the `changes`.

    `merged`: forgotten because another one stands for them. `summarized` and `abstracted`: new ones. `purged`: erased,
    because they had been forgotten for long. `skipped`: what was left out, by step, and why. `brake`: why it did
    nothing.
    """

    cycle: str | None
    processed: int
    decayed: int
    forgotten: int
    merged: int
    promoted: int
    summarized: int
    abstracted: int
    saved_bytes: int
    skipped: dict[str, str]
    purged: int
    brake: str = ""
    changes: list[Change] = []


class ForgottenMemory(answers.MemoryAnswer):
    """A forgotten memory, and why it was forgotten. `event_id`: what `undo` takes back."""

    reason: str
    event_id: str = ""


class ForgottenAnswer(BaseModel):
    """Forgotten memories, the last forgotten first; `total` counts all."""

    results: list[ForgottenMemory]
    total: int


class UndoneAnswer(BaseModel):
    """The ids of the memories that are as before, the number of changes that stay because of later ones, and that of
    memories that are erased, by the cycle or since.
    """

    undone: list[str]
    skipped: int
    erased: int


class PastCycle(BaseModel):
    """A cycle that changed memories: how many it forgot, merged (of the forgotten ones), promoted, and made of others.

    Memories that were erased since are not counted. `undone`: of what it did nothing holds any more.
    """

    cycle: str
    at: str
    forgotten: int
    merged: int
    promoted: int
    composed: int
    undone: bool


class Held(BaseModel):
    """That the brake held the last cycle: how many memories it would have forgotten and of how many, and what to do."""

    forgotten: int
    memories: int
    reason: str


class StatusAnswer(BaseModel):
    """The lifecycle of a user: memories by layer ("short_term", "long_term"), how many of them are pinned, and how many
    are forgotten; the end of the last cycle, how many memories it changed (null: none ran, or not known of this
    scope), and if the brake held it; when the next one runs by itself (null: none
    does), the time before which nothing fades, the days after which what is forgotten is erased (null: it stays), and
    the last cycles, newest first.
    """

    enabled: bool
    layers: dict[str, int]
    pinned: int
    forgotten: int
    cycled_at: str | None
    cycle_changed: int | None
    held: Held | None
    next_cycle: str | None
    lifecycle_since: str | None
    purge_after_days: int | None
    cycles: list[PastCycle]


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
) -> StatusAnswer:
    """Returns the state of the lifecycle: a user's memories by layer, and the cycles over them."""
    status = await service.memory.lifecycle_status(**caller.scope(query.named()), limit=query.limit)
    return StatusAnswer.model_validate(status)


@router.post("/lifecycle/cycles", response_model_exclude_unset=True)
async def run_cycle(
    query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam, body: CycleBody | None = None
) -> CycleAnswer:
    """Runs a cycle of the lifecycle over the memories of a user, or says what it would do."""
    options = (body or CycleBody()).model_dump()
    scope = caller.scope(query.named())
    with within_answer("dry_run", "graphmem lifecycle run --dry-run prints all of it"):
        result = await service.memory.tend(**scope, **options)
    return CycleAnswer.model_validate(result)


@router.post("/lifecycle/abstractions", response_model_exclude_unset=True)
async def abstract_memories(
    body: AbstractionBody, query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam
) -> AbstractionAnswer:
    """Stores what memories have in common, in one sentence; they stay."""
    scope = caller.scope(query.named(), required=body.ids is None)
    result = await service.memory.abstract(body.ids, level=body.level, **scope)
    return AbstractionAnswer.model_validate(result)


@router.post("/lifecycle/undo")
async def undo_cycle(
    body: UndoBody, query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam
) -> UndoneAnswer:
    """Takes back what a cycle did."""
    result: dict[str, Any] = await service.memory.undo_cycle(body.cycle, **caller.scope(query.named(), required=False))
    return UndoneAnswer.model_validate(result)


@router.get("/lifecycle/forgotten", response_model_exclude_unset=True)
async def list_forgotten(
    query: Annotated[PageQuery, Query()], caller: CallerParam, service: ServiceParam
) -> ForgottenAnswer:
    """Lists the memories of a user that are forgotten and not erased."""
    scope = caller.scope(query.named())
    with within_answer("limit", "ask for fewer memories"):
        page = await service.memory.pending_deletion(**scope, limit=query.limit)
    return ForgottenAnswer.model_validate(page)


@router.delete("/lifecycle/forgotten", response_model_exclude_unset=True)
async def purge_forgotten(
    query: Annotated[PurgeQuery, Query()], caller: CallerParam, service: ServiceParam
) -> answers.ReceiptAnswer:
    """Erases the forgotten memories of a user; what else has their words stays."""
    scope = caller.scope(query.named())
    if not query.confirm:
        raise ValidationError(
            "confirm: is not true, and what is erased cannot be brought back; look at GET /lifecycle/forgotten, then "
            "add confirm=true to the query"
        )
    receipt = await service.memory.purge(**scope, forgotten_before=query.forgotten_before, confirm=True)
    return answers.ReceiptAnswer.model_validate(receipt)
