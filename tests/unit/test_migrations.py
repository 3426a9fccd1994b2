"""Which files the ledger opens, and which it refuses."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.newer_schema import REVISION, use_newer_schema

from graphmem.errors import StoreError, StoreUnavailable
from graphmem.model import Scope
from graphmem.stores.ledger import Ledger, integrity, jobs, schema


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def run_sql(path: Path, *statements: str) -> list[Any]:
    connection = sqlite3.connect(path)
    with connection:
        rows = [row for statement in statements for row in connection.execute(statement)]
    connection.close()
    return rows


def write_mem0_history(path: Path) -> None:
    run_sql(
        path,
        "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT, "
        "created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)",
        "INSERT INTO history VALUES ('1', '2', NULL, 'likes tea', 'ADD', NULL, NULL, 0, NULL, NULL)",
    )


def test_a_new_file_gets_the_schema_of_this_code(path: Path) -> None:
    Ledger(path).close()
    assert run_sql(path, "SELECT version_num FROM alembic_version") == [(schema.REVISION,)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_ledger_keeps_its_identity(path: Path) -> None:
    first = Ledger(path)
    first.close()
    again = Ledger(path)
    assert again.uuid == first.uuid
    again.close()


def test_an_empty_file_becomes_a_ledger(path: Path) -> None:
    path.touch()
    Ledger(path).close()
    assert run_sql(path, "SELECT count(*) FROM memories") == [(0,)]


@pytest.mark.parametrize(("revision", "advice"), [("9999", "newer.*upgrade"), ("0001", "older.*export.*import")])
def test_another_schema_is_refused_with_advice(path: Path, revision: str, advice: str) -> None:
    Ledger(path).close()
    run_sql(path, f"UPDATE alembic_version SET version_num = '{revision}'")
    with pytest.raises(StoreError, match=f"{revision}.*{advice}"):
        Ledger(path)
    assert run_sql(path, "SELECT version_num FROM alembic_version") == [(revision,)]


def test_a_schema_without_a_version_is_damage(path: Path) -> None:
    Ledger(path).close()
    run_sql(path, "DELETE FROM alembic_version")
    with pytest.raises(StoreUnavailable, match=r"its schema has no version\): it is damaged.*backup"):
        Ledger(path)


def test_a_refused_newer_file_opens_once_its_revision_matches(path: Path) -> None:
    first = Ledger(path)
    first.close()
    run_sql(path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError):
        Ledger(path)
    run_sql(path, f"UPDATE alembic_version SET version_num = '{schema.REVISION}'")
    again = Ledger(path)
    assert again.uuid == first.uuid
    again.close()


def test_an_older_schema_is_migrated_with_its_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Ledger(path)
    first.close()
    run_sql(path, "UPDATE ledger SET seq = 7")
    use_newer_schema(monkeypatch, path.parent)
    again = Ledger(path)
    again.close()
    assert again.uuid == first.uuid
    assert run_sql(path, "SELECT version_num FROM alembic_version") == [(REVISION,)]
    assert run_sql(path, "SELECT seq FROM ledger") == [(7,)]
    assert run_sql(path, "SELECT * FROM lengths") == []


def test_the_id_of_a_completed_job_is_not_given_again(path: Path) -> None:
    ledger = Ledger(path)
    job = jobs.Job(jobs.JobKind.FACTS, Scope("ana"), "s")
    with ledger.write() as connection:
        first = jobs.enqueue(connection, job).row
        assert jobs.complete(connection, first)
    with ledger.write() as connection:
        integrity.wipe(connection)
        assert jobs.enqueue(connection, job).row > first
    ledger.close()


def test_a_ledger_without_its_version_is_refused(path: Path) -> None:
    Ledger(path).close()
    run_sql(path, "DELETE FROM alembic_version")
    with pytest.raises(StoreError):
        Ledger(path)


def test_mem0s_history_is_refused(path: Path) -> None:
    write_mem0_history(path)
    with pytest.raises(StoreError, match="mem0"):
        Ledger(path)
    assert run_sql(path, "SELECT new_memory FROM history") == [("likes tea",)]


@pytest.mark.parametrize("make", [write_mem0_history, lambda path: run_sql(path, "CREATE TABLE mine (x)")])
def test_a_foreign_file_is_left_as_it_is(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    before = path.read_bytes()
    with pytest.raises(StoreError):
        Ledger(path)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("content", [b"not a database at all\n" * 100, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError):
        Ledger(path)
    assert path.read_bytes() == content


def test_a_folder_in_the_files_place_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError):
        Ledger(path)


def test_a_truncated_ledger_is_a_store_error(path: Path) -> None:
    Ledger(path).close()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StoreError):
        Ledger(path)
