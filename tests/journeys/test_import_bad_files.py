"""Imports of truncated, altered, foreign and malicious files are refused with reasons; failed exports leave no file."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from support.databases import SQLITE_ONLY
from support.fakes import fake_models
from support.ledger_snapshot import contents, exported, same

from graphmem import Memory, Settings, atomic_files
from graphmem.boundary.validation import MAX_DOCUMENT_DEPTH
from graphmem.commands.types import RetireMemory
from graphmem.errors import StoreError, ValidationError
from graphmem.transfer import jsonl
from graphmem.transfer.importer import import_records

Make = Callable[..., Memory]


@pytest.fixture
def small_export(make: Make, tmp_path: Path) -> tuple[Memory, bytes]:
    memory = make()
    uid = memory.add(["Anna works at Siemens", "Bob met Carl"], user_id="u")["results"][0]["id"]
    memory.delete(memory.add("gone", user_id="u")["results"][0]["id"])
    memory.update(uid, "Anna left Siemens")
    memory.export(tmp_path / "small")
    return make(), (tmp_path / "small").read_bytes()


def expect_refusal(memory: Memory, path: Path, data: bytes) -> str:
    """Imports a file, which must be refused as a whole. Returns the error's message."""
    path.write_bytes(data)
    with pytest.raises(ValidationError) as error:
        memory.import_(path)
    assert contents(memory)["order"] == contents(memory)["tombstones"] == []
    assert "nothing was imported" in str(error.value)
    return str(error.value)


@SQLITE_ONLY
def test_a_file_cut_off_anywhere_is_refused(small_export: tuple[Memory, bytes], tmp_path: Path) -> None:
    memory, data = small_export
    ends = [index for index, byte in enumerate(data) if byte == 10]
    places = {0, 1, 100, *ends, *(end + 1 for end in ends[:-1]), len(data) // 2, len(data) - 2, len(data) - 1}
    for place in sorted(places - {len(data)}):
        message = expect_refusal(memory, tmp_path / "cut", data[:place])
        assert "altered" not in message
        assert ("not a whole one" if 0 < place < ends[0] else "cut off") in message, (place, message)
        assert ("`graphmem import -`" in message) == (place >= ends[0]), (
            "only a stream whose first line is whole can be imported in part"
        )


@SQLITE_ONLY
def test_a_file_with_one_altered_byte_is_refused(small_export: tuple[Memory, bytes], tmp_path: Path) -> None:
    memory, data = small_export
    for place in [*range(0, len(data), max(1, len(data) // 60)), *range(len(data) - 90, len(data))]:
        altered_data = bytearray(data)
        altered_data[place] ^= 1
        expect_refusal(memory, tmp_path / "altered", bytes(altered_data))


@SQLITE_ONLY
def test_extra_and_missing_lines_are_refused(small_export: tuple[Memory, bytes], tmp_path: Path) -> None:
    memory, data = small_export
    lines = data.splitlines(keepends=True)
    expect_refusal(memory, tmp_path / "x", b"".join([*lines[:1], *lines[2:]]))
    end = len(lines)
    for more in (lines[1], data, b"\n"):
        message = expect_refusal(memory, tmp_path / "x", data + more)
        assert f"line {end + 1}: stands behind the end of the export, which is line {end}; remove what" in message
        assert "altered" not in message
    expect_refusal(memory, tmp_path / "x", b"".join(lines[1:]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1"),
        (b"\n", "line 1: is not JSON"),
        (b"\x00\xff\xfe garbage", "line 1: is not JSON"),
        (b"[1, 2]\n", "line 1: is no JSON object"),
        (b"[" * 50_000, "line 1: is not JSON"),
        (b'{"type": "memory"}\n', "line 1: is not"),
        (b'{"type": "graphmem"}\n', "format: is missing"),
        (b'{"type": "graphmem", "format": "1"}\n', "format='1'"),
        (b'{"type": "graphmem", "format": true}\n', "format=True"),
        (b'{"type": "graphmem", "format": NaN}\n', "line 1: is not JSON"),
        (b'{"type": "graphmem", "format": 99, "graphmem": "9.0"}\n', "format=99: written by graphmem 9.0; this one"),
        (b"x" * 70_000, "line 1: is longer"),
        *(
            (
                data,
                "by `graphmem migrate jsonl`, chats of other programs by `graphmem import chatgpt|claude|",
            )
            for data in (b"Ana: Hi.\n", b'[{"role": "user"}]', b'{"role": "user"}\n', b"[" + b" " * 70_000)
        ),
        (b"SQLite format 3\0\x10\n", "put it into a folder as ledger.sqlite"),
        (gzip.compress(b"{}", mtime=0), "is compressed; unpack it"),
        (b"PK\x03\x04", "is a zip file; `graphmem import chatgpt`"),
        (b'[{"title": "a", "mapping": {}}]', "is an export of ChatGPT; import it with `graphmem import chatgpt`"),
        (b"24.12.23, 21:15 - Ana: Hi\n", "is a chat of WhatsApp; import it with `graphmem import whatsapp`"),
    ],
)
@SQLITE_ONLY
def test_other_files_are_refused(make: Make, tmp_path: Path, data: bytes, message: str) -> None:
    assert message in expect_refusal(make(), tmp_path / "x", data)


@SQLITE_ONLY
def test_the_length_of_a_line_is_limited(
    small_export: tuple[Memory, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, data = small_export
    monkeypatch.setattr(jsonl, "MAX_LINE", 500)
    assert "line 2: is longer than 500 bytes" in expect_refusal(memory, tmp_path / "x", data)
    memory.add("tea " * 300, user_id="u")
    with pytest.raises(StoreError, match="nothing was exported"):
        memory.export(tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_a_stream_is_imported_up_to_its_first_bad_line_which_is_named(make: Make) -> None:
    memory = make()
    memory.add([f"Nr{n} met Nr{n + 1}" for n in range(15)], user_id="u")
    file = io.BytesIO()
    memory.export(file)
    lines = file.getvalue().splitlines(keepends=True)
    target = make()
    advice = r"\. The file itself is bad: copy or export it again, and import that; the memories added so far stay"
    with pytest.raises(
        ValidationError, match=f"line 8: the end is missing.* before that 6 memories were added{advice}"
    ):
        target.import_(io.BytesIO(b"".join(lines[:7])))
    assert contents(target)["order"] == contents(memory)["order"][:6]
    progress = r"before that 4 memories were added \(6 known already\)"
    with pytest.raises(ValidationError, match=f"line 12: breaks off; the file was cut off; {progress}{advice}"):
        target.import_(io.BytesIO(b"".join(lines[:11]) + lines[11][:50]))
    with pytest.raises(ValidationError, match="altered"):
        target.import_(io.BytesIO(b"".join([*lines[:5], *lines[6:]])))
    target = make()
    with pytest.raises(ValidationError):
        target.import_(io.BytesIO(b"".join(lines[:11])))
    target.import_(io.BytesIO(file.getvalue()))
    same(memory, target)
    with pytest.raises(ValidationError, match="stands behind the end"):
        make().import_(io.BytesIO(file.getvalue() * 2))


@SQLITE_ONLY
def test_errors_of_other_files_say_that_nothing_was_imported(make: Make) -> None:
    for data in (b"Dear diary,\n", b"{}\n", b"", b"PK\x03\x04"):
        with pytest.raises(ValidationError, match="; nothing was imported$"):
            make().import_(io.BytesIO(data))


@SQLITE_ONLY
def test_a_compressed_file_that_is_cut_off_is_refused(small_export: tuple[Memory, bytes]) -> None:
    memory, data = small_export
    truncated_data = gzip.compress(data, mtime=0)[:-30]
    with pytest.raises(ValidationError, match="breaks off; the file was cut off"):
        memory.import_(gzip.open(io.BytesIO(truncated_data)))


MEMORY: dict[str, Any] = {
    "type": "memory", "id": "6a8a1a2e-6d7d-4b62-8f0e-0d6c35c0f7e1", "user_id": "u", "text": "tea", "at": "2024-01-01"
}  # fmt: skip
EVENT = {"id": "e", "event": "ADD", "at": "2024-01-01"}
NAN_VECTOR = b64encode(np.full(64, np.nan, np.float32).tobytes()).decode()
HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"type": "secret"}, "type"),
    ({"type": ["memory"]}, "type"),
    ({"type": None}, "type"),
    ({"id": None}, "id: is missing"),
    ({"id": "x"}, "id="),
    ({"id": MEMORY["id"].upper()}, "id="),
    ({"id": 7}, "id="),
    ({"user_id": None}, "user_id"),
    ({"user_id": "*"}, "user_id"),
    ({"user_id": {"a": 1}}, "user_id"),
    ({"text": ""}, "text"),
    ({"text": 7}, "text"),
    ({"text": "a\x00b"}, "text"),
    ({"text": "\ud800"}, "text"),
    ({"text": "x" * 1_000_001}, "text"),
    ({"at": "soon"}, "at="),
    ({"at": 1e300}, "at="),
    ({"at": None}, "at: is missing"),
    ({"valid_to": "never"}, "valid_to"),
    ({"valid_to": "2023-12-31"}, "valid_to='2023-12-31': is before valid_from"),
    ({"valid_from": "2025-01-02", "valid_to": "2025-01-01"}, "valid_to='2025-01-01': is before valid_from"),
    ({"kind": "dream"}, "kind"),
    ({"role": "system"}, "role"),
    ({"memory_type": "x"}, "memory_type"),
    ({"metadata": [1]}, "metadata"),
    ({"metadata": {"a": "\x00"}}, "metadata.a"),
    ({"metadata": {"a": 2**2000}}, "metadata.a"),
    ({"version": 0}, "version"),
    ({"version": 2**40}, "version"),
    ({"session": "a\nb"}, "session"),
    ({"source_only": 1}, "source_only"),
    ({"tags": ["x"]}, "tags"),
    ({"recognition": {"ordinal": 0}}, "recognition.ordinal"),
    ({"recognition": "x"}, "recognition"),
    ({"recognition": {"ordinal": 1, "x": 1}}, "recognition.'x'"),
    ({"events": {}}, "events"),
    ({"events": [7]}, "events[0]"),
    ({"events": [{**EVENT, "event": "DROP"}]}, "events[0].event"),
    ({"events": [{**EVENT, "at": None}]}, "events[0].at"),
    ({"events": [EVENT, {**EVENT, "previous_state": {"text": "x"}}]}, "events[1].previous_state.at"),
    (
        {"events": [{**EVENT, "previous_state": {"text": "x", "at": 0, "user_id": "v"}}]},
        "events[0].previous_state.'user_id'",
    ),
    ({"links": [{"kind": "eats", "memory": MEMORY["id"]}]}, "links[0].kind"),
    ({"links": [{"kind": "replaces"}]}, "links[0].memory"),
    ({"links": [{"kind": "replaces", "memory": MEMORY["id"], "by": MEMORY["id"]}]}, "links[0]: has both memory and by"),
    ({"answer_types": 128}, "answer_types"),
    ({"mentions": "x"}, "mentions"),
    ({"mentions": [{"key": ""}]}, "mentions[0].key"),
    ({"mentions": [{"key": "x" * 513}]}, "mentions[0].key"),
    ({"mentions": [{"key": "a"}, {"key": "a"}]}, "mentions"),
    ({"mentions": [{"key": "a", "type": "God"}]}, "mentions[0].type"),
    ({"mentions": [{"key": "a", "kind": 1}]}, "mentions[0].kind"),
    ({"statements": [{"subject": "a", "predicate": "p", "object": "b", "fact": "f"}]}, "statements"),
    (
        {
            "mentions": [{"key": "a"}],
            "statements": [{"subject": "a", "predicate": "p", "object": "a", "fact": "f", "confidence": 2}],
        },
        "statements[0].confidence",
    ),
    ({"embeddings": []}, "embeddings"),
    ({"embeddings": {"model": "hash-64", "vector": ["AAAA"], "tokens-64": [""]}}, "embeddings.vector[0]"),
    ({"embeddings": {"model": "hash-64", "vector": ["?"], "tokens-64": [""]}}, "embeddings.vector[0]"),
    ({"embeddings": {"model": "hash-64", "vector": [7], "tokens-64": [""]}}, "embeddings.vector[0]"),
    ({"embeddings": {"model": "hash-64", "vector": [NAN_VECTOR], "tokens-64": [""]}}, "embeddings.vector[0]"),
    ({"embeddings": {"model": "hash-64", "vector": [], "tokens-64": [""]}}, "embeddings"),
]  # fmt: skip


def test_hostile_records_are_refused_by_line_and_field(make: Make) -> None:
    memory = make()
    ids = []
    for change, expected in HOSTILE:
        good = {**MEMORY, "id": str(uuid4())}
        with pytest.raises(ValidationError) as error:
            import_records(memory.engine, [good, {**MEMORY, **change}, good], record_name="line")
        ids.append(good["id"])
        message = str(error.value)
        assert message.startswith("line 2: "), message
        assert expected in message, message
        assert "; before that 1 memory was added. The file itself is bad" in message
        assert len(message) < 500
    assert contents(memory)["order"] == ids


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"type": "alias", "user_id": "u", "key": "a", "other": "a"}, "other"),
        ({"type": "alias", "user_id": "u", "key": "a", "other": "b", "origin": "magic"}, "origin"),
        ({"type": "alias", "key": "a", "other": "b"}, "user_id"),
        ({"type": "name", "user_id": "u", "key": "a", "name": ""}, "name"),
        ({"type": "erased", "id": "x", "user_id": "u", "at": 0}, "id"),
        ({"type": "erased", "id": str(uuid4()), "user_id": "u"}, "at"),
        ({"type": "erased", "id": str(uuid4()), "user_id": "u", "at": 0, "keys": [1]}, "keys[0]"),
        ("tea", "record"),
    ],
)
def test_other_hostile_records_are_refused(make: Make, record: Any, message: str) -> None:
    memory = make()
    with pytest.raises(ValidationError, match=message.replace("[", r"\[")):
        import_records(memory.engine, [record])


@pytest.mark.thorough
def test_records_at_the_limits_can_be_stored(make: Make) -> None:
    """In every database: a record that is accepted must not fail when it is written."""
    memory = make()
    deep: Any = 2**1023
    for _ in range(MAX_DOCUMENT_DEPTH - 1):  # the metadata are the first level
        deep = [deep]
    long, name, last = "\U0001f600" * 512, "\U0001f600" * 256, "9999-12-31T23:59:59.999999Z"
    times = dict.fromkeys(("at", "valid_from", "valid_to", "expires_at", "created_at", "updated_at"), last)
    state = {
        "text": "x" * 1_000_000, **times, "memory_type": "semantic", "metadata": {"a": deep, "b": -1e308},
        "speaker": name, "actor_id": name, "role": "tool", "message_id": name, "session": name, "version": 2**31 - 1,
    }  # fmt: skip
    earlier_state = {**state, "at": "0001-01-01"}
    event = {"id": name, "event": "UPDATE", "at": "0001-01-01", "previous_state": earlier_state, "reason": "x" * 9999}
    mentions = [{"key": long, "name": "x" * 9999, "type": "Time", "kind": "common_noun"}, {"key": "a"}]
    statement = {"subject": long, "predicate": long, "object": "a", "fact": "x" * 99_999, "confidence": 0}
    record = {
        "type": "memory", "id": str(uuid4()), "user_id": name, "agent_id": name, "run_id": name, **state,
        "answer_types": 127, "events": [event], "mentions": mentions, "statements": [statement],
        "recognition": {"ordinal": 10_000, "key": name},
    }  # fmt: skip
    smallest_record = {**MEMORY, "user_id": name, "at": "0001-01-01", "mentions": [{"key": "a"}]}
    records = [
        {"type": "alias", "user_id": name, "key": long, "other": "a", "at": last},
        {"type": "name", "user_id": name, "key": "a", "name": name, "at": "0001-01-01"},
        {"type": "erased", "id": str(uuid4()), "user_id": name, "at": last, "events": [event], "keys": [name]},
    ]
    assert import_records(memory.engine, [record, smallest_record, *records])["added"] == 2
    assert memory.verify()["ok"]
    copy = make()
    import_records(copy.engine, exported(memory))
    same(memory, copy)


@SQLITE_ONLY
def test_errors_of_converted_records_advise_to_correct_the_record(make: Make) -> None:
    with pytest.raises(ValidationError, match="record 2: .*before that 1 memory was added. Correct that record, and"):
        make().import_([MEMORY, {**MEMORY, "text": ""}])


def test_a_memory_that_ended_when_it_began_is_imported(make: Make) -> None:
    memory = make()
    memory.import_([{**MEMORY, "valid_from": "2024-05-01", "valid_to": "2024-05-01"}])
    assert memory.get(MEMORY["id"])["valid_to"][:10] == "2024-05-01"


@SQLITE_ONLY
def test_a_memory_cannot_be_retired_before_it_begins(make: Make) -> None:
    """Otherwise its export could not be imported."""
    memory = make()
    memory.import_([{**MEMORY, "valid_from": "2025-01-01"}])
    outcome = memory.engine.commit([RetireMemory(MEMORY["id"], datetime(2024, 6, 1, tzinfo=UTC), "moved")])[0]
    assert (outcome.event, memory.get(MEMORY["id"])["valid_to"]) == ("NONE", None)


def test_a_record_twice_in_one_file_is_imported_once(make: Make) -> None:
    memory = make()
    first = {**MEMORY, "events": [EVENT, EVENT]}
    second = {**MEMORY, "id": str(uuid4()), "events": [EVENT]}
    report = import_records(memory.engine, [first, first, second])
    assert (report["added"], report["known"]) == (2, 1)
    assert [len(memory.history(one["id"])) for one in (first, second)] == [2, 1]


@pytest.mark.parametrize("bad", [None, 7, "", "a\0b", object(), b"x"])
@SQLITE_ONLY
def test_arguments_that_are_no_files_are_refused(memory: Memory, bad: Any) -> None:
    for call in (memory.export, memory.import_):
        with pytest.raises(ValidationError, match="path"):
            call(bad)
    with pytest.raises(ValidationError, match="progress"):
        memory.export(io.BytesIO(), progress="x")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="restore"):
        memory.import_(io.BytesIO(), restore=1)  # type: ignore[arg-type]


@SQLITE_ONLY
def test_unusable_files_are_reported(memory: Memory, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        memory.import_(tmp_path / "none")
    with pytest.raises(StoreError, match="No such file"):
        memory.export(tmp_path / "none" / "x")
    with pytest.raises(StoreError, match="is no file"):
        memory.export(tmp_path)
    file = io.BytesIO()
    file.close()
    with pytest.raises(ValidationError, match="open file"):
        memory.export(file)


@SQLITE_ONLY
def test_a_failed_export_leaves_the_old_file_and_no_other(memory: Memory, tmp_path: Path) -> None:
    memory.add("tea", user_id="u")
    path = tmp_path / "x"
    path.write_text("old")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.export(path, progress=stop)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["x"])
    memory.export(path)
    assert path.read_text() != "old"


KILLED_EXPORT = """
import os, signal, sys
from support.fakes import fake_models
from graphmem import Memory, Settings
with Memory(sys.argv[1], settings=Settings.from_dict(fake_models())) as memory:
    memory.add("tea", user_id="u")
    memory.export(sys.argv[2], progress=lambda *_: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="no files without a name here")
def test_a_killed_export_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out" / "x"
    target.parent.mkdir()
    target.write_text("old")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.run(
        [sys.executable, "-c", KILLED_EXPORT, str(tmp_path / "home"), str(target)], env=environment
    )
    assert process.returncode == -9
    assert (target.read_text(), os.listdir(target.parent)) == ("old", ["x"])


@SQLITE_ONLY
def test_without_unnamed_files_a_failed_export_leaves_the_old_file(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_files, "_UNNAMED", 0)
    test_a_failed_export_leaves_the_old_file_and_no_other(memory, tmp_path)


KILLED_BETWEEN_LINKS = """
import os, sys
from pathlib import Path
from graphmem import atomic_files
link = atomic_files._link
def once(descriptor, path):
    link(descriptor, path)
    if path.name.startswith("."):
        os._exit(9)
atomic_files._link = once
with atomic_files.replace_file(Path(sys.argv[1])) as write:
    write(b"new")
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="no files without a name here")
@SQLITE_ONLY
def test_the_next_export_removes_the_temporary_file_of_a_killed_one(memory: Memory, tmp_path: Path) -> None:
    memory.add("tea", user_id="u")
    memory.export(tmp_path / "x")
    assert subprocess.run([sys.executable, "-c", KILLED_BETWEEN_LINKS, str(tmp_path / "x")]).returncode == 9
    assert len(os.listdir(tmp_path)) == 2
    memory.export(tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]


@SQLITE_ONLY
def test_exports_through_links_and_into_the_memorys_folder_are_refused(make: Make, tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "file"
    memory = make(home)
    memory.add("tea", user_id="u")
    file.write_text("old")
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "loose").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").symlink_to(home)
    for link in ("link", "loose"):
        with pytest.raises(StoreError, match="is a link; name the file itself"):
            memory.export(tmp_path / link)
    for inside in ("home/export", "home/ledger.sqlite", "home/secret.key", "folder/export", "home/../folder/x"):
        with pytest.raises(StoreError, match="where the memories themselves are kept"):
            memory.export(tmp_path / inside)
    assert (file.read_text(), (tmp_path / "nowhere").exists(), (home / "export").exists()) == ("old", False, False)
    assert memory.verify()["ok"]


def test_a_ledger_elsewhere_is_not_overwritten(tmp_path: Path) -> None:
    ledger = tmp_path / "data" / "mine.sqlite"
    with Memory(tmp_path / "home", settings=Settings.from_dict(fake_models(history_db_path=str(ledger)))) as memory:
        for name in ("mine.sqlite", "mine.sqlite-wal", "secret.key"):
            with pytest.raises(StoreError, match="where the memories themselves are kept"):
                memory.export(ledger.with_name(name))
        memory.export(ledger.with_name("export"))
        assert memory.verify()["ok"]


@SQLITE_ONLY
def test_an_export_has_no_control_characters(make: Make) -> None:
    memory, copy = make(), make()
    text = "tea \x9b31m and \x85\x7f\x1b[1m cake"
    memory.add(text, user_id="u")
    memory.export(file := io.BytesIO())
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", file.getvalue().decode())
    file.seek(0)
    copy.import_(file)
    assert copy.get_all(user_id="u")["results"][0]["memory"] == text


@SQLITE_ONLY
def test_a_full_disk_is_reported(memory: Memory) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    memory.add("tea", user_id="u")
    with open("/dev/full", "wb", buffering=0) as device, pytest.raises(StoreError, match="No space left"):
        memory.export(device)
