"""Routes for whoever operates the memory: its counts and usage, checks, repairs, and pending work."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from graphmem.service import problems
from graphmem.service.rest.dependencies import AdminParam, CallerParam, JsonRoute, ServiceParam
from graphmem.service.schemas import Ids

router = APIRouter(route_class=JsonRoute, tags=["maintenance"], responses=problems.documented())


# --- counts and usage -------------------------------------------------------------------------------------------------


class UsageLine(BaseModel):
    """The calls of one model for one operation. `cost` is in the currency of the configured prices."""

    operation: str
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    cost: float


class StoreState(BaseModel):
    """The ledger or a projection, up to which sequence number it is, and what it lacks.

    `seq` null: a projection in the memory of the process, which catches up before each read. `oldest_pending_at`: the
    time of the first event among the `pending` sequence numbers. `dead_letters`: rows that the store refused.
    """

    name: str
    provider: str
    available: bool
    seq: int | None
    pending: int
    oldest_pending_at: datetime | None
    dead_letters: int


class JobCountItem(BaseModel):
    """Pending work of one kind and state ("waiting", "running", "failed")."""

    kind: str
    state: str
    number: int
    oldest_seconds: float


class LastCycles(BaseModel):
    """When the latest cycle ended (null: there was none), of how many partitions the last ones are, how many memories
    they changed, and how many of them the brake held.
    """

    ended_at: datetime | None
    partitions: int
    changed: int
    held: int


class StatsAnswer(BaseModel):
    """Rows of the ledger by table, sizes in bytes, stores, pending work, and the usage of models.

    `memories` has all that are stored, `listed` those that GET /memories lists, of all users together, `retired` those
    that are no longer true, `source_messages` the source messages of facts that still are. `usage` is that of the
    scope, all else is about the whole ledger, and only there for an admin. `embedder` made the ledger's vectors;
    `configured_embedder` is there if another one is configured. `unguarded`: erased messages that would not be
    recognised if they came again. `working_provider` and `working_available` (whether its server answered when it was
    last asked) are there if working memory is configured. `last_cycles`: what the last cycles of the
    lifecycle did, one of each user. `dead_letters`: the numbers of events that webhooks did not take, by webhook.
    """

    usage: list[UsageLine]
    memories: int = 0
    listed: int = 0
    retired: int = 0
    source_messages: int = 0
    events: int = 0
    entities: int = 0
    mentions: int = 0
    relations: int = 0
    supports: int = 0
    embeddings: int = 0
    partitions: int = 0
    items: int = 0
    forgotten: int = 0
    jobs: int = 0
    embedder: str = ""
    embedder_dims: int = 0
    multilingual_embedder: str | None = None
    configured_embedder: str = ""
    configured_embedder_dims: int = 0
    embedding_bytes: dict[str, int] = {}
    bytes: int = 0
    unguarded: int = 0
    working_provider: str = ""
    working_available: bool = True
    pending: list[str] = []
    stores: list[StoreState] = []
    job_counts: list[JobCountItem] = []
    last_cycles: LastCycles | None = None
    dead_letters: dict[str, int] = {}


@router.get("/stats", response_model_exclude_unset=True)
async def get_stats(query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam) -> StatsAnswer:
    """Returns the usage of language models by a scope and, for an admin, counts of the whole ledger.

    An admin who names nobody sees the usage of all. Keys of other roles see the usage of their user alone.
    """
    stats = await service.memory.stats(**caller.scope(query.named(), required=False))
    return StatsAnswer.model_validate(stats if caller.role == "admin" else {"usage": stats["usage"]})


# --- checks and repairs -----------------------------------------------------------------------------------------------


class ProjectionReport(BaseModel):
    """Ids of rows that differ from the ledger: missing, extra, stale, and refused by the store.

    `unreadable` and `unreachable` have the reason why the projection could not be compared.
    """

    missing: list[str]
    extra: list[str]
    stale: list[str]
    dead_letters: list[str]
    unreadable: list[str]
    unreachable: list[str]


class VerifyAnswer(BaseModel):
    """Whether ledger and projections agree.

    `ledger`: rows by table. `damaged`: what is broken in the ledger's file, and ids of memories that cannot be read
    or whose words or history were changed outside graphmem. `derived`: wrong derived columns. `failed`: memories whose
    last enrichment failed.
    """

    ok: bool
    ledger: dict[str, int]
    damaged: list[str]
    derived: list[str]
    failed: int
    projections: dict[str, ProjectionReport]


class NoQuery(BaseModel):
    """No query parameters: one that is ignored could be meant to change what a call does."""

    model_config = ConfigDict(extra="forbid")


class PendingAnswer(BaseModel):
    """Unfinished projections ("vectors", "graph") and kinds of jobs ("facts", "procedure", "summary",
    "composition", "description").
    """

    pending: list[str]


class RetryAnswer(PendingAnswer):
    """Jobs that succeeded, and the number of those that failed by the error's name.

    `causes` has, by the error's name, the cause and the remedy of one such failure.
    """

    done: int
    failed: dict[str, int]
    causes: dict[str, str] = {}


@router.post("/verify")
async def verify(_: AdminParam, __: Annotated[NoQuery, Query()], service: ServiceParam) -> VerifyAnswer:
    """Checks the ledger, and compares each projection with it. Changes nothing."""
    return VerifyAnswer.model_validate(await service.memory.verify())


@router.post("/repair")
async def repair(_: AdminParam, __: Annotated[NoQuery, Query()], service: ServiceParam) -> VerifyAnswer:
    """Finishes pending work, repairs differences, and returns the report of POST /verify afterwards.

    After erasures it also rewrites the ledger's file without the erased words.
    """
    return VerifyAnswer.model_validate(await service.memory.repair())


@router.post("/flush")
async def flush(_: AdminParam, __: Annotated[NoQuery, Query()], service: ServiceParam) -> PendingAnswer:
    """Finishes background work, waits for it, and returns what is still pending."""
    return PendingAnswer.model_validate(await service.memory.flush())


@router.post("/retry", response_model_exclude_unset=True)
async def retry(_: AdminParam, __: Annotated[NoQuery, Query()], service: ServiceParam) -> RetryAnswer:
    """Runs all jobs of the language model now, also those that failed before, and waits for them."""
    return RetryAnswer.model_validate(await service.memory.retry_failed())
