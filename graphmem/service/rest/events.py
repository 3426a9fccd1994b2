"""Routes of events: the end of a session, and the events that webhooks did not take."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from graphmem.service import limits, problems
from graphmem.service.rest.dependencies import AdminParam, CallerParam, JsonRoute, ServiceParam
from graphmem.service.rest.maintenance import NoQuery
from graphmem.service.schemas import Ids

router = APIRouter(route_class=JsonRoute, tags=["events"], responses=problems.documented(404))


class PageQuery(NoQuery):
    """How many dead letters are listed, and how many are skipped before them."""

    limit: int = Field(default=100, ge=1, le=limits.MAX_PAGE)
    offset: int = Field(default=0, ge=0, le=2**31)


class WebhookQuery(NoQuery):
    """The name of the webhook that did not take an event."""

    webhook: str


class DeadLetter(BaseModel):
    """An event (`id`) that a webhook did not take: the status of its last answer, or that there was none (`error`).

    `timestamp` null: it cannot be told any more, because its memory was erased, or it is more than 30 days old.
    """

    id: str
    webhook: str
    event_type: str
    error: str
    user_id: str | None
    timestamp: str | None


class DeadLettersAnswer(BaseModel):
    """Dead letters by type of event, webhook and time, the oldest first; `total` counts all."""

    results: list[DeadLetter]
    total: int


class RetriedAnswer(BaseModel):
    """Whether the webhook took the event now; `error` says why it did not."""

    delivered: bool
    error: str | None = None


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
) -> DeadLettersAnswer:
    """Lists the events that webhooks did not take."""
    return DeadLettersAnswer.model_validate(await service.memory.dead_letters(limit=query.limit, offset=query.offset))


@router.post("/webhooks/dead-letters/{event_id}/retry", response_model_exclude_unset=True)
async def retry_dead_letter(
    event_id: str, _: AdminParam, query: Annotated[WebhookQuery, Query()], service: ServiceParam
) -> RetriedAnswer:
    """Posts an event once more to the webhook that did not take it."""
    return RetriedAnswer.model_validate(await service.memory.retry_dead_letter(event_id, webhook=query.webhook))


@router.delete("/webhooks/dead-letters/{event_id}")
async def drop_dead_letter(
    event_id: str, _: AdminParam, query: Annotated[WebhookQuery, Query()], service: ServiceParam
) -> DroppedAnswer:
    """Drops an event that a webhook did not take."""
    return DroppedAnswer.model_validate(await service.memory.drop_dead_letter(event_id, webhook=query.webhook))
