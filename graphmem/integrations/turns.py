"""Turns of an agent framework's conversation as plain messages: which are stored, with which text, by which id. Pure.

An adapter translates the messages of its framework to `{"role", "content", "id"?, "name"?, "timestamp"?}`; content is
text or a list of content parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

from graphmem.ingest.chat_deduplication import ChatHistory, last_rounds, message_text
from graphmem.retrieval.context import strip_block

CAPTURED_ROLES = ("user", "assistant")
# The keys of a content part that refer to something, and do not hold it.
_REFERENCE_KEYS = (
    "type",
    "id",
    "name",
    "url",
    "image_url",
    "file_id",
    "file_url",
    "filename",
    "mime_type",
    "media_type",
)


class Question(NamedTuple):
    """The last user message with text of a conversation: its text without our block, its position, the turns before."""

    text: str
    position: int
    recent: list[dict[str, Any]]


def last_question(messages: Sequence[Mapping[str, Any]]) -> Question | None:
    """Returns the last user message with text as a question; None without one.

    The question stays the same while a model calls tools and their messages are appended to the conversation.
    """
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message.get("role") == "user" and (text := strip_block(message_text(message))):
            return Question(text, position, plain_turns(messages[:position]))
    return None


def plain_turns(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns copies of the messages of users and assistants that have text, without our blocks.

    Of other content (images, tool calls, reasoning) only references are kept: type, id, name, address.
    """
    turns = []
    for message in messages:
        text = strip_block(message_text(message)) if message.get("role") in CAPTURED_ROLES else ""
        if text:
            references = _references(message.get("content"))
            content = [{"type": "text", "text": text}, *references] if references else text
            turns.append({**message, "content": content})
    return turns


def _references(content: object) -> list[dict[str, Any]]:
    parts = content if isinstance(content, list | tuple) else ()
    references = [
        _reference(part) for part in parts if isinstance(part, Mapping) and not message_text({"content": [part]})
    ]
    return [reference for reference in references if "type" in reference]


def _reference(part: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: part[key] for key in _REFERENCE_KEYS if key in part}
    nested = {key: _reference(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    return {key: value for key, value in nested.items() if isinstance(value, str | dict) and value}


class Session:
    """One session of a scope: gives its turns the ids by which repeated ones are recognised."""

    def __init__(self, keyed: Callable[..., str], session_key: str) -> None:
        """`keyed` computes an id (`Digests.keyed`); `session_key` distinguishes the session from others of a scope."""
        self._keyed = keyed
        self._session_key = session_key
        self._history = ChatHistory(keyed, session_key)
        # Held while ids are made.
        self.lock = Lock()

    def with_ids(self, turns: Sequence[Mapping[str, Any]], rounds: int | None = None) -> list[dict[str, Any]]:
        """Returns the turns of the last `rounds` (None: all), each with an id. `turns` come from `plain_turns`.

        An "id" of a turn has to be durable: the same whenever the framework gives this message again. A turn without
        one gets its id from its place in the conversation (`ChatHistory`). The text is part of either, as a memory
        refuses a known id with other words.
        """
        ids = self._history.message_ids(turns)
        start = 0 if rounds is None else last_rounds(turns, rounds)
        return [
            {**turn, "id": id_ if turn.get("id") is None else self._durable_id(turn)}
            for turn, id_ in zip(turns[start:], ids[start:], strict=True)
        ]

    def _durable_id(self, turn: Mapping[str, Any]) -> str:
        return self._keyed(self._session_key, "id", str(turn["id"]), turn["role"], message_text(turn))
