"""A ledger whose folder is renamed, removed or restored from a backup under a running process: no write is lost in
silence, and the error says to close and open again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest
from child import open_memory

from graphmem import Memory
from graphmem.errors import StoreUnavailable
from graphmem.stores.ledger import sqlite

OPEN_AGAIN = "close this Memory and open it again"


def rename(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))


def remove(home: Path) -> None:
    shutil.rmtree(home)


def restore(home: Path) -> None:
    shutil.copytree(home, home.with_name("backup"))
    shutil.rmtree(home)
    home.with_name("backup").rename(home)


def lose_the_file(home: Path) -> None:
    (home / "ledger.sqlite").unlink()


def lose_the_log(home: Path) -> None:
    (home / "ledger.sqlite-wal").unlink()


def point_elsewhere(home: Path) -> None:
    home.unlink()
    home.with_name("second").mkdir()
    home.symlink_to(home.with_name("second"))


@pytest.fixture
def home(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    place = tmp_path / "home"
    if getattr(request, "param", None) == "link":
        (tmp_path / "first").mkdir()
        place.symlink_to(tmp_path / "first")
    return place


MOVES = pytest.mark.parametrize(
    ("move", "home", "remaining"),
    [
        (rename, None, []),
        (remove, None, []),
        (restore, None, ["Adam likes quartz"]),
        (lose_the_file, None, []),
        (lose_the_log, None, ["Adam likes quartz"]),
        (point_elsewhere, "link", []),
    ],
    indirect=["home"],
)


def words(memory: Memory) -> list[str]:
    return [one["memory"] for one in memory.get_all(user_id="u")["results"]]


@MOVES
def test_calls_on_a_moved_ledger_are_refused(home: Path, move: Callable[[Path], None], remaining: list[str]) -> None:
    memory = open_memory(home)
    uid = memory.add("Adam likes quartz", user_id="u")["results"][0]["id"]
    move(home)
    for act in (
        lambda: memory.add("Bella likes tea", user_id="u"),
        lambda: memory.update(uid, "Adam likes agate"),
        lambda: memory.delete(uid),
        memory.verify,
        memory.stats,
    ):
        with pytest.raises(StoreUnavailable, match=OPEN_AGAIN):
            act()
    memory.close()
    with open_memory(home) as again:
        assert words(again) == remaining
        again.add("Carl likes jade", user_id="u")
        assert again.verify()["ok"]


@MOVES
def test_a_read_of_a_moved_ledger_fails_soon(
    home: Path, move: Callable[[Path], None], remaining: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_CHECK_INTERVAL", 0.1)
    with open_memory(home) as memory:
        memory.add("Adam likes quartz", user_id="u")
        move(home)
        sleep(0.2)
        with pytest.raises(StoreUnavailable, match=OPEN_AGAIN):
            memory.get_all(user_id="u")


def test_a_renamed_folder_has_all_that_was_stored_in_it(tmp_path: Path) -> None:
    memory = open_memory(tmp_path / "home")
    memory.add("Adam likes quartz", user_id="u")
    (tmp_path / "home").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable, match=OPEN_AGAIN):
        memory.add("Bella likes tea", user_id="u")
    memory.close()
    with open_memory(tmp_path / "elsewhere") as moved:
        assert words(moved) == ["Adam likes quartz"]
        assert moved.verify()["ok"]


def test_a_write_whose_file_is_removed_during_the_commit_is_refused(tmp_path: Path) -> None:
    """Found by the check after the commit: the one before it is too early."""
    with open_memory(tmp_path / "home") as memory:
        database = memory.engine.ledger._database
        callbacks = iter([lambda: None, lambda: shutil.rmtree(tmp_path / "home")])
        check = database._check_not_moved

        def checked_call(**options: bool) -> None:
            if not options:
                next(callbacks, lambda: None)()
            check(**options)

        database._check_not_moved = checked_call  # type: ignore[method-assign]  # runs between both checks
        with pytest.raises(StoreUnavailable, match=OPEN_AGAIN), database.write():
            pass


def test_a_folder_that_comes_back_is_the_same_again(tmp_path: Path) -> None:
    with open_memory(tmp_path / "home") as memory:
        memory.add("Adam likes quartz", user_id="u")
        (tmp_path / "home").rename(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailable, match=OPEN_AGAIN):
            memory.add("Bella likes tea", user_id="u")
        (tmp_path / "elsewhere").rename(tmp_path / "home")
        memory.add("Bella likes tea", user_id="u")
        memory.flush()
        assert sorted(words(memory)) == ["Adam likes quartz", "Bella likes tea"]
        assert memory.verify()["ok"]


def test_a_link_that_stays_is_no_move(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "first")
    with open_memory(tmp_path / "home") as memory:
        memory.add("Adam likes quartz", user_id="u")
        assert memory.verify()["ok"]


def test_a_connection_that_is_opened_anew_brings_its_log(tmp_path: Path) -> None:
    """Where the last connection is closed SQLite removes the log, and the next one makes another."""
    with open_memory(tmp_path / "home") as memory:
        memory.add("Adam likes quartz", user_id="u")
        memory.engine.ledger._database._engine.dispose()
        assert not (tmp_path / "home" / "ledger.sqlite-wal").exists()
        memory.add("Bella likes tea", user_id="u")
        assert memory.verify()["ok"]


def test_a_ledger_in_memory_is_never_reported_as_moved(memory: Memory) -> None:
    memory.add("Adam likes quartz", user_id="u")
    assert memory.stats()["memories"] == 1
    assert memory.verify()["ok"]
