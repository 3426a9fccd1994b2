"""The search configurations that benchmarks compare, as functions from a question to ranked memory ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from graphmem.errors import StoreError
from graphmem.evaluation.datasets import BenchmarkQuestion
from graphmem.memory import Memory
from graphmem.model import Scope, View
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.types import SearchQuery
from graphmem.retrieval.weights import CONFIGURATIONS, SearchWeights

SearchFunction = Callable[[Memory, BenchmarkQuestion, int], list[str]]
"""Takes (memory, case, top_k); returns at most top_k different memory ids, best first."""


def _search_as_users_do(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
    """Searches by `Memory.search`. Raises StoreError for a degraded search."""
    answer = memory.search(case.question, user_id=case.partition, top_k=top_k, reference_date=case.query_time)
    _refuse_degraded(answer.get("degraded", ()))
    return [hit["id"] for hit in answer["results"]]


def _search_with(weights: SearchWeights) -> SearchFunction:
    """Returns a search with other weights, which may leave out arms. It raises StoreError for a degraded search."""

    def search_with_weights(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
        scope = Scope(user_id=case.partition)
        view = View(scope, datetime.now(UTC), partition=scope.partition)
        query = SearchQuery(case.question, view, top_k, now=case.query_time)
        outcome = search(query, memory._engine.search_deps, weights)  # noqa: SLF001  (weights are no public argument)
        _refuse_degraded(outcome.degraded)
        return [hit.record.id for hit in outcome.hits]

    return search_with_weights


def _refuse_degraded(arms: Sequence[str]) -> None:
    """Raises StoreError if arms were left out of a search: its figures would not be those of the configuration."""
    if arms:
        raise StoreError(
            f"a search was answered without {', '.join(arms)}; figures of it would mean nothing, "
            "run the benchmark again"
        )


SEARCH_FUNCTIONS: Mapping[str, SearchFunction] = {
    "full": _search_as_users_do,
    **{name: _search_with(CONFIGURATIONS[name]) for name in CONFIGURATIONS if name != "full"},
}
# Pairs whose differences (first minus second) are reported: the gain of everything over dense and BM25, the gain of
# order and graph over the best flat hybrid, the gain of the graph.
COMPARED_PAIRS = (("full", "hybrid"), ("full", "flat"), ("full", "order"))
