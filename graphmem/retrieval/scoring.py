"""Sums and shares: from a table and weights to candidates, seeds and scores. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from graphmem.retrieval.features import Column, FeatureTable, min_max_normalized
from graphmem.retrieval.weights import Weights

SEED_LIMIT = 20
# For top_k="auto". Measured on both development sets: as much of what is wanted as in the first ten hits, in half as
# many for questions with one answer and half as many again for those that ask for a list.
AUTO_SHARE, AUTO_MIN, AUTO_MAX = 0.65, 3, 50
MEMORY_SHARE, ENTITY_SHARE = 0.2, 0.8
# How much the walk counts in choosing what the second hop goes on from.
WALK_FACTOR = 1.2


def top_rows(table: FeatureTable, weights: Weights, limit: int) -> list[str]:
    """The ids of the best rows, best first; equal ones in the table's order."""
    order = np.argsort(-table.total(weights), kind="stable")
    return [table.ids[i] for i in order[:limit]]


def seed_weights(table: FeatureTable, weights: Weights) -> dict[str, float]:
    """The best memories as seeds: by the cube of what they are ahead of the first that is none."""
    totals = min_max_normalized(table.total(weights))
    order = np.argsort(-totals, kind="stable")
    behind = totals[order[SEED_LIMIT]] if len(order) > SEED_LIMIT else 0.0
    ahead = {table.ids[i]: float(totals[i] - behind) ** 3 for i in order[:SEED_LIMIT] if totals[i] > behind}
    return _shared(ahead)


def second_hop_seeds(table: FeatureTable, weights: Weights, limit: int) -> dict[str, float]:
    """What the second hop goes on from, with its shares: the best by the seeds' weights, the walk counted."""
    walked = table.columns.get("graph", np.zeros(len(table.ids)))
    return top_shares(table, min_max_normalized(min_max_normalized(table.total(weights)) + WALK_FACTOR * walked), limit)


def top_shares(table: FeatureTable, totals: Column, limit: int) -> dict[str, float]:
    """The best rows that have anything, best first: {id: share}, its total as a part of the best one's, squared."""
    order = np.argsort(-totals, kind="stable")[:limit]
    most = totals.max(initial=0.0)
    return {table.ids[i]: float(totals[i] / most) ** 2 for i in order if totals[i] > 0}


def balance_seeds(
    memories: Mapping[str, float], entities: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """The shares of both kinds of seeds; without entities the memories get everything."""
    named = _shared(entities)
    if not named:
        return dict(memories), {}
    return (
        {uid: MEMORY_SHARE * share for uid, share in memories.items()},
        {key: ENTITY_SHARE * share for key, share in named.items()},
    )


def _shared(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()} if total > 0 else {}


def scores(totals: Column) -> Column:
    """Totals as shares of the best one, which has 1; they order one search's hits and mean nothing beyond it."""
    if not totals.size:
        return totals
    return np.ones_like(totals) if totals.max() <= 0 else np.clip(totals / totals.max(), 0.0, 1.0)


def automatic_cutoff(ranked: Column) -> int:
    """How many of the scores, best first, are not far behind the best: a few in any case, as far as there are any."""
    return min(max(int((ranked >= AUTO_SHARE).sum()), AUTO_MIN), AUTO_MAX, len(ranked))


def top_ids(found: Mapping[str, float], limit: int) -> list[str]:
    """The ids with the highest scores above 0; equal ones in the order given."""
    return [uid for uid in sorted(found, key=lambda uid: -found[uid])[:limit] if found[uid] > 0]


def union_in_order(some: Iterable[str], *others: Iterable[str]) -> list[str]:
    """All ids, each once, in the order of their first coming."""
    return list(dict.fromkeys([uid for ids in (some, *others) for uid in ids]))
