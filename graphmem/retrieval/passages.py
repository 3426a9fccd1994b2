"""Passages, texts with a title: which of them a good find names, and which only look like the best. Pure.

A passage whose title occurs in a good find and that adds what that find lacks is likely the next step of the way; one
that answers the same words as the best find is likely its look-alike ("Good, West Virginia" for "Johnnycake, West
Virginia"). Found by measuring (README, "Why it is built so"): neither says anything about turns of a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

import numpy as np

from graphmem.model import AnswerType
from graphmem.retrieval.features import Column, Evidence, FeatureTable
from graphmem.retrieval.token_matching import relative_to_max
from graphmem.text import split_title, term_counts

# From how many finds titles are looked for.
HIT_LIMIT = 15
# How many of the candidates are looked at: those behind them would not come among the first any more.
CANDIDATE_LIMIT = 100
IS_TITLED = int(AnswerType.TITLED)


def passage_candidates(evidence: Evidence, table: FeatureTable, totals: Column) -> list[str]:
    """Which of the better candidates are passages: titled, and with nobody beside them."""
    ranked = (table.ids[i] for i in np.argsort(-totals, kind="stable")[:CANDIDATE_LIMIT])
    return [
        uid
        for uid in ranked
        if evidence.rows[uid].answer_types & IS_TITLED and evidence.neighbours.get(uid, (None, None)) == (None, None)
    ]


def title_terms(text: str) -> frozenset[int]:
    """The terms of a text's title."""
    return frozenset(term_counts(split_title(text)[0]))


def named_by_hits(
    evidence: Evidence,
    finds: Mapping[str, tuple[float, frozenset[int]]],
    titles: Mapping[str, frozenset[int]],
    size: int,
    frequencies: Mapping[int, int],
) -> dict[str, float]:
    """How well the finds name each passage that adds to them, as shares of the best named.

    `finds` are shares and terms by id, `titles` the terms of passages' titles; `frequencies` counts the `size` texts
    of the partition that hold a term.
    """
    if evidence.matches is None or not titles:
        return {}
    worth = {term: _worth(size, frequencies.get(term, 0)) for terms in titles.values() for term in terms}
    rows = evidence.matches.matrix(titles)
    most = np.zeros(len(titles))
    for find, (share, said) in finds.items():
        told = np.array([0.0 if uid == find else _told(terms, said, worth) for uid, terms in titles.items()])
        most = np.maximum(most, share * told * evidence.matches.gain(rows, find))
    return relative_to_max(dict(zip(titles, most.tolist(), strict=True)))


def _told(title: frozenset[int], said: frozenset[int], worth: Mapping[int, float]) -> float:
    """The part of a title that a text says; of a title of common words less."""
    if not (both := title & said):
        return 0.0
    whole = sum(worth[term] for term in title)
    return sum(worth[term] for term in both) / whole * min(whole, 1.0)


def _worth(size: int, df: int) -> float:
    return log(1 + size / (df + 0.5)) / log(1 + size) if size else 0.0


def redundancy(evidence: Evidence, first: str, passages: Sequence[str]) -> dict[str, float]:
    """How much each passage only repeats of what the first of all finds matches, as shares of the most."""
    if evidence.matches is None:
        return {}
    mine, weights = evidence.matches.row(first), evidence.matches.weights
    both = {uid: float(np.minimum(evidence.matches.row(uid), mine) @ weights) for uid in passages if uid != first}
    return relative_to_max(both)
