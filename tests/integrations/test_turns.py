"""Turns of a framework's conversation: what is captured of them, the question, and ids."""

from __future__ import annotations

from typing import Any

import pytest

from graphmem.digests import Digests
from graphmem.integrations.turns import Session, last_question, plain_turns
from graphmem.retrieval import context

KEYED = Digests("ledger", bytes(32)).keyed
BLOCK = f"{context.OPEN}- [2025-01-02] Ana: I like tea\n{context.CLOSE}"


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def with_ids(*turns: dict[str, Any], session: str = "s") -> list[str]:
    return [turn["id"] for turn in Session(KEYED, session).with_ids(plain_turns(turns))]


def test_only_texts_of_users_and_assistants_are_kept() -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        user("  Hi\r\nMax "),
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": "Hello"},
    ]
    assert [(turn["role"], turn["content"]) for turn in plain_turns(messages)] == [
        ("user", "Hi\nMax"),
        ("assistant", "Hello"),
    ]


def test_other_content_than_text_is_kept_as_a_reference() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png", "detail": "high"}}
    call = {"type": "tool_use", "id": "c1", "name": "find", "input": {"secret": "Zarathustra"}}
    reasoning = {"type": "reasoning", "reasoning": "Zarathustra", "bytes": b"\0"}
    (turn,) = plain_turns([user([{"type": "text", "text": "My cat"}, image, call, reasoning, {"no": "type"}, 7])])
    assert turn["content"] == [
        {"type": "text", "text": "My cat"},
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
        {"type": "tool_use", "id": "c1", "name": "find"},
        {"type": "reasoning"},
    ]


def test_texts_and_names_that_no_memory_can_hold_are_mended() -> None:
    long_name, own_name = "x" * 257, "Ana"
    turns = plain_turns(
        [
            user("a\0b\ud800c", name="two\nlines"),
            user("x" * 20, name=long_name),
            user("\0 ", name=own_name),
            user("tea", name=own_name),
        ],
        max_chars=8,
    )
    assert turns == [user("abc"), user("x" * 8), user("tea", name=own_name)]


def test_an_empty_part_of_text_is_left_out() -> None:
    assert plain_turns([user([{"type": "text", "text": "Hi"}, {"type": "text", "text": ""}])]) == [user("Hi")]


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://ana:secret@example.org/a.png?sig=secret#secret", "https://example.org/a.png"),
        ("data:image/png;base64,secret", "data:image/png;base64"),
        ("https://example.org/a\0.png", "https://example.org/a.png"),
    ],
)
def test_an_address_is_kept_without_what_may_be_secret(url: str, kept: str) -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "input_image", "image_url": url},
        {"type": "file", "filename": "a?.txt", "url": {"url": {"url": url}}},
    ]
    (turn,) = plain_turns([user(["My cat", *parts])])
    assert turn["content"][1:] == [
        {"type": "image_url", "image_url": {"url": kept}},
        {"type": "input_image", "image_url": kept},
        {"type": "file", "filename": "a?.txt"},
    ]


@pytest.mark.parametrize(
    "content",
    [
        f"{BLOCK}\n\nWhat now?",
        f"What now?\n\n{BLOCK}",
        f"{BLOCK}{BLOCK}What now?",
        [{"type": "text", "text": BLOCK}, {"type": "text", "text": "What now?"}],
        f"What now? {BLOCK[:-20]}",
        f"What now? {BLOCK[:-4]}",
        f"What now? {context.OPEN}",
        f"{context.OPEN}- [2025-01-02] Ana: I like tea\n- [2025-01-03] Ana: And cake\nWhat now?",
        BLOCK.replace("\n", "\r\n") + "\n What now?",
    ],
)
def test_our_block_is_left_out(content: Any) -> None:
    assert [turn["content"] for turn in plain_turns([user(content)])] == ["What now?"]


def test_a_message_that_is_only_a_block_is_left_out() -> None:
    assert plain_turns([user(BLOCK)]) == []


@pytest.mark.parametrize(
    "text",
    [
        "Write <memories> and </memories> around it",
        f"The text was: {context.OPEN.strip()} And now my address is Elm Street 5",
        f"The text was: {context.OPEN}And now my address is Elm Street 5\n{context.CLOSE} Good?",
        f"The text was: {context.OPEN}- [ ] Move to Elm Street 5",
    ],
)
def test_words_that_only_resemble_a_block_stay(text: str) -> None:
    assert [turn["content"] for turn in plain_turns([user(text)])] == [text]


def test_the_question_is_the_last_user_message_with_text() -> None:
    messages = [user("Hi"), {"role": "assistant", "content": "Hello"}, user(f"{BLOCK}\n\nWhat now?"), user([])]
    question = last_question([*messages, {"role": "tool", "content": "42"}])
    assert question == ("What now?", 2, messages[:2])
    assert last_question([{"role": "assistant", "content": "Hello"}]) is None


def test_the_same_words_in_another_place_or_session_have_another_id() -> None:
    ids = with_ids(user("a"), user("b"), user("a"), user("b"), user("a"), user("b"))
    assert len(set(ids)) == 6
    assert set(ids).isdisjoint(with_ids(user("a"), user("b"), session="t"))


def test_a_durable_id_is_kept_with_its_text() -> None:
    first, again, other_words, elsewhere = (
        with_ids(*turns)[-1]
        for turns in (
            [user("a", id="7")],
            [user("before"), user(f"{BLOCK}a", id=7)],
            [user("b", id="7")],
            [user("a", id="8")],
        )
    )
    assert first == again
    assert len({first, other_words, elsewhere}) == 3


def test_the_last_rounds_have_the_ids_that_all_have() -> None:
    turns = [user("a"), {"role": "assistant", "content": "b"}, user("c"), {"role": "assistant", "content": "d"}]
    last = Session(KEYED, "s").with_ids(plain_turns(turns), rounds=1)
    assert [turn["id"] for turn in last] == with_ids(*turns)[2:]
