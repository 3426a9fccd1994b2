"""A chat as an application keeps it: its last rounds, and which of its messages were there before. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any


def last_rounds(messages: Sequence[Mapping[str, Any]], rounds: int) -> int:
    """Where the last rounds begin: a round is what the user says, in one message or several, and its answers."""
    starts = [place for place in range(len(messages)) if _begins(messages, place)]
    return starts[-rounds] if len(starts) >= rounds else 0


def _begins(messages: Sequence[Mapping[str, Any]], place: int) -> bool:
    said_before = place > 0 and messages[place - 1].get("role") == "user"
    return messages[place].get("role") == "user" and not said_before


class ChatHistory:
    """One chat as it was last given: what has neither id nor time is recognised by its place in it."""

    def __init__(self, keyed: Callable[..., str]) -> None:
        """`keyed` makes ids of words (`graphmem.digests`): an id outlives the message before it, which is in it."""
        self._keyed = keyed
        self._signs: list[str] = []
        self._ids: list[str] = []

    def with_keys(self, messages: Sequence[Mapping[str, Any]], rounds: int) -> list[Mapping[str, Any]]:
        """The messages of the last rounds, each with an id, or a time, by which it is known again.

        Ids made here are those of the same messages before. Of new ones they say what was said after what, so that a
        whole chat gives the same ids in another process. Raises TypeError or AttributeError for what is no chat.
        """
        signs = [_sign(message) for message in messages]
        known = self._known(signs)
        ids = known + self._made(signs)[len(known) :]
        self._signs, self._ids = signs, ids
        start = last_rounds(messages, rounds)
        return [_with_id(message, made) for message, made in zip(messages[start:], ids[start:], strict=True)]

    def _made(self, signs: Sequence[str]) -> list[str]:
        """Ids that say what was said after what, and for the how manieth time."""
        pairs = list(zip(["", *signs], signs, strict=False))
        said: Counter[tuple[str, str]] = Counter()
        made = []
        for pair in pairs:
            said[pair] += 1
            made.append(self._keyed(*pair, said[pair]))
        return made

    def _known(self, signs: Sequence[str]) -> list[str]:
        """The ids of what the messages begin with: the chat as it was, or the end of it."""
        same = 0
        while same < min(len(signs), len(self._signs)) and signs[same] == self._signs[same]:
            same += 1
        if same:
            return self._ids[:same]
        ends = range(max(0, len(self._signs) - len(signs)), len(self._signs))
        return next((self._ids[at:] for at in ends if self._signs[at:] == signs[: len(self._signs) - at]), [])


def _with_id(message: Mapping[str, Any], made: str) -> Mapping[str, Any]:
    known = message.get("id") is not None or message.get("timestamp") is not None
    return message if known else {**message, "id": made}


def _sign(message: Mapping[str, Any]) -> str:
    told = [message.get(name) for name in ("role", "name", "content", "id")]
    return blake2b(json.dumps(told, default=str).encode(), digest_size=16).hexdigest()
