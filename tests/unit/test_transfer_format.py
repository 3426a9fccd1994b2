"""The export format: written records are read back unchanged; anything else is refused with its field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmem import Memory, Settings, wiring
from graphmem.commands.types import ImportAlias, ImportEntityName, ImportLink, ImportMemory, ImportTombstone
from graphmem.digests import Digests
from graphmem.errors import ValidationError
from graphmem.model import EmbeddingSpec, Kind, MentionKind, Message, Scope
from graphmem.testing import HashEmbedder, WordExtractor
from graphmem.transfer import jsonl, serialization
from graphmem.transfer.exporter import export_records
from graphmem.transfer.format import FORMAT, ImportTarget, RecordReader

NOW = datetime(2024, 6, 1, tzinfo=UTC)
DIGESTS = Digests("a-ledger", bytes(32))
TARGET = ImportTarget(DIGESTS, EmbeddingSpec("hash-64", 64, "tokens-64", 64))
UID = "6a8a1a2e-6d7d-4b62-8f0e-0d6c35c0f7e1"
OTHER = "11111111-2222-4333-8444-555555555555"
MINIMAL = {"type": "memory", "id": UID, "agent_id": "helper", "text": "Tea is ready", "at": "2024-01-01T10:00:00Z"}


def read_record(record: dict[str, Any], **more: Any) -> Any:
    return RecordReader(TARGET, NOW, **more).command(record)


@pytest.fixture(scope="module")
def records() -> Iterator[list[dict[str, Any]]]:
    """Exported records of every type."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "_embedder", lambda _: HashEmbedder(64))
        patch.setattr(wiring, "_extractor", lambda _: WordExtractor())
        with Memory(":memory:", settings=Settings()) as memory:
            ids = [
                one["id"]
                for one in memory.add(["Anna met Bob in Rome", "Bob left", "gone"], user_id="u", timestamp=NOW)[
                    "results"
                ]
            ]
            memory.update(ids[0], "Anna Berg met Bob", metadata={"a": [1]}, expiration_date="2030-01-01")
            memory.delete(ids[2])
            memory.alias("bob", "anna berg", user_id="u")
            memory.rename_entity("bob", "Robert", user_id="u")
            exported_records: list[dict[str, Any]] = []
            export_records(memory.engine.ledger, None, exported_records.append, None)
            yield exported_records


def test_a_minimal_record_gets_the_defaults_of_a_new_message() -> None:
    command = read_record(MINIMAL)
    record = command.record
    assert (record.id, record.scope, record.partition) == (UID, Scope(agent_id="helper"), "agent:helper")
    assert (record.kind, record.version, record.session, record.speaker) == (Kind.EPISODE, 1, "", None)
    assert record.at == record.valid_from == datetime(2024, 1, 1, 10, tzinfo=UTC)
    assert record.created_at == record.updated_at == NOW
    assert (command.key, command.events, command.links, command.extraction, command.embedded) == (
        None, (), (), None, None,
    )  # fmt: skip


def test_a_missing_speaker_is_derived_as_in_add() -> None:
    assert read_record({**MINIMAL, "role": "assistant"}).record.speaker == "Helper"
    assert read_record({**MINIMAL, "actor_id": "Tom"}).record.speaker == "Tom"
    assert read_record({**MINIMAL, "actor_id": "Tom", "speaker": None}).record.speaker is None
    assert read_record({**MINIMAL, "role": "assistant", "kind": "fact"}).record.speaker is None


def test_links_are_read_in_both_directions() -> None:
    links = [{"kind": "drawn_from", "memory": OTHER}, {"kind": "replaces", "by": OTHER}]
    assert read_record({**MINIMAL, "links": links}).links == (
        ImportLink("drawn_from", OTHER),
        ImportLink("replaces", OTHER, is_incoming=True),
    )


def test_mentions_need_a_key_only() -> None:
    mentions = [{"key": "tea"}, {"key": "bergen", "name": "Bergen", "type": "Place", "kind": "title"}]
    tea, bergen = read_record({**MINIMAL, "mentions": mentions}).extraction.mentions
    assert (tea.name, tea.type, tea.kind) == ("tea", "Other", MentionKind.NAME)
    assert (bergen.name, bergen.type, bergen.kind) == ("Bergen", "Place", MentionKind.TITLE)


def test_message_keys_are_computed_for_the_importing_ledger() -> None:
    scope = Scope(agent_id="helper")
    by_id = read_record({**MINIMAL, "message_id": "m"})
    assert by_id.key == DIGESTS.key_by_id("m", scope)
    assert by_id.content_digest == DIGESTS.content_digest("Tea is ready")
    message = Message("user", "Tea was ready", datetime(2024, 1, 1, 10, tzinfo=UTC))
    events = [{"id": "e", "event": "ADD", "new_memory": message.content, "at": 0}]
    record = {**MINIMAL, "role": "user", "events": events, "recognition": {"key": "theirs", "ordinal": 3}}
    command = read_record(record)
    assert command.key == DIGESTS.key_by_content(message, scope, 3)
    assert DIGESTS.ordinal_of(command.key, message, scope, 5) == 3
    assert DIGESTS.ordinal_of(command.key, message, scope, 2) is None
    assert command.content_digest == DIGESTS.content_digest(message.content)


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ({"ledger": "a-ledger", "secret": DIGESTS.id}, "theirs"),
        ({"ledger": "a-ledger"}, None),
        ({"ledger": "a-ledger", "secret": "another"}, None),
        ({"ledger": "another", "secret": DIGESTS.id}, None),
        ({}, None),
    ],
)
def test_message_keys_count_only_in_their_own_ledger_with_their_secret(header: dict[str, str], key: str | None) -> None:
    reader = RecordReader(TARGET, NOW)
    reader.command({"type": "graphmem", "format": 1, **header})
    assert reader.command({**MINIMAL, "recognition": {"key": "theirs", "ordinal": None}}).key == key
    tombstone = {"type": "erased", "id": UID, "user_id": "u", "at": 0, "keys": ["theirs"]}
    assert reader.command(tombstone).keys == (() if key is None else (key,))


def test_embeddings_of_another_model_are_ignored(records: list[dict[str, Any]]) -> None:
    memory = next(one for one in records if one["type"] == "memory")
    assert read_record(memory).embedded is not None
    assert read_record({**memory, "embeddings": {**memory["embeddings"], "model": "other"}}).embedded is None
    embeddings = {name: value for name, value in memory["embeddings"].items() if name != "tokens-64"}
    assert read_record({**memory, "embeddings": embeddings}).embedded is None
    command = RecordReader(ImportTarget(DIGESTS, EmbeddingSpec("hash-64", 64)), NOW).command(
        {**memory, "embeddings": embeddings}
    )
    assert command.embedded.vectors.shape == (1, 64)


def test_each_type_of_record_becomes_its_command(records: list[dict[str, Any]]) -> None:
    kinds = {
        "graphmem": type(None),
        "memory": ImportMemory,
        "erased": ImportTombstone,
        "alias": ImportAlias,
        "name": ImportEntityName,
    }
    assert {one["type"] for one in records} == kinds.keys()
    assert records[0]["format"] == FORMAT
    for record in records:
        assert isinstance(read_record(json.loads(json.dumps(record))), kinds[record["type"]])


def test_tombstones_contain_no_texts(records: list[dict[str, Any]]) -> None:
    (tombstone,) = [one for one in records if one["type"] == "erased"]
    assert "gone" not in json.dumps(tombstone)
    tombstone_with_texts = {
        **tombstone,
        "events": [{**tombstone["events"][0], "new_memory": "words", "reason": "words"}],
    }
    assert "words" not in repr(read_record(tombstone_with_texts))
    assert read_record(tombstone).keys == ()  # keys of another ledger do not count


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from([UID, "u", "ADD"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from list_paths(inner, (*path, name))


def replace_at(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = replace_at(value[path[0]], path[1:], new)
    return copied


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_in_any_field_is_read_or_refused(records: list[dict[str, Any]], data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(records))
    path = data.draw(st.sampled_from(sorted(list_paths(record), key=repr)))
    new = data.draw(JSON)
    try:
        read_record(replace_at(record, path, new))
    except ValidationError as error:
        assert len(str(error)) < 600


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    lines = iter([data, b""])
    with pytest.raises(ValidationError, match="line 1"):
        list(jsonl.read_records(lambda _: next(lines)))


def test_written_records_pass_the_trailer_check(records: list[dict[str, Any]]) -> None:
    lines: list[bytes] = []
    writer = jsonl.JsonlWriter(lines.append)
    for record in records:
        writer.write(record)
    assert writer.close() == {
        "memories": 2,
        "erased": 1,
        "aliases": 1,
        "names": 1,
        "items": 0,
        "settings": 0,
        "keys": 0,
    }
    assert list(jsonl.read_records(lambda _, rest=iter([*lines, b""]): next(rest))) == records
    assert json.loads(lines[-1])["type"] == "end"


def test_times_are_written_with_microseconds(records: list[dict[str, Any]]) -> None:
    memory = next(one for one in records if one["type"] == "memory")
    assert memory["at"] == "2024-06-01T00:00:00.000000+00:00"
    assert read_record(memory).record.at == NOW
    header = serialization.header(DIGESTS, None, None, NOW + timedelta(microseconds=1))
    assert header["exported_at"] == "2024-06-01T00:00:00.000001+00:00"
