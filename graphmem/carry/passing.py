"""What a user's `before_store` makes of a memory that is taken in: its words, and those that it once had."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphmem.digests import Digests
from graphmem.model import Event, MemoryRecord, Message
from graphmem.remember import words
from graphmem.remember.plan import Take
from graphmem.remember.redact import BeforeStore, passed
from graphmem.text import content_hash

Passed = tuple[Message, Mapping[str, Any]]


def as_allowed(hook: BeforeStore | None, step: Take, digests: Digests) -> Take | None:
    """A memory as it may be stored; None where it may not.

    What was found in its words and their vectors is made anew if they change. Raises ConfigError when the hook fails.
    """
    if hook is None:
        return step
    memory = _Memory(hook, step.record)
    name = memory.name(step.record.actor_id, step.record.speaker)
    found = memory.passed(step.record.text, name, step.record.metadata)
    if found is None:
        return None
    told, metadata = found
    step = replace(step, events=tuple(memory.event(event, told.name) for event in step.events))
    if found == (memory.said(step.record.text, name), step.record.metadata):
        return step
    record = replace(step.record, text=told.content, metadata=metadata)
    if told.name != name:
        only_shown = name is not None and record.actor_id is None
        actor = None if only_shown else told.name
        record = replace(record, actor_id=actor, speaker=words.speaker(told, record.scope))
    return replace(
        step,
        record=record,
        text_hash=content_hash(record.embedded_text),
        words=digests.of_words(record.text),
        found=None,
        embedded=None,
    )


class _Memory:
    """A memory with its history, shown to the hook: each of its texts once, however often the history tells it."""

    def __init__(self, hook: BeforeStore, record: MemoryRecord) -> None:
        self._hook = hook
        self._record = record
        self._heard: dict[str, Passed | None] = {}

    def said(self, text: str, name: str | None) -> Message:
        """A text of it as a message."""
        record = self._record
        return Message(record.role or "user", text, record.at, name=name, id=record.message_id)

    def name(self, actor: str | None, speaker: str | None) -> str | None:
        """Whose name it carries. As in `add` that is not the one which stands for a user who has given none."""
        return actor or (speaker if speaker != words.speaker(self.said("", None), self._record.scope) else None)

    def passed(self, text: str, name: str | None, metadata: Mapping[str, Any]) -> Passed | None:
        """A text of it as it may be stored."""
        asked = json.dumps([text, name, dict(metadata)], sort_keys=True)
        if asked not in self._heard:
            self._heard[asked] = passed(self._hook, self.said(text, name), metadata)
        return self._heard[asked]

    def event(self, event: Event, actor: str | None) -> Event:
        """An event as it may be stored; `actor` is what has become of the memory's own name.

        The state before it goes where anything in it changes: undoing it would bring that back.
        """
        name = event.actor_id or self.name(self._record.actor_id, self._record.speaker)
        old, new = (self._told(text, name) for text in (event.old_text, event.new_text))
        who = self._who(event, (old, new), actor)
        texts = tuple(told.content if isinstance(told, Message) else told for told in (old, new))
        same = (*texts, who) == (event.old_text, event.new_text, event.actor_id)
        keep = same and (event.before is None or self._leaves(event.before))
        return replace(event, old_text=texts[0], new_text=texts[1], actor_id=who, before=event.before if keep else None)

    def _told(self, text: str | None, name: str | None) -> Message | str | None:
        """None for one that is refused, and for none."""
        if not text:
            return text
        found = self.passed(text, name, self._record.metadata)
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
        return self.passed(text, name, metadata) == (self.said(text, name), metadata)
