"""Facts as a language model's extraction leaves them: beside their sources, with the links between them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from graphmem import Memory
from graphmem.transfer.importer import import_records

MAY = datetime(2024, 5, 1, 12, tzinfo=UTC)


def store(memory: Memory, text: str, *, sources: Any = (), **more: Any) -> str:
    """Stores one memory, drawn from `sources`; returns its id."""
    uid = str(uuid4())
    links = [{"kind": "drawn_from", "memory": source} for source in sources]
    record = {"type": "memory", "id": uid, "user_id": "u", "text": text, "at": MAY.isoformat(), "links": links, **more}
    assert import_records(memory.engine, [record])["skipped_links"] == 0
    return uid


def source_message(memory: Memory, text: str, **more: Any) -> str:
    """Stores a source message: a message from which facts were drawn."""
    return store(memory, text, source_only=True, role="user", **more)


def fact(memory: Memory, text: str, *sources: str, **more: Any) -> str:
    """Stores a fact drawn from messages."""
    return store(memory, text, sources=sources, kind="fact", **more)


def summary(memory: Memory, text: str, *sources: str, **more: Any) -> str:
    """Stores a summary drawn from other memories."""
    return store(memory, text, sources=sources, kind="summary", **more)
