"""`graphmem backup`: a whole copy of a ledger that others write to, and none of what was erased."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from support.databases import SQLITE_ONLY
from support.fakes import fake_models
from support.ledger_snapshot import contents
from support.waiting import TIMEOUT, wait_until
from typer.testing import CliRunner

from graphmem import Memory, Settings
from graphmem.cli.app import app
from graphmem.errors import ConfigError, StoreError
from graphmem.service.chat_settings import ChatSettings, SettingsChange, change_settings, settings_in_force
from graphmem.service.keys import Keys
from graphmem.stores.ledger import Ledger
from graphmem.stores.ledger.schema import REVISION
from graphmem.transfer.backup import back_up

Make = Callable[..., Memory]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def settings_of(home: Path) -> Settings:
    return Settings.from_dict(fake_models(home=str(home)))


def restored(copy: Path, home: Path) -> Path:
    """A new home with a backup and the secret key of the home it is from."""
    folder = copy.with_name(f"restored-{copy.stem}")
    folder.mkdir()
    shutil.copyfile(copy, folder / "ledger.sqlite")
    shutil.copyfile(home / "secret.key", folder / "secret.key")
    return folder


def texts(memory: Memory) -> set[str]:
    return {one["memory"] for one in memory.get_all(user_id="ana", limit=10_000)["results"]}


@SQLITE_ONLY
def test_a_backup_has_all_that_was_acknowledged_before_it(make_memory: Make, home: Path, tmp_path: Path) -> None:
    memory, acknowledged, stop = make_memory(home), list[str](), Event()

    def write() -> None:
        while not stop.is_set():
            text = f"Tea number {len(acknowledged)}"
            memory.add(text, user_id="ana")
            acknowledged.append(text)

    writer = Thread(target=write)
    writer.start()
    wait_until(lambda: len(acknowledged) >= 5)
    before, copy = list(acknowledged), tmp_path / "copy.sqlite"
    back_up(settings_of(home), copy)
    stop.set()
    writer.join(TIMEOUT)
    found = make_memory(restored(copy, home))
    assert set(before) <= texts(found) <= set(acknowledged)
    assert found.repair()["ok"] and found.verify()["ok"]
    assert before[0] in [hit["memory"] for hit in found.search("Tea number 0", user_id="ana")["results"]]


WRITER = """
import sys
from support.fakes import fake_models
from graphmem import Memory, Settings
with Memory(sys.argv[1], settings=Settings.from_dict(fake_models())) as memory:
    number = 0
    while True:
        memory.add(f"Tea number {number}", user_id="ana")
        print(number, flush=True)
        number += 1
"""


@SQLITE_ONLY
@pytest.mark.thorough
def test_a_backup_of_a_home_to_which_another_process_writes(make_memory: Make, home: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    writing = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home)], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        last = next(line for line in writing.stdout if int(line) >= 20)
        with (tmp_path / "copy.sqlite").open("wb") as copy:
            command = [sys.executable, "-m", "graphmem", "backup", "-", "--home", str(home)]
            subprocess.run(command, env=environment, stdout=copy, check=True)
        assert writing.poll() is None
    finally:
        writing.send_signal(signal.SIGKILL)
        writing.communicate()
    with make_memory(restored(tmp_path / "copy.sqlite", home)) as found:
        assert {f"Tea number {number}" for number in range(int(last) + 1)} <= texts(found)
        assert found.repair()["ok"] and found.verify()["ok"]


@SQLITE_ONLY
def test_a_restored_home_is_as_it_was_with_keys_settings_and_erased_messages(make_memory: Make, home: Path) -> None:
    memory = make_memory(home)
    message = {"role": "user", "content": "Leo Quartz has a kite", "id": "m1"}
    memory.delete(memory.add(message, user_id="ana")["results"][0]["id"])
    memory.add("tea with Anna", user_id="ana")
    change_settings(memory, "ana", SettingsChange(top_k=7), "a key")
    key = Keys(memory).create("app").text
    before = contents(memory)
    copy = home.with_name("copy.sqlite")
    back_up(settings_of(home), copy)
    memory.add("what came later", user_id="ana")
    found = make_memory(restored(copy, home))
    assert contents(found) == before
    assert Keys(found).find(key) is not None
    assert settings_in_force(found, "ana", ChatSettings()).top_k == 7
    assert found.add(message, user_id="ana")["results"][0]["reason"] == "erased"


@SQLITE_ONLY
def test_erased_words_are_not_in_a_backup(make_memory: Make, home: Path, tmp_path: Path) -> None:
    memory = make_memory(home)
    memory.add([f"Tea number {number}" for number in range(50)], user_id="ana")
    uid = memory.add("Quartz is a xylophone", user_id="ana")["results"][0]["id"]
    memory.delete(uid)
    copy = tmp_path / "copy.sqlite"
    back_up(settings_of(home), copy)
    assert b"ylophone" not in copy.read_bytes()
    assert b"Tea number 49" in copy.read_bytes()


def test_the_file_is_private_and_replaces_an_older_one_whole(home: Path, tmp_path: Path) -> None:
    Ledger(home / "ledger.sqlite").close()
    copy, folder = tmp_path / "out" / "copy.sqlite", tmp_path / "out"
    folder.mkdir()
    copy.write_text("older, " * 100_000)
    run = CliRunner().invoke(app, ["backup", str(copy), "--home", str(home), "--json"])
    assert json.loads(run.stdout) == {"path": str(copy), "bytes": copy.stat().st_size}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert os.listdir(folder) == ["copy.sqlite"]
    with sqlite3.connect(copy) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_backup_on_standard_output_is_the_same_and_leaves_no_file(home: Path, tmp_path: Path) -> None:
    Ledger(home / "ledger.sqlite").close()
    copy, files = tmp_path / "copy.sqlite", sorted(os.listdir(home))
    back_up(settings_of(home), copy)
    run = CliRunner().invoke(app, ["backup", "-", "--home", str(home)])
    assert run.stdout_bytes == copy.read_bytes()
    assert sorted(os.listdir(home)) == files


def test_a_backup_migrates_nothing(home: Path, tmp_path: Path) -> None:
    """So that the new release can make it, before it opens the ledger for the first time."""
    Ledger(home / "ledger.sqlite").close()
    with sqlite3.connect(home / "ledger.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    connection.close()
    back_up(settings_of(home), tmp_path / "copy.sqlite")
    for ledger in (home / "ledger.sqlite", tmp_path / "copy.sqlite"):
        with sqlite3.connect(ledger) as connection:
            assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",) != (REVISION,)
        connection.close()


class FullDisk:
    """A file that takes nothing more."""

    def write(self, _: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self) -> None:
        pass


def test_what_cannot_be_backed_up_is_refused_and_leaves_nothing(home: Path, tmp_path: Path) -> None:
    Ledger(home / "ledger.sqlite").close()
    copy, files = tmp_path / "copy.sqlite", sorted(os.listdir(home))
    copy.write_text("older")
    for target, error in (
        (home / "copy.sqlite", "is where the memories themselves are kept"),
        (home / "ledger.sqlite", "is where the memories themselves are kept"),
        (tmp_path, "is no file"),
        (tmp_path / "none" / "copy.sqlite", "No such file or directory"),
        (FullDisk(), "No space left on device"),
    ):
        with pytest.raises(StoreError, match=error):
            back_up(settings_of(home), target)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="there is no ledger to back up"):
        back_up(settings_of(tmp_path / "elsewhere"), copy)
    with pytest.raises(ConfigError, match="pg_dump"):
        back_up(Settings.from_dict({"ledger_url": "postgresql://u:p@127.0.0.1/x"}), copy)
    assert (copy.read_text(), sorted(os.listdir(home))) == ("older", files)
    assert not (tmp_path / "elsewhere").exists()


@pytest.fixture
def foreign(home: Path) -> Iterator[Path]:
    home.mkdir()
    with sqlite3.connect(home / "ledger.sqlite") as connection:
        connection.execute("CREATE TABLE history (id TEXT)")
    connection.close()
    yield home


def test_other_files_and_damaged_ledgers_are_refused(foreign: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    with pytest.raises(StoreError, match="is not a graphmem ledger"):
        back_up(settings_of(foreign), copy)
    damaged = tmp_path / "damaged"
    Ledger(damaged / "ledger.sqlite").close()
    with (damaged / "ledger.sqlite").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 40_960)
    with pytest.raises(StoreError, match="cannot be copied"):
        back_up(settings_of(damaged), copy)
    assert not copy.exists()
