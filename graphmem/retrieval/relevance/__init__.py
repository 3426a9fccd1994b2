"""The relevance of a memory to a question: one calibrated probability. Pure.

An additive logistic model over what a search knows of question and memory anyway, fitted to everyday questions, a third
of which nothing in the store answers, and to long conversations (benchmarks/relevance, docs/decisions/0032).
Where there is a multilingual space, linear heads read the vectors there of the question and of the memory, a bilinear
form what kind of statement answers what kind of question, and topics are compared with prototype sentences. So no
language has patterns of its own; the words of the first person are the only closed list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from io import BytesIO

import numpy as np
import numpy.typing as npt

from graphmem.retrieval.relevance import features
from graphmem.retrieval.relevance.features import AskedQuestion, FoundMemory, is_first_person

__all__ = ["AskedQuestion", "FoundMemory", "Relevance", "assess", "default_floor", "is_first_person"]

# The part of a memory's relevance that another one gets which shares a rare entity with it: two hops.
JOINED = 0.8
# The relevance of a memory that has the words of a query of keywords, whatever its meaning.
SHARED_KEYWORDS = 0.6
# An entity is rare among the memories found if at most this part of them mentions it, and in the partition likewise.
RARE_AMONG_FOUND, RARE_IN_PARTITION, MIN_RARE = 0.15, 0.05, 4
# The floor is `floor` of the coefficients, or this share of the best memory's relevance. In partitions of more than so
# many memories it falls with this power of their number: one of many is less probably the one that is asked for.
FLOOR_SHARE, FLOOR_SIZE, FLOOR_POWER = 0.25, 20, 0.95
# The share of the best memory's relevance that is needed in partitions of any size. In conversations of some 500 turns
# it takes a third of the lines where the best has a relevance above .5, and 1.5 % of the evidence.
LEAST_SHARE = 0.05

Row = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Relevance:
    """The relevance of one memory (0..1) and what speaks for and against it: {feature: share of the log odds}."""

    value: float
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heads:
    """What the vectors of question and memory in the multilingual space tell by themselves.

    `question`, `memory` (dims,) are linear, `product` weighs the product of both; `asked`, `told` (dims x rank) are the
    factors of a bilinear form.
    """

    question: Row
    memory: Row
    product: Row
    asked: Row
    told: Row

    def log_odds(self, question: Row, memories: Row) -> Row:
        """Returns the part of the log odds of each memory (memories x dims) for a question (dims,)."""
        of_memory = self.memory + self.product * question + self.told @ (question @ self.asked)
        return np.asarray(question @ self.question + memories @ of_memory)


@dataclass(frozen=True, slots=True)
class _Model:
    """Coefficients by feature, the constant, the floor of small partitions, and the heads (None: none).

    `shared_words`: the relevance of a memory that shares a rare word with the question, or is of the time asked for,
    whatever its cosine. Without a multilingual space the embedder is somebody's own, and nobody knows what its cosines
    mean.
    """

    coefficients: Mapping[str, float]
    constant: float
    floor: float
    shared_words: float
    heads: Heads | None


def assess(question: AskedQuestion, memories: Sequence[FoundMemory], *, with_shares: bool = False) -> list[Relevance]:
    """Returns the relevance of each memory to the question; `memories` are those found, best first."""
    if not memories:
        return []
    model = _model(has_vectors=question.vector is not None)
    names, table = features.table(question, memories)
    weights = np.array([model.coefficients[name] for name in names])
    logits = table @ weights + model.constant
    if model.heads is not None and question.vector is not None:
        heads = model.heads.log_odds(question.vector, features.vectors_of(memories, len(question.vector)))
    else:
        heads = np.zeros(len(memories))
    own = 1.0 / (1.0 + np.exp(-np.clip(logits + heads, -30.0, 30.0)))
    shared_words = max(model.shared_words, SHARED_KEYWORDS * question.is_keywords)
    own = 1.0 - (1.0 - own) * (1.0 - shared_words * features.plain_evidence(question, memories))
    joined = _joined(question, memories, own)
    shares: list[Mapping[str, float]] = [{} for _ in memories]
    if with_shares:
        shares = [
            {**dict(zip(names, (row * weights).tolist(), strict=True)), "meaning": float(head)}
            for row, head in zip(table, heads, strict=True)
        ]
    return [Relevance(float(value), share) for value, share in zip(joined, shares, strict=True)]


def default_floor(size: int, best: float, *, has_vectors: bool) -> float:
    """Returns the relevance from which on a memory helps more than it distracts.

    In a partition of `size` memories, of which the best one found has the relevance `best`.
    """
    floor = max(_model(has_vectors=has_vectors).floor, FLOOR_SHARE * best)
    return float(max(floor * min(1.0, FLOOR_SIZE / max(size, 1)) ** FLOOR_POWER, LEAST_SHARE * best))


def _joined(question: AskedQuestion, memories: Sequence[FoundMemory], own: Row) -> Row:
    """Returns relevances, those of memories that share a rare entity raised: 1 - (1 - p)(1 - `JOINED` · partner's).

    The first memory of two hops has what is asked, the second what the first names; each is nothing alone.
    """
    holders: dict[str, list[int]] = {}
    for place, memory in enumerate(memories):
        for key, frequency in memory.entities.items():
            if frequency <= max(MIN_RARE, RARE_IN_PARTITION * question.size) and key not in question.entity_keys:
                holders.setdefault(key, []).append(place)
    most = max(MIN_RARE, RARE_AMONG_FOUND * len(memories))
    partner = np.zeros(len(memories))
    for places in holders.values():
        if 1 < len(places) <= most:
            for place in places:
                partner[place] = max(partner[place], *(own[other] for other in places if other != place))
    return np.asarray(1.0 - (1.0 - own) * (1.0 - JOINED * partner))


@cache
def _model(*, has_vectors: bool) -> _Model:
    data = json.loads(files(__package__).joinpath("coefficients.json").read_text("utf-8"))
    part = data["with vectors" if has_vectors else "without vectors"]
    heads = None
    if has_vectors:
        with np.load(BytesIO(files(__package__).joinpath("heads.npz").read_bytes())) as arrays:
            heads = Heads(
                *(arrays[name].astype(np.float64) for name in ("question", "memory", "product", "asked", "told"))
            )
    return _Model(part["coefficients"], part["constant"], part["floor"], part["shared_words"], heads)
