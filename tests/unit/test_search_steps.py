"""Each step of a search alone: from values made by hand to exact values, without changing those it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta
from math import log
from typing import Any
from unicodedata import normalize
from unittest.mock import patch

import numpy as np
import pytest
from sqlalchemy import Engine, event

from graphmem import Memory
from graphmem.errors import ModelError, StoreUnavailable
from graphmem.model import MentionEdge, MentionKind, Scope, Subgraph, View
from graphmem.retrieval import graph_walk
from graphmem.retrieval.arms import ARMS, Arm, Asked, Attempt, Retrieved, attempt, encode, retrieve
from graphmem.retrieval.candidates import Candidates, choose_candidates
from graphmem.retrieval.evidence_reader import EvidenceReader
from graphmem.retrieval.features import Evidence, SpaceEstimates, UnreadMemories
from graphmem.retrieval.graph_walk import Walked, expand_second_hop, names_one_speaker, neighbourhoods, seeds, walk
from graphmem.retrieval.hits import read_hits
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.query_analysis import analyze_query
from graphmem.retrieval.ranking import Ranked, rank, rerank
from graphmem.retrieval.reordering import BoundedReranker
from graphmem.retrieval.types import EncodedQuery, SearchDeps, SearchQuery
from graphmem.retrieval.weights import CONFIGURATIONS, FULL
from graphmem.settings import Settings
from graphmem.stores.ledger.ledger_state import EmbedderChanged
from graphmem.testing import HashEmbedder, WordExtractor
from graphmem.text import READ_CHARS, bm25_weights, idf, term_counts, term_id

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
# Two sessions, a day apart. The first names Ann in both messages, the second Bergen in one.
SAID = (
    ("Tom", "Ann likes tea", 0),
    ("Eva", "Bergen is where Ann lives", 1),
    ("Tom", "coffee was cold", 60 * 24),
    ("Eva", "Bergen has rain", 60 * 24 + 1),
)
TEA, LIVES, COFFEE, RAIN = range(len(SAID))
VIEW = View(Scope("ann"), START + timedelta(days=9), partition=Scope("ann").partition)


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with (
        patch("graphmem.wiring._extractor", lambda _: WordExtractor()),
        Memory(":memory:", settings=Settings(), embedder=HashEmbedder(1024)) as opened,
    ):
        messages = [
            {"role": "user", "name": name, "content": text, "timestamp": START + timedelta(minutes=minutes)}
            for name, text, minutes in SAID
        ]
        opened.add(messages, user_id="ann")
        opened.add("Ann has tea in another store", user_id="bob")
        yield opened


@pytest.fixture
def deps(memory: Memory) -> SearchDeps:
    return memory.engine.search_deps


@pytest.fixture
def ids(memory: Memory) -> list[str]:
    """The ids of `SAID`, in order."""
    listed = {one["memory"]: one["id"] for one in memory.get_all(user_id="ann")["results"]}
    return [listed[text] for _, text, _ in SAID]


def asked(text: str, **options: Any) -> SearchQuery:
    return SearchQuery(text, VIEW, 10, **options)


def found(query: SearchQuery, dense: Any = (), keyword: Any = (), **more: Any) -> Retrieved:
    """Returns what arms may have found for a query that the embedder does not read, so that no vector counts."""
    analysis = analyze_query(query.text, VIEW.moment)
    question = Asked(query, more.pop("encoded", EncodedQuery()), {})
    return Retrieved(question, analysis, [[], [*dense], [*keyword]], **more)


def retrieved_by(query: SearchQuery, deps: SearchDeps) -> Retrieved:
    encoding = deps.pool.submit(encode, query.text, deps)
    return retrieve(query, analyze_query(query.text, VIEW.moment), encoding, deps)


def chosen(deps: SearchDeps, text: str, **options: Any) -> Candidates:
    query = asked(text, **options)
    return choose_candidates(retrieved_by(query, deps), deps, FULL)


def ranked_by_hand(deps: SearchDeps, text: str, **options: Any) -> Ranked:
    return rank(Walked(chosen(deps, text, **options)), deps)


# --- retrieve ---------------------------------------------------------------------------------------------------------


def test_retrieving_encodes_the_query_and_asks_each_arm(deps: SearchDeps, ids: list[str]) -> None:
    query = asked("tea coffee")
    retrieved = retrieved_by(query, deps)
    vector = deps.embedder.embed_query(query.text)
    assert retrieved.encoded.vector == pytest.approx(vector)
    assert retrieved.encoded.tokens is not None and retrieved.encoded.tokens.words == ("tea", "coffe")
    cosines = {
        uid: float(deps.embedder.embed([f"{SAID[n][0]}: {SAID[n][1]}"])[0][0] @ vector) for n, uid in enumerate(ids)
    }
    assert dict(retrieved.of("dense")) == pytest.approx(cosines, abs=1e-3)
    assert {uid for uid, _ in retrieved.of("keyword")} == {ids[TEA], ids[COFFEE]}
    statistics = retrieved.statistics["user:ann"]
    assert (statistics.size, statistics.kept, statistics.frequencies) == (
        4,
        4,
        {term_id("tea"): 1, term_id("coffe"): 1},
    )
    assert (retrieved.found[0], retrieved.degraded) == ([], frozenset())  # no memory has a multilingual vector alone


def test_vectors_of_another_embedder_are_not_searched(deps: SearchDeps) -> None:
    other = replace(deps, spec=replace(deps.spec, model="another"))
    with pytest.raises(EmbedderChanged, match="configuration says 'another'"):
        retrieved_by(asked("tea"), other)  # by the columns' state
    with pytest.raises(EmbedderChanged, match="configuration says 'another'"):
        retrieved_by(replace(asked("tea"), view=replace(VIEW, partition=None)), other)  # by a statement


def test_a_word_said_twice_in_a_query_counts_once(deps: SearchDeps, ids: list[str]) -> None:
    once, twice = asked("tea"), asked("tea tea")
    statistics = retrieved_by(once, deps).statistics
    in_document = bm25_weights(term_counts("Tom: Ann likes tea"))[term_id("tea")]
    expected = [(ids[TEA], pytest.approx(in_document * idf(4, 1), rel=1e-5))]
    keyword = ARMS[-1]
    assert keyword.search(Asked(once, EncodedQuery(), statistics), deps, 5).value == expected
    assert keyword.search(Asked(twice, EncodedQuery(), statistics), deps, 5).value == expected


def test_what_fails_is_left_out_by_name() -> None:
    def fail() -> int:
        raise ModelError("no model")

    assert attempt("vectors", lambda: 3, 0) == Attempt(3, frozenset())
    assert attempt("vectors", fail, 0) == Attempt(0, frozenset({"vectors"}))
    with pytest.raises(ZeroDivisionError):
        attempt("vectors", lambda: 1 // 0, 0)


def test_an_embedder_that_fails_leaves_the_keyword_arm(deps: SearchDeps, ids: list[str]) -> None:
    class Broken(HashEmbedder):
        def embed_question(self, text: str) -> Any:
            raise ModelError("no model")

    query = asked("tea")
    retrieved = retrieved_by(query, replace(deps, embedder=Broken(1024)))
    assert (retrieved.encoded, retrieved.of("dense"), retrieved.degraded) == (
        EncodedQuery(),
        [],
        frozenset({"vectors"}),
    )
    assert [uid for uid, _ in retrieved.of("keyword")] == [ids[TEA]]


def test_one_more_arm_is_one_more_entry(deps: SearchDeps, ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What it finds becomes a candidate and has its scores, and a trace names it."""
    nearby = Arm("nearby", lambda *_: Attempt([(ids[RAIN], 0.7)]), limit=5, candidates=5)
    for module in ("arms", "candidates", "hits"):
        monkeypatch.setattr(f"graphmem.retrieval.{module}.ARMS", (*ARMS, nearby))
    assert chosen(deps, "tea").arms["nearby"] == {ids[RAIN]: 0.7}
    trace = read_hits(ranked_by_hand(deps, "tea", traced=ids[RAIN]), deps).trace
    assert trace is not None and trace.arm_ranks["nearby"] == 1


# --- choose_candidates ------------------------------------------------------------------------------------------------


def test_only_visible_memories_and_their_neighbours_become_candidates(
    memory: Memory, deps: SearchDeps, ids: list[str]
) -> None:
    (other,) = [one["id"] for one in memory.get_all(user_id="bob")["results"]]
    candidates = choose_candidates(
        found(asked("tea"), keyword=[(ids[TEA], 2.0), (other, 1.0), ("gone", 1.0)]), deps, FULL
    )
    assert candidates.arms == {"dense": {}, "keyword": {ids[TEA]: 2.0}}
    assert set(candidates.ids) == {ids[TEA], ids[LIVES]}  # the message after it, but none of the next day
    assert candidates.evidence.neighbours[ids[TEA]] == (None, ids[LIVES])
    assert candidates.evidence.accepted == {ids[TEA]: True, other: False, "gone": False, ids[LIVES]: True}
    assert [partition.key for partition in candidates.partitions] == []  # nothing tells which partitions are searched


def test_candidates_have_the_entities_and_words_of_the_query(deps: SearchDeps, ids: list[str]) -> None:
    candidates = chosen(deps, "Where does Ann live?")
    (partition,) = candidates.partitions
    assert (partition.key, partition.size, set(partition.named_entities)) == ("user:ann", 4, {"ann"})
    assert candidates.statistics.frequencies[term_id("ann")] == 2
    matches = candidates.evidence.matches
    assert matches is not None and matches.weights.sum() == pytest.approx(1.0)
    assert not candidates.lacks_tokens
    assert candidates.evidence.compared == set(candidates.ids) == set(ids)


def test_a_filter_refuses_candidates_but_not_their_evidence(deps: SearchDeps, ids: list[str]) -> None:
    query = asked("tea", accepted=lambda _connection, asked_for: {uid for uid in asked_for if uid != ids[LIVES]})
    candidates = choose_candidates(found(query, keyword=[(ids[TEA], 2.0)]), deps, FULL)
    assert candidates.ids == [ids[TEA]]
    assert candidates.evidence.neighbours[ids[TEA]] == (None, ids[LIVES])
    assert candidates.evidence.rows.keys() == {ids[TEA], ids[LIVES]}


def test_a_repeated_question_makes_its_reply_a_candidate(memory: Memory) -> None:
    messages = [
        {"role": "user", "content": "Where is my key?", "timestamp": START},
        {"role": "assistant", "content": "Under the mat.", "timestamp": START + timedelta(minutes=1)},
    ]
    question, reply = [one["id"] for one in memory.add(messages, user_id="key")["results"]]
    view = replace(VIEW, scope=Scope("key"), partition="user:key")
    query = SearchQuery("where is my key", view, 5, for_prompt=True)
    deps = memory.engine.search_deps
    candidates = choose_candidates(found(query, keyword=[(question, 1.0)]), deps, FULL)
    assert (candidates.repetitions, candidates.replies) == ([question], {question: reply})
    assert reply in candidates.ids


def test_the_newest_are_candidates_if_the_vector_index_failed(deps: SearchDeps, ids: list[str]) -> None:
    assert choose_candidates(found(asked("tea")), deps, FULL).ids == []
    failed = found(asked("tea"), degraded=frozenset({"vectors"}))
    candidates = choose_candidates(failed, deps, FULL)
    assert set(candidates.ids) == set(ids)
    assert candidates.degraded == {"vectors"}


# --- evidence ---------------------------------------------------------------------------------------------------------


def test_reading_returns_new_evidence_and_reads_nothing_twice(deps: SearchDeps, ids: list[str]) -> None:
    reader = EvidenceReader.open(asked("tea"), EncodedQuery(deps.embedder.embed_query("tea")), deps)
    nothing = Evidence()
    seen, visible = reader.visible(nothing, [ids[RAIN], ids[TEA], ids[RAIN]])
    assert visible == [ids[RAIN], ids[TEA]]
    assert nothing == Evidence()
    compared = reader.with_cosines(seen, [ids[TEA]])
    assert seen.similarity == {}
    assert compared.similarity.keys() == {ids[TEA], ids[LIVES]}
    assert reader.with_cosines(compared, [ids[TEA]]) is compared
    assert reader.visible(compared, [ids[TEA]]) == (compared, [ids[TEA]])


def test_matches_of_unread_memories_are_estimated_within_bounds() -> None:
    estimates = SpaceEstimates({}, {})  # too few memories: cosines as they are
    unread = UnreadMemories({"a": 0.4, "b": -0.2, "c": 1.3}, {}, estimates)
    assert unread.token_matches(["a"]) == {}
    assert replace(unread, tokens=estimates).token_matches("abc") == {"a": 0.4, "b": 0.0, "c": 1.0}


# --- the graph --------------------------------------------------------------------------------------------------------


def test_seeds_are_the_best_candidates_and_the_named_entities(deps: SearchDeps, ids: list[str]) -> None:
    (seeded,) = seeds(chosen(deps, "Does Ann like tea?"))
    assert seeded.partition.key == "user:ann"
    assert next(iter(seeded.memories)) == ids[TEA]
    assert sum(seeded.memories.values()) == pytest.approx(0.2)
    assert seeded.entities == {"ann": pytest.approx(0.8)}
    assert seeded.starts[0] == ids[TEA]
    (unnamed,) = seeds(chosen(deps, "cold?"))
    assert (unnamed.entities, sum(unnamed.memories.values())) == ({}, pytest.approx(1.0))


def test_paths_start_at_memories_above_the_threshold(deps: SearchDeps) -> None:
    (seeded,) = seeds(chosen(deps, "Does Ann like tea?", threshold=1.0))
    assert seeded.starts == []


def test_the_neighbourhood_of_a_failing_graph_is_empty(deps: SearchDeps) -> None:
    class Broken:
        def neighbourhood(self, *_: Any) -> Subgraph:
            raise StoreUnavailable("no graph")

    candidates = chosen(deps, "Ann")
    seeded = seeds(candidates)
    assert neighbourhoods(candidates, seeded, replace(deps, graph=Broken())) == ([Subgraph()], {"graph"})
    around = neighbourhoods(candidates, seeded, deps)
    assert (len(around.value[0].memories), around.degraded) == (4, frozenset())


def bergen(ids: list[str]) -> Subgraph:
    """Returns a graph in which an entity leads from one memory to another of the next day."""
    edges = tuple(MentionEdge(ids[n], "bergen", MentionKind.NAME) for n in (LIVES, RAIN))
    return Subgraph(memories=(ids[LIVES], ids[RAIN]), frequencies={"bergen": 2}, mentions=edges)


def test_the_walk_adds_what_it_reaches(deps: SearchDeps, ids: list[str]) -> None:
    before = choose_candidates(found(asked("Ann"), keyword=[(ids[LIVES], 2.0)]), deps, FULL)
    assert ids[RAIN] not in before.ids
    partition = chosen(deps, "Ann").partitions[0]
    seeded = graph_walk.SeededPartition(replace(partition, size=100), {ids[LIVES]: 1.0}, {}, [ids[LIVES]])
    walked = walk(before, [seeded], Attempt([bergen(ids)], frozenset({"graph"})))
    assert walked.candidates.ids == [*before.ids, ids[RAIN]]
    assert walked.candidates.arms["graph"][ids[LIVES]] == 1.0
    assert 0 < walked.candidates.arms["graph"][ids[RAIN]] < 1.0
    assert walked.candidates.degraded == {"graph"}
    assert walked.walks[0].result.path(ids[RAIN]) == [
        ("memory", ids[LIVES]),
        ("entity", "bergen"),
        ("memory", ids[RAIN]),
    ]
    assert ids[RAIN] not in before.ids and "graph" not in before.arms


def test_the_second_hop_adds_what_shares_a_rare_entity(deps: SearchDeps, ids: list[str]) -> None:
    before = choose_candidates(found(asked("Ann"), keyword=[(ids[LIVES], 2.0)]), deps, FULL)
    partition = chosen(deps, "Ann").partitions[0]
    seeded = graph_walk.SeededPartition(replace(partition, size=100), {ids[LIVES]: 1.0}, {}, [])
    reached = walk(before, [seeded], Attempt([bergen(ids)]))
    walked = Walked(replace(before, arms=reached.candidates.arms), reached.walks)  # as if PageRank had added nothing
    expanded = expand_second_hop(walked).candidates
    assert expanded.arms["hop"] == {ids[RAIN]: 1.0}
    assert expanded.ids == [*before.ids, ids[RAIN]]
    strength = graph_walk.LINK_WEIGHTS[MentionKind.NAME] * log(100 / 2) / log(100)
    assert graph_walk.shared_entity_links(bergen(ids), 100, [ids[LIVES]]) == {
        ids[LIVES]: {ids[RAIN]: pytest.approx(strength)}
    }


def test_a_query_that_names_one_speaker_is_recognised(deps: SearchDeps) -> None:
    assert names_one_speaker(chosen(deps, "What did Tom drink?"))
    assert not names_one_speaker(chosen(deps, "What did Tom and Eva drink?"))
    assert not names_one_speaker(chosen(deps, "What was cold?"))


# --- rank, rerank, hits -----------------------------------------------------------------------------------------------


def test_the_ranking_is_the_weighted_sum_of_the_features(deps: SearchDeps, ids: list[str]) -> None:
    candidates = chosen(deps, "Does Ann like tea?")
    ranking = rank(Walked(candidates), deps)
    table, totals = candidates.table(), candidates.table().total(FULL.final)
    order = np.argsort(-totals, kind="stable")
    assert [memory.id for memory in ranking.ranked] == [table.ids[place] for place in order]
    assert [memory.score for memory in ranking.ranked] == pytest.approx(np.clip(totals[order] / totals.max(), 0, 1))
    assert ranking.ranked[0].id == ids[TEA]
    assert ranking.best_relevance == max(one.value for one in ranking.relevances.values())
    assert (ranking.floor, [memory.id for memory in ranking.best]) == (None, [memory.id for memory in ranking.ranked])


def test_below_the_least_relevance_nothing_may_be_a_hit(deps: SearchDeps) -> None:
    ranking = ranked_by_hand(deps, "Does Ann like tea?", min_relevance=1.0)
    assert (ranking.best, ranking.floor, len(ranking.relevances)) == ([], 1.0, len(SAID))


def test_below_the_threshold_nothing_may_be_a_hit(deps: SearchDeps) -> None:
    ranking = ranked_by_hand(deps, "Does Ann like tea?", threshold=0.9)
    assert (ranking.best, ranking.best_relevance, len(ranking.ranked)) == ([], None, len(SAID))


def reranker(score: Callable[[str], float]) -> BoundedReranker:
    return BoundedReranker(lambda _query, texts: [score(text) for text in texts], candidates=3, timeout=60.0)


def test_a_reranker_orders_the_best_and_leaves_the_ranking_it_was_given(deps: SearchDeps, ids: list[str]) -> None:
    ranking = ranked_by_hand(deps, "Does Ann like tea?")
    first = [memory.id for memory in ranking.best[:3]]
    reversed_ = rerank(
        ranking, reranker(lambda text: -first.index(ids[[f"{n}: {t}" for n, t, _ in SAID].index(text)])), deps
    )
    assert [memory.id for memory in reversed_.best[:3]] == first
    turned = rerank(
        ranking, reranker(lambda text: first.index(ids[[f"{n}: {t}" for n, t, _ in SAID].index(text)])), deps
    )
    assert [memory.id for memory in turned.best] == [*first[::-1], *(memory.id for memory in ranking.best[3:])]
    assert [memory.id for memory in ranking.best[:3]] == first


def test_a_failing_reranker_keeps_the_order(deps: SearchDeps) -> None:
    ranking = ranked_by_hand(deps, "Does Ann like tea?")
    kept = rerank(ranking, reranker(lambda _: float("nan")), deps)
    assert (kept.best, kept.candidates.degraded) == (ranking.best, {"reranker"})
    assert ranking.candidates.degraded == frozenset()


def test_hits_and_their_shares_come_out_of_the_ranking(deps: SearchDeps, ids: list[str]) -> None:
    ranking = ranked_by_hand(deps, "Does Ann like tea?", explain=True)
    outcome = read_hits(ranking, deps)
    assert [hit.record.id for hit in outcome.hits] == [memory.id for memory in ranking.best]
    assert outcome.named == ("ann",)
    for hit, memory in zip(outcome.hits, ranking.best, strict=True):
        assert hit.explanation is not None
        assert sum(share["share"] for share in hit.explanation.shares.values()) == pytest.approx(hit.score)
        assert hit.explanation.shares == ranking.explainer.shares(memory)
        assert hit.similarity == ranking.candidates.evidence.similarity[memory.id]


def test_a_trace_comes_out_of_the_same_values(deps: SearchDeps, ids: list[str]) -> None:
    ranking = ranked_by_hand(deps, "Does Ann like tea?", traced=ids[COFFEE])
    trace = read_hits(ranking, deps).trace
    assert trace is not None
    place = [memory.id for memory in ranking.ranked].index(ids[COFFEE])
    assert (trace.rank, trace.hit, trace.candidates) == (place + 1, place + 1, len(SAID))
    assert trace.score == ranking.ranked[place].score
    assert trace.shares == ranking.explainer.shares(ranking.ranked[place])
    assert (
        trace.arm_ranks["dense"] == [uid for uid, _ in ranking.candidates.retrieved.of("dense")].index(ids[COFFEE]) + 1
    )
    assert "keyword" not in trace.arm_ranks


# --- the whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["full", "order", "bare", "dense"])
def test_the_steps_one_by_one_are_the_search(name: str, deps: SearchDeps) -> None:
    weights = CONFIGURATIONS[name]
    query = asked("Where does Ann live?", explain=True)
    retrieved = retrieved_by(query, deps)
    candidates = choose_candidates(retrieved, deps, weights)
    walked = Walked(candidates)
    if weights.uses_graph:
        seeded = seeds(candidates)
        walked = walk(candidates, seeded, neighbourhoods(candidates, seeded, deps))
        if not names_one_speaker(walked.candidates):
            walked = expand_second_hop(walked)
    assert read_hits(rank(walked, deps), deps) == search(query, deps, weights)


def test_a_query_of_decomposed_letters_is_the_same_query(memory: Memory) -> None:
    memory.add(["Jürgen Müller wohnt in Köln.", "Tobi wohnt in Ulm."], user_id="ann")
    composed, decomposed = (
        memory.search(normalize(form, "Wo wohnt Jürgen Müller?"), user_id="ann")["results"] for form in ("NFC", "NFD")
    )
    assert decomposed == composed
    assert composed[0]["memory"] == "Jürgen Müller wohnt in Köln."


def test_a_search_reads_no_more_of_a_text_than_its_beginning(memory: Memory, deps: SearchDeps) -> None:
    memory.add("Ann lives by the sea. " * 2_000, user_id="ann")
    candidates = chosen(deps, "Where does Ann live?")
    texts = candidates.reader.texts(candidates.evidence, candidates.ids)
    assert max(map(len, texts.values())) == READ_CHARS


def test_an_arm_alone_scores_by_what_it_finds_and_not_by_relevance(deps: SearchDeps) -> None:
    query, alone = asked("Where does Ann live?"), CONFIGURATIONS["dense"]
    hits = search(query, deps, alone).hits
    cosines = [hit.similarity for hit in hits]
    assert len(cosines) > 2
    assert [hit.score for hit in hits] == pytest.approx([cosine / cosines[0] for cosine in cosines])
    heeding = search(query, deps, replace(alone, heeds_relevance=True)).hits
    assert [hit.score for hit in heeding] != pytest.approx([hit.score for hit in hits])


def test_a_step_leaves_the_values_that_it_is_given(deps: SearchDeps) -> None:
    candidates = chosen(deps, "Where does Ann live?")
    walked = Walked(candidates)
    first = read_hits(rank(walked, deps), deps)
    expand_second_hop(walk(candidates, seeds(candidates), neighbourhoods(candidates, seeds(candidates), deps)))
    assert read_hits(rank(walked, deps), deps) == first
    for value in (candidates, candidates.evidence, candidates.retrieved, walked, candidates.evidence.matches):
        with pytest.raises(FrozenInstanceError):
            setattr(value, fields(value)[0].name, None)


def test_a_warm_search_reads_each_thing_once(memory: Memory) -> None:
    read: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().startswith(("SELECT", "WITH")):
            read.append(statement)

    for _ in range(3):  # the columns are kept from the second search on
        memory.search("Where does Ann live?", user_id="ann")
    event.listen(Engine, "before_cursor_execute", note)
    try:
        memory.search("Where does Ann live?", user_id="ann")
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    # The state of the columns, texts of the best, records, relations, chosen names.
    assert len(read) == len(set(read))
    assert len(read) <= 5
