"""What a user's own `before_store` makes of a message, before anything is hashed, embedded or written."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from graphmem.boundary import validation
from graphmem.errors import ConfigError, ValidationError
from graphmem.model import Message

logger = logging.getLogger("graphmem")

KEYS = ("role", "content", "name", "timestamp", "id", "metadata")
_NAME = re.compile(r"[\w-]{1,80}")

BeforeStore = Callable[[dict[str, Any]], Mapping[str, Any] | None]
"""A message (role, content, name, timestamp, id, metadata) in; out as it may be stored, or None if it may not."""


def apply_before_store(
    hook: BeforeStore | None, message: Message, metadata: Mapping[str, Any]
) -> tuple[Message, Mapping[str, Any]] | None:
    """A message and its metadata as they may be stored; None where they may not, or nothing to store is left.

    Raises ConfigError when the hook fails, or returns what is no message: nothing is ever stored without it.
    """
    if hook is None:
        return message, metadata
    found = _asked(hook, message, metadata)
    if found is None:
        return None
    _check_keys(found)
    try:
        kept = _kept(found.get("metadata"))
        heard = validation.message_list({name: found[name] for name in found if name != "metadata"}, now=message.at)
    except ValidationError as error:
        raise ConfigError(f"before_store returned what cannot be stored: {error}") from None
    # Whether it is known when it comes again, and where it is from, is for the caller to say.
    return (replace(heard[0], has_own_time=message.has_own_time, document=message.document), kept) if heard else None


def log_refused(refused: int, of: int) -> None:
    """Logs that messages were refused: a function that forgets to return its message refuses each of them."""
    if refused:
        logger.warning(
            "before_store returned None, or no words, for %d of %d messages; they are not stored", refused, of
        )


def _check_keys(found: Mapping[str, Any]) -> None:
    """A misspelt key would be lost without a word, and with it what was to be taken out."""
    for key in found:
        if key not in KEYS:
            near = get_close_matches(str(key), KEYS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(KEYS)}"
            # Not any: it may be of somebody's words.
            shown = repr(str(key)) if _NAME.fullmatch(str(key)) else "that is no name (not shown)"
            raise ConfigError(f"before_store returned the unknown key {shown}; {hint}")


def _kept(metadata: object) -> Mapping[str, Any]:
    """What is in it has been looked at, and what came along with the words (`attachments`) lies two levels deeper."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        validation.refuse("metadata", metadata, "must be a dict")
    copied: dict[str, Any] = validation.json_ready(metadata, "metadata", depth=-1)
    return copied


def _asked(hook: BeforeStore, message: Message, metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    told = {
        "role": message.role,
        "content": message.content,
        "name": message.name,
        "timestamp": message.at.isoformat(),
        "id": message.id,
        "metadata": deepcopy(dict(metadata)),  # it may be changed in place, and is other messages' as well
    }
    try:
        found = hook(told)
    except Exception as error:
        raise ConfigError(
            f"before_store failed with {type(error).__name__}; nothing is stored without its answer"
        ) from error
    if found is not None and not isinstance(found, Mapping):
        kind = type(found).__name__
        raise ConfigError(f"before_store returned {kind}; return the message, or None so that it is not stored")
    return found
