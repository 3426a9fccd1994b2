"""Imports and the JSON Schema agree on the described records: the same fields, the same required."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

import pydantic
import pytest

from graphmem.digests import Digests
from graphmem.errors import ValidationError
from graphmem.model import EmbeddingSpec
from graphmem.transfer.format import MENTION_KINDS, ImportTarget, RecordReader
from graphmem.transfer.records import MentionKindName, record_adapter

ADAPTER = record_adapter()
DEFINITIONS = ADAPTER.json_schema()["$defs"]
UID = "6a8a1a2e-6d7d-4b62-8f0e-0d6c35c0f7e1"
SCOPE = {"user_id": "ana"}
STATE = {"text": "Tea is ready", "at": "2024-01-01T10:00:00Z"}
MEMORY = {"type": "memory", "id": UID, **SCOPE, **STATE}
EVENT = {"id": "e", "event": "UPDATE", "at": 0}

Record = dict[str, Any]


def in_memory(**fields: Any) -> Record:
    return {**MEMORY, "mentions": [{"key": "tea"}, {"key": "pot"}], **fields}


# For each kind of object: the least one that is accepted, and a record that holds an object.
OBJECTS: dict[str, tuple[Record, Callable[[Record], Record]]] = {
    "HeaderRecord": ({"type": "graphmem", "format": 1}, lambda value: value),
    "MemoryRecord": (MEMORY, lambda value: value),
    "ErasedRecord": ({"type": "erased", "id": UID, **SCOPE, "at": 0}, lambda value: value),
    "AliasRecord": ({"type": "alias", **SCOPE, "key": "tea", "other": "chai"}, lambda value: value),
    "NameRecord": ({"type": "name", **SCOPE, "key": "tea", "name": "Tea"}, lambda value: value),
    "LifecycleRecord": ({"type": "lifecycle", "since": 0}, lambda value: value),
    "CycleRecord": ({"type": "cycle", **SCOPE, "ended_at": 0}, lambda value: value),
    "ItemRecord": ({"type": "item", **SCOPE, "namespace": ["teas"], "key": "tea", "value": 1}, lambda value: value),
    "SettingRecord": ({"type": "setting", "user_id": "ana", "name": "top_k", "value": 3}, lambda value: value),
    "KeyRecord": ({"type": "key", "id": "0a1b2c3d", "role": "app"}, lambda value: value),
    "Event": (EVENT, lambda value: in_memory(events=[value])),
    "PreviousState": (STATE, lambda value: in_memory(events=[{**EVENT, "previous_state": value}])),
    "MessageRecognition": ({}, lambda value: in_memory(recognition=value)),
    "Mention": ({"key": "tea"}, lambda value: in_memory(mentions=[value])),
    "Statement": (
        {"subject": "tea", "predicate": "be in", "object": "pot", "fact": "Tea is in the pot"},
        lambda value: in_memory(statements=[value]),
    ),
    "Held": (
        {"forgotten": 4, "memories": 8},
        lambda value: {"type": "cycle", **SCOPE, "ended_at": 0, "held": value},
    ),
    "Attachment": (
        {"kind": "image", "ref": "x"},
        lambda value: in_memory(
            events=[
                {
                    "id": "e",
                    "event": "UPDATE",
                    "at": 0,
                    "previous_state": {"text": "Tea", "at": 0, "attachments": [value]},
                }
            ]
        ),
    ),
    "AttachmentWithData": ({"kind": "image", "ref": "x"}, lambda value: in_memory(attachments=[value])),
    "Vitals": ({}, lambda value: in_memory(vitals=value)),
    "MemoryLink": ({"kind": "drawn_from", "memory": UID}, lambda value: in_memory(links=[value])),
}
ALL_FIELDS = {name for definition in DEFINITIONS.values() for name in definition.get("properties", ())} | {
    "other_field"
}


def refusal(record: Record) -> str:
    """The reader's error for a record, "" for none."""
    reader = RecordReader(
        ImportTarget(Digests("a-ledger", bytes(32)), EmbeddingSpec("hash-64", 64)), datetime(2024, 6, 1, tzinfo=UTC)
    )
    try:
        reader.command(record)
    except ValidationError as error:
        return str(error)
    return ""


def is_valid(record: Record) -> bool:
    try:
        ADAPTER.validate_python(record)
    except pydantic.ValidationError:
        return False
    return True


def test_kinds_of_mentions_are_those_of_the_model() -> None:
    assert set(get_args(MentionKindName)) == set(MENTION_KINDS)


def test_all_objects_are_probed() -> None:
    """Except the trailer, which is compared byte by byte, and embeddings, whose fields are named after the model's
    forms.
    """
    with_fields = {name for name, definition in DEFINITIONS.items() if "properties" in definition}
    assert with_fields == {*OBJECTS, "EndRecord", "Embeddings"}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_reader_accepts_the_declared_fields_and_no_others(name: str) -> None:
    least, holding = OBJECTS[name]
    accepted = {
        field for field in ALL_FIELDS if "is not a field" not in refusal(holding({**least, field: None}))
    }  # a field that is null is still a field
    assert accepted == set(DEFINITIONS[name]["properties"])
    assert not is_valid(holding({**least, "other_field": None}))


@pytest.mark.parametrize("name", OBJECTS)
def test_the_reader_requires_the_declared_fields_and_no_others(name: str) -> None:
    least, holding = OBJECTS[name]
    assert refusal(holding(least)) == ""
    assert is_valid(holding(least))
    required = set(DEFINITIONS[name].get("required", ()))
    assert required <= set(least)
    for field in least:
        record = holding({other: value for other, value in least.items() if other != field})
        assert refusal(record) != ""
        assert is_valid(record) == (field not in required)  # a scope id and a link's end: one of several is required


@pytest.mark.parametrize("name", OBJECTS)
def test_every_field_that_is_not_required_may_be_null(name: str) -> None:
    least, holding = OBJECTS[name]
    optional = {field: None for field in DEFINITIONS[name]["properties"] if field not in least}
    assert refusal(holding({**least, **optional})) == ""
    assert is_valid(holding({**least, **optional}))
