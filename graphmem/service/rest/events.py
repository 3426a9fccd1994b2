"""Routes of events: the end of a session, and the events that webhooks did not take."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from graphmem.service import limits, problems
from graphmem.service.rest.dependencies import AdminParam, CallerParam, JsonRoute, ServiceParam
from graphmem.service.rest.maintenance import NoQuery
from graphmem.service.schemas import Ids
from graphmem.types import DeadLetterList, RetriedDict

router = APIRouter(route_class=JsonRoute, tags=["events"], responses=problems.documented(404))


class PageQuery(NoQuery):
    """How many dead letters are listed, and how many are skipped before them."""

    limit: int = Field(default=100, ge=1, le=limits.MAX_PAGE)
    offset: int = Field(default=0, ge=0, le=2**31)


class WebhookQuery(NoQuery):
    """The name of the webhook that did not take an event."""

    webhook: str


class DroppedAnswer(BaseModel):
    """That the event is told no more."""

    dropped: bool


class EndedAnswer(BaseModel):
    """Whether a session has ended: none goes on where nothing was added, or where nobody is to know of its end."""

    ended: bool


@router.post("/sessions/end")
async def end_session(query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam) -> EndedAnswer:
    """Ends the session of exactly this scope, as a silence does."""
    return EndedAnswer.model_validate(await service.memory.end_session(**caller.scope(query.named())))


@router.get("/webhooks/dead-letters")
async def list_dead_letters(
    _: AdminParam, query: Annotated[PageQuery, Query()], service: ServiceParam
) -> DeadLetterList:
    """Lists the events that webhooks did not take."""
    return await service.memory.dead_letters(limit=query.limit, offset=query.offset)


@router.post("/webhooks/dead-letters/{event_id}/retry")
async def retry_dead_letter(
    event_id: str, _: AdminParam, query: Annotated[WebhookQuery, Query()], service: ServiceParam
) -> RetriedDict:
    """Posts an event once more to the webhook that did not take it."""
    return await service.memory.retry_dead_letter(event_id, webhook=query.webhook)


@router.delete("/webhooks/dead-letters/{event_id}")
async def drop_dead_letter(
    event_id: str, _: AdminParam, query: Annotated[WebhookQuery, Query()], service: ServiceParam
) -> DroppedAnswer:
    """Drops an event that a webhook did not take."""
    return DroppedAnswer.model_validate(await service.memory.drop_dead_letter(event_id, webhook=query.webhook))
