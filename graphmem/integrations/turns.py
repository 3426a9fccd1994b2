"""Turns of an agent framework's conversation as plain messages: which are stored, with which text, by which id. Pure.

An adapter translates the messages of its framework to `{"role", "content", "id"?, "name"?, "timestamp"?}`; content is
text or a list of content parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

from graphmem.boundary.validation import MAX_CONTENT_CHARS, MAX_LINK_CHARS, TEXT_PART_TYPES, storable_part, stored_name
from graphmem.errors import ValidationError
from graphmem.ingest.chat_deduplication import ChatHistory, last_rounds, message_text
from graphmem.model import MAX_CAPTION_CHARS
from graphmem.retrieval.context import strip_block

CAPTURED_ROLES = ("user", "assistant")
# The keys of a content part that refer to something or tell what it is, and do not hold it.
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
    "caption",
    "transcript",
)
_ADDRESS_KEYS = ("url", "image_url", "file_url")
_TEXT_KEYS = ("caption", "transcript")
_QUERY, _CREDENTIALS = re.compile("[?#]"), re.compile("//[^/@]*@")


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


def plain_turns(messages: Iterable[Mapping[str, Any]], max_chars: int = MAX_CONTENT_CHARS) -> list[dict[str, Any]]:
    """Returns copies of the messages of users and assistants that have text, as far as a memory can hold them.

    The text is without our blocks and without characters that no store can keep, and cut after `max_chars`; a name that
    no memory may have is left out. Of other content (images, tool calls, reasoning) only references are kept: type, id,
    name, caption, transcript, and the address without credentials and query, which may be secret.
    """
    turns = []
    for message in messages:
        text = strip_block(message_text(message)) if message.get("role") in CAPTURED_ROLES else ""
        if text := storable_part(text, max_chars).strip():
            parts = message.get("content")
            parts = parts if isinstance(parts, list | tuple) else ()
            found = [_reference(part) for part in parts if isinstance(part, Mapping)]
            references = [
                one for one in found if isinstance(one.get("type"), str) and one["type"] not in TEXT_PART_TYPES
            ]
            turn = {**message, "content": [{"type": "text", "text": text}, *references] if references else text}
            try:
                stored_name(message.get("name"), "name")
            except ValidationError:
                turn.pop("name", None)
            turns.append(turn)
    return turns


def _reference(part: Mapping[str, Any], *, is_nested: bool = False) -> dict[str, Any]:
    reference: dict[str, Any] = {}
    for key in _REFERENCE_KEYS:
        value = part.get(key)
        if isinstance(value, Mapping) and not is_nested:
            reference[key] = _reference(value, is_nested=True)
        elif isinstance(value, str):
            most = MAX_CAPTION_CHARS if key in _TEXT_KEYS else MAX_LINK_CHARS
            reference[key] = storable_part(_address(value) if key in _ADDRESS_KEYS else value, most)
    return {key: value for key, value in reference.items() if value}


def _address(url: str) -> str:
    """Returns a URL without credentials, query and fragment; of inlined data (a data: URL) the media type."""
    if url.startswith("data:"):
        return url.partition(",")[0]
    return _CREDENTIALS.sub("//", _QUERY.split(url, maxsplit=1)[0])


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
            {
                **turn,
                "id": id_
                if turn.get("id") is None
                else self._keyed(self._session_key, "id", str(turn["id"]), turn["role"], message_text(turn)),
            }
            for turn, id_ in zip(turns[start:], ids[start:], strict=True)
        ]
