"""Chats with an assistant whose replies are long: messages of the user are found, and the matching part of a reply."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.fakes import fake_models

from graphmem import ChatLink, Memory, Settings
from graphmem.retrieval import sentence_matching

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


def add_chat(memory: Memory) -> Memory:
    for role, content in CHAT:
        memory.add({"role": role, "content": content}, user_id="u", timestamp="2024-05-01T10:00:00Z")
    return memory


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with Memory(":memory:") as chat_memory:
        yield add_chat(chat_memory)


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
def test_the_message_with_the_answer_is_found_first(memory: Memory, question: str, turn: int) -> None:
    hits = memory.search(question, user_id="u")["results"]
    # A reply may rank behind the question it answers, which has the same words.
    top_k = 2 if CHAT[turn][0] == "assistant" else 1
    assert CHAT[turn][1] in [hit["memory"] for hit in hits[:top_k]]


def test_an_explanation_names_the_sentences_that_match(memory: Memory) -> None:
    hits = memory.search("Which rose did you recommend to me?", user_id="u", explain=True)["results"]
    reply = next(hit for hit in hits if hit["memory"] == CHAT[1][1])
    assert ADVICE in reply["explain"]["part"]
    assert len(reply["explain"]["part"]) <= sentence_matching.CONTEXT_CHARS
    assert not any("part" in hit["explain"] for hit in hits if len(hit["memory"]) <= sentence_matching.UNSPLIT_CHARS)


def test_a_context_has_the_matching_part_and_not_the_whole_reply(memory: Memory) -> None:
    block = memory.context("Which rose did you recommend to me?", user_id="u", max_chars=2000)
    assert ADVICE in block
    (line,) = (line for line in block.splitlines() if ADVICE in line)
    assert len(line) < 0.7 * len(CHAT[1][1])


def test_without_tokens_the_part_is_found_by_words() -> None:
    with add_chat(Memory(":memory:", settings=Settings.from_dict(fake_models()))) as memory:
        hits = memory.search("Which climbing rose without thorns?", user_id="u", explain=True)["results"]
        reply: dict[str, Any] = next(dict(hit) for hit in hits if hit["memory"] == CHAT[1][1])
        assert ADVICE in reply["explain"]["part"]


def test_a_long_text_in_another_script_has_a_part_too(memory: Memory) -> None:
    filler = "我们先看土壤，再选地方，然后买工具，最后写下来。" * 20
    memory.add({"role": "assistant", "content": f"{filler}北边我推荐无刺的藤本月季。{filler}"}, user_id="zh")
    (hit,) = memory.search("你推荐的月季是什么?", user_id="zh", explain=True)["results"]
    assert "无刺的藤本月季" in hit["explain"]["part"]
    assert len(hit["explain"]["part"]) <= sentence_matching.CONTEXT_CHARS
    assert "tokens" not in hit["explain"]["arms"]


def test_a_question_in_a_script_of_no_memory_still_has_hits(memory: Memory) -> None:
    assert memory.search("花园", user_id="u")["results"]
    assert memory.search("Где мой сад?", user_id="u")["results"]


def test_where_nothing_matches_there_is_no_part() -> None:
    with add_chat(Memory(":memory:", settings=Settings.from_dict(fake_models()))) as memory:
        hits = memory.search("kangaroo", user_id="u", explain=True)["results"]
        assert not any("part" in hit["explain"] for hit in hits)


@pytest.mark.thorough
def test_tokens_that_do_not_fit_their_text_are_ignored(tmp_path: Path) -> None:
    """Tokens of another tokenizer version, or damaged ones: the part is found by words instead."""
    with add_chat(Memory(tmp_path)) as memory:
        assert memory.flush()["pending"] == []
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as ledger, ledger:
        statement = (
            "update embeddings set data = substr(data, 1, length(data) - 128) where form like 'tokens%' and window = 0"
        )
        assert ledger.execute(statement).rowcount >= len(CHAT)
    with Memory(tmp_path) as memory:
        hits = memory.search("Which climbing rose without thorns did you recommend?", user_id="u", explain=True)
        reply: dict[str, Any] = next(dict(hit) for hit in hits["results"] if hit["memory"] == CHAT[1][1])
        assert ADVICE in reply["explain"]["part"]


def list_lines(block: str) -> list[str]:
    return [line for line in block.splitlines() if line.startswith("- ")]


@pytest.mark.parametrize("max_chars", [250, 400, 700])
def test_a_small_context_keeps_the_sentence_that_matches(max_chars: int) -> None:
    with Memory(":memory:") as memory:
        memory.add(
            {"role": "assistant", "content": "The fence is wooden. " * 40 + "The gate code is 4711."}, user_id="u"
        )
        memory.add(
            {"role": "assistant", "content": "The shed is brown. " * 20 + "Its key hangs behind it."}, user_id="u"
        )
        block = memory.context("What is the gate code?", user_id="u", max_chars=max_chars)
        assert "4711" in block
        assert len(block) <= max_chars
        assert "hangs behind it" in memory.context(
            "Where does the key of the shed hang?", user_id="u", max_chars=max_chars
        )


def test_a_context_does_not_leave_room_unused_that_a_shorter_part_would_fill() -> None:
    with Memory(":memory:") as memory:
        memory.add("Which grit do I need to sand the hallway wall?", user_id="u")
        memory.add({"role": "assistant", "content": "The wall is damp. " * 40 + "Sand it with 180 grit."}, user_id="u")
        question = "Which grit did you say I should sand the wall with?"
        block = memory.context(question, user_id="u", max_chars=300, min_relevance=None)
        assert "180 grit" in block
        assert len(list_lines(block)) == 2


WINE = (
    "For grilled fish I would go for a dry Riesling from the Mosel, as its acidity cuts the oil. "
    + "Serve it at ten degrees in a small glass, and open it half an hour before the guests arrive. " * 12
)


@pytest.mark.parametrize(
    ("question", "is_shown"),
    [("Which wine did you recommend?", True), ("您推荐的是哪种酒？", True), ("Which wine does Odile like?", False)],
)
def test_a_context_keeps_the_reply_asked_for_although_it_shares_no_word(question: str, is_shown: bool) -> None:
    with Memory(":memory:") as memory:
        turns = [("user", "We have guests on Saturday and I grill trout."), ("assistant", WINE)]
        turns += [("user", "I bought a red bicycle."), ("assistant", "Enjoy the ride and wear a helmet!")]
        memory.add([{"role": role, "content": text} for role, text in turns], user_id="u")
        block = memory.context(question, user_id="u")
        assert ("Riesling" in block) == is_shown
        assert "bicycle" not in block and "helmet" not in block
        with ChatLink(memory, user_id="u") as link:
            assert ("Riesling" in link.recall(question)) == is_shown


DAYS = [
    ("04-02", "I planted tomatoes on the balcony.", "Water them in the morning."),
    ("04-20", "My bike got stolen at the station.", "Report it to the police with the frame number."),
    ("05-01", "I read a novel about lighthouse keepers.", "You may also enjoy The Light Between Oceans."),
    ("05-02", "The washing machine leaks.", "Check the door seal and the drain hose first."),
    ("05-03", "I had lunch with Karin at the harbour.", "How nice; the harbour is lovely in May."),
    ("05-04", "I signed up for a pottery class.", "Start with pinch pots."),
]


@pytest.fixture(scope="module")
def days_memory() -> Iterator[Memory]:
    """Messages of six days, and three hundred of another day."""
    with Memory(":memory:", settings=Settings.from_dict(fake_models())) as memory:
        for day, *turns in DAYS:
            roles = zip(("user", "assistant"), turns, strict=True)
            messages = [{"role": role, "content": words, "timestamp": f"2024-{day}T10:00:00Z"} for role, words in roles]
            memory.add(messages, user_id="u")
        filler = [f"I did and said something about number {n}." for n in range(300)]
        memory.add(
            [{"role": "user", "content": one, "timestamp": "2024-06-09T10:00:00Z"} for one in filler], user_id="u"
        )
        yield memory


@pytest.mark.parametrize(
    ("question", "days"),
    [
        ("What did you suggest on 2 May 2024?", {"05-02"}),
        ("What did you suggest on 20 April?", {"04-20"}),
        ("What did I say on 2 May 2024?", {"05-02"}),
        ("What did I do yesterday?", {"05-04"}),
        ("What did we talk about the day before yesterday?", {"05-03"}),
        ("What did I say before May 2024?", {"04-02", "04-20"}),
    ],
)
def test_a_question_about_a_day_finds_messages_of_that_day_first(
    days_memory: Memory, question: str, days: set[str]
) -> None:
    """Whatever the number of messages of other days: nothing but the date in the question matches."""
    hits = days_memory.search(question, user_id="u", reference_date="2024-05-05T12:00:00Z")["results"]
    assert {hit["at"][5:10] for hit in hits[: 2 * len(days)]} == days


def test_matches_of_characters_are_explained_as_such(memory: Memory) -> None:
    memory.add(["我海鲜过敏，别推荐海鲜", "周三有一场面试，要穿正式一点"], user_id="chars")
    hit, _ = memory.search("我对海鲜过敏吗?", user_id="chars", explain=True)["results"]
    assert {"keyword", "characters"} <= hit["explain"]["arms"].keys()
    assert "tokens" not in hit["explain"]["arms"]
    reasons = hit["explain"]["why"].split("; ")
    assert {"shares words or pairs of characters (rank 1)", "shares characters or beginnings of words (rank 1)"} <= set(
        reasons
    )


def test_latin_words_count_in_a_question_in_another_script(memory: Memory) -> None:
    texts = [
        "今天天气不错，我去公园跑步了五公里。",
        "跑步前记得热身，注意补充水分。",
        "我妈妈下周来看我，她喜欢吃清淡的菜。",
        "这个是什么颜色好看？我想买窗帘。",
        "公司让我学数据分析，什么时候开始比较好？",
    ]
    memory.add([*texts, "Sand it to 180 grit, then apply shellac; wax it with Liberon."], user_id="li")
    for question in ("180 grit 是什么？", "Liberon 是什么颜色？", "shellac 怎么用？"):
        hits = memory.search(question, user_id="li")["results"]
        assert "Liberon" in " ".join(hit["memory"] for hit in hits[:2])


def test_a_context_matches_other_word_forms_in_a_language_without_a_parser(memory: Memory) -> None:
    memory.add(["Советую вытяжку Elica мощностью 700 кубометров.", "Вчера я пёк хлеб."], user_id="ru")
    assert "Elica" in memory.context("Какая вытяжка лучше?", user_id="ru")
    assert "хлеб" not in memory.context("Какая вытяжка лучше?", user_id="ru")
