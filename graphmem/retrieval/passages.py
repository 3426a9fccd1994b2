"""Two features of passages (texts with a title): named by a top hit, and redundant with the best hit.

A passage whose title occurs in a top hit and that adds words which this hit lacks is likely the next step of a path. A
passage that matches the same words as the best hit is likely its look-alike ("Good, West Virginia" for "Johnnycake,
West Virginia"). Measured on MuSiQue: R@10 +2.0 [0.5, 3.8]; for turns of a conversation the same features cost 1.9
points of multi-hop recall, so they apply to titled texts without neighbours only (benchmarks/ABLATIONS.md, "Kept").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

import numpy as np

from graphmem.model import AnswerType
from graphmem.retrieval import scoring
from graphmem.retrieval.candidates import Candidates
from graphmem.retrieval.features import Column, Evidence, FeatureTable
from graphmem.retrieval.matching import relative_to_max
from graphmem.retrieval.types import SearchDeps
from graphmem.retrieval.weights import Weights
from graphmem.text import split_title, term_counts

# Top hits in whose texts titles are looked for.
HIT_LIMIT = 15
# Candidates that are considered: lower ones would not rise to the first hits.
CANDIDATE_LIMIT = 100
IS_TITLED = int(AnswerType.TITLED)


def with_passage_columns(
    candidates: Candidates, table: FeatureTable, weights: Weights, deps: SearchDeps
) -> FeatureTable:
    """Adds the columns `named` and `alike`, which only passages have."""
    evidence, totals = candidates.evidence, table.total(weights)
    passage_ids = passage_candidates(evidence, table, totals)
    if not passage_ids:
        return table
    shares = scoring.top_shares(table, totals, HIT_LIMIT)
    texts = candidates.reader.texts(evidence, {*passage_ids, *shares})
    titles = {uid: title_terms(texts[uid]) for uid in passage_ids}
    with deps.ledger.read() as connection:
        terms = {term for title in titles.values() for term in title}
        statistics = candidates.statistics.with_terms(connection, terms)
    top_hits = {uid: (share, frozenset(term_counts(texts[uid]))) for uid, share in shares.items()}
    named = named_by_hits(evidence, top_hits, titles, statistics.size, statistics.frequencies)
    alike = redundancy(evidence, next(iter(shares), ""), passage_ids)
    return table.with_column("named", named).with_column("alike", alike)


def passage_candidates(evidence: Evidence, table: FeatureTable, totals: Column) -> list[str]:
    """Returns the ids of passages among the best candidates, best first: titled, without neighbours."""
    ranked = (table.ids[i] for i in np.argsort(-totals, kind="stable")[:CANDIDATE_LIMIT])
    return [
        uid
        for uid in ranked
        if evidence.rows[uid].answer_types & IS_TITLED and evidence.neighbours.get(uid, (None, None)) == (None, None)
    ]


def title_terms(text: str) -> frozenset[int]:
    """Returns the term ids of a text's title."""
    return frozenset(term_counts(split_title(text)[0]))


def named_by_hits(
    evidence: Evidence,
    hits: Mapping[str, tuple[float, frozenset[int]]],
    titles: Mapping[str, frozenset[int]],
    size: int,
    frequencies: Mapping[int, int],
) -> dict[str, float]:
    """Returns for each passage the maximum over the top hits of share · named part of the title · gain over the hit.

    Divided by the greatest value; empty without token matches. `hits`: {id: (share, term ids of its text)}. `titles`:
    {passage's id: term ids of its title}. `size`: the partition's number of memories; `frequencies`: its document
    frequencies by term id.
    """
    if evidence.matches is None or not titles:
        return {}
    terms = frozenset[int]().union(*titles.values())
    term_weights = {
        term: log(1 + size / (frequencies.get(term, 0) + 0.5)) / log(1 + size) if size else 0.0 for term in terms
    }
    rows = evidence.matches.matrix(titles)
    best = np.zeros(len(titles))
    for hit, (share, hit_terms) in hits.items():
        named_parts = np.array(
            [0.0 if uid == hit else _named_part(terms, hit_terms, term_weights) for uid, terms in titles.items()]
        )
        best = np.maximum(best, share * named_parts * evidence.matches.gain(rows, hit))
    return relative_to_max(dict(zip(titles, best.tolist(), strict=True)))


def _named_part(title: frozenset[int], text_terms: frozenset[int], term_weights: Mapping[int, float]) -> float:
    """Returns the weighted part of the title's terms in a text, times the title's weight if that is below 1.

    So a title of common words counts less.
    """
    if not (shared := title & text_terms):
        return 0.0
    title_weight = sum(term_weights[term] for term in title)
    return sum(term_weights[term] for term in shared) / title_weight * min(title_weight, 1.0)


def redundancy(evidence: Evidence, best_hit: str, passages: Sequence[str]) -> dict[str, float]:
    """Returns how much of the best hit's matches each passage repeats, divided by the greatest value.

    The weighted sum of the lesser of both matches for each part of the query; empty without token matches.
    """
    if evidence.matches is None:
        return {}
    best_row, weights = evidence.matches.row(best_hit), evidence.matches.weights
    repeated = {
        uid: float(np.minimum(evidence.matches.row(uid), best_row) @ weights) for uid in passages if uid != best_hit
    }
    return relative_to_max(repeated)
