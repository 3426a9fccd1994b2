"""Full disks, read-only disks, and files with damaged bytes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from child import SEEDS, open_memory
from support.waiting import TIMEOUT

from graphmem import Memory
from graphmem.errors import GraphmemError, StoreUnavailable

SEED = 6
WAY_OUT = ("backup", "import")
HEAD = f"""
import faulthandler, os, sys

faulthandler.enable()
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from child import open_memory
from graphmem.errors import StoreError, StoreUnavailable

home = Path(sys.argv[1])
"""


def run(home: Path, body: str) -> None:
    """Runs it in a process of its own: a full disk under a mapped file kills with a signal."""
    process = subprocess.run(
        [sys.executable, "-c", HEAD + body, str(home)], timeout=2 * TIMEOUT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[:3000]


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk in memory of so many MB, by default 64."""
    place, size = tmp_path / "disk", getattr(request, "param", 64)
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(place)], capture_output=True)
    if mount.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("disk", [4, 8], indirect=True)
def test_a_small_disk_is_enough(disk: Path) -> None:
    for number in range(3):
        run(
            disk / "home",
            f"""
with open_memory(home) as memory:
    memory.add("Adam likes thing{number}", user_id="u")
    assert len(memory.search("thing", user_id="u")["results"]) == {number + 1}
    assert memory.verify()["ok"]
""",
        )


@pytest.mark.parametrize("left", [1, 4])
def test_a_disk_that_is_full_at_the_opening_costs_no_words(disk: Path, left: int) -> None:
    """With so many MB left."""
    run(
        disk / "home",
        f"""
with open_memory(home) as memory:
    memory.add("Adam likes quartz", user_id="u")
filler = home.with_name("filler")
room = os.statvfs(home)
filler.write_bytes(bytes(max(0, room.f_bavail * room.f_frsize - {left} * 2**20)))
with open_memory(home) as memory:
    memory.add("Bella likes amber", user_id="u")
    assert len(memory.search("who likes", user_id="u")["results"]) == 2
filler.unlink()
with open_memory(home) as memory:
    assert len(memory.search("who likes", user_id="u")["results"]) == 2
    assert memory.verify()["ok"]
""",
    )


def test_a_disk_that_runs_full_costs_nothing_acknowledged(disk: Path) -> None:
    run(
        disk / "home",
        """
memory = open_memory(home)
stored = {memory.add(f"Adam likes thing{n}", user_id="u")["results"][0]["id"]: f"Adam likes thing{n}" for n in range(5)}
filler = home.with_name("filler")
room = os.statvfs(home)
with filler.open("wb") as file:
    for _ in range(room.f_bavail * room.f_frsize // 2**20 - 2):
        file.write(bytes(2**20))

def fails(act):
    try:
        act()
    except StoreUnavailable as error:
        assert "make room on its disk" in str(error), error
        assert "xylophone" not in str(error)
        return True
    return False

for n in range(200):
    text = f"Adam likes xylophone{n} " + 20_000 * "and more "
    if fails(lambda: stored.update({memory.add(text, user_id="u")["results"][0]["id"]: text.rstrip()})):
        break
else:
    raise AssertionError("the disk did not run full")
uid = next(iter(stored))
if not fails(lambda: memory.update(uid, 30_000 * "longer ")):
    stored[uid] = 30_000 * "longer "
listed = {one["id"]: one["memory"] for one in memory.get_all(user_id="u", limit=1000)["results"]}
assert listed.keys() == stored.keys()
assert memory.search("thing3", user_id="u")["results"]

filler.unlink()
stored[memory.add("Bella has room again", user_id="u")["results"][0]["id"]] = "Bella has room again"
assert memory.flush() == {"pending": []}
assert memory.verify(repair=True)["ok"], memory.verify()
memory.close()
with open_memory(home) as again:
    listed = {one["id"]: one["memory"] for one in again.get_all(user_id="u", limit=1000)["results"]}
    assert listed.keys() == stored.keys()
    assert again.verify()["ok"]
    assert again.search("who has room", user_id="u")["results"]
""",
    )


def test_closing_on_a_full_disk_closes_all_files(disk: Path) -> None:
    run(
        disk / "home",
        """
memory = open_memory(home)
memory.add("Adam likes quartz", user_id="u")
with home.with_name("filler").open("wb", buffering=0) as file:
    try:
        while file.write(bytes(2**16)):
            pass
    except OSError:
        pass
try:
    memory.close()
except StoreError as error:
    assert "full" in str(error), error
left = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
assert not [path for path in left if str(home) in path], left
home.with_name("filler").unlink()
with open_memory(home) as again:
    assert again.get_all(user_id="u")["total"] == 1
    assert again.verify()["ok"]
""",
    )


@pytest.mark.parametrize("name", ["home", "disk"])
def test_a_first_opening_on_a_full_disk_leaves_no_ledger(disk: Path, name: str) -> None:
    """Neither in a folder that is made for it nor in one that is there: the error speaks of room."""
    run(
        disk / "home",
        f"""
place = home if {name!r} == "home" else home.parent
filler = home.with_name("filler")
with filler.open("wb", buffering=0) as file:
    try:
        while file.write(bytes(2**12)):
            pass
    except OSError:
        pass
for _ in range(2):
    try:
        open_memory(place)
    except StoreUnavailable as error:
        assert "make room on its disk" in str(error), error
        assert "rights" not in str(error), error
    else:
        raise AssertionError("opened")
    assert not (place / "ledger.sqlite").exists()
filler.unlink()
with open_memory(place) as memory:
    memory.add("Adam likes quartz", user_id="u")
    assert memory.verify()["ok"]
""",
    )


def test_a_folder_that_cannot_be_written(disk: Path) -> None:
    """Neither a new one nor one that exists: the error says so, and nothing is changed."""
    home = disk / "home"
    with open_memory(home) as memory:
        memory.add(SEEDS[0], user_id="u")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for place in (home, disk / "new"):
        run(
            place,
            """
try:
    open_memory(home)
except StoreUnavailable as error:
    assert str(home) in str(error) and ("read-only" in str(error).lower() or "readonly" in str(error)), error
else:
    raise AssertionError("opened")
""",
        )
    assert before == {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


# --- damaged bytes ---------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with sixty memories, closed."""
    with open_memory(tmp_path / "whole") as memory:
        for number in range(60):
            memory.add(f"marmalade{number} Adam likes Bella{number}", user_id="u", wait=False, metadata={"n": number})
        memory.flush()
    return tmp_path / "whole"


def public_calls(memory: Memory) -> Iterator[object]:
    yield lambda: memory.verify()
    yield lambda: memory.search("what does Adam like", user_id="u")
    yield lambda: memory.get_all(user_id="u", limit=1000)
    yield lambda: memory.add("Carl met Dora", user_id="u")
    yield lambda: memory.entities(user_id="u")
    yield lambda: memory.graph(user_id="u")
    yield lambda: memory.stats()
    yield lambda: memory.verify(repair=True)


def test_flipped_bytes_are_named_as_damage_or_do_no_harm(home: Path, tmp_path: Path) -> None:
    """Any damage leads to an answer, or to our error, which names the way out and quotes no text."""
    whole, dice = (home / "ledger.sqlite").read_bytes(), random.Random(SEED)
    error_count = 0
    for number in range(25):
        place = tmp_path / f"flipped{number}"
        shutil.copytree(home, place)
        bytes_ = bytearray(whole)
        for _ in range(dice.choice((1, 5, 40))):
            bytes_[dice.randrange(100, len(whole))] ^= dice.randrange(1, 256)
        (place / "ledger.sqlite").write_bytes(bytes_)
        error_count += len(errors_of(place))
        shutil.rmtree(place)
    assert error_count > 10


def errors_of(place: Path) -> list[str]:
    errors: list[str] = []
    try:
        with open_memory(place) as memory:
            for act in public_calls(memory):
                try:
                    act()
                except GraphmemError as error:
                    errors.append(str(error))
    except GraphmemError as error:
        errors.append(str(error))
    for line in errors:
        assert "marmalade" not in line
        assert not line.startswith("the ledger") or all(word in line for word in WAY_OUT), line
    return errors


def test_words_that_changed_without_us_are_named(home: Path) -> None:
    """A flipped letter leaves a valid file: only values computed from the text show the change."""
    file = home / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        (uid,) = connection.execute("SELECT uid FROM memories WHERE text LIKE 'marmalade7 %'").fetchone()
    file.write_bytes(file.read_bytes().replace(b"marmalade7 Adam likes", b"marmalade7 Adam lakes"))
    with open_memory(home) as memory:
        report = memory.verify()
        assert (report["ok"], report["damaged"]) == (False, [uid])


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE memories SET at = 1 << 62",
        "UPDATE memories SET at = 'yesterday'",
        "UPDATE memories SET metadata = '{half'",
        "UPDATE memories SET kind = 'thought'",
        "UPDATE entities SET type = 'ghost'",
        "UPDATE embeddings SET data = x'010203'",
    ],
)
def test_a_value_that_nobody_wrote_is_damage(home: Path, damage: str) -> None:
    with contextlib.closing(sqlite3.connect(home / "ledger.sqlite")) as connection, connection:
        connection.execute(damage)
    assert any("it is damaged" in line for line in errors_of(home))


def test_an_error_raised_inside_a_transaction_is_not_reported_as_damage(home: Path) -> None:
    with open_memory(home) as memory:
        for error in (ValueError("of a date"), OverflowError("of a date")):
            for transaction in (memory.engine.ledger.read, memory.engine.ledger.write):
                with pytest.raises(type(error), match="of a date"), transaction():
                    raise error


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_file_that_was_cut_off_is_damaged(home: Path, share: float) -> None:
    file = home / "ledger.sqlite"
    os.truncate(file, int(file.stat().st_size * share))
    assert errors_of(home)


def test_a_file_whose_head_is_gone_is_refused_untouched(home: Path) -> None:
    file = home / "ledger.sqlite"
    file.write_bytes(bytes(4096) + file.read_bytes()[4096:])
    before = file.read_bytes()
    with pytest.raises(GraphmemError, match="ledger"):
        open_memory(home)
    assert file.read_bytes() == before


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7, 0.999])
def test_a_log_that_was_cut_off_leaves_an_earlier_state(tmp_path: Path, share: float) -> None:
    """The disk has lost acknowledged writes; the others are whole, and the index is brought back to them."""
    home = tmp_path / "home"
    run(
        home,
        """
memory = open_memory(home)
for number in range(12):
    memory.add(f"marmalade{number} Adam likes Bella{number}", user_id="u")
os.kill(os.getpid(), 9)
""".replace("os.kill(os.getpid(), 9)", "os._exit(0)"),
    )
    log = home / "ledger.sqlite-wal"
    os.truncate(log, int(log.stat().st_size * share))
    with open_memory(home) as memory:
        left = {one["id"]: one["memory"] for one in memory.get_all(user_id="u", limit=100)["results"]}
        assert sorted(left.values()) == sorted(f"marmalade{n} Adam likes Bella{n}" for n in range(len(left)))
        hits = memory.search("marmalade11 Adam likes Bella11", user_id="u")["results"]
        assert {hit["id"] for hit in hits} <= left.keys()
        added = memory.add("Carl met Dora", user_id="u")["results"][0]["id"]
        assert memory.search("Carl met Dora", user_id="u")["results"][0]["id"] == added
        assert memory.verify(repair=True)["ok"]
        assert memory.get_all(user_id="u")["total"] == len(left) + 1


def test_a_ledger_that_is_damaged_is_not_made_anew(home: Path) -> None:
    """Opening it again overwrites nothing."""
    file = home / "ledger.sqlite"
    os.truncate(file, file.stat().st_size // 2)
    size = file.stat().st_size
    for _ in range(2):
        try:
            with open_memory(home) as memory, pytest.raises(StoreUnavailable):
                memory.get_all(user_id="u", limit=1000)
        except GraphmemError as error:
            assert all(word in str(error) for word in WAY_OUT), error
    assert file.stat().st_size >= size
