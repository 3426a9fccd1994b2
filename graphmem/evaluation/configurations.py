"""The search configurations that benchmarks compare, as functions from a question to ranked memory ids.

A `Measurement` says which of them a benchmark asks, by which measures, and which differences it reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from graphmem.errors import StoreError
from graphmem.evaluation import metrics
from graphmem.evaluation.datasets import BenchmarkQuestion
from graphmem.memory import Memory
from graphmem.model import Scope, View
from graphmem.retrieval.arms import Retrieved, encode, retrieve
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.query_analysis import analyze_query
from graphmem.retrieval.types import ScoredIds, SearchQuery
from graphmem.retrieval.weights import CONFIGURATIONS, SearchWeights

SearchFunction = Callable[[Memory, BenchmarkQuestion, int], list[str]]
"""Takes (memory, case, top_k); returns at most top_k different memory ids, best first."""
ScoreFunction = Callable[[Sequence[str], Collection[str], Mapping[str, int]], Mapping[str, float]]
"""Takes the arguments of `metrics.scores`; returns every measure of one question by name."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a benchmark measures: the searches by name, and the measures of each question.

    Each of `pairs` names two searches whose difference (first minus second) is reported, by the measures `compared`.
    """

    searches: Mapping[str, SearchFunction]
    pairs: Sequence[tuple[str, str]]
    scores: ScoreFunction = metrics.scores
    compared: Sequence[str] = ("recall@10", "all@10")


def _search_as_users_do(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
    """Searches by `Memory.search`. Raises StoreError for a degraded search."""
    answer = memory.search(case.question, user_id=case.partition, top_k=top_k, reference_date=case.query_time)
    refuse_degraded(answer.get("degraded", ()))
    return [hit["id"] for hit in answer["results"]]


def _search_with(weights: SearchWeights) -> SearchFunction:
    """Returns a search with other weights, which may leave out arms. It raises StoreError for a degraded search."""

    def search_with_weights(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
        deps = memory.engine.search_deps
        outcome = search(_query(case, top_k), deps, weights)
        refuse_degraded(outcome.degraded)
        return [hit.record.id for hit in outcome.hits]

    return search_with_weights


def _arm_alone(scored_by: Callable[[Retrieved], ScoredIds]) -> SearchFunction:
    """Returns a search that ranks what an arm finds by the arm's own scores.

    It raises StoreError for a degraded search. `_search_with` the weight of one arm would have what the arm does not
    find follow in the order of storing, and no cosines in a script that the embedder does not read.
    """

    def search_arm(memory: Memory, case: BenchmarkQuestion, top_k: int) -> list[str]:
        query = _query(case, top_k)
        analysis = analyze_query(query.text, query.now or query.view.moment)
        deps = memory.engine.search_deps
        retrieved = retrieve(query, analysis, deps.pool.submit(encode, query.text, deps), deps)
        refuse_degraded(sorted(retrieved.degraded))
        return [memory_id for memory_id, _ in scored_by(retrieved)[:top_k]]

    return search_arm


def _by_cosine(retrieved: Retrieved) -> ScoredIds:
    """Returns what was found by vectors, in both spaces for a question that has a vector in both, by the cosines."""
    return sorted([*retrieved.dense, *retrieved.unread], key=lambda pair: -pair[1])


def _query(case: BenchmarkQuestion, top_k: int) -> SearchQuery:
    scope = Scope(user_id=case.partition)
    view = View(scope, datetime.now(UTC), partition=scope.partition)
    return SearchQuery(case.question, view, top_k, now=case.query_time)


def refuse_degraded(arms: Sequence[str]) -> None:
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
# Everything, and what it is made of. The pairs: the gain of everything over dense and BM25, the gain of order and graph
# over the best flat hybrid, the gain of the graph.
EVERYTHING = Measurement(SEARCH_FUNCTIONS, (("full", "hybrid"), ("full", "flat"), ("full", "order")))
# The search, and its arms as somebody has them who does without the rest.
ARMS_ALONE: Mapping[str, SearchFunction] = {
    "full": _search_as_users_do,
    "cosine": _arm_alone(_by_cosine),
    "bm25": _arm_alone(lambda retrieved: retrieved.keyword),
}
