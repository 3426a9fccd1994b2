"""The second hop: candidates that share a rare entity with a top candidate and match words that it lacks. Pure.

The limits and weights were measured (benchmarks/ABLATIONS.md, "Kept").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from graphmem.model import MentionKind, Subgraph
from graphmem.retrieval import token_matching
from graphmem.retrieval.pagerank import rarity
from graphmem.retrieval.token_matching import MatchMatrix

# The strength of a link over an entity, by the better of its two mentions.
MENTION_WEIGHTS: Mapping[MentionKind, float] = {
    MentionKind.TITLE: 1.5, MentionKind.NAME: 1.0, MentionKind.NOUN_PHRASE: 0.0, MentionKind.COMMON_NOUN: 0.0
}  # fmt: skip
_WEIGHT_BY_KIND = [MENTION_WEIGHTS[kind] for kind in sorted(MentionKind)]
# An entity in more memories than this is too frequent to show that two memories are related.
MAX_FREQUENCY = 60
# Top candidates from which the hop starts, linked memories that are compared, and those that become candidates.
SEED_LIMIT, CANDIDATE_LIMIT, EXPANSION_LIMIT = 15, 100, 50

Links = Mapping[str, Mapping[str, float]]  # {seed's id: {linked memory's id: strength}}


def shared_entity_links(subgraph: Subgraph, size: int, seeds: Sequence[str]) -> Links:
    """Links each seed to the memories of the subgraph that share a rare entity with it.

    The strength is the entity's rarity (`pagerank.rarity`, `size` is the partition's number of memories) times the
    greater `MENTION_WEIGHTS` of both mentions; of several shared entities the strongest counts.
    """
    unique_seeds = dict.fromkeys(seeds)
    seed_entities = {edge.entity for edge in subgraph.mentions if edge.memory in unique_seeds}
    rarities = {
        key: rarity(size, df) for key in seed_entities if 1 < (df := subgraph.frequencies[key]) <= MAX_FREQUENCY
    }
    mentions: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for memory, key, kind in subgraph.mentions:
        if key in rarities:
            mentions[key].append((memory, _WEIGHT_BY_KIND[kind]))
    links: dict[str, dict[str, float]] = {seed: {} for seed in unique_seeds}
    for key, entity_mentions in mentions.items():
        for memory, mention_weight in entity_mentions:
            if memory in unique_seeds:
                _add_links(links[memory], memory, entity_mentions, rarities[key], mention_weight)
    return links


def _add_links(
    seed_links: dict[str, float],
    seed: str,
    entity_mentions: Sequence[tuple[str, float]],
    entity_rarity: float,
    mention_weight: float,
) -> None:
    for other, other_weight in entity_mentions:
        strength = entity_rarity * max(mention_weight, other_weight)
        if other != seed and strength > seed_links.get(other, 0.0):
            seed_links[other] = strength


def strongest_candidates(links: Links, shares: Mapping[str, float]) -> list[str]:
    """Returns the ids of the `CANDIDATE_LIMIT` memories with the greatest share of a seed times strength, best first.

    Equal ones in the order of their ids. `shares` are those of the seeds.
    """
    best: dict[str, float] = defaultdict(float)
    for seed, seed_links in links.items():
        for other, strength in seed_links.items():
            best[other] = max(best[other], shares[seed] * strength)
    return sorted(best, key=lambda uid: (-best[uid], uid))[:CANDIDATE_LIMIT]


def marginal_gains(
    links: Links, shares: Mapping[str, float], matches: MatchMatrix | None, ids: Sequence[str]
) -> dict[str, float]:
    """Returns for each of the memories the maximum over the seeds of share · strength · gain over the seed's matches.

    Divided by the greatest value. Without `matches` the gain is left out.
    """
    best = np.zeros(len(ids))
    rows = None if matches is None else matches.matrix(ids)
    for seed, seed_links in links.items():
        gains = shares[seed] * np.array([seed_links.get(uid, 0.0) for uid in ids])
        if matches is not None and rows is not None:
            gains = gains * matches.gain(rows, seed)
        best = np.maximum(best, gains)
    return token_matching.relative_to_max(dict(zip(ids, best.tolist(), strict=True)))
