"""What a user's `before_store` makes of a memory that is taken in: its words, and those that it once had."""

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


def apply_hook(hook: BeforeStore | None, step: ImportMemory, digests: Digests) -> ImportMemory | None:
    """A memory as it may be stored; None where it may not.

    What was found in its words and their vectors is made anew if they change. Raises ConfigError when the hook fails.
    """
    if hook is None:
        return step
    memory = _HookedMemory(hook, step.record)
    name = memory.name(step.record.actor_id, step.record.speaker)
    found = memory.allowed(step.record.text, name, step.record.metadata)
    if found is None:
        return None
    told, metadata = found
    step = replace(step, events=tuple(memory.allowed_event(event, told.name) for event in step.events))
    if found == (memory.as_message(step.record.text, name), step.record.metadata):
        return step
    record = replace(step.record, text=told.content, metadata=metadata)
    if told.name != name:
        only_shown = name is not None and record.actor_id is None
        actor = None if only_shown else told.name
        record = replace(record, actor_id=actor, speaker=messages.speaker_of(told, record.scope))
    return replace(
        step,
        record=record,
        text_hash=content_hash(record.embedded_text),
        words=digests.content_digest(record.text),
        extraction=None,
        embedded=None,
    )


class _HookedMemory:
    """A memory with its history, shown to the hook: each of its texts once, however often the history tells it."""

    def __init__(self, hook: BeforeStore, record: MemoryRecord) -> None:
        self._hook = hook
        self._record = record
        self._heard: dict[str, HookResult | None] = {}

    def as_message(self, text: str, name: str | None) -> Message:
        """A text of it as a message."""
        record = self._record
        return Message(record.role or "user", text, record.at, name=name, id=record.message_id)

    def name(self, actor: str | None, speaker: str | None) -> str | None:
        """Whose name it carries. As in `add` that is not the one which stands for a user who has given none."""
        return actor or (
            speaker if speaker != messages.speaker_of(self.as_message("", None), self._record.scope) else None
        )

    def allowed(self, text: str, name: str | None, metadata: Mapping[str, Any]) -> HookResult | None:
        """A text of it as it may be stored."""
        asked = json.dumps([text, name, dict(metadata)], sort_keys=True)
        if asked not in self._heard:
            self._heard[asked] = apply_before_store(self._hook, self.as_message(text, name), metadata)
        return self._heard[asked]

    def allowed_event(self, event: Event, actor: str | None) -> Event:
        """An event as it may be stored; `actor` is what has become of the memory's own name.

        The state before it goes where anything in it changes: undoing it would bring that back.
        """
        name = event.actor_id or self.name(self._record.actor_id, self._record.speaker)
        old, new = (self._told(text, name) for text in (event.old_text, event.new_text))
        who = self._who(event, (old, new), actor)
        texts = tuple(told.content if isinstance(told, Message) else told for told in (old, new))
        same = (*texts, who) == (event.old_text, event.new_text, event.actor_id)
        keep = same and (event.previous_state is None or self._leaves(event.previous_state))
        return replace(
            event,
            old_text=texts[0],
            new_text=texts[1],
            actor_id=who,
            previous_state=event.previous_state if keep else None,
        )

    def _told(self, text: str | None, name: str | None) -> Message | str | None:
        """None for one that is refused, and for none."""
        if not text:
            return text
        found = self.allowed(text, name, self._record.metadata)
        return None if found is None else found[0]

    def _who(self, event: Event, told: tuple[Message | str | None, ...], actor: str | None) -> str | None:
        if event.actor_id is None or event.actor_id == self._record.actor_id:
            return actor if event.actor_id is not None else None
        unsaid = None if event.old_text or event.new_text else event.actor_id
        return next((one.name for one in told if isinstance(one, Message)), unsaid)

    def _leaves(self, state: Mapping[str, Any]) -> bool:
        """Whether the hook changes nothing of an earlier state."""
        text, metadata = state["text"], state["metadata"]
        name = self.name(state["actor_id"], state["speaker"])
        return self.allowed(text, name, metadata) == (self.as_message(text, name), metadata)
