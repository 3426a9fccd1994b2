"""The routes of mem0's own server about memories: the same paths, bodies and answers, with additions."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any, ClassVar, Literal, cast

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from graphmem import responses
from graphmem.boundary import validation
from graphmem.boundary.filters import OPERATORS
from graphmem.commands.types import UNSET, MessageIdReused
from graphmem.errors import NotFoundError
from graphmem.integrations.base import result_dict
from graphmem.memory import DEFAULT_LIST_LIMIT, Memory
from graphmem.model import EntityType
from graphmem.queries.history import events_of_memory
from graphmem.service import limits, listing, problems
from graphmem.service.auth import Caller
from graphmem.service.listing import cursor_after, place_after
from graphmem.service.problems import Problem
from graphmem.service.rest import answers
from graphmem.service.rest.dependencies import CallerParam, JsonRoute, Service, ServiceParam, until_client_leaves
from graphmem.service.schemas import (
    IGNORED,
    Body,
    Ids,
    IdsBody,
    Items,
    LeastRelevance,
    Mem0Fields,
    Moment,
    QueryMoment,
    given,
)
from graphmem.types import AbsenceDict, AddResult, MemoryDict, Receipt

router = APIRouter(route_class=JsonRoute, tags=["memories"], responses=problems.documented(502))

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=limits.MAX_IDEMPOTENCY_CHARS,
        description="Makes a repeated request store nothing: its messages without an id get one of this key and of "
        "their place, counted from the last. Other words at a place that is in use are refused with 422.",
    ),
]


class ChatMessage(BaseModel):
    """A message. Further keys, which clients of language models add, are ignored."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: str
    content: str | dict[str, Any] | Items[str | dict[str, Any]] | None = Field(
        default=None, description="Text, a content part, or a list of these."
    )
    name: str | None = Field(default=None, description="The speaker's name.")
    timestamp: Moment | None = Field(default=None, description="When it was said.")
    id: str | int | None = Field(default=None, description="An id by which a repeated message is recognised.")
    metadata: dict[str, Any] | None = None


# Fields by which mem0's platform filters and that memories do not have here.
_NEVER_STORED = ("categories", "feedback", "keywords", "memory_ids")


class AddBody(IdsBody, Mem0Fields):
    """Messages to store, and whose they are."""

    messages: str | ChatMessage | Items[ChatMessage]
    metadata: dict[str, Any] | None = None
    timestamp: Moment | None = Field(default=None, description="When they were said; by default now.")
    expiration_date: Moment | None = Field(default=None, description="The last day on which they are shown, or a time.")
    infer: bool | None = Field(default=None, description="Draw facts; by default if a language model is configured.")
    memory_type: str | None = None
    app_id: str | None = Field(default=None, description="The program whose messages they are, stored as metadata.")
    source: str | None = Field(default=None, description="What sends them, stored as metadata.")
    prompt: str | None = Field(default=None, description="Replaces the configured instructions for drawing facts.")
    importance: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="How important the new memories are to the lifecycle; computed by default."
    )


class SearchBody(IdsBody, Mem0Fields):
    """A question, and whose memories are searched: by ids, here or in `filters`."""

    further_ignored: ClassVar[frozenset[str]] = frozenset({"metadata", "source"})

    query: str
    app_id: str | None = Field(default=None, description="Search the memories with this `app_id` in their metadata.")
    filters: dict[str, Any] | None = Field(default=None, description="Ids, and conditions on memories.")
    top_k: int | Literal["auto"] | None = Field(default=None, description="1 to 1000 hits; by default 10.")
    limit: int | None = Field(default=None, description="The same as `top_k`.")
    threshold: float | None = Field(default=None, description="The lowest similarity of a hit.")
    min_relevance: LeastRelevance = Field(
        default=None, description='The lowest relevance of a hit, 0 to 1; "default": that of `POST /context`.'
    )
    kinds: str | Items[str] | None = None
    as_of: Moment | None = Field(default=None, description="Search the memories valid at that time.")
    reference_date: Moment | None = Field(default=None, description='From when "last week" is counted.')
    explain: bool | None = None
    show_expired: bool | None = None
    show_retired: bool | None = Field(default=None, description="Also memories that are no longer true.")
    show_forgotten: bool | None = Field(default=None, description="Also memories that were forgotten.")
    rerank: bool | None = Field(
        default=None, description="Let the reranker order the hits; ignored if none is configured."
    )
    metadata: Any = Field(default=None, description=f"{IGNORED} Conditions stand in `filters`.")
    source: Any = Field(default=None, description=IGNORED)


class UpdateBody(Body, Mem0Fields):
    """The changes of a memory; keys that `metadata` does not have stay, `expiration_date: null` removes it."""

    text: str | None = None
    metadata: dict[str, Any] | None = None
    replace_metadata: bool = Field(default=False, description="Drop the keys that `metadata` does not have.")
    expiration_date: Moment | None = None


class ScopeQuery(Ids, Mem0Fields):
    """The ids of a scope as query parameters."""


class ListQuery(ScopeQuery):
    """Which memories are listed, and which page of the list."""

    limit: Annotated[int, Field(ge=1, le=limits.MAX_PAGE)] | None = Field(
        default=None, description=f"Memories of a page; by default {DEFAULT_LIST_LIMIT}."
    )
    top_k: Annotated[int, Field(ge=0, le=limits.MAX_PAGE)] | None = Field(
        default=None, description="The same as `limit`; 0 only counts."
    )
    cursor: str = Field(default="", description="The `next_cursor` of the page before.")
    kinds: list[str] | None = Field(default=None, description="Any of episode, fact, summary; also with commas.")
    as_of: QueryMoment | None = Field(
        default=None, description="List the memories valid at that time: ISO 8601, or seconds since 1970."
    )
    show_expired: bool = False
    show_retired: bool = Field(
        default=False, description="List also memories that are no longer true, and source messages hidden with them."
    )
    retired_only: bool = Field(default=False, description="List only these.")
    show_forgotten: bool = Field(default=False, description="List also memories that were forgotten.")
    q: str | None = Field(
        default=None,
        description="List the memories whose words, with their speaker's name, contain all of these; with "
        "`show_retired` also those of which a former text in their history does.",
    )
    mentions_type: str | None = Field(
        default=None, description=f"List the memories that mention a name of this type: {', '.join(EntityType)}."
    )
    since: QueryMoment | None = Field(default=None, description="List the memories observed at that time or later.")
    until: QueryMoment | None = Field(default=None, description="List the memories observed before that time.")


@router.post("/memories", responses={202: {"model": AddResult}})
async def add_memories(
    body: AddBody,
    caller: CallerParam,
    service: ServiceParam,
    response: Response,
    wait: Annotated[bool, Query(description="False answers with 202 and leaves the work to the background.")] = True,  # noqa: FBT002
    idempotency_key: IdempotencyKey = None,
) -> AddResult:
    """Stores messages as memories and, with a language model, the facts drawn from them.

    Messages without an id or a time that all repeat what was said less than a minute ago are known.
    """
    return await store_messages(body, caller.scope(body.named()), service, response, idempotency_key, wait=wait)


async def store_messages(
    body: AddBody,
    ids: dict[str, Any],
    service: Service,
    response: Response,
    idempotency_key: str | None,
    *,
    wait: bool = True,
) -> AddResult:
    """Stores the messages of a body in a scope."""
    infer = body.infer
    body.name_ignored(response)
    if infer and service.engine.llm is None and not service.settings.infer_needs_llm:
        infer = False
        body.name_ignored(response, "infer", *given(prompt=body.prompt))
    given_messages = body.messages
    if isinstance(given_messages, str):
        given_messages = ChatMessage(role="user", content=given_messages)
    listed = given_messages if isinstance(given_messages, list) else [given_messages]
    messages = [message.model_dump(exclude_unset=True) for message in listed]
    made_ids = {} if idempotency_key is None else _ids_of_places(messages, idempotency_key)
    try:
        added = await service.memory.add(
            [
                {**message, "id": made_ids[place]} if place in made_ids else message
                for place, message in enumerate(messages)
            ],
            **ids,
            metadata=_with_origin(body),
            timestamp=body.timestamp,
            expiration_date=body.expiration_date,
            infer=infer,
            memory_type=body.memory_type,
            prompt=body.prompt,
            wait=wait,
            repeat_window=limits.REPEAT_SECONDS,
            importance=body.importance,
        )
    except MessageIdReused as error:
        if error.message_id in made_ids.values():
            detail = "Idempotency-Key: was sent before with other messages; send another key with each new request"
            raise Problem(422, detail, "idempotency_key_reused") from None
        raise
    if not wait:
        response.status_code = 202
    return cast("AddResult", result_dict(added))


def _with_origin(body: AddBody) -> dict[str, Any] | None:
    """Returns the metadata of a body with its `app_id` and `source`. Raises Problem 400 if it has others of its own."""
    origin = given(app_id=body.app_id, source=body.source)
    metadata = body.metadata or {}
    for name, value in origin.items():
        if metadata.get(name, value) != value:
            raise Problem(400, f"{name}: differs from metadata.{name}, where it is stored; give it in one place only")
    return {**metadata, **origin} if origin else body.metadata


def _ids_of_places(messages: list[dict[str, Any]], key: str) -> dict[int, str]:
    """Returns an id for each message that has none, by its index: of an idempotency key and its place from the end.

    A chat grows at its end, so that a longer one has other words at the same places.
    """
    return {
        index: blake2b(
            f"{key}:{len(messages) - 1 - index}".encode(), digest_size=32, person=b"graphmem request"
        ).hexdigest()
        for index, message in enumerate(messages)
        if message.get("id") is None
    }


@router.get("/memories")
async def get_memories(
    query: Annotated[ListQuery, Query()], caller: CallerParam, service: ServiceParam, response: Response
) -> answers.ListAnswer:
    """Lists memories, newest first, a page at a time. An admin who names nobody sees the memories of all."""
    query.name_ignored(response)
    ids = caller.scope(query.named(), required=False)
    kinds = None if query.kinds is None else [kind for one in query.kinds for kind in one.split(",")]
    options: dict[str, Any] = {
        "kinds": kinds,
        "as_of": query.as_of,
        "show_expired": query.show_expired,
        "show_retired": query.show_retired,
        "show_forgotten": query.show_forgotten,
        "retired_only": query.retired_only,
        "q": query.q,
        "mentions_type": query.mentions_type,
        "since": query.since,
        "until": query.until,
    }
    asked = validation.merge_aliases(query.limit, query.top_k, ("limit", "top_k"))
    found = await service.run(
        listing.list_memories,
        service.memory.sync,
        ids,
        place_after(query.cursor, {**ids, **options}),
        limit=DEFAULT_LIST_LIMIT if asked is None else asked,
        **options,
    )
    is_last = found.is_last or not found.results
    answer = answers.ListAnswer(
        results=found.results,
        total=found.total,
        next_cursor=None if is_last else cursor_after(found.results[-1], {**ids, **options}),
    )
    if found.retired:
        answer["retired"] = found.retired
    return answer


@router.delete("/memories")
async def delete_memories(
    query: Annotated[ScopeQuery, Query()], caller: CallerParam, service: ServiceParam, response: Response
) -> Receipt:
    """Erases all memories of a scope. A key that is bound to a user erases that user's."""
    query.name_ignored(response)
    if caller.user_id is None and not any(query.named().values()):
        raise Problem(400, "user_id, agent_id and run_id are all missing; name whose memories to erase")
    receipt = await service.memory.delete_all(**caller.scope(query.named()))
    receipt["message"] = "All relevant memories deleted"
    return receipt


@router.get("/memories/{memory_id}", responses=problems.documented(404))
async def get_memory(
    memory_id: str,
    query: Annotated[ScopeQuery, Query()],
    caller: CallerParam,
    service: ServiceParam,
    response: Response,
) -> MemoryDict:
    """Returns a memory, also a retired or expired one."""
    query.name_ignored(response)
    record = await service.memory.get(memory_id, **caller.scope(query.named(), required=False))
    if record is None:
        raise NotFoundError
    return record


@router.put("/memories/{memory_id}", responses=problems.documented(404))
async def update_memory(
    memory_id: str,
    body: UpdateBody,
    query: Annotated[ScopeQuery, Query()],
    caller: CallerParam,
    service: ServiceParam,
    response: Response,
) -> MemoryDict:
    """Changes the text, the metadata or the expiration date of a memory. Its history keeps the former text."""
    query.name_ignored(response)
    body.name_ignored(response)
    return await service.memory.update(
        memory_id,
        text=body.text,
        metadata=body.metadata,
        replace_metadata=body.replace_metadata,
        expiration_date=body.expiration_date if "expiration_date" in body.model_fields_set else UNSET,
        **caller.scope(query.named(), required=False),
    )


@router.delete("/memories/{memory_id}", responses=problems.documented(404))
async def delete_memory(
    memory_id: str,
    query: Annotated[ScopeQuery, Query()],
    caller: CallerParam,
    service: ServiceParam,
    response: Response,
) -> Receipt:
    """Erases a memory, with what else has its words. The history keeps its events without them."""
    query.name_ignored(response)
    receipt = await service.memory.delete(memory_id, **caller.scope(query.named(), required=False))
    receipt["message"] = "Memory deleted successfully"
    return receipt


@router.get("/memories/{memory_id}/history", responses=problems.documented(404))
async def memory_history(
    memory_id: str,
    query: Annotated[ScopeQuery, Query()],
    caller: CallerParam,
    service: ServiceParam,
    response: Response,
) -> list[answers.HistoryItem]:
    """Returns the changes of a memory, oldest first; of an erased one without the words."""
    query.name_ignored(response)
    ids = caller.scope(query.named(), required=False)
    with listing.within_answer("memory_id", "GET /export sends the whole history of all memories of a user"):
        return await service.run(_history, service.memory.sync, memory_id, ids)


def _history(memory: Memory, memory_id: str, ids: dict[str, str]) -> list[answers.HistoryItem]:
    engine = memory.engine
    engine.check_open()
    events = events_of_memory(engine.ledger, validation.memory_id(memory_id), validation.scope(**ids)[0])
    if not events:
        raise NotFoundError
    return [{**responses.event(event), "reason": event.reason} for event in events]


def _search_options(body: SearchBody, caller: Caller, service: Service, response: Response) -> dict[str, Any]:
    """Returns the arguments of a search beside its query: whose memories, which of them, and how many.

    Names the fields that are ignored in a header of the response. `rerank` is one without a reranker: clients of mem0
    set it for all services.
    """
    has_reranker = service.memory.sync.engine.has_reranker
    body.name_ignored(response, used={"rerank"} if has_reranker else ())
    ids, conditions = scope_and_conditions(body, body.filters, caller, body.app_id)
    return {
        **ids,
        "filters": conditions,
        **given(
            top_k=body.top_k,
            limit=body.limit,
            threshold=body.threshold,
            min_relevance=body.min_relevance,
            kinds=body.kinds,
            as_of=body.as_of,
            reference_date=body.reference_date,
            show_expired=body.show_expired,
            show_retired=body.show_retired,
            show_forgotten=body.show_forgotten,
            rerank=body.rerank if has_reranker else None,
        ),
    }


@router.post("/memories/{memory_id}/why-not", responses=problems.documented(404))
async def explain_absence(
    memory_id: str, body: SearchBody, caller: CallerParam, service: ServiceParam, request: Request, response: Response
) -> AbsenceDict:
    """Tells why a search does not find a memory, or at which place it does: the step at which it falls out."""
    options = _search_options(body, caller, service, response)
    async with until_client_leaves(request):
        return await service.memory.why_not(body.query, memory_id, **options)


@router.post("/search")
async def search_memories(
    body: SearchBody, caller: CallerParam, service: ServiceParam, request: Request, response: Response
) -> answers.SearchAnswer:
    """Returns the memories that answer a question best, also over several hops.

    Hits that take more than 16 MiB are refused: ask for fewer.
    """
    options = {**_search_options(body, caller, service, response), **given(explain=body.explain)}
    async with until_client_leaves(request):
        with listing.within_answer("top_k", "ask for fewer hits"):
            found = result_dict(await service.memory.search(body.query, **options))
    if body.explain:
        found["results"] = [{**hit, "score_details": _score_details(hit, body.threshold)} for hit in found["results"]]
    return cast("answers.SearchAnswer", found)


def scope_and_conditions(
    ids: Ids, filters: dict[str, Any] | None, caller: Caller, app_id: str | None = None
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns the scope of a call whose ids stand in its body or in its filters, and the conditions of the filters.

    `app_id` is one more condition. Raises ValidationError, and the problems of `Caller.scope`; Problem 400 for a
    condition on what memories of mem0's platform have and these never do, as it would find nothing.
    """
    scope, conditions = validation.scope(**ids.named(), filters=filters)
    conditions = _with_metadata_inside(conditions)
    _refuse_never_stored(conditions)
    if app_id is not None:
        conditions = {"AND": [{"app_id": {"eq": app_id}}, *given(filters=conditions).values()]}
    return caller.scope({} if scope is None else scope.parts), conditions


def _with_metadata_inside(filters: Any) -> Any:
    """Returns filters with the keys under "metadata", as mem0's platform nests them, as conditions of their own."""
    if isinstance(filters, list):
        return [_with_metadata_inside(part) for part in filters]
    if not isinstance(filters, dict):
        return filters
    conditions = {
        name: _with_metadata_inside(value) if name in validation.LOGIC else value for name, value in filters.items()
    }
    nested, parts = conditions.get("metadata"), conditions.get("AND", [])
    if not isinstance(nested, dict) or not nested or nested.keys() & set(OPERATORS) or not isinstance(parts, list):
        return conditions
    del conditions["metadata"]
    return {**conditions, "AND": [*parts, nested]}


def _refuse_never_stored(conditions: Any) -> None:
    for name, value in conditions.items() if isinstance(conditions, dict) else ():
        if name in _NEVER_STORED:
            remedy = "memories have none here; keep it in metadata under another name"
            raise Problem(400, f"filters.{name}: {remedy}", "invalid_argument")
        if name in validation.LOGIC:
            for part in value if isinstance(value, list) else [value]:
                _refuse_never_stored(part)


def _score_details(hit: Mapping[str, Any], threshold: float | None) -> answers.ScoreDetails:
    arms = hit["explain"]["arms"]
    scores = {name: arms.get(name, {}).get("score", 0.0) for name in ("keyword", "graph")}
    return {
        "semantic_score": hit["similarity"],
        "bm25_score": scores["keyword"],
        "entity_boost": scores["graph"],
        "final_score": hit["score"],
        "threshold": threshold,
    }
