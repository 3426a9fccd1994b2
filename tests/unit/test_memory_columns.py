"""Each column of `memories` is either a field of records and exports, or set by the ledger alone: none is forgotten."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

from graphmem.commands.types import ImportMemory
from graphmem.digests import Digests
from graphmem.model import (
    SCOPE_NAMES,
    Attachment,
    AttachmentKind,
    EmbeddingSpec,
    Event,
    Kind,
    Layer,
    MemoryRecord,
    Scope,
)
from graphmem.stores.ledger.attachments import encode
from graphmem.stores.ledger.export_queries import ExportedMemory
from graphmem.stores.ledger.memories import LEDGER_COLUMNS, PLAIN_COLUMNS, encode_record
from graphmem.stores.ledger.schema import OPTIONAL_TIME_COLUMNS, TIME_COLUMNS, memories
from graphmem.transfer import serialization
from graphmem.transfer.format import ImportTarget, RecordReader

DIGESTS = Digests("a-ledger", bytes(32))
START = datetime(2024, 1, 1, tzinfo=UTC)
# Every field differs from its default, and each time from the others.
RECORD = MemoryRecord(
    id="6a8a1a2e-6d7d-4b62-8f0e-0d6c35c0f7e1",
    partition="user:anna",
    scope=Scope("anna", "helper", "monday"),
    kind=Kind.FACT,
    text="Anna paints\n[image: A cat]\n[image: Miaow]",
    at=START,
    valid_from=START + timedelta(days=1),
    created_at=START + timedelta(days=2),
    updated_at=START + timedelta(days=3),
    session="a session",
    valid_to=START + timedelta(days=4),
    expires_at=START + timedelta(days=5),
    memory_type="procedural",
    metadata={"colour": "red"},
    speaker="Anna",
    actor_id="anna-1",
    role="assistant",
    message_id="message-1",
    source_only=True,
    confidence=0.5,
    version=3,
    seq=7,
    row=2,
    further_runs=("tuesday",),
    utc_offset=480,
    layer=Layer.LONG_TERM,
    importance=0.9,
    level=2,
    pinned=True,
    forgotten_at=START + timedelta(days=6),
    attachments=(
        Attachment(
            AttachmentKind.IMAGE,
            "https://x.test/cat.png",
            "image/png",
            "0" * 64,
            17,
            "A cat",
            "Miaow",
            "eyes",
            START + timedelta(days=7),
        ),
    ),
)


def test_every_column_is_of_one_kind() -> None:
    others = (*SCOPE_NAMES, "kind", "layer", "seq")
    columns = [*PLAIN_COLUMNS, *TIME_COLUMNS, *OPTIONAL_TIME_COLUMNS, *LEDGER_COLUMNS, *others]
    assert Counter(columns) == Counter(memories.c.keys())


def test_every_column_but_those_of_the_ledger_is_encoded() -> None:
    assert encode_record(RECORD).keys() == set(memories.c.keys()) - set(LEDGER_COLUMNS)


def test_every_field_of_a_memory_survives_export_and_import() -> None:
    defaults = {field.name: field.default for field in fields(MemoryRecord)}
    assert not [name for name, default in defaults.items() if getattr(RECORD, name) == default]
    state = {**encode_record(RECORD), "attachments": [encode(RECORD.attachments[0])]}
    update = Event(
        id="11111111-2222-4333-8444-555555555555",
        memory_id=RECORD.id,
        event="UPDATE",
        old_text="Anna draws",
        new_text=RECORD.text,
        created_at=RECORD.created_at,
        updated_at=RECORD.updated_at,
        is_deleted=False,
        actor_id=RECORD.actor_id,
        role=RECORD.role,
        reason="a test",
        previous_state=state,
    )
    memory = ExportedMemory(RECORD, answer_types=0, embedded=False, events=[update])
    exported = serialization.memory(memory, DIGESTS, None, None)
    assert {*PLAIN_COLUMNS, *TIME_COLUMNS, *OPTIONAL_TIME_COLUMNS} <= exported.keys()
    reader = RecordReader(ImportTarget(DIGESTS, EmbeddingSpec("hash-64", 64, "tokens-64", 64)), START)
    command = reader.command(exported)
    assert isinstance(command, ImportMemory)
    assert command.record == replace(RECORD, seq=0, row=0)
    assert command.events == (replace(update, previous_state={**state, "seq": 0}),)
