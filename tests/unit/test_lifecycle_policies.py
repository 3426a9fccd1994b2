"""The numbers of seed 002 §2 to §4, each with its section, and what holds for any memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.errors import ConfigError
from graphmem.folding import fold
from graphmem.lifecycle.importance import HEDGED_CERTAINTY, ForgettingCurve, certainty, importance, recency, scarcity
from graphmem.lifecycle.rules import default_rules, parse_rules

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
DAY = timedelta(days=1)
CURVE = ForgettingCurve()
SHARES = st.floats(0, 1)
TYPES = st.sampled_from(["preference", "fact", "semantic", "episodic", None])


# --- §3.1: rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "number", "memory_type"),
    [
        ("我喜欢喝茶", "explicit_preference", 0.9, "preference"),
        ("我不喜欢吵闹的地方", "explicit_preference", 0.9, "preference"),
        ("我偏好简洁的回复", "explicit_preference", 0.9, "preference"),
        ("我讨厌香菜", "explicit_preference", 0.9, "preference"),
        ("我是程序员", "personal_fact", 0.85, "fact"),
        ("我叫小明", "personal_fact", 0.85, "fact"),
        ("我住在杭州", "personal_fact", 0.85, "fact"),
        ("我在阿里巴巴工作", "personal_fact", 0.85, "fact"),
        ("我打算学钢琴", "future_plan", 0.8, "episodic"),
        ("我计划去日本", "future_plan", 0.8, "episodic"),
        ("下周我要出差", "future_plan", 0.8, "episodic"),
        ("明天我会晚点到", "future_plan", 0.8, "episodic"),
        ("今天很开心", "emotional_event", 0.6, "episodic"),
        ("今天很难过", "emotional_event", 0.6, "episodic"),
        ("他生气了", "emotional_event", 0.6, "episodic"),
        ("孩子们很兴奋", "emotional_event", 0.6, "episodic"),
        ("有点担心考试", "emotional_event", 0.6, "episodic"),
        ("今天天气不错", "casual_chat", 0.2, "episodic"),
        ("中午吃什么", "casual_chat", 0.2, "episodic"),
        ("好无聊", "casual_chat", 0.2, "episodic"),
        ("I LOVE hiking in the Alps", "explicit_preference", 0.9, "preference"),
        ("I don’t like coriander.", "explicit_preference", 0.9, "preference"),
        ("My name is Ana.", "personal_fact", 0.85, "fact"),
        ("I'm allergic to peanuts", "personal_fact", 0.85, "fact"),
        ("I'm going to learn the piano", "future_plan", 0.8, "episodic"),
        ("I was so happy about it", "emotional_event", 0.6, "episodic"),
        ("What's the weather like?", "casual_chat", 0.2, "episodic"),
        ("My sister got married on Saturday", "life_event", 0.9, "episodic"),
        ("爷爷去年去世了", "life_event", 0.9, "episodic"),
        ("我们结婚了", "life_event", 0.9, "episodic"),
        ("女儿出生了", "life_event", 0.9, "episodic"),
        ("爸爸确诊了", "life_event", 0.9, "episodic"),
        ("上周搬家了", "life_event", 0.9, "episodic"),
        ("妹妹毕业了", "life_event", 0.9, "episodic"),
        ("Our son was born in May.", "life_event", 0.9, "episodic"),
        ("She was diagnosed last week.", "life_event", 0.9, "episodic"),
        ("We moved to Porto.", "life_event", 0.9, "episodic"),
        ("My brother graduated.", "life_event", 0.9, "episodic"),
        ("我怀孕了", "life_event", 0.9, "episodic"),
        ("我有糖尿病", "personal_fact", 0.85, "fact"),
        ("I have type 1 diabetes.", "personal_fact", 0.85, "fact"),
        ("My daughter Mia is four years old.", "personal_fact", 0.85, "fact"),
        ("I'm vegetarian.", "explicit_preference", 0.9, "preference"),
        ("My father died last spring.", "life_event", 0.9, "episodic"),
        ("Ich mag Wandern in den Alpen.", "explicit_preference", 0.9, "preference"),
        ("Meine Lieblingsfarbe ist Grün.", "explicit_preference", 0.9, "preference"),
        ("Ich heiße Jana.", "personal_fact", 0.85, "fact"),
        ("Ich bin gegen Nüsse allergisch.", "personal_fact", 0.85, "fact"),
        ("Wir haben 2019 geheiratet.", "life_event", 0.9, "episodic"),
        ("Ich habe vor, Cello zu lernen.", "future_plan", 0.8, "episodic"),
        ("Das hat mich traurig gemacht.", "emotional_event", 0.6, "episodic"),
        ("Das Wetter ist grau.", "casual_chat", 0.2, "episodic"),
    ],
)
def test_rules_give_type_and_importance(text: str, name: str, number: float, memory_type: str) -> None:
    rule = default_rules().match(text)
    assert rule is not None
    assert (rule.name, rule.importance, rule.memory_type) == (name, number, memory_type)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "We met Clara at noon.",
        "unhappy",
        "sadly",
        "I liked it",
        "The likes of me",
        "我的在线工作室",
        "dissatisfied",
        "Is there a vegan menu?",
        "Was heißt das?",
        "Alles Gute zum Geburtstag!",
        "Ich bin ein bisschen müde.",
        "喂，听不见",
        "我在的，当然可以",
    ],
)
def test_other_texts_match_no_rule(text: str) -> None:
    assert default_rules().match(text) is None


def test_the_most_important_rule_counts() -> None:
    rule = default_rules().match("I'm bored, but I like the weather")
    assert rule is not None
    assert rule.name == "explicit_preference"


def test_a_gap_ends_with_the_sentence_and_is_short() -> None:
    for text in ("我在家。工作很多", "我在" + "很" * 13 + "工作"):
        assert default_rules().match(text) is None


def test_own_rules_replace_the_default_ones() -> None:
    rules = parse_rules(
        {
            "tea": {"importance": 1, "type": "fact", "words": ["tea...two"]},
            "a": {"importance": 0.1, "type": "fact", "signs": ["茶"]},
        },
        "own.toml",
    )
    assert [rule.name for rule in rules.rules] == ["tea", "a"]
    assert rules.match("TEA for TWO").importance == 1  # type: ignore[union-attr]
    assert rules.match("I like coffee") is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "own.toml: has no rules"),
        ({"a": 1}, r"own.toml: \[a\]: is no table"),
        ({"a": {"importance": 1, "type": "fact", "patterns": ["x"]}}, r"\[a\]: is no table"),
        ({"a": {"importance": 2, "type": "fact", "words": ["x"]}}, r"\[a\]: importance is no number from 0 to 1"),
        ({"a": {"importance": True, "type": "fact", "words": ["x"]}}, r"\[a\]: importance"),
        ({"a": {"importance": 1, "type": "secret", "words": ["x"]}}, r"\[a\]: type is none of"),
        ({"a": {"importance": 1, "type": "fact"}}, r"\[a\]: has neither"),
        ({"a": {"importance": 1, "type": "fact", "words": "x"}}, r"\[a\]: words is no list"),
        ({"a": {"importance": 1, "type": "fact", "signs": [" "]}}, r"\[a\]: signs\[0\] is ' ', of which nothing"),
        ({"a": {"importance": 1, "type": "fact", "signs": ["茶", "\xad"]}}, r"\[a\]: signs\[1\] is '\\xad', of which"),
        ({"a": {"importance": 1, "type": "fact", "words": ["..."]}}, r"\[a\]: words\[0\] is '\.\.\.', of which"),
    ],
)
def test_unusable_rules_are_named(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_rules(table, "own.toml")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("sign", ["0…0", "don’t"])
def test_a_sign_matches_itself_whatever_it_is_folded_to(sign: str) -> None:
    rules = parse_rules({"a": {"importance": 1, "type": "fact", "signs": [sign]}}, "own.toml")
    assert rules.match(f"before {sign} after") is not None


@given(st.text(min_size=1).filter(lambda text: fold(text).strip() and "..." not in text))
def test_a_pattern_is_a_text_and_no_expression(text: str) -> None:
    rules = parse_rules({"a": {"importance": 1, "type": "fact", "signs": [text]}}, "own.toml")
    assert rules.match(f"before {text} after") is not None
    assert parse_rules({"a": {"importance": 1, "type": "fact", "signs": [".*"]}}, "own.toml").match(text) is None or (
        ".*" in fold(text)
    )


# --- §3.2: importance -------------------------------------------------------------------------------------------------


def test_importance_is_the_weighted_sum() -> None:
    assert importance(1, "preference", 1, 1) == pytest.approx(0.25 + 0.35 * 0.9 + 0.20 + 0.20)
    impacts = {
        name: importance(0, name, 0, 0) for name in ("preference", "fact", "semantic", "episodic", None, "procedural")
    }
    assert impacts == {
        "preference": 0.315, "fact": 0.28, "semantic": 0.245, "episodic": 0.175, None: 0.175, "procedural": 0.175,
    }  # fmt: skip
    assert importance(1, "episodic", 0, 0) == pytest.approx(0.25 + 0.175)
    assert importance(0.3333, "episodic", 0, 0) == 0.258  # three digits


def test_scarcity_is_the_distance_to_the_nearest_memory() -> None:
    assert (scarcity(None), scarcity(0.8), scarcity(1.0), scarcity(-0.2)) == (1.0, pytest.approx(0.2), 0.0, 1.0)


def test_recency_falls_to_nothing_in_thirty_days() -> None:
    ages = {0: 1.0, 3: 0.9, 15: 0.5, 30: 0.0, 31: 0.0}
    assert {days: recency(NOW - days * DAY, NOW) for days in ages} == pytest.approx(ages)
    assert recency(NOW + DAY, NOW) == 1.0


def test_questions_and_hedges_are_less_certain() -> None:
    assert certainty("I live in Lisbon.", 0.0) == 1.0
    english = ("Maybe I'll move.", "Perhaps on Monday.", "I think it's Tuesday", "It might rain.", "Probably not.")
    chinese = ("也许是周二", "我可能会去", "大概三点", "好像下雨了", "应该是她", "似乎关门了")
    for text in (*english, *chinese, "I'm not sure"):
        assert certainty(text, 0.0) == HEDGED_CERTAINTY == 0.6  # noqa: PLR2004
    assert certainty("Maybe?", 0.5) == pytest.approx(0.3)
    assert certainty("almighty", 0.0) == 1.0


@given(SHARES, TYPES, SHARES, SHARES)
def test_importance_is_a_share(one: float, memory_type: str | None, other: float, third: float) -> None:
    assert 0 <= importance(one, memory_type, other, third) <= 1


# --- §4.1: the forgetting curve ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "accesses", "memory_type", "expected"),
    [
        (0.5, 0, None, 2.0), (0.5, 0, "episodic", 2.0), (0.5, 0, "preference", 3.0), (0.5, 0, "fact", 2.6),
        (0.9, 0, "preference", 4.2), (0.2, 0, "episodic", 1.4), (0.5, 5, None, 2.5), (1.0, 100, "preference", 10.0),
    ],
)  # fmt: skip
def test_strength(number: float, accesses: int, memory_type: str | None, expected: float) -> None:
    assert CURVE.strength(number, accesses, memory_type) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("memory_type", "number", "days"),
    [
        ("preference", 0.9, [10, 12, 17, 24]), ("fact", 0.85, [9, 10, 15, 24]), ("episodic", 0.8, [6, 8, 11, 18]),
        ("episodic", 0.5, [5, 6, 10, 17]), ("episodic", 0.2, [4, 5, 8, 15]),
    ],
)  # fmt: skip
def test_the_day_on_which_the_retention_falls_below_a_tenth(memory_type: str, number: float, days: list[int]) -> None:
    found = []
    for accesses in (0, 5, 20, 50):
        strength = CURVE.strength(number, accesses, memory_type)
        ages = (age for age in range(100) if CURVE.is_forgettable(CURVE.retention(NOW - age * DAY, NOW, strength)))
        found.append(next(ages))
    assert found == days


def test_the_retention_is_that_of_whole_days_to_four_digits() -> None:
    assert CURVE.retention(NOW, NOW, 2.0) == CURVE.retention(NOW - DAY + timedelta(seconds=1), NOW, 2.0) == 1.0
    assert CURVE.retention(NOW - DAY, NOW, 2.0) == CURVE.retention(NOW - 1.9 * DAY, NOW, 2.0) == 0.6065
    assert CURVE.retention(NOW + 9 * DAY, NOW, 2.0) == 1.0  # a clock that was set back
    assert not CURVE.is_forgettable(0.1)
    assert CURVE.is_forgettable(0.0999)


@given(st.integers(0, 400), st.integers(0, 400), SHARES, st.integers(0, 100), TYPES)
def test_retention_falls_with_time_and_rises_with_accesses(
    age: int, more: int, number: float, accesses: int, memory_type: str | None
) -> None:
    def retention(days: int, times: int) -> float:
        return CURVE.retention(NOW - days * DAY, NOW, CURVE.strength(number, times, memory_type))

    assert 0 <= retention(age + more, accesses) <= retention(age, accesses) <= 1
    assert retention(age, accesses) <= retention(age, accesses + more)


@given(SHARES, st.integers(0, 10_000), TYPES)
def test_nothing_short_term_outlives_the_twenty_fourth_day(
    number: float, accesses: int, memory_type: str | None
) -> None:
    strength = CURVE.strength(number, accesses, memory_type)
    assert CURVE.is_forgettable(CURVE.retention(NOW - 24 * DAY, NOW, strength))
