"""A memory in a folder: files, processes, imports."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from support.contract import JUNE, Make, added, ids, sqlite_rows, texts
from support.databases import SQLITE_ONLY
from support.waiting import TIMEOUT

from graphmem import Settings
from graphmem.errors import (
    ConfigError,
    StoreError,
    StoreUnavailable,
)
from graphmem.stores.ledger.schema import embeddings
from graphmem.stores.ledger.sqlite import APPLICATION_ID
from graphmem.wiring import has_ledger


def test_a_reopened_folder_has_the_same_contents(tmp_path: Path, make_memory: Make) -> None:
    first = make_memory(tmp_path)
    uid = added(first, "tea", metadata={"a": 1}, timestamp=JUNE)
    first.update(uid, "green tea")
    before = (first.get(uid), first.history(uid), ids(first.search("tea", user_id="u1")))
    first.close()
    again = make_memory(tmp_path)
    assert (again.get(uid), again.history(uid), ids(again.search("tea", user_id="u1"))) == before
    assert again.verify()["ok"]


def modes(folder: Path) -> dict[str, int]:
    return {str(path): stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}


@SQLITE_ONLY
def test_the_ledger_is_its_owners_only(tmp_path: Path, make_memory: Make) -> None:
    memory = make_memory(tmp_path / "home")
    memory.add("tea", user_id="u1")
    file_modes = modes(tmp_path / "home")
    assert file_modes[str(tmp_path / "home")] == 0o700
    assert {mode for path, mode in file_modes.items() if "ledger.sqlite" in path} == {0o600}


@SQLITE_ONLY
def test_every_file_is_its_owners_only(tmp_path: Path, make_memory: Make) -> None:
    memory = make_memory(tmp_path / "home")
    memory.add("tea", user_id="u1")
    assert {path for path, mode in modes(tmp_path / "home").items() if mode & 0o077} == set()


@SQLITE_ONLY
def test_history_can_be_read_with_plain_sqlite(tmp_path: Path, make_memory: Make) -> None:
    memory = make_memory(tmp_path)
    uid = added(memory, {"role": "user", "content": "tea", "name": "Ann"})
    memory.update(uid, "green tea")
    connection = sqlite3.connect(tmp_path / "ledger.sqlite")
    connection.row_factory = sqlite3.Row
    rows = [dict(row) for row in connection.execute("SELECT * FROM history")]
    connection.close()
    entries = [{**row, "is_deleted": bool(row["is_deleted"]), "is_retired": False} for row in rows]
    assert entries == memory.history(uid)
    assert len(rows[0]) == 10


@SQLITE_ONLY
@pytest.mark.parametrize("sign", ["secret.key", "ledger.sqlite-wal"])
def test_a_ledger_that_was_emptied_is_damaged(tmp_path: Path, make_memory: Make, sign: str) -> None:
    """A new one in its place would hide that all is lost, and SQLite would remove a log that still has something."""
    memory = make_memory(tmp_path)
    memory.add("tea", user_id="u1")
    log = (tmp_path / "ledger.sqlite-wal").read_bytes()
    memory.close()
    (tmp_path / "ledger.sqlite-wal").write_bytes(log)
    for other in {"secret.key", "ledger.sqlite-wal"} - {sign}:
        (tmp_path / other).unlink()
    os.truncate(tmp_path / "ledger.sqlite", 0)
    before = contents(tmp_path)
    assert has_ledger(Settings(home=tmp_path))
    with pytest.raises(StoreUnavailable, match=f"it is empty, and '{sign}'.*damaged.*backup.*remove the whole folder"):
        make_memory(tmp_path)
    assert contents(tmp_path) == before


@SQLITE_ONLY
def test_an_empty_file_in_an_unused_folder_becomes_a_ledger(tmp_path: Path, make_memory: Make) -> None:
    (tmp_path / "ledger.sqlite").touch()
    assert not has_ledger(Settings(home=tmp_path))
    memory = make_memory(tmp_path)
    added(memory, "tea")
    assert memory.verify()["ok"]


@SQLITE_ONLY
def test_a_file_that_another_process_has_just_created_is_waited_for(tmp_path: Path, make_memory: Make) -> None:
    """The key was brought before, as with a restored home: the file is empty until its creator writes the header."""
    make_memory(tmp_path / "first").close()
    shutil.copy(tmp_path / "first" / "secret.key", tmp_path)
    (tmp_path / "ledger.sqlite").touch()
    creator = Timer(0.1, lambda: sqlite_rows(tmp_path, f"PRAGMA application_id={APPLICATION_ID}"))
    creator.start()
    memory = make_memory(tmp_path)
    creator.join()
    added(memory, "tea")
    assert memory.verify()["ok"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@SQLITE_ONLY
def test_deleted_words_are_in_none_of_the_files(tmp_path: Path, make_memory: Make) -> None:
    memory = make_memory(tmp_path, extractor={"provider": "spacy"})
    secret = "Xanthippe Quagmire moved to Zzyzx."
    long = " ".join(f"Vorpalium{n} is kept in Jabberwock{n}." for n in range(400))
    uid = added(memory, {"role": "user", "content": secret, "id": "m1"}, metadata={"note": "Snicker-snack"})
    memory.add([f"Filler sentence number {n} about nothing." for n in range(40)], user_id="u1")
    big = added(memory, long)
    memory.update(uid, "Xanthippe Quagmire moved back from Zzyzx.")
    memory.search("Where did Xanthippe move?", user_id="u1")
    words = [
        b"Xanthippe",
        b"xanthippe",
        b"Quagmire",
        b"quagmire",
        b"Zzyzx",
        b"zzyzx",
        b"Snicker",
        b"Vorpalium",
        b"vorpalium",
        b"jabberwock",
    ]
    assert any(b"Xanthippe" in content for content in contents(tmp_path).values())
    for one in (uid, big):
        memory.delete(one)
    memory.close()
    left = {(name, word) for name, content in contents(tmp_path).items() for word in words if word in content}
    assert left == set()


@pytest.mark.thorough
@SQLITE_ONLY
def test_deleted_words_are_in_no_file_after_many_moves_inside_the_file(tmp_path: Path, make_memory: Make) -> None:
    memory = make_memory(tmp_path)
    memory_ids = []
    for n in range(12):
        batch = [{"role": "user", "content": f"whisper{n}x{i} " + "pad " * (i * 7 % 60)} for i in range(25)]
        memory_ids += ids(memory.add(batch, user_id="u1", metadata={"k": "v" * (n * 31 % 200)}, wait=False))
    memory.flush()
    for n, uid in list(enumerate(memory_ids))[::15]:
        memory.update(uid, f"whispernew{n} " + "more " * (n % 90))
    for uid in memory_ids[7::20]:
        memory.delete(uid)
    memory.delete_all(user_id="u1")
    memory.close()
    assert [name for name, content in contents(tmp_path).items() if b"whisper" in content] == []


@SQLITE_ONLY
def test_a_folder_that_cannot_be_made_is_our_error(tmp_path: Path, make_memory: Make) -> None:
    (tmp_path / "file").write_text("x")
    for bad in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises((StoreError, ConfigError)):
            make_memory(bad)


PRELUDE = """import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from graphmem import Memory, Settings
from support.fakes import *
"""


def run(program: str, *arguments: Any, ok: bool = True) -> str:
    process = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, str(Path(__file__).parents[1]), *map(str, arguments)],
        capture_output=True, text=True, timeout=2 * TIMEOUT, check=False,
    )  # fmt: skip
    assert (process.returncode == 0) is ok, process.stderr
    return process.stdout.strip()


@SQLITE_ONLY
def test_two_processes_share_a_folder(tmp_path: Path, make_memory: Make) -> None:
    mine = make_memory(tmp_path)
    first = added(mine, "tea from here")
    program = (
        "m = Memory(sys.argv[2], settings=Settings.from_dict(fake_models()))\n"
        "print(len(m.search('tea', user_id='u1')['results']), flush=True)\n"
        "print(m.add('tea from there', user_id='u1')['results'][0]['id'], flush=True)\n"
        "input()\n"
        "response = m.search('tea', user_id='u1')\n"
        "print(sorted(one['memory'] for one in response['results']), response.get('degraded'), m.verify()['ok'])\n"
        "m.close()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, str(Path(__file__).parents[1]), str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline().strip() == "1"
        second = other.stdout.readline().strip()
        response = mine.search("tea", user_id="u1")
        assert (set(ids(response)), response.get("degraded")) == ({first, second}, None)
        mine.delete(first)
        third = mine.update(second, "green tea")["memory"]
        mine.add("tea again", user_id="u1")
        other.stdin.write("go\n")
        other.stdin.flush()
        assert other.stdout.readline().strip() == f"{sorted([third, 'tea again'])} None True"
        assert other.wait(TIMEOUT) == 0
    assert mine.verify()["ok"]


@pytest.mark.thorough
@SQLITE_ONLY
def test_the_next_process_finishes_the_jobs_of_a_dead_one(tmp_path: Path, make_memory: Make) -> None:
    run(
        "m = Memory(sys.argv[2], settings=Settings.from_dict(fake_models(embedder={'provider': 'callable', 'config':"
        " {'embed': lambda texts: os._exit(3), 'embedding_dims': 64, 'model': 'hash'}})))\n"
        "import os; m.add('tea', user_id='u1')\n",
        tmp_path,
        ok=False,
    )
    memory = make_memory(tmp_path)
    assert memory.flush() == {"pending": []}
    assert texts(memory.search("tea", user_id="u1")) == ["tea"]
    assert memory.verify()["ok"]


def test_a_process_that_leaves_a_damaged_ledger_open_ends_without_a_traceback(tmp_path: Path) -> None:
    program = (
        "from support.contract import damage\n"
        "memory = Memory(sys.argv[2], settings=Settings.from_dict(fake_models()))\n"
        "memory.add('tea', user_id='u1')\n"
        "damage(Path(sys.argv[2]))\n"
        "sys.stderr = sys.stdout\n"
        "try: memory.get_all(user_id='u1')\n"
        "except Exception as error: print(type(error).__name__)"
    )
    name, warning = run(program, tmp_path).splitlines()
    assert name == "StoreUnavailable"
    assert warning.startswith("closed without emptying the write-ahead log")


# What opening a memory imports, and what only searches, writes, transfers and language models use.
OPENING = ("numpy", "sqlalchemy", "pydantic", "asyncio", "graphmem.memory")
MODELS = ("spacy", "onnxruntime", "sentencepiece", "rjieba", "graphmem.extraction.spacy.document")
SEARCHING = ("graphmem.retrieval.pipeline", "graphmem.retrieval.context")
SPECIAL = (
    "scipy", "networkx", "openai", "httpx", "rapidfuzz", "tenacity", "alembic", "rich.progress",
    "sqlalchemy.dialects.postgresql", "graphmem.ingest.facts.pipeline", "graphmem.transfer.jsonl",
)  # fmt: skip


@SQLITE_ONLY
def test_nothing_is_imported_before_it_is_used(tmp_path: Path, make_memory: Make) -> None:
    memory = make_memory(tmp_path)
    uid = added(memory, "tea")
    memory.close()
    program = """import json, sys
sys.path.insert(0, sys.argv[1])
loaded = {}
def note(stage):
    loaded[stage] = [name for name in sys.argv[4].split() if name in sys.modules]
import graphmem
from graphmem.cli.app import app
note("import")
from typer.testing import CliRunner
for words in (["list", "--user", "u1"], ["history", sys.argv[3]], ["stats"]):
    result = CliRunner().invoke(app, [*words, "--home", sys.argv[2]])
    assert result.exit_code == 0, result.output
    note(words[0])
from support.fakes import fake_models
with graphmem.Memory(sys.argv[2], settings=graphmem.Settings.from_dict(fake_models())) as memory:
    memory.add("coffee", user_id="u1")
    note("add")
    memory.engine.backends.load_models()
    note("load_models")
    assert len(memory.search("coffee", user_id="u1")["results"]) == 2
    note("search")
print(json.dumps(loaded))
"""
    watched = " ".join((*OPENING, *MODELS, *SEARCHING, *SPECIAL))
    arguments = [str(Path(__file__).parents[1]), str(tmp_path), uid, watched]
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=2 * TIMEOUT, check=False
    )
    assert process.returncode == 0, process.stderr
    loaded = {stage: set(names) for stage, names in json.loads(process.stdout).items()}
    assert loaded["import"] == set()
    for stage in ("list", "history", "stats", "add"):
        assert (stage, loaded[stage]) == (stage, set(OPENING))
    for stage in ("load_models", "search"):
        assert (stage, loaded[stage]) == (stage, {*OPENING, *SEARCHING})


@SQLITE_ONLY
def test_stats_has_no_embeddings_in_memory(tmp_path: Path, make_memory: Make) -> None:
    size, number = 40_000, 1500
    memory = make_memory(tmp_path)
    row = {"model": "other", "form": "other", "window": 0, "data": bytes(size), "uses": 1}
    with memory.engine.ledger.write() as connection:
        connection.execute(embeddings.insert(), [{**row, "hash": str(n)} for n in range(number)])
    memory.close()
    program = """import json, sys
from pathlib import Path
import graphmem
def peak():
    return 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
with graphmem.Memory(sys.argv[1]) as memory:
    before = peak()
    print(json.dumps([memory.stats()["embedding_bytes"], peak() - before]))
"""
    process = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert process.returncode == 0, process.stderr
    sizes, grown = json.loads(process.stdout)
    assert sizes["other"] == size * number
    assert grown < size * number / 3
