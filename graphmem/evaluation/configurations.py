"""The configurations that are compared: the only place that says how a question is put to a memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from graphmem.errors import StoreError
from graphmem.evaluation.datasets import BenchmarkQuestion
from graphmem.memory import Memory
from graphmem.model import Scope, View
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.types import SearchQuery
from graphmem.retrieval.weights import CONFIGURATIONS, SearchWeights

SearchFunction = Callable[[Memory, BenchmarkQuestion, int], list[str]]
"""(memory, case, top_k) to the ids of memories, best first, each once."""


def _full(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
    """The search as everybody has it."""
    return [hit["id"] for hit in _hits(memory, case, top_k)]


def _by(recipe: SearchWeights) -> SearchFunction:
    """The same search with other weights, or without some of its arms."""

    def find(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
        whose = Scope(user_id=case.partition)
        view = View(whose, datetime.now(UTC), partition=whose.partition)
        asked = SearchQuery(case.question, view, top_k, now=case.query_time)
        answer = search(asked, memory._engine.search_deps, recipe)  # noqa: SLF001  (what users have no door to)
        _refuse_degraded(answer.degraded)
        return [hit.record.id for hit in answer.hits]

    return find


def _hits(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[Any]:
    """What was found. Raises StoreError if an arm was left out: the figures would be of something else."""
    found = memory.search(case.question, user_id=case.partition, top_k=top_k, reference_date=case.query_time)
    _refuse_degraded(found.get("degraded", ()))
    return list(found["results"])


def _refuse_degraded(arms: Sequence[str]) -> None:
    if arms:
        raise StoreError(
            f"a search was answered without {', '.join(arms)}; figures of it would mean nothing, "
            "run the benchmark again"
        )


SEARCH_FUNCTIONS: Mapping[str, SearchFunction] = {
    "full": _full,
    **{name: _by(CONFIGURATIONS[name]) for name in CONFIGURATIONS if name != "full"},
}
# What is told as differences, first minus second: what all of it adds to dense and BM25, what order and graph add to
# the best flat hybrid, what the graph adds.
COMPARED_PAIRS = (("full", "hybrid"), ("full", "flat"), ("full", "order"))
