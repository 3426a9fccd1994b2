"""The graph's part of a search: PageRank from the best candidates and the entities that the query names, and a hop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from graphmem.model import GraphBounds, MentionKind, Seeds, Subgraph, View
from graphmem.retrieval import matching, scoring
from graphmem.retrieval.arms import Attempt, attempt
from graphmem.retrieval.candidates import Candidates
from graphmem.retrieval.matching import MatchMatrix
from graphmem.retrieval.pagerank import MENTION_WEIGHTS, WalkResult, personalized_pagerank, rarity
from graphmem.retrieval.types import SearchDeps, SearchPartition

# Memories that PageRank may add to the candidates.
WALK_CANDIDATE_LIMIT = 100
# Paths start at named entities and at so many of the best memories with at least this part of the best one's share.
MAX_PATH_STARTS, START_SHARE = 3, 0.25
# The strength of a link over an entity in the second hop, by the better of its two mentions. These weights and the
# limits below were measured (benchmarks/ABLATIONS.md, "Kept").
LINK_WEIGHTS: Mapping[MentionKind, float] = {
    MentionKind.TITLE: 1.5, MentionKind.NAME: 1.0, MentionKind.NOUN_PHRASE: 0.0, MentionKind.COMMON_NOUN: 0.0
}  # fmt: skip
_LINK_WEIGHT_BY_KIND = [LINK_WEIGHTS[kind] for kind in sorted(MentionKind)]
# An entity in more memories than this is too frequent to show that two memories are related.
MAX_LINK_FREQUENCY = 60
# Top candidates from which the hop starts, linked memories that are compared, and those that become candidates.
HOP_SEED_LIMIT, HOP_LINK_LIMIT, HOP_CANDIDATE_LIMIT = 15, 100, 50

Links = Mapping[str, Mapping[str, float]]  # {seed's id: {linked memory's id: strength}}


@dataclass(frozen=True, slots=True)
class SeededPartition:
    """The seeds of PageRank in one partition with their shares, and the memories at which paths may start."""

    partition: SearchPartition
    memories: Mapping[str, float]
    entities: Mapping[str, float]
    starts: Sequence[str]


@dataclass(frozen=True, slots=True)
class PartitionWalk:
    """The PageRank of one partition."""

    partition: SearchPartition
    subgraph: Subgraph
    result: WalkResult


@dataclass(frozen=True, slots=True)
class Walked:
    """The candidates after PageRank, with the memories that it reached and those of the second hop among them."""

    candidates: Candidates
    walks: Sequence[PartitionWalk] = ()


def seeds(candidates: Candidates) -> list[SeededPartition]:
    """Returns the seeds in each partition: the best candidates and the entities that the query names."""
    evidence, threshold = candidates.evidence, candidates.retrieved.query.threshold
    shares = scoring.seed_weights(candidates.table(), candidates.seed_weights)
    seeded = []
    for partition in candidates.partitions:
        entity_weights = {
            key: MENTION_WEIGHTS[partition.kinds[key]] * rarity(partition.size, entity.mentions)
            for key, entity in partition.named_entities.items()
        }
        memory_seeds, entity_seeds = scoring.balance_seeds(
            {uid: share for uid, share in shares.items() if evidence.rows[uid].partition == partition.key},
            {key: weight for key, weight in entity_weights.items() if weight > 0},
        )
        least = START_SHARE * max(memory_seeds.values(), default=0.0)
        starts = [
            uid
            for uid, share in memory_seeds.items()
            if share >= least and (threshold is None or evidence.similarity.get(uid, 0.0) >= threshold)
        ]
        seeded.append(SeededPartition(partition, memory_seeds, entity_seeds, starts[:MAX_PATH_STARTS]))
    return seeded


def neighbourhoods(
    candidates: Candidates, seeded: Sequence[SeededPartition], deps: SearchDeps
) -> Attempt[list[Subgraph]]:
    """Returns the graph around each partition's seeds; an empty one, degraded by "graph", if the graph store fails."""
    view, worker = candidates.retrieved.query.view, deps.graph_worker
    subgraphs, degraded = [], candidates.degraded
    for one in seeded:
        own, around = replace(view, partition=one.partition.key), Seeds(tuple(one.entities), tuple(one.memories))

        def read(own: View = own, around: Seeds = around) -> Subgraph:
            return deps.graph.neighbourhood(own, around, GraphBounds())

        subgraph = attempt("graph", read if worker is None else partial(worker.read, read), Subgraph())
        subgraphs.append(subgraph.value)
        degraded |= subgraph.degraded
    return Attempt(subgraphs, degraded)


def walk(candidates: Candidates, seeded: Sequence[SeededPartition], subgraphs: Attempt[list[Subgraph]]) -> Walked:
    """Runs PageRank in each partition; the memories with the best scores become candidates."""
    walks = [
        PartitionWalk(
            one.partition,
            subgraph,
            personalized_pagerank(subgraph, one.partition.size, one.memories, one.entities, one.starts),
        )
        for one, subgraph in zip(seeded, subgraphs.value, strict=True)
    ]
    graph = {uid: score for one in walks for uid, score in one.result.scores.items()}
    evidence, reached = candidates.reader.visible(candidates.evidence, scoring.top_ids(graph, WALK_CANDIDATE_LIMIT))
    walked = replace(
        candidates,
        evidence=evidence,
        arms={**candidates.arms, "graph": graph},
        degraded=candidates.degraded | subgraphs.degraded,
    )
    return Walked(walked.with_ids(reached), walks)


def names_one_speaker(candidates: Candidates) -> bool:
    """Whether the query names exactly one speaker of the candidates; then the second hop is left out.

    That speaker's own messages hold the answer: without the hop R@10 is .3 better and the search faster
    (benchmarks/ABLATIONS.md, "Kept").
    """
    speakers = {candidates.evidence.rows[uid].speaker for uid in candidates.ids}
    return len(candidates.retrieved.analysis.speakers_named(speakers)) == 1


def expand_second_hop(walked: Walked) -> Walked:
    """Adds candidates that share a rare entity with a top candidate and match words that it lacks."""
    candidates = walked.candidates
    reader, lacks_tokens = candidates.reader, candidates.lacks_tokens
    shares = scoring.second_hop_seeds(candidates.table(), candidates.seed_weights, HOP_SEED_LIMIT)
    links: dict[str, Mapping[str, float]] = {}
    for one in walked.walks:
        reached = [uid for uid in shares if uid in one.result.scores]
        links |= shared_entity_links(one.subgraph, one.partition.size, reached)
    evidence, linked = reader.visible(candidates.evidence, strongest_candidates(links, shares))
    evidence = reader.compared(evidence, linked)
    gains = marginal_gains(links, shares, None if lacks_tokens else evidence.matches, linked)
    expanded = replace(candidates, evidence=evidence, arms={**candidates.arms, "hop": gains})
    return replace(walked, candidates=expanded.with_ids(scoring.top_ids(gains, HOP_CANDIDATE_LIMIT)))


def shared_entity_links(subgraph: Subgraph, size: int, seeds: Sequence[str]) -> Links:
    """Links each seed to the memories of the subgraph that share a rare entity with it.

    The strength is the entity's rarity (`pagerank.rarity`, `size` is the partition's number of memories) times the
    greater `LINK_WEIGHTS` of both mentions; of several shared entities the strongest counts.
    """
    unique_seeds = dict.fromkeys(seeds)
    seed_entities = {edge.entity for edge in subgraph.mentions if edge.memory in unique_seeds}
    rarities = {
        key: rarity(size, df) for key in seed_entities if 1 < (df := subgraph.frequencies[key]) <= MAX_LINK_FREQUENCY
    }
    mentions: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for memory, key, kind in subgraph.mentions:
        if key in rarities:
            mentions[key].append((memory, _LINK_WEIGHT_BY_KIND[kind]))
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
    """Returns the ids of the `HOP_LINK_LIMIT` memories with the greatest share of a seed times strength, best first.

    Equal ones in the order of their ids. `shares` are those of the seeds.
    """
    best: dict[str, float] = defaultdict(float)
    for seed, seed_links in links.items():
        for other, strength in seed_links.items():
            best[other] = max(best[other], shares[seed] * strength)
    return sorted(best, key=lambda uid: (-best[uid], uid))[:HOP_LINK_LIMIT]


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
    return matching.relative_to_max(dict(zip(ids, best.tolist(), strict=True)))
