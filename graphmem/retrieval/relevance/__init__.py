"""The relevance of a memory to a question: one calibrated probability. Pure.

A logistic model over what a search knows of question and memory anyway, fitted to everyday questions, a third of which
nothing in the store answers, and to long conversations (benchmarks/relevance, docs/decisions/0032).
Where there is a multilingual space, a small network reads the vectors there of the question and of the memory, and with
the other features learns what kind of statement answers what kind of question (docs/decisions/0052); topics
are compared with prototype sentences. So no language has patterns of its own; the words of the first person are the
only closed list.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from io import BytesIO
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from graphmem.retrieval.relevance import attributes, features
from graphmem.retrieval.relevance.features import (
    COSINE_DIGITS,
    AskedQuestion,
    FoundMemory,
    asks_for_everything,
    background,
    is_first_person,
)

__all__ = [
    "COSINE_DIGITS",
    "AskedQuestion",
    "FoundMemory",
    "Relevance",
    "asks_for_everything",
    "assess",
    "background",
    "default_floor",
    "is_first_person",
]

# The part of a memory's relevance that another one gets which shares a rare entity with it: two hops. One that by
# itself is not even this part as relevant is no second hop, it merely tells of the same person (docs/decisions/0064).
# The part is that of small partitions, and falls with the floor.
JOINED, LEAST_JOINED = 0.8, 0.003
# The relevance of a memory that has the words of a query of keywords, whatever its meaning.
SHARED_KEYWORDS = 0.6
# An entity is rare among the memories found if at most this part of them mentions it, and in the partition likewise.
RARE_AMONG_FOUND, RARE_IN_PARTITION, MIN_RARE = 0.15, 0.05, 4
# In partitions of more than so many memories the floor falls with their number: one of many is less probably the one
# that is asked for.
FLOOR_SIZE = 20
# The share of the best memory's relevance that is needed in partitions of any size. In conversations of some 500 turns
# it takes a third of the lines where the best has a relevance above .5, and 1.5 % of the evidence.
LEAST_SHARE = 0.05

# The share of what tells of another order or ticket than the one whose number is asked for; its relevance is 0.
ANOTHER = -30.0

# What is farther from the mean of the rows that the network was fitted to says no more.
MAX_DEVIATIONS = 4.0

Row = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Relevance:
    """The relevance of one memory (0..1) and what speaks for and against it: {feature: share of the log odds}.

    The shares and the "constant" among them sum to the log odds of what the memory has alone.
    """

    value: float
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Axes:
    """Directions in the multilingual space (dims x number) along which a network reads vectors of unit length.

    `question` and `memory` of each, `product` of what both have in common, number by number.
    """

    question: Row
    memory: Row
    product: Row

    def columns(self, table: Row, question: Row, memories: Row) -> Row:
        """Returns what a network reads (memories x columns): the features, then the vectors along the axes."""
        asked = np.broadcast_to(question @ self.question, (len(memories), self.question.shape[1]))
        return np.hstack([table, asked, memories @ self.memory, (memories * question) @ self.product])


@dataclass(frozen=True, slots=True)
class Network:
    """One layer of rectified units over standardised columns; its output is added to the log odds.

    `mean`, `deviation` (columns,) are of the rows that it was fitted to, `hidden` (columns x units), `offset` and
    `output` (units,).
    """

    mean: Row
    deviation: Row
    hidden: Row
    offset: Row
    output: Row

    def log_odds(self, columns: Row) -> Row:
        """Returns the share of the log odds of each row."""
        return np.asarray(np.maximum(self.standardised(columns) @ self.hidden + self.offset, 0.0) @ self.output)

    def standardised(self, columns: Row) -> Row:
        """Returns columns in deviations from their mean, at most `MAX_DEVIATIONS`."""
        return np.asarray(np.clip((columns - self.mean) / self.deviation, -MAX_DEVIATIONS, MAX_DEVIATIONS))


@dataclass(frozen=True, slots=True)
class _Floor:
    """The floor of small partitions: a relevance, or a share of the best memory's relevance, if that is more.

    `read` is for questions that the embedder's own space reads, `unread` for the others, of which less is known.
    """

    read: float
    unread: float
    share: float


@dataclass(frozen=True, slots=True)
class _Model:
    """Coefficients by feature, the constant, the floor, and the network with its axes (None: none).

    `shared_words`: the relevance of a memory that shares a rare word with the question, or is of the time asked for,
    whatever its cosine. Without a multilingual space the embedder is somebody's own, and nobody knows what its cosines
    mean.
    """

    coefficients: Mapping[str, float]
    constant: float
    floor: _Floor
    shared_words: float
    axes: Axes | None
    network: Network | None


def assess(question: AskedQuestion, memories: Sequence[FoundMemory], *, with_shares: bool = False) -> list[Relevance]:
    """Returns the relevance of each memory to the question; `memories` are those found, best first."""
    if not memories:
        return []
    model = _model(has_vectors=question.vector is not None)
    vectors = None if question.vector is None else features.vectors_of(memories, len(question.vector))
    names, table = features.table(question, memories, vectors)
    sharing = _sharing(question, memories)
    if question.vector is not None:
        table = _told_together(names, table, sharing)
    weights = np.array([model.coefficients[name] for name in names])
    logits = table @ weights + model.constant
    meaning = np.zeros(len(memories))
    if model.axes is not None and model.network is not None and question.vector is not None and vectors is not None:
        meaning = model.network.log_odds(model.axes.columns(table, question.vector, vectors))
    own = 1.0 / (1.0 + np.exp(-np.clip(logits + meaning, -30.0, 30.0)))
    shared_words = max(model.shared_words, SHARED_KEYWORDS * question.is_keywords)
    own = 1.0 - (1.0 - own) * (1.0 - shared_words * features.plain_evidence(question, memories))
    of_another = np.array([memory.is_of_another for memory in memories])
    joined = _joined(np.where(of_another, 0.0, own), sharing, question.size)
    shares: list[Mapping[str, float]] = [{} for _ in memories]
    if with_shares:
        shares = [
            {
                "constant": model.constant,
                **dict(zip(names, (row * weights).tolist(), strict=True)),
                "meaning": float(share),
                **({"another_number": ANOTHER} if memory.is_of_another else {}),
            }
            for memory, row, share in zip(memories, table, meaning, strict=True)
        ]
    return [Relevance(float(value), share) for value, share in zip(joined, shares, strict=True)]


def default_floor(size: int, best: float, *, has_vectors: bool, is_read: bool) -> float:
    """Returns the relevance from which on a memory helps more than it distracts.

    In a partition of `size` memories, of which the best one found has the relevance `best`; `is_read` as in
    `AskedQuestion`.
    """
    least = _model(has_vectors=has_vectors).floor
    floor = max(least.read if is_read else least.unread, least.share * best)
    return float(max(floor * _rarity(size), LEAST_SHARE * best))


def _rarity(size: int) -> float:
    """Returns by what part it is less probable that one of `size` memories is the one that is asked for."""
    return min(1.0, FLOOR_SIZE / max(size, 1))


def _sharing(question: AskedQuestion, memories: Sequence[FoundMemory]) -> Flags:
    """Returns which memories share a rare entity that the question does not name (square), each with itself too.

    Whoever names an entity also names one whose words that one's begin with: "Lundqvist" in "Lundqvist Shoes".
    """
    keys, holders = set[str](), defaultdict[str, set[int]](set)
    for place, memory in enumerate(memories):
        for key, frequency in memory.entities.items():
            if frequency <= max(MIN_RARE, RARE_IN_PARTITION * question.size) and key not in question.entity_keys:
                keys.add(key)
                for beginning in accumulate(key.split(" "), "{} {}".format):
                    holders[beginning].add(place)
    most = max(MIN_RARE, RARE_AMONG_FOUND * len(memories))
    shared = np.eye(len(memories), dtype=bool)
    for key in keys:
        places = list(holders[key])
        if 1 < len(places) <= most:
            shared[np.ix_(places, places)] = True
    return shared


def _told_together(names: Sequence[str], table: Row, sharing: Flags) -> Row:
    """Returns a table in which memories that share a rare entity tell together which attribute of whom they tell.

    Of two hops, the first tells of whom is asked about, the second what is asked for. The model is fitted to what each
    memory tells alone, or it would count on entities, of which many are not found.
    """
    joined = table.copy()
    for name, is_best in attributes.JOINED.items():
        column = table[:, names.index(name)]
        unshared = -np.inf if is_best is max else np.inf
        both = np.where(sharing, column, unshared)
        joined[:, names.index(name)] = both.max(axis=1) if is_best is max else both.min(axis=1)
    return joined


def _joined(own: Row, sharing: Flags, size: int) -> Row:
    """Returns relevances, those of memories that share a rare entity raised: 1 - (1 - p)(1 - `JOINED` · partner's).

    The first memory of two hops has what is asked, the second what the first names; alone each is of little relevance.
    """
    least = LEAST_JOINED * _rarity(size)
    is_partner = sharing & ~np.eye(len(own), dtype=bool) & (own[:, None] >= least * own)
    partners = np.where(is_partner, own, 0.0).max(axis=1)
    return np.asarray(1.0 - (1.0 - own) * (1.0 - JOINED * partners))


@cache
def _model(*, has_vectors: bool) -> _Model:
    data = json.loads(files(__package__).joinpath("coefficients.json").read_text("utf-8"))
    part = data["with vectors" if has_vectors else "without vectors"]
    axes = network = None
    if has_vectors:
        with np.load(BytesIO(files(__package__).joinpath("network.npz").read_bytes())) as arrays:
            kept = {name: arrays[name].astype(np.float64) for name in arrays.files}
        axes = Axes(*(kept[one.name] for one in fields(Axes)))
        network = Network(*(kept[one.name] for one in fields(Network)))
    return _Model(part["coefficients"], part["constant"], _Floor(**part["floor"]), part["shared_words"], axes, network)
