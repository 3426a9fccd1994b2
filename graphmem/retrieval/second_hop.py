"""The second hop: what shares a telling entity with a good find and adds what that find lacks. Pure.

Figures of the measured recipe (README, "Why it is built so").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from graphmem.model import MentionKind, Subgraph
from graphmem.retrieval import token_matching
from graphmem.retrieval.pagerank import rarity
from graphmem.retrieval.token_matching import MatchMatrix

# How strongly an entity links, by how the better of its two memories mentions it.
MENTION_WEIGHTS: Mapping[MentionKind, float] = {
    MentionKind.TITLE: 1.5, MentionKind.NAME: 1.0, MentionKind.CHUNK: 0.0, MentionKind.THING: 0.0
}  # fmt: skip
_THETA = [MENTION_WEIGHTS[kind] for kind in sorted(MentionKind)]
# An entity in more memories than this links too much to tell.
MAX_FREQUENCY = 60
# From how many finds it goes on, how far it looks at first, and how many it brings along.
SEED_LIMIT, CANDIDATE_LIMIT, EXPANSION_LIMIT = 15, 100, 50

Links = Mapping[str, Mapping[str, float]]  # {a find: {a memory it leads to: strength}}


def shared_entity_links(subgraph: Subgraph, size: int, firsts: Sequence[str]) -> Links:
    """Where each of the finds leads: over the telling entities that it shares with others."""
    wanted = dict.fromkeys(firsts)
    here = {edge.entity for edge in subgraph.mentions if edge.memory in wanted}
    told = {key: rarity(size, df) for key in here if 1 < (df := subgraph.frequencies[key]) <= MAX_FREQUENCY}
    holders: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for memory, key, kind in subgraph.mentions:
        if key in told:
            holders[key].append((memory, _THETA[kind]))
    found: dict[str, dict[str, float]] = {first: {} for first in wanted}
    for key, holding in holders.items():
        for first, mine in holding:
            if first in wanted:
                _join(found[first], first, holding, told[key], mine)
    return found


def _join(leads: dict[str, float], first: str, holding: Sequence[tuple[str, float]], told: float, mine: float) -> None:
    for other, theirs in holding:
        strength = told * max(mine, theirs)
        if other != first and strength > leads.get(other, 0.0):
            leads[other] = strength


def strongest_candidates(found: Links, shares: Mapping[str, float]) -> list[str]:
    """The memories that the finds lead to most strongly; `shares` weighs the finds."""
    best: dict[str, float] = defaultdict(float)
    for first, leads in found.items():
        for other, strength in leads.items():
            best[other] = max(best[other], shares[first] * strength)
    return sorted(best, key=lambda uid: (-best[uid], uid))[:CANDIDATE_LIMIT]


def marginal_gains(
    found: Links, shares: Mapping[str, float], matches: MatchMatrix | None, looked_at: Sequence[str]
) -> dict[str, float]:
    """What each of these memories adds to the find that leads to it best, as shares of the most that any adds.

    Without `matches` the strength of the link alone counts.
    """
    gained = np.zeros(len(looked_at))
    rows = None if matches is None else matches.matrix(looked_at)
    for first, leads in found.items():
        strengths = shares[first] * np.array([leads.get(uid, 0.0) for uid in looked_at])
        if matches is not None and rows is not None:
            strengths = strengths * matches.gain(rows, first)
        gained = np.maximum(gained, strengths)
    return token_matching.relative_to_max(dict(zip(looked_at, gained.tolist(), strict=True)))
