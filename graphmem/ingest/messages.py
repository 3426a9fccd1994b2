"""Words first: messages become the steps that store them. Pure; nothing is computed from the words yet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from graphmem.commands.types import AddMessage
from graphmem.digests import Digests
from graphmem.ingest.hooks import BeforeStore, apply_before_store, log_refused
from graphmem.model import EMPTY_MAPPING, Message, Scope

# A user id that a person would be called by: letters, perhaps in several words. "u-42" or a UUID says nothing.
_NAME_LIKE = re.compile(r"[^\W\d_]{2,}(?:[ '’.-][^\W\d_]+)*")
_NO_NAMES = frozenset({"user", "users", "default", "test", "tester", "anonymous", "guest", "admin", "me", "human"})


def message_commands(
    messages: Sequence[Message],
    scope: Scope,
    digests: Digests,
    *,
    metadata: Mapping[str, Any] = EMPTY_MAPPING,
    memory_type: str | None = None,
    expires_at: datetime | None = None,
    before_store: BeforeStore | None = None,
) -> tuple[AddMessage, ...]:
    """One step for each message that `before_store` lets pass, in order, and as it lets it pass.

    A message is recognised when it comes again by its id, or without one by speaker, words, given time and ordinal
    among equals in this call; without a given time either, it is always new.
    """
    ordinals: Counter[str] = Counter()
    steps = []
    for said in messages:
        found = apply_before_store(before_store, said, _with_its_own(metadata, said))
        if found is None:
            continue
        message, kept = found
        steps.append(
            AddMessage(
                scope=scope,
                message=message,
                key=_key(message, scope, digests, ordinals),
                words=digests.content_digest(message.content),
                speaker=speaker_of(message, scope),
                metadata=kept,
                memory_type=memory_type,
                expires_at=expires_at,
            )
        )
    log_refused(len(messages) - len(steps), len(messages))
    return tuple(steps)


def _with_its_own(metadata: Mapping[str, Any], message: Message) -> Mapping[str, Any]:
    """The call's metadata, and over it the message's. What came along with the words is kept as a reference, unless the
    caller uses that name for something else.
    """
    if not message.attachments and not message.metadata:
        return metadata
    attached = {"attachments": [dict(part) for part in message.attachments]} if message.attachments else {}
    return {**attached, **metadata, **message.metadata}


def _key(message: Message, scope: Scope, digests: Digests, ordinals: Counter[str]) -> str | None:
    if message.id is not None:
        return digests.key_by_id(message.id, scope)
    if not message.has_own_time:
        return None
    said = digests.message_fingerprint(message, scope)
    ordinals[said] += 1
    return digests.key_by_content(message, scope, ordinals[said])


def speaker_of(message: Message, scope: Scope) -> str | None:
    """Who said it, as far as that is a name: the message's own, else the user's or agent's id if it reads like one."""
    if message.name:
        return message.name
    stands_for = {"user": scope.user_id, "assistant": scope.agent_id}.get(message.role)
    if stands_for and _NAME_LIKE.fullmatch(stands_for) and stands_for.casefold() not in _NO_NAMES:
        return stands_for if any(letter.isupper() for letter in stands_for) else stands_for.title()
    return None
