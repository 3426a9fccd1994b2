"""What attachments show and say, in words: by a function of the caller's at once, or by a model, in a job. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from inspect import iscoroutine
from typing import Any

from graphmem.boundary import content_parts, validation
from graphmem.model import Attachment, AttachmentKind, Message

logger = logging.getLogger("graphmem")

Describe = Callable[[dict[str, Any]], str | None]
"""Takes an attachment (kind, mime, ref, url, data); returns what it shows, or what is said in a sound, or None."""

BY_FUNCTION = "function"


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
        """Returns what the models get to describe of a message, URLs or data, by the attachments' positions."""
        return {
            position: one.source
            for position, one in enumerate(message.attachments)
            if one.source is not None and not one.is_described and self._is_for_model(one.kind, one.source)
        }

    def _is_for_model(self, kind: AttachmentKind, source: str) -> bool:
        """Returns whether a model can be given a source: no URL of a sound, for nobody here fetches it."""
        return kind in self._kinds and (kind is AttachmentKind.IMAGE or content_parts.is_data(source))


def with_words(attachment: Attachment, words: str, described_by: str) -> Attachment:
    """Returns an attachment with what is said of it: the transcript of a sound, the caption of anything else."""
    text = validation.storable_part(words, validation.MAX_CONTENT_CHARS).strip()
    if not text:
        return attachment
    if attachment.kind is AttachmentKind.AUDIO:
        return replace(attachment, transcript=text, described_by=described_by)
    return replace(attachment, caption=text, described_by=described_by)
