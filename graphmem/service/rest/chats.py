"""Routes for chat applications: the memories for a question, and storing saved chats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from graphmem import responses
from graphmem.answer_size import memory_bytes
from graphmem.boundary import validation
from graphmem.chat_worker import Recalled, RecallRequest, RecallStep
from graphmem.concurrency import as_exception
from graphmem.errors import GraphmemError, StoreError, ValidationError
from graphmem.logs import log_text
from graphmem.memory import PROFILE_TOKENS
from graphmem.model import Scope
from graphmem.retrieval.fallback import SUFFICIENT, QueryKind, RewriteFailure
from graphmem.retrieval.types import Hit
from graphmem.service import limits, problems
from graphmem.service.auth import Caller
from graphmem.service.chat_settings import ChatSettings, MaxChars, Prompt, Rounds, TopK, settings_in_force
from graphmem.service.problems import code_of
from graphmem.service.rest.dependencies import CallerParam, JsonRoute, Service, ServiceParam
from graphmem.service.rest.mem0 import scope_and_conditions
from graphmem.service.schemas import Ids, IdsBody, Items, LeastRelevance, Moment, given
from graphmem.types import ProfileDict

logger = logging.getLogger("graphmem")


router = APIRouter(route_class=JsonRoute, tags=["chats"], responses=problems.documented())

Name = Annotated[str, Field(max_length=validation.MAX_NAME_CHARS)]


# --- context ----------------------------------------------------------------------------------------------------------


CONTEXT_OPTIONS = {"max_tokens", "whole", "profile", "threshold", "min_relevance", "reference_date"}


class ContextBody(IdsBody):
    """A question, and whose memories to use.

    `min_relevance`: the lowest relevance of a memory (0 to 1), or null for all hits; left out, memories that are not
    relevant enough are left out. `threshold`: the lowest cosine similarity (-1 to 1), or null for none; with it there
    is no default of `min_relevance`. `reference_date`: the moment from which "last week" and the like are counted.
    `max_tokens`: the most tokens of the block, in place of `max_chars`. `whole`: takes whole memories, not sentences.
    """

    query: Annotated[str, Field(min_length=1, max_length=validation.MAX_QUERY_CHARS)]
    filters: dict[str, Any] | None = Field(default=None, description="Ids, and conditions on memories.")
    max_chars: MaxChars | None = None
    max_tokens: MaxChars | None = None
    whole: bool = False
    profile: bool = False
    threshold: Annotated[float, Field(ge=-1, le=1)] | None = None
    min_relevance: LeastRelevance = "default"
    reference_date: Moment | None = None


class ProfileQuery(Ids):
    """Whose profile, and the most tokens of its block."""

    max_tokens: Annotated[int, Field(ge=1, le=validation.MAX_CONTEXT_CHARS)] = PROFILE_TOKENS


@router.get("/profile")
async def profile(query: Annotated[ProfileQuery, Query()], caller: CallerParam, service: ServiceParam) -> ProfileDict:
    """Returns what is known of a user without a question: standing facts first, then what was found last."""
    return await service.memory.profile(**caller.scope(query.named()), max_tokens=query.max_tokens)


class ContextAnswer(BaseModel):
    """The prompt block, "" without memories."""

    context: str


@router.post("/context", responses=problems.documented(502))
async def context(body: ContextBody, caller: CallerParam, service: ServiceParam) -> ContextAnswer:
    """Returns the memories for a question as a block for a prompt: one search, without a language model.

    `max_chars` is by default that of the settings. With the setting `recall` off, the block is empty.
    """
    ids, conditions = scope_and_conditions(body, body.filters, caller)
    options = body.model_dump(include=CONTEXT_OPTIONS, exclude_unset=True)
    memory = service.memory.sync

    def call() -> str:
        settings = settings_in_force(memory, ids.get("user_id"), service.chat_defaults, max_chars=body.max_chars)
        if not settings.recall:
            return ""
        return memory.context(body.query, **ids, filters=conditions, max_chars=settings.max_chars, **options)

    return ContextAnswer(context=await service.run(call))


# --- recall -----------------------------------------------------------------------------------------------------------


class RecallBody(IdsBody):
    """A user's question in a conversation.

    `recent`: the messages before it that the model is shown, oldest first, as {"role", "content", "name"?}; unreadable
    ones are left out. `user_name`, `char_name`: the names of the user and of the character that answers, for the
    language model. `min_relevance`: as in `POST /context`. `recall`, `rewrite`, `rewrite_prompt`, `top_k` and
    `max_chars` come before the settings.
    """

    question: Annotated[str, Field(min_length=1, max_length=validation.MAX_QUERY_CHARS)]
    recent: Annotated[Items[dict[str, Any]], Field(default_factory=list)]
    user_name: Name | None = None
    char_name: Name | None = None
    top_k: TopK | None = None
    max_chars: MaxChars | None = None
    recall: bool | None = None
    rewrite: bool | None = None
    rewrite_prompt: Prompt | None = None
    min_relevance: LeastRelevance = "default"
    reference_date: Moment | None = None


class Step(BaseModel):
    """One query of a recall: the memories found after it, and whether they were enough, so that it was the last.

    `kind`: the question as it is, with its conversation, or as rewritten. `relevance` is the highest of what this query
    found, null without anything; from `relevance_needed` on it is enough. A question can also find enough by a name.
    """

    kind: QueryKind
    query: str
    found: int
    enough: bool
    relevance: float | None
    relevance_needed: float
    took_ms: float


class RecallAnswer(BaseModel):
    """A block for a prompt, "" without memories; the queries of the recall; and the memories found, best first.

    `results` ends at about 16 MiB.

    `rewrite_failed` is there if the question was to be rewritten and was not: the language model took too long
    ("timeout"), failed or refused ("failed"), or gave no other question ("no_query").

    `failed` is there if the memory failed (such as "store_unavailable") or was too slow ("timeout"): the rest then is
    what was found before.
    """

    block: str = ""
    steps: list[Step] = []
    results: list[dict[str, Any]] = []
    took_ms: float
    rewrite_failed: RewriteFailure | None = None
    failed: str | None = None


@router.post("/recall", response_model_exclude_unset=True)
async def recall(body: RecallBody, caller: CallerParam, service: ServiceParam) -> RecallAnswer:
    """Returns the memories for a question in a conversation, in up to three steps.

    The question is searched as it is; then, if it may depend on the conversation, with its last messages (1,200
    characters); then as a language model rewrites it (2.5 seconds). The first step that finds enough is the last. A
    failing or slow memory is no error: the answer comes within three seconds, with `failed`.
    """
    begin = monotonic()
    scope = _scope(caller, body)
    try:
        recalled = await _recalled(body, scope, service, begin + limits.RECALL_SECONDS)
    except BaseException as raised:  # noqa: BLE001  (no failure of the memory may end a chat)
        error = as_exception(raised)
        logger.warning("a recall failed (%s)", log_text(error))
        recalled = Recalled(failure=error)
    if isinstance(recalled.failure, ValidationError):  # not the memory fails, the request cannot be used
        raise recalled.failure
    service.metrics.on_recall(recalled)
    answer = RecallAnswer(
        block=recalled.block,
        steps=[_step(step) for step in recalled.steps],
        results=[dict(responses.hit(hit)) for hit in _fitting(recalled.hits)],
        took_ms=round((monotonic() - begin) * 1000, 1),
    )
    if recalled.rewrite_failure is not None:
        answer.rewrite_failed = recalled.rewrite_failure
    if recalled.failure is not None:
        answer.failed = _kind(recalled.failure)
    return answer


def _fitting(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Yields the first hits, as many as take at most `limits.MAX_PAGE_BYTES`."""
    room = limits.MAX_PAGE_BYTES
    for hit in hits:
        room -= sum(map(memory_bytes, (hit.record, *hit.sources)))
        if room < 0:
            return
        yield hit


def _step(step: RecallStep) -> Step:
    result = step.result
    return Step(
        kind=result.kind,
        query=result.query,
        found=step.found,
        enough=result.is_sufficient,
        relevance=None if result.relevance is None else round(result.relevance, 4),
        relevance_needed=SUFFICIENT,
        took_ms=round(result.seconds * 1000, 1),
    )


async def _recalled(body: RecallBody, scope: Scope, service: Service, deadline: float) -> Recalled:
    of_request = body.model_dump(include={"top_k", "max_chars", "recall", "rewrite", "rewrite_prompt"})
    settings = await _settings(service, scope, deadline - monotonic(), **of_request)
    if not settings.recall:
        return Recalled()
    request = RecallRequest(
        scope,
        body.question,
        body.recent,
        min(settings.top_k, service.memory.sync.limits.max_top_k),
        settings.max_chars,
        min_relevance=body.min_relevance,
        reference_date=body.reference_date,
        rewrite=settings.rewrite,
        rewrite_prompt=settings.rewrite_prompt,
        names={"user": body.user_name, "assistant": body.char_name},
    )
    return await service.chats.arecall_steps(request, max(0.0, deadline - monotonic()))


async def _settings(service: Service, scope: Scope, seconds: float, **of_request: Any) -> ChatSettings:
    """Reads the settings for a request. Raises TimeoutError after so many seconds, GraphmemError."""
    call = service.run(settings_in_force, service.memory.sync, scope.user_id, service.chat_defaults, **of_request)
    return await asyncio.wait_for(call, seconds)


def _scope(caller: Caller, body: IdsBody) -> Scope:
    return validation.required_scope(**caller.scope(body.named()))[0]


def _kind(error: Exception) -> str:
    """Returns the name of a failure: "timeout", or the code of the problem that other routes answer."""
    return "timeout" if isinstance(error, TimeoutError) else code_of(error)


# --- saved chats ------------------------------------------------------------------------------------------------------


class SavedBody(IdsBody):
    """A chat that was saved, as {"role", "content", "name"?, "id"?, "timestamp"?, "metadata"?}, oldest first.

    `messages` is the whole chat, or its last part: the rounds to be stored, better with two messages before them. A
    message is stored once however often it is sent. It is recognised by its "id", or by its words and "timestamp"; one
    with neither, by its words and the two messages before it. `rounds`: how many of the last rounds (a user's message
    with its answers) are stored, by default as the settings say.
    """

    messages: Annotated[Items[dict[str, Any]], Field(max_length=limits.MAX_MESSAGES)]
    rounds: Rounds | None = None


class SavedAnswer(BaseModel):
    """`accepted`: whether the chat is being stored. It is not with the setting `save` off, nor, with `failed`, if the
    memory cannot be used.
    """

    accepted: bool
    failed: str | None = None


@router.post("/chats/saved", status_code=202, response_model_exclude_unset=True)
async def chats_saved(body: SavedBody, caller: CallerParam, service: ServiceParam) -> SavedAnswer:
    """Stores the last rounds of a saved chat in the background, and answers at once.

    A slow or failing memory delays no answer and is no error. The end of the service waits for the chats it accepted.
    """
    scope = _scope(caller, body)
    try:
        settings = await _settings(service, scope, limits.SAVED_SECONDS)
    except (TimeoutError, GraphmemError):  # the thread that stores reads them
        settings = None
    if settings is not None and not settings.save:
        return SavedAnswer(accepted=False)

    def rounds() -> int | None:
        memory, defaults = service.memory.sync, service.chat_defaults
        in_force = settings_in_force(memory, scope.user_id, defaults, **given(rounds=body.rounds))
        return in_force.rounds if in_force.save else None

    try:
        service.chats.store_part(scope, body.messages, rounds)
    except StoreError as error:
        logger.warning("a saved chat could not be taken (%s)", log_text(error))
        return SavedAnswer(accepted=False, failed=_kind(error))
    return SavedAnswer(accepted=True)
