"""Turns messages into commands that store them. Nothing is computed from their texts yet: see `enrichment`. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from graphmem.commands.types import AddMessage, DescribeLater
from graphmem.digests import Digests
from graphmem.ingest.hooks import BeforeStore, Describer, apply_before_store, log_refused
from graphmem.model import EMPTY_MAPPING, Message, Scope

# An id that reads like a person's name: letters, perhaps in several words; not "u-42" or a UUID.
_NAME_LIKE = re.compile(r"[^\W\d_]{2,}(?:[ '’.-][^\W\d_]+)*")
# The second line has what programs write for no value.
_PLACEHOLDER_IDS = frozenset(
    """
    user users default test tester anonymous guest admin me human
    none null nil nan undefined
    """.split()
)


def message_commands(
    messages: Sequence[Message],
    scope: Scope,
    digests: Digests,
    *,
    metadata: Mapping[str, Any] = EMPTY_MAPPING,
    memory_type: str | None = None,
    expires_at: datetime | None = None,
    importance: float | None = None,
    before_store: BeforeStore | None = None,
    describer: Describer | None = None,
    repeat_window: timedelta | None = None,
) -> tuple[AddMessage, ...]:
    """Returns a command for each message that `before_store` accepts, in order and with the changes made by it.

    `describer` has described its attachments before. One without text afterwards is no memory yet: see `HoldMessage`.

    A repeated message is recognised by its id or, without one, by speaker, words, its own time and its ordinal among
    equal messages of this call. Messages with neither id nor own time are new, unless all of the call were said within
    `repeat_window` before.
    """
    ordinals: Counter[str] = Counter()
    commands: list[AddMessage] = []
    for original in messages:
        described = original if describer is None else describer.describe_now(original)
        merged = {**metadata, **original.metadata} if original.metadata else metadata
        is_memory = described.text or (describer is not None and describer.left(described))
        # Nobody is asked about what no memory can be made of.
        accepted = apply_before_store(before_store if is_memory else None, described, merged)
        if accepted is None:
            continue
        message, message_metadata = accepted
        left = {} if describer is None else describer.left(message)
        key = _key(message, scope, digests, ordinals)
        commands.append(
            AddMessage(
                scope=scope,
                message=message,
                key=key,
                content_digest=digests.content_digest(message.identity),
                speaker=speaker_of(message, scope),
                metadata=message_metadata,
                memory_type=memory_type,
                expires_at=expires_at,
                importance=importance,
                later=DescribeLater(left) if left else None,
            )
        )
    log_refused(len(messages) - len(commands), len(messages))
    with_text = [one for one in commands if one.message.text]
    if repeat_window is not None and all(one.key is None and one.message.document is None for one in with_text):
        commands = [replace(one, repeat_window=repeat_window) for one in commands]
    return tuple(commands)


def _key(message: Message, scope: Scope, digests: Digests, ordinals: Counter[str]) -> str | None:
    if message.id is not None:
        return digests.key_by_id(message.id, scope)
    if not message.has_own_time:
        return None
    fingerprint = digests.message_fingerprint(message, scope)
    ordinals[fingerprint] += 1
    return digests.key_by_content(message, scope, ordinals[fingerprint])


def speaker_of(message: Message, scope: Scope) -> str | None:
    """Returns the speaker's name: the message's, else the user's or agent's id if it reads like a name, else None."""
    return message.name or _name_from_id(message.role, scope)


def is_bare_id(speaker: str | None, role: str | None, scope: Scope) -> bool:
    """Whether a speaker is known by an id without capitals only, which may be "ana" as well as "production" or 客户."""
    id_of_role = _id_of_role(role, scope)
    return speaker is not None and speaker == _name_from_id(role, scope) and not _has_capitals(id_of_role)


def _name_from_id(role: str | None, scope: Scope) -> str | None:
    id_of_role = _id_of_role(role, scope)
    if _NAME_LIKE.fullmatch(id_of_role) and id_of_role.casefold() not in _PLACEHOLDER_IDS:
        return id_of_role if _has_capitals(id_of_role) else id_of_role.title()
    return None


def _id_of_role(role: str | None, scope: Scope) -> str:
    return {"user": scope.user_id, "assistant": scope.agent_id}.get(role or "") or ""


def _has_capitals(text: str) -> bool:
    return any(letter.isupper() for letter in text)
