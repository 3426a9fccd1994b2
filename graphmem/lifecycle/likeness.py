"""Compares memories by their vectors: which are alike, which were said again, and of what kind each is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from graphmem.lifecycle.rules import SPACE, likely_kinds

if TYPE_CHECKING:
    from graphmem.lifecycle.decay import Vitals
    from graphmem.plugins import Matrix

# By the form of the vectors: the rows of memories, and their unit rows.
Matrices: TypeAlias = "Mapping[str, tuple[list[int], Matrix]]"
# Memories with a higher cosine are of one kind, so that one abstraction can stand for them. With the default embedder
# two sentences of one habit ("Bought a latte on Monday", "Had coffee with milk today") have 0.5 to 0.7, those of
# different ones 0.1 to 0.3.
OF_ONE_KIND = 0.5
# With a higher cosine two memories may say the same or contradict each other (seed 002 §9.1).
SAID_AGAIN_SIMILARITY = 0.8
# Memories that are compared with all at a time: 100 MB of cosines in a partition of 50,000.
BLOCK = 500
# The nearest newer memories that are remembered of one. With more of them fewer memories are compared twice.
MOST_NEAR = 16


def kinds_of(rows: Sequence[int], matrices: Matrices) -> dict[int, Mapping[str, float]]:
    """Returns the probabilities of the kinds of memories, by row; without a vector in their space there are none."""
    all_rows, matrix = matrices.get(SPACE, ([], None))
    places = {row: place for place, row in enumerate(all_rows)}
    own = [row for row in rows if row in places]
    if matrix is None or not own:
        return {}
    return dict(zip(own, likely_kinds(matrix[[places[row] for row in own]]), strict=True))


class Comparison:
    """Compares memories with each other, each pair in the space in which it is nearest.

    Those that differ in their `sort` are not alike: by default in scope, kind, speaker or role.
    """

    def __init__(
        self,
        memories: Sequence[Vitals],
        matrices: Matrices,
        sort: Callable[[Vitals], object] = attrgetter("scope", "kind", "speaker", "role"),
    ) -> None:
        self._spaces = []
        for rows, matrix in matrices.values():
            place_of = {row: place for place, row in enumerate(rows)}
            places = np.array([place_of.get(one.row, -1) for one in memories], int)
            own = np.zeros((len(memories), matrix.shape[1]), np.float32)  # without a vector nothing is alike
            own[places >= 0] = matrix[places[places >= 0]]
            self._spaces.append(own)
        numbers: dict[object, int] = {}
        self._sorts = np.array([numbers.setdefault(sort(one), len(numbers)) for one in memories], int)

    def cosines(self, of: slice | Sequence[int], first: int = 0) -> Matrix:
        """Returns the cosines, from 0 on, of the memories at the places `of` to all from `first` on: (of, others)."""
        sorts = self._sorts[of]
        found = np.zeros((len(sorts), len(self._sorts) - first), np.float32)
        for own in self._spaces:
            np.maximum(found, own[of] @ own[first:].T, out=found)
        found[sorts[:, None] != self._sorts[first:]] = 0.0
        return found


class NewerAlike:
    """Of memories in the order of their age: how near to each the nearest newer one of its kind is that stays.

    Each is compared once with those that are newer, and again only where all of the nearest that are known of it have
    gone. Needs room for the cosines of `BLOCK` memories to all, and for `MOST_NEAR` of each.
    """

    def __init__(self, memories: Sequence[Vitals], matrices: Matrices) -> None:
        self._comparison = Comparison(memories, matrices)
        self._stays = np.ones(len(memories), bool)
        # Of each place cosines and places, the highest last. The place itself is the last resort: it has not gone.
        self._near: list[list[tuple[float, int]]] = []
        for start in range(0, len(memories), BLOCK):
            like = np.triu(self._comparison.cosines(slice(start, start + BLOCK), start), 1)
            for nearest, cosine in zip(like.argmax(axis=1).tolist(), like.max(axis=1).tolist(), strict=True):
                itself = [(0.0, len(self._near))]
                self._near.append([(cosine, start + nearest)] if cosine >= OF_ONE_KIND else itself)

    def highest(self, place: int) -> float:
        """Returns the cosine of the memory at a place, which stays, to the nearest; 0 without one of its kind."""
        near = self._near[place]
        while not self._stays[near[-1][1]]:
            near.pop()
            if not near:
                near += self._nearest(place)
        return near[-1][0]

    def drop(self, place: int) -> None:
        """Leaves out the memory at a place from now on."""
        self._stays[place] = False
        self._near[place] = []

    def _nearest(self, place: int) -> list[tuple[float, int]]:
        after = place + 1
        like = self._comparison.cosines([place], after)[0] * self._stays[after:]
        places = np.flatnonzero(like >= OF_ONE_KIND)
        nearest = places[like[places].argsort(kind="stable")][-MOST_NEAR:]
        found = list(zip(like[nearest].tolist(), (nearest + after).tolist(), strict=True))
        return found if len(places) > MOST_NEAR else [(0.0, place), *found]


def said_again(new: Collection[int], memories: Sequence[Vitals], matrices: Matrices) -> dict[Vitals, list[Vitals]]:
    """Returns the memories that `new` ones (rows) say again, and which of these: of each the nearest before its day.

    Being said again in other words, on another day, is rehearsal. What is said twice on one day is not.
    """
    again: dict[Vitals, list[Vitals]] = {}
    places = [place for place, one in enumerate(memories) if one.row in new]
    days = np.array([one.created_at.date().toordinal() for one in memories])
    comparison = Comparison(memories, matrices)
    for start in range(0, len(places), BLOCK):
        block = places[start : start + BLOCK]
        like = comparison.cosines(block) * (days < days[block][:, None])
        for place, nearest, cosine in zip(block, like.argmax(axis=1), like.max(axis=1), strict=True):
            if cosine > SAID_AGAIN_SIMILARITY:
                again.setdefault(memories[nearest], []).append(memories[place])
    return again
