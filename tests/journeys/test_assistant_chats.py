"""Chats with an assistant whose replies are long: what the user said is found, and of a reply the part that matches."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import fake_models

from graphmem import Memory, Settings
from graphmem.recall import parts

FILLER = (
    "Here is a plan for your garden in four steps.\n\n"
    "1. **Look at the soil.** Dig a hole a spade deep, fill it with water, and see how long the water stands.\n"
    "2. **Choose the place.** Tomatoes want six hours of sun, lettuce is content with three, and herbs like it dry.\n"
    "3. **Buy what you need.** A rake, a hose, two bags of compost and string will do for the first year.\n"
    "4. **Write it down.** Keep a list of what you planted and when; next spring you will be glad of it.\n\n"
)
ADVICE = (
    "For the north side I would take **Zephyrine Drouhin**, a climbing rose without thorns that puts up with shade."
)
CHAT = [
    (
        "user",
        "We moved the tomatoes next to the south wall on Sunday, forty plants in all, can you help me plan the rest?",
    ),
    ("assistant", FILLER + ADVICE + "\n\n" + FILLER),
    ("user", "My neighbour Odile wants the cuttings by the ninth of May, how should I pack them so that they live?"),
    ("assistant", FILLER + "Wrap the cuttings in damp paper and a bag. " + FILLER),
    ("user", "Always give me measures in litres, please, I cannot think in gallons. How much water is right?"),
    ("assistant", FILLER + "Ten litres a plant and week is right for tomatoes. " + FILLER),
]


def told(memory: Memory) -> Memory:
    for role, content in CHAT:
        memory.add({"role": role, "content": content}, user_id="u", timestamp="2024-05-01T10:00:00Z")
    return memory


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with Memory(":memory:") as made:
        yield told(made)


@pytest.mark.parametrize(
    ("question", "turn"),
    [
        ("How many tomato plants do I have?", 0),
        ("By when does Odile need what I promised her?", 2),
        ("Which unit do I want volumes in?", 4),
        ("Which rose did you recommend to me for the shady side?", 1),
        ("What amount of water did you call right for a tomato?", 5),
    ],
)
def test_who_said_it_is_found_first(memory: Memory, question: str, turn: int) -> None:
    hits = memory.search(question, user_id="u")["results"]
    # What the assistant answers stands beside what was asked, which says the same words.
    most = 2 if CHAT[turn][0] == "assistant" else 1
    assert CHAT[turn][1] in [hit["memory"] for hit in hits[:most]]


def test_an_explanation_names_the_sentences_that_match(memory: Memory) -> None:
    hits = memory.search("Which rose did you recommend to me?", user_id="u", explain=True)["results"]
    reply = next(hit for hit in hits if hit["memory"] == CHAT[1][1])
    assert ADVICE in reply["explain"]["part"]
    assert len(reply["explain"]["part"]) <= parts.AROUND
    assert not any("part" in hit["explain"] for hit in hits if len(hit["memory"]) <= parts.WHOLE)


def test_a_context_has_that_part_and_not_the_whole_reply(memory: Memory) -> None:
    block = memory.context("Which rose did you recommend to me?", user_id="u", max_chars=2000)
    assert ADVICE in block
    (line,) = (line for line in block.splitlines() if ADVICE in line)
    assert len(line) < parts.AROUND + 100


def test_without_tokens_the_part_is_found_by_words() -> None:
    with told(Memory(":memory:", settings=Settings.from_dict(fake_models()))) as memory:
        hits = memory.search("Which climbing rose without thorns?", user_id="u", explain=True)["results"]
        reply: dict[str, Any] = next(dict(hit) for hit in hits if hit["memory"] == CHAT[1][1])
        assert ADVICE in reply["explain"]["part"]


def test_a_long_text_in_another_script_has_a_part_too(memory: Memory) -> None:
    filler = "我们先看土壤，再选地方，然后买工具，最后写下来。" * 20
    memory.add({"role": "assistant", "content": f"{filler}北边我推荐无刺的藤本月季。{filler}"}, user_id="zh")
    (hit,) = memory.search("你推荐的月季是什么?", user_id="zh", explain=True)["results"]
    assert "无刺的藤本月季" in hit["explain"]["part"]
    assert len(hit["explain"]["part"]) <= parts.AROUND
    assert "dense" not in hit["explain"]["arms"]


def test_a_question_in_a_script_nobody_shares_still_finds_something(memory: Memory) -> None:
    assert memory.search("花园", user_id="u")["results"]
    assert memory.search("Где мой сад?", user_id="u")["results"]


def test_where_nothing_matches_there_is_no_part() -> None:
    with told(Memory(":memory:", settings=Settings.from_dict(fake_models()))) as memory:
        hits = memory.search("kangaroo", user_id="u", explain=True)["results"]
        assert not any("part" in hit["explain"] for hit in hits)


def test_tokens_that_are_not_those_of_the_text_are_not_used(tmp_path: Path) -> None:
    """Of another version of the tokenizer, or damaged: the part is found by words."""
    with told(Memory(tmp_path)) as memory:
        assert memory.flush()["pending"] == []
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as ledger, ledger:
        cut = (
            "update embeddings set data = substr(data, 1, length(data) - 128) where form like 'tokens%' and window = 0"
        )
        assert ledger.execute(cut).rowcount >= len(CHAT)
    with Memory(tmp_path) as memory:
        hits = memory.search("Which climbing rose without thorns did you recommend?", user_id="u", explain=True)
        reply: dict[str, Any] = next(dict(hit) for hit in hits["results"] if hit["memory"] == CHAT[1][1])
        assert ADVICE in reply["explain"]["part"]
