"""What the user's functions and models make of a message before anything of it is hashed, embedded or written: the hook
`before_store`, and what attachments show and say, in words.

The words come from a function of the caller's at once, or from a model, in a job. Pure.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from inspect import iscoroutine
from typing import Any

from graphmem.boundary import content_parts, validation
from graphmem.errors import ConfigError, ValidationError
from graphmem.model import Attachment, AttachmentKind, Message
from graphmem.times import said

logger = logging.getLogger("graphmem")

KEYS = ("role", "content", "name", "timestamp", "id", "metadata", "attachments")
_NAME = re.compile(r"[\w-]{1,80}")
MAX_JUDGED_CHARS = 4000

BeforeStore = Callable[[dict[str, Any]], Mapping[str, Any] | None]
"""Takes a message (role, content, name, timestamp, id, metadata, and attachments if it has some).

Returns it as to be stored, or None to refuse it.
"""

Describe = Callable[[dict[str, Any]], str | None]
BY_FUNCTION = "function"


def apply_before_store(
    hook: BeforeStore | None, message: Message, metadata: Mapping[str, Any]
) -> tuple[Message, Mapping[str, Any]] | None:
    """Returns a message and its metadata as the hook returns them; None if it refuses them or leaves nothing.

    Raises ConfigError if the hook fails or returns no valid message: without its answer nothing is stored.
    """
    if hook is None:
        return message, metadata
    returned = _call(hook, message, metadata)
    if returned is None:
        return None
    _check_keys(returned)
    try:
        new_metadata = returned.get("metadata")
        if new_metadata is not None and not isinstance(new_metadata, Mapping):
            validation.refuse("metadata", new_metadata, "must be a dict")
        new_metadata = {} if new_metadata is None else validation.json_ready(new_metadata, "metadata")
        fields = {name: returned[name] for name in returned if name not in {"metadata", "attachments"}}
        accepted = validation.single_message(fields, message.at)
        kept = validation.attachments(returned.get("attachments") or [], "attachments", message.attachments)
    except ValidationError as error:
        raise ConfigError(f"before_store returned what cannot be stored: {error}") from None
    if not fields.get("timestamp"):
        accepted = replace(accepted, utc_offset=message.utc_offset)
    # These are the caller's to decide: how a repeated message is recognised, its document, its place.
    accepted = replace(
        accepted,
        attachments=kept,
        has_own_time=message.has_own_time,
        document=message.document,
        index=message.index,
    )
    is_stored = accepted.role in validation.REMEMBERED_ROLES and (accepted.content.strip() or kept)
    return (accepted, new_metadata) if is_stored else None


def kept_question(hook: BeforeStore | None, query: object, at: datetime) -> str | None:
    """Returns a judged question as the hook lets it be kept, trimmed; None if it refuses it.

    Raises ValidationError for a question that cannot be kept, and ConfigError if the hook fails or returns such a one.
    """
    asked = validation.query(query, max_chars=MAX_JUDGED_CHARS)
    accepted = apply_before_store(hook, Message("user", asked, at), {})
    if accepted is None:
        return None
    try:
        return validation.query(accepted[0].content, max_chars=MAX_JUDGED_CHARS)
    except ValidationError as error:
        raise ConfigError(f"before_store returned what cannot be kept: {error}") from None


def log_refused(refused: int, total: int) -> None:
    """Warns that the hook refused messages: a hook that forgets to return its message refuses all."""
    if refused:
        logger.warning(
            "before_store returned None, or no words, for %d of %d messages; no memory is made of them", refused, total
        )


def _check_keys(returned: Mapping[str, Any]) -> None:
    """Raises ConfigError for an unknown key: the change of a misspelt field would be lost silently."""
    for key in returned:
        if key not in KEYS:
            near = get_close_matches(str(key), KEYS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(KEYS)}"
            # A key that is no name may quote a message, so it is not shown.
            key_text = repr(str(key)) if _NAME.fullmatch(str(key)) else "that is no name (not shown)"
            raise ConfigError(f"before_store returned the unknown key {key_text}; {hint}")


def _call(hook: BeforeStore, message: Message, metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    argument: dict[str, Any] = {
        "role": message.role,
        "content": message.content,
        "name": message.name,
        "timestamp": said(message.at, message.utc_offset).isoformat(),
        "id": message.id,
        "metadata": deepcopy(dict(metadata)),  # the hook may change it in place, and other messages share it
    }
    if message.attachments:
        argument["attachments"] = [
            {
                "kind": one.kind.value,
                "ref": one.ref,
                "mime": one.mime,
                "caption": one.caption,
                "transcript": one.transcript,
            }
            for one in message.attachments
        ]
    try:
        returned = hook(argument)
    except Exception as error:
        raise ConfigError(
            f"before_store failed with {type(error).__name__}; nothing is stored without its answer"
        ) from error
    if returned is not None and not isinstance(returned, Mapping):
        type_name = type(returned).__name__
        raise ConfigError(f"before_store returned {type_name}; return the message, or None so that it is not stored")
    return returned


"""Takes an attachment (kind, mime, ref, url, data); returns what it shows, or what is said in a sound, or None."""


class Describer:
    """Describes attachments with `function`, and tells what is left to the models, by the kinds that they describe."""

    def __init__(self, function: Describe | None, kinds: Collection[AttachmentKind]) -> None:
        self._function = function
        self._kinds = kinds

    def describe_now(self, message: Message) -> Message:
        """Returns a message with what the function says of its undescribed attachments.

        If the function fails on one, or returns what is no text, the log gets a warning: the words of the message are
        worth more.
        """
        if self._function is None or all(one.is_described for one in message.attachments):
            return message
        described = (one if one.is_described else self._described(self._function, one) for one in message.attachments)
        return replace(message, attachments=tuple(described))

    def _described(self, function: Describe, attachment: Attachment) -> Attachment:
        source = attachment.source or ""
        try:
            told = function(
                {
                    "kind": attachment.kind.value,
                    "mime": attachment.mime,
                    "ref": attachment.ref,
                    "url": source if content_parts.is_web_address(source) else None,
                    "data": content_parts.data_of(source),
                }
            )
        except Exception as error:  # noqa: BLE001  (code of the caller's)
            logger.warning("describe failed with %s; the attachment is kept without words", type(error).__name__)
            return attachment
        if told is not None and not isinstance(told, str):
            if iscoroutine(told):
                told.close()
            logger.warning("describe returned something else than text or None; the attachment is kept without words")
            return attachment
        return with_words(attachment, told or "", BY_FUNCTION)

    def left(self, message: Message) -> Mapping[int, str]:
        """Returns what the models get to describe of a message, URLs or data, by the attachments' positions.

        No URL of a sound, for nobody here fetches it.
        """
        return {
            position: one.source
            for position, one in enumerate(message.attachments)
            if one.source is not None
            and not one.is_described
            and one.kind in self._kinds
            and (one.kind is AttachmentKind.IMAGE or content_parts.is_data(one.source))
        }


def with_words(attachment: Attachment, words: str, described_by: str) -> Attachment:
    """Returns an attachment with what is said of it: the transcript of a sound, the caption of anything else."""
    text = validation.storable_part(words, validation.MAX_CONTENT_CHARS).strip()
    if not text:
        return attachment
    if attachment.kind is AttachmentKind.AUDIO:
        return replace(attachment, transcript=text, described_by=described_by)
    return replace(attachment, caption=text, described_by=described_by)
