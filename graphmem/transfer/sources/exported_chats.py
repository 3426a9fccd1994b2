"""Reads what ChatGPT and Claude export, and the session files of Claude Code, as messages for `add`.

Only words of the user and the assistant become messages: not instructions, tool calls and their results, thoughts, or
documents that came with a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphmem.ingest.chat_deduplication import message_text

_ROLES = {"user": "user", "human": "user", "assistant": "assistant"}
_CLAUDE_CODE_KEYS = {"sessionId", "leafUuid", "messageId"}


def messages(value: Any) -> list[Any]:
    """Returns the messages of a conversation or line in the form of one of these programs, any other value as it is.

    Of a message with `created_at`, as many programs write the time, that is its `timestamp`, unless it has one.
    """
    if not isinstance(value, dict):
        return [value]
    if isinstance(value.get("mapping"), dict):
        return list(_of_chatgpt(value, value["mapping"]))
    if isinstance(value.get("chat_messages"), list):
        return list(_of_claude(value["chat_messages"]))
    if "type" in value and value.keys() & _CLAUDE_CODE_KEYS and not value.keys() & {"role", "content"}:
        return list(_of_claude_code(value))
    if {"role", "content", "created_at"} <= value.keys() and value.get("timestamp") is None:
        return [{**value, "timestamp": value["created_at"]}]
    return [value]


def _message(role: Any, content: str, id_: Any, timestamp: Any) -> Iterator[dict[str, Any]]:
    """Yields the message if somebody says words in it. Without id or time it gets none."""
    if role in _ROLES and content:
        optional = {"id": id_, "timestamp": timestamp}
        given = {key: value for key, value in optional.items() if value is not None}
        yield {"role": _ROLES[role], "content": content} | given


def _of_chatgpt(conversation: Mapping[str, Any], nodes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the messages from the root of the tree to `current_node`: not the answers that others replaced."""
    current = conversation.get("current_node")
    id_ = current if isinstance(current, str) and current in nodes else next(reversed(nodes), None)
    path = dict[str, Mapping[str, Any]]()
    while isinstance(id_, str) and id_ not in path and isinstance(node := nodes.get(id_), dict):
        path[id_] = node
        id_ = node.get("parent")
    for id_, node in reversed(path.items()):
        message = _object(node.get("message"))
        content, metadata = _object(message.get("content")), _object(message.get("metadata"))
        is_text = content.get("content_type") in {"text", "multimodal_text"}
        is_to_all = message.get("recipient") in {None, "all"}
        if is_text and is_to_all and not metadata.get("is_visually_hidden_from_conversation"):
            words = message_text({"content": content.get("parts")})
            yield from _message(_object(message.get("author")).get("role"), words, id_, message.get("create_time"))


def _of_claude(chat_messages: list[Any]) -> Iterator[dict[str, Any]]:
    for message in map(_object, chat_messages):
        # "text" also names blocks that are not shown, so the blocks come first.
        words = message_text(message) or message_text({"content": message.get("text")})
        yield from _message(message.get("sender"), words, message.get("uuid"), message.get("created_at"))


def _of_claude_code(line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the message of a line, if it has one: of the main conversation, and not inserted by the program."""
    if any(line.get(mark) for mark in ("isSidechain", "isMeta", "isCompactSummary")):
        return
    words = message_text(_object(line.get("message")))
    if not words.startswith(("<command-", "<local-command-", "<bash-")):
        yield from _message(line["type"], words, line.get("uuid"), line.get("timestamp"))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
