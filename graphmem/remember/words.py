"""Words first: messages become the steps that store them. Pure; nothing is computed from the words yet."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

from graphmem.model import NOTHING, Message, Scope, micros
from graphmem.remember.plan import Say

# A user id that a person would be called by: letters, perhaps in several words. "u-42" or a UUID says nothing.
_NAME_LIKE = re.compile(r"[^\W\d_]{2,}(?:[ '’.-][^\W\d_]+)*")
_NO_NAMES = frozenset({"user", "users", "default", "test", "tester", "anonymous", "guest", "admin", "me", "human"})


def say(
    messages: Sequence[Message],
    scope: Scope,
    ledger_uuid: str,
    *,
    metadata: Mapping[str, Any] = NOTHING,
    memory_type: str | None = None,
    expires_at: datetime | None = None,
) -> tuple[Say, ...]:
    """One step for each message, in order.

    A message is recognised when it comes again by its id, or without one by speaker, words, given time and ordinal
    among equals in this call; without a given time either, it is always new.
    """
    ordinals: Counter[str] = Counter()
    steps = []
    for message in messages:
        key = _key(message, scope, ledger_uuid, ordinals)
        steps.append(
            Say(
                scope=scope,
                message=message,
                key=key,
                words=_digest(ledger_uuid, message.content),
                speaker=speaker(message, scope),
                metadata=_with_attachments(metadata, message),
                memory_type=memory_type,
                expires_at=expires_at,
            )
        )
    return tuple(steps)


def _with_attachments(metadata: Mapping[str, Any], message: Message) -> Mapping[str, Any]:
    """What came along with the words is kept as a reference, unless the caller uses that name for something else."""
    if not message.attachments:
        return metadata
    return {"attachments": [dict(part) for part in message.attachments], **metadata}


def _key(message: Message, scope: Scope, ledger_uuid: str, ordinals: Counter[str]) -> str | None:
    if message.id is not None:
        return _digest(ledger_uuid, scope.parts, "id", message.id)
    if not message.timed:
        return None
    said = _digest(ledger_uuid, scope.parts, "said", message.name or message.role, message.content, micros(message.at))
    ordinals[said] += 1
    return _digest(ledger_uuid, said, ordinals[said])


def _digest(ledger_uuid: str, *parts: Any) -> str:
    # Keyed by the ledger, so that a digest left behind by an erased message means nothing elsewhere.
    return blake2b(json.dumps(parts, sort_keys=True).encode(), key=ledger_uuid.encode(), digest_size=16).hexdigest()


def speaker(message: Message, scope: Scope) -> str | None:
    """Who said it, as far as that is a name: the message's own, else the user's or agent's id if it reads like one."""
    if message.name:
        return message.name
    stands_for = {"user": scope.user_id, "assistant": scope.agent_id}.get(message.role)
    if stands_for and _NAME_LIKE.fullmatch(stands_for) and stands_for.casefold() not in _NO_NAMES:
        return stands_for if any(letter.isupper() for letter in stands_for) else stands_for.title()
    return None
