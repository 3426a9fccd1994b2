"""Bodies of answers about memories that have other fields than the results of `Memory`, which `graphmem.types` has."""

from __future__ import annotations

from typing import NotRequired

from pydantic import BaseModel
from typing_extensions import TypedDict

from graphmem.types import HistoryDict, HitDict, MemoryDict, SearchResult


class ScoreDetails(TypedDict):
    """The scores of a hit by the names of mem0: `entity_boost` is that of the graph, `bm25_score` that of the words.

    Each is 0 where that arm missed it.
    """

    semantic_score: float
    bm25_score: float
    entity_boost: float
    final_score: float
    threshold: float | None


class HitAnswer(HitDict):
    """A hit; with `explain` its scores by the names of mem0 as well."""

    score_details: NotRequired[ScoreDetails]


class SearchAnswer(SearchResult):
    """The hits of a search, best first. `degraded` names what the search had to do without."""

    results: list[HitAnswer]  # type: ignore[misc]  # each hit has what those of the result have, and more


class ListAnswer(TypedDict):
    """A page of memories, newest first. `total` counts all pages; `next_cursor` is null on the last one.

    A page ends at about 16 MiB, also with fewer memories than asked for.
    `retired`, if there are any, counts the memories that match and are no longer true: without `show_retired` or
    `retired_only` they are neither in the list nor in `total`.
    """

    results: list[MemoryDict]
    total: int
    retired: NotRequired[int]
    next_cursor: str | None


class HistoryItem(HistoryDict):
    """One change of a memory. RETIRE has `is_retired`: the memory is no longer true; DELETE is an erasure."""

    reason: str | None


class MessageAnswer(BaseModel):
    """A sentence that says what was done."""

    message: str
