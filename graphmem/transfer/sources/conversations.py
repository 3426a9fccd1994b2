"""The messages of other programs' chats on their way to import records."""

from __future__ import annotations

import json
import mimetypes
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from graphmem.boundary import validation
from graphmem.boundary.content_parts import KEPT
from graphmem.model import Attachment, AttachmentKind, Kind, Scope, described_text
from graphmem.transfer.sources.skipped_records import Record, SkippedRecords, validated

COPIES = "copies of messages of another conversation"
MAX_NAME = 256
_AUDIO_SUFFIXES = (".opus", ".m4a", ".amr")


class LeftOut:
    """What was left out on purpose, by reason: how often, and how many characters of text."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.characters: Counter[str] = Counter()

    def add(self, reason: str, characters: int = 0) -> None:
        """Counts one thing that is left out."""
        self.counts[reason] += 1
        self.characters[reason] += characters

    def as_json(self) -> dict[str, dict[str, int]]:
        """Returns `{reason: {"number", "characters"}}`, most frequent first."""
        return {
            reason: {"number": number, "characters": self.characters[reason]}
            for reason, number in self.counts.most_common()
        }


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message of a chat. `at` is ISO 8601 text or seconds since 1970, None if the program does not say.

    `stored_id` is the message's id in the memory, if that is another one than in its program.
    """

    id: str
    role: str
    words: str
    at: Any
    name: str | None = None
    attachments: tuple[Attachment, ...] = ()
    stored_id: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of a program: its messages in order, and what its memories have as metadata.

    It is a run, or, with a `project`, a session of the agent of this name.
    """

    program: str
    id: str
    messages: list[ChatMessage]
    metadata: dict[str, Any] = field(default_factory=dict)
    project: str | None = None


def attachment(name: str, mime: str | None = None) -> Attachment:
    """Returns an attachment by its file's name, which of a document, as people choose it, is in the memory's text."""
    mime = mime or mimetypes.guess_type(name)[0]
    kind = AttachmentKind.FILE
    if mime is not None and mime.partition("/")[0] in {"image", "audio", "video"}:
        kind = AttachmentKind(mime.partition("/")[0])
    elif name.lower().endswith(_AUDIO_SUFFIXES):
        kind = AttachmentKind.AUDIO
    caption = name if kind is AttachmentKind.FILE else None
    # No link of a message may pass for kept data.
    ref = f"link:{name}" if name.startswith(KEPT) else name
    return Attachment(kind, ref, mime, caption=caption, described_by="message" if caption else None)


def storable(text: str) -> str:
    """Returns a text without the halves of characters and the NULs that exports have where an answer was cut."""
    return validation.storable_part(text, len(text))


def has_text(words: str, attachments: Iterable[Attachment]) -> bool:
    """Whether a memory can be made of words and what came with them."""
    return bool(described_text(words, attachments).strip())


def records(
    conversations: Iterable[Conversation], scope: Scope, skipped: SkippedRecords, left_out: LeftOut
) -> Iterator[Record]:
    """Yields an import record for each message; adds those that cannot be imported to `skipped`.

    The record's id is made of the program, the scope and the message's id, so that an import can be repeated. A message
    that a program copied into another conversation has the same UUID there, and is yielded once.
    """
    seen = set[str]()
    for conversation in conversations:
        for message in conversation.messages:
            place = f"{conversation.id[:60]}: message {message.id[:60]}"
            # An id that is no UUID may be unique in its conversation only.
            identity = [message.id] if _is_uuid(message.id) else [conversation.id, message.id]
            id_source = json.dumps([conversation.program, scope.parts, *identity])
            id_ = str(uuid5(NAMESPACE_OID, id_source))
            if id_ in seen:
                left_out.add(COPIES, len(message.words))
                continue
            seen.add(id_)
            with skipped.skip_invalid(place):
                yield validated(_record(id_, conversation, message, scope))


def _record(id_: str, conversation: Conversation, message: ChatMessage, scope: Scope) -> Record:
    record: Record = {
        "type": "memory",
        "id": id_,
        **_place(conversation),
        **scope.parts,
        "kind": Kind.EPISODE.value,
        "text": described_text(storable(message.words), message.attachments),
        "at": message.at,
        "role": message.role,
        "message_id": message.stored_id or message.id[:MAX_NAME],
        "metadata": {"source": conversation.program, **conversation.metadata},
    }
    if message.name is not None:
        record["actor_id"] = message.name[:MAX_NAME]
    if message.attachments:
        record["attachments"] = [_attachment_fields(one) for one in message.attachments]
    return record


def _place(conversation: Conversation) -> dict[str, str]:
    if conversation.project is None:
        return {"run_id": conversation.id[:MAX_NAME]}
    return {"agent_id": conversation.project, "session": conversation.id[:MAX_NAME]}


def _attachment_fields(one: Attachment) -> dict[str, Any]:
    fields = {
        "kind": one.kind.value, "ref": one.ref, "mime": one.mime, "caption": one.caption,
        "described_by": one.described_by,
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value is not None}


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
