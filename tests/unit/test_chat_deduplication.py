"""Chat deduplication: the last rounds of a chat, and ids that stay the same however its messages are given again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_an_end_that_begins_with_a_new_message_after_known_ones_has_the_ids_of_the_whole_chat() -> None:
    history, whole = ChatHistory(KEYED), chat("u1", "a1", "u2", "a2", "u3", "a3")
    history.message_ids(whole[:4])
    assert history.message_ids(whole[3:]) == ChatHistory(KEYED).message_ids(whole)[3:]


def test_an_end_with_a_regenerated_answer_keeps_the_ids_before_it() -> None:
    history, whole = ChatHistory(KEYED), chat("u1", "a1", "u2", "a2")
    first = history.message_ids(whole)
    second = history.message_ids(chat("u2", "b2"))
    assert second[0] == first[2]
    assert second[1] not in first


def test_a_part_of_the_known_chat_keeps_its_ids() -> None:
    history, whole = ChatHistory(KEYED), chat("u1", "a1", "u2", "a2", "u3", "a3")
    assert history.message_ids(whole)[2:4] == history.message_ids(whole[2:4])


def test_the_longest_agreement_says_where_an_end_begins() -> None:
    history, whole = ChatHistory(KEYED), chat("u", "a1", "u", "a2")
    first = history.message_ids(whole)
    assert history.message_ids([*whole[2:], *chat("u3")])[:2] == first[2:]


@pytest.mark.parametrize("added", [{"role": "system", "content": "It is Monday."}, {"role": "tool", "content": ""}])
def test_instructions_and_messages_without_text_do_not_count(added: dict[str, Any]) -> None:
    whole = chat("u1", "a1", "u2")
    expected = ChatHistory(KEYED).message_ids(whole)
    assert ChatHistory(KEYED).message_ids([added, *whole[:2], added, whole[2]]) == [
        None, *expected[:2], None, expected[2],
    ]  # fmt: skip


def test_text_is_recognised_in_each_of_its_forms() -> None:
    forms = ("one\ntwo", " one\r\ntwo\n", ["one", {"type": "text", "text": "two"}, {"type": "image_url"}])
    ids_of_forms = [ChatHistory(KEYED).message_ids([{"role": "user", "content": form}]) for form in forms]
    assert ids_of_forms == ids_of_forms[:1] * 3
    assert ids_of_forms[0] != ChatHistory(KEYED).message_ids([{"role": "user", "name": "Tom", "content": "one\ntwo"}])


# Chats of few different words, and the number of messages in each call, which may fall: a chat is grown, retried, and
# continued from an earlier message.
@given(st.lists(st.sampled_from(["u", "a", "b"]), min_size=1, max_size=12), st.lists(st.integers(1, 12), max_size=6))
def test_each_message_of_a_whole_chat_has_one_id_however_often_it_is_given(texts: list[str], ends: list[int]) -> None:
    whole, history = chat(*texts), ChatHistory(KEYED)
    expected = ChatHistory(KEYED).message_ids(whole)
    assert len(set(expected)) == len(whole)
    for end in ends:
        assert history.message_ids(whole[:end]) == expected[:end]


@given(st.data())
def test_each_message_of_ends_that_overlap_has_one_id(data: st.DataObject) -> None:
    whole, history = chat(*(f"u{n}" for n in range(12))), ChatHistory(KEYED)
    expected, end = ChatHistory(KEYED).message_ids(whole), 0
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, max(0, end - 1)))
        new_end = data.draw(st.integers(start + 1, len(whole)))
        assert history.message_ids(whole[start:new_end]) == expected[start:new_end]
        end = new_end


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
