"""The command line as people and scripts use it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from support.ages import make_older
from support.fakes import hash_texts
from support.waiting import TIMEOUT, wait_until
from typer.main import get_command
from typer.testing import CliRunner

from graphmem import Memory
from graphmem.cli import bulk_add
from graphmem.cli.app import app
from graphmem.cli.render import Renderer, escape_controls, one_line, quoted, size_text
from graphmem.commands.types import RetireMemory
from graphmem.errors import ValidationError
from graphmem.transfer.sources.message_files import MessageDefaults, read_file

runner = CliRunner()


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    monkeypatch.setenv("GRAPHMEM_HOME", str(folder))
    return folder


@pytest.fixture
def plain_home(home, monkeypatch):
    """The home folder, without spaCy: for tests that need no graph."""
    monkeypatch.setenv("GRAPHMEM_EXTRACTOR__PROVIDER", "none")
    return home


@pytest.fixture(scope="module")
def empty_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty")
    Memory(str(folder)).close()
    return folder


@pytest.fixture
def empty_memory(empty_folder, monkeypatch):
    """A home folder that has a memory without anything in it, which is shared: for tests that change nothing."""
    monkeypatch.setenv("GRAPHMEM_HOME", str(empty_folder))
    monkeypatch.setenv("GRAPHMEM_EXTRACTOR__PROVIDER", "none")


def run(*arguments, status=0, **more):
    result = runner.invoke(app, list(arguments), **more)
    assert result.exit_code == status, (result.exit_code, result.stdout, result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    return result


def run_json(*arguments, **more):
    return json.loads(run(*arguments, "--json", **more).stdout)


def add(*arguments, user="ann", **more):
    return run_json("add", *arguments, "--user", user, **more)["results"]


# --- no longer true ------------------------------------------------------------------------------------------------


def test_what_is_no_longer_true_is_counted_and_shown_on_request(plain_home):
    (old,), (new,) = add("Anna lives in Rome."), add("Anna lives in Oslo.")
    with Memory(str(plain_home)) as memory:
        memory.engine.commit([RetireMemory(old["id"], at=datetime.now(UTC), reason="moved", successor=new["id"])])
    listed = run("list", "--user", "ann")
    assert "Rome" not in listed.stdout
    assert listed.stderr == "graphmem: 1 of 1 memories, and 1 that are no longer true (--show-retired)\n"
    shown = run("list", "--user", "ann", "--show-retired")
    assert "Rome" in shown.stdout and "until" in shown.stdout
    assert shown.stderr == "graphmem: 2 of 2 memories, 1 of them no longer true\n"
    assert f"RETIRE  moved  rule: time, replaced by {new['id']}" in run("explain", old["id"]).stdout
    found = run_json("search", "Rome", "--user", "ann", "--show-retired")["results"]
    assert {one["id"] for one in found} == {old["id"], new["id"]}
    nodes = run_json("graph", "--user", "ann", "--show-retired")["nodes"]
    assert old["id"] in {one["id"] for one in nodes}
    only = run("list", "--user", "ann", "--retired-only")
    assert "Rome" in only.stdout and "Oslo" not in only.stdout
    assert only.stderr == "graphmem: 1 of 1 memories that are no longer true\n"
    stats = run_json("stats")
    assert (stats["memories"], stats["retired"], stats["source_messages"]) == (2, 1, 0)
    assert "RETIRE" in run("history", old["id"]).stdout
    run("delete", old["id"], "--user", "ann")
    assert run_json("list", "--user", "ann", "--show-retired")["total"] == run_json("stats")["memories"] == 1


def test_the_option_that_why_not_names_finds_a_hidden_memory(plain_home):
    words = ["Anna lives in Rome.", "Anna lives in Oslo.", "Anna lives in Bonn."]
    with Memory(str(plain_home)) as memory:
        ends = ({}, {}, {"expiration_date": "2020-01-01"})
        added = [memory.add(text, user_id="ann", **end) for text, end in zip(words, ends, strict=True)]
        uids = [result["results"][0]["id"] for result in added]
        memory.engine.commit([RetireMemory(uids[0], at=datetime.now(UTC), reason="moved", successor=uids[1])])
        memory.forget(uids[1], user_id="ann")
    options = []
    for uid in uids:
        answer = run_json("why-not", "Anna", uid, "--user", "ann")
        assert answer["step"] == "not_visible"
        assert run_json("search", "Anna", "--user", "ann")["results"] == []
        option = "--" + answer["why"].removesuffix(" finds it").rpartition("; ")[2].replace("_", "-")
        assert run_json("why-not", "Anna", uid, "--user", "ann", option)["step"] == "hit"
        for command in (["search", "Anna"], ["list"]):
            assert [one["id"] for one in run_json(*command, "--user", "ann", option)["results"]] == [uid]
        options.append(option)
    assert options == ["--show-retired", "--show-forgotten", "--show-expired"]


# --- the lifecycle ---------------------------------------------------------------------------------------------------


def test_a_cycle_is_seen_before_and_told_after(plain_home):
    on = {"lifecycle": {"enabled": True}}
    with Memory.from_config({"home": str(plain_home), "extractor": {"provider": "none"}, **on}) as memory:
        memory.add(["I like tea.", "The weather is grey."], user_id="ann", infer=False)
        cycle = memory.tend(user_id="ann", now="2999-01-01")["cycle"]
        memory.undo_cycle(cycle)
    planned = run("lifecycle", "run", "--dry-run", "--user", "ann", "--now", "2999-01-01").stdout
    assert re.search(r"forget  retention below 0\.1  [\w-]+\n +The weather is grey\.", planned)
    told = run("lifecycle", "status", "--user", "ann").stdout
    assert told.startswith("The lifecycle is off: nothing is forgotten by itself.")
    numbers = {"short term": 2, "long term": 0, "pinned": 0, "forgotten": 0}
    assert all(re.search(rf"^ *{name} +{number}$", told, re.MULTILINE) for name, number in numbers.items())
    line = rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d  1 forgotten, 0 merged, 1 promoted, 0 composed  undone  {cycle}$"
    assert re.search(line, told, re.MULTILINE)


def test_abstractions_are_printed_and_what_was_left_out(plain_home):
    with Memory.from_config({"home": str(plain_home), "extractor": {"provider": "none"}}) as memory:
        (dated,) = memory.add("On Monday Ann bought a latte.", user_id="ann", infer=False)["results"]
    made = run("lifecycle", "abstract", dated["id"], "--user", "ann").stdout
    assert re.search(r"^level 1, of 1 memories .*\n +Ann bought a latte\.$", made, re.MULTILINE)
    assert re.search(r"^ *cycle +[\w-]{36}$", made, re.MULTILINE)
    skipped = run("lifecycle", "abstract", dated["id"], "--user", "ann", "--level", "2").stdout
    assert skipped.split() == "skipped: abstract needs a language model, and none is configured".split()


def test_the_status_tells_that_the_brake_held_the_last_cycle_until_one_runs(plain_home, monkeypatch):
    for name, value in (("ENABLED", "true"), ("SINCE", "2026-01-01"), ("DAILY_AT", "never"), ("BRAKE_MEMORIES", "1")):
        monkeypatch.setenv(f"GRAPHMEM_LIFECYCLE__{name}", value)
    with Memory.from_config({"home": str(plain_home), "extractor": {"provider": "none"}}) as memory:
        memory.add(["The weather is grey.", "The weather is bad."], user_id="ann", infer=False)
        make_older(memory, 9)
    assert "look at a dry run, then force the cycle" in run("lifecycle", "run", "--user", "ann").stdout
    told = run("lifecycle", "status", "--user", "ann").stdout
    assert told.startswith("The last cycle forgot nothing: 2 of 2 memories at once are too many.")
    assert "Look at graphmem lifecycle run --dry-run; with --force it runs." in told
    assert re.search(r"last cycle +[\d: -]+, changed nothing\n", told)
    run("lifecycle", "run", "--user", "ann", "--force")
    told = run("lifecycle", "status", "--user", "ann").stdout
    assert "The last cycle forgot nothing" not in told
    assert re.search(r"last cycle +[\d: -]+, changed 2\n", told)
    assert "last cycles" in run("stats").stdout


# --- days ----------------------------------------------------------------------------------------------------------


def test_days_are_those_of_the_configured_zone(home, monkeypatch):
    monkeypatch.setenv("GRAPHMEM_TIMEZONE", "Asia/Shanghai")
    (memory,) = add("Bruno went running.", "--timestamp", "2025-05-11T07:00")
    assert memory["at"].startswith("2025-05-10T23:00:00")
    for command in (("list",), ("search", "running"), ("context", "running"), ("explain", memory["id"])):
        assert "2025-05-11" in run(*command, "--user", "ann").stdout
    monkeypatch.setenv("GRAPHMEM_TIMEZONE", "Shanghai")
    assert "GRAPHMEM_TIMEZONE: is no name of the IANA" in run("list", "--user", "ann", status=2).stderr


# --- from add to delete --------------------------------------------------------------------------------------------


def test_life_of_a_memory_from_add_to_delete(home):
    first = add("Bruno works at the observatory in Tartu.", "--name", "Ann", "--timestamp", "2025-01-02")[0]
    other = add("Ann's cat is called Pixel.", "--metadata", '{"topic": "pets"}')[0]
    assert (first["event"], first["actor_id"], first["at"][:10]) == ("ADD", "Ann", "2025-01-02")

    hits = run_json("search", "Where does Bruno work?", "--user", "ann", "--explain", "--top-k", "1")["results"]
    assert [hit["id"] for hit in hits] == [first["id"]]
    assert hits[0]["explain"]["path"][-1]["id"] == first["id"]
    output = run("search", "Where does Bruno work?", "--user", "ann", "--explain").stdout
    assert "Bruno works at the observatory in Tartu." in output
    assert "2025-01-02" in output
    assert "1.00" in output
    assert hits[0]["explain"]["why"] in output

    pets = run_json("list", "--user", "ann", "--filters", '{"topic": "pets"}')
    assert [one["id"] for one in pets["results"]] == [other["id"]]
    page = run("list", "--user", "ann", "--limit", "1", "--offset", "1")
    assert first["id"] in page.stdout
    assert "1 of 2" in page.stderr

    block = run("context", "Bruno", "--user", "ann", "--max-chars", "500").stdout
    assert block.startswith("<memories>")
    assert run_json("context", "Bruno", "--user", "ann", "--max-chars", "500")["context"] == block.strip("\n")

    graph = run_json("graph", "--user", "ann", "--around", "Bruno", "--hops", "1")
    assert {"entity:bruno", first["id"]} <= {node["id"] for node in graph["nodes"]}
    assert "Bruno" in run("graph", "--user", "ann").stdout

    assert run_json("update", first["id"], "Bruno works in Lund.")["memory"] == "Bruno works in Lund."
    assert [event["event"] for event in run_json("history", first["id"])] == ["ADD", "UPDATE"]
    history_output = run("history", first["id"]).stdout
    assert "- Bruno works at the observatory in Tartu." in history_output
    assert "+ Bruno works in Lund." in history_output
    assert run_json("explain", first["id"])["messages"]
    assert "mentions" in run("explain", first["id"]).stdout
    assert "pets" in run("show", other["id"]).stdout

    assert run_json("delete", first["id"], other["id"])["deleted"] == [first["id"], other["id"]]
    assert run_json("list", "--user", "ann")["total"] == 0


def test_explain_says_that_a_fact_has_no_message(plain_home, tmp_path):
    file = tmp_path / "memory.jsonl"
    file.write_text(json.dumps({"type": "entity", "name": "Bo", "entityType": "person", "observations": ["Bo sings"]}))
    run("migrate", "jsonl", str(file), "--user", "ann")
    imported = run_json("list", "--user", "ann")["results"][0]
    assert "its source messages were deleted, or it was imported without them" in run("explain", imported["id"]).stdout


def test_relative_dates_count_from_the_reference_date(plain_home):
    add("We had dinner at the castle.", "--timestamp", "2024-03-06")
    add("We had dinner at the mill.", "--timestamp", "2024-04-03")
    question = ("Where did we have dinner last week?", "--user", "ann", "--reference-date", "2024-03-13")
    assert "castle" in run("search", *question, "--top-k", "1").stdout
    assert "castle" in run("context", *question, "--max-chars", "150").stdout


def test_stats_verify_repair_and_rebuild(home):
    add("Nothing hurries here.")
    stats = run_json("stats")
    assert stats["memories"] == 1
    shown = run("stats").stdout
    assert re.search(r"(?m)^source messages +0$", shown)
    assert re.search(r"(?m)^  ledger +\d{2,3}\.\d KiB$", shown)
    assert re.search(r"(?m)^  vector +\d\.\d KiB of embeddings$", shown)
    lines = shown.partition("\nstores\n")[2].splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["name", "provider", "available"], ["ledger", "sqlite", "yes"]
    ]  # fmt: skip
    assert len({line.find("yes") for line in lines[1:]} | {lines[0].find("available")}) == 1
    assert run_json("verify")["ok"]
    assert "everything agrees" in run("repair").stdout
    assert run_json("rebuild", "vectors")["ok"]
    assert run_json("rebuild")["ok"]
    run("rebuild", "everything", status=2)


def test_rebuild_keeps_the_vectors_of_an_embedder_that_nobody_replaced(plain_home, monkeypatch):
    function = {"embed": hash_texts, "embedding_dims": 64, "model": "mine"}
    config = {"home": str(plain_home), "embedder": {"provider": "callable", "config": function}}
    with Memory.from_config({**config, "extractor": {"provider": "none"}}) as memory:
        memory.add("Nothing hurries here.", user_id="ann")
    error = run("rebuild", status=2).stderr
    assert "'mine'" in error and "Memory.rebuild()" in error and "GRAPHMEM_EMBEDDER__PROVIDER" in error
    assert run_json("rebuild", "graph")["ok"]
    assert re.search("configured embedder +minilm", run("stats").stdout)
    assert run_json("stats")["embedder"] == "mine"
    monkeypatch.setenv("GRAPHMEM_EMBEDDER__PROVIDER", "minilm")
    assert run_json("rebuild")["ok"]
    assert run_json("stats")["embedder"].startswith("minilm")


def test_verify_exits_with_status_one_if_something_is_wrong(plain_home):
    add("A tree stands in the yard.")
    with contextlib.closing(sqlite3.connect(plain_home / "ledger.sqlite")) as connection, connection:
        connection.execute("UPDATE partitions SET size = 7")
    assert "not everything agrees" in run("verify", status=1).stdout
    assert run_json("verify", "--repair")["ok"]
    run("verify")


def test_verify_names_the_remedy_for_damaged_memories(plain_home):
    updated_id, deleted_id, intact_id = (
        add(text)[0]["id"] for text in ("A tree stands.", "A boat lies there.", "A cat sleeps.")
    )
    with contextlib.closing(sqlite3.connect(plain_home / "ledger.sqlite")) as connection, connection:
        connection.execute("UPDATE memories SET text = 'x' WHERE uid IN (?, ?)", (updated_id, deleted_id))
    output = run("verify", status=1).stdout
    assert f"damaged: {updated_id}" in output
    assert "restore a backup; without one, give them the right words (graphmem update ID TEXT) or delete them" in output
    assert intact_id not in output
    run("update", updated_id, "A tree stands.")
    run("delete", deleted_id)
    run("repair")
    run("verify")


def test_report_names_the_remedy_for_a_broken_ledger_file(capsys):
    report = {"ok": False, "ledger": {"jobs": 0}, "damaged": ["row 3 missing from index x"], "derived": []}
    Renderer(lambda: None).report({**report, "projections": {}})
    output = capsys.readouterr().out
    assert "the ledger's file is broken: restore a backup" in output
    assert "graphmem update" not in output


def test_home_and_config_are_options_of_every_command(tmp_path, monkeypatch, plain_home):
    config, other_home = tmp_path / "c.toml", tmp_path / "elsewhere"
    config.write_text(f'home = "{other_home.as_posix()}"\nversion = "v1.0"\n[extractor]\nprovider = "none"\n')
    run("add", "By configuration.", "--user", "ann", "--config", str(config))
    assert run_json("list", "--user", "ann", "--home", str(other_home))["total"] == 1
    assert not plain_home.exists()
    config.write_text("colour = 'blue'")
    assert "unknown key 'colour'" in run("stats", "--config", str(config), status=2).stderr
    run("stats", "--home", ":memory:", status=2)
    for option in ("--home", "--config"):
        assert f"'{option}': is empty" in run("stats", option, "", status=2).stderr


# --- export and import ---------------------------------------------------------------------------------------------


def test_export_to_a_file_and_import_from_it(plain_home, tmp_path):
    uid = add("A tree stands in the yard.")[0]["id"]
    add("A boat lies in the harbour.", user="bob")
    run("delete", add("A secret.")[0]["id"])
    file = tmp_path / "all.jsonl"
    assert run("export", str(file)).stdout == f"2 memories, 1 erased ones noted: {file}\n"
    assert run_json("export", str(tmp_path / "ann"), "--user", "ann")["memories"] == 1
    target_options = ("--home", str(tmp_path / "there"))
    run("keys", "create", "--role", "app")
    run("export", str(file))
    first_import = run("import", str(file), *target_options).stdout
    assert first_import == "2 added; 1 erased there, noted; 1 keys to be made anew (graphmem keys create)\n"
    assert "0 added; 3 known already" in run("import", str(file), *target_options).stdout
    assert [one["id"] for one in run_json("list", "--user", "ann", *target_options)["results"]] == [uid]
    run("delete", uid, *target_options)
    assert "1 erased here before" in run("import", str(file), *target_options).stdout
    assert run_json("import", str(file), "--restore", *target_options)["added"] == 1


def test_import_refuses_scope_options(plain_home, tmp_path):
    """A scope would not restrict an import: it adds the memories of all users."""
    add("A tree stands in the yard.")
    file, other_home = tmp_path / "x", tmp_path / "there"
    run("export", str(file))
    for option in ("--user", "--agent", "--run"):
        result = run("import", str(file), option, "ann", "--home", str(other_home), status=2)
        assert f"No such option: {option}" in result.stderr
    assert not other_home.exists()


@pytest.mark.parametrize(
    "name", ["demo", "import file", "verify", "repair", "rebuild", "retry-failed", "stats", "bench chats"]
)
def test_commands_about_everything_have_no_scope_options(name):
    options = re.findall(r"(?m)^ +(--[a-z]+)(?: [A-Z|]+)?(?:  |$)", run(*name.split(), "--help").stdout)
    assert {"--home", "--config", "--json"} <= set(options)
    assert not {"--user", "--agent", "--run"} & set(options)


def test_export_without_memories_warns(plain_home, tmp_path):
    add("A tree stands in the yard.")
    file = tmp_path / "x"
    assert run("export", str(file)).stderr == ""
    result = run("export", str(file), "--user", "anne", "--json")
    assert json.loads(result.stdout)["memories"] == 0
    assert result.stderr == (
        "graphmem: there are no memories of --user anne to export; the file that was there is replaced\n"
    )
    assert "no memories of --user x to export\n" in run("export", str(tmp_path / "y"), "--user", "x").stderr
    assert "no memories of --user x to export\n" in run("export", "-", "--user", "x").stderr
    run("delete", "--all", "--user", "ann", "--yes")
    assert run("export", str(tmp_path / "z")).stderr == "graphmem: there are no memories to export\n"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["export", "backup"])
def test_what_is_written_into_a_closed_pipe_fails_with_one_line(plain_home, name):
    add("A tree stands in the yard.")
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = subprocess.run(
        [sys.executable, "-m", "graphmem", name, "-"], stdout=write_end, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write_end)
    assert result.stderr == f"graphmem: the reader of the {name} has closed the pipe; the output is incomplete\n"
    assert result.returncode == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--user", "ann"],
        pytest.param(["list", "--user", "ann", "--json"], marks=pytest.mark.thorough),
        pytest.param(["--help"], marks=pytest.mark.thorough),
    ],
)
def test_an_answer_for_which_there_is_no_room_fails_with_one_line(plain_home, monkeypatch, arguments, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    add("A tree stands in the yard.")
    with open("/dev/full", "wb") as device:
        command = [sys.executable, "-m", "graphmem", *arguments]
        result = subprocess.run(command, stdout=device, stderr=subprocess.PIPE, text=True, check=False)
    assert result.stderr == "graphmem: cannot write to standard output: No space left on device\n"
    assert result.returncode == 1


def test_export_and_import_through_pipes(plain_home, tmp_path):
    add("A tree stands in the yard.")
    result = run("export", "-", "--user", "ann")
    assert result.stderr == "graphmem: 1 memories, 0 erased ones noted\n"
    target_options = ("--home", str(tmp_path / "there"))
    assert run_json("import", "-", *target_options, input=result.stdout)["added"] == 1
    truncated_export = "".join(result.stdout.splitlines(keepends=True)[:-1])
    errors = run("import", "-", *target_options, input=truncated_export, status=1).stderr
    assert "the file was cut off; before that 0 memories were added (1 known already)" in errors


def test_import_of_a_truncated_file_fails_with_one_line(plain_home, tmp_path):
    add("A tree stands in the yard.")
    file = tmp_path / "x"
    run("export", str(file))
    file.write_bytes(file.read_bytes()[:-10])
    result = run("import", str(file), status=1)
    assert "nothing was imported" in result.stderr
    assert result.stderr.count("\n") == 1
    run("export", status=2)
    assert "No such file" in run("import", str(tmp_path / "none"), status=1).stderr


# --- add -----------------------------------------------------------------------------------------------------------


def test_add_prints_counts_of_added_known_and_skipped_messages(plain_home, tmp_path):
    file = tmp_path / "said.json"
    messages = [
        {"role": "user", "content": "Rain again.", "id": "1"},
        {"role": "system", "content": "Be kind."},
        {"role": "assistant", "content": "Take a coat.", "id": "2"},
    ]
    file.write_text(json.dumps({"messages": messages}))
    assert run("add", "--file", str(file), "--user", "ann").stdout.startswith("2 added; 1 skipped")
    assert "0 added; 2 known already; 1 skipped" in run("add", "--file", str(file), "--user", "ann").stdout
    run("delete", "--all", "--user", "ann", "--yes")
    assert "2 erased before" in run("add", "--file", str(file), "--user", "ann").stdout


def test_json_lines_from_standard_input(plain_home):
    lines = '{"role": "user", "content": "One."}\n\n{"messages": [{"role": "assistant", "content": "Two."}]}\n'
    results = add("-", "--format", "messages", "--name", "Ann", input=lines)
    assert [(one["memory"], one["actor_id"]) for one in results] == [("One.", "Ann"), ("Two.", None)]
    assert [one["memory"] for one in add("-", "--format", "messages", input='["Three.", "Four."]')] == [
        "Three.",
        "Four.",
    ]


@pytest.mark.thorough
def test_add_of_many_messages_waits_for_enrichment(plain_home, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk_add, "PROGRESS_FROM", 5)
    file = tmp_path / "many.txt"
    file.write_text("\n\n".join(f"Paragraph number {i}." for i in range(20)))
    result = run_json("add", "--file", str(file), "--user", "ann")
    assert len(result["results"]) == 20
    assert "pending" not in result
    assert run_json("stats")["jobs"] == 0
    monkeypatch.setenv("GRAPHMEM_LIMITS__MAX_MESSAGES", "8")
    assert "20 added" in run("add", "--file", str(file), "--user", "bob").stdout


def test_no_wait_reports_pending_projections_and_finishes_them(plain_home):
    assert set(run_json("add", "Later.", "--user", "ann", "--no-wait")["pending"]) == {"vectors", "graph"}
    assert run_json("search", "Later", "--user", "ann")["results"]


@pytest.mark.parametrize(
    ("name", "content", "error_text"),
    [
        ("a.jsonl", b'{"role": "user", "content": "x"}\n{oops\n', "a.jsonl, line 2: is not valid JSON"),
        ("a.json", b'[\n {"role": "user",\n]', "a.json, line 3: is not valid JSON"),
        ("a.json", b'{"role": "user", "content": "x"}\n{oops\n', "a.json, line 2: is not valid JSON"),
        ("a.json", b'"words"', "a.json: must hold messages"),
        ("a.json", b'{"messages": 3}', "a.json: must hold messages"),
        ("a.json", b"[" * 100_000, "a.json, line 1: is not valid JSON"),
        ("a.json", b'[{"role": "boss", "content": "x"}]', "a.json: messages[0].role='boss'"),
        ("a.json", b'[{"a": 1}]', "a.json: messages[0]=['a']: has no \"content\""),
        ("a.json", b"[7]", "a.json: messages[0]=<int>"),
        ("a.txt", b"fine\ncaf\xe9", "a.txt, line 2: is not UTF-8 (byte 0xe9)"),
        ("a.txt", b" \n", "a.txt: is empty"),
        ("a.zip", b"PK\x03\x04\xff", "a.zip: is a zip file; `graphmem import chatgpt` (or claude, whatsapp) reads one"),
        ("a.txt", "\ufeffé".encode("utf-16-le"), "a.txt: is UTF-16; convert it to UTF-8"),
        ("a.jsonl", b'{"type":"graphmem","format":2}\n', "a.jsonl: is an export of graphmem's; import it with"),
    ],
)
def test_unreadable_input_fails_with_one_line(plain_home, tmp_path, monkeypatch, name, content, error_text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    result = run("add", "--file", name, "--user", "ann", status=1)
    assert result.stderr.startswith(f"graphmem: {error_text}")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_text_that_is_a_file_name_is_stored_as_text(plain_home, tmp_path, monkeypatch):
    """A program that passes on chat messages must not disclose files to those who write them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("My PIN is 4711.")
    for text in ("notes.txt", str(tmp_path / "notes.txt")):
        result = run("add", text, "--user", "ann", "--json")
        assert [one["memory"] for one in json.loads(result.stdout)["results"]] == [text]
        assert "--file reads the file" in result.stderr
        assert result.stderr.count("\n") == 1
    for text in ("notse.txt", str(tmp_path), "I wrote it all into notes.txt", "long " * 300, '[{"role": "system"}]'):
        result = run("add", text, "--user", "ann", "--json")
        assert [one["memory"] for one in json.loads(result.stdout)["results"]] == [text]
        assert result.stderr == ""
    assert "PIN" not in run("list", "--user", "ann", "--json").stdout
    assert [one["memory"] for one in add("--file", "notes.txt")] == ["My PIN is 4711."]


def test_a_missing_file_is_an_error(plain_home, tmp_path):
    for path in ("notse.txt", str(tmp_path), "n" * 300, "\udcff"):
        assert "cannot be read" in run("add", "--file", path, "--user", "ann", status=1).stderr
    for arguments in ((), ("words", "--file", "notes.txt"), ("x", "--format", "prose")):
        run("add", *arguments, "--user", "ann", status=2)


def test_standard_input_is_text_unless_format_is_given(plain_home):
    for words in ('{"role": "assistant", "content": "x"}', "Assistant: I obey.\nAssistant: Always.", "notes.txt"):
        assert [(one["memory"], one["role"]) for one in add("-", input=words)] == [(words, "user")]
    assert [one["memory"] for one in add("-", input="One.\n\nTwo.")] == ["One.", "Two."]
    turns = add("-", "--format", "transcript", input="Ann: Hi.\nBob: Hello.")
    assert [(one["memory"], one["actor_id"]) for one in turns] == [("Hi.", "Ann"), ("Hello.", "Bob")]
    turns = add("-", "--format", "transcript", input="王磊：我去北京。\n小李：好的。")
    assert [(one["memory"], one["actor_id"]) for one in turns] == [("我去北京。", "王磊"), ("好的。", "小李")]
    of_ann = "add", "--user", "ann"
    assert "as transcripts do" in run(*of_ann, "-", "--format", "transcript", input="Hi.", status=1).stderr
    assert "TEXT, line 1: is not valid JSON" in run(*of_ann, "Hi.", "--format", "messages", status=2).stderr


def test_format_overrides_the_detected_format_of_a_file(plain_home, tmp_path):
    file = tmp_path / "said.json"
    file.write_text('{"role": "assistant", "content": "x"}')
    assert [one["memory"] for one in add("--file", str(file))] == ["x"]
    assert [one["memory"] for one in add("--file", str(file), "--format", "text")] == [file.read_text()]


def test_text_files_are_split_into_paragraphs_or_turns(tmp_path):
    def contents(text, **defaults):
        (tmp_path / "t.txt").write_bytes(text.encode())
        return read_file(tmp_path / "t.txt", MessageDefaults(**defaults))[1]

    prose = contents("One line\r\nand another.\r\n\r\n  \r\nNote: second.\r\n", name="Ann")
    assert prose == [
        {"role": "user", "content": "One line\nand another.", "name": "Ann"},
        {"role": "user", "content": "Note: second.", "name": "Ann"},
    ]
    turns = contents(
        "\ufeffAna María: Hi.\n  how are you?\nDr. O'Neil: Fine: really.\nassistant: Good.\nAna María: So am I."
    )
    assert turns == [
        {"role": "user", "name": "Ana María", "content": "Hi.\nhow are you?"},
        {"role": "user", "name": "Dr. O'Neil", "content": "Fine: really."},
        {"role": "assistant", "content": "Good."},
        {"role": "user", "name": "Ana María", "content": "So am I."},
    ]
    assert len(contents("Groceries: milk\nChores: laundry")) == 1
    assert len(contents("Remember: this is one paragraph.\nIt goes on.\nAnd on.")) == 1
    assert contents("[laughs] No JSON at all.") == [{"role": "user", "content": "[laughs] No JSON at all."}]
    with pytest.raises(ValidationError, match="line 1: is not valid JSON"):
        contents('{"role": "user"')


@pytest.mark.thorough
def test_the_paragraphs_of_a_file_are_neighbours_of_each_other_only(plain_home, tmp_path):
    (tmp_path / "notes.txt").write_text("The first paragraph.\n\nThe second one.", "utf-8")
    (tmp_path / "talk.txt").write_text("Ann: Hello.\nBob: Hi.\nAnn: Bye.", "utf-8")
    add("What was said before.", "--run", "r1")
    for name in ("notes.txt", "talk.txt"):
        run("add", "--file", str(tmp_path / name), "--user", "ann", "--run", "r1")
    result = run("add", "-", "--user", "ann", "--run", "r1", input="Some words.\n\nMore words.")
    assert "2 added" in result.stdout
    with contextlib.closing(sqlite3.connect(next(plain_home.glob("*.sqlite")))) as ledger:
        sessions = dict(ledger.execute("SELECT text, session FROM memories"))
    document = {sessions["The first paragraph."], sessions["The second one."]}
    assert len(document) == 1
    assert {session for words, session in sessions.items() if not words.startswith("The ")} == {"r1"}
    assert "r1" not in document


# --- errors and scopes ---------------------------------------------------------------------------------------------


def test_failures_are_one_line_and_status_one(plain_home):
    add("A tree stands in the yard.")
    for arguments in (
        ["show", "nothing"],
        ["show", ""],
        ["history", "nothing"],
        ["explain", "nothing"],
        ["why-not", "words", "nothing", "--user", "ann"],
        ["judge", "words", "nothing", "right", "--user", "ann"],
        ["update", "nothing", "words"],
        ["undo", "nothing"],
        ["forget", "nothing"],
        ["pin", "nothing"],
        ["delete", "nothing"],
        ["add", "--file", "nowhere", "--user", "ann"],
        ["import", "nowhere"],
        ["backup", "nowhere/file"],
        ["export", "nowhere/file"],
        ["graph", "--user", "ann", "--output", "nowhere/graph.json"],
        ["graph", "--user", "ann", "--around", "Nobody"],
        ["bench", "locomo", "nowhere"],
        ["keys", "revoke", "nothing"],
        ["migrate", "jsonl", "nowhere", "--user", "ann"],
    ):
        result = run(*arguments, status=1)
        assert result.stdout == "", arguments
        assert result.stderr.startswith("graphmem: "), arguments
        assert result.stderr.count("\n") == 1, arguments
        assert "get_all" not in result.stderr, arguments
    assert "no memory nothing;" in run("show", "nothing", status=1).stderr


CONTROL, DEEP = "a\nb", '{"a": ' * 30 + "1" + "}" * 30
# For each part of a command line values that cannot be used, with the rest of the command.
LESS_RELEVANT = "nothing relevant enough is remembered: --min-relevance 0 shows the rest"
UNUSABLE = {
    "add TEXT": (["a\0b"], ["--user", "ann"]),
    "add --role": (["king", "system"], ["x", "--user", "ann"]),
    "add --name": ([CONTROL, ""], ["x", "--user", "ann"]),
    "add --format": (["pdf"], ["x", "--user", "ann"]),
    "add --timestamp": (["soon"], ["x", "--user", "ann"]),
    "add --metadata": (["3", DEEP], ["x", "--user", "ann"]),
    "search QUERY": ([" ", "a\0b"], ["--user", "ann"]),
    "search --top-k": (["0", "many", "5000"], ["x", "--user", "ann"]),
    "search --filters": (["{oops", "[1]", '{"OR": 1}', '{"at": {"zz": 1}}'], ["x", "--user", "ann"]),
    "search --threshold": (["7", "high"], ["x", "--user", "ann"]),
    "search --min-relevance": (["7", "-1", "high"], ["x", "--user", "ann"]),
    "search --as-of": (["some day", "user_id"], ["x", "--user", "ann"]),
    "search --reference-date": (["some day"], ["x", "--user", "ann"]),
    "search --kinds": (["dream", ""], ["x", "--user", "ann"]),
    "why-not QUERY": ([" ", "a\0b"], ["--user", "ann"]),
    "judge QUERY": ([" ", "a\0b", "x" * 5000], ["--user", "ann"]),
    "judge VERDICT": (["good", ""], ["x", "x", "--user", "ann"]),
    "judgements --limit": (["0", "many"], ["--user", "ann"]),
    "why-not --top-k": (["0", "many", "5000"], ["x", "x", "--user", "ann"]),
    "why-not --filters": (["{oops", "[1]"], ["x", "x", "--user", "ann"]),
    "why-not --threshold": (["7", "high"], ["x", "x", "--user", "ann"]),
    "why-not --min-relevance": (["7", "high"], ["x", "x", "--user", "ann"]),
    "why-not --as-of": (["some day"], ["x", "x", "--user", "ann"]),
    "why-not --reference-date": (["some day"], ["x", "x", "--user", "ann"]),
    "why-not --kinds": (["dream", ""], ["x", "x", "--user", "ann"]),
    "context QUERY": ([" "], ["--user", "ann"]),
    "context --max-chars": (["0"], ["x", "--user", "ann"]),
    "context --max-tokens": (["0"], ["x", "--user", "ann"]),
    "context --filters": (["{oops", "[1]", '{"OR": 1}', '{"at": {"zz": 1}}'], ["x", "--user", "ann"]),
    "context --threshold": (["7", "high"], ["x", "--user", "ann"]),
    "context --min-relevance": (["7", "-1", "high"], ["x", "--user", "ann"]),
    "context --reference-date": (["some day"], ["x", "--user", "ann"]),
    "list --limit": (["0", "many"], ["--user", "ann"]),
    "list --offset": (["-1"], ["--user", "ann"]),
    "list --filters": (["{oops"], ["--user", "ann"]),
    "list --kinds": (["dream"], ["--user", "ann"]),
    "update TEXT": ([""], ["an-id"]),
    "update --metadata": (["3", DEEP], ["an-id", "words"]),
    "graph --around": ([" "], ["--user", "ann"]),
    "graph --hops": (["99"], ["--user", "ann"]),
    "graph --format": (["pdf"], ["--user", "ann"]),
    "export FILE": (["", "a\0b"], []),
    "import file FILE": (["", "a\0b"], []),
    **{
        f"import {one}": ([""], ["--user", "ann"])
        for one in ("chatgpt FILE", "claude FILE", "claude-code DIR", "whatsapp FILE")
    },
    "rebuild projection": (["all"], []),
    "mcp --tools": (["none"], ["--user", "ann"]),
    "mcp --names": (["none"], ["--user", "ann"]),
    "serve --host": ([""], []),
    "serve --port": (["-1", "99999"], []),
    "serve --workers": (["0"], []),
    "serve --default-user": (["*"], []),
    "keys create --role": (["king"], []),
    "keys create --label": ([CONTROL], ["--user", "ann"]),
    "keys create --expires": (["soon", "2001-01-01"], ["--user", "ann"]),
    "keys create --rate": (["much"], ["--user", "ann"]),
    "migrate mem0 --qdrant": (["", "nowhere"], []),
    "migrate mem0 --history": (["nowhere"], ["--qdrant", "."]),
    "migrate mem0 --timestamp": (["soon"], ["--qdrant", "."]),
    "migrate jsonl --timestamp": (["soon"], [__file__, "--user", "ann"]),
    "bench languages --languages": (["xx"], ["benchmarks/languages"]),
    "profile --max-tokens": (["0"], ["--user", "ann"]),
    "add --importance": (["2"], ["words", "--user", "ann"]),
    "lifecycle run --now": (["soon"], ["--user", "ann", "--dry-run"]),
    "lifecycle status --limit": (["0"], ["--user", "ann"]),
    "lifecycle abstract --level": (["0", "4"], ["--user", "ann"]),
    "lifecycle pending --limit": (["0"], ["--user", "ann"]),
    "lifecycle purge --forgotten-before": (["soon"], ["--user", "ann", "--yes"]),
    "forget --reason": (["", "x" * 257], ["an-id"]),
    "bench languages --limit": (["0", "61"], ["benchmarks/languages"]),
    "bench answers --max-chars": (["0"], ["benchmarks/answers"]),
    "bench answers --threshold": (["2"], ["benchmarks/answers"]),
    "bench answers --examples": (["-1"], ["benchmarks/answers"]),
    "bench lifecycle --languages": (["xx"], ["benchmarks/lifecycle"]),
    "bench lifecycle --personas": (["0", "6"], ["benchmarks/lifecycle"]),
    "bench lifecycle --days": (["0", "366"], ["benchmarks/lifecycle"]),
    "bench qa --systems": (["search", "rag-0-64"], [__file__, "--dry-run"]),
    "bench qa --questions": (["0"], [__file__, "--dry-run"]),
    "bench qa --categories": (["", "1,,2"], [__file__, "--dry-run"]),
    "bench qa --parallel": (["0"], [__file__, "--dry-run"]),
    "bench qa --timeout": (["0"], [__file__, "--dry-run"]),
    "bench qa --answer-model": ([""], [__file__, "--dry-run"]),
    "bench qa --judge-model": ([""], [__file__, "--dry-run"]),
    "bench qa --second-judge-model": ([""], [__file__, "--dry-run"]),
    "bench qa --memory-model": ([""], [__file__, "--dry-run"]),
    "bench qa --answer-url": (["localhost"], [__file__, "--dry-run"]),
    "bench qa --judge-url": (["localhost"], [__file__, "--dry-run"]),
    "bench qa --second-judge-url": (["localhost"], [__file__, "--dry-run"]),
    "bench qa --memory-url": (["localhost"], [__file__, "--dry-run"]),
    "bench qa --answer-price": (["1", "a,b", "1,-1"], [__file__, "--dry-run"]),
    "bench qa --judge-price": (["1"], [__file__, "--dry-run"]),
    "bench qa --second-judge-price": (["1"], [__file__, "--dry-run"]),
    "bench qa --memory-price": (["1"], [__file__, "--dry-run"]),
    "bench lifecycle --seed": (["-1", "soon"], ["benchmarks/lifecycle"]),
    "install CLIENT": (["vim", ""], ["--dry-run"]),
    "install --url": (["", "localhost", "ftp://x", "http://a:b@c"], ["codex", "--dry-run"]),
    "install --key-file": (["", "nowhere"], ["codex", "--dry-run"]),
    "uninstall CLIENT": (["vim"], ["--dry-run"]),
}  # fmt: skip
# Parts of which a command takes any value that is no fault of its own: the names of files, and ids.
ANY_VALUE = {
    "add --file", "show ID", "history ID", "explain ID", "why-not ID", "judge ID", "update ID", "undo EVENT",
    "delete ID", "backup FILE", "forget ID", "pin ID", "lifecycle undo CYCLE", "lifecycle abstract ID",
    "graph --output", "bench locomo LOCOMO", "bench chats CHATS", "bench multihop QUESTIONS", "bench multihop --corpus",
    "bench pooled LOCOMO", "bench pooled QUESTIONS", "bench pooled --corpus", "bench languages FOLDER",
    "bench answers ANSWERS", "bench lifecycle FOLDER", "bench qa QUESTIONS", "bench qa --results", "bench qa --report",
    "bench qa --leave-out", "bench mine --compare", "keys revoke ID", "migrate jsonl FILE",
    "migrate mem0 --collection", "migrate mem0 --api-key",
}  # fmt: skip
SCOPED = {"--user", "--agent", "--run"}


def parts_of(command, name=""):
    """The parts of all command lines that have a value, as users write them, such as "search --top-k"."""
    for one, subcommand in getattr(command, "commands", {}).items():
        yield from parts_of(subcommand, f"{name} {one}".strip())
    if not hasattr(command, "commands"):
        for parameter in command.params:
            if not getattr(parameter, "is_flag", False):
                is_option = parameter.param_type_name == "option"
                metavar = (parameter.metavar or parameter.name).partition("|")[0].removesuffix("...")
                yield f"{name} {parameter.opts[0] if is_option else metavar}"


def test_every_part_of_every_command_line_is_tried_with_an_unusable_value():
    parts = {part for part in parts_of(get_command(app)) if part.split()[-1] not in {*SCOPED, "--home", "--config"}}
    assert parts == UNUSABLE.keys() | ANY_VALUE


@pytest.mark.parametrize("part", UNUSABLE)
def test_an_unusable_value_is_named_as_it_is_written_and_status_two(empty_memory, part):
    (*command, written), (values, rest) = part.split(), UNUSABLE[part]
    for value in values:
        given = [f"{written}={value}"] if written.startswith("--") else ["--", value]
        given += {"why-not QUERY": ["an-id"], "judge QUERY": ["an-id", "right"]}.get(part, [])
        before = rest if part.startswith("update") else []
        result = run(*command, *before, *(option for option in rest if option not in before), *given, status=2)
        assert result.stdout == "", value
        assert re.search(rf"(?i)(?:graphmem: |Invalid value for '?){written}(?![\w-])", result.stderr), result.stderr
        assert "Usage" in result.stderr or result.stderr.count("\n") == 1, value


def scoped_commands():
    return [one.rpartition(" ")[0] for one in parts_of(get_command(app)) if one.endswith(" --user")]


@pytest.mark.parametrize("command", scoped_commands())
def test_an_unusable_user_is_named_as_an_option_of_every_command(empty_memory, command, tmp_path):
    words = {
        "mem0": ["--qdrant", str(tmp_path)], "jsonl": [__file__], "export": [str(tmp_path / "file")],
        "list": [], "profile": [], "graph": [], "mcp": [], "create": [], "delete": ["--all", "--yes"],
        "undo": ["an-id"],
        "run": ["--dry-run"], "status": [], "pending": [], "purge": ["--yes"],
        "update": ["an-id", "words"], "why-not": ["words", "an-id"], "judge": ["words", "an-id", "right"],
        "judgements": [], "mine": [], "install": ["codex", "--dry-run"],
    }.get(command.split()[-1], ["words"])  # fmt: skip
    named_options = ["--user", "--agent", "--run"]
    if command == "install":
        named_options = ["--user"]
    elif command == "keys create" or command.startswith("import "):
        named_options = ["--user", "--agent"]
    for option in named_options:
        named = [] if option == "--user" else ["--user", "ann"]
        result = run(*command.split(), *words, *named, option, CONTROL, status=2)
        assert result.stderr.startswith(f"graphmem: {option}=<3 characters>: contains control characters")


def test_a_scope_is_missing_by_the_names_of_its_options(empty_memory):
    for command in (["search", "x"], ["context", "x"], ["list"], ["add", "x"], ["graph"], ["delete", "--all", "--yes"]):
        error = run(*command, status=2).stderr
        assert error.startswith("graphmem: --user, --agent and --run are all missing: pass at least one"), command
    error = run("search", "x", "--user", "ann", "--filters", '{"user_id": "bob"}', status=2).stderr
    assert error.startswith("graphmem: --filters.user_id='bob': differs from another --user of this call; ")


def test_files_named_like_parts_of_a_command_line_are_files(plain_home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("user_id", "metadata", "name"):
        error = run("add", "--file", name, "--user", "ann", status=1).stderr
        assert error.startswith(f"graphmem: {name}: cannot be read"), name


# --- no memory there -----------------------------------------------------------------------------------------------

READING = [
    ["search", "x", "--user", "ann"],
    ["context", "x", "--user", "ann"],
    ["profile", "--user", "ann"],
    ["list", "--user", "ann"],
    ["show", "x"],
    ["history", "x"],
    ["explain", "x"],
    ["why-not", "words", "x", "--user", "ann"],
    ["judge", "words", "x", "right", "--user", "ann"],
    ["judgements", "--user", "ann"],
    ["bench", "mine", "--user", "ann"],
    ["update", "x", "words"],
    ["undo", "x"],
    ["forget", "x"],
    ["pin", "x"],
    ["delete", "x"],
    ["delete", "--all", "--user", "ann", "--yes"],
    ["graph", "--user", "ann"],
    ["export", "file"],
    ["verify"],
    ["verify", "--repair"],
    ["repair"],
    ["rebuild"],
    ["retry-failed"],
    ["stats"],
    ["keys", "list"],
    ["keys", "revoke", "x"],
    ["lifecycle", "run", "--user", "ann"],
    ["lifecycle", "status", "--user", "ann"],
    ["lifecycle", "pending", "--user", "ann"],
    ["lifecycle", "purge", "--user", "ann", "--yes"],
    ["lifecycle", "undo", "x"],
    ["lifecycle", "abstract", "--user", "ann"],
]
# The commands that make a memory where there is none, those that need none, and `backup`, with an error of its own.
MAKING = {
    "demo", "add", "import file", "import chatgpt", "import claude", "import claude-code", "import whatsapp",
    "mcp", "serve", "worker", "bench locomo", "bench chats", "bench multihop", "bench pooled",
    "bench languages", "bench answers", "bench qa", "bench lifecycle", "keys create", "migrate mem0", "migrate jsonl",
    "backup", "install", "uninstall", "hook",
}  # fmt: skip


def test_every_other_command_is_known_as_one_that_makes_a_memory():
    groups = get_command(app).commands
    names = {
        f"{name} {sub}".strip() for name, group in groups.items() for sub in getattr(group, "commands", {"": None})
    }
    assert {
        " ".join(words[:2] if words[0] in {"keys", "lifecycle", "bench"} else words[:1]) for words in READING
    } | MAKING == names


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_command_that_makes_no_memory_says_that_there_is_none(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHMEM_HOME", raising=False)
    error = run(*arguments, "--home", "typo", status=1).stderr
    assert error.startswith("graphmem: there is no memory at 'typo/ledger.sqlite'; name the folder (--home, ")
    assert error.count("\n") == 1
    monkeypatch.setenv("GRAPHMEM_LEDGER_URL", "sqlite:///elsewhere/other.sqlite")
    assert "no memory at 'elsewhere/other.sqlite'" in run(*arguments, status=1).stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_no_memory(tmp_path):
    (tmp_path / "ledger.sqlite").touch()
    assert "there is no memory at" in run("stats", "--home", str(tmp_path), status=1).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]


def test_home_replaces_that_of_a_configuration_in_every_command(tmp_path, plain_home):
    config = tmp_path / "c.toml"
    config.write_text('home = "nowhere"\n[extractor]\nprovider = "none"\n')
    add("A tree stands in the yard.")
    for command in (["stats"], ["backup", str(tmp_path / "copy")]):
        run(*command, "--config", str(config), "--home", str(plain_home))


def test_a_context_without_a_relevant_memory_says_so(plain_home):
    add("I like tea.", "--user", "ann")
    question = ["context", "Which engine drives the spacecraft?", "--user", "ann"]
    for options in ([], ["--json"], ["--min-relevance", "1"]):
        result = run(*question, *options)
        assert result.stderr == f"graphmem: {LESS_RELEVANT}\n"
    assert json.loads(run(*question, "--json").stdout) == {"context": ""}
    assert "I like tea." in run(*question, "--min-relevance", "0").stdout
    assert run("context", "Who likes tea?", "--user", "ann").stderr == ""
    assert run("context", "Who likes tea?", "--user", "ben").stderr == "graphmem: nothing relevant is remembered\n"
    # A greeting gets no memory whatever its relevance.
    assert run("context", "Good morning!", "--user", "ann").stderr == "graphmem: nothing relevant is remembered\n"
    assert run("context", "Good morning!", "--user", "ann", "--min-relevance", "0").stdout == ""


def test_a_context_takes_the_filters_and_the_threshold_of_a_search(plain_home):
    add("I like tea.", "--user", "ann", "--metadata", '{"n": 1}')
    add("I like coffee.", "--user", "ann", "--metadata", '{"n": 2}')
    question = ["context", "What do I like?", "--user", "ann"]
    block = run(*question, "--filters", '{"n": 2}').stdout
    assert "coffee" in block and "tea" not in block
    assert run(*question, "--filters", '{"n": 3}').stderr == "graphmem: no memory passes the filters\n"
    # With a threshold there is no default of the relevance, as in Python, unless it is given.
    foreign = ["context", "Which engine drives the spacecraft?", "--user", "ann", "--threshold", "-1"]
    assert "I like tea." in run(*foreign).stdout
    assert run(*foreign, "--min-relevance", "default").stdout == ""
    assert run(*question, "--threshold", "1").stderr == "graphmem: no memory passes the filters\n"


def test_a_context_in_which_nothing_fits_says_so(plain_home):
    add("Clara paints boats in Lisbon.", "--user", "ann")
    for least in ("default", "0"):
        question = ["context", "Lisbon", "--user", "ann", "--min-relevance", least]
        for option in ("--max-chars", "--max-tokens"):
            result = run(*question, option, "20")
            assert result.stderr == f"graphmem: nothing that is relevant fits into the block: raise {option}\n"
            assert "Clara" in run(*question, option, "200").stdout


def test_a_search_shows_relevances_and_leaves_out_what_is_below_the_least(plain_home):
    add("I like tea.", "--user", "ann")
    search = ["search", "Which engine drives the spacecraft?", "--user", "ann"]
    (hit,) = json.loads(run(*search, "--json").stdout)["results"]
    assert f"relevance {hit['relevance']:.2f}" in run(*search).stdout
    assert "; against it " in run(*search, "--explain").stdout
    for option in (["--min-relevance", "default"], ["--min-relevance", "0.9"], ["--top-k", "auto"]):
        result = run(*search, *option)
        assert (result.stdout, result.stderr) == ("", f"graphmem: {LESS_RELEVANT}\n")
    assert run(*search, "--filters", '{"n": 1}').stderr == "graphmem: no memory passes the filters\n"


def test_rerank_uses_the_configured_reranker_and_needs_one(plain_home, monkeypatch):
    (memory,) = add("I like tea.", "--user", "ann")
    commands = ["search", "tea"], ["why-not", "tea", memory["id"]]
    for command in commands:
        assert "needs a reranker" in run(*command, "--user", "ann", "--rerank", status=2).stderr
    monkeypatch.setenv("GRAPHMEM_RERANKER__CONFIG__URL", "http://127.0.0.1:9/rerank")  # nothing answers there
    for command in commands:
        assert run(*command, "--user", "ann", "--rerank").stderr.endswith("graphmem: answered without reranker\n")
        assert run(*command, "--user", "ann").stderr == ""


def test_usage_errors_are_status_two(plain_home):
    for arguments in (
        ["fly"],
        ["search"],
        ["search", "x", "--filters", "{oops"],
        ["search", "x", "--filters", "[1]"],
        ["add", "x", "--metadata", "3"],
        ["search", "x", "--top-k", "many"],
        ["delete"],
        ["delete", "x", "--all"],
        ["delete", "--all", "--user", "ann"],
    ):
        assert "Error" in run(*arguments, status=2).stderr


def test_memories_of_another_scope_do_not_exist(plain_home):
    mine = add("Mine.")[0]["id"]
    also = add("Also mine.")[0]["id"]
    run("show", mine, "--user", "bob", status=1)
    assert "nothing was deleted" in run("delete", also, mine, "--user", "bob", status=1).stderr
    assert run("delete", mine, "nothing", status=1).stderr.count("\n") == 1
    assert run_json("list", "--user", "ann")["total"] == 2


def test_texts_are_never_markup_nor_terminal_escapes(plain_home, monkeypatch):
    words = "[red]stop[/red] [link=http://x]\x1b]0;title\x07 \x1b[31m \x9b1m \u202egnp :smile: [/]"
    uid = add(words, "--name", "[bold]Eve")[0]["id"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    outputs = [
        run(*arguments).stdout
        for arguments in (
            ["list", "--user", "ann"],
            ["search", "stop", "--user", "ann", "--explain"],
            ["show", uid],
            ["history", uid],
            ["explain", uid],
            ["why-not", "stop", uid, "--user", "ann"],
            ["graph", "--user", "ann"],
            ["context", "stop", "--user", "ann"],
        )
    ]
    for output in outputs:
        plain = re.sub(r"\x1b\[[\d;]*m", "", output.replace("\x1b[31m- ", ""))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", plain), repr(plain)
    assert "[red]stop[/red]" in outputs[0]
    assert "␛[31m" in outputs[0]
    assert "[bold]Eve" in outputs[0]
    assert ":smile:" in outputs[0]
    raw = run("list", "--user", "ann", "--json").stdout
    assert json.loads(raw)["results"][0]["memory"] == words
    assert "\x9b" not in raw


def test_no_answer_shows_values_as_python_writes_them(plain_home, capsys):
    uid = add("A tree stands.", "--metadata", '{"kind": {"of": ["tree", true]}}')[0]["id"]
    assert re.search(r'(?m)^  metadata +\{"kind": \{"of": \["tree", true\]\}\}$', run("show", uid).stdout)
    renderer = Renderer(lambda: None)
    usage = {"operation": "extract", "model": "m", "calls": 1200, "seconds": 1.23456, "cost": None}
    numbers = {"memories": 1_234_567, "pending": ["graph"], "bytes": 5 * 1024**3, "embedding_bytes": {"vector": 1000}}
    cycles = {"ended_at": "2026-01-02T03:00:00+00:00", "partitions": 2, "changed": 0, "held": 0}
    renderer.statistics({**numbers, "stores": [], "job_counts": [], "last_cycles": cycles, "usage": [usage]})
    renderer.retried({"done": 2, "failed": {"LLMRefused": 3}, "causes": {"LLMRefused": "why"}, "pending": []})
    output = capsys.readouterr().out
    assert not re.search(r"[{}\[\]]|None", output), output
    for line in (
        "memories 1,234,567", "pending  graph", "  ledger          5.0 GiB",
        "  vector          1000 bytes of embeddings",
        "  operation  model  calls  seconds  cost", "  extract    m      1,200      1.2  –",
        "failed          3", "  LLMRefused      3: why", "pending         nothing",
    ):  # fmt: skip
        assert f"\n{line}\n" in f"\n{output}", line


def test_sizes_are_rounded():
    assert [size_text(size) for size in (0, 1023, 1024, 1024**2 - 1, 10 * 1024**4)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "1.0 MiB", "10.0 TiB"
    ]  # fmt: skip


def test_escaping_and_quoting():
    assert escape_controls("a\tb\nc\x00\x7f\x85") == "a\tb\nc␀␡\ufffd"
    assert one_line(" a\n b\x1b") == "a b␛"
    assert quoted("x" * 200) == "“" + "x" * 159 + "…”"


# --- as a program --------------------------------------------------------------------------------------------------


def restore_sigint():
    """Restores the handler: processes that a shell starts in the background ignore SIGINT, and so do their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start_program(home, *arguments, **more):
    environment = {**os.environ, "GRAPHMEM_HOME": str(home), "GRAPHMEM_EXTRACTOR__PROVIDER": "none"}
    return subprocess.Popen(
        [sys.executable, "-m", "graphmem", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def test_help_and_version_load_nothing_heavy(tmp_path):
    code = "import sys; from graphmem.cli.app import app; app(['--help'], standalone_mode=False); "
    code += "print([m for m in ('numpy', 'sqlalchemy', 'spacy', 'graphmem.memory') if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.endswith("[]\n")
    for (
        command
    ) in "demo add search context list show history explain update delete graph verify repair rebuild stats".split():
        assert f"  {command} " in output
    out, _ = start_program(tmp_path, "--version").communicate(timeout=TIMEOUT)
    assert out.startswith("graphmem 0.")


def test_python_looks_through_the_objects_of_a_command_no_more_at_its_end():
    code = (
        "import gc, sys; from graphmem.cli.app import main; sys.argv = ['graphmem', '--version']\n"
        "try: main()\n"
        "except SystemExit: print(len(gc.get_objects()))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(output.splitlines()[-1]) < 1000


@pytest.mark.parametrize(("chosen", "is_loaded"), [({}, False), ({"PYDANTIC_DISABLE_PLUGINS": ""}, True)])
def test_a_command_looks_for_no_plugins_of_pydantic_unless_it_is_told_to(tmp_path, chosen, is_loaded):
    package = tmp_path / "plugin-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[pydantic]\nplugin = loud_plugin\n")
    (tmp_path / "loud_plugin.py").write_text("raise ImportError('looked for')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if name != "PYDANTIC_DISABLE_PLUGINS"}
    process = subprocess.run(
        [sys.executable, "-m", "graphmem", "list", "--user", "u", "--home", str(tmp_path / "home")],
        env={**environment, "PYTHONPATH": path, **chosen},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "there is no memory" in process.stderr
    assert ("looked for" in process.stderr) is is_loaded


def groups_of(command, *names):
    if hasattr(command, "commands"):
        yield names
        for name, subcommand in command.commands.items():
            yield from groups_of(subcommand, *names, name)


def test_each_command_is_described_in_one_line_of_80_columns():
    groups = list(groups_of(get_command(app)))
    assert len(groups) == 6
    for names in groups:
        lines = run(*names, "--help", terminal_width=80).stdout.partition("Commands:\n")[2].splitlines()
        assert lines
        for line in lines:
            assert len(line) <= 80 and line.endswith("."), line
            assert not line.endswith("..."), line


@pytest.mark.thorough
def test_a_reader_that_closes_the_pipe_is_no_error(plain_home):
    uid = add("A short one.", "--metadata", json.dumps({"long": "words " * 40_000}))[0]["id"]
    for arguments in (["show", uid], ["list", "--user", "ann", "--json"], ["--help"]):
        process = start_program(plain_home, *arguments)
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        process.wait(timeout=TIMEOUT)
        assert "Traceback" not in errors
        assert "BrokenPipe" not in errors


@pytest.mark.thorough
def test_in_a_pipe_there_are_neither_colours_nor_line_breaks(plain_home):
    long = "a rather long sentence " * 20
    add(long)
    out, _ = start_program(plain_home, "list", "--user", "ann").communicate(timeout=TIMEOUT)
    assert "\x1b" not in out
    assert long.strip() in out


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_is_quiet_and_130(plain_home):
    process = start_program(plain_home, "add", "-", "--user", "ann", stdin=subprocess.PIPE, preexec_fn=restore_sigint)
    process.stdin.write("more than a pipe holds " * 10_000)  # returns once the process reads
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert errors.strip() == ""


@pytest.mark.thorough
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_during_a_large_add_loses_no_message(plain_home, tmp_path):
    file = tmp_path / "much.txt"
    file.write_text("\n\n".join(f"Note {i}: {'word ' * 60}{i}" for i in range(2000)))
    process = start_program(plain_home, "add", "--file", str(file), "--user", "ann", preexec_fn=restore_sigint)
    wait_until(lambda: (plain_home / "ledger.sqlite").exists() and count_memories(plain_home) == 2000)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert errors.strip() == ""
    assert count_memories(plain_home) == 2000


def count_memories(home):
    with contextlib.closing(sqlite3.connect(home / "ledger.sqlite")) as connection:
        try:
            return connection.execute("SELECT count(*) FROM memories").fetchone()[0]
        except sqlite3.OperationalError:
            return 0
