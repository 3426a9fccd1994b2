"""The walk: personalised PageRank over a bounded neighbourhood, and the path behind each memory it reaches. Pure.

Weights, restart and rounds are those of the measured recipe (README, "Why it is built so"): memory-entity edges weigh
tau * ln(n/df) / ln(n), consecutive memories of a session 1; every node spreads over its *full* out-weight, also what
lies outside the neighbourhood, so that a hub passes little on however small the part of it that was read. Relations
carry no weight of their own: the memory that supports one mentions both its ends already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from graphmem.model import Edge, Entity, MentionKind, Subgraph

TAU: Mapping[MentionKind, float] = {MentionKind.TITLE: 1.0, MentionKind.NAME: 1.0, MentionKind.CHUNK: 0.3}
NEXT = 1.0
RESTART = 0.05
ROUNDS = 15
# A key in more than this share of a space's memories (the speakers, mostly) tells nothing apart; in a small space
# four memories are no hub yet.
HUB_SHARE, HUB_LEAST = 0.15, 4

Vector = npt.NDArray[np.float64]
Node = tuple[str, str]  # ("memory", id) or ("entity", key)


def rarity(size: int, df: int) -> float:
    """How much a key tells: 0 for one that is everywhere or a hub, 1 for one that a single memory holds."""
    if df >= max(HUB_SHARE * size, HUB_LEAST):
        return 0.0
    return log(size / df) / log(size) if 0 < df < size else 0.0


@dataclass(frozen=True, slots=True)
class Reached:
    """What the walk found: a score for each memory, and how to explain it."""

    scores: Mapping[str, float]
    nodes: tuple[Node, ...] = ()
    entities: Mapping[str, Entity] = field(default_factory=dict)
    before: npt.NDArray[np.int32] | None = None

    def path(self, memory: str) -> list[Node]:
        """The likeliest way to a memory, from what matched the question on; empty if there is none."""
        if self.before is None or ("memory", memory) not in self.nodes:
            return []
        at = self.nodes.index(("memory", memory))
        steps: list[Node] = []
        while at >= 0:
            steps.append(self.nodes[at])
            at = int(self.before[at])
        return steps[::-1]


def walk(
    subgraph: Subgraph,
    size: int,
    memories: Mapping[str, float],
    entities: Mapping[str, float],
    starts: Sequence[str] = (),
) -> Reached:
    """Spreads the seeds' weights over the neighbourhood.

    `size` is n of the space; `memories` and `entities` are the seeds' shares. Ways begin at the entities and at the
    memories in `starts`. Scores lie between 0 and 1.
    """
    nodes: tuple[Node, ...] = (
        *(("memory", uid) for uid in subgraph.memories),
        *(("entity", key) for key in subgraph.entities),
    )
    number = {node: i for i, node in enumerate(nodes)}
    start = np.zeros(len(nodes))
    for kind, shares in (("memory", memories), ("entity", entities)):
        for name, share in shares.items():
            if (kind, name) in number:
                start[number[kind, name]] = share
    if not start.sum():
        return Reached({})
    transition = _transition(subgraph, size, number)
    reached = _spread(transition, start / start.sum())
    scores = _damped(reached[: len(subgraph.memories)])
    found = dict(zip(subgraph.memories, scores.tolist(), strict=True))
    matched: list[Node] = [*(("entity", key) for key in entities), *(("memory", uid) for uid in starts)]
    ways = _ways(transition, [number[node] for node in matched if node in number])
    return Reached(found, nodes, subgraph.entities, ways)


def _transition(subgraph: Subgraph, size: int, number: Mapping[Node, int]) -> Any:
    """Row i: where node i passes its weight on to, as shares of its full out-weight."""
    edges: list[tuple[int, int, float]] = []
    full: dict[int, float] = defaultdict(float)
    for edge, weight in _weighed(subgraph, size):
        memory, entity = number["memory", edge.memory], number["entity", edge.entity]
        edges += [(memory, entity, weight), (entity, memory, weight)]
        full[memory] += weight
    full.update(_entity_weights(subgraph, size, number))
    for before, after in subgraph.next:
        pair = [number.get(("memory", uid)) for uid in (before, after)]
        for one, other in (pair, pair[::-1]):
            if one is not None:
                full[one] += NEXT
                edges += [(one, other, NEXT)] if other is not None else []
    rows, columns, weights = zip(*edges, strict=True) if edges else ((), (), ())
    shares = [weight / full[row] for row, weight in zip(rows, weights, strict=True)]
    return csr_array((shares, (rows, columns)), shape=(len(number), len(number)))


def _weighed(subgraph: Subgraph, size: int) -> list[tuple[Edge, float]]:
    found = []
    for edge in subgraph.mentions:
        weight = TAU[edge.kind] * rarity(size, subgraph.entities[edge.entity].mentions)
        if weight > 0:
            found.append((edge, weight))
    return found


def _entity_weights(subgraph: Subgraph, size: int, number: Mapping[Node, int]) -> dict[int, float]:
    """An entity's full out-weight: its document frequency times the mean weight of the mentions that were read."""
    read: dict[str, list[float]] = defaultdict(list)
    for edge, weight in _weighed(subgraph, size):
        read[edge.entity].append(weight)
    return {
        number["entity", key]: subgraph.entities[key].mentions * sum(weights) / len(weights)
        for key, weights in read.items()
    }


def _spread(transition: Any, start: Vector) -> Vector:
    backwards = transition.T.tocsr()
    reached = start.copy()
    for _ in range(ROUNDS):
        reached = RESTART * start + (1 - RESTART) * (backwards @ reached)
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
