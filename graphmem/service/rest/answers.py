"""The bodies of answers about memories: the results of `Memory`, which `graphmem.types` documents, as models.

Fields with a default are left out where a result does not have them: routes are declared with
`response_model_exclude_unset=True`.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class Attachment(BaseModel):
    """What came with a message: an "image", "audio", "video" or "file". `caption` says what is to be seen, `transcript`
    what is said.
    """

    kind: str
    ref: str
    caption: str | None
    transcript: str | None


class MemoryAnswer(BaseModel):
    """A memory. `further_runs`: the runs beside `run_id` in which its message was added again.

    `memory` are the words, and a line for each caption and transcript of its `attachments`.

    `layer`, `importance`, `level`, `pinned` and `forgotten_at` are absent where they are as for a new memory.
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
    further_runs: list[str] = []
    layer: str = "short_term"
    importance: float = 0.5
    level: int = 0
    pinned: bool = False
    forgotten_at: str | None = None
    attachments: list[Attachment] = []
    actor_id: str | None
    role: str | None
    session: str


class ChangedMemory(MemoryAnswer):
    """A memory after a change. `pending`: projections that do not have it yet; `event_id`: what `undo` takes back."""

    message: str
    event_id: str = ""
    pending: list[str] = []


class Source(BaseModel):
    """A source message of a fact, found by the same search."""

    id: str
    memory: str
    at: str
    role: str | None
    actor_id: str | None
    attachments: list[Attachment] = []


class ScoreDetails(BaseModel):
    """The scores of a hit by the names of mem0: `entity_boost` is that of the graph, `bm25_score` that of the words.

    Each is 0 where that arm missed it.
    """

    semantic_score: float
    bm25_score: float
    entity_boost: float
    final_score: float
    threshold: float | None


class HitAnswer(MemoryAnswer):
    """A hit. `score` orders the hits of one search, 1 is the best; `similarity` is the cosine of query and memory;
    `relevance` is the probability (0 to 1) that the memory helps to answer.

    `sources`: source messages of this fact that were found as well. `explain` and `score_details`: on request.
    """

    score: float
    similarity: float
    relevance: float
    sources: list[Source] = []
    explain: dict[str, Any] = {}
    score_details: ScoreDetails | None = None


class AbsenceAnswer(BaseModel):
    """Why a search does not find a memory: the `step` at which it falls out ("not_visible", "filtered", "not_found",
    "threshold", "grouped", "relevance", "reranked", "rank"; "hit" if it is found), in a sentence and as data.
    """

    id: str
    step: str
    why: str
    details: dict[str, Any]
    degraded: list[str] = []


class RelationAnswer(BaseModel):
    """A relation between two entities; `facts` are the texts that state it."""

    source: str
    relationship: str
    target: str
    memory_ids: list[str]
    facts: list[str]
    valid_at: str | None
    invalid_at: str | None
    confidence: float


class SearchAnswer(BaseModel):
    """The hits of a search, best first. `degraded` names what the search had to do without."""

    results: list[HitAnswer]
    relations: list[RelationAnswer]
    degraded: list[str] = []


class AddedItem(BaseModel):
    """One stored message or fact. `event`: ADD, UPDATE, DELETE for a retired memory, or NONE for a known message."""

    id: str
    memory: str
    event: str
    kind: str
    at: str = ""
    actor_id: str | None = None
    role: str | None = None
    reason: str = ""
    previous_memory: str = ""
    valid_to: str = ""
    replaced_by: str = ""


class Skipped(BaseModel):
    """A message that was not stored: its index in the request, from 0, and the reason."""

    message: int
    reason: str


class AddAnswer(BaseModel):
    """What became of the messages. `pending`: projections that do not have them yet, or "facts": not drawn yet.

    `failed` and `causes`: the error and its cause for each step that failed. `usage`: that of the language model.
    `sources`: ids of the messages stored to draw facts from, also if none was found in them.
    """

    results: list[AddedItem]
    relations: list[RelationAnswer]
    pending: list[str] = []
    failed: dict[str, str] = {}
    causes: dict[str, str] = {}
    sources: list[str] = []
    skipped: list[Skipped] = []
    usage: dict[str, Any] = {}


class ListAnswer(BaseModel):
    """A page of memories, newest first. `total` counts all pages; `next_cursor` is null on the last one.

    A page ends at about 16 MiB, also with fewer memories than asked for.
    `retired`, if there are any, counts the memories that match and are no longer true: without `show_retired` or
    `retired_only` they are neither in the list nor in `total`.
    """

    results: list[MemoryAnswer]
    total: int
    retired: int = 0
    next_cursor: str | None


class HistoryItem(BaseModel):
    """One change of a memory. RETIRE has `is_retired`: the memory is no longer true; DELETE is an erasure."""

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
    reason: str | None


class Erased(BaseModel):
    """What a deletion erased: memories, points of the vector index, nodes and edges of the graph, derived rows."""

    ledger: int
    vectors: int
    graph: int
    derived: int


class ReceiptAnswer(BaseModel):
    """The receipt of a deletion. `pending`: projections that still have the erased data."""

    message: str
    deleted: list[str]
    erased: Erased
    pending: list[str] = []


class MessageAnswer(BaseModel):
    """A sentence that says what was done."""

    message: str
