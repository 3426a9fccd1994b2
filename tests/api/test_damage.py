"""Damaged rows of a ledger: single calls name them, `verify` lists them, and they can be erased."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from support.contract import Make, added, ids
from support.databases import SQLITE_ONLY

from graphmem.errors import GraphmemError, NotFoundError, StoreUnavailable, ValidationError

pytestmark = SQLITE_ONLY


@pytest.fixture
def home(tmp_path: Path, make_memory: Make) -> Path:
    """A folder with three memories, closed, the second of which was updated."""
    memory = make_memory(tmp_path / "home")
    memory.add(["Adam likes tea", "Bella likes rum", "Carl likes milk"], user_id="u1", metadata={"n": 1})
    memory.update(ids(memory.get_all(user_id="u1"))[1], "Bella likes wine")
    assert memory.verify()["ok"]
    memory.close()
    return tmp_path / "home"


def change(home: Path, statement: str) -> str:
    """Runs a statement on the ledger, about `{uid}`, the updated memory; returns that one's id."""
    with contextlib.closing(sqlite3.connect(home / "ledger.sqlite")) as connection, connection:
        (uid,) = connection.execute("SELECT uid FROM memories WHERE text = 'Bella likes wine'").fetchone()
        assert connection.execute(statement.format(uid=uid)).rowcount
    return str(uid)


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ("metadata = '[1]'", "metadata"),
        ("metadata = '{{\"n\": 1'", "metadata"),
        ("partition = 99", "partition_key"),
        ("text = x'41'", "text"),
        ("text = CAST(x'ff41' AS TEXT)", "UTF-8"),
        ("speaker = CAST(x'ff41' AS TEXT), kind = 'thought'", "UTF-8"),
        ("at = 1 << 62, valid_to = 'yesterday'", "at"),
        ("kind = 'thought'", "kind"),
    ],
)
def test_a_damaged_row_is_named_and_can_be_erased(
    home: Path, tmp_path: Path, make_memory: Make, values: str, column: str
) -> None:
    uid = change(home, f"UPDATE memories SET {values} WHERE uid = '{{uid}}'")
    memory = make_memory(home)
    for act in (lambda: memory.get(uid), lambda: memory.export(tmp_path / "damaged.jsonl")):
        with pytest.raises(StoreUnavailable, match=f"{column}.*it is damaged.*backup") as raised:
            act()
        assert column == "UTF-8" or uid in str(raised.value)
    for act in (
        lambda: memory.get_all(user_id="u1"),
        lambda: memory.search("Who likes wine?", user_id="u1"),
        lambda: memory.context("Who likes wine?", user_id="u1"),
        lambda: memory.tend(user_id="u1"),
    ):
        with contextlib.suppress(GraphmemError):
            act()
    report = memory.verify()
    assert (report["ok"], report["damaged"]) == (False, [uid])
    assert memory.delete(uid)["deleted"] == [uid]
    assert memory.verify(repair=True)["ok"]
    assert memory.get_all(user_id="u1")["total"] == len(ids(memory.search("Who likes it?", user_id="u1"))) == 2
    memory.export(tmp_path / "whole.jsonl")


def test_all_of_a_user_is_erased_with_its_damaged_rows(home: Path, make_memory: Make) -> None:
    change(home, "UPDATE memories SET metadata = '[1]' WHERE uid = '{uid}'")
    change(home, "UPDATE memories SET text = CAST(x'ff41' AS TEXT) WHERE text = 'Carl likes milk'")
    memory = make_memory(home)
    assert len(memory.delete_all(user_id="u1")["deleted"]) == 3
    assert memory.verify(repair=True)["ok"]
    assert memory.stats()["memories"] == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET at = 'yesterday' WHERE memory = '{uid}'",
        "UPDATE events SET at = at + 1 WHERE memory = '{uid}'",
        "UPDATE events SET event = 'zzz' WHERE memory = '{uid}' AND event = 'ADD'",
        "UPDATE events SET new_text = CAST(x'ff41' AS TEXT) WHERE memory = '{uid}' AND event = 'ADD'",
        "UPDATE events SET previous_state = '[' || substr(previous_state, 2) WHERE memory = '{uid}'",
        "UPDATE events SET previous_state = '{{}}' WHERE memory = '{uid}' AND event = 'UPDATE'",
        "UPDATE events SET digest = NULL WHERE memory = '{uid}'",
        "DELETE FROM events WHERE memory = '{uid}'",
        # All words of the history say the same, so that nothing but the digest tells.
        (
            "UPDATE events SET old_text = replace(old_text, 'rum', 'gin'), new_text = replace(new_text, 'rum', 'gin'), "
            "previous_state = replace(previous_state, 'rum', 'gin') WHERE memory = '{uid}'"
        ),
    ],
)
def test_a_damaged_history_is_named_and_goes_with_its_memory(
    home: Path, tmp_path: Path, make_memory: Make, statement: str
) -> None:
    with contextlib.closing(sqlite3.connect(home / "ledger.sqlite")) as connection:
        (event,) = connection.execute("SELECT uid FROM events WHERE event = 'UPDATE'").fetchone()
    uid = change(home, statement)
    memory = make_memory(home)
    for report in (memory.verify(), memory.repair(), memory.rebuild()):
        assert (report["ok"], report["damaged"]) == (False, [uid])
    for act in (
        lambda: memory.history(uid),
        lambda: memory.explain(uid),
        lambda: memory.undo(event),
        lambda: memory.export(tmp_path / "damaged.jsonl"),
    ):
        try:
            act()
        except (StoreUnavailable, NotFoundError, ValidationError) as error:
            assert not isinstance(error, StoreUnavailable) or "it is damaged" in str(error)
    memory.delete(uid)
    assert memory.verify(repair=True)["ok"]
    assert memory.history(uid)[-1]["event"] == "DELETE"
    memory.export(tmp_path / "whole.jsonl")
    other = make_memory(tmp_path / "other")
    other.import_(tmp_path / "whole.jsonl")
    assert other.verify()["ok"]
    assert other.get_all(user_id="u1")["total"] == 2


def test_a_memory_that_was_erased_and_brought_back_has_an_intact_history(
    home: Path, tmp_path: Path, make_memory: Make
) -> None:
    memory = make_memory(home)
    uid = added(memory, "Dora likes juice")
    memory.export(tmp_path / "whole.jsonl")
    memory.delete(uid)
    assert memory.verify()["ok"]
    memory.import_(tmp_path / "whole.jsonl", restore=True)
    assert [event["event"] for event in memory.history(uid)] == ["ADD", "DELETE", "RESTORE"]
    assert memory.verify()["ok"]
