"""A search: ask the arms; walk from their best finds; hop once more; one table of candidates by features, one sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from graphmem.concurrency import single_blas_thread
from graphmem.model import ALL_KINDS, MemoryRecord, MentionKind, Relation, Seeds, Subgraph, micros
from graphmem.models.protocols import embedding_spec_of
from graphmem.retrieval import (
    character_matching,
    passages,
    scoring,
    second_hop,
    sentence_matching,
    term_overlap,
    token_matching,
)
from graphmem.retrieval.candidates import Candidates
from graphmem.retrieval.explanation import Explanation, ExplanationBuilder
from graphmem.retrieval.features import Column, FeatureTable
from graphmem.retrieval.pagerank import MENTION_WEIGHTS, WalkResult, personalized_pagerank, rarity
from graphmem.retrieval.query_analysis import analyze_query
from graphmem.retrieval.retrievers import (
    DENSE_LIMIT,
    KEYWORD_LIMIT,
    MAX_PARTITIONS,
    READ_LIMIT,
    EncodedQuery,
    Retrievers,
    SearchDeps,
    SearchPartition,
    SearchQuery,
)
from graphmem.retrieval.sentence_matching import SentenceMatch
from graphmem.retrieval.source_grouping import RankedMemory, group_sources
from graphmem.retrieval.weights import FULL, SearchWeights, Weights
from graphmem.stores.ledger import candidate_rows, graph_reads, memories, term_stats
from graphmem.text import query_term_counts, term_counts, term_id

# What is kept of the arms' finds, and how many more the walk may add.
KEYWORD_CANDIDATE_LIMIT, CANDIDATE_LIMIT, WALK_CANDIDATE_LIMIT = 100, 150, 100
# Memories of each stretch of time that a question names.
DATED_LIMIT = 50
# A path starts from what the question names, or from one of the best memories if it is not far behind the first.
MAX_PATH_STARTS, START_SHARE = 3, 0.25
# How many memories are asked when an event was that a question counts from, and how near to the best they must be.
EVENT_LIMIT, MIN_EVENT_SCORE = 2, 0.8


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found. `score` orders this search's hits (0..1), `similarity` is the cosine with the question.

    `explanation` is None unless the question asked to explain. `sources` are mere sources that were found as well, and
    are folded into this fact, best first. `term_overlap` is the weight of the question's words in it, `is_related`
    whether it has anything to do with the question: both only if the question asks for it (`relates`). `sentence_match`
    are the sentences of a memory of more than `sentence_matching` characters that match, if the question asks for them.
    """

    record: MemoryRecord
    score: float
    similarity: float
    explanation: Explanation | None
    sources: tuple[MemoryRecord, ...] = ()
    term_overlap: float = 0.0
    is_related: bool = True
    sentence_match: SentenceMatch | None = None


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """Hits, best first; the relations that they and their sources state; the arms that had to be left out.

    `named` are the keys of what the question names and memories mention. `is_supported_script`: whether the embedder
    reads the question's language, so that similarities tell something. `has_query_terms`: whether the question has a
    word that names something; whether a memory has to do with a question without any cannot be told.
    """

    hits: tuple[Hit, ...] = ()
    relations: tuple[Relation, ...] = ()
    degraded: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    is_supported_script: bool = True
    has_query_terms: bool = True

    @property
    def related(self) -> tuple[Hit, ...]:
        """The hits that have anything to do with the question; all of them where that cannot be told."""
        return tuple(hit for hit in self.hits if hit.is_related) if self.has_query_terms else self.hits


def search(question: SearchQuery, stores: SearchDeps, recipe: SearchWeights = FULL) -> SearchOutcome:
    """Answers a question. An arm that fails is left out and named in `degraded`; StoreError only from the ledger."""
    one = _Search(question, stores, recipe)
    with single_blas_thread():
        one.resolve_event()
        one.retrieve()
        with stores.ledger.read():
            one.rank_candidates()
            seeds = one.seeds() if recipe.uses_graph else []
        # No snapshot is held while somebody else is waited for: the arms, a graph on a server.
        around = one.neighbourhoods(seeds)
        with stores.ledger.read():
            if recipe.uses_graph:
                one.walk(seeds, around)
            if recipe.uses_graph and not one.names_one_speaker():
                one.expand_second_hop()
            return one.answer()


@dataclass(frozen=True, slots=True)
class _SeededPartition:
    """Where the walk in one partition begins: the shares of its seeds, and the memories that ways may start from."""

    partition: SearchPartition
    memories: Mapping[str, float]
    entities: Mapping[str, float]
    starts: Sequence[str]


@dataclass(frozen=True, slots=True)
class _PartitionWalk:
    """A walk in one partition."""

    partition: SearchPartition
    subgraph: Subgraph
    reached: WalkResult


class _Search:
    """One search as it goes on: each step adds candidates, or a column to what is known of them."""

    def __init__(self, question: SearchQuery, stores: SearchDeps, recipe: SearchWeights) -> None:
        question = replace(question, text=question.text[:READ_LIMIT])
        self._query = question
        self._deps = stores
        self._weights = recipe
        self._analysis = analyze_query(question.text, question.now or question.view.moment)
        self._retrievers = Retrievers(question, stores)
        self._arms: dict[str, Mapping[str, float]] = {}
        self._walks: list[_PartitionWalk] = []
        self._ids: list[str] = []

    def resolve_event(self) -> None:
        """When an event was that a question counts from ("a week after the wedding"): by a search of its own."""
        if self._analysis.offset is not None:
            event = replace(self._query, text=self._analysis.offset.anchor, limit=EVENT_LIMIT, explain=False)
            found = search(event, self._deps, self._weights)
            named = set(query_term_counts(self._analysis.offset.anchor))
            sure = (
                hit
                for hit in found.hits
                if hit.score >= MIN_EVENT_SCORE and named & set(term_counts(hit.record.embedded_text))
            )
            self._analysis = self._analysis.resolve_offset(micros(hit.record.at) for hit in sure)

    def retrieve(self) -> None:
        """The arms side by side."""
        self._found = self._retrievers.retrieve()

    def rank_candidates(self) -> None:
        """Confirms what the arms found; the best of it and of what stands beside it are the candidates."""
        read, partitions = self._found.encoded, self._found.partitions
        self._candidates = Candidates(
            self._query, self._deps.ledger, embedding_spec_of(self._deps.embedder), read.vector
        )
        evidence = self._candidates.evidence
        evidence.is_supported_script = read.is_supported_script
        dense, keyword = self._retrievers.dense, self._retrievers.keyword
        found = self._candidates.filter_hits(lambda n: dense(read.vector, n), self._found.dense, DENSE_LIMIT)
        words = self._candidates.filter_hits(lambda n: keyword(partitions, n), self._found.keyword, KEYWORD_LIMIT)
        evidence.keyword = words
        self._arms = {"dense": found, "keyword": words} if read.is_supported_script else {"keyword": words}
        self._partitions = self._retrievers.partitions(
            self._nearest(found if read.is_supported_script else words, partitions), read
        )
        first = scoring.union_in_order(found, list(words)[:KEYWORD_CANDIDATE_LIMIT], self._dated()) or self._newest()
        self._candidates.load_neighbours(first)
        everything = self._candidates.with_neighbours(first)
        self._candidates.load_neighbours(everything)
        self._ids = scoring.top_rows(
            evidence.table(everything, self._analysis), self._weights.candidates, CANDIDATE_LIMIT
        )
        self._weigh_tokens(read)

    def _dated(self) -> list[str]:
        """What was said at the times that the question names, the newest of it."""
        with self._deps.ledger.read() as connection:
            return self._candidates.visible(
                [
                    uid
                    for start, end in self._analysis.period_bounds
                    for uid in memories.ids_between(connection, self._query.view, start, end, DATED_LIMIT)
                ]
            )

    def _newest(self) -> list[str]:
        """Without the vector index: what was said last. Its nearness is known all the same, from the ledger."""
        if "vectors" not in self._retrievers.degraded:
            return []
        with self._deps.ledger.read() as connection:
            newest = islice(memories.list_records(connection, self._query.view, with_sources=True), CANDIDATE_LIMIT)
            return self._candidates.visible([record.id for record in newest])

    def _nearest(self, dense: Mapping[str, float], partitions: Sequence[str]) -> list[str]:
        """The partitions of the nearest memories; then, or without vectors, those written last."""
        candidate_rows = self._candidates.evidence.rows
        return scoring.union_in_order((candidate_rows[uid].partition for uid in dense), partitions)[:MAX_PARTITIONS]

    def _weigh_tokens(self, read: EncodedQuery) -> None:
        """How much each word of the question tells; by its signs where the embedder does not read them."""
        if not self._weights.tokens or not self._partitions:
            return
        evidence, text = self._candidates.evidence, self._query.text
        if not read.is_supported_script:
            evidence.matches = character_matching.character_matches(text, *self._frequencies(query_term_counts(text)))
        elif read.tokens is not None and read.tokens.words:
            words = read.tokens.words
            terms = [term for found in token_matching.terms_of(words).values() for term in found]
            weights = token_matching.token_weights(words, *self._frequencies(terms))
            evidence.matches = token_matching.TokenMatches(weights, question=read.tokens.tokens)

    def _frequencies(self, terms: Iterable[int]) -> tuple[int, dict[int, int]]:
        """N of the first partition, and how many of its memories hold each term."""
        with self._deps.ledger.read() as connection:
            return term_stats.document_frequencies(connection, self._partitions[0].key, terms)

    def _table(self) -> FeatureTable:
        self._candidates.load_neighbours(self._ids)
        self._candidates.score_tokens(self._ids)
        table = self._candidates.evidence.table(self._ids, self._analysis)
        for name in ("graph", "hop"):
            if name in self._arms:
                table.add(name, self._arms[name])
        return table

    def _bare(self) -> bool:
        """Whether token matches cannot be used: none asked for, or not there (see `rebuild`) for every candidate."""
        evidence = self._candidates.evidence
        return evidence.matches is None or not all(
            evidence.matches.contains(uid) for uid in self._ids if uid in evidence.similarity
        )

    def _seed_weights(self) -> Weights:
        return self._weights.seeds_without_tokens if self._bare() else self._weights.seeds

    def seeds(self) -> list[_SeededPartition]:
        """In each partition the best finds, and what the question names."""
        shares = scoring.seed_weights(self._table(), self._seed_weights())
        return [self._seeded(partition, shares) for partition in self._partitions]

    def _seeded(self, partition: SearchPartition, shares: Mapping[str, float]) -> _SeededPartition:
        evidence = self._candidates.evidence
        mine = {uid: share for uid, share in shares.items() if evidence.rows[uid].partition == partition.key}
        told = {
            key: MENTION_WEIGHTS[partition.kinds[key]] * rarity(partition.size, entity.mentions)
            for key, entity in partition.named_entities.items()
        }
        from_memories, from_entities = scoring.balance_seeds(
            mine, {key: weight for key, weight in told.items() if weight > 0}
        )
        least = -1.0 if self._query.threshold is None else self._query.threshold
        enough = START_SHARE * max(from_memories.values(), default=0.0)
        good = [uid for uid, share in from_memories.items() if share >= enough]
        starts = [uid for uid in good if evidence.similarity.get(uid, 0.0) >= least][:MAX_PATH_STARTS]
        return _SeededPartition(partition, from_memories, from_entities, starts)

    def neighbourhoods(self, seeds: Sequence[_SeededPartition]) -> list[Subgraph]:
        """The graph around each partition's seeds; nothing if it is out of reach."""
        return [
            self._retrievers.neighbourhood(
                replace(self._query.view, partition=one.partition.key),
                Seeds(entities=tuple(one.entities), memories=tuple(one.memories)),
            )
            for one in seeds
        ]

    def walk(self, seeds: Sequence[_SeededPartition], around: Sequence[Subgraph]) -> None:
        """From the seeds over the graph; what is reached best becomes a candidate."""
        for one, subgraph in zip(seeds, around, strict=True):
            reached = personalized_pagerank(subgraph, one.partition.size, one.memories, one.entities, one.starts)
            self._walks.append(_PartitionWalk(one.partition, subgraph, reached))
        graph = {uid: score for walked in self._walks for uid, score in walked.reached.scores.items()}
        self._arms["graph"] = graph
        self._ids = scoring.union_in_order(
            self._ids, self._candidates.visible(scoring.top_ids(graph, WALK_CANDIDATE_LIMIT))
        )

    def names_one_speaker(self) -> bool:
        """Whether exactly one speaker is asked about: their own turns hold the answer, a hop only costs time."""
        candidate_rows = self._candidates.evidence.rows
        return len(self._analysis.speakers_named({candidate_rows[uid].speaker for uid in self._ids})) == 1

    def expand_second_hop(self) -> None:
        """Once more over the entities of the best: what adds to a good find what that one lacks."""
        table = self._table()
        shares = scoring.second_hop_seeds(table, self._seed_weights(), second_hop.SEED_LIMIT)
        links: dict[str, Mapping[str, float]] = {}
        for walked in self._walks:
            here = [uid for uid in shares if uid in walked.reached.scores]
            links |= second_hop.shared_entity_links(walked.subgraph, walked.partition.size, here)
        looked_at = self._candidates.visible(second_hop.strongest_candidates(links, shares))
        self._candidates.load_neighbours(looked_at)
        self._candidates.score_tokens(looked_at)
        gained = second_hop.marginal_gains(
            links, shares, None if self._bare() else self._candidates.evidence.matches, looked_at
        )
        self._arms["hop"] = gained
        self._ids = scoring.union_in_order(self._ids, scoring.top_ids(gained, second_hop.EXPANSION_LIMIT))

    def answer(self) -> SearchOutcome:
        """The sum of all features, cut to what was asked for."""
        table = self._table()
        weights = self._weights.final_without_tokens if self._bare() else self._weights.final
        if self._weights.uses_graph and not self._bare():
            self._weigh_passages(table, table.total(weights))
        totals = table.total(weights)
        scored = scoring.scores(totals)
        ranked = [RankedMemory(table.ids[i], float(scored[i])) for i in np.argsort(-totals, kind="stable")]
        evidence = self._candidates.evidence
        explainer = ExplanationBuilder(self._arms, [walked.reached for walked in self._walks], table)
        shown = self._folded([one for one in ranked if self._is_near(one.id, explainer)])
        best = shown[: scoring.automatic_cutoff(scored) if self._query.limit is None else self._query.limit]
        chosen = [one.id for one in best]
        folded = [uid for one in best for uid in one.sources]
        with self._deps.ledger.read() as connection:
            explained = chosen if self._query.explain else []
            told = explainer.ids_on_paths(explained, "memory")
            records = memories.records(connection, [*chosen, *told, *folded])
            partitions = [partition.key for partition in self._partitions]
            steps = explainer.ids_on_paths(explained, "entity")
            names = graph_reads.names_of(connection, self._query.view, partitions, steps)
            relations = graph_reads.relations_stated_by(connection, self._query.view, [*chosen, *folded])
        matching = self._parts([records[uid] for uid in chosen if uid in records])
        hits = tuple(
            Hit(
                records[one.id],
                one.score,
                evidence.similarity.get(one.id, 0.0),
                explainer.explain(one.id, records, names) if self._query.explain else None,
                tuple(records[uid] for uid in one.sources if uid in records),
                sentence_match=matching.get(one.id),
            )
            for one in best
            if one.id in records
        )
        words = term_overlap.query_words(self._query.text)
        if self._query.with_relations:
            hits = self._related(hits, words, explainer)
        degraded = tuple(sorted(self._retrievers.degraded))
        return SearchOutcome(
            hits, tuple(relations), degraded, self._named(), self._found.encoded.is_supported_script, bool(words)
        )

    def _related(self, hits: Sequence[Hit], asked: Sequence[str], explainer: ExplanationBuilder) -> tuple[Hit, ...]:
        """The hits with what they share with the question.

        One is related if it shares a word or is not remote; if somebody else's question before it does or is; or if a
        short path leads to it from what the question names, or over an entity from what would be enough by itself.
        """
        if not hits:
            return ()
        evidence, named = self._candidates.evidence, set(self._named())
        before = {hit.record.id: evidence.replies_to(hit.record.id) for hit in hits}
        starts = {hit.record.id: explainer.near_start(hit.record.id) for hit in hits}
        others = {*filter(None, before.values()), *(name for kind, name in starts.values() if kind == "memory")}
        with self._deps.ledger.read() as connection:
            rows = {uid: evidence.rows[uid].row for uid in others}
            texts = candidate_rows.texts_of(connection, list(rows.values()))
        frequencies = self._frequencies(map(term_id, asked))
        words = term_overlap.weigh_terms(asked, *frequencies, inflected=not evidence.is_supported_script)
        shared = {uid: words.overlap([texts[row]]) for uid, row in rows.items() if row in texts}
        shared |= {
            hit.record.id: words.overlap([one.embedded_text for one in (hit.record, *hit.sources)]) for hit in hits
        }

        def relates(uid: str) -> bool:
            near = (
                evidence.is_supported_script
                and evidence.similarity.get(uid, 0.0) >= term_overlap.MIN_SIMILARITY_WITH_TERMS
            )
            return near or shared.get(uid, 0.0) > 0

        def leads_on(kind: str, name: str) -> bool:
            if kind == "entity":
                return name in named
            near = evidence.similarity.get(name, 0.0)
            return term_overlap.is_relevant(shared.get(name, 0.0), near, understood=evidence.is_supported_script)

        return tuple(
            replace(
                hit,
                term_overlap=shared[uid],
                is_related=relates(uid) or relates(before[uid] or "") or leads_on(*starts[uid]),
            )
            for hit in hits
            for uid in [hit.record.id]
        )

    def _parts(self, records: Sequence[MemoryRecord]) -> dict[str, SentenceMatch]:
        """Of the memories that are longer than the question asks for, the sentences that match best."""
        least = self._query.parts
        long = [] if least is None else [one for one in records if len(one.text) > least]
        if not long:
            return {}
        windows = self._candidates.token_windows([record.row for record in long])
        finder = sentence_matching.SentenceMatcher(
            self._query.text, self._candidates.evidence.matches, self._deps.embedder
        )
        found = ((record.id, finder.match(record, windows.get(record.row, ()))) for record in long)
        return {uid: part for uid, part in found if part}

    def _named(self) -> tuple[str, ...]:
        """Without common nouns that only end a relation: they name nothing in particular."""
        told = (
            key
            for partition in self._partitions
            for key in partition.named_entities
            if partition.kinds[key] < MentionKind.THING
        )
        return tuple(dict.fromkeys(told))

    def _folded(self, ranked: list[RankedMemory]) -> list[RankedMemory]:
        """Without the mere sources of facts that are found too, unless the caller chose among the kinds."""
        candidate_rows = self._candidates.evidence.rows
        sources = [candidate_rows[one.id].row for one in ranked if candidate_rows[one.id].source_only]
        if not sources or self._query.view.kinds != ALL_KINDS:
            return ranked
        with self._deps.ledger.read() as connection:
            return group_sources(ranked, memories.facts_of(connection, sources))

    def _weigh_passages(self, table: FeatureTable, totals: Column) -> None:
        """Two more columns, for passages: what good finds name, and what is only like the best of them."""
        evidence = self._candidates.evidence
        found = passages.passage_candidates(evidence, table, totals)
        if not found:
            return
        shares = scoring.top_shares(table, totals, passages.HIT_LIMIT)
        with self._deps.ledger.read() as connection:
            texts = candidate_rows.texts_of(connection, [evidence.rows[uid].row for uid in {*found, *shares}])
            said = {uid: texts[evidence.rows[uid].row] for uid in {*found, *shares}}
            titles = {uid: passages.title_terms(said[uid]) for uid in found}
            terms = {term for title in titles.values() for term in title}
        size, frequencies = self._frequencies(terms)
        finds = {uid: (share, frozenset(term_counts(said[uid]))) for uid, share in shares.items()}
        table.add("named", passages.named_by_hits(evidence, finds, titles, size, frequencies))
        table.add("alike", passages.redundancy(evidence, next(iter(shares), ""), found))

    def _is_near(self, uid: str, explainer: ExplanationBuilder) -> bool:
        """Whether a hit, or the memory that its path starts from, is as near as was asked for."""
        if self._query.threshold is None:
            return True
        similarity = self._candidates.evidence.similarity
        return max(similarity.get(uid, 0.0), similarity.get(explainer.start_of(uid), 0.0)) >= self._query.threshold
