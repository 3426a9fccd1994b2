"""Weak questions: when the next step is taken, what it asks, and what is left when all of them find little."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from support.fake_llm import OneAnswer

from graphmem.errors import LLMUnavailable
from graphmem.model import Kind, MemoryRecord, Message, Scope
from graphmem.retrieval import fallback
from graphmem.retrieval.fallback import ConversationQuery, search_with_fallback
from graphmem.retrieval.types import Hit, SearchOutcome

NOW = datetime(2024, 5, 1, tzinfo=UTC)


def hit(text: str, similarity: float = 0.1, **more: Any) -> Hit:
    record = MemoryRecord(text, "user:u", Scope("u"), Kind.FACT, text, NOW, NOW, NOW, NOW, "")
    return Hit(record, 1.0, similarity, None, **more)


def turns(*said: str) -> list[Message]:
    return [Message(("user", "assistant")[n % 2], text, NOW) for n, text in enumerate(said)]


def climbed(
    asking: ConversationQuery, answers: dict[str, SearchOutcome], model: Any = None, left: float = 9.0
) -> list[Any]:
    return list(search_with_fallback(asking, answers.__getitem__, model, lambda: left))


def texts(step: Any) -> list[str]:
    return [one.record.text for one in step.hits]


WEAK = SearchOutcome((hit("noise"),))
ASKED = "And how did that turn out?"
TALK = turns("My landlord raises the rent.", "Did you write to him?")
WITH_TALK = "My landlord raises the rent.\nDid you write to him?\n" + ASKED


@pytest.mark.parametrize(
    "enough",
    [
        SearchOutcome((hit("a", 0.2), hit("b", 0.5))),
        SearchOutcome((hit("a"),), named=("anna",)),
        SearchOutcome((hit("a"),), named=("anna",), is_supported_script=False),
        SearchOutcome((hit("a"), hit("b", term_overlap=0.7)), is_supported_script=False),
        SearchOutcome((hit("a", term_overlap=1.4),)),
    ],
)
def test_a_question_that_finds_enough_is_asked_once(enough: SearchOutcome) -> None:
    model = OneAnswer("never asked")
    (step,) = climbed(ConversationQuery(ASKED, TALK), {ASKED: enough}, model)
    assert (step.query, step.hits, step.is_sufficient, model.asked) == (ASKED, enough.hits, True, [])


@pytest.mark.parametrize(
    "little",
    [
        WEAK,
        SearchOutcome((hit("noise", 0.9),), is_supported_script=False),
        SearchOutcome((hit("noise", term_overlap=0.6),), is_supported_script=False),
        SearchOutcome((hit("noise", term_overlap=1.3),)),
    ],
)
def test_an_insufficient_query_is_tried_with_the_last_messages(little: SearchOutcome) -> None:
    found = climbed(
        ConversationQuery(ASKED, TALK),
        {ASKED: little, WITH_TALK: SearchOutcome((hit("rent", 0.6),))},
        OneAnswer("never"),
    )
    assert [(step.query, texts(step), step.is_sufficient) for step in found] == [
        (ASKED, ["noise"], False),
        (WITH_TALK, ["rent"], True),
    ]


def test_a_query_that_stays_insufficient_is_rewritten() -> None:
    model = OneAnswer("What became of the rent?")
    answers = {ASKED: WEAK, WITH_TALK: WEAK, "What became of the rent?": SearchOutcome((hit("rent", 0.6),))}
    found = climbed(ConversationQuery(ASKED, TALK, "Ana", "Max"), answers, model)
    assert [step.query for step in found] == [ASKED, WITH_TALK, "What became of the rent?"]
    assert texts(found[-1]) == ["rent"]
    (prompt,) = model.asked
    assert (prompt.operation, prompt.schema, prompt.timeout) == ("rewrite", None, 2.5)
    assert json.loads(prompt.user) == {
        "user_name": "Ana",
        "char_name": "Max",
        "user_question": ASKED,
        "recent_conversation": "Ana: My landlord raises the rent.\nMax: Did you write to him?",
    }


def test_a_turn_keeps_its_own_name_and_its_role_where_nobody_has_one() -> None:
    said = [Message("user", "Hi", NOW, name="Tom"), Message("assistant", "Hello", NOW), Message("tool", "7", NOW)]
    asked = json.loads(fallback.rewrite_prompt(ConversationQuery(ASKED, said, "Ana"), 1.0).user)
    assert asked["recent_conversation"] == "Tom: Hi\nassistant: Hello\ntool: 7"


def test_instructions_of_the_callers_own_stand_in_for_ours() -> None:
    assert fallback.rewrite_prompt(ConversationQuery(ASKED, prompt="Do it"), 1.0).system == "Do it"
    assert "{" in fallback.rewrite_prompt(ConversationQuery(ASKED), 1.0).system


@pytest.mark.parametrize(
    "model",
    [None, OneAnswer(LLMUnavailable("away")), OneAnswer(""), OneAnswer(None), OneAnswer(["x"]), OneAnswer(ASKED)],
)
def test_without_a_rewritten_query_what_was_found_before_stands(model: Any) -> None:
    answers = {ASKED: SearchOutcome((hit("a"), hit("b"), hit("c"))), WITH_TALK: SearchOutcome((hit("x"), hit("b")))}
    found = climbed(ConversationQuery(ASKED, TALK), answers, model)
    assert [texts(step) for step in found] == [["a", "b", "c"], ["x", "a", "b", "c"]]
    assert not found[-1].is_sufficient


def test_a_weak_question_without_a_conversation_is_rewritten_at_once_or_left() -> None:
    assert len(climbed(ConversationQuery(ASKED), {ASKED: WEAK})) == 1
    model = OneAnswer("What became of the rent?")
    assert len(climbed(ConversationQuery(ASKED), {ASKED: WEAK, model.said: WEAK}, model)) == 2


def test_hits_that_have_nothing_to_do_with_what_is_asked_are_left_out() -> None:
    found = SearchOutcome((hit("a"), hit("noise", is_related=False), hit("b")), named=("anna",))
    assert [texts(step) for step in climbed(ConversationQuery(ASKED), {ASKED: found})] == [["a", "b"]]
    assert [texts(step) for step in climbed(ConversationQuery(ASKED, only_related=False), {ASKED: found})] == [
        ["a", "noise", "b"]
    ]
    little = SearchOutcome((hit("noise", is_related=False), hit("c")))
    answers = {ASKED: SearchOutcome((hit("noise", is_related=False),)), WITH_TALK: little}
    assert [texts(step) for step in climbed(ConversationQuery(ASKED, TALK), answers)] == [[], ["c"]]


def test_a_question_without_a_word_that_names_something_counts_only_by_itself() -> None:
    wordless = SearchOutcome((hit("whatever", is_related=False),), has_query_terms=False)
    found = climbed(
        ConversationQuery(ASKED, TALK), {ASKED: wordless, WITH_TALK: SearchOutcome((hit("rent", is_related=True),))}
    )
    assert [texts(step) for step in found] == [["whatever"], ["rent"]]


def test_without_any_hits_no_further_query_is_tried() -> None:
    model = OneAnswer("never")
    assert [step.hits for step in climbed(ConversationQuery(ASKED, TALK), {ASKED: SearchOutcome()}, model)] == [()]
    assert model.asked == []


def test_no_step_begins_that_the_time_left_is_too_short_for() -> None:
    model = OneAnswer("What became of the rent?")
    answers = {ASKED: WEAK, WITH_TALK: WEAK, model.said: WEAK}
    assert len(climbed(ConversationQuery(ASKED, TALK), answers, model, left=0.2)) == 1
    assert len(climbed(ConversationQuery(ASKED, TALK), answers, model, left=0.4)) == 2
    assert len(climbed(ConversationQuery(ASKED, TALK), answers, model, left=1.0)) == 3
    assert [prompt.timeout for prompt in model.asked] == [0.75]


# --- the query with the last turns ------------------------------------------------------------------------------------


def test_the_newest_turns_are_kept_whole_as_far_as_they_fit() -> None:
    assert fallback.prepend_turns("why?", turns("aaaa", "bbbb", "cc"), 12) == "bbbb\ncc\nwhy?"
    assert fallback.prepend_turns("why?", turns("aaaa", "bbbb", "cc"), 11) == "cc\nwhy?"
    assert fallback.prepend_turns("why?", []) == "why?"


def test_of_a_newest_turn_that_does_not_fit_the_end_is_kept() -> None:
    assert fallback.prepend_turns("why?", turns("a", "0123456789"), 10) == "56789\nwhy?"
    assert fallback.prepend_turns("0123456789", turns("a"), 10) == "0123456789"
    assert len(fallback.prepend_turns("q" * 3000, turns("a"))) == fallback.MAX_QUERY_CHARS


# --- what the model answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "Who raised Ana's rent?",
        '"Who raised Ana\'s rent?"',
        "“Who raised Ana's rent?”\n",
        "```\nWho raised Ana's rent?\n```",
        "```text\nWho raised Ana's rent?",
        "Query: Who raised Ana's rent?",
        '**Rewritten query:** "Who raised Ana\'s rent?"',
        "Here is the rewritten query:\n\nWho raised Ana's rent?\n\nI resolved the pronoun.",
        "- Who raised Ana's rent?",
        "# Who raised Ana's rent?",
        "1. Who raised Ana's rent?",
        "Here's the rewritten search query: Who raised Ana's rent?",
        "Rewrite: Who raised Ana's rent?",
        "rewritten_query: Who raised Ana's rent?",
        "Standalone question: Who raised Ana's rent?",
        "User question: Who raised Ana's rent?",
        "Search Query：Who raised Ana's rent?",
        "**Output**: Who raised Ana's rent?",
        "改写：\nWho raised Ana's rent?",
    ],
)
def test_labels_and_marks_around_a_rewritten_query_are_removed(said: str) -> None:
    assert fallback.clean_rewrite(said) == "Who raised Ana's rent?"


@pytest.mark.parametrize(
    ("said", "query"),
    [
        ("改写后的查询：用户昨晚失眠，今天状态有何变化", "用户昨晚失眠，今天状态有何变化"),
        ("「用户昨晚失眠」", "用户昨晚失眠"),
        ("改写:用户昨晚失眠", "用户昨晚失眠"),
        ("**改写：** “用户昨晚失眠”", "用户昨晚失眠"),
        ("改写后的问题为：用户昨晚失眠", "用户昨晚失眠"),
        ("检索句：用户昨晚失眠", "用户昨晚失眠"),
        ("改寫後的查詢：用戶昨晚失眠", "用戶昨晚失眠"),
        ("查询语句如下：用户昨晚失眠", "用户昨晚失眠"),
        ("面试结果：通过了吗", "面试结果：通过了吗"),
        ("Ana's question: who?", "Ana's question: who?"),
        ("The rent: who raised it?", "The rent: who raised it?"),
        ("2024 budget?", "2024 budget?"),
        ("  ", ""),
        ("```", ""),
        (7, ""),
        ("x" * 1000, "x" * fallback.MAX_REWRITE_CHARS),
    ],
)
def test_any_answer_is_cleaned_to_one_line(said: Any, query: str) -> None:
    assert fallback.clean_rewrite(said) == query
