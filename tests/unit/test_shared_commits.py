"""Commits that callers share: each caller gets the outcomes, or the error, of its own messages alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.contract import Make
from support.databases import SQLITE_ONLY
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory
from graphmem.commands import dispatch, shared_commits
from graphmem.commands.types import ChangeSet
from graphmem.errors import StoreLocked, ValidationError
from graphmem.stores.ledger import Ledger, sqlite

pytestmark = SQLITE_ONLY


@contextmanager
def callers_at_once(memory: Memory, calls: list[tuple[Any, dict[str, Any]]]) -> Iterator[list[Future[Any]]]:
    """Has each call of `add` made by a thread of its own while nothing can be written; yields what becomes of them."""
    waiting = memory.engine._commits._waiting  # noqa: SLF001  (else nothing tells that a caller waits)
    with ThreadPoolExecutor(len(calls)) as pool:
        with memory.engine.ledger.turn_to_write():
            adds = [pool.submit(memory.add, messages, wait=False, **arguments) for messages, arguments in calls]
            wait_until(lambda: len(waiting) == len(calls))
        yield adds
    assert not waiting


def results(call: Future[Any]) -> list[dict[str, Any]]:
    return list(call.result(TIMEOUT)["results"])


def test_callers_that_wait_share_a_transaction_and_get_their_own_results(memory: Memory) -> None:
    told = [(f"tea of {user}", {"user_id": user}) for user in ("ana", "ben", "cy")]
    calls = [*told, ([{"role": "user", "content": text} for text in ("one", "two")], {"user_id": "ana"})]
    with callers_at_once(memory, calls) as adds:
        found = [[(one["memory"], one["event"]) for one in results(add)] for add in adds]
    assert found == [
        [("tea of ana", "ADD")], [("tea of ben", "ADD")], [("tea of cy", "ADD")], [("one", "ADD"), ("two", "ADD")]
    ]  # fmt: skip
    stored = [one for user in ("ana", "ben", "cy") for one in memory.get_all(user_id=user)["results"]]
    assert {one["memory"] for one in stored} == {"tea of ana", "tea of ben", "tea of cy", "one", "two"}
    assert len({one["created_at"] for one in stored}) == 1  # one transaction has one time
    memory.flush()
    assert memory.verify()["ok"]


def test_a_refused_message_of_one_caller_concerns_no_other(memory: Memory) -> None:
    memory.add({"role": "user", "content": "tea", "id": "m-1"}, user_id="ana")
    changed = {"role": "user", "content": "coffee", "id": "m-1"}
    calls = [("cake", {"user_id": "ana"}), (changed, {"user_id": "ana"}), ("bread", {"user_id": "ben"})]
    with callers_at_once(memory, calls) as (cake, refused, bread):
        assert [one["event"] for one in results(cake) + results(bread)] == ["ADD", "ADD"]
        with pytest.raises(ValidationError, match="m-1"):
            refused.result(TIMEOUT)
    assert {one["memory"] for one in memory.get_all(user_id="ana")["results"]} == {"tea", "cake"}
    assert [one["memory"] for one in memory.get_all(user_id="ben")["results"]] == ["bread"]


def test_a_message_that_two_callers_bring_at_once_is_stored_once(memory: Memory) -> None:
    message = {"role": "user", "content": "tea", "id": "m-1"}
    with callers_at_once(memory, [(message, {"user_id": "ana"})] * 3) as adds:
        outcomes = [results(add)[0] for add in adds]
    assert sorted(one["event"] for one in outcomes) == ["ADD", "NONE", "NONE"]
    assert len({one["id"] for one in outcomes}) == 1


def test_a_list_too_long_to_be_shared_is_stored_whole_beside_the_others(memory: Memory) -> None:
    calls = [([f"{user} {n}" for n in range(40)], {"user_id": user}) for user in ("ana", "ben")]
    with callers_at_once(memory, [*calls, ("tea", {"user_id": "cy"})]) as adds:
        assert [len(results(add)) for add in adds] == [40, 40, 1]
    totals = [memory.get_all(user_id=user)["total"] for user in ("ana", "ben", "cy")]
    assert totals == [40, 40, 1]


def test_of_a_locked_file_every_caller_is_told_after_one_wait(
    tmp_path: Path, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    memory = make_memory(tmp_path)
    commits = list[ChangeSet]()

    def commit(ledger: Ledger, change_set: ChangeSet, *others: Any) -> Any:
        commits.append(change_set)
        return dispatch.commit(ledger, change_set, *others)

    monkeypatch.setattr(shared_commits, "commit", commit)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with callers_at_once(memory, [(f"tea {n}", {"user_id": "ana"}) for n in range(3)]) as adds:
            for add in adds:
                with pytest.raises(StoreLocked):
                    add.result(TIMEOUT)
        other.rollback()
    assert [len(one.commands) for one in commits] == [3]
    assert memory.get_all(user_id="ana")["total"] == 0
    assert [one["event"] for one in memory.add("tea", user_id="ana")["results"]] == ["ADD"]
