"""The graph's part of a search: PageRank from the best candidates and the entities that the query names, and a hop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from graphmem.model import GraphBounds, Seeds, Subgraph, View
from graphmem.retrieval import scoring, second_hop
from graphmem.retrieval.arms import Attempt, attempt
from graphmem.retrieval.candidates import Candidates
from graphmem.retrieval.pagerank import MENTION_WEIGHTS, WalkResult, personalized_pagerank, rarity
from graphmem.retrieval.types import SearchDeps, SearchPartition

# Memories that PageRank may add to the candidates.
WALK_CANDIDATE_LIMIT = 100
# Paths start at named entities and at so many of the best memories with at least this part of the best one's share.
MAX_PATH_STARTS, START_SHARE = 3, 0.25


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
    shares = scoring.second_hop_seeds(candidates.table(), candidates.seed_weights, second_hop.SEED_LIMIT)
    links: dict[str, Mapping[str, float]] = {}
    for one in walked.walks:
        reached = [uid for uid in shares if uid in one.result.scores]
        links |= second_hop.shared_entity_links(one.subgraph, one.partition.size, reached)
    evidence, linked = reader.visible(candidates.evidence, second_hop.strongest_candidates(links, shares))
    evidence = reader.compared(evidence, linked)
    gains = second_hop.marginal_gains(links, shares, None if lacks_tokens else evidence.matches, linked)
    expanded = replace(candidates, evidence=evidence, arms={**candidates.arms, "hop": gains})
    return replace(walked, candidates=expanded.with_ids(scoring.top_ids(gains, second_hop.EXPANSION_LIMIT)))
