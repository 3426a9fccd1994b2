"""The table of candidates: one row for each memory, one column for each feature. Every arm adds columns. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]
# How much of a neighbour's score a memory takes over: what is said next to a match often is the answer.
BESIDE = 0.7


@dataclass(frozen=True, slots=True)
class Table:
    """Candidates by features; columns are parallel to `ids`."""

    ids: tuple[str, ...]
    columns: dict[str, Column] = field(default_factory=dict)

    def add(self, name: str, scores: Mapping[str, float], *, scaled: bool = False) -> None:
        """Adds a column; a candidate that the arm did not find has 0.

        Scores of an arm's own scale are brought between 0 and 1 over the candidates; `scaled` ones are there already.
        """
        column = np.array([scores.get(uid, 0.0) for uid in self.ids])
        self.columns[name] = column if scaled else normal(column)

    def total(self, weights: Mapping[str, float]) -> Column:
        """The weighted sum of the columns."""
        return sum((weight * self.columns[name] for name, weight in weights.items()), np.zeros(len(self.ids)))


def normal(column: Column) -> Column:
    """Min-max over the candidates; a column without differences counts nothing."""
    if not column.size or (spread := column.max() - column.min()) <= 0:
        return np.zeros_like(column)
    return np.asarray((column - column.min()) / spread)


def smoothed(scores: Mapping[str, float], beside: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Each memory's score averaged with those of its neighbours in the session."""
    return {
        uid: (score + BESIDE * sum(scores.get(other, 0.0) for other in beside.get(uid, ())))
        / (1 + BESIDE * len(beside.get(uid, ())))
        for uid, score in scores.items()
    }


def neighbours(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Who is beside whom, from the consecutive pairs."""
    beside: dict[str, list[str]] = {}
    for before, after in pairs:
        beside.setdefault(before, []).append(after)
        beside.setdefault(after, []).append(before)
    return beside


def spoken_by_named(question: str, speakers: Mapping[str, str | None]) -> dict[str, float]:
    """1 for the memories of the one speaker whose first name the question holds; none if it holds two."""
    words = set(re.findall(r"\w+", question.casefold()))
    named = {name for name in speakers.values() if name and name.split()[0].casefold() in words}
    if len(named) != 1:
        return {}
    return {uid: 1.0 for uid, name in speakers.items() if name in named}
