"""The public result types: plain, JSON-ready dicts. Times are ISO 8601 UTC texts."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class MemoryDict(TypedDict):
    """A memory. `further_runs` (absent: none) are the runs beside `run_id` that it was said again in."""

    id: str
    memory: str
    kind: str
    hash: str
    metadata: dict[str, Any]
    memory_type: str | None
    confidence: float
    at: str
    valid_from: str
    valid_to: str | None
    expiration_date: str | None
    created_at: str
    updated_at: str
    user_id: str | None
    agent_id: str | None
    run_id: str | None
    further_runs: NotRequired[list[str]]
    actor_id: str | None
    role: str | None
    session: str
    message: NotRequired[str]
    pending: NotRequired[list[str]]


class SourceDict(TypedDict):
    """The words that a fact was drawn from, found as well."""

    id: str
    memory: str
    at: str
    role: str | None
    actor_id: str | None


class HitDict(MemoryDict):
    """A memory found. `sources`: mere sources of this fact that were found as well, best first (absent: none)."""

    score: float
    similarity: float
    sources: NotRequired[list[SourceDict]]
    explain: NotRequired[dict[str, Any]]


class RelationDict(TypedDict):
    """A relation between two entities, as the memories in view state it."""

    source: str
    relationship: str
    target: str
    memory_ids: list[str]
    facts: list[str]
    valid_at: str | None
    invalid_at: str | None
    confidence: float


class AddResultItem(TypedDict):
    """What became of one message."""

    id: str
    memory: str
    event: str
    kind: str
    at: NotRequired[str]
    actor_id: NotRequired[str | None]
    role: NotRequired[str | None]
    reason: NotRequired[str]
    previous_memory: NotRequired[str]
    valid_to: NotRequired[str]
    replaced_by: NotRequired[str]


class UsageDict(TypedDict):
    """What a language model took for a call, by operation ("facts", "decide") and in all.

    `chunks`: requests that the messages were parted into. `again`: how often it was decided anew, because somebody else
    had stored something near.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    cost: float
    by_operation: dict[str, dict[str, float]]
    chunks: int
    again: int
    dropped: dict[str, int]


class SkippedDict(TypedDict):
    """A message that is not remembered: its place among those of the call (from 0), and why."""

    message: int
    reason: str


class AddResult(TypedDict):
    """What `add` did.

    `pending`: durable, but not in these projections yet; "facts" or "procedure": not yet drawn. `failed`: why, by an
    error's name; its "answer" counts the parts of a language model's answer that could not be used, by why: the facts
    they may have been about are stored as they were found. `skipped`: messages of which nothing is stored, as they hold
    only images or other attachments.
    """

    results: list[AddResultItem]
    relations: list[RelationDict]
    pending: NotRequired[list[str]]
    failed: NotRequired[dict[str, str]]
    skipped: NotRequired[list[SkippedDict]]
    usage: NotRequired[UsageDict]


class SearchResult(TypedDict):
    """What `search` found. `degraded`: the arms that had to be left out."""

    results: list[HitDict]
    relations: list[RelationDict]
    degraded: NotRequired[list[str]]


class ListResult(TypedDict):
    """What `get_all` lists; `total` counts all that match."""

    results: list[MemoryDict]
    relations: list[RelationDict]
    total: int


class ResultList(list[Any]):
    """The results alone, as version "v1.0" returns them; `details` has what else is in a result: "pending", "failed",
    "usage", "relations", "total".
    """

    def __init__(self, result: AddResult | SearchResult | ListResult) -> None:
        super().__init__(result["results"])
        self.details = {name: value for name, value in result.items() if name != "results"}


class ErasedCounts(TypedDict):
    """How much of what was erased: memories in the ledger, points, graph nodes and edges, derived rows."""

    ledger: int
    vectors: int
    graph: int
    derived: int


class Receipt(TypedDict):
    """What a deletion erased. `pending`: gone from the ledger, but not from these projections yet."""

    message: str
    deleted: list[str]
    erased: ErasedCounts
    pending: NotRequired[list[str]]


class ExportResult(TypedDict):
    """What `export` wrote. `path` is None for a file that was given open."""

    memories: int
    erased: int
    aliases: int
    names: int
    path: str | None


class ImportResult(TypedDict):
    """What became of an export's records.

    Memories `added`, `known` (their id or message was there, whatever its scope: they stay as they are), `erased` here
    before, which stay out, and `refused` by `before_store`. `tombstones`: erased memories of the export, noted so that
    they do not come back. `named`: links and names of entities. `skipped_links` lead to memories that are not here.
    `unenriched`: memories that still wait for vectors and entities. `pending`: durable, but not in these projections
    yet.
    """

    added: int
    known: int
    erased: int
    refused: int
    tombstones: int
    named: int
    skipped_links: int
    unenriched: int
    pending: NotRequired[list[str]]


class HistoryDict(TypedDict):
    """One line of a memory's history: mem0's ten columns, and `is_retired`.

    A memory that is not true any more is retired: `add` calls that DELETE, as mem0 does, but nothing is erased, and its
    line is a RETIRE with `is_retired`. A DELETE with `is_deleted` is an erasure. A SCOPE says that the memory was said
    again in another run or with an agent, or that a run it was said in was deleted.
    """

    id: str
    memory_id: str
    old_memory: str | None
    new_memory: str | None
    event: str
    created_at: str
    updated_at: str
    is_deleted: bool
    actor_id: str | None
    role: str | None
    is_retired: bool


class AliasDict(TypedDict):
    """A further name of an entity; `origin`: "user", or the rule that found it ("first name", "said", "spelling")."""

    key: str
    name: str
    origin: str


class EntityDict(TypedDict):
    """Someone or something that the memories in view mention."""

    key: str
    name: str
    type: str
    memories: int
    aliases: list[AliasDict]


class EntityDetails(TypedDict):
    """What is known about someone or something: its memories, newest first, and the relations they state."""

    key: str
    name: str
    type: str
    aliases: list[AliasDict]
    memories: list[MemoryDict]
    relations: list[RelationDict]
