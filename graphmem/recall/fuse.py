"""Weights and sums: the only place where arms are weighed against each other. Pure.

The figures come from the recipe's variant without token matrices (README, "Why it is built so"), columns that do not
exist yet left out, with one change: a memory's own score weighs more beside its neighbours' (2.0 and 1.6 against 1.2
and .6) and the speaker less (2.0 against 2.8), so that between two nearly equal messages of one session the one that
is asked for comes first.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphmem.recall.features import Column, Table

# Which of the arms' finds stay candidates.
CANDIDATE = {"dense": 1.0, "dense_beside": 1.0, "keyword": 1.0, "keyword_beside": 0.5, "speaker": 0.3}
# Where the walk starts.
SEED = {"dense": 1.0, "dense_beside": 1.0, "keyword": 0.7, "keyword_beside": 0.7, "speaker": 1.0}
# What is shown.
FINAL = {
    "dense": 2.0,
    "dense_beside": 1.6,
    "keyword": 1.6,
    "keyword_beside": 1.6,
    "speaker": 2.0,
    "graph": 4.9,
}
SEEDS = 20
MEMORY_SHARE, ENTITY_SHARE = 0.2, 0.8


def best(table: Table, weights: Mapping[str, float], limit: int) -> list[str]:
    """The ids of the best rows, best first; equal ones in the order of their ids."""
    totals = table.total(weights)
    order = sorted(range(len(table.ids)), key=lambda i: (-totals[i], table.ids[i]))
    return [table.ids[i] for i in order[:limit]]


def seed_shares(table: Table) -> dict[str, float]:
    """The best memories as seeds: by the cube of what they are ahead of the first that is none."""
    totals = table.total(SEED)
    order = np.argsort(-totals, kind="stable")
    behind = totals[order[SEEDS]] if len(order) > SEEDS else 0.0
    ahead = {table.ids[i]: float(totals[i] - behind) ** 3 for i in order[:SEEDS] if totals[i] > behind}
    return _shared(ahead)


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
    return np.ones_like(totals) if totals.max() <= 0 else np.asarray(totals / totals.max())
