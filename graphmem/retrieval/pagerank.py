"""Personalised PageRank over a bounded neighbourhood, and the path behind each memory that it reaches. Pure.

The weights (docs/decisions/0018-pagerank-over-mentions.md; other values of restart, rounds, hub share and mention
weights brought nothing, benchmarks/ABLATIONS.md, "Left out"): an edge between a memory and an entity weighs
tau · ln(n / df) / ln(n), where tau is the `MENTION_WEIGHTS` of the mention's kind, n the partition's number of memories
and df the number that mention the entity; consecutive memories of a session are linked by 1. Each node passes its score
on in proportion to its full out-weight, edges outside the neighbourhood included: so a hub passes little on, however
few of its edges were read. Relations are no edges, as the memory that supports one already mentions both its ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from math import inf, log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphmem.model import MentionKind, Subgraph

MENTION_WEIGHTS: Mapping[MentionKind, float] = {
    MentionKind.TITLE: 1.0, MentionKind.NAME: 1.0, MentionKind.NOUN_PHRASE: 0.3, MentionKind.COMMON_NOUN: 0.0
}  # fmt: skip
NEXT_WEIGHT = 1.0
RESTART_PROBABILITY = 0.05
ITERATIONS = 15
# A score is divided by the memory's out-weight (at least `MIN_OUT_WEIGHT`) to this power. PageRank favours nodes with
# many edges: without division a long reply with forty entities came before a message with two; dividing by all of it
# (power 1) would make the edges meaningless. Values tried: benchmarks/ABLATIONS.md, "Chats with an assistant".
OUT_WEIGHT_POWER, MIN_OUT_WEIGHT = 0.25, 2.0
# A hub leads nowhere: an entity (mostly a speaker) in at least this share of a partition's memories, and at least in
# four.
HUB_SHARE, MIN_HUB_MEMORIES = 0.15, 4
# Added to scores relative to the greatest before the logarithm, see `_log_scaled`.
_LOG_FLOOR = 0.001

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Node = tuple[str, str]  # ("memory", id) or ("entity", key)
_WEIGHT_BY_KIND = np.array([MENTION_WEIGHTS[kind] for kind in sorted(MentionKind)])


def rarity(size: int, df: int) -> float:
    """Returns ln(size / df) / ln(size) for an entity that `df` of the `size` memories of a partition mention.

    1 if one memory mentions it; 0 if all or none do, or so many that it is a hub (`HUB_SHARE`).
    """
    # The same formula as `_rarities`, without numpy, which takes ten times as long for a single entity.
    is_rare = 0 < df < size and df < max(HUB_SHARE * size, MIN_HUB_MEMORIES)
    return log(size / df) / log(size) if is_rare else 0.0


def _rarities(size: int, df: Vector) -> Vector:
    if size < 2:  # noqa: PLR2004 - ln 1 is 0: a single memory has no rare entity
        return np.zeros(len(df))
    is_rare = (df > 0) & (df < max(HUB_SHARE * size, MIN_HUB_MEMORIES)) & (df < size)
    return np.asarray(np.where(is_rare, np.log(size / np.maximum(df, 1.0)) / log(size), 0.0))


class _Edges(NamedTuple):
    """Parallel arrays: edge i passes `shares[i]` of the full out-weight of node `sources[i]` on to node `targets[i]`.

    Ordered by source, then by target; no two edges have both in common.
    """

    sources: Indices
    targets: Indices
    shares: Vector


_NO_EDGES = _Edges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True)
class WalkResult:
    """The PageRank score (0..1) of each memory of a neighbourhood, by id, and the shortest paths from the starts.

    `nodes` are memories, then entities. The paths are found when the first one is asked for.
    """

    scores: Mapping[str, float]
    nodes: Sequence[Node] = ()
    edges: _Edges = _NO_EDGES
    starts: Sequence[int] = ()

    def path(self, memory: str) -> list[Node]:
        """Returns the likeliest path to a memory, from a start on; the memory alone if no path leads to it.

        Empty without starts, and for a memory outside the neighbourhood.
        """
        if not self.starts or memory not in self.scores:
            return []
        number = self._numbers[memory]
        steps: list[Node] = []
        while number >= 0:
            steps.append(self.nodes[number])
            number = self._predecessors[number]
        return steps[::-1]

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {memory: number for number, memory in enumerate(self.scores)}

    @cached_property
    def _predecessors(self) -> Sequence[int]:
        return _predecessors(self.edges, self.starts, len(self.nodes))


def personalized_pagerank(
    subgraph: Subgraph,
    size: int,
    memories: Mapping[str, float],
    entities: Mapping[str, float],
    starts: Sequence[str] = (),
) -> WalkResult:
    """Runs PageRank that restarts at the seeds, and finds the likeliest path to each memory.

    `size` is the partition's number of memories; `memories` and `entities` are the seeds' shares by id and key. Paths
    start at the seed entities and at the memories in `starts`. Without a seed in the subgraph there are no scores.
    """
    graph = _TransitionGraph(subgraph, size)
    restart = np.zeros(len(graph))
    for numbers, shares in ((graph.memories, memories), (graph.entities, entities)):
        for name, share in shares.items():
            if name in numbers:
                restart[numbers[name]] = share
    if not restart.sum():
        return WalkResult({})
    edges, returned, out_weights = graph.transitions()
    probabilities = _power_iteration(edges, returned, restart / restart.sum())
    divided = probabilities / np.maximum(out_weights, MIN_OUT_WEIGHT) ** OUT_WEIGHT_POWER
    scores = _log_scaled(divided[: len(graph.memories)])
    start_numbers = [numbers[name] for numbers, names in ((graph.entities, entities), (graph.memories, starts))
                     for name in names if name in numbers]  # fmt: skip
    scores_by_id = dict(zip(subgraph.memories, scores.tolist(), strict=True))
    return WalkResult(scores_by_id, graph.nodes(), edges, start_numbers)


class _TransitionGraph:
    """A subgraph with numbered nodes: memories first, then entities."""

    def __init__(self, subgraph: Subgraph, size: int) -> None:
        self.memories = {uid: i for i, uid in enumerate(subgraph.memories)}
        self.entities = {key: i for i, key in enumerate(subgraph.frequencies, len(self.memories))}
        self._next_pairs = subgraph.next_pairs
        self._frequencies = np.array(list(subgraph.frequencies.values()), dtype=float)
        mentioned = [(self.memories[memory], self.entities[key], kind) for memory, key, kind in subgraph.mentions]
        self._mention_memories, self._mention_entities, kinds = np.array(mentioned, dtype=int).reshape(-1, 3).T
        rarities = _rarities(size, self._frequencies)
        self._mention_weights = _WEIGHT_BY_KIND[kinds] * rarities[self._mention_entities - len(self.memories)]
        unshared = subgraph.unshared_mentions
        counted = [(self.memories[memory], kind, count) for (memory, kind), count in unshared.items()]
        numbers, kinds, counts = np.array(counted, dtype=int).reshape(-1, 3).T
        weights = counts * _WEIGHT_BY_KIND[kinds] * rarity(size, 1)
        self._unshared_weights = np.asarray(np.bincount(numbers, weights, minlength=len(self)), float)

    def __len__(self) -> int:
        return len(self.memories) + len(self.entities)

    def nodes(self) -> tuple[Node, ...]:
        return (*(("memory", uid) for uid in self.memories), *(("entity", key) for key in self.entities))

    def transitions(self) -> tuple[_Edges, Vector, Vector]:
        """Returns the edges between the nodes, each node's returned share, and each node's full out-weight.

        The returned share goes to entities that only this memory mentions; they are no nodes and pass it back one round
        later.
        """
        adjacent = [(self.memories.get(before, -1), self.memories.get(after, -1)) for before, after in self._next_pairs]
        inside = [pair for pair in adjacent if min(pair) >= 0]
        before, after = np.array(inside, dtype=int).reshape(-1, 2).T
        # Also those of pairs that leave the subgraph; a memory occurs once for each of its pairs.
        ends = [end for pair in adjacent for end in pair if end >= 0]
        mentioned = np.bincount(self._mention_memories, self._mention_weights, minlength=len(self))
        out_weights: Vector = self._unshared_weights + mentioned
        out_weights += NEXT_WEIGHT * np.bincount(np.array(ends, dtype=int), minlength=len(self))
        # An entity's full out-weight is its frequency times the mean weight of the mentions read.
        has_weight = self._mention_weights > 0
        totals = np.bincount(self._mention_entities[has_weight], self._mention_weights[has_weight], minlength=len(self))
        counts = np.bincount(self._mention_entities[has_weight], minlength=len(self))
        entities = slice(len(self.memories), None)
        out_weights[entities] += self._frequencies * totals[entities] / np.maximum(counts[entities], 1)
        sources = np.concatenate([self._mention_memories, self._mention_entities, before, after])
        targets = np.concatenate([self._mention_entities, self._mention_memories, after, before])
        weights = np.concatenate([self._mention_weights, self._mention_weights, np.full(2 * len(before), NEXT_WEIGHT)])
        is_positive = weights > 0
        sources, targets, weights = sources[is_positive], targets[is_positive], weights[is_positive]
        pairs, numbers = np.unique(sources * len(self) + targets, return_inverse=True)
        shares = np.asarray(np.bincount(numbers, weights / out_weights[sources], minlength=len(pairs)), dtype=float)
        returned = np.divide(self._unshared_weights, out_weights, out=np.zeros(len(self)), where=out_weights > 0)
        return _Edges(pairs // len(self), pairs % len(self), shares), returned, out_weights


def _power_iteration(edges: _Edges, returned: Vector, restart: Vector) -> Vector:
    probabilities, coming_back = restart.copy(), np.zeros(len(restart))
    for _ in range(ITERATIONS):
        sent = edges.shares * probabilities[edges.sources]
        passed = np.bincount(edges.targets, sent, minlength=len(restart)) + coming_back
        # Now at entities that one memory alone mentions; back at that memory in the next round.
        coming_back = (1 - RESTART_PROBABILITY) * returned * probabilities
        probabilities = RESTART_PROBABILITY * restart + (1 - RESTART_PROBABILITY) * passed
    return probabilities


def _log_scaled(values: Vector) -> Vector:
    """Maps values to 0..1 on a logarithmic scale, as PageRank's probabilities span orders of magnitude.

    ln(value / greatest + .001) - ln(.001), divided by its greatest value.
    """
    if not values.size or values.max() <= 0:
        return np.zeros(values.size)
    scaled = np.log(values / values.max() + _LOG_FLOOR) - log(_LOG_FLOOR)
    return np.asarray(scaled / scaled.max())


def _predecessors(edges: _Edges, starts: Sequence[int], size: int) -> list[int]:
    """Returns for each node the one before it on the likeliest path from a start; negative if there is none.

    A path's likelihood is the product of its edges' shares: Dijkstra's shortest path over their -ln.
    """
    lengths = (-np.log(np.clip(edges.shares, 1e-12, 1 - 1e-9))).tolist()
    targets = edges.targets.tolist()
    # The edges of node i are those from bounds[i] up to bounds[i + 1].
    bounds = np.searchsorted(edges.sources, np.arange(size + 1)).tolist()
    distances, predecessors = [inf] * size, [-1] * size
    queue: list[tuple[float, int]] = []
    for start in starts:
        distances[start] = 0.0
        heappush(queue, (0.0, start))
    while queue:
        distance, node = heappop(queue)
        if distance > distances[node]:  # reached by a shorter path since it was queued
            continue
        for edge in range(bounds[node], bounds[node + 1]):
            target, through = targets[edge], distance + lengths[edge]
            if through < distances[target]:
                distances[target], predecessors[target] = through, node
                heappush(queue, (through, target))
    return predecessors
