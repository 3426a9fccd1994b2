"""Chat deduplication: the last rounds of a chat, and ids that stay the same when only its end is given."""

from __future__ import annotations

from typing import Any

import pytest

from graphmem.digests import Digests
from graphmem.ingest.chat_deduplication import ChatHistory, last_rounds

KEYED = Digests("ledger", bytes(32)).keyed


def chat(*texts: str) -> list[dict[str, Any]]:
    """A chat of these texts: those that begin with "u" are the user's, all others the assistant's."""
    return [{"role": "user" if text[0] == "u" else "assistant", "content": text} for text in texts]


def ids(messages: Any) -> list[str]:
    return [message["id"] for message in messages]


@pytest.mark.parametrize(
    ("texts", "rounds", "start"),
    [
        (("u1", "a1", "u2", "a2", "u3", "a3"), 2, 2),
        (("u1", "a1", "u2", "a2", "u3", "a3"), 1, 4),
        (("u1", "a1"), 2, 0),
        (("a0", "u1", "a1"), 1, 1),
        (("a0",), 1, 0),
        (("u1", "a1", "u2", "u3", "a3", "b3"), 1, 2),
        (("u1", "a1", "u2"), 1, 2),
        ((), 1, 0),
    ],
)
def test_a_round_is_the_users_messages_and_their_answers(texts: tuple[str, ...], rounds: int, start: int) -> None:
    assert last_rounds(chat(*texts), rounds) == start


def test_a_growing_chat_keeps_its_ids() -> None:
    history = ChatHistory(KEYED)
    first = ids(history.with_keys(chat("u1", "a1"), 2))
    second = ids(history.with_keys(chat("u1", "a1", "u2", "a2"), 2))
    third = ids(history.with_keys(chat("u1", "a1", "u2", "a2", "u3", "a3"), 2))
    assert second[:2] == first
    assert third[:2] == second[2:]
    assert len({*first, *second, *third}) == 6


def test_a_chat_given_by_its_end_keeps_its_ids() -> None:
    history = ChatHistory(KEYED)
    first = ids(history.with_keys(chat("u1", "a1", "u2", "a2"), 2))
    second = ids(history.with_keys(chat("u2", "a2", "u3", "a3"), 2))
    assert second[:2] == first[2:]
    assert len({*first, *second}) == 6


def test_the_same_words_in_another_place_are_another_message() -> None:
    history = ChatHistory(KEYED)
    message_ids = ids(history.with_keys(chat("u", "a", "u", "a", "u", "a"), 9))
    assert len(set(message_ids)) == 6


def test_a_regenerated_answer_is_another_message() -> None:
    history = ChatHistory(KEYED)
    first = ids(history.with_keys(chat("u1", "a1"), 2))
    second = ids(history.with_keys(chat("u1", "b1"), 2))
    assert second[0] == first[0]
    assert second[1] != first[1]


def test_another_process_finds_the_same_ids_in_a_whole_chat() -> None:
    history, whole = ChatHistory(KEYED), chat("u1", "a1", "u2", "a2", "u1", "a1")
    history.with_keys(whole[:2], 2)
    history.with_keys(whole[:4], 2)
    assert ids(history.with_keys(whole, 2)) == ids(ChatHistory(KEYED).with_keys(whole, 2))


def test_a_message_with_an_id_or_a_time_is_unchanged() -> None:
    messages = [{"role": "user", "content": "x", "id": "7"}, {"role": "assistant", "content": "y", "timestamp": 0}]
    assert ChatHistory(KEYED).with_keys(messages, 1) == messages


@pytest.mark.parametrize("strange", [None, 7, ["x"], "words", [None]])
def test_a_value_that_is_no_chat_is_refused(strange: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        ChatHistory(KEYED).with_keys(strange, 1)
