"""Mere sources beside the facts drawn from them: one hit for both. Pure.

A fact and the words it was drawn from say the same. Side by side they would take two places and repeat each other, so
the words stand under the fact, which takes the better place of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankedMemory:
    """A memory's id with its score (0..1), and the ids of the sources folded into it, best first."""

    id: str
    score: float
    sources: tuple[str, ...] = ()


def group_sources(ranked: Sequence[RankedMemory], facts_of: Mapping[str, Iterable[str]]) -> list[RankedMemory]:
    """The ranking, best first, without the sources of which a fact is in it; `facts_of` are facts by source.

    A source lifts the best of its facts, the one that answers best, to its own place and score. It stands under its
    other facts, too, but lifts none of these: words of which much was made would fill the list.
    """
    place = {one.id: number for number, one in enumerate(ranked)}
    folded = {
        one.id: facts
        for one in ranked
        if (facts := sorted((fact for fact in facts_of.get(one.id, ()) if fact in place), key=place.__getitem__))
    }
    under: dict[str, list[str]] = {}
    for source, facts in folded.items():
        for fact in facts:
            under.setdefault(fact, []).append(source)
    shown: dict[str, RankedMemory] = {}
    for one in ranked:
        stands_for = folded[one.id][0] if one.id in folded else one.id
        shown.setdefault(stands_for, RankedMemory(stands_for, one.score, tuple(under.get(stands_for, ()))))
    return list(shown.values())
