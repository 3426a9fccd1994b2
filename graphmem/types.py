"""Defines the public result types of `Memory`, and of REST: JSON-ready dicts. Times are ISO 8601 texts in UTC."""

from __future__ import annotations

from typing import Any, NotRequired

# pydantic, which checks REST's answers, accepts the TypedDict of typing from Python 3.12 on only.
from typing_extensions import TypedDict


class AttachmentDict(TypedDict):
    """What came with a message beside words: an "image", "audio", "video" or "file".

    `ref` is a URL, the id of a file, "blobs/" and the name of a file in the memory's folder, or the beginning of data
    that was sent. `caption` says what is to be seen, `transcript` what is said; None: nobody said so.
    """

    kind: str
    ref: str
    caption: str | None
    transcript: str | None


class MemoryDict(TypedDict):
    """A memory. `memory` are the words, and a line for each caption and transcript of its `attachments` (absent: none).

    `further_runs` (absent: none) are the runs besides `run_id` in which its message was added again.

    What the lifecycle and its owner made of it is absent where it is as for a new memory: `layer` "long_term",
    `importance` (0 to 1, else 0.5), `level` (1 to 3, abstracted from others), `pinned`, and `forgotten_at`, the time
    from which on it is hidden.
    """

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
    layer: NotRequired[str]
    importance: NotRequired[float]
    level: NotRequired[int]
    pinned: NotRequired[bool]
    forgotten_at: NotRequired[str]
    attachments: NotRequired[list[AttachmentDict]]
    actor_id: str | None
    role: str | None
    session: str
    message: NotRequired[str]
    event_id: NotRequired[str]
    pending: NotRequired[list[str]]


class ForgottenDict(MemoryDict):
    """A forgotten memory: `reason` says why, `event_id` is the event that `undo` takes back (absent: none is kept)."""

    reason: str


class ForgottenResult(TypedDict):
    """The result of `pending_deletion`; `total` counts all forgotten memories of the scope, not only those returned."""

    results: list[ForgottenDict]
    total: int


class CycleDict(TypedDict):
    """What a cycle of the lifecycle did; see `Memory.tend`."""

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
    brake: NotRequired[str]
    changes: NotRequired[list[dict[str, str]]]


class AbstractionDict(MemoryDict):
    """An abstraction; `abstracts` are the ids of the memories that it was made of."""

    abstracts: list[str]


class AbstractionResult(TypedDict):
    """The result of `abstract`; `skipped` says, by step, what was left out and why."""

    cycle: str
    results: list[AbstractionDict]
    skipped: dict[str, str]


class LayerCounts(TypedDict):
    """Numbers of memories by layer."""

    short_term: int
    long_term: int


class PastCycleDict(TypedDict):
    """A cycle that changed memories: its id and end, and how many it forgot, merged (of the forgotten) and promoted.

    `composed`: memories that it made of others. Memories that were erased since are not counted. `undone`: of what it
    did nothing holds any more.
    """

    cycle: str
    at: str
    forgotten: int
    merged: int
    promoted: int
    composed: int
    undone: bool


class HeldDict(TypedDict):
    """That the brake held the last cycle: how many memories it would have forgotten and of how many, and what to do."""

    forgotten: int
    memories: int
    reason: str


class LifecycleDict(TypedDict):
    """The state of the lifecycle in a scope; see `Memory.lifecycle_status`."""

    enabled: bool
    layers: LayerCounts
    pinned: int
    forgotten: int
    cycled_at: str | None
    cycle_changed: int | None
    held: HeldDict | None
    next_cycle: str | None
    lifecycle_since: str | None
    purge_after_days: int | None
    cycles: list[PastCycleDict]


class ProfileDict(TypedDict):
    """What is known of a user without a question; see `Memory.profile`."""

    context: str
    profile_summary: str
    recent_topics: list[str]


class SourceDict(TypedDict):
    """A source message of a fact, found by the same search as the fact."""

    id: str
    memory: str
    at: str
    role: str | None
    actor_id: str | None
    attachments: NotRequired[list[AttachmentDict]]


class HitDict(MemoryDict):
    """A hit of a search.

    `score` orders the hits of one search, 1 is the best; `similarity` is the cosine of query and memory; `relevance` is
    the probability (0 to 1) that the memory helps to answer. `sources`: source messages of this fact that the search
    also found, best first (absent: none). `explain`: only on request.
    """

    score: float
    similarity: float
    relevance: float
    sources: NotRequired[list[SourceDict]]
    explain: NotRequired[dict[str, Any]]


class AbsenceDict(TypedDict):
    """The result of `why_not`: the step of the search at which a memory falls out, in a sentence and as data."""

    id: str
    step: str
    why: str
    details: dict[str, Any]
    degraded: NotRequired[list[str]]


class JudgementDict(TypedDict):
    """What somebody said of a memory as an answer to a question, in exactly this scope; see `Memory.judge`.

    `verdict` is "right", "wrong" or "missing"; None: it was taken back.
    """

    query: str
    memory_id: str
    verdict: str | None
    judged_at: str
    user_id: str | None
    agent_id: str | None
    run_id: str | None


class JudgementList(TypedDict):
    """The result of `judgements`; `total` counts all of the scope, not only those returned."""

    results: list[JudgementDict]
    total: int


class RelationDict(TypedDict):
    """A relation between two entities, as the memories in view state it; `facts` are the texts that state it."""

    source: str
    relationship: str
    target: str
    memory_ids: list[str]
    facts: list[str]
    valid_at: str | None
    invalid_at: str | None
    confidence: float


class AddResultItem(TypedDict):
    """One message or fact in the result of `add`, and its outcome.

    `event` is ADD, UPDATE, DELETE for a retired memory, or NONE. `reason`: why, if a rule or the language model gave
    one. `previous_memory`: the text before an UPDATE. `valid_to`, `replaced_by`: when a retired memory, or a new
    one that is over already, ended, and the id of the memory that replaces it.
    """

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
    """The language model's usage by one call of `Memory`, in all and by operation ("facts", "decide").

    `chunks`: the number of parts into which the messages were split; each part is a request of its own, with about
    3,000 tokens of messages at most. `repeated_decisions`: how often the model decided again because another caller had
    stored a similar memory meanwhile. `dropped`: unusable parts of the model's answers, counted by reason.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    cost: float
    by_operation: dict[str, dict[str, float]]
    chunks: int
    repeated_decisions: int
    dropped: dict[str, int]


class SkippedDict(TypedDict):
    """A message that was not stored: its index in the call (from 0), and the reason."""

    message: int
    reason: str


class AddResult(TypedDict):
    """The result of `add`.

    `pending`: projections that do not have the stored memories yet; "facts" or "procedure": not drawn yet. `failed`:
    the error's name for each failed step, and `causes` its cause; "answer" in `failed` counts the unusable parts of a
    language model's answer by reason. A fact whose decision is unusable is stored as extracted; a fact without readable
    text, one beyond the limit of an answer, or one that names only messages which were not shown ("from no message
    shown") is not stored. `sources`: with a language model, the ids of the messages that were stored to draw facts
    from, also if none was found in them. `skipped`: messages that are no memories because they hold only images, calls
    of tools or other attachments; they become some, as the reason says, once a model has described these.
    """

    results: list[AddResultItem]
    relations: list[RelationDict]
    pending: NotRequired[list[str]]
    failed: NotRequired[dict[str, str]]
    causes: NotRequired[dict[str, str]]
    sources: NotRequired[list[str]]
    skipped: NotRequired[list[SkippedDict]]
    usage: NotRequired[UsageDict]


class SearchResult(TypedDict):
    """The result of `search`. `degraded`: "vectors", "graph" or "reranker", if the search had to do without them."""

    results: list[HitDict]
    relations: list[RelationDict]
    degraded: NotRequired[list[str]]


class ListResult(TypedDict):
    """The result of `get_all`; `total` counts all matching memories, not only those returned.

    `retired`, if there are any, counts the matching memories that are no longer true; they are in the list, and in
    `total`, only with `show_retired`.
    """

    results: list[MemoryDict]
    relations: list[RelationDict]
    total: int
    retired: NotRequired[int]


class ResultList(list[Any]):
    """The list of results that version "v1.0" returns in place of the result dict.

    `details` has the dict's other keys: "pending", "failed", "causes", "usage", "relations", "total".
    """

    def __init__(self, result: AddResult | SearchResult | ListResult) -> None:
        super().__init__(result["results"])
        self.details = {name: value for name, value in result.items() if name != "results"}


class ErasedCounts(TypedDict):
    """How much a deletion erased: memories in the ledger, points, nodes and edges of the graph, derived rows.

    0 of a projection that is pending: it still has the data.
    """

    ledger: int
    vectors: int
    graph: int
    derived: int


class Receipt(TypedDict):
    """The result of a deletion. `pending`: projections that still have the erased data; the ledger does not."""

    message: str
    deleted: list[str]
    erased: ErasedCounts
    pending: NotRequired[list[str]]


class ExportResult(TypedDict):
    """The number of records that `export` wrote, by kind. `path` is None if an open file was passed."""

    memories: int
    erased: int
    aliases: int
    names: int
    items: int
    settings: int
    keys: int
    path: str | None


class ImportResult(TypedDict):
    """The result of `import_`: counts of an export's records.

    Memories: `added`; `known` (the ledger has their id or message, in any scope; they stay unchanged); `erased` (erased
    here before; they are not imported); `refused` by `before_store`. `tombstones`: erased memories of the export,
    stored so that they do not come back. `named`: aliases and names of entities. `skipped_links`: links to memories
    that the ledger does not have. `skipped_data`: attachments whose data is not kept here, as `attachments.store` is
    not "folder". `items`: exact values of adapters. `settings`: settings of the service that were not set here. `keys`:
    valid keys of the service that the ledger does not have; none of them is stored, so they are to be made anew.
    `unenriched`: memories still without vectors and entities. `pending`: projections that do not have the imported
    memories yet.
    """

    added: int
    known: int
    erased: int
    refused: int
    tombstones: int
    named: int
    skipped_links: int
    skipped_data: int
    items: int
    settings: int
    keys: int
    unenriched: int
    pending: NotRequired[list[str]]


class HistoryDict(TypedDict):
    """One event of a memory's history: mem0's ten columns, and `is_retired`.

    A memory that is no longer true is retired: `add` reports DELETE, as mem0 does, but nothing is erased, and the event
    here is RETIRE with `is_retired`. DELETE with `is_deleted` is an erasure. SCOPE records that the memory's message
    was added again in another run or with an agent, or that a run in which it was added was deleted.
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
    """Another name of an entity. `origin`: "user", or the rule that linked it ("first name", "said", "spelling")."""

    key: str
    name: str
    origin: str


class EntityDict(TypedDict):
    """An entity that the memories in view mention; `memories` is their number."""

    key: str
    name: str
    type: str
    memories: int
    aliases: list[AliasDict]


class DayCount(TypedDict):
    """A day (YYYY-MM-DD), and how many memories are valid since then."""

    day: str
    memories: int


class EntityDetails(TypedDict):
    """An entity with the memories that mention it, newest first, and the relations that they state."""

    key: str
    name: str
    type: str
    aliases: list[AliasDict]
    memories: list[MemoryDict]
    relations: list[RelationDict]


class DeadLetterDict(TypedDict):
    """An event that a webhook did not take, and why; `id` is that of the event.

    `timestamp` and `user_id` are None where the event cannot be told any more.
    """

    id: str
    webhook: str
    event_type: str
    error: str
    user_id: str | None
    timestamp: str | None


class DeadLetterList(TypedDict):
    """The result of `dead_letters`; `total` counts all."""

    results: list[DeadLetterDict]
    total: int


class RetriedDict(TypedDict):
    """Whether a webhook took an event now, and if not, why."""

    delivered: bool
    error: NotRequired[str]
