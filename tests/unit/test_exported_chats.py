"""Messages of chats that ChatGPT and Claude export, and of sessions of Claude Code."""

from __future__ import annotations

from typing import Any

import pytest

from graphmem.transfer.sources.exported_chats import messages


def node(
    id_: str, parent: str | None, role: str, *parts: Any, at: float | None = None, **fields: Any
) -> dict[str, Any]:
    message = {
        "id": id_,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": at,
        "content": {"content_type": "text", "parts": list(parts)},
        "metadata": {},
        "recipient": "all",
    }
    return {"id": id_, "parent": parent, "children": [], "message": message | fields}


CHATGPT = {
    "title": "Lisbon",
    "create_time": 1714555555.1,
    "mapping": {
        "root": {"id": "root", "parent": None, "children": ["hidden"], "message": None},
        "hidden": node("hidden", "root", "user", "About me", metadata={"is_visually_hidden_from_conversation": True}),
        "u1": node("u1", "hidden", "user", "I move to Lisbon.", at=1714555556.5),
        "a0": node("a0", "u1", "assistant", "An answer that was regenerated.", at=1714555557.0),
        "call": node("call", "u1", "assistant", "search(Lisbon)", recipient="browser"),
        "tool": node("tool", "call", "tool", "A page of the web"),
        "thought": node("thought", "tool", "assistant", content={"content_type": "thoughts", "thoughts": []}),
        "a1": node("a1", "thought", "assistant", "It is lovely.", at=1714555558.0),
        "u2": node(
            "u2", "a1", "user",
            content={"content_type": "multimodal_text", "parts": [{"asset_pointer": "file-service://1"}, "Our flat."]},
        ),
        "other": node("other", "a1", "user", "A message that was edited."),
    },
    "current_node": "u2",
}  # fmt: skip
FROM_CHATGPT = [
    {"role": "user", "content": "I move to Lisbon.", "id": "u1", "timestamp": 1714555556.5},
    {"role": "assistant", "content": "It is lovely.", "id": "a1", "timestamp": 1714555558.0},
    {"role": "user", "content": "Our flat.", "id": "u2"},
]


def test_of_a_chat_of_chatgpt_the_branch_that_is_shown_is_read() -> None:
    assert messages(CHATGPT) == FROM_CHATGPT
    *_, last = messages({**CHATGPT, "current_node": None})
    assert last["content"] == "A message that was edited."


@pytest.mark.parametrize("parent", ["a", "b", 7, None])
def test_a_broken_tree_of_chatgpt_ends(parent: Any) -> None:
    tree = {"a": {**node("a", "b", "user", "Hi."), "parent": parent}, "b": node("b", "a", "assistant", "Hello.")}
    assert [one["content"] for one in messages({"mapping": tree, "current_node": "b"})] == ["Hi.", "Hello."]
    assert messages({"mapping": {"a": 7, "b": {"message": "x"}}, "current_node": "b"}) == []
    assert messages({"mapping": {}}) == []


def test_a_chat_of_claude_has_the_words_of_both() -> None:
    at = "2025-03-01T10:00:00.000000Z"
    paper = {"file_name": "bill.txt", "extracted_content": "Price 4000"}
    blocks = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Congratulations!"},
        {"type": "tool_use", "name": "search", "input": {}},
    ]
    chat = {
        "uuid": "c",
        "name": "Boat",
        "chat_messages": [
            {"uuid": "m1", "text": "I bought a boat.", "sender": "human", "created_at": at, "attachments": [paper]},
            {"uuid": "m2", "text": "A block", "content": blocks, "sender": "assistant", "created_at": at},
            {"uuid": "m3", "text": "", "content": [], "sender": "human", "created_at": at, "attachments": [paper]},
            "broken",
        ],
    }
    assert messages(chat) == [
        {"role": "user", "content": "I bought a boat.", "id": "m1", "timestamp": at},
        {"role": "assistant", "content": "Congratulations!", "id": "m2", "timestamp": at},
    ]


def line_of_claude_code(type_: str, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": type_, "content": content}
    named = {"uuid": "n1", "sessionId": "s", "timestamp": "2025-07-01T10:00:00.000Z", "isSidechain": False}
    return {"parentUuid": None, "type": type_, "message": message} | named | fields


def test_a_session_of_claude_code_has_what_was_said() -> None:
    said = {"id": "n1", "timestamp": "2025-07-01T10:00:00.000Z"}
    asked = line_of_claude_code("user", "We always use tabs.")
    assert messages(asked) == [{"role": "user", "content": "We always use tabs."} | said]
    answered = line_of_claude_code("assistant", [{"type": "text", "text": "Noted."}])
    assert messages(answered) == [{"role": "assistant", "content": "Noted."} | said]


@pytest.mark.parametrize(
    "line",
    [
        {"type": "summary", "summary": "Tabs", "leafUuid": "n1"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        {"type": "system", "sessionId": "s", "subtype": "compact_boundary"},
        line_of_claude_code("assistant", [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]),
        line_of_claude_code("user", [{"type": "tool_result", "tool_use_id": "t", "content": "parser.py"}]),
        line_of_claude_code("assistant", "Of a helper", isSidechain=True),
        line_of_claude_code("user", "Caveat: …", isMeta=True),
        line_of_claude_code("user", "<command-name>/clear</command-name>"),
    ],
)
def test_other_lines_of_claude_code_are_no_messages(line: dict[str, Any]) -> None:
    assert messages(line) == []


@pytest.mark.parametrize(
    "value", ["words", 7, {"role": "user", "content": "Hi", "sessionId": "s", "type": "message"}, {}]
)
def test_any_other_value_stays_as_it_is(value: Any) -> None:
    assert messages(value) == [value]


def test_created_at_is_the_time_of_a_message_without_one() -> None:
    said = {"role": "user", "content": "Hi", "created_at": 1699017614}
    assert messages(said) == [{**said, "timestamp": 1699017614}]
    assert messages({**said, "timestamp": "2024-05-01"}) == [{**said, "timestamp": "2024-05-01"}]
