"""The walk: personalised PageRank over a bounded neighbourhood, and the path behind each memory it reaches. Pure.

Weights, restart and rounds are those of the measured recipe (README, "Why it is built so"): memory-entity edges weigh
tau * ln(n/df) / ln(n), consecutive memories of a session 1; every node spreads over its *full* out-weight, also what
lies outside the neighbourhood, so that a hub passes little on however small the part of it that was read. Relations
carry no weight of their own: the memory that supports one mentions both its ends already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from graphmem.model import MentionKind, Subgraph

MENTION_WEIGHTS: Mapping[MentionKind, float] = {
    MentionKind.TITLE: 1.0, MentionKind.NAME: 1.0, MentionKind.CHUNK: 0.3, MentionKind.THING: 0.0
}  # fmt: skip
NEXT_WEIGHT = 1.0
RESTART_PROBABILITY = 0.05
ITERATIONS = 15
# What is reached is divided by this power of a memory's out-weight. A walk ends where the most edges lead, so that a
# long reply with forty entities came before a turn with two; dividing by all of it (power 1) would leave nothing of
# the edges. Out-weights below the least are none to speak of.
SHARED_OUT, LEAST_OUT = 0.25, 2.0
# A key in more than this share of a partition's memories (the speakers, mostly) tells nothing apart; in a small
# partition four memories are no hub yet.
HUB_SHARE, HUB_LEAST = 0.15, 4

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Node = tuple[str, str]  # ("memory", id) or ("entity", key)
_TAU = np.array([MENTION_WEIGHTS[kind] for kind in sorted(MentionKind)])


def rarity(size: int, df: int) -> float:
    """How much a key tells: 0 for one that is everywhere or a hub, 1 for one that a single memory holds."""
    # As `_rarities`, without numpy: for one key at a time that would take ten times as long.
    telling = 0 < df < size and df < max(HUB_SHARE * size, HUB_LEAST)
    return log(size / df) / log(size) if telling else 0.0


def _rarities(size: int, df: Vector) -> Vector:
    if size < 2:  # noqa: PLR2004 - ln 1 is 0: one memory tells nothing apart
        return np.zeros(len(df))
    telling = (df > 0) & (df < max(HUB_SHARE * size, HUB_LEAST)) & (df < size)
    return np.asarray(np.where(telling, np.log(size / np.maximum(df, 1.0)) / log(size), 0.0))


@dataclass(frozen=True, slots=True)
class WalkResult:
    """What the walk found: a score for each memory, and how to explain it."""

    scores: Mapping[str, float]
    nodes: tuple[Node, ...] = ()
    predecessors: npt.NDArray[np.int32] | None = None

    def path(self, memory: str) -> list[Node]:
        """The likeliest way to a memory, from what matched the question on; empty if there is none."""
        if self.predecessors is None or memory not in self.scores:
            return []
        at = self.nodes.index(("memory", memory))
        steps: list[Node] = []
        while at >= 0:
            steps.append(self.nodes[at])
            at = int(self.predecessors[at])
        return steps[::-1]


def personalized_pagerank(
    subgraph: Subgraph,
    size: int,
    memories: Mapping[str, float],
    entities: Mapping[str, float],
    starts: Sequence[str] = (),
) -> WalkResult:
    """Spreads the seeds' weights over the neighbourhood.

    `size` is n of the partition; `memories` and `entities` are the seeds' shares. Ways begin at the entities and at the
    memories in `starts`. Scores lie between 0 and 1.
    """
    graph = _TransitionGraph(subgraph, size)
    start = np.zeros(len(graph))
    for place, shares in ((graph.memories, memories), (graph.entities, entities)):
        for name, share in shares.items():
            if name in place:
                start[place[name]] = share
    if not start.sum():
        return WalkResult({})
    transition, kept, full = graph.transition()
    reached = _spread(transition, kept, start / start.sum()) / np.maximum(full, LEAST_OUT) ** SHARED_OUT
    scores = _damped(reached[: len(graph.memories)])
    matched = [place[name] for place, names in ((graph.entities, entities), (graph.memories, starts))
               for name in names if name in place]  # fmt: skip
    found = dict(zip(subgraph.memories, scores.tolist(), strict=True))
    return WalkResult(found, graph.nodes(), _ways(transition, matched))


class _TransitionGraph:
    """A subgraph in numbers: memories first, then entities."""

    def __init__(self, subgraph: Subgraph, size: int) -> None:
        self.memories = {uid: i for i, uid in enumerate(subgraph.memories)}
        self.entities = {key: i for i, key in enumerate(subgraph.frequencies, len(self.memories))}
        self._next = subgraph.next_pairs
        self._frequencies = np.array(list(subgraph.frequencies.values()), dtype=float)
        self._memory = np.array([self.memories[edge.memory] for edge in subgraph.mentions], dtype=int)
        self._entity = np.array([self.entities[edge.entity] for edge in subgraph.mentions], dtype=int)
        kinds = np.array([edge.kind for edge in subgraph.mentions], dtype=int)
        rarities = _rarities(size, self._frequencies)
        self._weight = _TAU[kinds] * rarities[self._entity - len(self.memories)]
        self._alone = np.zeros(len(self))
        for (memory, kind), count in subgraph.shared_mentions.items():
            self._alone[self.memories[memory]] += count * MENTION_WEIGHTS[MentionKind(kind)] * rarity(size, 1)

    def __len__(self) -> int:
        return len(self.memories) + len(self.entities)

    def nodes(self) -> tuple[Node, ...]:
        return (*(("memory", uid) for uid in self.memories), *(("entity", key) for key in self.entities))

    def transition(self) -> tuple[Any, Vector, Vector]:
        """Row i: where node i passes its weight on to, as shares of its full out-weight.

        Besides, the share that it passes to entities it holds alone, which pass it back; and the full out-weights.
        """
        before, after, leaving = self._pairs()
        full = self._full_weights(leaving)
        rows = np.concatenate([self._memory, self._entity, before, after])
        columns = np.concatenate([self._entity, self._memory, after, before])
        weights = np.concatenate([self._weight, self._weight, np.full(2 * len(before), NEXT_WEIGHT)])
        some = weights > 0
        rows, columns, weights = rows[some], columns[some], weights[some]
        passed = csr_array((weights / full[rows], (rows, columns)), shape=(len(self), len(self)))
        return passed, np.divide(self._alone, full, out=np.zeros(len(self)), where=full > 0), full

    def _pairs(self) -> tuple[Indices, Indices, list[int]]:
        """Consecutive memories that are both here, and, once for each pair, the ends that are here."""
        ends = [(self.memories.get(before, -1), self.memories.get(after, -1)) for before, after in self._next]
        whole = [pair for pair in ends if min(pair) >= 0]
        before, after = np.array(whole, dtype=int).reshape(-1, 2).T
        return before, after, [end for pair in ends for end in pair if end >= 0]

    def _full_weights(self, leaving: Sequence[int]) -> Vector:
        """Each node's full out-weight; an entity's is its frequency times the mean weight of the mentions read."""
        full: Vector = self._alone + np.bincount(self._memory, self._weight, minlength=len(self))
        full += NEXT_WEIGHT * np.bincount(np.array(leaving, dtype=int), minlength=len(self))
        counted = self._weight > 0
        totals = np.bincount(self._entity[counted], self._weight[counted], minlength=len(self))
        read = np.bincount(self._entity[counted], minlength=len(self))
        mine = slice(len(self.memories), None)
        full[mine] += self._frequencies * totals[mine] / np.maximum(read[mine], 1)
        return np.asarray(full)


def _spread(transition: Any, kept: Vector, start: Vector) -> Vector:
    backwards = transition.T.tocsr()
    reached, waiting = start.copy(), np.zeros(len(start))
    for _ in range(ITERATIONS):
        passed = backwards @ reached + waiting
        waiting = (
            (1 - RESTART_PROBABILITY) * kept * reached
        )  # with entities of one memory: back again in the next round
        reached = RESTART_PROBABILITY * start + (1 - RESTART_PROBABILITY) * passed
    return reached


def _damped(reached: Vector) -> Vector:
    """On a logarithmic scale, from 0 to 1: the walk's weights span orders of magnitude."""
    if not reached.size or reached.max() <= 0:
        return np.zeros(reached.size)
    damped = np.log(reached / reached.max() + 0.001) - log(0.001)
    return np.asarray(damped / damped.max())


def _ways(transition: Any, starts: Sequence[int]) -> npt.NDArray[np.int32] | None:
    """For each node the one before it on the likeliest way from a start, negative where there is none."""
    if not starts:
        return None
    lengths = transition.copy()
    lengths.data = -np.log(np.clip(lengths.data, 1e-12, 1 - 1e-9))
    _, before, _ = dijkstra(lengths, indices=starts, min_only=True, return_predecessors=True)
    return np.asarray(before)
