"""One-word replies to an assistant's question answer whoever asks the same later, and nobody who asks otherwise."""

from __future__ import annotations

import pytest

from graphmem import Memory


def block(asked: str, replied: str, query: str, user: str = "ana") -> str:
    before = [{"role": "user", "content": "I play the cello."}, {"role": "assistant", "content": "How lovely!"}]
    turns = [{"role": "assistant", "content": asked}, {"role": "user", "content": replied}]
    with Memory(":memory:") as memory:
        memory.add([*before, *turns, {"role": "user", "content": "I bought a kettle."}], user_id=user)
        return memory.context(query, user_id=user)


@pytest.mark.parametrize(
    ("asked", "replied", "query"),
    [
        ("Are you pregnant?", "Yes.", "Am I pregnant?"),
        ("Are you taking any blood thinners?", "Yes.", "Do I take blood thinners?"),
        ("Do you smoke?", "Not any more.", "Do I smoke?"),
        ("How many children do you have?", "Three.", "How many kids do I have?"),
        ("What size are your shoes?", "42.", "What shoe size do I wear?"),
        ("Rauchst du?", "Nein.", "Rauche ich?"),
        ("Bist du schwanger?", "Ja.", "Bin ich schwanger?"),
        ("¿Fumas?", "No.", "¿Fumo?"),
        ("Tu fumes ?", "Non.", "Est-ce que je fume ?"),
        ("你抽烟吗？", "不抽。", "我抽烟吗？"),
    ],
)
def test_a_short_reply_answers_who_asks_the_same(asked: str, replied: str, query: str) -> None:
    assert f"[asked: {asked}] {replied}" in block(asked, replied, query)
    assert f"[asked: {asked}] {replied}" in block(asked, replied, query, user="u1")  # an id that is no name


@pytest.mark.parametrize(
    ("asked", "replied", "query"),
    [
        ("Do you eat meat?", "No.", "Do I eat fish?"),
        ("Do you have a cat?", "Yes.", "Do I have a dog?"),
        ("Are you allergic to nuts?", "No.", "Am I allergic to penicillin?"),
        ("Do you work on Mondays?", "No.", "Do I work on Fridays?"),
        ("How many children do you have?", "Three.", "How many cats do I have?"),
        ("Sprichst du Spanisch?", "Ja.", "Spreche ich Italienisch?"),
        ("Hast du am Montag frei?", "Ja.", "Habe ich am Dienstag frei?"),
        ("你星期一上班吗？", "不上。", "我星期五上班吗？"),
    ],
)
def test_a_short_reply_answers_nothing_else(asked: str, replied: str, query: str) -> None:
    assert replied not in block(asked, replied, query)


@pytest.mark.parametrize(
    ("replied", "is_shown"),
    [
        ("ok", False),
        ("Got it, thanks!", False),
        ("Which dog do you mean?", False),
        ("Your dog is called Rex.", True),
        ("Rex. Do you want to tell me more?", True),
    ],
)
def test_an_assistant_that_only_nods_or_asks_back_has_answered_nothing(replied: str, is_shown: bool) -> None:
    query = "What is my dog called?"
    with Memory(":memory:") as memory:
        asked = [{"role": "user", "content": query}, {"role": "assistant", "content": replied}]
        memory.add([*asked, {"role": "user", "content": "I live in Graz."}], user_id="ana")
        assert (f"assistant: {replied}" in memory.context(query, user_id="ana")) is is_shown
