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
from graphmem.remember.redact import BeforeStore, passed, tell_refused

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
    before_store: BeforeStore | None = None,
) -> tuple[Say, ...]:
    """One step for each message that `before_store` lets pass, in order, and as it lets it pass.

    A message is recognised when it comes again by its id, or without one by speaker, words, given time and ordinal
    among equals in this call; without a given time either, it is always new.
    """
    ordinals: Counter[str] = Counter()
    steps = []
    for said in messages:
        found = passed(before_store, said, _with_its_own(metadata, said))
        if found is None:
            continue
        message, kept = found
        steps.append(
            Say(
                scope=scope,
                message=message,
                key=_key(message, scope, ledger_uuid, ordinals),
                words=hashed(message.content, ledger_uuid),
                speaker=speaker(message, scope),
                metadata=kept,
                memory_type=memory_type,
                expires_at=expires_at,
            )
        )
    tell_refused(len(messages) - len(steps), len(messages))
    return tuple(steps)


def _with_its_own(metadata: Mapping[str, Any], message: Message) -> Mapping[str, Any]:
    """The call's metadata, and over it the message's. What came along with the words is kept as a reference, unless the
    caller uses that name for something else.
    """
    if not message.attachments and not message.metadata:
        return metadata
    attached = {"attachments": [dict(part) for part in message.attachments]} if message.attachments else {}
    return {**attached, **metadata, **message.metadata}


def _key(message: Message, scope: Scope, ledger_uuid: str, ordinals: Counter[str]) -> str | None:
    if message.id is not None:
        return key_by_id(message.id, scope, ledger_uuid)
    if not message.timed:
        return None
    said = _said(message, scope, ledger_uuid)
    ordinals[said] += 1
    return _digest(ledger_uuid, said, ordinals[said])


def key_by_id(message_id: str, scope: Scope, ledger_uuid: str) -> str:
    """What recognises a message that has an id."""
    return _digest(ledger_uuid, scope.parts, "id", message_id)


def key_by_words(message: Message, scope: Scope, ledger_uuid: str, ordinal: int) -> str:
    """What recognises a message by who said what when, as the `ordinal`-th of its equals in one call."""
    return _digest(ledger_uuid, _said(message, scope, ledger_uuid), ordinal)


def ordinal_of(key: str, message: Message, scope: Scope, ledger_uuid: str, most: int) -> int | None:
    """The ordinal by which a key recognises a message; None if it does not."""
    said = _said(message, scope, ledger_uuid)
    return next((ordinal for ordinal in range(1, most + 1) if _digest(ledger_uuid, said, ordinal) == key), None)


def hashed(content: str, ledger_uuid: str) -> str:
    """What tells whether a message that comes again has other words."""
    return _digest(ledger_uuid, content)


def _said(message: Message, scope: Scope, ledger_uuid: str) -> str:
    who, at = message.name or message.role, micros(message.at)
    return _digest(ledger_uuid, scope.parts, "said", who, message.content, at)


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
