"""Messages of chats that ChatGPT and Claude export, and of sessions of Claude Code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphmem.coding_agents.turns import claude_turn
from graphmem.transfer.other_files import program_of
from graphmem.transfer.sources.conversations import Conversation, LeftOut
from graphmem.transfer.sources.exported_chats import (
    DOCUMENTS,
    ENDS,
    HIDDEN,
    REPLACED,
    SUBAGENTS,
    THOUGHTS,
    TOOLS,
    WORDLESS,
    of_chatgpt,
    of_claude,
    of_claude_code,
)


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


IMAGE = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1"}
SPOKEN = {"content_type": "audio_transcription", "text": "Our flat.", "direction": "in"}
CHATGPT = {
    "title": " Lisbon ",
    "conversation_id": "6995e870-eafc-83a6-ab22-d89ad9e2b447",
    "create_time": 1714555555.1,
    "mapping": {
        "root": {"id": "root", "parent": None, "children": ["hidden"], "message": None},
        "hidden": node("hidden", "root", "user", "About me", metadata={"is_visually_hidden_from_conversation": True}),
        "system": node("system", "hidden", "system", ""),
        "u1": node(
            "u1", "system", "user", "I move to Lisbon.", at=1714555556.5,
            metadata={"attachments": [{"name": "Lease.pdf", "mimeType": "application/pdf"}, {"name": "a.png"}, 7]},
        ),
        "a0": node("a0", "u1", "assistant", "An answer that was regenerated.", at=1714555557.0),
        "call": node("call", "u1", "assistant", "search(Lisbon)", recipient="browser"),
        "tool": node("tool", "call", "tool", "A page of the web"),
        "thought": node("thought", "tool", "assistant", content={"content_type": "thoughts", "thoughts": []}),
        "a1": node("a1", "thought", "assistant", "It is\ue200cite\ue202turn0search1\ue201 lovely.", at=1714555558.0),
        "image": node("image", "a1", "user", content={"content_type": "multimodal_text", "parts": [IMAGE]}),
        "u2": node("u2", "image", "user", content={"content_type": "multimodal_text", "parts": [IMAGE, SPOKEN]}),
        "other": node("other", "a1", "user", "A message that was edited."),
    },
    "current_node": "u2",
}  # fmt: skip


def read_chatgpt(value: dict[str, Any]) -> tuple[Conversation, LeftOut]:
    left_out = LeftOut()
    return of_chatgpt(value, left_out), left_out


def told(conversation: Conversation) -> list[tuple[str, str, str, Any]]:
    return [(one.id, one.role, one.words, one.at) for one in conversation.messages]


def test_of_a_chat_of_chatgpt_the_branch_that_is_shown_is_read() -> None:
    conversation, left_out = read_chatgpt(CHATGPT)
    assert (conversation.id, conversation.metadata) == (CHATGPT["conversation_id"], {"title": "Lisbon"})
    assert told(conversation) == [
        ("u1", "user", "I move to Lisbon.", 1714555556.5),
        ("a1", "assistant", "It is lovely.", 1714555558.0),
        ("u2", "user", "Our flat.", 1714555558.0),  # that has no time has that of the message before
    ]
    assert dict(left_out.counts) == {REPLACED: 2, HIDDEN: 2, TOOLS: 2, THOUGHTS: 1, WORDLESS: 1}
    assert left_out.as_json()[TOOLS] == {"number": 2, "characters": len("search(Lisbon)A page of the web")}
    files = [[(one.kind, one.ref, one.caption) for one in each.attachments] for each in conversation.messages]
    assert files == [
        [("file", "Lease.pdf", "Lease.pdf"), ("image", "a.png", None)],
        [],
        [("image", "sediment://file_1", None)],
    ]
    *_, last = read_chatgpt({**CHATGPT, "current_node": None})[0].messages
    assert last.words == "A message that was edited."


@pytest.mark.parametrize("parent", ["a", "b", 7, None])
def test_a_broken_tree_of_chatgpt_ends(parent: Any) -> None:
    tree = {"a": {**node("a", "b", "user", "Hi."), "parent": parent}, "b": node("b", "a", "assistant", "Hello.")}
    read, _ = read_chatgpt({"mapping": tree, "current_node": "b"})
    assert [one.words for one in read.messages] == ["Hi.", "Hello."]
    assert read_chatgpt({"mapping": {"a": 7, "b": {"message": "x"}}, "current_node": "b"})[0].messages == []
    assert read_chatgpt({"mapping": {}})[0].messages == []


def test_a_chat_of_claude_has_the_words_of_both() -> None:
    at = "2025-03-01T10:00:00.000000Z"
    paper = {"file_name": "bill.txt", "extracted_content": "Price 4000"}
    blocks = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Congratulations!"},
        {"type": "tool_use", "name": "search", "input": {}},
        {"type": "tool_result", "content": "12345"},
    ]
    files = {"attachments": [paper], "files": [{"file_name": "bill.txt"}, {"file_name": "sea.jpg"}]}
    chat = {
        "uuid": "c",
        "name": "Boat",
        "chat_messages": [
            {"uuid": "m1", "text": "I bought a boat.", "sender": "human", "created_at": at, **files},
            {"uuid": "m2", "text": "A block", "content": blocks, "sender": "assistant", "created_at": at},
            {"uuid": "m3", "text": "", "content": [], "sender": "human", "created_at": at, "attachments": [paper]},
            {"uuid": "m4", "text": "", "content": [], "sender": "human", "created_at": at},
            "broken",
        ],
    }
    left_out = LeftOut()
    read = of_claude(chat, left_out)
    assert (read.id, read.metadata) == ("c", {"title": "Boat"})
    assert told(read) == [
        ("m1", "user", "I bought a boat.", at),
        ("m2", "assistant", "Congratulations!", at),
        ("m3", "user", "", at),
    ]
    assert [[one.ref for one in each.attachments] for each in read.messages] == [
        ["bill.txt", "sea.jpg"],
        [],
        ["bill.txt"],
    ]
    assert dict(left_out.counts) == {DOCUMENTS: 2, THOUGHTS: 1, TOOLS: 2, WORDLESS: 1}
    assert left_out.characters[DOCUMENTS] == 20


ROOT = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("leaf", "kept", "replaced"),
    [
        (None, ["q", "new", "b"], 2),
        ("b", ["q", "new", "b"], 2),
        ("a", ["q", "old", "a"], 2),
        ("gone", ["q", "new", "b"], 2),
    ],
)
def test_of_an_edited_message_of_claude_the_last_branch_is_read(
    leaf: str | None, kept: list[str], replaced: int
) -> None:
    parents = {"q": ROOT, "old": "q", "a": "old", "new": "q", "b": "new"}
    said = [{"uuid": id_, "text": id_, "sender": "human", "parent_message_uuid": one} for id_, one in parents.items()]
    left_out = LeftOut()
    read = of_claude({"uuid": "c", "chat_messages": said, "current_leaf_message_uuid": leaf}, left_out)
    assert ([one.id for one in read.messages], left_out.counts[REPLACED]) == (kept, replaced)
    orphan = {"uuid": "z", "text": "z", "sender": "human", "parent_message_uuid": "missing"}
    whole = of_claude({"uuid": "c", "chat_messages": [orphan, *said]}, LeftOut())
    assert [one.id for one in whole.messages] == ["z", "q", "new", "b"], "what hangs on nothing replaces nothing"


# --- Claude Code -----------------------------------------------------------------------------------------------------


def line_of_claude_code(type_: str, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": type_, "content": content}
    named = {"uuid": "n1", "sessionId": "s", "timestamp": "2025-07-01T10:00:00.000Z", "isSidechain": False}
    return {"parentUuid": None, "type": type_, "message": message} | named | fields


def chain(*lines: tuple[str, str | None, str, Any]) -> list[dict[str, Any]]:
    return [line_of_claude_code(type_, content, uuid=id_, parentUuid=parent) for id_, parent, type_, content in lines]


def words_of(lines: list[dict[str, Any]]) -> tuple[list[str], LeftOut]:
    left_out = LeftOut()
    return [one.words for each in of_claude_code(lines, "file", left_out) for one in each.messages], left_out


def test_a_session_of_claude_code_has_what_was_said() -> None:
    lines = [
        line_of_claude_code("user", "We always use tabs.", cwd="/home/ana/parser"),
        line_of_claude_code("assistant", [{"type": "text", "text": "Noted."}], uuid="n2", parentUuid="n1"),
        line_of_claude_code("user", "In another session", uuid="n3", parentUuid="n2", sessionId="t"),
    ]
    first, second = of_claude_code(lines, "file", LeftOut())
    at = "2025-07-01T10:00:00.000Z"
    assert told(first) == [("n1", "user", "We always use tabs.", at), ("n2", "assistant", "Noted.", at)]
    client = {"client": "claude-code"}
    project = {"project": "/home/ana/parser"}
    assert (first.id, first.project, first.metadata) == ("s", *project.values(), {**client, "session": "s", **project})
    assert (second.id, second.project, second.metadata) == ("t", None, {**client, "session": "t"})


@pytest.mark.parametrize(
    ("folder", "project"),
    [
        ("code/billing/src", "~/code/billing"),
        ("", "~"),
        ("gone", "~/gone"),
        ("C:\\code\\billing", "C:\\code\\billing"),
        ("/srv/\0\ud800billing", "/srv/??billing"),
        ("/" + "x" * 300, "…" + "x" * 255),
    ],
)
def test_the_project_of_a_session_is_that_of_the_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, project: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "code" / "billing" / ".git").mkdir(parents=True)
    cwd = folder if folder.startswith(("C:", "/")) else str(tmp_path / folder)
    (session,) = of_claude_code([line_of_claude_code("user", "Hi.", cwd=cwd)], "file", LeftOut())
    assert session.project == session.metadata["project"] == project


def test_what_hooks_store_of_a_turn_has_the_same_words_and_ids(tmp_path: Path) -> None:
    prompt = "<system-reminder>Be brief.</system-reminder>Why does it fail? The password: hunter2\r\n" + "x" * 30_000
    check = [{"type": "text", "text": "Let me check. "}]
    lines = chain(
        ("p", None, "user", prompt),
        ("a", "p", "assistant", check),
        ("t", "a", "assistant", CALL),
        ("r", "t", "user", RESULT),
        ("b", "r", "assistant", check),
        ("c", "b", "assistant", [{"type": "text", "text": "\nIt lacks a key."}]),
    )
    transcript = tmp_path / "s.jsonl"
    left_out = LeftOut()
    (session,) = of_claude_code(lines, "file", left_out)
    ids = [(one.role, one.words, one.stored_id) for one in session.messages]
    assert [words for _, words, _ in ids][1:] == ["Let me check.", "Let me check.", "It lacks a key."]
    assert "[secret]" in ids[0][1] and "Be brief" not in ids[0][1] and left_out.counts[ENDS] == 1
    assert ids[2][2] is None
    for end, answer in ((2, ids[1]), (6, ids[3])):
        transcript.write_text("".join(json.dumps(line) + "\n" for line in lines[:end]), "utf-8")
        turn = claude_turn(str(transcript))
        assert turn is not None
        stored = [(one["role"], one["content"], one["id"]) for one in turn.messages("claude-code")]
        assert stored == [ids[0], answer]


RESULT = [{"type": "tool_result", "tool_use_id": "t", "content": "parser.py"}]
CALL = [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"type": "summary", "summary": "Tabs", "leafUuid": "n1"}, None),
        ({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}, None),
        ({"type": "system", "sessionId": "s", "subtype": "compact_boundary"}, None),
        (line_of_claude_code("assistant", CALL), TOOLS),
        (line_of_claude_code("user", RESULT), TOOLS),
        (line_of_claude_code("assistant", [{"type": "thinking", "thinking": "Hm."}]), THOUGHTS),
        (line_of_claude_code("assistant", "Of a helper", isSidechain=True), SUBAGENTS),
        (line_of_claude_code("user", "Caveat: …", isMeta=True), HIDDEN),
        (line_of_claude_code("user", "What was said before: …", isCompactSummary=True), HIDDEN),
        (line_of_claude_code("assistant", "API Error: 500", isApiErrorMessage=True), HIDDEN),
        (line_of_claude_code("user", "<system-reminder>Be brief.</system-reminder>"), HIDDEN),
        (line_of_claude_code("user", "<command-name>/clear</command-name>"), HIDDEN),
        (line_of_claude_code("user", [{"type": "text", "text": "[Request interrupted by user]"}]), HIDDEN),
        (line_of_claude_code("user", [{"type": "image", "source": {}}]), WORDLESS),
    ],
)
def test_other_lines_of_claude_code_are_no_messages(line: dict[str, Any], reason: str | None) -> None:
    words, left_out = words_of([line])
    assert (words, list(left_out.counts)) == ([], [reason] if reason else [])


def test_of_prompts_at_the_same_place_the_last_is_kept_with_what_follows() -> None:
    lines = chain(
        ("q", None, "user", "Hello"),
        ("a", "q", "assistant", "Hi"),
        ("note", "a", "system", "took 3 s"),
        ("old", "note", "user", "Use spaces"),
        ("b", "old", "assistant", "Spaces it is"),
        ("new", "a", "user", "Use tabs"),
        ("c", "new", "assistant", "Tabs it is"),
    )
    words, left_out = words_of(lines)
    assert (words, dict(left_out.counts)) == (["Hello", "Hi", "Use tabs", "Tabs it is"], {REPLACED: 2})
    first_edited = [*lines, *chain(("again", None, "user", "Hello again"))]
    assert words_of(first_edited)[0] == ["Hello again"]


def test_calls_in_parallel_and_summaries_are_no_branches() -> None:
    boundary = {"type": "system", "uuid": "cut", "parentUuid": None, "logicalParentUuid": "c", "sessionId": "s"}
    lines = [
        *chain(
            ("q", None, "user", "Look"),
            ("t1", "q", "assistant", CALL),
            ("t2", "t1", "assistant", CALL),
            ("r1", "t1", "user", RESULT),
            ("r2", "t2", "user", RESULT),
            ("c", "r1", "assistant", "Done"),
        ),
        boundary,
        line_of_claude_code("user", "Before: …", uuid="sum", parentUuid="cut", isCompactSummary=True),
        *chain(("next", "sum", "user", "And now?"), ("lost", "missing", "user", "Alone")),
    ]
    assert words_of(lines)[0] == ["Look", "Done", "And now?", "Alone"]


@pytest.mark.parametrize("parent", ["a", "b"])
def test_a_circle_of_lines_ends(parent: str) -> None:
    assert words_of(chain(("a", "b", "user", "Hi."), ("b", parent, "assistant", "Hello.")))[0] == ["Hi.", "Hello."]


@pytest.mark.parametrize(
    ("value", "program"),
    [
        (CHATGPT, "chatgpt"),
        ({"chat_messages": []}, "claude"),
        (line_of_claude_code("user", "Hi"), "claude-code"),
        ({"type": "queue-operation", "operation": "enqueue", "sessionId": "s", "content": "Hi"}, "claude-code"),
        ("words", None),
        (7, None),
        ({"role": "user", "content": "Hi", "sessionId": "s", "type": "message"}, None),
        ({}, None),
    ],
)
def test_a_program_is_recognised_by_its_form(value: Any, program: str | None) -> None:
    assert program_of(value) == program
