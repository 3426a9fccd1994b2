"""The body of a chat completion: reads it, and replaces members of it while all other bytes stay as they are. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphmem.ingest.chat_deduplication import last_rounds
from graphmem.integrations.turns import plain_turns
from graphmem.service import limits

_SPACE = re.compile(r"[ \t\r\n]*")
# What models that show their reasoning write before an answer; the end of it may be missing.
_REASONING = re.compile(r"\s*<(think|thinking|reasoning)>.*?(?:</\1>\s*|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ChatBody:
    """A JSON object with `messages`, as text, and the place of each member's value in it."""

    text: str
    members: Mapping[str, Any]
    spans: Mapping[str, tuple[int, int]]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, as the client sent them."""
        messages: list[dict[str, Any]] = self.members["messages"]
        return messages

    def replaced(self, values: Mapping[str, Any]) -> bytes:
        """Returns the body with other values of members that it has."""
        text = self.text
        for name in sorted(values, key=lambda name: self.spans[name], reverse=True):
            start, end = self.spans[name]
            text = text[:start] + json.dumps(values[name]) + text[end:]
        return text.encode()


def read_chat(body: bytes) -> ChatBody | None:
    """Reads the body of a chat completion; returns None for anything else, and for a member that is there twice."""
    try:
        text = body.decode()
        members, spans = _members(text)
    except (ValueError, RecursionError):
        return None
    messages = members.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        return None
    return ChatBody(text, members, spans)


def without_members(text: str, names: Collection[str]) -> str:
    """Returns the text of a JSON object without the values of these members; anything else as it is."""
    try:
        _, spans = _members(text)
    except (ValueError, RecursionError):
        return text
    for start, end in sorted((spans[name] for name in names if name in spans), reverse=True):
        text = text[:start] + text[end:]
    return text


def _members(text: str) -> tuple[dict[str, Any], dict[str, tuple[int, int]]]:
    """Returns the values of a JSON object and where they stand.

    Raises ValueError, also for one with more than `limits.MAX_FIELDS` members or `limits.MAX_CHAT_VALUES` values.
    """
    if sum(map(text.count, "[{,")) > limits.MAX_CHAT_VALUES:  # those in texts count as well
        raise ValueError("too many values")
    decode, members, spans = json.JSONDecoder().raw_decode, dict[str, Any](), dict[str, tuple[int, int]]()
    place = _after(text, _after_space(text, 0), "{")
    if text[place : place + 1] != "}":
        while True:
            name, place = decode(text, place)
            if not isinstance(name, str) or name in members or len(members) == limits.MAX_FIELDS:
                raise ValueError("no name of a member, one that is there twice, or too many")
            start = _after(text, _after_space(text, place), ":")
            members[name], end = decode(text, start)
            spans[name] = start, end
            place = _after_space(text, end)
            if text[place : place + 1] == "}":
                break
            place = _after(text, place, ",")
    if _after_space(text, place + 1) != len(text):
        raise ValueError("more than one value")
    return members, spans


def _after_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return place if match is None else match.end()


def _after(text: str, place: int, mark: str) -> int:
    """Returns the next place after a mark and the space behind it. Raises ValueError if the mark is not at `place`."""
    if text[place : place + 1] != mark:
        raise ValueError("not a JSON object")
    return _after_space(text, place + 1)


def spoken_turns(messages: Sequence[Mapping[str, Any]], max_chars: int) -> list[dict[str, Any]]:
    """Returns the last turns of users and assistants, as `plain_turns` does, without reasoning in the answers."""
    return plain_turns(map(_without_reasoning, messages[-limits.MAX_MESSAGES :]), max_chars)[-limits.MAX_TURNS :]


def _without_reasoning(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, str):
        return message
    return {**message, "content": without_reasoning(content)}


def without_reasoning(answer: str) -> str:
    """Returns an answer without the reasoning in front of it."""
    return _REASONING.sub("", answer, count=1) if _REASONING.match(answer) else answer


def last_part(turns: Sequence[dict[str, Any]], rounds: int, before: int) -> list[dict[str, Any]]:
    """Returns the last rounds of a chat and so many turns before them."""
    return list(turns[max(0, last_rounds(turns, rounds) - before) :])
