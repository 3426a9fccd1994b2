"""Routes of our own about one memory: where it comes from, hiding, pinning and judging it, and taking a change back."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from graphmem.lifecycle.conflicts import ConflictRule
from graphmem.service import limits, problems
from graphmem.service.listing import within_answer
from graphmem.service.rest import answers
from graphmem.service.rest.dependencies import CallerParam, JsonRoute, ServiceParam
from graphmem.service.schemas import Body, Ids, IdsBody
from graphmem.types import JudgementDict, JudgementList, MemoryDict, RelationDict

router = APIRouter(route_class=JsonRoute, tags=["memories"], responses=problems.documented(404))


class OriginMessage(BaseModel):
    """A source message of a memory. `id` is that under which it was sent, `name` its speaker's."""

    id: str | None
    memory_id: str
    role: str | None
    name: str | None
    content: str
    at: str


class MentionedEntity(BaseModel):
    """An entity that a memory mentions."""

    key: str
    name: str
    type: str


class OriginEvent(answers.HistoryItem):
    """A change with the rule by which a conflict of two facts was decided, if that is what it is.

    `replaced_by` is the memory that counts since this change, in place of the one that it retired.
    """

    rule: ConflictRule | None
    replaced_by: str | None


class OriginAnswer(BaseModel):
    """A memory with its source messages (an episode is its own), entities, relations and changes.

    `replaces`: ids of memories that it retired; `replaced_by`: of those that retired it; `compresses`: of those that
    were forgotten because it stands for them; `compressed_by`: of what it was forgotten for; `abstracts`,
    `abstracted_by`: of what it is an abstraction of, and of its abstractions. `note` is there for a fact
    or summary none of whose source messages is stored.
    """

    id: str
    memory: str
    messages: list[OriginMessage]
    note: str = ""
    mentions: list[MentionedEntity]
    relations: list[RelationDict]
    replaces: list[str]
    replaced_by: list[str]
    compresses: list[str]
    compressed_by: list[str]
    abstracts: list[str]
    abstracted_by: list[str]
    events: list[OriginEvent]


@router.get("/memories/{memory_id}/explain", response_model_exclude_unset=True)
async def explain_memory(
    memory_id: str, query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam
) -> OriginAnswer:
    """Returns where a memory comes from: its source messages, what it mentions and replaces, and its changes."""
    scope = caller.scope(query.named(), required=False)
    with within_answer("memory_id", "GET /export sends the whole history of all memories of a user"):
        origin = await service.memory.explain(memory_id, **scope)
    return OriginAnswer.model_validate(origin)


@router.post("/events/{event_id}/undo")
async def undo_event(
    event_id: str, query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam
) -> MemoryDict:
    """Takes back an update, a retirement, a forgetting or a promotion, and returns the memory. The history keeps both
    events.
    """
    return await service.memory.undo(event_id, **caller.scope(query.named(), required=False))


class JudgementBody(IdsBody):
    """A question of a scope, and what is said of a memory as its answer; null takes that back."""

    query: str
    verdict: Literal["right", "wrong", "missing"] | None


class JudgementsQuery(Ids):
    """The scope whose judgements are listed, of which question, and how many, the latest first."""

    query: str | None = None
    limit: int = Field(default=100, ge=1, le=limits.MAX_PAGE)
    offset: int = Field(default=0, ge=0, le=2**31)


@router.put("/memories/{memory_id}/judgement")
async def judge_memory(
    memory_id: str, body: JudgementBody, caller: CallerParam, service: ServiceParam
) -> JudgementDict:
    """Keeps what is said of a memory as an answer to a question, for `graphmem bench mine`; null takes that back."""
    return await service.memory.judge(body.query, memory_id, body.verdict, **caller.scope(body.named()))


@router.get("/judgements")
async def list_judgements(
    query: Annotated[JudgementsQuery, Query()], caller: CallerParam, service: ServiceParam
) -> JudgementList:
    """Lists what was said of memories as answers, the latest first."""
    return await service.memory.judgements(
        **caller.scope(query.named()), query=query.query, limit=query.limit, offset=query.offset
    )


class ForgetBody(Body):
    """Why a memory is forgotten; the history keeps it."""

    reason: str | None = None


@router.post("/memories/{memory_id}/forget")
async def forget_memory(
    memory_id: str,
    query: Annotated[Ids, Query()],
    caller: CallerParam,
    service: ServiceParam,
    body: ForgetBody | None = None,
) -> MemoryDict:
    """Hides a memory, until `undo` of the answer's `event_id` or the same words said again show it. For words that
    have to be gone use DELETE.
    """
    scope = caller.scope(query.named(), required=False)
    return await service.memory.forget(memory_id, reason=None if body is None else body.reason, **scope)


@router.put("/memories/{memory_id}/pin")
async def pin_memory(
    memory_id: str, query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam
) -> MemoryDict:
    """Pins a memory: no cycle of the lifecycle forgets it."""
    return await service.memory.pin(memory_id, **caller.scope(query.named(), required=False))


@router.delete("/memories/{memory_id}/pin")
async def unpin_memory(
    memory_id: str, query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam
) -> MemoryDict:
    """Unpins a memory."""
    return await service.memory.unpin(memory_id, **caller.scope(query.named(), required=False))
