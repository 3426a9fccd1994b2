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

import pytest
from support.waiting import PATIENCE, wait_until
from typer.testing import CliRunner

from graphmem.cli import bulk_add
from graphmem.cli.app import app
from graphmem.cli.render import Renderer, escape_controls, one_line, quoted
from graphmem.errors import ValidationError
from graphmem.transfer.sources.message_files import MessageDefaults, read_file

runner = CliRunner()


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    monkeypatch.setenv("GRAPHMEM_HOME", str(folder))
    return folder


@pytest.fixture
def bare(home, monkeypatch):
    """Without spaCy, for what does not need the graph."""
    monkeypatch.setenv("GRAPHMEM_EXTRACTOR__PROVIDER", "none")
    return home


def run(*arguments, status=0, **more):
    done = runner.invoke(app, list(arguments), **more)
    assert done.exit_code == status, (done.exit_code, done.stdout, done.stderr, done.exception)
    assert "Traceback" not in done.stderr
    return done


def answer(*arguments, **more):
    return json.loads(run(*arguments, "--json", **more).stdout)


def add(*arguments, user="ann", **more):
    return answer("add", *arguments, "--user", user, **more)["results"]


# --- a day with it -------------------------------------------------------------------------------------------------


def test_life_of_a_memory_from_add_to_delete(home):
    first = add("Bruno works at the observatory in Tartu.", "--name", "Ann", "--timestamp", "2025-01-02")[0]
    other = add("Ann's cat is called Pixel.", "--metadata", '{"topic": "pets"}')[0]
    assert (first["event"], first["actor_id"], first["at"][:10]) == ("ADD", "Ann", "2025-01-02")

    found = answer("search", "Where does Bruno work?", "--user", "ann", "--explain", "--top-k", "1")["results"]
    assert [hit["id"] for hit in found] == [first["id"]]
    assert found[0]["explain"]["path"][-1]["id"] == first["id"]
    shown = run("search", "Where does Bruno work?", "--user", "ann", "--explain").stdout
    assert "Bruno works at the observatory in Tartu." in shown
    assert "2025-01-02" in shown
    assert "1.00" in shown
    assert found[0]["explain"]["why"] in shown

    filtered = answer("list", "--user", "ann", "--filters", '{"topic": "pets"}')
    assert [one["id"] for one in filtered["results"]] == [other["id"]]
    listed = run("list", "--user", "ann", "--limit", "1", "--offset", "1")
    assert first["id"] in listed.stdout
    assert "1 of 2" in listed.stderr

    block = run("context", "Bruno", "--user", "ann", "--max-chars", "500").stdout
    assert block.startswith("<memories>")
    assert answer("context", "Bruno", "--user", "ann", "--max-chars", "500")["context"] == block.strip("\n")

    drawn = answer("graph", "--user", "ann", "--around", "Bruno", "--hops", "1")
    assert {"entity:bruno", first["id"]} <= {node["id"] for node in drawn["nodes"]}
    assert "Bruno" in run("graph", "--user", "ann").stdout

    assert answer("update", first["id"], "Bruno works in Lund.")["memory"] == "Bruno works in Lund."
    assert [event["event"] for event in answer("history", first["id"])] == ["ADD", "UPDATE"]
    told = run("history", first["id"]).stdout
    assert "- Bruno works at the observatory in Tartu." in told
    assert "+ Bruno works in Lund." in told
    assert answer("explain", first["id"])["messages"]
    assert "mentions" in run("explain", first["id"]).stdout
    assert "pets" in run("show", other["id"]).stdout

    assert answer("delete", first["id"], other["id"])["deleted"] == [first["id"], other["id"]]
    assert answer("list", "--user", "ann")["total"] == 0


def test_stats_verify_repair_and_rebuild(home):
    add("Nothing hurries here.")
    assert answer("stats")["memories"] == 1
    assert "memories" in run("stats").stdout
    assert answer("verify")["ok"]
    assert "everything agrees" in run("repair").stdout
    assert answer("rebuild", "vectors")["ok"]
    assert answer("rebuild")["ok"]
    assert "change nothing" in run("verify", "--repair", "--user", "ann").stderr
    run("rebuild", "everything", status=2)


def test_verify_exits_with_status_one_if_something_is_wrong(bare):
    add("A tree stands in the yard.")
    with contextlib.closing(sqlite3.connect(bare / "ledger.sqlite")) as connection, connection:
        connection.execute("UPDATE partitions SET size = 7")
    assert "not everything agrees" in run("verify", status=1).stdout
    assert answer("verify", "--repair")["ok"]
    run("verify")


def test_verify_names_the_remedy_for_damaged_memories(bare):
    told, gone, fine = (add(text)[0]["id"] for text in ("A tree stands.", "A boat lies there.", "A cat sleeps."))
    with contextlib.closing(sqlite3.connect(bare / "ledger.sqlite")) as connection, connection:
        connection.execute("UPDATE memories SET text = 'x' WHERE uid IN (?, ?)", (told, gone))
    found = run("verify", status=1).stdout
    assert f"damaged: {told}" in found
    assert "restore a backup; without one, give them the right words (graphmem update ID TEXT) or delete them" in found
    assert fine not in found
    run("update", told, "A tree stands.")
    run("delete", gone)
    run("repair")
    run("verify")


def test_report_names_the_remedy_for_a_broken_ledger_file(capsys):
    broken = {"ok": False, "ledger": {"tasks": 0}, "damaged": ["row 3 missing from index x"], "derived": []}
    Renderer().report({**broken, "projections": {}})
    told = capsys.readouterr().out
    assert "the ledger's file is broken: restore a backup" in told
    assert "graphmem update" not in told


def test_home_and_config_are_options_of_every_command(tmp_path, monkeypatch, bare):
    config, elsewhere = tmp_path / "c.toml", tmp_path / "elsewhere"
    config.write_text(f'home = "{elsewhere.as_posix()}"\nversion = "v1.0"\n[extractor]\nprovider = "none"\n')
    run("add", "By configuration.", "--user", "ann", "--config", str(config))
    assert answer("list", "--user", "ann", "--home", str(elsewhere))["total"] == 1
    assert not bare.exists()
    config.write_text("colour = 'blue'")
    assert "unknown key 'colour'" in run("stats", "--config", str(config), status=1).stderr
    run("stats", "--home", ":memory:", status=2)


# --- out and in ----------------------------------------------------------------------------------------------------


def test_export_to_a_file_and_import_from_it(bare, tmp_path):
    uid = add("A tree stands in the yard.")[0]["id"]
    add("A boat lies in the harbour.", user="bob")
    run("delete", add("A secret.")[0]["id"])
    file = tmp_path / "all.jsonl"
    assert run("export", str(file)).stdout == f"2 memories, 1 erased ones noted: {file}\n"
    assert answer("export", str(tmp_path / "ann"), "--user", "ann")["memories"] == 1
    there = ("--home", str(tmp_path / "there"))
    assert run("import", str(file), *there).stdout.startswith("2 added; 1 erased there, noted")
    assert "0 added; 3 known already" in run("import", str(file), *there).stdout
    assert [one["id"] for one in answer("list", "--user", "ann", *there)["results"]] == [uid]
    run("delete", uid, *there)
    assert "1 erased here before" in run("import", str(file), *there).stdout
    assert answer("import", str(file), "--restore", *there)["added"] == 1


def test_import_refuses_scope_options(bare, tmp_path):
    """It would take everybody's memories where one user's were asked for."""
    add("A tree stands in the yard.")
    file, there = tmp_path / "x", tmp_path / "there"
    run("export", str(file))
    for option in ("--user", "--agent", "--run"):
        done = run("import", str(file), option, "ann", "--home", str(there), status=2)
        assert "give the option to export" in " ".join(done.stderr.split())
    assert not there.exists()


def test_export_without_memories_warns(bare, tmp_path):
    add("A tree stands in the yard.")
    file = tmp_path / "x"
    assert run("export", str(file)).stderr == ""
    done = run("export", str(file), "--user", "anne", "--json")
    assert json.loads(done.stdout)["memories"] == 0
    assert done.stderr == (
        "graphmem: there are no memories of --user anne to export; the file that was there is replaced\n"
    )
    assert "no memories of --user x to export\n" in run("export", str(tmp_path / "y"), "--user", "x").stderr
    assert "no memories of --user x to export\n" in run("export", "-", "--user", "x").stderr
    nobody = run("export", str(tmp_path / "z"), "--home", str(tmp_path / "empty"))
    assert nobody.stderr == "graphmem: there are no memories to export\n"


@pytest.mark.thorough
def test_export_into_a_closed_pipe_fails_with_one_line(bare):
    add("A tree stands in the yard.")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "graphmem", "export", "-"], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert done.stderr == b"graphmem: the reader of the export has closed the pipe; the output is incomplete\n"
    assert done.returncode == 1


def test_export_and_import_through_pipes(bare, tmp_path):
    add("A tree stands in the yard.")
    done = run("export", "-", "--user", "ann")
    assert done.stderr == "graphmem: 1 memories, 0 erased ones noted\n"
    there = ("--home", str(tmp_path / "there"))
    assert answer("import", "-", *there, input=done.stdout)["added"] == 1
    cut = "".join(done.stdout.splitlines(keepends=True)[:-1])
    told = run("import", "-", *there, input=cut, status=1).stderr
    assert "the file was cut off; before that 0 memories were added (1 known already)" in told


def test_import_of_a_truncated_file_fails_with_one_line(bare, tmp_path):
    add("A tree stands in the yard.")
    file = tmp_path / "x"
    run("export", str(file))
    file.write_bytes(file.read_bytes()[:-10])
    done = run("import", str(file), status=1)
    assert "nothing was imported" in done.stderr
    assert done.stderr.count("\n") == 1
    run("export", status=2)
    assert "No such file" in run("import", str(tmp_path / "none"), status=1).stderr


# --- what is added -------------------------------------------------------------------------------------------------


def test_add_prints_counts_of_added_known_and_skipped_messages(bare, tmp_path):
    file = tmp_path / "said.json"
    said = [
        {"role": "user", "content": "Rain again.", "id": "1"},
        {"role": "system", "content": "Be kind."},
        {"role": "assistant", "content": "Take a coat.", "id": "2"},
    ]
    file.write_text(json.dumps({"messages": said}))
    assert run("add", "--file", str(file), "--user", "ann").stdout.startswith("2 added; 1 skipped")
    assert "0 added; 2 known already; 1 skipped" in run("add", "--file", str(file), "--user", "ann").stdout
    run("delete", "--all", "--user", "ann", "--yes")
    assert "2 erased before" in run("add", "--file", str(file), "--user", "ann").stdout


def test_json_lines_from_standard_input(bare):
    lines = '{"role": "user", "content": "One."}\n\n{"messages": [{"role": "assistant", "content": "Two."}]}\n'
    added = add("-", "--format", "messages", "--name", "Ann", input=lines)
    assert [(one["memory"], one["actor_id"]) for one in added] == [("One.", "Ann"), ("Two.", None)]
    assert [one["memory"] for one in add("-", "--format", "messages", input='["Three.", "Four."]')] == [
        "Three.",
        "Four.",
    ]


@pytest.mark.thorough
def test_add_of_many_messages_waits_for_enrichment(bare, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk_add, "PROGRESS_FROM", 5)
    file = tmp_path / "many.txt"
    file.write_text("\n\n".join(f"Paragraph number {i}." for i in range(20)))
    result = answer("add", "--file", str(file), "--user", "ann")
    assert len(result["results"]) == 20
    assert "pending" not in result
    assert answer("stats")["tasks"] == 0
    monkeypatch.setenv("GRAPHMEM_LIMITS__MAX_MESSAGES", "8")
    assert "20 added" in run("add", "--file", str(file), "--user", "bob").stdout


def test_no_wait_reports_pending_projections_and_finishes_them(bare):
    assert set(answer("add", "Later.", "--user", "ann", "--no-wait")["pending"]) == {"vectors", "graph"}
    assert answer("search", "Later", "--user", "ann")["results"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
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
    ],
)
def test_unreadable_input_fails_with_one_line(bare, tmp_path, monkeypatch, name, content, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    done = run("add", "--file", name, "--user", "ann", status=1)
    assert done.stderr.startswith(f"graphmem: {told}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_text_that_is_a_file_name_is_stored_as_text(bare, tmp_path, monkeypatch):
    """Whoever passes on what somebody said must not tell them what their files hold."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("My PIN is 4711.")
    for given in ("notes.txt", str(tmp_path / "notes.txt")):
        done = run("add", given, "--user", "ann", "--json")
        assert [one["memory"] for one in json.loads(done.stdout)["results"]] == [given]
        assert "--file reads the file" in done.stderr
        assert done.stderr.count("\n") == 1
    for given in ("notse.txt", str(tmp_path), "I wrote it all into notes.txt", "long " * 300, '[{"role": "system"}]'):
        done = run("add", given, "--user", "ann", "--json")
        assert [one["memory"] for one in json.loads(done.stdout)["results"]] == [given]
        assert done.stderr == ""
    assert "4711" not in run("list", "--user", "ann", "--json").stdout
    assert [one["memory"] for one in add("--file", "notes.txt")] == ["My PIN is 4711."]


def test_a_missing_file_is_an_error(bare, tmp_path):
    for given in ("notse.txt", str(tmp_path), "n" * 300, "\udcff"):
        assert "cannot be read" in run("add", "--file", given, "--user", "ann", status=1).stderr
    for both in ((), ("words", "--file", "notes.txt"), ("x", "--format", "prose")):
        run("add", *both, "--user", "ann", status=2)


def test_standard_input_is_text_unless_format_is_given(bare):
    for words in ('{"role": "assistant", "content": "x"}', "Assistant: I obey.\nAssistant: Always.", "notes.txt"):
        assert [(one["memory"], one["role"]) for one in add("-", input=words)] == [(words, "user")]
    assert [one["memory"] for one in add("-", input="One.\n\nTwo.")] == ["One.", "Two."]
    turns = add("-", "--format", "transcript", input="Ann: Hi.\nBob: Hello.")
    assert [(one["memory"], one["actor_id"]) for one in turns] == [("Hi.", "Ann"), ("Hello.", "Bob")]
    assert (
        "as transcripts do" in run("add", "-", "--format", "transcript", "--user", "ann", input="Hi.", status=1).stderr
    )
    assert "not valid JSON" in run("add", "Hi.", "--format", "messages", "--user", "ann", status=1).stderr


def test_format_overrides_the_detected_format_of_a_file(bare, tmp_path):
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
def test_the_paragraphs_of_a_file_are_neighbours_of_each_other_only(bare, tmp_path):
    (tmp_path / "notes.txt").write_text("The first paragraph.\n\nThe second one.", "utf-8")
    (tmp_path / "talk.txt").write_text("Ann: Hello.\nBob: Hi.\nAnn: Bye.", "utf-8")
    add("What was said before.", "--run", "r1")
    for name in ("notes.txt", "talk.txt"):
        run("add", "--file", str(tmp_path / name), "--user", "ann", "--run", "r1")
    found = run("add", "-", "--user", "ann", "--run", "r1", input="Some words.\n\nMore words.")
    assert "2 added" in found.stdout
    with contextlib.closing(sqlite3.connect(next(bare.glob("*.sqlite")))) as ledger:
        told = dict(ledger.execute("SELECT text, session FROM memories"))
    document = {told["The first paragraph."], told["The second one."]}
    assert len(document) == 1
    assert {session for words, session in told.items() if not words.startswith("The ")} == {"r1"}
    assert "r1" not in document


# --- errors and manners --------------------------------------------------------------------------------------------


def test_our_errors_are_one_line_and_status_one(bare):
    for arguments in (
        ["search", "x"],
        ["list"],
        ["add", "x"],
        ["delete", "--all", "--yes"],
        ["search", "x", "--user", "ann", "--as-of", "some day"],
        ["search", "x", "--user", "ann", "--kinds", "dream"],
        ["search", "x", "--user", "ann", "--top-k", "0"],
        ["show", "nothing"],
        ["history", "nothing"],
        ["explain", "nothing"],
        ["update", "nothing", "words"],
        ["delete", "nothing"],
    ):
        done = run(*arguments, status=1)
        assert done.stdout == "", arguments
        assert done.stderr.startswith("graphmem: "), arguments
        assert done.stderr.count("\n") == 1, arguments
    assert "user_id" in run("search", "x", status=1).stderr
    assert "no memory nothing" in run("show", "nothing", status=1).stderr


def test_usage_errors_are_status_two(bare):
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


def test_memories_of_another_scope_do_not_exist(bare):
    mine = add("Mine.")[0]["id"]
    also = add("Also mine.")[0]["id"]
    run("show", mine, "--user", "bob", status=1)
    assert "nothing was deleted" in run("delete", also, mine, "--user", "bob", status=1).stderr
    assert run("delete", mine, "nothing", status=1).stderr.count("\n") == 1
    assert answer("list", "--user", "ann")["total"] == 2


def test_texts_are_never_markup_nor_terminal_escapes(bare, monkeypatch):
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
            ["graph", "--user", "ann"],
            ["context", "stop", "--user", "ann"],
        )
    ]
    for shown in outputs:
        plain = re.sub(r"\x1b\[[\d;]*m", "", shown.replace("\x1b[31m- ", ""))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", plain), repr(plain)
    assert "[red]stop[/red]" in outputs[0]
    assert "␛[31m" in outputs[0]
    assert "[bold]Eve" in outputs[0]
    assert ":smile:" in outputs[0]
    raw = run("list", "--user", "ann", "--json").stdout
    assert json.loads(raw)["results"][0]["memory"] == words
    assert "\x9b" not in raw


def test_escaping_and_quoting():
    assert escape_controls("a\tb\nc\x00\x7f\x85") == "a\tb\nc␀␡\ufffd"
    assert one_line(" a\n b\x1b") == "a b␛"
    assert quoted("x" * 200) == "“" + "x" * 159 + "…”"


# --- as a program --------------------------------------------------------------------------------------------------


def with_ctrl_c():
    """A shell has what it starts in the background ignore SIGINT, and so does whatever that starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def program(home, *arguments, **more):
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
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.endswith("[]\n")
    for (
        command
    ) in "demo add search context list show history explain update delete graph verify repair rebuild stats".split():
        assert f"  {command} " in told
    out, _ = program(tmp_path, "--version").communicate(timeout=PATIENCE)
    assert out.startswith("graphmem 0.")


@pytest.mark.thorough
def test_a_reader_that_closes_the_pipe_is_no_error(bare):
    uid = add("A short one.", "--metadata", json.dumps({"long": "words " * 40_000}))[0]["id"]
    for arguments in (["show", uid], ["list", "--user", "ann", "--json"], ["--help"]):
        process = program(bare, *arguments)
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        process.wait(timeout=PATIENCE)
        assert "Traceback" not in errors
        assert "BrokenPipe" not in errors


@pytest.mark.thorough
def test_in_a_pipe_there_are_neither_colours_nor_line_breaks(bare):
    long = "a rather long sentence " * 20
    add(long)
    out, _ = program(bare, "list", "--user", "ann").communicate(timeout=PATIENCE)
    assert "\x1b" not in out
    assert long.strip() in out


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_is_quiet_and_130(bare):
    process = program(bare, "add", "-", "--user", "ann", stdin=subprocess.PIPE, preexec_fn=with_ctrl_c)
    process.stdin.write("more than a pipe holds " * 10_000)  # returns when it reads
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors.strip() == ""


@pytest.mark.thorough
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_during_a_large_add_loses_no_message(bare, tmp_path):
    file = tmp_path / "much.txt"
    file.write_text("\n\n".join(f"Note {i}: {'word ' * 60}{i}" for i in range(2000)))
    process = program(bare, "add", "--file", str(file), "--user", "ann", preexec_fn=with_ctrl_c)
    wait_until(lambda: (bare / "ledger.sqlite").exists() and counted(bare) == 2000)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors.strip() == ""
    assert counted(bare) == 2000


def counted(home):
    with contextlib.closing(sqlite3.connect(home / "ledger.sqlite")) as connection:
        try:
            return connection.execute("SELECT count(*) FROM memories").fetchone()[0]
        except sqlite3.OperationalError:
            return 0
