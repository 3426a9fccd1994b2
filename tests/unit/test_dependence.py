"""Queries that may depend on the conversation before them, and queries that can be understood by themselves."""

from __future__ import annotations

import pytest

from graphmem.retrieval.dependence import depends_on_conversation


@pytest.mark.parametrize(
    "query",
    [
        "And how did that turn out?",
        "And where does she do that?",
        "What colour is it?",
        "Which city does he live in?",
        "What is the name of her dog?",
        "Who lives there?",
        "And the other one?",
        "And my sister?",
        "Really? Since when?",
        "What about tomorrow?",
        "Thanks, that sounds great!",
        "ok",
        "Hm?",
        "?",
        "后来怎么样了？",
        "那件事解决了吗？",
        "她后来同意了没有？",
        "你今天有什么不一样？",
        "明天呢？",
    ],
)
def test_a_query_that_refers_to_something_or_names_nothing_depends_on_its_conversation(query: str) -> None:
    assert depends_on_conversation(query)


@pytest.mark.parametrize(
    "query",
    [
        "Which engine drives the spacecraft?",
        "What should I cook tonight?",
        "wifi password",
        "Is there anything that helps against moths?",
        "Is it safe to eat raw eggs?",
        "What did I do with Clara this week?",
        "What should I cook for my mother when she visits?",
        "When did Maria donate her car?",
        "So what is the price of a ticket to Porto?",
        "蒙古国的首都叫什么？",
        "我妹妹在哪里上学？",
        "那家咖啡馆为什么要搬到火车站对面去？",
    ],
)
def test_a_query_that_names_its_subject_depends_on_nothing(query: str) -> None:
    assert not depends_on_conversation(query)


@pytest.mark.parametrize("query", ["Wie heißt meine Schwester?", "Где мой паспорт?", "妹はどこに住んでいますか？"])
def test_a_query_in_another_language_is_not_judged(query: str) -> None:
    assert depends_on_conversation(query)
