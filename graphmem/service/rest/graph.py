"""Routes for the graph of a scope: its memories, entities and relations, and the names of entities."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from graphmem.errors import NotFoundError
from graphmem.memory import Memory
from graphmem.model import EntityType
from graphmem.service import limits, problems
from graphmem.service.listing import within_answer
from graphmem.service.rest.dependencies import CallerParam, JsonRoute, ServiceParam, until_client_leaves
from graphmem.service.schemas import Body, Ids, IdsBody, QueryMoment, given
from graphmem.types import DayCount, EntityDetails, EntityDict

AS_OF = "Only memories valid at that time: ISO 8601, or seconds since 1970; a bare date is its first moment."
SHOW_RETIRED = "Also memories that are no longer true, and the source messages hidden with them."
SHOW_FORGOTTEN = "Also memories that were forgotten, and the source messages hidden with them."

router = APIRouter(route_class=JsonRoute, tags=["graph"], responses=problems.documented())


# --- the graph --------------------------------------------------------------------------------------------------------


class GraphQuery(Ids):
    """Whose graph, and which part of it."""

    around: str | None = Field(default=None, description="The name of an entity, or the id of a memory.")
    hops: int = Field(default=2, ge=0, le=10, description="How many edges from `around` the nodes are at most.")
    limit: int = Field(
        default=500, ge=1, le=limits.MAX_GRAPH_MEMORIES, description="The graph has the newest memories."
    )
    as_of: QueryMoment | None = Field(default=None, description=AS_OF)
    show_retired: bool = Field(default=False, description=SHOW_RETIRED)
    show_forgotten: bool = Field(default=False, description=SHOW_FORGOTTEN)


class MemoryNode(BaseModel):
    """A memory; its id is that of the memory."""

    id: str
    node: Literal["memory"]
    memory: str
    kind: str
    speaker: str | None
    actor_id: str | None
    role: str | None
    at: str
    valid_from: str
    valid_to: str | None
    forgotten_at: str | None
    user_id: str | None
    agent_id: str | None
    run_id: str | None
    version: int


class EntityNode(BaseModel):
    """An entity; its id is "entity:" and its key."""

    id: str
    node: Literal["entity"]
    key: str
    name: str
    type: str


class GraphEdge(BaseModel):
    """An edge; `relationship` says what it is.

    MENTIONS (with `kind`) leads from a memory to an entity, NEXT to the next memory of a session, SAME_AS (with
    `origin`) to another name of an entity, RELATES_TO (with `predicate`, `facts`, `memory_ids`, `confidence`,
    `valid_at`, `invalid_at`) from one entity to another.
    """

    source: str
    target: str
    key: str
    relationship: Literal["MENTIONS", "NEXT", "RELATES_TO", "SAME_AS"]
    kind: str = ""
    predicate: str = ""
    facts: list[str] = []
    memory_ids: list[str] = []
    confidence: float = 1
    valid_at: str | None = None
    invalid_at: str | None = None
    origin: str = ""


class GraphAttributes(BaseModel):
    """The UUID of the ledger, and the partition of the scope."""

    ledger: str
    partition: str


class GraphAnswer(BaseModel):
    """A graph as `networkx.node_link_graph(…, edges="edges")` reads it."""

    directed: bool
    multigraph: bool
    graph: GraphAttributes
    nodes: list[Annotated[MemoryNode | EntityNode, Field(discriminator="node")]]
    edges: list[GraphEdge]


@router.get("/graph", response_model=GraphAnswer)
async def get_graph(
    query: Annotated[GraphQuery, Query()], caller: CallerParam, service: ServiceParam, request: Request
) -> Response:
    """Returns the newest memories of a scope with their entities and relations, as node-link JSON.

    `around` keeps the nodes at most `hops` edges away from an entity or a memory; the graph is empty without that node.
    """
    ids = caller.scope(query.named())
    options = query.model_dump(include={"around", "hops", "limit", "as_of", "show_retired", "show_forgotten"})
    # The text is made in the thread of the call, not in that of the event loop: a graph may have many nodes.
    async with until_client_leaves(request):
        with within_answer("limit", "ask for fewer memories"):
            text = await service.run(_graph_text, service.memory.sync, ids, options)
    return Response(text, media_type="application/json")


def _graph_text(memory: Memory, ids: dict[str, Any], options: dict[str, Any]) -> str:
    import networkx as nx  # noqa: PLC0415  (takes a quarter of a second)

    data = nx.node_link_data(memory.graph(**ids, **options), edges="edges")
    return GraphAnswer.model_validate(data).model_dump_json(exclude_unset=True)


class DaysQuery(Ids):
    """Whose memories are counted, and where a day begins."""

    utc_offset: int | None = Field(
        default=None,
        ge=-1440,
        le=1440,
        description="How many minutes before midnight in UTC a day begins. By default: in the configured time zone.",
    )
    show_retired: bool = Field(default=False, description=SHOW_RETIRED)
    show_forgotten: bool = Field(default=False, description=SHOW_FORGOTTEN)


@router.get("/graph/days")
async def get_graph_days(
    query: Annotated[DaysQuery, Query()], caller: CallerParam, service: ServiceParam
) -> list[DayCount]:
    """Counts the memories of a scope by the day since which they are valid, the earliest day first."""
    options = query.model_dump(include={"utc_offset", "show_retired", "show_forgotten"})
    return await service.memory.count_by_day(**caller.scope(query.named()), **options)


# --- entities ---------------------------------------------------------------------------------------------------------


class EntitiesQuery(Ids):
    """Whose entities, and which of them."""

    query: str | None = Field(default=None, description="A part of the name.")
    type: str | None = Field(default=None, description=f"One of {', '.join(EntityType)}.")
    limit: int = Field(default=100, ge=1, le=limits.MAX_ENTITIES)
    show_retired: bool = Field(default=False, description=SHOW_RETIRED)
    show_forgotten: bool = Field(default=False, description=SHOW_FORGOTTEN)


class EntityQuery(Ids):
    """Whose memories mention the entity, and how many of them are returned."""

    limit: int = Field(default=100, ge=1, le=limits.MAX_ENTITIES)
    as_of: QueryMoment | None = Field(default=None, description=AS_OF)
    show_retired: bool = Field(default=False, description=SHOW_RETIRED)
    show_forgotten: bool = Field(default=False, description=SHOW_FORGOTTEN)


class NameBody(Body):
    """A name under which an entity is displayed: 1 to 256 characters in one line."""

    name: str


class AliasBody(IdsBody):
    """Two names, and whose memories mention them."""

    a: str
    b: str


@router.get("/graph/entities")
async def get_graph_entities(
    query: Annotated[EntitiesQuery, Query()], caller: CallerParam, service: ServiceParam
) -> list[EntityDict]:
    """Lists the entities that a scope's memories mention, those with the most memories first.

    An entity with several names is listed once. Users, agents and runs are at /entities.
    """
    return await service.memory.entities(
        **caller.scope(query.named()),
        **given(query=query.query, type=query.type, limit=query.limit),
        show_retired=query.show_retired,
        show_forgotten=query.show_forgotten,
    )


@router.get("/graph/entities/{key:path}", responses=problems.documented(404))
async def get_graph_entity(
    key: str, query: Annotated[EntityQuery, Query()], caller: CallerParam, service: ServiceParam
) -> EntityDetails:
    """Returns an entity, by any of its names, with its memories and relations."""
    scope = caller.scope(query.named())
    with within_answer("limit", "ask for fewer memories"):
        details = await service.memory.entity(
            key,
            **scope,
            limit=query.limit,
            as_of=query.as_of,
            show_retired=query.show_retired,
            show_forgotten=query.show_forgotten,
        )
    if details is None:
        raise NotFoundError
    return details


@router.patch("/graph/entities/{key:path}", responses=problems.documented(404))
async def rename_graph_entity(
    key: str, body: NameBody, query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam
) -> EntityDetails:
    """Sets the name under which an entity is displayed. Memories keep their words, and former names still find it."""
    return await service.memory.rename_entity(key, body.name, **caller.scope(query.named()))


@router.post("/graph/aliases", responses=problems.documented(404))
async def add_alias(body: AliasBody, caller: CallerParam, service: ServiceParam) -> EntityDetails:
    """Links two names that mean one entity, and returns the entity."""
    return await service.memory.alias(body.a, body.b, **caller.scope(body.named()))


@router.delete("/graph/aliases", responses=problems.documented(404))
async def remove_alias(body: AliasBody, caller: CallerParam, service: ServiceParam) -> EntityDetails:
    """Removes the link between two names, and returns the entity `a`. No rule links them again."""
    return await service.memory.unalias(body.a, body.b, **caller.scope(body.named()))
