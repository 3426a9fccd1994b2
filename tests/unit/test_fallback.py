"""Fallback of insufficient queries: when the next step is taken, its query, and the hits that remain."""

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


def hit(text: str, relevance: float = 0.1) -> Hit:
    record = MemoryRecord(text, "user:u", Scope("u"), Kind.FACT, text, NOW, NOW, NOW, NOW, "")
    return Hit(record, 1.0, 0.5, relevance, None)


def outcome(*hits: Hit, named: tuple[str, ...] = ()) -> SearchOutcome:
    best = max((one.relevance for one in hits), default=None)
    return SearchOutcome(hits, named=named, best_relevance=best)


def turns(*contents: str) -> list[Message]:
    return [Message(("user", "assistant")[n % 2], text, NOW) for n, text in enumerate(contents)]


def run_fallback(
    query: ConversationQuery, answers: dict[str, SearchOutcome], model: Any = None, seconds_left: float = 9.0
) -> list[Any]:
    return list(search_with_fallback(query, answers.__getitem__, model, lambda: seconds_left))


def texts(step: Any) -> list[str]:
    return [one.record.text for one in step.hits]


WEAK = outcome(hit("noise"))
QUESTION = "And how did that turn out?"
TALK = turns("My landlord raises the rent.", "Did you write to him?")
WITH_TALK = "My landlord raises the rent.\nDid you write to him?\n" + QUESTION


@pytest.mark.parametrize("enough", [outcome(hit("a", 0.1), hit("b", 0.55)), outcome(hit("a"), named=("anna",))])
def test_a_sufficient_query_is_the_only_one(enough: SearchOutcome) -> None:
    model = OneAnswer("never asked")
    (step,) = run_fallback(ConversationQuery(QUESTION, TALK), {QUESTION: enough}, model)
    assert (step.query, step.hits, step.is_sufficient, model.requests) == (QUESTION, enough.hits, True, [])


# The second finds something, but nothing that is worth a place.
@pytest.mark.parametrize("little", [outcome(hit("noise", 0.54)), SearchOutcome(named=("anna",), best_relevance=0.01)])
def test_an_insufficient_query_is_tried_with_the_last_messages(little: SearchOutcome) -> None:
    steps = run_fallback(
        ConversationQuery(QUESTION, TALK),
        {QUESTION: little, WITH_TALK: outcome(hit("rent", 0.6))},
        OneAnswer("never"),
    )
    assert [(step.query, texts(step), step.is_sufficient) for step in steps] == [
        (QUESTION, [one.record.text for one in little.hits], False),
        (WITH_TALK, ["rent", *(one.record.text for one in little.hits)], True),
    ]


def test_what_may_answer_the_question_alone_stays_if_the_talk_finds_something_else() -> None:
    """The subject may have changed."""
    alone = outcome(hit("The lease ends in May.", 0.4), hit("noise", 0.2))
    step = run_fallback(
        ConversationQuery(QUESTION, TALK),
        {
            QUESTION: alone,
            WITH_TALK: outcome(hit("The rent is high.", 0.6), hit("He wrote.", 0.5), named=("landlord",)),
        },
    )[-1]
    assert (texts(step), step.is_sufficient) == (["The rent is high.", "The lease ends in May.", "He wrote."], True)


def test_a_query_that_names_its_subject_is_not_tried_with_the_last_messages() -> None:
    question = "Which engine drives the spacecraft?"
    (step,) = run_fallback(ConversationQuery(question, TALK), {question: WEAK})
    assert (step.query, step.is_sufficient) == (question, False)


def test_a_query_that_names_its_subject_is_rewritten() -> None:
    question, model = "Which engine drives the spacecraft?", OneAnswer("Which engine drives Ana's model rocket?")
    answers = {question: WEAK, model.reply: WEAK}
    steps = run_fallback(ConversationQuery(question, TALK), answers, model)
    assert [step.query for step in steps] == [question, model.reply]


def test_a_query_that_stays_insufficient_is_rewritten() -> None:
    model = OneAnswer("What became of the rent?")
    answers = {QUESTION: WEAK, WITH_TALK: WEAK, "What became of the rent?": outcome(hit("rent", 0.6))}
    steps = run_fallback(ConversationQuery(QUESTION, TALK, "Ana", "Max"), answers, model)
    assert [step.query for step in steps] == [QUESTION, WITH_TALK, "What became of the rent?"]
    assert texts(steps[-1]) == ["rent"]
    (prompt,) = model.requests
    assert (prompt.operation, prompt.schema, prompt.timeout) == ("rewrite", None, 2.5)
    assert json.loads(prompt.user) == {
        "user_name": "Ana",
        "char_name": "Max",
        "user_question": QUESTION,
        "recent_conversation": "Ana: My landlord raises the rent.\nMax: Did you write to him?",
    }


def test_a_turn_has_its_own_name_else_the_users_else_its_role() -> None:
    messages = [Message("user", "Hi", NOW, name="Tom"), Message("assistant", "Hello", NOW), Message("tool", "7", NOW)]
    payload = json.loads(fallback.rewrite_prompt(ConversationQuery(QUESTION, messages, "Ana"), 1.0).user)
    assert payload["recent_conversation"] == "Tom: Hi\nassistant: Hello\ntool: 7"


def test_the_callers_instructions_replace_the_default_ones() -> None:
    assert fallback.rewrite_prompt(ConversationQuery(QUESTION, prompt="Do it"), 1.0).system == "Do it"
    assert "{" in fallback.rewrite_prompt(ConversationQuery(QUESTION), 1.0).system


@pytest.mark.parametrize(
    "model",
    [None, OneAnswer(LLMUnavailable("away")), OneAnswer(""), OneAnswer(None), OneAnswer(["x"]), OneAnswer(QUESTION)],
)
def test_without_a_rewritten_query_the_earlier_hits_remain(model: Any) -> None:
    answers = {QUESTION: outcome(hit("a"), hit("b"), hit("c")), WITH_TALK: outcome(hit("x"), hit("b"))}
    steps = run_fallback(ConversationQuery(QUESTION, TALK), answers, model)
    assert [texts(step) for step in steps] == [["a", "b", "c"], ["x", "a", "b", "c"]]
    assert not steps[-1].is_sufficient


def test_without_a_conversation_an_insufficient_query_is_rewritten_if_there_is_a_model() -> None:
    assert len(run_fallback(ConversationQuery(QUESTION), {QUESTION: WEAK})) == 1
    model = OneAnswer("What became of the rent?")
    assert len(run_fallback(ConversationQuery(QUESTION), {QUESTION: WEAK, model.reply: WEAK}, model)) == 2


def test_without_any_hits_no_further_query_is_tried() -> None:
    model = OneAnswer("never")
    assert [
        step.hits for step in run_fallback(ConversationQuery(QUESTION, TALK), {QUESTION: SearchOutcome()}, model)
    ] == [()]
    assert model.requests == []


def test_a_step_needs_enough_time_to_begin() -> None:
    model = OneAnswer("What became of the rent?")
    answers = {QUESTION: WEAK, WITH_TALK: WEAK, model.reply: WEAK}
    assert len(run_fallback(ConversationQuery(QUESTION, TALK), answers, model, seconds_left=0.2)) == 1
    assert len(run_fallback(ConversationQuery(QUESTION, TALK), answers, model, seconds_left=0.4)) == 2
    assert len(run_fallback(ConversationQuery(QUESTION, TALK), answers, model, seconds_left=1.0)) == 3
    assert [prompt.timeout for prompt in model.requests] == [0.75]


# --- the query with the last turns ------------------------------------------------------------------------------------


def test_the_newest_turns_are_kept_whole_as_far_as_they_fit() -> None:
    assert fallback.prepend_turns("why?", turns("aaaa", "bbbb", "cc"), 12) == "bbbb\ncc\nwhy?"
    assert fallback.prepend_turns("why?", turns("aaaa", "bbbb", "cc"), 11) == "cc\nwhy?"
    assert fallback.prepend_turns("why?", []) == "why?"


def test_a_newest_turn_that_does_not_fit_is_cut_to_its_end() -> None:
    assert fallback.prepend_turns("why?", turns("a", "0123456789"), 10) == "56789\nwhy?"
    assert fallback.prepend_turns("0123456789", turns("a"), 10) == "0123456789"
    assert len(fallback.prepend_turns("q" * 3000, turns("a"))) == fallback.MAX_QUERY_CHARS


# --- the model's answer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
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
def test_labels_and_marks_around_a_rewritten_query_are_removed(answer: str) -> None:
    assert fallback.clean_rewrite(answer) == "Who raised Ana's rent?"


@pytest.mark.parametrize(
    ("answer", "query"),
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
def test_any_answer_is_cleaned_to_one_line(answer: Any, query: str) -> None:
    assert fallback.clean_rewrite(answer) == query
