"""Chooses the candidates of a search: the best of what the arms found and of what stands beside it in its session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from sqlalchemy import Connection

from graphmem.model import ASSISTANT, Entity, MentionKind
from graphmem.retrieval import matching, scoring, term_overlap
from graphmem.retrieval.arms import ARMS, Attempt, Retrieved
from graphmem.retrieval.evidence_reader import EvidenceReader
from graphmem.retrieval.features import Evidence, FeatureTable
from graphmem.retrieval.matching import CharacterMatches, TokenMatches
from graphmem.retrieval.small_talk import is_small_talk
from graphmem.retrieval.types import SearchDeps, SearchPartition
from graphmem.retrieval.weights import SearchWeights, Weights
from graphmem.stores.ledger import entity_names, memories, term_stats
from graphmem.stores.ledger.columns import PartitionColumns
from graphmem.stores.ledger.term_stats import PartitionStatistics
from graphmem.text import KeyCandidate, key_candidates, query_term_counts, term_id, tokens, words_of

# All candidates, of the arms and beside them.
CANDIDATE_LIMIT = 150
# The best candidates among which repetitions of the query are looked for.
REPETITION_LIMIT = 50
# Memories of each period that the query names, the newest first (benchmarks/ABLATIONS.md, "Times").
DATED_LIMIT = 50
# A search by agent or run alone runs PageRank in the partitions of its best hits, separately in each.
MAX_PARTITIONS = 5


@dataclass(frozen=True, slots=True)
class Candidates:
    """The memories that may become hits, and the evidence about them.

    The evidence has the neighbours, cosines and matches of all candidates (`ids`). `arms`: the scores of each arm by
    id, best first, later those of PageRank ("graph") and of the second hop ("hop") as well. `partitions`: those of the
    best memories, whose graph is searched; `statistics` are those of the first. `repetitions`: candidates that repeat
    the query, a question; `replies`: {such a question's id: id of the reply}.
    """

    retrieved: Retrieved
    reader: EvidenceReader
    weights: SearchWeights
    evidence: Evidence
    ids: Sequence[str] = ()
    arms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    partitions: Sequence[SearchPartition] = ()
    statistics: PartitionStatistics = field(default_factory=lambda: PartitionStatistics(""))
    repetitions: Sequence[str] = ()
    replies: Mapping[str, str] = field(default_factory=dict)
    degraded: frozenset[str] = frozenset()

    def table(self, ids: Sequence[str] | None = None) -> FeatureTable:
        """Returns the features of the candidates, or of other memories with which the evidence was compared."""
        table = self.evidence.table(self.ids if ids is None else ids, self.retrieved.analysis)
        for name in ("graph", "hop"):
            if name in self.arms:
                table = table.with_column(name, self.arms[name])
        return table

    @property
    def lacks_tokens(self) -> bool:
        """Whether the weights without tokens apply: no token matches, or a candidate with a vector has no tokens yet.

        `Memory.rebuild` embeds memories again after a change of the embedder.
        """
        matches, similarity = self.evidence.matches, self.evidence.similarity
        return matches is None or not similarity.keys() & self.ids <= matches.places.keys()

    @property
    def seed_weights(self) -> Weights:
        """The weights by which the seeds of PageRank and of the second hop are chosen."""
        return self.weights.seeds_without_tokens if self.lacks_tokens else self.weights.seeds

    def with_ids(self, ids: Sequence[str]) -> Candidates:
        """Returns these candidates and further ones, visible memories."""
        return replace(
            self, ids=scoring.union_in_order(self.ids, ids), evidence=self.reader.compared(self.evidence, ids)
        )


def choose_candidates(retrieved: Retrieved, deps: SearchDeps, weights: SearchWeights) -> Candidates:
    """Keeps the visible memories that the arms found, adds their neighbours and chooses the best as candidates."""
    query, analysis, encoded = retrieved.query, retrieved.analysis, retrieved.encoded
    if encoded.is_multilingual:
        weights = weights.for_multilingual_query()
    reader = EvidenceReader.open(query, encoded, deps)
    found = found_by_arms(retrieved, reader, Evidence(compares_vectors=encoded.compares_vectors), deps)
    evidence = replace(found.evidence, keyword=found.scores["keyword"])
    arms = {name: scores for name, scores in found.scores.items() if name != "dense" or encoded.compares_vectors}
    best_partitions = [evidence.rows[uid].partition for uid in next(iter(arms.values()))]
    with deps.ledger.read() as connection:
        of_named_times = [
            uid
            for start, end in analysis.period_bounds
            for uid in memories.ids_between(connection, query.view, start, end, DATED_LIMIT)
        ]
        evidence, of_named_times = reader.visible(evidence, of_named_times)
    ids = scoring.union_in_order(*found.best, of_named_times)
    degraded = retrieved.degraded | found.degraded
    if not ids and "vectors" in degraded:
        # The newest visible memories: their cosines come from the ledger's vectors.
        with deps.ledger.read() as connection:
            with closing(memories.list_records(connection, query.view, with_sources=True)) as records:
                newest = [record.id for record in islice(records, CANDIDATE_LIMIT)]
            evidence, ids = reader.visible(evidence, newest)
    evidence = reader.with_cosines(evidence, ids)
    evidence, ids = reader.visible(evidence, evidence.with_neighbours(ids))
    evidence = reader.with_cosines(evidence, ids)
    ids = scoring.top_rows(evidence.table(ids, analysis), weights.candidates, CANDIDATE_LIMIT)
    candidates = Candidates(retrieved, reader, weights, evidence, ids, arms, degraded=degraded)
    candidates = _with_partitions(candidates, scoring.union_in_order(best_partitions, retrieved.statistics), deps)
    if query.for_prompt and analysis.is_question:
        candidates = _with_repetitions(candidates)
    evidence = replace(candidates.evidence, matches=_query_matches(candidates))
    return replace(candidates, evidence=reader.compared(evidence, candidates.ids))


class FoundByArms(NamedTuple):
    """What the arms found that is visible: its scores by the arms' names, those that may become candidates of each
    name, best first; and the evidence with its rows.
    """

    evidence: Evidence
    scores: dict[str, dict[str, float]]
    best: list[list[str]]
    degraded: frozenset[str]


def found_by_arms(
    retrieved: Retrieved, reader: EvidenceReader, evidence: Evidence, deps: SearchDeps, limit: int | None = None
) -> FoundByArms:
    """Returns up to `limit` visible memories of each arm (None: up to its own limit).

    An arm is asked again if `limit` is not its own, and for four times as many while the filter refuses too many.
    """
    scores, best, degraded = dict[str, dict[str, float]](), list[list[str]](), frozenset[str]()
    for arm, first in zip(ARMS, retrieved.found, strict=True):
        wanted = most = arm.limit if limit is None else limit
        answer = Attempt(first) if wanted == arm.limit else arm.search(retrieved.asked, deps, wanted)
        while True:
            degraded |= answer.degraded
            evidence, visible = reader.visible(evidence, (uid for uid, _ in answer.value))
            if len(visible) >= wanted or len(answer.value) < most:
                break
            most *= 4
            answer = arm.search(retrieved.asked, deps, most)
        shown = set(visible)
        kept = dict([(uid, score) for uid, score in answer.value if uid in shown][:wanted])
        scores[arm.name] = {**scores.get(arm.name, {}), **kept}
        best.append(list(kept)[: arm.candidates])
    return FoundByArms(evidence, scores, best, degraded)


def _with_partitions(candidates: Candidates, keys: Sequence[str], deps: SearchDeps) -> Candidates:
    """Adds the first partitions with the entities that the query names in each, and the statistics of the first.

    Also of the words that the encoder makes of the query, and of those that name something.
    """
    retrieved, query, encoded = candidates.retrieved, candidates.retrieved.query, candidates.retrieved.encoded
    if not keys:
        return candidates
    named, own = key_candidates(query.text), query.view.scope.partition
    with deps.ledger.read() as connection:
        known = retrieved.statistics
        if unlisted := [key for key in keys[:MAX_PARTITIONS] if key not in known]:
            known = {**known, **term_stats.statistics_of(connection, unlisted)}
        statistics = [known[key] for key in keys[:MAX_PARTITIONS]]
        columns = candidates.reader.candidates.columns
        partitions = [
            named_in(connection, one, named, own, columns if columns is not None and columns.key == one.key else None)
            for one in statistics
        ]
        words = () if encoded.tokens is None else encoded.tokens.words
        further = [
            *query_term_counts(query.text),
            *query_term_counts(retrieved.analysis.text_without_times),
            *(term for terms in matching.terms_of(words).values() for term in terms),
            *map(term_id, term_overlap.query_words(query.text)),
        ]
        first = statistics[0].with_terms(connection, further)
    return replace(candidates, partitions=partitions, statistics=first)


def named_in(
    connection: Connection,
    partition: PartitionStatistics,
    candidates: Mapping[str, KeyCandidate],
    own_partition: str,
    columns: PartitionColumns | None,
) -> SearchPartition:
    """Reads a partition with the entities that a query names in it, also by their aliases.

    No model reads the query: the entities that a parser finds in it are the same but for a few, and parsing took a
    sixth of the search (benchmarks/ABLATIONS.md, "Entities of a question"). Its runs of words are looked up among the
    keys of the partition.
    A key without an entity stands for those that differ in marks of Latin letters only ("walesa" for "wałęsa"), and a
    genitive for the name: of an entity that is more than a common noun.
    Aliases are followed only in the scope's own partition: a user's aliases mean nothing to a view by agent or run.
    """
    row = partition.row
    found, similar = entity_names.same_and_similar(connection, row, candidates, columns)
    if similar:
        candidates = {**{key: candidates[asked]._replace(key=key) for key, asked in similar.items()}, **candidates}
    kinds = _kinds(connection, row, candidates, found, columns)
    # "Windows" is not what the windows have that were cleaned.
    common = {key for key, kind in kinds.items() if candidates[key].is_possessor and kind is MentionKind.COMMON_NOUN}
    kinds = {key: kind for key, kind in kinds.items() if key not in common}
    named = {key: entity for key, entity in found.items() if key in kinds}
    alias_of = entity_names.linked_keys(connection, row, named, columns) if partition.key == own_partition else {}
    if alias_of:
        named |= entity_names.existing_entities(connection, row, alias_of, columns)
    alias_kinds = {alias: kinds[key] for alias, key in alias_of.items() if key in kinds}
    asked = {*(key for key, one in candidates.items() if key in kinds or not one.is_possessor), *alias_of}
    return SearchPartition(partition.key, partition.size, partition.kept, named, {**alias_kinds, **kinds}, asked)


def _kinds(
    connection: Connection,
    row: int | None,
    candidates: Mapping[str, KeyCandidate],
    found: Mapping[str, Entity],
    columns: PartitionColumns | None,
) -> dict[str, MentionKind]:
    """Returns how the query mentions the entities that were found, by key; without those inside longer ones.

    Where its writing does not tell a name, an entity is mentioned as the memories that name it best do.
    """
    untold = [key for key in found if candidates[key].is_name is None]
    kinds = entity_names.mention_kinds(connection, row, untold, columns) if untold else {}
    for key in found:
        if candidates[key].is_name:
            kinds[key] = MentionKind.NAME
        elif key not in kinds:
            kinds[key] = MentionKind.NOUN_PHRASE if " " in key else MentionKind.COMMON_NOUN
    inside = {
        key
        for key, kind in kinds.items()
        if any(candidates[key].is_inside(candidates[other]) and kinds[other] <= kind for other in kinds)
    }
    return {key: kind for key, kind in kinds.items() if key not in inside}


def _with_repetitions(candidates: Candidates) -> Candidates:
    """Finds the candidates that repeat the query, a question; the replies to them become candidates.

    A repetition has the query's own words. It matches best of all and answers nothing. Nor does an assistant's reply
    that is a nod or only asks in return ("ok", "Which one do you mean?"): it is none.
    """
    reader, evidence, query = candidates.reader, candidates.evidence, candidates.retrieved.query
    texts, query_words = reader.texts(evidence, candidates.ids[:REPETITION_LIMIT]), words_of(query.text)
    repetitions = [uid for uid in candidates.ids if uid in texts and words_of(texts[uid]) == query_words]
    replies = {uid: reply for uid in repetitions if (reply := evidence.reply_to(uid)) is not None}
    evidence, visible = reader.visible(evidence, replies.values())
    rows, said = evidence.rows, reader.texts(evidence, visible)
    telling = [
        uid
        for uid in visible
        if rows[uid].role != ASSISTANT or not (rows[uid].question_share == 1.0 or is_small_talk(said.get(uid, "")))
    ]
    return replace(
        candidates,
        evidence=evidence,
        ids=scoring.union_in_order(candidates.ids, telling),
        repetitions=repetitions,
        replies={uid: reply for uid, reply in replies.items() if reply in telling},
    )


def _query_matches(candidates: Candidates) -> TokenMatches | CharacterMatches | None:
    """Weighs the query's tokens by rarity; its characters and words if the embedder does not read the script."""
    encoded, analysis = candidates.retrieved.encoded, candidates.retrieved.analysis
    if not candidates.weights.tokens or not candidates.partitions:
        return None
    text, size, frequencies = analysis.text, candidates.statistics.size, candidates.statistics.frequencies
    if analysis.periods and not analysis.is_only_temporal:
        times = (candidates.evidence.rows[uid].at for uid in candidates.ids)
        # Where all is of 2026, "in 2026" tells nothing; a text that says "2026" would come before the answer.
        if all(analysis.temporal_proximity(at) == 1.0 for at in times):
            text = analysis.text_without_times
    if not encoded.is_supported_script:
        return matching.character_matches(text, size, frequencies)
    if encoded.tokens is None or not encoded.tokens.words:
        return None
    ignored = set(tokens(analysis.text)).difference(tokens(text))
    weights = matching.token_weights(encoded.tokens.words, size, frequencies, ignored)
    return TokenMatches(weights, query_tokens=encoded.tokens.tokens)
