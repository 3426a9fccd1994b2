"""Applies a user's `before_store` to an imported memory: to its text and to the earlier texts of its history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphmem.commands.types import ImportMemory
from graphmem.digests import Digests
from graphmem.ingest import messages
from graphmem.ingest.hooks import BeforeStore, apply_before_store
from graphmem.model import Event, MemoryRecord, Message
from graphmem.text import content_hash

HookResult = tuple[Message, Mapping[str, Any]]


def apply_hook(hook: BeforeStore | None, command: ImportMemory, digests: Digests) -> ImportMemory | None:
    """Returns the command with the text, name and metadata that the hook allows; None if the hook refuses the memory.

    If the hook changes the memory, the imported extraction and embeddings are dropped, and computed later, as is its
    importance. Raises ConfigError if the hook fails.
    """
    if hook is None:
        return command
    memory = _HookedMemory(hook, command.record)
    name = memory.stored_name(command.record.actor_id, command.record.speaker)
    attachments = command.record.attachments
    said = replace(memory.as_message(command.record.message().content, name), attachments=attachments)
    if attachments:
        allowed = apply_before_store(hook, said, command.record.metadata)
    else:
        allowed = memory.allowed(command.record.text, name, command.record.metadata)
    if allowed is None or not allowed[0].text:
        return None
    message, metadata = allowed
    command = replace(command, events=tuple(memory.allowed_event(event, message.name) for event in command.events))
    if allowed == (said, command.record.metadata):
        return command
    record = replace(command.record, text=message.text, metadata=metadata, attachments=message.attachments)
    if message.name != name:
        has_speaker_only = name is not None and record.actor_id is None
        actor = None if has_speaker_only else message.name
        record = replace(record, actor_id=actor, speaker=messages.speaker_of(message, record.scope))
    return replace(
        command,
        record=record,
        text_hash=content_hash(record.partition, record.embedded_text),
        content_digest=digests.content_digest(message.identity),
        extraction=None,
        embedded=None,
        vitals=None if command.vitals is None else command.vitals._replace(rated=None),
    )


class _HookedMemory:
    """Calls the hook for the texts of a memory and of its history, once for each distinct text."""

    def __init__(self, hook: BeforeStore, record: MemoryRecord) -> None:
        self._hook = hook
        self._record = record
        self._hook_results: dict[str, HookResult | None] = {}

    def as_message(self, text: str, name: str | None) -> Message:
        """Returns one of the memory's texts as a message."""
        record = self._record
        return Message(
            record.role or "user", text, record.at, name=name, id=record.message_id, utc_offset=record.utc_offset
        )

    def stored_name(self, actor: str | None, speaker: str | None) -> str | None:
        """Returns the name that the hook gets: `actor`, else `speaker`, else None.

        A speaker that was only derived from the user's or agent's id (`messages.speaker_of`) is left out, as in `add`.
        """
        return actor or (
            speaker if speaker != messages.speaker_of(self.as_message("", None), self._record.scope) else None
        )

    def allowed(self, text: str, name: str | None, metadata: Mapping[str, Any]) -> HookResult | None:
        """Returns one of the memory's texts with its metadata as the hook allows them, or None if it refuses."""
        cache_key = json.dumps([text, name, dict(metadata)], sort_keys=True)
        if cache_key not in self._hook_results:
            self._hook_results[cache_key] = apply_before_store(self._hook, self.as_message(text, name), metadata)
        return self._hook_results[cache_key]

    def allowed_event(self, event: Event, actor: str | None) -> Event:
        """Returns an event with the texts and the name that the hook allows.

        `actor` is the name that the hook allows for the memory's current text: it replaces the memory's name in the
        event. If the hook changes anything in the event, `previous_state` is dropped, because `undo` would restore the
        original text from it.
        """
        name = event.actor_id or self.stored_name(self._record.actor_id, self._record.speaker)
        old, new = (self._allowed_text(text, name) for text in (event.old_text, event.new_text))
        actor_id = self._event_actor(event, (old, new), actor)
        texts = tuple(result.content if isinstance(result, Message) else result for result in (old, new))
        is_unchanged = (*texts, actor_id) == (event.old_text, event.new_text, event.actor_id)
        keeps_state = is_unchanged and (
            event.previous_state is None or self._is_unchanged_by_hook(event.previous_state)
        )
        return replace(
            event,
            old_text=texts[0],
            new_text=texts[1],
            actor_id=actor_id,
            previous_state=event.previous_state if keeps_state else None,
        )

    def _allowed_text(self, text: str | None, name: str | None) -> Message | str | None:
        """Returns a text as the allowed message; None for a refused or missing text, "" for an empty one."""
        if not text:
            return text
        allowed = self.allowed(text, name, self._record.metadata)
        return None if allowed is None else allowed[0]

    def _event_actor(self, event: Event, results: tuple[Message | str | None, ...], actor: str | None) -> str | None:
        if event.actor_id is None or event.actor_id == self._record.actor_id:
            return actor if event.actor_id is not None else None
        without_texts = None if event.old_text or event.new_text else event.actor_id
        return next((result.name for result in results if isinstance(result, Message)), without_texts)

    def _is_unchanged_by_hook(self, state: Mapping[str, Any]) -> bool:
        """Returns True if the hook leaves text, name and metadata of a previous state as they are."""
        text, metadata = state["text"], state["metadata"]
        name = self.stored_name(state["actor_id"], state["speaker"])
        return self.allowed(text, name, metadata) == (self.as_message(text, name), metadata)
