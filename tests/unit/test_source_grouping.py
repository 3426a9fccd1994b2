"""Source grouping: a source message is shown under its facts and lends them its rank, as a question to its reply."""

from __future__ import annotations

import pytest

from graphmem.retrieval.reordering import RankedMemory, group_sources, raise_replies
from graphmem.retrieval.scoring import LARGE_PARTITION, SMALL_PARTITION, order_by_relevance


def ranked(*ids: str) -> list[RankedMemory]:
    return [RankedMemory(uid, 1 - place / 10) for place, uid in enumerate(ids)]


def test_without_facts_a_ranking_stays_as_it_is() -> None:
    assert group_sources(ranked("a", "b"), {}) == ranked("a", "b")
    assert group_sources(ranked("a", "b"), {"a": ["gone"], "other": ["b"]}) == ranked("a", "b")
    assert group_sources([], {"a": ["b"]}) == []


def test_a_fact_before_its_source_stays_where_it_is() -> None:
    assert group_sources(ranked("fact", "x", "source"), {"source": ["fact"]}) == [
        RankedMemory("fact", 1, ("source",)),
        RankedMemory("x", 0.9),
    ]


def test_a_source_before_its_fact_gives_it_its_place_and_score() -> None:
    assert group_sources(ranked("source", "x", "fact"), {"source": ["fact"]}) == [
        RankedMemory("fact", 1, ("source",)),
        RankedMemory("x", 0.9),
    ]


def test_of_several_facts_the_best_takes_the_rank_and_all_show_the_source() -> None:
    facts = {"source": ["second", "first"]}
    assert group_sources(ranked("source", "x", "first", "second"), facts) == [
        RankedMemory("first", 1, ("source",)),
        RankedMemory("x", 0.9),
        RankedMemory("second", 0.7, ("source",)),
    ]


def test_several_sources_of_a_fact_are_shown_under_it_best_first() -> None:
    facts = {"two": ["fact"], "one": ["fact"]}
    assert group_sources(ranked("one", "fact", "two"), facts) == [RankedMemory("fact", 1, ("one", "two"))]


def test_a_reply_behind_its_question_comes_directly_after_it() -> None:
    assert raise_replies(ranked("question", "x", "reply"), {"question": "reply"}) == [
        RankedMemory("question", 1),
        RankedMemory("reply", 1),
        RankedMemory("x", 0.9),
    ]


def test_a_reply_before_its_question_stays_where_it_is() -> None:
    assert raise_replies(ranked("reply", "x", "question"), {"question": "reply"}) == ranked("reply", "x", "question")


def test_a_reply_or_question_outside_the_ranking_changes_nothing() -> None:
    assert raise_replies(ranked("question", "x"), {"question": "gone", "absent": "x"}) == ranked("question", "x")


def test_the_fact_of_a_raised_reply_takes_its_place() -> None:
    raised = raise_replies(ranked("question", "x", "reply", "fact"), {"question": "reply"})
    assert group_sources(raised, {"reply": ["fact"]}) == [
        RankedMemory("question", 1),
        RankedMemory("fact", 1, ("reply",)),
        RankedMemory("x", 0.9),
    ]


def test_relevance_counts_half_as_much_in_large_partitions() -> None:
    scores = {"asks": 1.0, "answers": 0.9, "other": 0.5, "far": 0.1}
    before = [RankedMemory(uid, score) for uid, score in scores.items()]
    relevances = {"asks": 0.0, "answers": 0.9, "other": 0.9}
    small = order_by_relevance(before, relevances, 12)
    assert [memory.id for memory in small] == ["answers", "other", "asks", "far"]
    assert small[0].score == 1.0
    assert small[1].score == pytest.approx(0.6)  # as far behind as before, being as relevant
    assert 0.0 <= small[2].score < small[1].score
    assert all(one.score - one.relevance_share == pytest.approx(scores[one.id]) for one in small)
    close = {**relevances, "asks": 0.5}
    places = [
        [memory.id for memory in order_by_relevance(before, {**close, "answers": value}, size)].index("asks")
        for size in (1, SMALL_PARTITION, LARGE_PARTITION - 1, LARGE_PARTITION, 10**6)
        for value in (0.8, 0.95)
    ]
    assert places == [1, 1, 1, 1, 0, 1, 0, 1, 0, 1]


def test_an_order_by_relevance_of_nothing_is_empty() -> None:
    assert order_by_relevance([], {}, 3) == []
