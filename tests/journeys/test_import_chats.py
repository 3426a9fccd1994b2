"""Import of chats of ChatGPT, Claude, Claude Code and WhatsApp, on the command line. All chats are written here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes import fake_models
from typer.testing import CliRunner, Result

from graphmem import Memory, Settings
from graphmem.cli import render
from graphmem.cli.app import app
from graphmem.errors import ValidationError
from graphmem.transfer.sources import chat_files

runner = CliRunner()
BOAT, FLAT = "6995e870-eafc-83a6-ab22-d89ad9e2b447", "11112222-eafc-83a6-ab22-d89ad9e2b447"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    settings = Settings.from_dict(fake_models(home=folder, extractor={"provider": "spacy"}))
    monkeypatch.setattr(Settings, "from_env", lambda **_: settings)
    return folder


def run(*words: Any, status: int = 0) -> Result:
    result = runner.invoke(app, ["import", *map(str, words)])
    assert result.exit_code == status, (result.exit_code, result.stdout, result.stderr, result.exception)
    return result


def imported(*words: Any, status: int = 0) -> dict[str, Any]:
    return json.loads(run(*words, "--user", "ana", "--json", status=status).stdout)


def failure(*words: Any, status: int = 1) -> str:
    result = run(*words, "--user", "ana", status=status)
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    return result.stderr


def memories(**scope: str) -> list[dict[str, Any]]:
    with Memory() as memory:
        return memory.get_all(**{"user_id": "ana", **scope}, limit=1000)["results"][::-1]


def chat(id_: str, *said: str, title: str = "Boat") -> dict[str, Any]:
    """A chat of ChatGPT in which the user says the first message, the assistant the second, and so on."""
    nodes: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None}}
    for number, words in enumerate(said):
        author = {"role": ("user", "assistant")[number % 2]}
        content = {"content_type": "text", "parts": [words]}
        message = {"author": author, "content": content, "create_time": 1714555500 + number}
        nodes[f"n{number}"] = {"message": message, "parent": list(nodes)[-1]}
    return {"title": title, "conversation_id": id_, "current_node": list(nodes)[-1], "mapping": nodes}


def write_zip(path: Path, members: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content if isinstance(content, str | bytes) else json.dumps(content))
    return path


# --- what is imported ------------------------------------------------------------------------------------------------


def test_a_later_export_of_chatgpt_adds_what_is_new(tmp_path: Path, home: Path) -> None:
    boat, flat = chat(BOAT, "I bought a boat.", "Nice."), chat(FLAT, "I rented a flat.", "Good.", title="Flat")
    others = {"user.json": {}, "chat.html": "<html>", "file_1.png": b"\x89PNG"}
    first = write_zip(tmp_path / "a.zip", {"conversations.json": [boat, flat], **others})
    answer = imported("chatgpt", first)
    assert (answer["added"], answer["known"], answer["conversations"], answer["left"]) == (4, 0, 2, {})
    assert imported("chatgpt", first)["known"] == 4
    longer = chat(BOAT, "I bought a boat.", "Nice.", "Its name is Otter.", "Lovely.")
    split = {"export/conversations-000.json": [longer], "export/conversations-001.json": [flat], "__MACOSX/x": "x"}
    later = imported("chatgpt", write_zip(tmp_path / "b.zip", split))
    assert (later["added"], later["known"], later["conversations"]) == (2, 4, 2)
    assert [(one["memory"], one["role"], one["run_id"], one["metadata"]) for one in memories(run_id=BOAT)] == [
        (words, role, BOAT, {"source": "chatgpt", "title": "Boat"})
        for words, role in zip(
            ["I bought a boat.", "Nice.", "Its name is Otter.", "Lovely."], ["user", "assistant"] * 2, strict=True
        )
    ]
    assert memories()[0]["at"].startswith("2024-05-01T09:25:00")
    assert json.loads(run("chatgpt", first, "--user", "bo", "--json").stdout)["added"] == 4, "another user's"
    assert "known already; conversations: 2" in run("chatgpt", first, "--user", "ana").stdout


def test_a_deleted_message_is_not_imported_again(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([chat(BOAT, "I bought a boat.", "Nice.")]))
    imported("chatgpt", file)
    with Memory() as memory:
        memory.delete(memories()[0]["id"])
    answer = imported("chatgpt", file)
    assert (answer["added"], answer["known"], answer["erased"]) == (0, 1, 1)


def test_a_copied_message_is_imported_once_and_an_equal_id_of_another_chat_is_another_message(
    tmp_path: Path, home: Path
) -> None:
    copied = "aaaaaaaa-eafc-83a6-ab22-d89ad9e2b447"
    said = {"uuid": copied, "sender": "human", "text": "I bought a boat.", "created_at": "2025-03-01T10:00:00Z"}
    own = {**said, "uuid": "m1"}
    chats = [{"uuid": id_, "name": id_, "chat_messages": [said, {**own, "text": id_}]} for id_ in ("one", "two")]
    answer = imported("claude", write_zip(tmp_path / "c.zip", {"conversations.json": chats, "users.json": []}))
    assert (answer["added"], list(answer["left_out"])) == (3, ["copies of messages of another conversation"])
    assert sorted(one["memory"] for one in memories()) == ["I bought a boat.", "one", "two"]


def session_line(id_: str, words: str, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": words}
    named = {"uuid": id_, "parentUuid": parent, "sessionId": "s1", "timestamp": "2025-07-01T10:00:00.000Z"}
    return {"type": "user", "message": message, "cwd": "/home/ana/parser"} | named | fields


def test_the_sessions_of_claude_code_are_found_below_its_folder(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert "holds no sessions" in failure("claude-code", tmp_path)
    assert "cannot be read" in failure("claude-code")
    project = tmp_path / ".claude" / "projects" / "-home-ana-parser"
    (project / "s1" / "subagents").mkdir(parents=True)
    lines = [session_line("a", "We always use tabs."), session_line("b", "ls output", "a", isSidechain=True)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (project / "s1.jsonl").write_text('{"type":"summary","summary":"Tabs","leafUuid":"a"}\n' + text + '{"type":"us')
    (project / "s1" / "subagents" / "agent-1.jsonl").write_text(json.dumps({**lines[1], "uuid": "c"}) + "\n")
    (project / "other.jsonl").write_text('{"a": 1}\n')
    answer = imported("claude-code")
    assert (answer["added"], answer["conversations"], answer["left"]) == (1, 1, {})
    numbers = {reason: each["number"] for reason, each in answer["left_out"].items()}
    assert numbers == {"messages of subagents": 2, chat_files.UNFINISHED: 1, chat_files.NO_SESSIONS: 1}
    (one,) = memories(agent_id="/home/ana/parser")
    place = {"client": "claude-code", "session": "s1", "project": "/home/ana/parser"}
    assert one["metadata"] == {"source": "claude-code", **place}
    assert (one["session"], one["run_id"]) == ("s1", None)
    (project / "s1.jsonl").write_text(text + json.dumps(session_line("d", "Run the tests first.", "a")) + "\n{oops\n")
    again = imported("claude-code", project / "s1.jsonl", status=1)
    assert (again["added"], again["known"], list(again["left"])) == (1, 1, ["is not valid JSON"])
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "nowhere")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    assert imported("claude-code", status=1)["known"] == 2


WHATSAPP = """\
24.12.23, 21:15 - Nachrichten und Anrufe sind Ende-zu-Ende-verschlüsselt.
24.12.23, 21:15 - Ana: Ich bin nach Lissabon gezogen.
Die Wohnung liegt am Fluss.
24.12.23, 21:16 - Ben Müller: <Medien ausgeschlossen>
24.12.23, 21:16 - Ben Müller: IMG-20231224-WA0001.jpg (Datei angehängt)
Der Fluss
24.12.23, 21:17 - Ana: Mietvertrag Lissabon.pdf (Datei angehängt)
24.12.23, 21:18 - Ana: ok
24.12.23, 21:18 - Ana: ok
"""


@pytest.mark.parametrize("form", ["text", "android", "iphone"])
def test_a_chat_of_whatsapp_keeps_speakers_times_and_names_of_files(tmp_path: Path, home: Path, form: str) -> None:
    if form == "text":
        (file := tmp_path / "WhatsApp Chat mit Ben.txt").write_text(WHATSAPP)
    elif form == "android":
        file = write_zip(tmp_path / "x.zip", {"WhatsApp Chat mit Ben.txt": WHATSAPP, "a.txt": "An attached text."})
    else:
        file = write_zip(tmp_path / "WhatsApp Chat - Ben (1).zip", {"_chat.txt": WHATSAPP, "a.jpg": b"x"})
    answer = imported("whatsapp", file)
    assert (answer["added"], answer["conversations"]) == (5, 1)
    assert {reason: each["number"] for reason, each in answer["left_out"].items()} == {
        chat_files.ENTRIES: 1, chat_files.MEDIA: 1,
    }  # fmt: skip
    assert [(one["actor_id"], one["memory"]) for one in memories(run_id="Ben")] == [
        ("Ana", "Ich bin nach Lissabon gezogen.\nDie Wohnung liegt am Fluss."),
        ("Ben Müller", "Der Fluss"),
        ("Ana", "[file: Mietvertrag Lissabon.pdf]"),
        ("Ana", "ok"),
        ("Ana", "ok"),
    ]
    assert memories()[0]["at"] == datetime(2023, 12, 24, 21, 15).astimezone(UTC).isoformat(timespec="microseconds")
    assert [one["ref"] for one in memories()[1]["attachments"]] == ["IMG-20231224-WA0001.jpg"]
    file = tmp_path / "WhatsApp Chat with Ben.txt"
    file.write_text(WHATSAPP + "25.12.23, 09:00 - Ben Müller: Ich arbeite in der Klinik.\n")
    again = imported("whatsapp", file)
    assert (again["added"], again["known"]) == (1, 5)


@pytest.mark.parametrize(("folder", "run_id"), [("WhatsApp Chat - Familie", "Familie"), ("x", "Ana, Ben Müller")])
def test_a_chat_without_a_name_gets_that_of_its_folder_or_of_the_two_who_talk(
    tmp_path: Path, home: Path, folder: str, run_id: str
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "_chat.txt").write_text(WHATSAPP)
    imported("whatsapp", tmp_path / folder / "_chat.txt")
    assert {one["run_id"] for one in memories()} == {run_id}


def test_the_day_of_a_chat_may_be_read_otherwise_in_a_longer_export(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "WhatsApp Chat with Ben.txt"
    file.write_text("03/04/23, 09:00 - Ben: Hi\n")  # day or month first: nothing tells
    imported("whatsapp", file)
    file.write_text("03/04/23, 09:00 - Ben: Hi\n03/15/23, 09:00 - Ben: Bye\n")
    assert imported("whatsapp", file)["known"] == 1


def test_unusable_messages_are_named_and_the_rest_is_imported(tmp_path: Path, home: Path) -> None:
    said = chat(BOAT, "I bought a boat.", "Half a \ud83d", "x" * 1_000_001)
    said["mapping"]["n0"]["message"]["create_time"] = "soon"
    said["mapping"]["n1"]["message"]["create_time"] = 1714555501
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([said, {"title": "broken"}]))
    answer = imported("chatgpt", file, status=1)
    assert answer["added"] == 1
    assert sorted(place.rpartition(" ")[2] for places in answer["left"].values() for place in places) == [
        "2",
        "n0",
        "n2",
    ]
    assert [one["memory"] for one in memories()] == ["Half a "]


def test_progress_is_told_while_a_file_is_read_and_stored(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conversations.json").write_text(json.dumps([chat(BOAT, "We sailed.", "Where to?")]), "utf-8")
    monkeypatch.setattr(render, "LINE_INTERVAL", 0)
    lines = run("chatgpt", tmp_path / "conversations.json", "--user", "ana").stderr.splitlines()
    assert lines == [
        "graphmem: messages read: 1", "graphmem: messages read: 2",
        "graphmem: memories: 1 of 2", "graphmem: memories: 2 of 2",
    ]  # fmt: skip


@given(
    st.lists(st.sampled_from([1, "a,]", {"x": [1, 2]}, [], None, [[1]], "é\n"]), max_size=4),
    st.sampled_from([None, 1]),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["", *'[]{},: "1\n'])), max_size=2),
)
def test_a_list_is_read_value_by_value_as_json_reads_it(
    values: list[Any], indent: int | None, edits: list[tuple[int, str]]
) -> None:
    text = json.dumps(values, indent=indent)
    for place, character in edits:
        text = text[:place] + character + text[place + (character == "") :]
    try:
        expected = json.loads(text)
    except json.JSONDecodeError:
        with pytest.raises(ValidationError):
            list(chat_files._json_values("file", text))
    else:
        assert list(chat_files._json_values("file", text)) == (expected if isinstance(expected, list) else [expected])


def test_an_empty_export_imports_nothing(tmp_path: Path, home: Path) -> None:
    assert imported("chatgpt", write_zip(tmp_path / "a.zip", {"conversations.json": []}))["added"] == 0


# --- other files ---------------------------------------------------------------------------------------------------


OF_CHATGPT, OF_CLAUDE = [chat(BOAT, "Hi")], [{"uuid": "c", "chat_messages": []}]
SESSION = json.dumps(session_line("a", "Hi")) + "\n"


@pytest.mark.parametrize(
    ("program", "content", "error"),
    [
        ("claude", json.dumps(OF_CHATGPT), "is an export of ChatGPT; import it with `graphmem import chatgpt`"),
        ("chatgpt", json.dumps(OF_CLAUDE), "is an export of Claude; import it with `graphmem import claude`"),
        ("chatgpt", SESSION, "is a session of Claude Code; import it with `graphmem import claude-code`"),
        ("claude", WHATSAPP, "is a chat of WhatsApp; import it with `graphmem import whatsapp`"),
        ("whatsapp", json.dumps(OF_CHATGPT), "is an export of ChatGPT; import it with `graphmem import chatgpt`"),
        ("claude-code", json.dumps(OF_CLAUDE), "is an export of Claude; import it with `graphmem import claude`"),
        ("claude-code", '{"a": 1}\n', "is JSON, and nothing that Claude Code writes"),
        ("chatgpt", '{"type":"graphmem","format":2}\n', "is an export of graphmem's; import it with `graphmem import`"),
        ("chatgpt", '[{"role": "user", "content": "Hi"}]', "are imported by `graphmem migrate jsonl`"),
        ("claude-code", '{"type": "entity", "name": "Bo"}\n', "is a memory file of an MCP server"),
        ("whatsapp", "Dear diary,\nI bought a boat.\n", "is a text, and nothing that WhatsApp writes"),
        ("chatgpt", "Dear diary,\n", "is no JSON; give the file as it was exported"),
        ("chatgpt", json.dumps(OF_CHATGPT)[:-30], "is not valid JSON"),
        ("chatgpt", json.dumps(OF_CHATGPT)[:-1], "(the file was cut off); export it again"),
        ("chatgpt", "[" * 100_000, "is not valid JSON"),
        ("chatgpt", " \n", "is empty; there is nothing to import"),
        ("claude-code", "", "is empty; there is nothing to import"),
        ("chatgpt", b"SQLite format 3\0\xff", "is an SQLite database"),
        ("whatsapp", "\ufeffHi".encode("utf-16-le"), "is UTF-16; convert it to UTF-8"),
        ("whatsapp", b"caf\xe9", "is not UTF-8; give the file that WhatsApp wrote"),
        ("claude-code", b"PK\x03\x04\xff", "is a zip file; `graphmem import chatgpt`"),
        ("chatgpt", b"PK\x03\x04\xff", "is a zip file that was cut off or altered; download it again"),
    ],
)
def test_another_file_is_refused_by_what_it_is(
    tmp_path: Path, home: Path, program: str, content: str | bytes, error: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    message = failure(program, file)
    assert message.startswith(f"graphmem: {file}")
    assert error in message
    assert not home.exists()


def test_folders_missing_files_and_missing_users_are_refused(tmp_path: Path, home: Path) -> None:
    for program in ("chatgpt", "claude", "whatsapp"):
        assert "is a folder; give the file that" in failure(program, tmp_path)
        assert "cannot be read (No such file" in failure(program, tmp_path / "none")
        assert "is no regular file" in failure(program, "/dev/zero")
    result = run("chatgpt", tmp_path, status=2)
    assert result.stderr.startswith("graphmem: --user and --agent are both missing: pass at least one")


def test_zip_files_of_other_programs_are_refused_by_what_they_are(tmp_path: Path, home: Path) -> None:
    of_chatgpt = write_zip(tmp_path / "a.zip", {"conversations.json": OF_CHATGPT})
    of_whatsapp = write_zip(tmp_path / "b.zip", {"_chat.txt": WHATSAPP})
    neither = write_zip(tmp_path / "c.zip", {"a.png": b"", "b.png": b"", "c.png": b"", "d.png": b""})
    for program in ("claude", "whatsapp"):
        assert "is an export of ChatGPT; import it with `graphmem import chatgpt`" in failure(program, of_chatgpt)
    assert "is a chat of WhatsApp; import it with `graphmem import whatsapp`" in failure("chatgpt", of_whatsapp)
    error = failure("chatgpt", neither)
    assert "it holds no conversations.json, but 'a.png', 'b.png', 'c.png', …; give the zip file as it was" in error
    assert "but nothing" in failure("whatsapp", write_zip(tmp_path / "d.zip", {}))
    assert "is a zip file; `graphmem import chatgpt`" in run(of_chatgpt, status=1).stderr


@pytest.mark.parametrize("cut", [10, 100, -30])
def test_a_zip_file_that_was_cut_off_or_altered_is_refused(tmp_path: Path, home: Path, cut: int) -> None:
    file = write_zip(tmp_path / "a.zip", {"conversations.json": OF_CHATGPT, "b": b"x" * 1000})
    data = file.read_bytes()
    file.write_bytes(data[:cut])
    assert "is a zip file that was cut off or altered; download it again" in failure("chatgpt", file)
    file.write_bytes(data[:60] + bytes([data[60] ^ 255]) + data[61:])
    assert "is a zip file that was cut off or altered; download it again" in failure("chatgpt", file)


def test_an_encrypted_zip_file_is_refused(tmp_path: Path, home: Path) -> None:
    file = write_zip(tmp_path / "a.zip", {"conversations.json": OF_CHATGPT})
    data = bytearray(file.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags of a member, which is told twice
        data[data.index(signature) + offset] |= 1
    file.write_bytes(data)
    assert "is encrypted; unpack it with its password, and give 'conversations.json'" in failure("chatgpt", file)


def test_a_zip_bomb_is_refused_before_it_is_read(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = write_zip(tmp_path / "a.zip", {"conversations.json": b" " * (chat_files.RATIO_FROM + 1)})
    assert "becomes more than 200 times as long" in failure("chatgpt", bomb)
    small = write_zip(tmp_path / "b.zip", {"conversations.json": OF_CHATGPT, "conversations-1.json": OF_CHATGPT})
    monkeypatch.setattr(chat_files, "MAX_BYTES", 300)
    assert "becomes longer than 300 bytes" in failure("chatgpt", small)
    (plain := tmp_path / "c.json").write_text(json.dumps(OF_CHATGPT))
    assert "has more than 300 bytes" in failure("chatgpt", plain)
    monkeypatch.setattr(chat_files, "MAX_MEMBERS", 1)
    assert "holds 2 files, more than 1" in failure("chatgpt", small)


def test_names_of_members_lead_nowhere(tmp_path: Path, home: Path) -> None:
    """Nothing is unpacked, so a member of any name is read where it is."""
    members = {"../../conversations.json": OF_CHATGPT, "/etc/passwd": "x", "..\\evil.txt": "x"}
    before = sorted(tmp_path.parent.rglob("*"))
    assert imported("chatgpt", write_zip(tmp_path / "a.zip", members))["added"] == 1
    new = {path for path in tmp_path.parent.rglob("*") if path not in before and home not in path.parents}
    assert new == {tmp_path / "a.zip", home}


# --- a large one -----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_an_import_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    chats = [
        chat(f"{number:08}-eafc-83a6-ab22-d89ad9e2b447", *(f"In chat {number} we said {n}." for n in range(30)))
        for number in range(40)
    ]
    file = write_zip(tmp_path / "a.zip", {"conversations.json": chats})
    folder = tmp_path / "home"
    command = [
        sys.executable, "-m", "graphmem", "import", "chatgpt", str(file), "--user", "ana", "--home", str(folder),
        "--json",
    ]  # fmt: skip
    environment = {**os.environ, "GRAPHMEM_EXTRACTOR__PROVIDER": "none"}
    kills = 0
    for limit in (300, 700):
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while process.poll() is None and stored(folder) < limit:
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        kills += process.returncode == -signal.SIGKILL
    before = stored(folder)
    assert kills == 2
    assert 300 <= before < 1200
    answer = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    assert (answer["added"], answer["known"], answer["unenriched"]) == (1200 - before, before, 0)
    with Memory(folder) as memory:
        texts = Counter(one["memory"] for one in memory.get_all(user_id="ana", limit=1000)["results"])
        texts += Counter(one["memory"] for one in memory.get_all(user_id="ana", limit=1000, offset=1000)["results"])
        assert len(texts) == 1200
        assert set(texts.values()) == {1}
        assert memory.verify()["ok"]


def stored(folder: Path) -> int:
    """How many memories a ledger has, read without the package."""
    import sqlite3  # noqa: PLC0415

    try:
        connection = sqlite3.connect(f"file:{folder / 'ledger.sqlite'}?mode=ro", uri=True)
        try:
            return int(connection.execute("SELECT count(*) FROM memories").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error:
        return 0
