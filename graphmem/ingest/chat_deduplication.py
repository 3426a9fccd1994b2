"""Gives the messages of a chat ids by which repeated ones are recognised, for `graphmem.chat`. Pure: no I/O.

An application saves the whole chat, or its end, again and again; only the new messages of its last rounds are added.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any


def last_rounds(messages: Sequence[Mapping[str, Any]], rounds: int) -> int:
    """Returns the index at which the last rounds begin. A round is one or more user messages and their answers."""
    is_user = [message.get("role") == "user" for message in messages]
    starts = [n for n in range(len(messages)) if is_user[n] and not (n > 0 and is_user[n - 1])]
    return starts[-rounds] if len(starts) >= rounds else 0


class ChatHistory:
    """One chat as last saved: a message without id and time is recognised by its position in it."""

    def __init__(self, keyed: Callable[..., str]) -> None:
        """`keyed` makes ids (`Digests.keyed`).

        A keyed digest, because an id is made of its message and the one before it, and outlives the latter's erasure.
        """
        self._keyed = keyed
        self._fingerprints: list[str] = []
        self._ids: list[str] = []

    def with_keys(self, messages: Sequence[Mapping[str, Any]], rounds: int) -> list[Mapping[str, Any]]:
        """Returns the messages of the last rounds, each with an id or a time by which it is recognised later.

        Messages of the last call keep their ids. The id of a new one depends on the message before it, so that a whole
        chat gets the same ids in another process. Raises TypeError or AttributeError for anything but messages.
        """
        fingerprints = [_fingerprint(message) for message in messages]
        known_ids = self._known_ids(fingerprints)
        ids = known_ids + self._new_ids(fingerprints)[len(known_ids) :]
        self._fingerprints, self._ids = fingerprints, ids
        start = last_rounds(messages, rounds)
        return [_with_id(message, id_) for message, id_ in zip(messages[start:], ids[start:], strict=True)]

    def _new_ids(self, fingerprints: Sequence[str]) -> list[str]:
        """Makes one id for each message: of it, the one before it, and how often this pair has come so far."""
        pairs = list(zip(["", *fingerprints], fingerprints, strict=False))
        ordinals: Counter[tuple[str, str]] = Counter()
        ids = []
        for pair in pairs:
            ordinals[pair] += 1
            ids.append(self._keyed(*pair, ordinals[pair]))
        return ids

    def _known_ids(self, fingerprints: Sequence[str]) -> list[str]:
        """Returns the ids that the last save gave to the first of these messages.

        The chat begins as it did then, or with what was its end, where older messages were dropped since.
        """
        previous = self._fingerprints
        same = 0
        while same < min(len(fingerprints), len(previous)) and fingerprints[same] == previous[same]:
            same += 1
        if same:
            return self._ids[:same]
        starts = range(max(0, len(previous) - len(fingerprints)), len(previous))
        return next((self._ids[n:] for n in starts if previous[n:] == fingerprints[: len(previous) - n]), [])


def _with_id(message: Mapping[str, Any], id_: str) -> Mapping[str, Any]:
    is_recognisable = message.get("id") is not None or message.get("timestamp") is not None
    return message if is_recognisable else {**message, "id": id_}


def _fingerprint(message: Mapping[str, Any]) -> str:
    values = [message.get(name) for name in ("role", "name", "content", "id")]
    return blake2b(json.dumps(values, default=str).encode(), digest_size=16).hexdigest()
