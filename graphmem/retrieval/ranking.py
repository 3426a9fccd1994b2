"""Ranks the candidates by the weighted sum of their features, and keeps those that may be hits."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from graphmem.errors import ModelError, StoreError
from graphmem.logs import log_text
from graphmem.model import ALL_KINDS, AnswerType, embedded_text
from graphmem.retrieval import relevance, scoring
from graphmem.retrieval.arms import attempt
from graphmem.retrieval.assessment import ASKS, relevances_of
from graphmem.retrieval.candidates import Candidates, found_by_arms
from graphmem.retrieval.explanation import ExplanationBuilder
from graphmem.retrieval.features import FeatureTable
from graphmem.retrieval.graph_walk import Walked
from graphmem.retrieval.matching import CharacterMatches
from graphmem.retrieval.passages import with_passage_columns
from graphmem.retrieval.relevance import COSINE_DIGITS, Relevance
from graphmem.retrieval.reordering import (
    BoundedReranker,
    RankedMemory,
    below,
    group_sources,
    put_last,
    raise_replies,
    reranked,
)
from graphmem.retrieval.requests_to_assistant import MAX_REQUEST_CHARS, asks_for_requests, is_request
from graphmem.retrieval.types import SearchDeps
from graphmem.retrieval.weights import KEYWORD_QUERY_WEIGHT, Weights
from graphmem.stores.ledger import candidate_rows, memories
from graphmem.text import is_unspaced, words_of

logger = logging.getLogger("graphmem")

# Whoever asks for more hits than this gets memories of the arms behind the candidates, if these are not enough.
MAX_HITS_OF_CANDIDATES = 50
# The fewest memories among which relevance is assessed, so that it does not depend on the number of hits asked for.
MIN_ASSESSED = 20


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates in their order, and those that may be hits.

    `ranked`: all memories by their sum of features, as `explainer` explains them. `best`: those of them that may be
    hits, at least as many as are asked for if there are, and `relevances` of these and of what is below the `floor`
    (None: there is none). `best_relevance` is None if nothing was found.
    """

    candidates: Candidates
    ranked: Sequence[RankedMemory]
    explainer: ExplanationBuilder
    best: Sequence[RankedMemory]
    relevances: Mapping[str, Relevance]
    best_relevance: float | None
    floor: float | None


def rank(walked: Walked, deps: SearchDeps) -> Ranked:
    """Ranks the candidates by the weighted sum of their features, and assesses the relevance of the best."""
    candidates, query = walked.candidates, walked.candidates.retrieved.query
    lacks_tokens = candidates.lacks_tokens
    weights = candidates.weights.final_without_tokens if lacks_tokens else candidates.weights.final
    if candidates.retrieved.analysis.is_keywords and weights.get("keyword"):
        weights = {**weights, "keyword": KEYWORD_QUERY_WEIGHT}
    table = candidates.table()
    if candidates.weights.uses_graph and not lacks_tokens:
        table = with_passage_columns(candidates, table, weights, deps)
    ranked = of_candidates = by_total(table, weights)
    explainer = _explainer(walked, candidates, table, weights, ranked)
    most = scoring.AUTO_MAX if query.limit is None else query.limit
    if deps.reranker is not None and query.rerank:
        most = max(most, deps.reranker.candidates)
    most = max(MIN_ASSESSED, most)
    grouped = may_be_hits(candidates, ranked, explainer, deps, most)
    limit, arm_limit = query.limit, query.limit or 0
    while limit is not None and limit > MAX_HITS_OF_CANDIDATES and len(grouped) < limit <= arm_limit:
        candidates, further, arm_limit = _further_memories(candidates, arm_limit, deps)
        last_score = of_candidates[-1].score if of_candidates else 1.0
        lower = by_total(candidates.table(further), weights)
        ranked = [*of_candidates, *(memory._replace(score=last_score * memory.score) for memory in lower)]
        table = candidates.table([*candidates.ids, *further])
        explainer = _explainer(walked, candidates, table, weights, ranked)
        grouped = may_be_hits(candidates, ranked, explainer, deps, most)
    relevances = relevances_of(candidates, grouped[:MIN_ASSESSED], deps)
    if len(grouped) > MIN_ASSESSED:  # what a memory is compared with is part of its relevance
        relevances = {**relevances_of(candidates, grouped, deps), **relevances}
    grouped = in_order(grouped, relevances, candidates)
    best_relevance = max((one.value for one in relevances.values()), default=None)
    floor = _floor(candidates, best_relevance or 0.0)
    best = [memory for memory in grouped if floor is None or relevances[memory.id].value >= floor]
    return Ranked(candidates, ranked, explainer, best, relevances, best_relevance, floor)


def by_total(table: FeatureTable, weights: Weights) -> list[RankedMemory]:
    """Returns the memories of a table by the sum of their weighted features, best first."""
    totals = table.total(weights)
    order = np.argsort(-totals, kind="stable")
    ids = map(table.ids.__getitem__, order.tolist())
    return list(map(RankedMemory, ids, scoring.scores(totals)[order].tolist()))


def in_order(
    grouped: Sequence[RankedMemory], relevances: Mapping[str, Relevance], candidates: Candidates
) -> list[RankedMemory]:
    """Returns memories, best first, in the order of the hits.

    It heeds the relevance of the first `MIN_ASSESSED`, and puts those of them whose words another one has in a better
    place behind the others of them. So what comes first does not depend on the number of hits asked for.
    """
    first, rest = _by_relevance(grouped[:MIN_ASSESSED], relevances, candidates), grouped[MIN_ASSESSED:]
    first = put_last(first, _repetitions(first, candidates))
    return [*first, *below(rest, first[-1].score)] if rest else first


def _repetitions(ranked: Sequence[RankedMemory], candidates: Candidates) -> set[str]:
    """Returns the memories, of some best first, in which somebody says what they have said in one before.

    None where the query asks for a time or a number: each time that something was said may be part of the answer.
    """
    analysis, evidence = candidates.retrieved.analysis, candidates.evidence
    if analysis.periods or analysis.answer_types & (AnswerType.WHEN | AnswerType.NUMBER | AnswerType.DURATION):
        return set()
    # The same words have the same cosine, and most memories no one else's: few texts are read.
    alike = defaultdict[tuple[str | None, str | None, float], list[str]](list)
    for memory in ranked:
        row = evidence.rows[memory.id]
        alike[row.speaker, row.role, round(evidence.similarity.get(memory.id, 0.0), COSINE_DIGITS)].append(memory.id)
    groups = [ids for ids in alike.values() if len(ids) > 1]
    if not groups:
        return set()
    texts = candidates.reader.texts(evidence, chain.from_iterable(groups))
    repetitions = set[str]()
    for ids in groups:
        said = set[tuple[str, ...]]()
        for uid in ids:
            words = tuple(words_of(texts.get(uid, "")))
            if words and words in said:
                repetitions.add(uid)
            said.add(words)
    return repetitions


def _by_relevance(
    grouped: Sequence[RankedMemory], relevances: Mapping[str, Relevance], candidates: Candidates
) -> list[RankedMemory]:
    """Returns memories, best first, in an order that heeds their relevance, more so where the partition is small.

    What resembles the query in nothing may still answer it by a path, so in small partitions little relevance counts as
    `scoring.LEAST_RELEVANCE`; that of a memory that only asks as less. Where the query names a time, the time decides.
    """
    if candidates.retrieved.analysis.periods or not candidates.weights.heeds_relevance:
        return list(grouped)
    rows, smallness = candidates.evidence.rows, scoring.smallness(candidates.statistics.kept)
    least, least_of_questions = smallness * scoring.LEAST_RELEVANCE, smallness * scoring.LEAST_OF_QUESTIONS
    values = {
        uid: max(one.value, least_of_questions if rows[uid].question_share >= ASKS else least)
        for uid, one in relevances.items()
    }
    return scoring.order_by_relevance(grouped, values, candidates.statistics.kept)


def _explainer(
    walked: Walked, candidates: Candidates, table: FeatureTable, weights: Weights, ranked: Sequence[RankedMemory]
) -> ExplanationBuilder:
    return ExplanationBuilder(
        candidates.arms,
        [one.result for one in walked.walks],
        table,
        weights,
        ranked,
        matches_characters=isinstance(candidates.evidence.matches, CharacterMatches),
        is_unspaced=is_unspaced(candidates.retrieved.query.text),
    )


def _further_memories(candidates: Candidates, arm_limit: int, deps: SearchDeps) -> tuple[Candidates, list[str], int]:
    """Returns up to `arm_limit` memories of each arm that are no candidates, and the next limit, 0 for none left.

    Candidates are few, so that a search is fast; whoever asks for hundreds of hits gets these behind them. The evidence
    of the candidates returned has these memories as well.
    """
    retrieved, reader = candidates.retrieved, candidates.reader
    found = found_by_arms(retrieved, reader, candidates.evidence, deps, arm_limit)
    own = set(candidates.ids)
    further = [uid for uid in scoring.union_in_order(*found.scores.values()) if uid not in own]
    evidence = replace(found.evidence, keyword={**found.scores["keyword"], **found.evidence.keyword})
    more = replace(
        candidates, evidence=reader.compared(evidence, further), degraded=candidates.degraded | found.degraded
    )
    return more, further, 0 if max(map(len, found.scores.values())) < arm_limit else 4 * arm_limit


def may_be_hits(
    candidates: Candidates,
    ranked: Sequence[RankedMemory],
    explainer: ExplanationBuilder,
    deps: SearchDeps,
    most: int,
) -> list[RankedMemory]:
    """Returns the first `most` memories that pass the threshold, source messages under facts, without repetitions.

    For a prompt the user's requests to an assistant, which tell nothing, are left out as well, unless the query asks
    for them. A view of some kinds of memories shows source messages beside the facts.
    """
    query, rows = candidates.retrieved.query, candidates.evidence.rows
    if query.threshold is not None:
        ranked = [memory for memory in ranked if passes_threshold(candidates, memory.id, explainer)]
    grouped = raise_replies(ranked, candidates.replies)
    source_rows = [rows[memory.id].row for memory in grouped if rows[memory.id].source_only]
    if source_rows and query.view.kinds == ALL_KINDS:
        with deps.ledger.read() as connection:
            grouped = group_sources(grouped, memories.facts_of(connection, source_rows))
    grouped = [memory for memory in grouped if memory.id not in candidates.repetitions]
    if not query.for_prompt or asks_for_requests(query.text):
        return grouped[:most]
    others, unread = list[RankedMemory](), grouped
    while unread and len(others) < most:
        wanted = most - len(others)
        some, unread = unread[:wanted], unread[wanted:]
        ids = {rows[memory.id].row: memory.id for memory in some}
        with deps.ledger.read() as connection:
            read = candidate_rows.read_short_user_texts(connection, list(ids), MAX_REQUEST_CHARS)
        texts = {ids[row]: text for row, text in read.items()}
        others += [one for one in some if one.id not in texts or not is_request(texts[one.id])]
    return others


def passes_threshold(candidates: Candidates, uid: str, explainer: ExplanationBuilder) -> bool:
    """Whether a memory, or the memory at which its path starts, has at least the cosine `threshold`."""
    threshold, similarity = candidates.retrieved.query.threshold, candidates.evidence.similarity
    if threshold is None:
        return True
    return max(similarity.get(uid, 0.0), similarity.get(explainer.start_of(uid), 0.0)) >= threshold


def _floor(candidates: Candidates, best: float) -> float | None:
    """Returns the least relevance of a hit; None for none."""
    query, encoded = candidates.retrieved.query, candidates.retrieved.encoded
    if query.min_relevance != "default":
        return query.min_relevance
    size, has_vectors = candidates.statistics.kept, encoded.multilingual is not None
    return relevance.default_floor(size, best, has_vectors=has_vectors, is_read=encoded.is_read)


def rerank(ranked: Ranked, reranker: BoundedReranker, deps: SearchDeps) -> Ranked:
    """Lets the reranker order the best memories; if it fails, the ranking stays, degraded by "reranker"."""
    candidates = ranked.candidates
    asked = [memory.id for memory in ranked.best[: reranker.candidates]]
    rows, texts = candidates.evidence.rows, candidates.reader.texts(candidates.evidence, asked)
    spoken = [embedded_text(rows[uid].speaker, texts.get(uid, "")) for uid in asked]
    if not spoken:
        return ranked

    def scores() -> list[float]:
        try:
            with deps.observers.model_call("rerank"):
                return reranker.scores(candidates.retrieved.query.text, spoken)
        except (ModelError, StoreError) as error:
            logger.warning("a search keeps its own order, for the reranker failed (%s)", log_text(error))
            raise

    nothing: list[float] = []
    answer = attempt("reranker", scores, nothing)
    candidates = replace(candidates, degraded=candidates.degraded | answer.degraded)
    return replace(ranked, candidates=candidates, best=reranked(ranked.best, answer.value))
