"""Reads the hits of a ranking with their paths, sentences and relations, and tells what became of one memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from graphmem.answer_size import count_texts, counted
from graphmem.model import MentionKind, Relation
from graphmem.retrieval import scoring, sentence_matching
from graphmem.retrieval.arms import ARMS
from graphmem.retrieval.candidates import Candidates
from graphmem.retrieval.context.sentence_values import weigh_sentences
from graphmem.retrieval.explanation import Trace
from graphmem.retrieval.ranking import Ranked, in_order, may_be_hits, passes_threshold
from graphmem.retrieval.types import Hit, SearchDeps, SearchOutcome
from graphmem.stores.ledger import graph_reads, memories
from graphmem.text import READ_CHARS

# What an arm is asked for to tell the rank of a memory that it did not give to the search.
TRACED_LIMIT = 10_000


def read_hits(ranking: Ranked, deps: SearchDeps) -> SearchOutcome:
    """Reads the records of the best memories with their explanations, and the relations that they state."""
    candidates, query, evidence = ranking.candidates, ranking.candidates.retrieved.query, ranking.candidates.evidence
    best = ranking.best[: scoring.AUTO_MAX if query.limit is None else query.limit]
    ids = [memory.id for memory in best]
    source_ids = [uid for memory in best for uid in memory.sources]
    explained = ids if query.explain else []
    replies, token_matches = dict[str, str](), dict[str, float]()
    if query.for_prompt:
        replies = {uid: question for uid in ids if (question := evidence.replies_to(uid)) is not None}
        token_matches = {} if evidence.matches is None else evidence.matches.totals(ids)
    on_paths = ranking.explainer.ids_on_paths(explained, "memory")
    entity_keys = ranking.explainer.ids_on_paths(explained, "entity")
    with deps.ledger.read() as connection:
        shown = dict.fromkeys([*ids, *on_paths, *source_ids, *replies.values()])
        with closing(memories.each_record(connection, {"uids": list(shown)})) as rows:
            found = list(counted(rows))
        records = {record.id: record for record in memories.as_they_were(connection, query.view, found)}
        partitions = [partition.key for partition in candidates.partitions]
        entities = graph_reads.entities_of(connection, query.view, partitions, entity_keys)
        relations = list[Relation]()
        if not query.for_prompt:  # a block shows none
            relations = graph_reads.relations_stated_by(connection, query.view, [*ids, *source_ids])
    hits = []
    for memory in (memory for memory in best if memory.id in records):
        assessed, explanation = ranking.relevances[memory.id], None
        if query.explain:
            shares = sorted(assessed.shares.items(), key=lambda share: -abs(share[1]))
            explanation = ranking.explainer.explain(memory, records, entities)
            explanation = replace(explanation, relevance={name: share for name, share in shares if share})
            # A text may stand in several paths.
            count_texts(*(step.get("memory") for step in explanation.path))
        hits.append(
            Hit(
                records[memory.id],
                memory.score,
                evidence.similarity.get(memory.id, 0.0),
                assessed.value,
                explanation,
                tuple(records[uid] for uid in memory.sources if uid in records),
                question=records[replies[memory.id]].text if replies.get(memory.id) in records else "",
                token_match=token_matches.get(memory.id, 0.0),
            )
        )
    count_texts(*(fact for relation in relations for fact in relation.facts))  # and several relations may quote one
    selected = tuple(hits) if query.select is None else query.select(tuple(hits))
    selected = _with_sentence_matches(candidates, selected, deps)
    if query.for_prompt:
        selected = weigh_sentences(candidates.retrieved.analysis, selected)
    # Common nouns name nothing.
    named = (
        key
        for partition in candidates.partitions
        for key in partition.named_entities
        if partition.kinds[key] < MentionKind.COMMON_NOUN
    )
    outcome = SearchOutcome(
        selected, tuple(relations), (), tuple(dict.fromkeys(named)), best_relevance=ranking.best_relevance
    )
    degraded = candidates.degraded
    if query.traced is not None:
        trace, failed = _trace(query.traced, ranking, selected, deps)
        outcome, degraded = replace(outcome, trace=trace), degraded | failed
    return replace(outcome, degraded=tuple(sorted(degraded)))


def _with_sentence_matches(candidates: Candidates, hits: tuple[Hit, ...], deps: SearchDeps) -> tuple[Hit, ...]:
    """Returns the hits with their matching sentences: for a prompt those of all, else of long explained ones."""
    query = candidates.retrieved.query
    least_chars = 0 if query.for_prompt else sentence_matching.UNSPLIT_CHARS if query.explain else math.inf
    spans = [
        (hit.record, sentence_matching.sentences(hit.record.text[:READ_CHARS]))
        for hit in hits
        if len(hit.record.text) > least_chars
    ]
    divided = [(record, own) for record, own in spans if len(own) > query.for_prompt]
    if not divided:
        return hits
    windows = candidates.reader.token_windows([record.row for record, _ in divided])
    matcher = sentence_matching.SentenceMatcher(query.text, candidates.evidence.matches, deps.embedder)
    matches = matcher.match(divided, windows)
    return tuple(replace(hit, sentence_match=matches.get(hit.record.id)) for hit in hits)


def _trace(uid: str, ranking: Ranked, hits: Sequence[Hit], deps: SearchDeps) -> tuple[Trace, frozenset[str]]:
    """Returns what the search knows of a memory, and what failed; asks the arms again, and for more."""
    candidates, ranked, explainer = ranking.candidates, ranking.ranked, ranking.explainer
    retrieved = candidates.retrieved
    answers = [arm.search(retrieved.asked, deps, TRACED_LIMIT) for arm in ARMS]
    traced = replace(retrieved, found=[answer.value for answer in answers])
    arm_limits = {arm.name: arm.candidates for arm in ARMS}
    places = {name: [found for found, _ in traced.of(name)] for name in arm_limits}
    own = next((place for place, memory in enumerate(ranked, 1) if memory.id == uid), None)
    grouped = may_be_hits(candidates, ranked, explainer, deps, len(ranked)) if own is not None else []
    grouped = in_order(grouped, ranking.relevances, candidates)
    moved = next((memory for memory in ranking.best if memory.id == uid and memory.reranked is not None), None)
    memory = moved or (None if own is None else ranked[own - 1])
    found = ranking.relevances.get(uid)
    trace = Trace(
        arm_ranks={name: ids.index(uid) + 1 for name, ids in places.items() if uid in ids},
        arm_limits=arm_limits,
        candidates=len(ranked),
        rank=own,
        score=None if memory is None else memory.score,
        similarity=candidates.evidence.similarity.get(uid),
        passes_threshold=own is None or passes_threshold(candidates, uid, explainer),
        grouped_under=next((memory.id for memory in grouped if uid in memory.sources), None),
        place=next((place for place, memory in enumerate(grouped, 1) if memory.id == uid), None),
        relevance=None if found is None else found.value,
        floor=ranking.floor,
        reranked=None if moved is None else moved.reranked,
        hit=next((place for place, hit in enumerate(hits, 1) if hit.record.id == uid), None),
        last_score=hits[-1].score if hits else None,
        shares={} if memory is None else explainer.shares(memory),
    )
    return trace, frozenset[str]().union(*(answer.degraded for answer in answers))
