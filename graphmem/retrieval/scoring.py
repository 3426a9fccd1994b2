"""Steps from the feature table to candidates, PageRank seeds, second-hop seeds and scores. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log

import numpy as np

from graphmem.retrieval.features import Column, FeatureTable, min_max_normalized
from graphmem.retrieval.reordering import RankedMemory
from graphmem.retrieval.weights import Weights

SEED_LIMIT = 20
# The most hits for top_k="auto", which gives all above the default relevance.
AUTO_MAX = 50
MEMORY_SHARE, ENTITY_SHARE = 0.2, 0.8
# The weight of the PageRank score when second-hop seeds are chosen.
GRAPH_FACTOR = 1.2
# What the log odds of relevance count beside a score, in partitions of up to so many memories and from so many on.
# Features are scaled by what one search finds: where that is little, they tell little (docs/decisions/0053, 0062).
WEIGHT_IN_SMALL, WEIGHT_IN_LARGE, SMALL_PARTITION, LARGE_PARTITION = 0.1, 0.05, 60, 90
# What the order takes in small partitions at least as the relevance of a memory that resembles the query in nothing,
# and of one that only asks, which may tell something in the same sentence; and the bound that keeps log odds finite.
LEAST_RELEVANCE, LEAST_OF_QUESTIONS, _TINY = 0.03, 0.01, 1e-6


def top_rows(table: FeatureTable, weights: Weights, limit: int) -> list[str]:
    """Returns the ids of the rows with the greatest totals, best first; equal rows in the table's order."""
    order = np.argsort(-table.total(weights), kind="stable")
    return [table.ids[i] for i in order[:limit]]


def seed_weights(table: FeatureTable, weights: Weights) -> dict[str, float]:
    """Returns the shares of the `SEED_LIMIT` best memories as PageRank seeds, {id: share}, summing to 1.

    A share is proportional to (total - total of the first memory that is no seed)³.
    """
    totals = min_max_normalized(table.total(weights))
    order = np.argsort(-totals, kind="stable")
    first_excluded = totals[order[SEED_LIMIT]] if len(order) > SEED_LIMIT else 0.0
    cubed_leads = {
        table.ids[i]: float(totals[i] - first_excluded) ** 3 for i in order[:SEED_LIMIT] if totals[i] > first_excluded
    }
    return _normalized_to_sum(cubed_leads)


def second_hop_seeds(table: FeatureTable, weights: Weights, limit: int) -> dict[str, float]:
    """Returns the memories from which the second hop starts, best first, with their shares (see `top_shares`).

    Their total is the normalised sum by `weights` plus `GRAPH_FACTOR` times the PageRank score.
    """
    graph = table.columns.get("graph", np.zeros(len(table.ids)))
    return top_shares(table, min_max_normalized(min_max_normalized(table.total(weights)) + GRAPH_FACTOR * graph), limit)


def top_shares(table: FeatureTable, totals: Column, limit: int) -> dict[str, float]:
    """Returns the rows with the greatest positive totals, best first: {id: (total / greatest total)²}."""
    order = np.argsort(-totals, kind="stable")[:limit]
    greatest = totals.max(initial=0.0)
    return {table.ids[i]: float(totals[i] / greatest) ** 2 for i in order if totals[i] > 0}


def balance_seeds(
    memories: Mapping[str, float], entities: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Divides the seeds' weight: `MEMORY_SHARE` to memories, `ENTITY_SHARE` to entities, by their weights.

    `memories` are shares that sum to 1 at most, `entities` any weights. Without entities the memories keep all.
    """
    entity_shares = _normalized_to_sum(entities)
    if not entity_shares:
        return dict(memories), {}
    return (
        {uid: MEMORY_SHARE * share for uid, share in memories.items()},
        {key: ENTITY_SHARE * share for key, share in entity_shares.items()},
    )


def _normalized_to_sum(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()} if total > 0 else {}


def scores(totals: Column) -> Column:
    """Returns totals divided by the best one, cut to 0..1; all 1 if no total is positive.

    Scores order the hits of one search and cannot be compared between searches.
    """
    if not totals.size:
        return totals
    return np.ones_like(totals) if totals.max() <= 0 else np.clip(totals / totals.max(), 0.0, 1.0)


def smallness(size: int) -> float:
    """Returns 1 for a partition of up to `SMALL_PARTITION` memories, then less, 0 from `LARGE_PARTITION` on."""
    return min(max((LARGE_PARTITION - size) / (LARGE_PARTITION - SMALL_PARTITION), 0.0), 1.0)


def order_by_relevance(
    ranked: Sequence[RankedMemory], relevances: Mapping[str, float], size: int
) -> list[RankedMemory]:
    """Returns memories, best first, with the relevance (0..1) of each in its score and place, as it weighs in a
    partition of `size` memories. Those without one stay behind the others.
    """
    weight = WEIGHT_IN_LARGE + smallness(size) * (WEIGHT_IN_SMALL - WEIGHT_IN_LARGE)
    totals: dict[str, float] = {}
    for memory in ranked:
        if memory.id in relevances:
            value = min(max(relevances[memory.id], _TINY), 1.0 - _TINY)
            totals[memory.id] = memory.score + weight * log(value / (1.0 - value))
    best = max(totals.values(), default=0.0)

    def scored(memory: RankedMemory) -> RankedMemory:
        score = max(1.0 + (totals[memory.id] - best), 0.0)
        return memory._replace(score=score, relevance_share=score - memory.score)

    assessed = sorted((memory for memory in ranked if memory.id in totals), key=lambda memory: -totals[memory.id])
    return [*map(scored, assessed), *(memory for memory in ranked if memory.id not in totals)]


def top_ids(scores_by_id: Mapping[str, float], limit: int) -> list[str]:
    """Returns the ids with the highest positive scores, best first; equal ones in the mapping's order."""
    ranked = sorted(scores_by_id, key=lambda uid: -scores_by_id[uid])
    return [uid for uid in ranked[:limit] if scores_by_id[uid] > 0]


def union_in_order(*id_lists: Iterable[str]) -> list[str]:
    """Returns all ids, each once, in the order of their first occurrence."""
    return list(dict.fromkeys([uid for ids in id_lists for uid in ids]))
