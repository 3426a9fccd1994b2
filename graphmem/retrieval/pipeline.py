"""A search from query to hits: arms, candidates, PageRank, second hop, features, one weighted sum."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from time import perf_counter

import numpy as np

from graphmem.answer_size import count_texts, counted
from graphmem.concurrency import single_blas_thread
from graphmem.errors import ModelError, StoreError
from graphmem.extraction.latin_names import capitalized_names
from graphmem.logs import log_text
from graphmem.model import (
    ALL_KINDS,
    ASSISTANT,
    EntityType,
    MentionKind,
    Relation,
    Seeds,
    Subgraph,
    embedded_text,
    micros,
)
from graphmem.plugins import embedding_spec_of
from graphmem.retrieval import (
    character_matching,
    passages,
    relevance,
    scoring,
    second_hop,
    sentence_matching,
    term_overlap,
    token_matching,
)
from graphmem.retrieval.absence import Trace
from graphmem.retrieval.candidates import Candidates
from graphmem.retrieval.character_matching import CharacterMatches
from graphmem.retrieval.context.sentence_values import weigh_sentences
from graphmem.retrieval.explanation import Explanation, ExplanationBuilder
from graphmem.retrieval.features import Column, FeatureTable
from graphmem.retrieval.pagerank import MENTION_WEIGHTS, WalkResult, personalized_pagerank, rarity
from graphmem.retrieval.query_analysis import analyze_query
from graphmem.retrieval.relevance import AskedQuestion, FoundMemory, Relevance
from graphmem.retrieval.requests import MAX_REQUEST_CHARS, asks_for_requests, is_request
from graphmem.retrieval.reranking import BoundedReranker, reranked
from graphmem.retrieval.retrievers import DENSE_LIMIT, KEYWORD_LIMIT, MAX_PARTITIONS, MAX_READ_CHARS, Retrievers
from graphmem.retrieval.source_grouping import RankedMemory, group_sources, raise_replies
from graphmem.retrieval.term_overlap import WeightedTerms
from graphmem.retrieval.types import (
    EncodedQuery,
    Hit,
    ScoredIds,
    SearchDeps,
    SearchOutcome,
    SearchPartition,
    SearchQuery,
)
from graphmem.retrieval.weights import FULL, KEYWORD_QUERY_WEIGHT, SearchWeights, Weights
from graphmem.stores.ledger import candidate_rows, graph_reads, memories
from graphmem.text import is_unspaced, normalise_key, query_term_counts, term_counts, term_id, tokens, words_of

logger = logging.getLogger("graphmem")

# The best of the keyword arm that become candidates, all candidates of the arms, and those that PageRank may add. More
# (250 to 400 in all) cost time and gain nothing (benchmarks/ABLATIONS.md, "Left out").
KEYWORD_CANDIDATE_LIMIT, CANDIDATE_LIMIT, WALK_CANDIDATE_LIMIT = 100, 150, 100
# The best candidates among which repetitions of the query are looked for.
REPETITION_LIMIT = 50
# Memories of each period that the query names, the newest first (benchmarks/ABLATIONS.md, "Times").
DATED_LIMIT = 50
# Paths start at named entities and at so many of the best memories with at least this part of the best one's share.
MAX_PATH_STARTS, START_SHARE = 3, 0.25
# Whoever asks for more hits than this gets memories of the arms behind the candidates, if these are not enough.
MAX_HITS_OF_CANDIDATES = 50
# The fewest memories among which relevance is assessed, so that it does not depend on the number of hits asked for.
MIN_ASSESSED = 20
# Types of the entities that a query names, as opposed to things it is about.
NAMED_TYPES = frozenset({EntityType.PERSON, EntityType.PLACE, EntityType.ORGANIZATION})
# What an arm is asked for to tell the rank of a memory that it did not give to the search.
TRACED_LIMIT = 10_000
# The least relevance of a reply that the query asks for.
REPLY_RELEVANCE = 0.5
# Hits that may date the event from which the query counts, and the least score of such a hit.
EVENT_LIMIT, MIN_EVENT_SCORE = 2, 0.8


def search(query: SearchQuery, deps: SearchDeps, weights: SearchWeights = FULL) -> SearchOutcome:
    """Answers a query. An arm that fails is left out and named in `degraded`; StoreError only from the ledger."""
    begin = perf_counter()
    with deps.load.searching():
        outcome = _answer(query, deps, weights)
    deps.observers.searched(perf_counter() - begin, outcome.degraded)
    return outcome


def _answer(query: SearchQuery, deps: SearchDeps, weights: SearchWeights) -> SearchOutcome:
    run = _Search(query, deps, weights)
    with single_blas_thread():
        run.resolve_event()
        run.retrieve()
        with deps.ledger.read():
            run.rank_candidates()
            seeds = run.seeds() if weights.uses_graph else []
        # The ledger's snapshot is not held while the search waits for something else: the arms, a graph server.
        subgraphs = run.neighbourhoods(seeds)
        with deps.ledger.read():
            if weights.uses_graph:
                run.walk(seeds, subgraphs)
            if weights.uses_graph and not run.names_one_speaker():
                run.expand_second_hop()
            ranking = run.rank()
            if deps.reranker is None or not query.rerank:
                return run.answer(ranking)
    # Nor is it, or the limit of threads, while a reranker works.
    ranking = run.rerank(ranking, deps.reranker)
    with single_blas_thread(), deps.ledger.read():
        return run.answer(ranking)


@dataclass(frozen=True, slots=True)
class _SeededPartition:
    """The seeds of PageRank in one partition with their shares, and the memories at which paths may start."""

    partition: SearchPartition
    memories: Mapping[str, float]
    entities: Mapping[str, float]
    starts: Sequence[str]


@dataclass(frozen=True, slots=True)
class _PartitionWalk:
    """The PageRank of one partition."""

    partition: SearchPartition
    subgraph: Subgraph
    result: WalkResult


@dataclass(frozen=True, slots=True)
class _Ranking:
    """What may be a hit.

    `ranked`: all memories by their sum of features, as `explainer` explains them. `best`: those of them that may be
    hits, at least as many as are asked for if there are, and `relevances` of these and of what is below the `floor`.
    """

    ranked: Sequence[RankedMemory]
    explainer: ExplanationBuilder
    best: Sequence[RankedMemory]
    relevances: Mapping[str, Relevance]
    best_relevance: float | None
    floor: float | None


def _ranked(table: FeatureTable, weights: Weights) -> list[RankedMemory]:
    """Returns the memories of a table by the sum of their weighted features, best first."""
    totals = table.total(weights)
    scored = scoring.scores(totals)
    return [RankedMemory(table.ids[i], float(scored[i])) for i in np.argsort(-totals, kind="stable")]


class _Search:
    """The state of one search; each step adds candidates or evidence. The order of the steps is that of `_answer`."""

    def __init__(self, query: SearchQuery, deps: SearchDeps, weights: SearchWeights) -> None:
        query = replace(query, text=query.text[:MAX_READ_CHARS])
        self._query = query
        self._deps = deps
        self._weights = weights
        self._analysis = analyze_query(query.text, query.now or query.view.moment)
        self._retrievers = Retrievers(query, deps)
        self._arms: dict[str, Mapping[str, float]] = {}
        self._walks: list[_PartitionWalk] = []
        self._ids: list[str] = []
        self._repetitions: list[str] = []
        self._replies: dict[str, str] = {}

    def resolve_event(self) -> None:
        """Finds the time of the event from which the query counts ("a week after the wedding") by a search of its own.

        Its period is added to those that the query names. Only hits that share a word with the event's name count.
        """
        if self._analysis.offset is not None:
            event = replace(
                self._query,
                text=self._analysis.offset.anchor,
                limit=EVENT_LIMIT,
                explain=False,
                min_relevance=None,
                traced=None,
                rerank=False,
            )
            outcome = _answer(event, self._deps, self._weights)
            event_terms = set(query_term_counts(self._analysis.offset.anchor))
            event_hits = (
                hit
                for hit in outcome.hits
                if hit.score >= MIN_EVENT_SCORE and event_terms & set(term_counts(hit.record.embedded_text))
            )
            self._analysis = self._analysis.resolve_offset(micros(hit.record.at) for hit in event_hits)

    def retrieve(self) -> None:
        """Runs the arms."""
        self._retrieved = self._retrievers.retrieve()

    def rank_candidates(self) -> None:
        """Keeps the visible memories that the arms found, adds their neighbours and chooses the best as candidates."""
        encoded, partitions = self._retrieved.encoded, self._retrieved.partitions
        self._candidates = Candidates(self._query, self._deps.ledger, embedding_spec_of(self._deps.embedder), encoded)
        if encoded.is_multilingual:
            self._weights = self._weights.for_multilingual_query()
        evidence = self._candidates.evidence
        evidence.compares_vectors = encoded.compares_vectors
        dense = self._filtered_dense(self._retrieved.dense, self._retrieved.unread, DENSE_LIMIT)
        keyword = self._filtered_keyword(self._retrieved.keyword, KEYWORD_LIMIT)
        evidence.keyword = keyword
        self._arms = {"dense": dense, "keyword": keyword} if encoded.compares_vectors else {"keyword": keyword}
        self._partitions = self._retrievers.partitions(
            self._nearest_partitions(dense if encoded.compares_vectors else keyword, partitions)
        )
        arm_ids = (
            scoring.union_in_order(dense, list(keyword)[:KEYWORD_CANDIDATE_LIMIT], self._dated()) or self._newest()
        )
        self._candidates.load_neighbours_and_similarities(arm_ids)
        with_neighbours = self._candidates.with_neighbours(arm_ids)
        self._candidates.load_neighbours_and_similarities(with_neighbours)
        self._ids = scoring.top_rows(
            evidence.table(with_neighbours, self._analysis), self._weights.candidates, CANDIDATE_LIMIT
        )
        if self._query.for_prompt and self._analysis.is_question:
            self._find_repetitions()
        self._weigh_tokens(encoded)

    def _filtered_dense(self, dense: ScoredIds, unread: ScoredIds, limit: int) -> dict[str, float]:
        """Returns the visible memories of both arms of vectors, up to `limit` of each, with their scores."""
        search, encoded, filter_hits = self._retrievers, self._retrieved.encoded, self._candidates.filter_hits
        return {
            **filter_hits(lambda n: search.unread(encoded, n), unread, limit),
            **filter_hits(lambda n: search.dense(encoded, n), dense, limit),
        }

    def _filtered_keyword(self, keyword: ScoredIds, limit: int) -> dict[str, float]:
        """Returns up to `limit` visible memories of the keyword arm with their scores."""
        search, partitions = self._retrievers.keyword, self._retrieved.partitions
        return self._candidates.filter_hits(lambda n: search(partitions, n), keyword, limit)

    def _find_repetitions(self) -> None:
        """Finds the candidates that repeat the query, a question; the replies to them become candidates.

        A repetition has the query's own words. It matches best of all and answers nothing.
        """
        evidence = self._candidates.evidence
        texts, query_words = self._texts(self._ids[:REPETITION_LIMIT]), words_of(self._query.text)
        self._repetitions = [uid for uid, text in texts.items() if words_of(text) == query_words]
        replies = {uid: reply for uid in self._repetitions if (reply := evidence.reply_to(uid)) is not None}
        visible = self._candidates.visible_ids(replies.values())
        self._replies = {uid: reply for uid, reply in replies.items() if reply in visible}
        self._ids = scoring.union_in_order(self._ids, visible)

    def _texts(self, ids: Collection[str]) -> dict[str, str]:
        """Reads the texts of candidates, by id."""
        rows = {uid: self._candidates.evidence.rows[uid].row for uid in ids}
        with self._deps.ledger.read() as connection:
            texts = candidate_rows.read_texts(connection, list(rows.values()))
        return {uid: texts[row] for uid, row in rows.items() if row in texts}

    def _dated(self) -> list[str]:
        """Returns the newest memories of each period that the query names."""
        with self._deps.ledger.read() as connection:
            return self._candidates.visible_ids(
                [
                    uid
                    for start, end in self._analysis.period_bounds
                    for uid in memories.ids_between(connection, self._query.view, start, end, DATED_LIMIT)
                ]
            )

    def _newest(self) -> list[str]:
        """Returns the newest memories if the vector index failed; their cosines come from the ledger's vectors."""
        if "vectors" not in self._retrievers.degraded:
            return []
        with self._deps.ledger.read() as connection:
            with closing(memories.list_records(connection, self._query.view, with_sources=True)) as records:
                newest = [record.id for record in islice(records, CANDIDATE_LIMIT)]
            return self._candidates.visible_ids(newest)

    def _nearest_partitions(self, scores: Mapping[str, float], partitions: Sequence[str]) -> list[str]:
        """Returns the partitions of an arm's memories, best first, then the others, the last written first."""
        rows = self._candidates.evidence.rows
        return scoring.union_in_order((rows[uid].partition for uid in scores), partitions)[:MAX_PARTITIONS]

    def _weigh_tokens(self, encoded: EncodedQuery) -> None:
        """Weighs the query's tokens by rarity; its characters and words if the embedder does not read the script."""
        if not self._weights.tokens or not self._partitions:
            return
        evidence, text = self._candidates.evidence, self._compared_text()
        if not encoded.is_supported_script:
            evidence.matches = character_matching.character_matches(text, *self._frequencies(query_term_counts(text)))
        elif encoded.tokens is not None and encoded.tokens.words:
            words = encoded.tokens.words
            terms = [term for word_terms in token_matching.terms_of(words).values() for term in word_terms]
            ignored = set(tokens(self._query.text)).difference(tokens(text))
            weights = token_matching.token_weights(words, *self._frequencies(terms), ignored)
            evidence.matches = token_matching.TokenMatches(weights, query_tokens=encoded.tokens.tokens)

    def _compared_text(self) -> str:
        """Returns the query, without the times that it names if all candidates are of these times.

        Where all is of 2026, "in 2026" tells nothing; a text that says "2026" would come before the answer.
        """
        analysis, rows = self._analysis, self._candidates.evidence.rows
        if not analysis.periods or analysis.is_only_temporal:
            return analysis.text
        tells_nothing = all(analysis.temporal_proximity(rows[uid].at) == 1.0 for uid in self._ids)
        return analysis.text_without_times if tells_nothing else analysis.text

    def _frequencies(self, terms: Iterable[int]) -> tuple[int, dict[int, int]]:
        """Returns the first partition's number of memories, and how many of them have each term."""
        return self._retrievers.frequencies(self._partitions[0].key, terms)

    def _table(self, ids: Sequence[str] | None = None) -> FeatureTable:
        """Returns the features of these memories, by default of the candidates."""
        ids = self._ids if ids is None else ids
        self._candidates.load_neighbours_and_similarities(ids)
        self._candidates.score_tokens(ids)
        table = self._candidates.evidence.table(ids, self._analysis)
        for name in ("graph", "hop"):
            if name in self._arms:
                table.add(name, self._arms[name])
        return table

    def _lacks_tokens(self) -> bool:
        """Whether the weights without tokens apply: no token matches, or a candidate with a vector has no tokens yet.

        `Memory.rebuild` embeds memories again after a change of the embedder.
        """
        evidence = self._candidates.evidence
        return evidence.matches is None or not all(
            evidence.matches.contains(uid) for uid in self._ids if uid in evidence.similarity
        )

    def _seed_weights(self) -> Weights:
        return self._weights.seeds_without_tokens if self._lacks_tokens() else self._weights.seeds

    def seeds(self) -> list[_SeededPartition]:
        """Returns the seeds in each partition: the best candidates and the entities that the query names."""
        shares = scoring.seed_weights(self._table(), self._seed_weights())
        return [self._seeded(partition, shares) for partition in self._partitions]

    def _seeded(self, partition: SearchPartition, shares: Mapping[str, float]) -> _SeededPartition:
        evidence = self._candidates.evidence
        own_shares = {uid: share for uid, share in shares.items() if evidence.rows[uid].partition == partition.key}
        entity_weights = {
            key: MENTION_WEIGHTS[partition.kinds[key]] * rarity(partition.size, entity.mentions)
            for key, entity in partition.named_entities.items()
        }
        memory_seeds, entity_seeds = scoring.balance_seeds(
            own_shares, {key: weight for key, weight in entity_weights.items() if weight > 0}
        )
        min_similarity = -1.0 if self._query.threshold is None else self._query.threshold
        min_share = START_SHARE * max(memory_seeds.values(), default=0.0)
        best = [uid for uid, share in memory_seeds.items() if share >= min_share]
        starts = [uid for uid in best if evidence.similarity.get(uid, 0.0) >= min_similarity][:MAX_PATH_STARTS]
        return _SeededPartition(partition, memory_seeds, entity_seeds, starts)

    def neighbourhoods(self, seeds: Sequence[_SeededPartition]) -> list[Subgraph]:
        """Returns the graph around each partition's seeds; an empty one if the graph store fails."""
        return [
            self._retrievers.neighbourhood(
                replace(self._query.view, partition=seeded.partition.key),
                Seeds(entities=tuple(seeded.entities), memories=tuple(seeded.memories)),
            )
            for seeded in seeds
        ]

    def walk(self, seeds: Sequence[_SeededPartition], subgraphs: Sequence[Subgraph]) -> None:
        """Runs PageRank in each partition; the memories with the best scores become candidates."""
        for seeded, subgraph in zip(seeds, subgraphs, strict=True):
            result = personalized_pagerank(
                subgraph, seeded.partition.size, seeded.memories, seeded.entities, seeded.starts
            )
            self._walks.append(_PartitionWalk(seeded.partition, subgraph, result))
        graph = {uid: score for walk in self._walks for uid, score in walk.result.scores.items()}
        self._arms["graph"] = graph
        self._ids = scoring.union_in_order(
            self._ids, self._candidates.visible_ids(scoring.top_ids(graph, WALK_CANDIDATE_LIMIT))
        )

    def names_one_speaker(self) -> bool:
        """Whether the query names exactly one speaker of the candidates; then the second hop is left out.

        That speaker's own messages hold the answer: without the hop R@10 is .3 better and the search faster
        (benchmarks/ABLATIONS.md, "Kept").
        """
        rows = self._candidates.evidence.rows
        return len(self._analysis.speakers_named({rows[uid].speaker for uid in self._ids})) == 1

    def expand_second_hop(self) -> None:
        """Adds candidates that share a rare entity with a top candidate and match words that it lacks."""
        table = self._table()
        shares = scoring.second_hop_seeds(table, self._seed_weights(), second_hop.SEED_LIMIT)
        links: dict[str, Mapping[str, float]] = {}
        for walk in self._walks:
            reached = [uid for uid in shares if uid in walk.result.scores]
            links |= second_hop.shared_entity_links(walk.subgraph, walk.partition.size, reached)
        linked = self._candidates.visible_ids(second_hop.strongest_candidates(links, shares))
        self._candidates.load_neighbours_and_similarities(linked)
        self._candidates.score_tokens(linked)
        gains = second_hop.marginal_gains(
            links, shares, None if self._lacks_tokens() else self._candidates.evidence.matches, linked
        )
        self._arms["hop"] = gains
        self._ids = scoring.union_in_order(self._ids, scoring.top_ids(gains, second_hop.EXPANSION_LIMIT))

    def rank(self) -> _Ranking:
        """Ranks the candidates by the weighted sum of their features, and assesses the relevance of the best."""
        table = self._table()
        weights = self._weights.final_without_tokens if self._lacks_tokens() else self._weights.final
        if self._analysis.is_keywords and weights.get("keyword"):
            weights = {**weights, "keyword": KEYWORD_QUERY_WEIGHT}
        if self._weights.uses_graph and not self._lacks_tokens():
            self._add_passage_columns(table, table.total(weights))
        ranked = of_candidates = _ranked(table, weights)
        explainer = self._explainer(table, weights, ranked)
        grouped = self._passing_groups(ranked, explainer, self._most_assessed)
        limit, arm_limit = self._query.limit, self._query.limit or 0
        while limit is not None and limit > MAX_HITS_OF_CANDIDATES and len(grouped) < limit <= arm_limit:
            further_ids, arm_limit = self._further_ids(arm_limit)
            further = _ranked(self._table(further_ids), weights)
            last_score = of_candidates[-1].score if of_candidates else 1.0
            lower = [replace(memory, score=last_score * memory.score) for memory in further]
            ranked = [*of_candidates, *lower]
            explainer = self._explainer(self._table([*self._ids, *further_ids]), weights, ranked)
            grouped = self._passing_groups(ranked, explainer, self._most_assessed)
        relevances = self._relevances(grouped)
        best_relevance = max((one.value for one in relevances.values()), default=None)
        floor = self._floor(best_relevance or 0.0)
        best = [memory for memory in grouped if floor is None or relevances[memory.id].value >= floor]
        return _Ranking(ranked, explainer, best, relevances, best_relevance, floor)

    def rerank(self, ranking: _Ranking, reranker: BoundedReranker) -> _Ranking:
        """Lets the reranker order the best memories; if it fails, the ranking stays, and the search is degraded."""
        asked = [memory.id for memory in ranking.best[: reranker.candidates]]
        rows, texts = self._candidates.evidence.rows, self._texts(asked)
        spoken = [embedded_text(rows[uid].speaker, texts.get(uid, "")) for uid in asked]

        def scores() -> list[float]:
            try:
                with self._deps.observers.model_call("rerank"):
                    return reranker.scores(self._query.text, spoken)
            except (ModelError, StoreError) as error:
                logger.warning("a search keeps its own order, for the reranker failed (%s)", log_text(error))
                raise

        if not spoken:
            return ranking

        best = reranked(ranking.best, self._retrievers.degrade_on_error("reranker", scores, []))
        return replace(ranking, best=best)

    def answer(self, ranking: _Ranking) -> SearchOutcome:
        """Reads the hits, paths and relations."""
        most = scoring.AUTO_MAX if self._query.limit is None else self._query.limit
        hits, relations = self._read_hits(ranking.best[:most], ranking.explainer, ranking.relevances)
        if self._query.select is not None:
            hits = self._query.select(hits)
        hits = self._with_sentence_matches(hits)
        trace = None if self._query.traced is None else self._trace(self._query.traced, ranking, hits)
        degraded = tuple(sorted(self._retrievers.degraded))
        return SearchOutcome(hits, relations, degraded, self._named(), ranking.best_relevance, trace)

    def _trace(self, uid: str, ranking: _Ranking, hits: Sequence[Hit]) -> Trace:
        """Returns what the search knows of a memory; asks the arms again, and for more."""
        search, retrieved, ranked, explainer = self._retrievers, self._retrieved, ranking.ranked, ranking.explainer
        arms = {
            "dense": (DENSE_LIMIT, search.dense(retrieved.encoded, TRACED_LIMIT)),
            "keyword": (KEYWORD_CANDIDATE_LIMIT, search.keyword(retrieved.partitions, TRACED_LIMIT)),
        }
        places = {name: [found for found, _ in scored] for name, (_, scored) in arms.items()}
        own = next((place for place, memory in enumerate(ranked, 1) if memory.id == uid), None)
        grouped = self._passing_groups(ranked, explainer, len(ranked)) if own is not None else []
        moved = next((memory for memory in ranking.best if memory.id == uid and memory.reranked is not None), None)
        memory = moved or (None if own is None else ranked[own - 1])
        found = ranking.relevances.get(uid)
        return Trace(
            arm_ranks={name: ids.index(uid) + 1 for name, ids in places.items() if uid in ids},
            arm_limits={name: limit for name, (limit, _) in arms.items()},
            candidates=len(ranked),
            rank=own,
            score=None if memory is None else memory.score,
            similarity=self._candidates.evidence.similarity.get(uid),
            passes_threshold=own is None or self._passes_threshold(uid, explainer),
            grouped_under=next((memory.id for memory in grouped if uid in memory.sources), None),
            place=next((place for place, memory in enumerate(grouped, 1) if memory.id == uid), None),
            relevance=None if found is None else found.value,
            floor=ranking.floor,
            reranked=None if moved is None else moved.reranked,
            hit=next((place for place, hit in enumerate(hits, 1) if hit.record.id == uid), None),
            last_score=hits[-1].score if hits else None,
            shares={} if memory is None else explainer.shares(memory),
        )

    @property
    def _most_assessed(self) -> int:
        """The number of memories whose relevance is assessed, at most."""
        reranked = self._deps.reranker.candidates if self._deps.reranker is not None and self._query.rerank else 0
        return max(MIN_ASSESSED, reranked, scoring.AUTO_MAX if self._query.limit is None else self._query.limit)

    def _floor(self, best: float) -> float | None:
        """Returns the least relevance of a hit; None for none."""
        wanted, text = self._query.min_relevance, self._query.text
        if wanted != "default":
            return wanted
        if not term_overlap.query_words(text) and relevance.is_first_person(text):
            return None  # "What do you know about me?" asks for everything
        encoded = self._retrieved.encoded
        size = self._partitions[0].kept if self._partitions else 0
        return relevance.default_floor(size, best, has_vectors=encoded.multilingual is not None)

    def _explainer(self, table: FeatureTable, weights: Weights, ranked: Sequence[RankedMemory]) -> ExplanationBuilder:
        return ExplanationBuilder(
            self._arms,
            [walk.result for walk in self._walks],
            table,
            weights,
            ranked,
            matches_characters=isinstance(self._candidates.evidence.matches, CharacterMatches),
            is_unspaced=is_unspaced(self._query.text),
        )

    def _passing_groups(
        self, ranked: Sequence[RankedMemory], explainer: ExplanationBuilder, most: int
    ) -> list[RankedMemory]:
        """Returns the first `most` memories that pass the threshold, source messages under facts, without repetitions.

        For a prompt the user's requests to an assistant are left out as well, unless the query asks for them.
        """
        passing = [memory for memory in ranked if self._passes_threshold(memory.id, explainer)]
        grouped = self._grouped(raise_replies(passing, self._replies))
        grouped = [memory for memory in grouped if memory.id not in self._repetitions]
        if self._query.for_prompt and not asks_for_requests(self._query.text):
            return self._without_requests(grouped, most)
        return grouped[:most]

    def _further_ids(self, arm_limit: int) -> tuple[list[str], int]:
        """Returns up to `arm_limit` memories of each arm that are no candidates, and the next limit, 0 for none left.

        Candidates are few, so that a search is fast; whoever asks for hundreds of hits gets these behind them.
        """
        search, encoded = self._retrievers, self._retrieved.encoded
        dense = self._filtered_dense(search.dense(encoded, arm_limit), search.unread(encoded, arm_limit), arm_limit)
        keyword = self._filtered_keyword(search.keyword(self._retrieved.partitions, arm_limit), arm_limit)
        candidates = set(self._ids)
        further = [uid for uid in scoring.union_in_order(dense, keyword) if uid not in candidates]
        self._candidates.evidence.keyword = {**keyword, **self._candidates.evidence.keyword}
        is_exhausted = max(len(dense), len(keyword)) < arm_limit
        return further, 0 if is_exhausted else 4 * arm_limit

    def _without_requests(self, ranked: Sequence[RankedMemory], most: int) -> list[RankedMemory]:
        """Returns the first `most` memories without the user's requests to an assistant, which tell nothing."""
        rows = {self._candidates.evidence.rows[memory.id].row: memory.id for memory in ranked}
        with self._deps.ledger.read() as connection:
            read = candidate_rows.read_short_user_texts(connection, list(rows), MAX_REQUEST_CHARS)
        texts = {rows[row]: text for row, text in read.items()}
        others = (one for one in ranked if one.id not in texts or not is_request(texts[one.id]))
        return list(islice(others, most))

    def _read_hits(
        self, best: Sequence[RankedMemory], explainer: ExplanationBuilder, relevances: Mapping[str, Relevance]
    ) -> tuple[tuple[Hit, ...], tuple[Relation, ...]]:
        """Reads the records of these memories with their explanations, and the relations that they state."""
        evidence = self._candidates.evidence
        ids = [memory.id for memory in best]
        source_ids = [uid for memory in best for uid in memory.sources]
        replies, token_matches = dict[str, str](), dict[str, float]()
        if self._query.for_prompt:
            replies = {uid: question for uid in ids if (question := evidence.replies_to(uid)) is not None}
            token_matches = self._match_totals(ids)
        with self._deps.ledger.read() as connection:
            explained = ids if self._query.explain else []
            on_paths = explainer.ids_on_paths(explained, "memory")
            with closing(
                memories.each_record(connection, dict.fromkeys([*ids, *on_paths, *source_ids, *replies.values()]))
            ) as rows:
                found = list(counted(rows))
            records = {record.id: record for record in memories.as_they_were(connection, self._query.view, found)}
            partitions = [partition.key for partition in self._partitions]
            entity_keys = explainer.ids_on_paths(explained, "entity")
            entities = graph_reads.entities_of(connection, self._query.view, partitions, entity_keys)
            relations = graph_reads.relations_stated_by(connection, self._query.view, [*ids, *source_ids])
        hits = tuple(
            Hit(
                records[memory.id],
                memory.score,
                evidence.similarity.get(memory.id, 0.0),
                relevances[memory.id].value,
                self._explained(explainer.explain(memory, records, entities), relevances[memory.id])
                if self._query.explain
                else None,
                tuple(records[uid] for uid in memory.sources if uid in records),
                question=records[replies[memory.id]].text if replies.get(memory.id) in records else "",
                token_match=token_matches.get(memory.id, 0.0),
            )
            for memory in best
            if memory.id in records
        )
        # Texts that stand in several places: those on paths, and those that relations quote.
        for hit in hits:
            count_texts(*(step.get("memory") for step in (hit.explanation.path if hit.explanation else ())))
        count_texts(*(fact for relation in relations for fact in relation.facts))
        return hits, tuple(relations)

    @staticmethod
    def _explained(explanation: Explanation, assessed: Relevance) -> Explanation:
        """Returns an explanation with the shares of relevance that are not 0, the greatest first."""
        shares = sorted(assessed.shares.items(), key=lambda share: -abs(share[1]))
        return replace(explanation, relevance={name: share for name, share in shares if share})

    def _relevances(self, ranked: Sequence[RankedMemory]) -> dict[str, Relevance]:
        """Returns the relevance of these memories, best first, to the query, by id.

        The reply to a stored repetition of the query is relevant whatever its words are. So is, if the query asks what
        the assistant said, the best of the assistant's words, or the fact drawn from these.
        """
        if not ranked:
            return {}
        evidence, replies = self._candidates.evidence, set(self._replies.values())
        ids = [memory.id for memory in ranked]
        if self._analysis.asks_assistant_said:
            said = (
                one.id for one in ranked if any(evidence.rows[uid].role == ASSISTANT for uid in (one.id, *one.sources))
            )
            replies.update(islice(said, 1))
        questions = {uid: question for uid in ids if (question := evidence.replies_to(uid)) is not None}
        sources = {memory.id: memory.sources for memory in ranked}
        with self._deps.ledger.read() as connection:
            rows = {evidence.rows[uid].row: uid for uid in {*ids, *questions.values(), *chain(*sources.values())}}
            texts = {rows[row]: text for row, text in candidate_rows.read_texts(connection, list(rows)).items()}
            vectors = self._candidates.multilingual_vectors(connection, ids)
            entities, people = defaultdict[str, dict[str, int]](dict), defaultdict[str, list[str]](list)
            own_rows = [evidence.rows[uid].row for uid in ids]
            for row, kind, key, name, entity_type, frequency in candidate_rows.read_mentions(connection, own_rows):
                if kind < MentionKind.COMMON_NOUN:
                    entities[rows[row]][key] = frequency
                if kind < MentionKind.NOUN_PHRASE and entity_type == EntityType.PERSON:
                    people[rows[row]].append(name)
        words = term_overlap.query_words(self._query.text)
        frequencies = self._frequencies(map(term_id, words)) if self._partitions else (0, {})
        terms = term_overlap.weigh_terms(words, *frequencies, inflected=not self._retrieved.encoded.is_supported_script)
        asked = self._asked_question(terms, self._partitions[0].kept if self._partitions else 0)
        speakers = self._analysis.speakers_named({evidence.rows[uid].speaker for uid in self._ids})
        matches = self._match_totals([*ids, *chain(*(self._neighbours(uid) for uid in ids))])

        def found(uid: str) -> FoundMemory:
            row, own = evidence.rows[uid], [uid, *sources[uid]]
            return FoundMemory(
                texts.get(uid, ""),
                row.speaker,
                row.role,
                vectors[uid].astype(np.float64) if uid in vectors else None,
                evidence.similarity.get(uid, 0.0),
                matches.get(uid, 0.0),
                max((matches.get(other, 0.0) for other in self._neighbours(uid)), default=0.0),
                terms.overlap([embedded_text(evidence.rows[one].speaker, texts.get(one, "")) for one in own]),
                terms.overlap([texts[questions[uid]]]) if questions.get(uid) in texts else 0.0,
                self._analysis.temporal_proximity(row.at),
                len(speakers) == 1 and row.speaker in speakers,
                int(row.answer_types),
                row.question_share,
                entities[uid],
                people[uid],
            )

        assessed = relevance.assess(asked, [found(uid) for uid in ids], with_shares=self._query.explain)
        return {
            uid: replace(one, value=max(one.value, REPLY_RELEVANCE)) if uid in replies else one
            for uid, one in zip(ids, assessed, strict=True)
        }

    def _asked_question(self, terms: WeightedTerms, size: int) -> AskedQuestion:
        evidence, encoded = self._candidates.evidence, self._retrieved.encoded
        keys = {key for partition in self._partitions for key in partition.keys}
        if self._query.view.scope.user_id is not None:
            keys.add(normalise_key(self._query.view.scope.user_id))  # whoever speaks links all that they say
        speakers = self._analysis.speakers_named({evidence.rows[uid].speaker for uid in self._ids})
        named = [entity for partition in self._partitions for entity in partition.named_entities.values()]
        names = {
            *(entity.key for entity in named if entity.type in NAMED_TYPES),
            *(name.words.casefold() for name in capitalized_names(self._query.text) if name.is_certain),
            *(name.casefold() for name in speakers),
        }
        cosines = sorted(evidence.similarity.get(uid, 0.0) for uid in self._ids)
        return AskedQuestion(
            self._query.text,
            None if encoded.multilingual is None else encoded.multilingual.astype(np.float64),
            encoded.is_supported_script and not encoded.is_multilingual,
            names,
            keys,
            int(self._analysis.answer_types),
            self._analysis.asks_assistant_said,
            bool(self._analysis.periods),
            sum(terms.weights.values()),
            cosines[len(cosines) // 2] if cosines else 0.0,
            size,
            self._analysis.is_keywords,
        )

    def _neighbours(self, uid: str) -> list[str]:
        return [other for other in self._candidates.evidence.neighbours.get(uid, ()) if other is not None]

    def _match_totals(self, ids: Sequence[str]) -> dict[str, float]:
        """Returns the weighted token matches of memories, 0..1, by id."""
        matches = self._candidates.evidence.matches
        if matches is None or not ids:
            return {}
        return dict(zip(ids, (matches.matrix(ids) @ matches.weights).tolist(), strict=True))

    def _with_sentence_matches(self, hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
        """Returns the hits with their matching sentences: for a prompt those of all, else of long explained ones."""
        if self._query.for_prompt:
            divided = [hit.record for hit in hits if len(sentence_matching.sentences(hit.record.text)) > 1]
        else:
            is_long = sentence_matching.UNSPLIT_CHARS if self._query.explain else math.inf
            divided = [hit.record for hit in hits if len(hit.record.text) > is_long]
        if divided:
            windows = self._candidates.token_windows([record.row for record in divided])
            matcher = sentence_matching.SentenceMatcher(
                self._query.text, self._candidates.evidence.matches, self._deps.embedder
            )
            matches = {record.id: matcher.match(record, windows.get(record.row, ())) for record in divided}
            hits = tuple(replace(hit, sentence_match=matches.get(hit.record.id)) for hit in hits)
        return weigh_sentences(self._analysis, hits) if self._query.for_prompt else hits

    def _named(self) -> tuple[str, ...]:
        """Returns the keys of the entities that the query names, without common nouns, which name nothing."""
        keys = (
            key
            for partition in self._partitions
            for key in partition.named_entities
            if partition.kinds[key] < MentionKind.COMMON_NOUN
        )
        return tuple(dict.fromkeys(keys))

    def _grouped(self, ranked: list[RankedMemory]) -> list[RankedMemory]:
        """Groups source messages under their facts, unless the view shows only some kinds of memories."""
        rows = self._candidates.evidence.rows
        source_rows = [rows[memory.id].row for memory in ranked if rows[memory.id].source_only]
        if not source_rows or self._query.view.kinds != ALL_KINDS:
            return ranked
        with self._deps.ledger.read() as connection:
            return group_sources(ranked, memories.facts_of(connection, source_rows))

    def _add_passage_columns(self, table: FeatureTable, totals: Column) -> None:
        """Adds the columns `named` and `alike`, which only passages have."""
        evidence = self._candidates.evidence
        passage_ids = passages.passage_candidates(evidence, table, totals)
        if not passage_ids:
            return
        shares = scoring.top_shares(table, totals, passages.HIT_LIMIT)
        texts = self._texts({*passage_ids, *shares})
        titles = {uid: passages.title_terms(texts[uid]) for uid in passage_ids}
        terms = {term for title in titles.values() for term in title}
        size, frequencies = self._frequencies(terms)
        top_hits = {uid: (share, frozenset(term_counts(texts[uid]))) for uid, share in shares.items()}
        table.add("named", passages.named_by_hits(evidence, top_hits, titles, size, frequencies))
        table.add("alike", passages.redundancy(evidence, next(iter(shares), ""), passage_ids))

    def _passes_threshold(self, uid: str, explainer: ExplanationBuilder) -> bool:
        """Whether the memory, or the memory at which its path starts, has at least the cosine `threshold`."""
        if self._query.threshold is None:
            return True
        similarity = self._candidates.evidence.similarity
        return max(similarity.get(uid, 0.0), similarity.get(explainer.start_of(uid), 0.0)) >= self._query.threshold
