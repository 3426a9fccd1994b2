"""Migration of data that a real mem0 wrote, with the command `migrate mem0`."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import spacy
from support import mem0_fixture
from support.fakes import fake_models
from support.waiting import SLOWNESS, wait_until
from typer.testing import CliRunner

from graphmem import Memory, Settings
from graphmem.cli.app import app
from graphmem.extraction.spacy.extractor import DEFAULT_MODELS
from graphmem.transfer.sources import pickle_reader, safe_unpickler
from graphmem.transfer.sources.mem0 import DELETED, NO_TIME

OLDER = Path(__file__).parent.parent / "data" / "mem0-1.0.11"
runner = CliRunner()


@pytest.fixture
def tmp_path():
    """A folder, in memory where possible: every commit is synced, and no test here depends on the disk."""
    shm = Path("/dev/shm")
    with TemporaryDirectory(dir=shm if shm.is_dir() and os.access(shm, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home folder of the command, with models that need no files."""
    folder = tmp_path / "home"
    monkeypatch.setattr(Settings, "from_env", lambda **_: Settings.from_dict(fake_models(home=folder)))
    return folder


@pytest.fixture
def mem0_memory(tmp_path):
    """An open mem0 2.x in a folder."""
    memory = mem0_fixture.opened(tmp_path / "theirs")
    yield memory
    mem0_fixture.closed(memory)


def run(*arguments, status=0):
    result = runner.invoke(app, ["migrate", *map(str, arguments)])
    assert result.exit_code == status, (result.exit_code, result.stdout, result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    return result


def source_options(folder):
    return ["mem0", "--history", folder / "history.db", "--qdrant", folder / "qdrant"]


def migrate(folder, *arguments):
    return json.loads(run(*source_options(folder), *arguments, "--json").stdout)


def expect_refusal(*arguments, status=2):
    return run("mem0", *arguments, status=status).stderr


def add_to_mem0(mem0_memory, content, infer=False, **more):
    (one,) = mem0_memory.add(content, **{"user_id": "tom", **more}, infer=infer)["results"]
    return one["id"]


def parse_times(memory):
    return [datetime.fromisoformat(memory[name]) for name in ("created_at", "updated_at")]


# --- memories, histories, graph --------------------------------------------------------------------------------------


def test_memories_keep_ids_times_metadata_and_histories(tmp_path, home, mem0_memory):
    ids = mem0_fixture.live(mem0_memory)
    report = migrate(tmp_path / "theirs")
    assert (report["added"], report["known"], report["unenriched"]) == (4, 0, 0)
    with Memory() as memory:
        for uid in ids[:3] + ids[4:]:
            old, new = mem0_memory.get(uid), memory.get(uid)
            for name in ("id", "memory", "hash", "user_id"):
                assert new[name] == old[name]
            for name in ("agent_id", "actor_id", "role"):
                assert new[name] == old.get(name)
            assert parse_times(new) == parse_times(old)
            assert new["at"] == new["created_at"]
            metadata = old.get("metadata") or {}
            assert new["metadata"] == metadata | ({"attributed_to": "user"} if old.get("attributed_to") else {})
            assert new["kind"] == ("episode" if old.get("role") else "fact")
            for before, after in zip(mem0_memory.history(uid), memory.history(uid), strict=True):
                for name in ("id", "memory_id", "event", "old_memory", "new_memory", "actor_id", "role", "is_deleted"):
                    assert after[name] == before[name]
        assert memory.search("coffee", user_id="tom")["results"][0]["id"] == ids[2]
        assert memory.verify()["ok"]


def test_a_second_migration_adds_only_new_memories(tmp_path, home, mem0_memory):
    mem0_fixture.live(mem0_memory)
    assert migrate(tmp_path / "theirs")["added"] == 4
    report = migrate(tmp_path / "theirs")
    assert (report["added"], report["known"]) == (0, 4)
    new = add_to_mem0(mem0_memory, "I bought a kayak.")
    assert migrate(tmp_path / "theirs")["added"] == 1
    with Memory() as memory:
        assert memory.get(new)["memory"] == "I bought a kayak."
        memory.delete(new)
    report = migrate(tmp_path / "theirs")
    assert (report["added"], report["known"], report["erased"]) == (0, 4, 1)


def test_the_graph_is_extracted_from_the_texts(tmp_path, home, mem0_memory, monkeypatch):
    """Not from mem0's own collection of entities."""
    from mem0.utils import spacy_models

    monkeypatch.setattr(Settings, "from_env", lambda **_: Settings(home=home))
    monkeypatch.setattr(spacy_models, "_load_failed_full", False)
    monkeypatch.setattr(spacy_models, "_nlp_full", spacy.load(DEFAULT_MODELS[-1]))
    ids = mem0_fixture.live(mem0_memory)
    mem0_memory.update(ids[2], "I like the coffee at Nordlicht.")
    assert "mem0_entities" in {one.name for one in mem0_memory.vector_store.list_cols().collections}
    assert migrate(tmp_path / "theirs")["left"] == {DELETED: [ids[3]]}
    with Memory() as memory:
        assert {"Anna", "Nordlicht"} <= {one["name"] for one in memory.entities(user_id="tom")}
        response = memory.search("Where does the company Anna works for have an office?", user_id="tom", top_k=2)
        assert "Nordlicht has an office in Bergen." in [hit["memory"] for hit in response["results"]]
    error = expect_refusal("--qdrant", tmp_path / "theirs" / "qdrant", "--collection", "mem0_entities")
    assert "collection_name" in error


def test_data_of_an_older_mem0_is_migrated(home, tmp_path):
    shutil.copytree(OLDER, tmp_path / "older")
    report = migrate(tmp_path / "older")
    assert report["added"] == 4
    with Memory() as memory:
        toms, idas = (memory.get_all(user_id=name)["results"] for name in ("tom", "ida"))
        assert [one["memory"] for one in toms] == [
            "I like coffee.",
            "Nordlicht has an office in Bergen.",
            "My sister Anna works at Nordlicht.",
        ]
        assert {one["agent_id"] for one in toms} == {"bot"}
        assert [one["metadata"] for one in toms][1:] == [{"topic": "family"}] * 2
        assert [(one["kind"], one["memory"]) for one in idas] == [("fact", mem0_fixture.Model.fact)]
        assert [one["event"] for one in memory.history(toms[0]["id"])] == ["ADD", "UPDATE"]


def test_the_files_of_mem0_are_not_changed(home, tmp_path):
    shutil.copytree(OLDER, tmp_path / "older")
    before = {path: path.read_bytes() for path in sorted((tmp_path / "older").rglob("*")) if path.is_file()}
    for path in [*before, tmp_path / "older" / "qdrant", tmp_path / "older"]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert migrate(tmp_path / "older")["added"] == 4
    after = {path: path.read_bytes() for path in sorted((tmp_path / "older").rglob("*")) if path.is_file()}
    assert after == before


def test_without_a_history_each_memory_has_one_add_event(home, tmp_path):
    shutil.copytree(OLDER, tmp_path / "older")
    report = json.loads(run("mem0", "--qdrant", tmp_path / "older" / "qdrant", "--json").stdout)
    assert (report["added"], report["left"]) == (4, {})
    with Memory() as memory:
        for one in memory.get_all(user_id="tom")["results"]:
            assert [(line["event"], line["new_memory"]) for line in memory.history(one["id"])] == [
                ("ADD", one["memory"])
            ]


# --- scopes ----------------------------------------------------------------------------------------------------------


def test_a_user_gets_no_others_memories(tmp_path, home, mem0_memory):
    ids = mem0_fixture.live(mem0_memory)
    report = migrate(tmp_path / "theirs", "--user", "tom")
    assert (report["added"], report["others"]) == (3, 1)
    with Memory() as memory:
        assert memory.get(ids[4]) is None
    assert "1 of others" in run(*source_options(tmp_path / "theirs"), "--user", "tom", "--agent", "bot").stdout
    assert migrate(tmp_path / "theirs", "--agent", "other")["others"] == 4


def test_deleted_memories_become_tombstones_if_all_memories_have_one_owner(tmp_path, home, mem0_memory):
    stored_id, deleted_id = add_to_mem0(mem0_memory, "I like tea."), add_to_mem0(mem0_memory, "Forget this.")
    mem0_memory.delete(deleted_id)
    report = migrate(tmp_path / "theirs")
    assert (report["added"], report["tombstones"], report["left"]) == (1, 1, {})
    with Memory() as memory:
        lines = memory.history(deleted_id, user_id="tom")
        assert [(one["event"], one["old_memory"], one["new_memory"]) for one in lines] == [
            ("ADD", None, None),
            ("DELETE", None, None),
        ]
        assert memory.history(deleted_id, user_id="ida") == []
        assert memory.get(deleted_id) is None
        assert len(memory.history(stored_id)) == 1
    assert b"Forget this" not in b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_memories_without_ids_get_the_given_scope(tmp_path, home, mem0_memory):
    uid, other = add_to_mem0(mem0_memory, "I like tea."), add_to_mem0(mem0_memory, "I like jam.", user_id="ida")
    mem0_memory.vector_store.client.delete_payload("mem0", keys=["user_id"], points=[uid])
    report = migrate(tmp_path / "theirs")
    assert report["added"] == 1
    (reason,) = report["left"]
    assert "--user" in reason
    assert report["left"][reason] == [uid]
    assert migrate(tmp_path / "theirs", "--user", "kim")["added"] == 1
    with Memory() as memory:
        assert (memory.get(uid)["user_id"], memory.get(other)["user_id"]) == ("kim", "ida")


# --- unusual data ----------------------------------------------------------------------------------------------------


def insert_point(mem0_memory, uid, payload):
    mem0_memory.vector_store.insert([[1.0] * mem0_fixture.DIMS], [payload], [uid])


ONE, TWO = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"


@pytest.mark.parametrize(
    "payload, reason",
    [
        ({"user_id": "tom", "type": "user_identity"}, "has no text"),
        ({"data": "  ", "user_id": "tom"}, "has no text"),
        ({"data": "tea", "user_id": "tom"}, "has no time, neither created_at nor updated_at; give one"),
        ({"data": "tea", "user_id": "tom", "created_at": "yesterday"}, "created_at"),
        ({"data": "tea", "user_id": "*", "created_at": "2024-05-01"}, "wildcard"),
        ({"data": "a\0b", "user_id": "tom", "created_at": "2024-05-01"}, "no store can keep"),
        ({"data": "tea", "entity_type": "PROPER", "linked_memory_ids": [], "user_id": "tom"}, "entity"),
    ],
)
def test_skipped_points_are_reported_with_reasons(tmp_path, home, mem0_memory, payload, reason):
    add_to_mem0(mem0_memory, "I like cake.")
    insert_point(mem0_memory, ONE, payload)
    report = migrate(tmp_path / "theirs")
    assert report["added"] == 1
    assert [(reason in message, ids) for message, ids in report["left"].items()] == [(True, [ONE])]
    assert reason in run(*source_options(tmp_path / "theirs")).stdout


def test_memories_without_a_time_get_the_given_one(tmp_path, home, mem0_memory):
    insert_point(mem0_memory, ONE, {"data": "tea", "user_id": "tom"})
    insert_point(mem0_memory, TWO, {"data": "cake", "user_id": "tom", "created_at": "2024-05-01"})
    assert list(migrate(tmp_path / "theirs")["left"]) == [NO_TIME]
    assert "--timestamp='soon'" in run(*source_options(tmp_path / "theirs"), "--timestamp", "soon", status=2).stderr
    report = migrate(tmp_path / "theirs", "--timestamp", "2023-02-03")
    assert (report["added"], report["known"], report["left"]) == (1, 1, {})
    with Memory() as memory:
        assert {uid: memory.get(uid)["at"][:10] for uid in (ONE, TWO)} == {ONE: "2023-02-03", TWO: "2024-05-01"}
        assert memory.history(ONE)[0]["created_at"][:10] == "2023-02-03"


def test_times_of_any_zone_are_converted_to_utc(tmp_path, home, mem0_memory):
    uid = add_to_mem0(mem0_memory, "I like tea.", metadata={"created_at": "2024-03-01T10:00:00-08:00"})
    insert_point(mem0_memory, ONE, {"data": "naive", "user_id": "tom", "created_at": "2024-03-01T10:00:00"})
    assert migrate(tmp_path / "theirs")["added"] == 2
    with Memory() as memory:
        assert memory.get(uid)["at"] == "2024-03-01T18:00:00.000000+00:00"
        assert memory.get(ONE)["at"] == "2024-03-01T10:00:00.000000+00:00"
        assert [one["id"] for one in memory.get_all(user_id="tom")["results"]] == [uid, ONE]


def test_fields_of_mem0_become_fields_or_metadata(tmp_path, home, mem0_memory):
    fields = {
        "user_id": 7,
        "created_at": "2024-05-01",
        "memory_type": "procedural_memory",
        "expiration_date": "2031-12-31",
    }
    insert_point(mem0_memory, ONE, {"data": "Step 1 is to wait.", **fields})
    odd = {
        "role": "engineer",
        "memory_type": "odd",
        "actor_id": ["x"],
        "attributed_to": ["x"],
        "deep": {"a": [1, None]},
    }
    insert_point(
        mem0_memory, TWO, {"data": "Odd.", "run_id": "r1", "created_at": "2024-05-01", "text_lemmatized": "odd", **odd}
    )
    insert_point(mem0_memory, 12, {"data": "A number.", "agent_id": "bot", "created_at": "2024-05-01"})
    assert migrate(tmp_path / "theirs")["added"] == 3
    with Memory() as memory:
        one, two = memory.get(ONE), memory.get(TWO)
        assert (one["user_id"], one["memory_type"]) == ("7", "procedural")
        assert one["expiration_date"].startswith("2031-12-31T23:59:59")
        assert (two["run_id"], two["kind"], two["role"], two["memory_type"]) == ("r1", "fact", None, None)
        assert two["metadata"] == odd
        (number,) = memory.get_all(agent_id="bot")["results"]
        assert number["metadata"] == {"mem0_id": "12"}
    assert migrate(tmp_path / "theirs")["known"] == 3


def test_a_history_of_an_older_version_is_migrated(tmp_path, home, mem0_memory):
    """Nine columns, and no time of a deletion: mem0 before 0.1.100."""
    uid = add_to_mem0(mem0_memory, "I like tea.")
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute(
            "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT,"
            " new_value TEXT, event TEXT, created_at DATETIME, updated_at DATETIME, is_deleted INTEGER)"
        )
        connection.executemany(
            "INSERT INTO history VALUES (?, ?, ?, ?, NULL, ?, ?, ?, ?)",
            [
                ("e1", uid, None, "I like te.", "ADD", "2024-05-01T10:00:00-07:00", None, 0),
                ("e2", uid, "I like te.", "I like tea.", "UPDATE", None, "2024-05-02T10:00:00-07:00", 0),
                (None, ONE, None, "gone", "ADD", "2024-05-01T10:00:00-07:00", None, 0),
                (None, ONE, "gone", None, "DELETE", None, None, 1),
                ("e5", TWO, None, "lost", "ADD", "2024-05-01T10:00:00-07:00", None, 0),
            ],
        )
    report = json.loads(run("mem0", "--history", old, "--qdrant", tmp_path / "theirs" / "qdrant", "--json").stdout)
    assert (report["added"], report["tombstones"], list(report["left"].values())) == (1, 1, [[TWO]])
    with Memory() as memory:
        assert [(line["id"], line["new_memory"], line["updated_at"][:13]) for line in memory.history(uid)] == [
            ("e1", "I like te.", "2024-05-01T17"),
            ("e2", "I like tea.", "2024-05-02T17"),
        ]
        assert [(line["event"], line["updated_at"][:13]) for line in memory.history(ONE)] == [
            ("ADD", "2024-05-01T17"),
            ("DELETE", "2024-05-01T17"),
        ]


def test_a_pickle_cannot_execute_anything(tmp_path, home, mem0_memory):
    """Qdrant's local mode keeps pickles; those of a stranger may hold any call."""
    add_to_mem0(mem0_memory, "I like tea.")
    harm = tmp_path / "harm"
    file = tmp_path / "theirs" / "qdrant" / "collection" / "mem0" / "storage.sqlite"

    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(harm),)

    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO points VALUES ('x', ?)", (pickle.dumps(Harm()),))
        connection.execute("INSERT INTO points VALUES ('y', ?)", (b"\x80\x04no pickle",))
    report = migrate(tmp_path / "theirs")
    assert report["added"] == 1
    assert [(len(ids), "damaged" in reason) for reason, ids in report["left"].items()] == [(2, True)]
    assert not harm.exists()


# Tuples nested so deeply overflow the stack of their reader, which therefore is a process of its own.
DEEP = b"\x80\x04}" + b")" + b"\x85" * 400_000 + b"K\x01s."


def pickle_nested_lists(depth: int) -> bytes:
    """Pickles nested lists that each hold the next one twice: short as a pickle, larger than any memory as JSON."""
    data = b"](X\x04\x00\x00\x00moree"
    for number in range(depth):
        data = b"](" + data + b"q" + bytes([number]) + b"h" + bytes([number]) + b"e"
    fields = b"}(X\x02\x00\x00\x00idK\x07X\x07\x00\x00\x00payload}X\x01\x00\x00\x00a" + data + b"su"
    return b"\x80\x04cx\ny\n)R}X\x08\x00\x00\x00__dict__" + fields + b"sb."


@pytest.mark.thorough
@pytest.mark.parametrize(
    "hostile",
    [DEEP, pickle_nested_lists(60), b"\x80\x04]r\xff\xff\xff\x7f.", b"\x80\x04\x8e" + b"\xff" * 7 + b"\x00."],
    ids=["stack", "doubled", "memo", "length"],
)
def test_a_pickle_that_crashes_its_reader_is_skipped(tmp_path, home, mem0_memory, hostile):
    add_to_mem0(mem0_memory, "I like tea.")
    file = tmp_path / "theirs" / "qdrant" / "collection" / "mem0" / "storage.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO points VALUES ('x', ?)", (hostile,))
        (row,) = connection.execute("SELECT rowid FROM points WHERE id = 'x'").fetchone()
    add_to_mem0(mem0_memory, "I like cake.")
    report = migrate(tmp_path / "theirs")
    assert report["added"] == 2
    assert [(ids, "damaged" in reason) for reason, ids in report["left"].items()] == [([f"row {row}"], True)]


@pytest.mark.thorough
def test_a_pickle_that_takes_too_long_is_skipped(tmp_path, home, mem0_memory, monkeypatch):
    """Even if no other limit than the timeout applies."""
    add_to_mem0(mem0_memory, "I like tea.")
    slow = tmp_path / "slow.py"
    load = "point = _InertUnpickler"
    source = Path(safe_unpickler.__file__).read_text()
    assert load in source
    slow.write_text(source.replace(load, f"import time; time.sleep(1000 * data.startswith(b'slow')); {load}"))
    monkeypatch.setattr(safe_unpickler, "__file__", str(slow))
    monkeypatch.setattr(pickle_reader, "TIMEOUT", 3 * SLOWNESS)
    file = tmp_path / "theirs" / "qdrant" / "collection" / "mem0" / "storage.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO points VALUES ('x', ?)", (b"slow",))
    report = migrate(tmp_path / "theirs")
    assert (report["added"], len(report["left"])) == (1, 1)


@pytest.mark.thorough
def test_a_file_whose_pickles_all_crash_the_reader_is_refused(tmp_path, home, mem0_memory):
    file = tmp_path / "theirs" / "qdrant" / "collection" / "mem0" / "storage.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executemany("INSERT INTO points VALUES (?, ?)", [(str(n), DEEP) for n in range(30)])
    assert "check that it is a folder that mem0 wrote" in expect_refusal("--qdrant", tmp_path / "theirs" / "qdrant")


# --- long runs -------------------------------------------------------------------------------------------------------

MANY = 600
# A migration that stops responding after 300 texts.
CHILD = """
import sys, time
from support.fakes import fake_models, hash_texts
from graphmem import Settings
from graphmem.cli.app import main

left = 300

def slowly(texts):
    global left
    left -= len(texts)
    if left < 0:
        time.sleep(1000)
    return hash_texts(texts)

models = fake_models(home=sys.argv.pop(1))
models["embedder"]["config"]["embed"] = slowly
Settings.from_env = lambda **_: Settings.from_dict(models)
main()
"""


@pytest.mark.thorough
def test_a_killed_migration_can_be_repeated(tmp_path, home, mem0_memory):
    payloads = [
        {"data": f"Note {n}.", "user_id": "tom", "created_at": f"2024-05-{1 + n % 28:02}T10:00:00+00:00"}
        for n in range(MANY)
    ]
    ids = [f"00000000-0000-4000-8000-{n:012}" for n in range(MANY)]
    mem0_memory.vector_store.insert([[1.0] * mem0_fixture.DIMS] * MANY, payloads, ids)
    command = [sys.executable, "-c", CHILD, home, "migrate", *source_options(tmp_path / "theirs")]
    child = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stdout=subprocess.DEVNULL
    )
    wait_until(lambda: count_stored_memories(home) or child.poll() is not None)
    child.send_signal(signal.SIGKILL)
    child.wait()
    stored_count = count_stored_memories(home)
    assert 0 < stored_count < MANY
    report = migrate(tmp_path / "theirs")
    assert (report["added"], report["known"]) == (MANY - stored_count, stored_count)
    with Memory() as memory:
        assert {one["id"] for one in memory.get_all(user_id="tom", limit=2 * MANY)["results"]} == set(ids)
        assert memory.verify()["ok"]


def count_stored_memories(home):
    try:
        with closing(sqlite3.connect(f"file:{home / 'ledger.sqlite'}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT count(*) FROM memories").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes_are_one_line_with_a_remedy(tmp_path, home):
    shutil.copytree(OLDER, tmp_path / "older")
    older, qdrant = tmp_path / "older", tmp_path / "older" / "qdrant"
    (tmp_path / "notes.txt").write_text("nothing of a database " * 100)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE history (id, url)")
    assert "no such file" in expect_refusal("--qdrant", qdrant, "--history", tmp_path / "none.db")
    assert "cannot be read as SQLite" in expect_refusal("--qdrant", qdrant, "--history", tmp_path / "notes.txt")
    assert "no database of mem0" in expect_refusal("--qdrant", qdrant, "--history", tmp_path / "other.db")
    Memory(tmp_path / "ours", settings=Settings.from_dict(fake_models())).close()
    assert "no database of mem0" in expect_refusal("--qdrant", qdrant, "--history", tmp_path / "ours" / "ledger.sqlite")
    assert "http://host:port" in expect_refusal("--qdrant", "localhost:6333")
    assert "it has 'mem0'" in expect_refusal("--qdrant", qdrant, "--collection", "../older")
    assert "cannot be reached" in expect_refusal("--qdrant", "http://127.0.0.1:9", status=1)
    (qdrant / "collection" / "mem0" / "storage.sqlite").rename(qdrant / "collection" / "mem0" / "storage.dbm")
    assert "1.1.7" in expect_refusal("--qdrant", qdrant, "--history", older / "history.db")
    assert runner.invoke(app, ["migrate", "mem0"]).exit_code == 2
    assert not home.exists()


@pytest.mark.parametrize(
    "status, message, exit_status",
    [(401, "--api-key", 2), (403, "--api-key", 2), (404, "status 404", 1), (200, "no Qdrant server", 1)],
)
def test_a_server_that_is_no_usable_qdrant_is_refused(home, status, message, exit_status):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        assert message in expect_refusal("--qdrant", f"http://127.0.0.1:{server.server_port}", status=exit_status)
        server.shutdown()
