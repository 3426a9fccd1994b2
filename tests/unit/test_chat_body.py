"""The body of a chat completion: what is read of it, and that everything that is not replaced stays as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.service.proxy.chat_body import last_part, read_chat, spoken_turns, without_reasoning

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "tea?"}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_only_the_replaced_member_changes() -> None:
    text = ' {"heat" : 1.50,\n"messages":[ {"role":"user","content":"茶 \\u8336"} ], "x": [1e5, {"messages": 1}] }\n'
    chat = read_chat(text.encode())
    assert chat is not None
    assert chat.messages == [{"role": "user", "content": "茶 茶"}]
    replaced = chat.replaced({"messages": MESSAGES}).decode()
    assert replaced == text.replace('[ {"role":"user","content":"茶 \\u8336"} ]', json.dumps(MESSAGES))


@given(before=st.dictionaries(st.text(), JSON, max_size=3), after=st.dictionaries(st.text(), JSON, max_size=3))
def test_any_other_member_stays(before: dict[str, Any], after: dict[str, Any]) -> None:
    body = {**before, "messages": MESSAGES, "model": "m:nomemory", **after} | {"messages": MESSAGES, "model": "m"}
    chat = read_chat(json.dumps(body, ensure_ascii=True, indent=1).encode())
    assert chat is not None
    assert chat.replaced({}) == chat.text.encode()
    others = [{"role": "system", "content": "é"}]
    assert json.loads(chat.replaced({"messages": others, "model": "n"})) == {**body, "messages": others, "model": "n"}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'{"messages": []}', b'{"messages": {}}', b'{"messages": [1]}', b'{"model": "m"}',
        b'{"messages": [{}]} x', b'{"messages": [{}], "messages": [{}]}', b'{"messages": [{}],}', b"{1: 2}",
        b'{"messages" [{}]}', b"\xff\xfe", b'{"messages": [{"content": "\xff"}]}', b'{"messages": ' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_anything_else_is_no_chat(body: bytes) -> None:
    assert read_chat(body) is None


def test_turns_have_no_reasoning_no_tools_and_no_system_prompt() -> None:
    messages = [
        {"role": "system", "content": "be nice"},
        {"role": "user", "content": [{"type": "text", "text": "what is this?"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": "<think>hm</think>\n\nA tea pot."},
    ]
    assert [turn["role"] for turn in spoken_turns(messages, 1000)] == ["user", "assistant"]
    assert spoken_turns(messages, 1000)[-1]["content"] == "A tea pot."


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("<think>a</think>b", "b"),
        ("\n<thinking>a\nb</thinking>\n\nc", "c"),
        ("<think>never ends", ""),
        ("Use <think> tags", "Use <think> tags"),
        ("plain", "plain"),
    ],
)
def test_reasoning_is_left_out_in_front_of_an_answer(answer: str, text: str) -> None:
    assert without_reasoning(answer) == text


def test_the_last_part_has_whole_rounds_and_turns_before_them() -> None:
    turns = [{"role": role, "n": n} for n, role in enumerate(["user", "assistant"] * 3 + ["user"])]
    assert [turn["n"] for turn in last_part(turns, 2, 2)] == [2, 3, 4, 5, 6]
    assert [turn["n"] for turn in last_part(turns, 9, 2)] == [0, 1, 2, 3, 4, 5, 6]
