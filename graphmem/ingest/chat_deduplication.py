"""Gives the messages of a chat ids by which repeated ones are recognised, for `graphmem.chat` and the adapters. Pure.

Applications and agent frameworks hand over a chat again and again: all of its messages, the last ones, or some that
they retry. The id of a message is a digest of the chat's session key, the message, the two messages before it, and how
often these three messages have occurred in this order so far. So a message has the same id in every process that gets
the whole chat, and the same words at another place in the chat have another id. `ChatHistory` also gives a message the
same id when the messages before it are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b, sha256
from typing import Any

from graphmem.boundary.content_parts import read_part
from graphmem.boundary.validation import IGNORED_ROLES, TEXT_PART_TYPES

# How many of the messages before a message its id depends on.
MESSAGES_BEFORE = 2


def last_rounds(messages: Sequence[Mapping[str, Any]], rounds: int) -> int:
    """Returns the index at which the last `rounds` rounds begin: one or more user messages each, with the answers."""
    is_user = [message.get("role") == "user" for message in messages]
    starts = [n for n in range(len(messages)) if is_user[n] and not (n > 0 and is_user[n - 1])]
    return starts[-rounds] if len(starts) >= rounds else 0


def message_text(message: Mapping[str, Any]) -> str:
    """Returns the text of a message: its content or the text parts of it, without white space at the ends.

    Line breaks become line feeds. Returns "" for a message without text, and for content of an unknown shape.
    """
    content = message.get("content")
    texts: list[str] = []
    for part in content if isinstance(content, list | tuple) else [content]:
        text = part
        if isinstance(part, Mapping):
            kind = part.get("type")
            text = part.get("text") if isinstance(kind, str) and kind in TEXT_PART_TYPES else None
        if isinstance(text, str) and text:
            texts.append(text)
    return "\n".join(texts).replace("\r\n", "\n").strip()


class ChatHistory:
    """Gives the messages of one chat their ids, the same ones whenever a message is handed over again.

    Remembers the chat (a fingerprint of each message) between calls, so that a call may leave out the beginning of the
    chat. Not thread-safe.
    """

    def __init__(self, keyed: Callable[..., str], session_key: str = "") -> None:
        """`keyed` computes an id (`Digests.keyed`); `session_key` distinguishes this chat from others of its scope.

        The digest must be keyed: an id depends on the words of earlier messages, and stays stored when they are erased.
        """
        self._keyed = keyed
        self._session_key = session_key
        self._fingerprints: list[str] = []

    def with_keys(self, messages: Sequence[Mapping[str, Any]], rounds: int) -> list[Mapping[str, Any]]:
        """Returns the messages of the last `rounds` rounds, with the ids of `message_ids` for those that need one.

        A message with an "id" or a "timestamp", or one that is not stored, stays as it is. `messages`: see
        `message_ids`. Raises TypeError or AttributeError for anything but messages.
        """
        ids = self.message_ids(messages)
        start = last_rounds(messages, rounds)
        return [
            with_id(message, id_ or id_without_text(self._keyed, message, self._session_key))
            for message, id_ in zip(messages[start:], ids[start:], strict=True)
        ]

    def message_ids(self, messages: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """Returns the id of each message; None for a message without text, or with a role that is not stored.

        `messages` is the whole chat, or the last part of it. A last part gets the same ids as in the whole chat if its
        first message was in an earlier call; otherwise it is taken for a whole chat. Messages with the id None do not
        affect the ids of the others, because frameworks add and drop instructions and tool calls. Raises TypeError or
        AttributeError for anything but messages.
        """
        fingerprints = [_fingerprint(message) for message in messages]
        current = [fingerprint for fingerprint in fingerprints if fingerprint is not None]
        start = _position(self._fingerprints, current)
        self._fingerprints = self._fingerprints[:start] + current
        ids = iter(self._ids()[start:])
        return [None if fingerprint is None else next(ids) for fingerprint in fingerprints]

    def _ids(self) -> list[str]:
        """Computes the id of each message of the remembered chat."""
        padded = ["" for _ in range(MESSAGES_BEFORE)] + self._fingerprints
        ordinals: Counter[tuple[str, ...]] = Counter()
        ids = []
        for n in range(len(self._fingerprints)):
            place = tuple(padded[n : n + MESSAGES_BEFORE + 1])
            ordinals[place] += 1
            ids.append(self._keyed(self._session_key, *place, ordinals[place]))
        return ids


def ids_in_part(
    keyed: Callable[..., str],
    messages: Sequence[Mapping[str, Any]],
    earlier: Sequence[Mapping[str, Any]],
    session_key: str = "",
) -> list[tuple[str, ...]]:
    """Returns the ids that each message may have if `messages` is the last part of a chat; () without any.

    The first of them is the message's id if `messages` is the whole chat. Only the first two messages have others: the
    ids after each place in `earlier`, the last messages of the scope that are stored, oldest first. Any other message
    has the two before it in the part. `keyed` and `session_key` are those of `ChatHistory`. Raises TypeError or
    AttributeError for anything but messages.
    """
    whole = ChatHistory(keyed, session_key).message_ids(messages)
    places = [n for n, id_ in enumerate(whole) if id_ is not None][:MESSAGES_BEFORE]
    begin = [fingerprint for n in places if (fingerprint := _fingerprint(messages[n])) is not None]
    before = [fingerprint for one in earlier if (fingerprint := _fingerprint(one)) is not None]
    padded = ["" for _ in range(MESSAGES_BEFORE)] + before
    possible: list[tuple[str, ...]] = [() if id_ is None else (id_,) for id_ in whole]
    for end in range(len(padded), MESSAGES_BEFORE, -1):
        row = padded[end - MESSAGES_BEFORE : end] + begin
        for n, place in enumerate(places):
            possible[place] += (keyed(session_key, *row[n : n + MESSAGES_BEFORE + 1], 1),)
    return possible


def _position(previous: Sequence[str], current: Sequence[str]) -> int:
    """Returns the index in the `previous` messages at which the `current` ones begin; 0 if no message agrees.

    From this index on, more messages in a row agree with the first of `current` than from any other. Not all need to
    agree, because an answer may have been regenerated. Of equally good indices 0 wins, else the highest.
    """
    best, position = _agreement(previous, current, 0), 0
    if best == len(current):
        return position
    for n in range(1, len(previous) - best):  # from a higher n on, no more than `best` can agree
        agreement = _agreement(previous, current, n)
        if agreement > best or (agreement == best and position > 0):
            best, position = agreement, n
    return position


def _agreement(previous: Sequence[str], current: Sequence[str], start: int) -> int:
    """Counts the `current` messages up to the first one that differs from the `previous` ones, read from `start` on."""
    length = min(len(previous) - start, len(current))
    return next((n for n in range(length) if previous[start + n] != current[n]), length)


def with_id(message: Mapping[str, Any], id_: str | None) -> Mapping[str, Any]:
    """Returns a message with this id, unless it has an id or a timestamp; None leaves it as it is."""
    is_recognisable = id_ is None or message.get("id") is not None or message.get("timestamp") is not None
    return message if is_recognisable else {**message, "id": id_}


def id_without_text(keyed: Callable[..., str], message: Mapping[str, Any], session_key: str = "") -> str | None:
    """Returns the id of a message of images or sounds alone; None for any other message without text.

    It is a digest of these, wherever in the chat they stand: other messages do not depend on it.
    """
    role, content = message.get("role"), message.get("content")
    parts = content if isinstance(content, list | tuple) else [content]
    media = [read_part(part) for part in parts if isinstance(part, Mapping)]
    links = [sha256(medium.link.encode(errors="replace")).hexdigest() for medium in media if medium is not None]
    if not links or message_text(message) or (isinstance(role, str) and role in IGNORED_ROLES):
        return None
    return keyed(session_key, "media", str(role), str(message.get("name")), *links)


def _fingerprint(message: Mapping[str, Any]) -> str | None:
    role, text = message.get("role"), message_text(message)
    if not text or (isinstance(role, str) and role in IGNORED_ROLES):
        return None
    return blake2b(json.dumps([role, message.get("name"), text], default=str).encode(), digest_size=16).hexdigest()
