"""Gives the messages of a chat ids by which repeated ones are recognised, for `graphmem.chat` and the adapters. Pure.

Applications and agent frameworks hand over a chat again and again: the whole of it, its end, or a part they retry. The
id of a message is a digest of the chat's session key, the message, the two messages before it, and how often these
three have come so far. So a message has the same id in every process that is given the whole chat, and the same words
in another place have another id. `ChatHistory` keeps the ids the same where a client leaves out the beginning.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from graphmem.boundary.validation import IGNORED_ROLES, TEXT_PART_TYPES

# How many of the messages before a message its id depends on.
MESSAGES_BEFORE = 2


def last_rounds(messages: Sequence[Mapping[str, Any]], rounds: int) -> int:
    """Returns the index at which the last rounds begin. A round is one or more user messages and their answers."""
    is_user = [message.get("role") == "user" for message in messages]
    starts = [n for n in range(len(messages)) if is_user[n] and not (n > 0 and is_user[n - 1])]
    return starts[-rounds] if len(starts) >= rounds else 0


def message_text(message: Mapping[str, Any]) -> str:
    """Returns the text of a message: its content or the text parts of it, without white space at the ends.

    Line ends become line feeds. Returns "" for a message without text, and for content of an unknown shape.
    """
    content = message.get("content")
    parts = content if isinstance(content, list | tuple) else [content]
    return "\n".join(filter(None, map(_part_text, parts))).replace("\r\n", "\n").strip()


def _part_text(part: object) -> str:
    if isinstance(part, Mapping):
        kind = part.get("type")
        part = part.get("text") if isinstance(kind, str) and kind in TEXT_PART_TYPES else None
    return part if isinstance(part, str) else ""


class ChatHistory:
    """One chat as far as this process knows it: it says which messages a repeated or shortened chat consists of."""

    def __init__(self, keyed: Callable[..., str], session_key: str = "") -> None:
        """`keyed` makes ids (`Digests.keyed`); `session_key` tells this chat from others of its scope.

        A keyed digest, because an id is made of its message and those before it, and outlives the latter's erasure.
        """
        self._keyed = keyed
        self._session_key = session_key
        self._fingerprints: list[str] = []

    def with_keys(self, messages: Sequence[Mapping[str, Any]], rounds: int) -> list[Mapping[str, Any]]:
        """Returns the messages of the last rounds, each with an id or a time by which it is recognised later.

        Messages with an "id" or a "timestamp" stay as they are. Raises TypeError or AttributeError for anything but
        messages.
        """
        ids = self.message_ids(messages)
        start = last_rounds(messages, rounds)
        return [_with_id(message, id_) for message, id_ in zip(messages[start:], ids[start:], strict=True)]

    def message_ids(self, messages: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """Returns the id of each message; None for one without text, or of a role that is not stored.

        These count as absent for the others' ids, as frameworks add and drop instructions and tool calls. `messages` is
        the whole chat, or an end of it. An end gets the ids that the whole chat gives it if it begins inside the chat
        of the former calls. Raises TypeError or AttributeError for anything but messages.
        """
        fingerprints = [_fingerprint(message) for message in messages]
        current = [fingerprint for fingerprint in fingerprints if fingerprint is not None]
        start = _position(self._fingerprints, current)
        self._fingerprints = self._fingerprints[:start] + current
        ids = iter(self._ids()[start:])
        return [None if fingerprint is None else next(ids) for fingerprint in fingerprints]

    def _ids(self) -> list[str]:
        """Makes one id for each message of the known chat."""
        padded = ["" for _ in range(MESSAGES_BEFORE)] + self._fingerprints
        ordinals: Counter[tuple[str, ...]] = Counter()
        ids = []
        for n in range(len(self._fingerprints)):
            place = tuple(padded[n : n + MESSAGES_BEFORE + 1])
            ordinals[place] += 1
            ids.append(self._keyed(self._session_key, *place, ordinals[place]))
        return ids


def _position(previous: Sequence[str], current: Sequence[str]) -> int:
    """Returns the index in the `previous` messages at which the `current` ones begin.

    That is where most of the first of them agree; not all need to, as an answer may have been regenerated. Of several
    such places it is 0, the beginning, or else the last.
    """
    best, position = _agreement(previous, current, 0), 0
    if best == len(current):
        return position
    for n in range(1, len(previous) - best):  # further on there are not more messages than that
        agreement = _agreement(previous, current, n)
        if agreement > best or (agreement == best and position > 0):
            best, position = agreement, n
    return position


def _agreement(previous: Sequence[str], current: Sequence[str], start: int) -> int:
    """Counts the first of the `current` messages that agree with the `previous` ones from `start` on."""
    length = min(len(previous) - start, len(current))
    return next((n for n in range(length) if previous[start + n] != current[n]), length)


def _with_id(message: Mapping[str, Any], id_: str | None) -> Mapping[str, Any]:
    is_recognisable = id_ is None or message.get("id") is not None or message.get("timestamp") is not None
    return message if is_recognisable else {**message, "id": id_}


def _fingerprint(message: Mapping[str, Any]) -> str | None:
    role, text = message.get("role"), message_text(message)
    if not text or (isinstance(role, str) and role in IGNORED_ROLES):
        return None
    return blake2b(json.dumps([role, message.get("name"), text], default=str).encode(), digest_size=16).hexdigest()
