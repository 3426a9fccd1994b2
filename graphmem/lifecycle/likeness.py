"""Compares memories by their vectors: which are alike, and which were said again. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

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
# New memories that are compared with all at a time: 100 MB of cosines in a partition of 50,000.
BLOCK = 500


def cosines(memories: Sequence[Vitals], matrices: Matrices, of: Sequence[int] | None = None) -> Matrix:
    """Returns the cosines, from 0 on, of memories to each other, or of those at the places `of` to all: (of, memories).

    Each pair is compared in the space in which it is nearest. Those of other scopes, kinds or speakers are not alike.
    """
    own = np.arange(len(memories)) if of is None else np.asarray(of, int)
    found = np.zeros((len(own), len(memories)), np.float32)
    for rows, matrix in matrices.values():
        place_of = {row: place for place, row in enumerate(rows)}
        places = np.array([place_of.get(one.row, -1) for one in memories], int)
        here, lines = np.flatnonzero(places >= 0), np.flatnonzero(places[own] >= 0)
        square = np.ix_(lines, here)
        found[square] = np.maximum(found[square], matrix[places[own[lines]]] @ matrix[places[here]].T)
    numbers: dict[object, int] = {}
    sorts = [numbers.setdefault((one.scope, one.kind, one.speaker, one.role), len(numbers)) for one in memories]
    found[np.array(sorts)[own][:, None] != np.array(sorts)] = 0.0
    return found


def said_again(new: Collection[int], memories: Sequence[Vitals], matrices: Matrices) -> dict[Vitals, list[Vitals]]:
    """Returns the memories that `new` ones (rows) say again, and which of these: of each the nearest before its day.

    Being said again in other words, on another day, is rehearsal. What is said twice on one day is not.
    """
    again: dict[Vitals, list[Vitals]] = {}
    places = [place for place, one in enumerate(memories) if one.row in new]
    days = np.array([one.created_at.date().toordinal() for one in memories])
    for start in range(0, len(places), BLOCK):
        block = places[start : start + BLOCK]
        like = cosines(memories, matrices, block) * (days < days[block][:, None])
        for place, nearest, cosine in zip(block, like.argmax(axis=1), like.max(axis=1), strict=True):
            if cosine > SAID_AGAIN_SIMILARITY:
                again.setdefault(memories[nearest], []).append(memories[place])
    return again
