"""Sums and shares: from a table and weights to candidates, seeds and scores. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from graphmem.recall.features import Column, Table, normal
from graphmem.recall.recipe import Weights

SEEDS = 20
# For top_k="auto". Measured on both development sets: as much of what is wanted as in the first ten hits, in half as
# many for questions with one answer and half as many again for those that ask for a list.
AUTO_SHARE, AUTO_LEAST, AUTO_MOST = 0.65, 3, 50
MEMORY_SHARE, ENTITY_SHARE = 0.2, 0.8
# How much the walk counts in choosing what the second hop goes on from.
WALKED = 1.2


def best(table: Table, weights: Weights, limit: int) -> list[str]:
    """The ids of the best rows, best first; equal ones in the table's order."""
    order = np.argsort(-table.total(weights), kind="stable")
    return [table.ids[i] for i in order[:limit]]


def seed_shares(table: Table, weights: Weights) -> dict[str, float]:
    """The best memories as seeds: by the cube of what they are ahead of the first that is none."""
    totals = normal(table.total(weights))
    order = np.argsort(-totals, kind="stable")
    behind = totals[order[SEEDS]] if len(order) > SEEDS else 0.0
    ahead = {table.ids[i]: float(totals[i] - behind) ** 3 for i in order[:SEEDS] if totals[i] > behind}
    return _shared(ahead)


def firsts(table: Table, weights: Weights, limit: int) -> dict[str, float]:
    """What the second hop goes on from, with its shares: the best by the seeds' weights, the walk counted."""
    walked = table.columns.get("graph", np.zeros(len(table.ids)))
    return leading(table, normal(normal(table.total(weights)) + WALKED * walked), limit)


def leading(table: Table, totals: Column, limit: int) -> dict[str, float]:
    """The best rows that have anything, best first: {id: share}, its total as a part of the best one's, squared."""
    order = np.argsort(-totals, kind="stable")[:limit]
    most = totals.max(initial=0.0)
    return {table.ids[i]: float(totals[i] / most) ** 2 for i in order if totals[i] > 0}


def balanced(memories: Mapping[str, float], entities: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
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


def enough(ranked: Column) -> int:
    """How many of the scores, best first, are not far behind the best: a few in any case, as far as there are any."""
    return min(max(int((ranked >= AUTO_SHARE).sum()), AUTO_LEAST), AUTO_MOST, len(ranked))


def top(found: Mapping[str, float], limit: int) -> list[str]:
    """The ids with the highest scores above 0; equal ones in the order given."""
    return [uid for uid in sorted(found, key=lambda uid: -found[uid])[:limit] if found[uid] > 0]


def merged(some: Iterable[str], *others: Iterable[str]) -> list[str]:
    """All ids, each once, in the order of their first coming."""
    return list(dict.fromkeys([uid for ids in (some, *others) for uid in ids]))
