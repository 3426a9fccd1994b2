"""Like notes that differ in a number: who asks for one order or ticket gets that one, and no other one's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from graphmem import Memory

CITIES = ("Graz", "Linz", "Wien", "Salzburg")
ABOUT = ("the login page", "a slow report", "a missing invoice", "dark mode", "a crash on start", "broken links")
SAID = (
    *(f"Order A-{5501 + number} was shipped to {CITIES[number % 4]}." for number in range(40)),
    *(f"Ticket {100 + number} is about {what}." for number, what in enumerate(ABOUT)),
    "Ticket 260 is a duplicate of ticket 104.",
    "The new bike cost 850 euros.",
    "The old bike cost 799 euros.",
    *(f"Bestellung B-{71 + number} ging nach {city}." for number, city in enumerate(CITIES)),
    *(f"订单C-{3301 + number}已经发往{city}。" for number, city in enumerate(("杭州", "成都", "武汉"))),
)


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with closing(Memory(":memory:")) as memory:
        memory.add([{"role": "user", "content": text} for text in SAID], user_id="u")
        yield memory


def told(memory: Memory, question: str, what: str) -> set[str]:
    """Returns which of the notes with these words are in the block for a question."""
    block = memory.context(question, user_id="u")
    return {text for text in SAID if what in text and text in block}


@pytest.mark.parametrize(
    ("question", "what", "answers"),
    [
        ("Where was order A-5517 shipped?", "Order", {"Order A-5517 was shipped to Graz."}),
        ("Has order number A-5505 been shipped?", "Order", {"Order A-5505 was shipped to Graz."}),
        (
            "Where were orders A-5503 and A-5504 shipped?",
            "Order",
            {"Order A-5503 was shipped to Wien.", "Order A-5504 was shipped to Salzburg."},
        ),
        ("Tell me about ticket 103.", "Ticket", {"Ticket 103 is about dark mode."}),
        ("Wohin ging Bestellung B-72?", "Bestellung", {"Bestellung B-72 ging nach Linz."}),
        ("订单C-3302发到哪里了？", "订单", {"订单C-3302已经发往成都。"}),
    ],
)
def test_the_note_with_the_number_is_shown_alone(memory: Memory, question: str, what: str, answers: set[str]) -> None:
    assert told(memory, question, what) == answers


@pytest.mark.parametrize(
    ("question", "what"),
    [
        ("Where was order A-101 shipped?", "Order"),
        ("Has order A-101 been shipped?", "Order"),
        ("What was ticket 250 about?", "Ticket"),
        ("What is ticket #251 about?", "Ticket"),
        ("Wohin ging Bestellung B-99?", "Bestellung"),
        ("订单C-9901发到哪里了？", "订单"),
    ],
)
def test_nothing_is_shown_of_a_number_that_nobody_told(memory: Memory, question: str, what: str) -> None:
    assert told(memory, question, what) == set()
    hits = memory.search(question, user_id="u", explain=True)["results"]
    others = [hit for hit in hits if what in hit["memory"]]
    assert others  # a search without a floor has them all the same, and says why they are no answers
    assert all(hit["relevance"] == 0 and hit["explain"]["relevance"]["another_number"] < 0 for hit in others)


def test_what_is_told_together_with_the_number_stays(memory: Memory) -> None:
    shown = told(memory, "What is ticket 260 about?", "Ticket")
    assert shown == {"Ticket 260 is a duplicate of ticket 104.", "Ticket 104 is about a crash on start."}


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Did the old bike cost 850 euros?", "The old bike cost 799 euros."),  # no: the other amount is the answer
        ("How much did the old bike cost, 700 euros?", "The old bike cost 799 euros."),
        ("Which orders were shipped to Graz?", "Order A-5537 was shipped to Graz."),
        ("Which order was shipped after order A-5503?", "Order A-5504 was shipped to Salzburg."),
    ],
)
def test_another_number_may_be_the_answer(memory: Memory, question: str, answer: str) -> None:
    hits = memory.search(question, user_id="u", top_k=20, explain=True)["results"]
    assert answer in [hit["memory"] for hit in hits]
    assert all("another_number" not in hit["explain"]["relevance"] for hit in hits)
