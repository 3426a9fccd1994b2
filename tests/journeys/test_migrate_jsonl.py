"""Migration of files of the MCP server `server-memory` and of plain chat exports."""

from __future__ import annotations

import json
import os

import pytest
from support.fakes import fake_models
from typer.testing import CliRunner

from graphmem import Memory, Settings
from graphmem.cli.app import app
from graphmem.errors import ValidationError
from graphmem.transfer.sources.mcp_memory import is_graph

runner = CliRunner()
# As that server writes it: one object on a line, entities first.
GRAPH = [
    {
        "type": "entity",
        "name": "John_Smith",
        "entityType": "person",
        "observations": ["Speaks fluent Spanish", "Prefers morning meetings", "Met Maria in Lisbon."],
    },
    {"type": "entity", "name": "Anthropic", "entityType": "organization", "observations": []},
    {"type": "entity", "name": "standup", "entityType": "recurring_event", "observations": ["Is at nine"]},
    {"type": "entity", "name": "default_user", "entityType": "unheard of", "observations": []},
    {"type": "relation", "from": "John_Smith", "to": "Anthropic", "relationType": "works_at"},
    {"type": "relation", "from": "default_user", "to": "John_Smith", "relationType": "knows"},
]


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    settings = Settings.from_dict(fake_models(home=folder, extractor={"provider": "spacy"}))
    monkeypatch.setattr(Settings, "from_env", lambda **_: settings)
    return folder


def write_lines(path, lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def run(path, *arguments, status=0):
    result = runner.invoke(app, ["migrate", "jsonl", str(path), "--user", "tom", *arguments])
    assert result.exit_code == status, (result.exit_code, result.stdout, result.stderr, result.exception)
    return result


def migrate(path, *arguments, status=0):
    return json.loads(run(path, *arguments, "--json", status=status).stdout)


def list_texts(memory, user="tom"):
    return {one["memory"] for one in memory.get_all(user_id=user)["results"]}


# --- a memory file of the MCP server ---------------------------------------------------------------------------------


def test_observations_and_relations_become_memories(tmp_path, home):
    report = migrate(write_lines(tmp_path / "memory.jsonl", GRAPH))
    assert (report["added"], report["left"]) == (10, {})
    with Memory() as memory:
        assert list_texts(memory) == {
            "John Smith is a person.",
            "John Smith\nSpeaks fluent Spanish",
            "John Smith\nPrefers morning meetings",
            "John Smith\nMet Maria in Lisbon.",
            "Anthropic is an organization.",
            "standup is a recurring event.",
            "Standup\nIs at nine",
            "default user is an unheard of.",
            "John Smith works at Anthropic",
            "default user knows John Smith",
        }
        assert {one["at"][:10] for one in memory.get_all(user_id="tom")["results"]} == {"2023-11-14"}
        assert {one["kind"] for one in memory.get_all(user_id="tom")["results"]} == {"fact"}
        assert memory.verify()["ok"]


def test_entities_and_relations_of_the_file_are_imported(tmp_path, home):
    migrate(write_lines(tmp_path / "memory.jsonl", GRAPH))
    with Memory() as memory:
        types = {one["name"]: one["type"] for one in memory.entities(user_id="tom")}
        assert (types["John Smith"], types["Anthropic"], types["standup"]) == ("Person", "Organization", "Event")
        assert types["default user"] == "Other"
        entity = memory.entity("John Smith", user_id="tom")
        assert len(entity["memories"]) == 6
        relations = {(one["source"], one["relationship"], one["target"]) for one in entity["relations"]}
        assert {("John Smith", "works_at", "Anthropic"), ("default user", "knows", "John Smith")} <= relations
        graph = memory.graph(user_id="tom")
        predicates = {data["predicate"] for _, _, data in graph.edges(data=True) if "predicate" in data}
        assert {"works_at", "knows"} <= predicates
        # Our own extractor adds entities from the observations.
        assert "Maria" in types
        hits = memory.search("Which languages does the person at Anthropic speak?", user_id="tom", top_k=5)["results"]
        assert "John Smith\nSpeaks fluent Spanish" in [hit["memory"] for hit in hits]


@pytest.mark.thorough
def test_a_second_migration_adds_only_new_observations(tmp_path, home):
    path = write_lines(tmp_path / "memory.jsonl", GRAPH)
    assert migrate(path)["added"] == 10
    assert (migrate(path)["added"], migrate(path)["known"]) == (0, 10)
    larger_graph = [{**GRAPH[0], "observations": [*GRAPH[0]["observations"], "Left in May"]}, *GRAPH[1:]]
    assert migrate(write_lines(path, larger_graph))["added"] == 1
    other = json.loads(runner.invoke(app, ["migrate", "jsonl", str(path), "--user", "ida", "--json"]).stdout)
    assert other["added"] == 11


def test_invalid_lines_are_reported(tmp_path, home):
    report = migrate(
        write_lines(
            tmp_path / "memory.jsonl",
            [
                GRAPH[1],
                "{ broken",
                {"type": "entity", "name": "", "entityType": "person", "observations": ["x"]},
                {"type": "entity", "name": "Ann", "entityType": "person", "observations": "x"},
                {"type": "relation", "from": "Ann", "to": "Bo"},
                {"type": "other"},
                "",
            ],
        ),
        status=1,
    )
    assert report["added"] == 2
    assert sorted(place for places in report["left"].values() for place in places) == [f"line {n}" for n in range(2, 7)]


def test_an_invalid_line_counts_once(tmp_path, home):
    nothing = {"type": "entity", "name": "Ann"}
    nameless = {"type": "entity", "entityType": "person", "observations": ["x"]}
    path = write_lines(tmp_path / "memory.jsonl", ["no JSON at all", GRAPH[1], nothing, nameless, nothing, nameless])
    left = migrate(path, status=1)["left"]
    assert sorted(place for places in left.values() for place in places) == [f"line {n}" for n in (1, 3, 4, 5, 6)]
    output = run(path, status=1).stdout
    assert "2 not taken: name: must be a text with words in it (line 4, line 6)" in output


def test_the_timestamp_option_sets_the_time(tmp_path, home):
    migrate(write_lines(tmp_path / "memory.jsonl", GRAPH[1:2]), "--timestamp", "2024-02-03")
    with Memory() as memory:
        assert memory.get_all(user_id="tom")["results"][0]["at"][:10] == "2024-02-03"
    assert "--timestamp" in run(tmp_path / "memory.jsonl", "--timestamp", "soon", status=2).stderr


# --- a chat ----------------------------------------------------------------------------------------------------------

CHAT = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "I moved to Lisbon."},
    {"role": "assistant", "content": "Noted."},
    {"role": "user", "content": "ok"},
    {"role": "user", "content": "ok"},
    {"role": "user", "content": "In May.", "timestamp": "2024-05-01T10:00:00Z"},
]


@pytest.mark.parametrize(
    "name, text",
    [
        ("chat.jsonl", "".join(json.dumps(one) + "\n" for one in CHAT)),
        ("chat.json", json.dumps(CHAT)),
        ("openai.jsonl", json.dumps({"messages": CHAT[:3]}) + "\n" + json.dumps({"messages": CHAT[3:]})),
        ("openai.json", json.dumps({"messages": CHAT})),
        ("chats.json", json.dumps([{"messages": CHAT[:3]}, {"messages": CHAT[3:]}])),
    ],
)
def test_a_chat_is_imported_once(tmp_path, home, name, text):
    path = write_lines(tmp_path / name, [text])
    assert [one["event"] for one in migrate(path)["results"]] == ["ADD"] * 5
    os.utime(path, (1_800_000_000, 1_800_000_000))
    assert [one["event"] for one in migrate(path)["results"]] == ["NONE"] * 5
    assert "5 known already" in run(path).stdout
    with Memory() as memory:
        memories = memory.get_all(user_id="tom")["results"]
        assert [one["at"][:10] for one in memories] == ["2024-05-01", *["2023-11-14"] * 4]
        assert sorted(one["memory"] for one in memories) == ["I moved to Lisbon.", "In May.", "Noted.", "ok", "ok"]


CODE = {"type": "user", "message": {"role": "user", "content": "We use tabs."}, "uuid": "n", "sessionId": "s"}


@pytest.mark.parametrize(
    "name, lines, program",
    [
        ("conversations.json", [json.dumps([{"mapping": {}, "current_node": "u"}])], "chatgpt"),
        ("conversations.json", [json.dumps([{"uuid": "c", "chat_messages": []}])], "claude"),
        ("session.jsonl", [{"type": "summary", "leafUuid": "n"}, CODE], "claude-code"),
        ("WhatsApp Chat.txt", ["24.12.23, 21:15 - Ana: Ich bin nach Lissabon gezogen."], "whatsapp"),
    ],
)
def test_what_a_program_wrote_is_left_to_its_command(tmp_path, home, name, lines, program):
    """Both commands would store it twice: here without conversations as runs."""
    path = write_lines(tmp_path / name, lines)
    assert f"import it with `graphmem import {program}`" in run(path, status=1).stderr
    add = runner.invoke(app, ["add", "--file", str(path), "--user", "tom"])
    if program == "whatsapp":
        assert add.stdout.startswith("1 added"), "of any transcript `add` reads the words"
    else:
        assert (add.exit_code, f"`graphmem import {program}`" in add.stderr) == (1, True)


@pytest.mark.parametrize(
    "wrap", [lambda said: said, lambda said: {"messages": [said]}, lambda said: [{"messages": [said]}]]
)
def test_messages_with_created_at_have_that_time(tmp_path, home, wrap):
    said = {"role": "user", "content": "I moved to Lisbon.", "created_at": "2024-05-01T10:00:00Z"}
    migrate(write_lines(tmp_path / "chat.json", [json.dumps(wrap(said))]))
    with Memory() as memory:
        assert [one["at"][:10] for one in memory.get_all(user_id="tom")["results"]] == ["2024-05-01"]


LONG = "x" * 1_000_001


def test_bad_lines_of_a_chat_are_reported_and_the_rest_is_imported(tmp_path, home):
    path = write_lines(
        tmp_path / "chat.jsonl",
        [
            CHAT[1], "{ broken", "", {"role": "admin", "content": "Secret words."}, CHAT[2], "7", {"messages": 5},
            {"messages": [CHAT[5], {"role": "user"}, {"role": "user", "content": LONG}]},
            {"role": "user", "content": "x", "timestamp": "soon"},
        ],
    )  # fmt: skip
    report = migrate(path, status=1)
    assert [one["event"] for one in report["results"]] == ["ADD"] * 3
    places = {place: reason for reason, places in report["left"].items() for place in places}
    assert sorted(places) == [f"line {n}" for n in (2, 4, 6, 7, 8, 9)]
    assert places["line 2"].startswith("is not valid JSON")
    assert places["line 4"].startswith("role='admin': must be one of")
    assert "messages" not in places["line 8"]
    assert (
        "line 9" in report["left"][next(reason for reason in report["left"] if reason.startswith("timestamp='soon'"))]
    )
    result = run(path, status=1)
    assert "3 known already" in result.stdout
    assert "1 not taken: role='admin'" in result.stdout
    assert "Secret words" not in result.stdout + result.stderr
    corrected_file = write_lines(path, [CHAT[1], {"role": "user", "content": "Secret words."}, CHAT[2], CHAT[5]])
    assert [one["event"] for one in migrate(corrected_file)["results"]] == ["NONE", "ADD", "NONE", "NONE"]


def test_bad_messages_of_a_chat_list_are_reported_by_number(tmp_path, home):
    path = write_lines(tmp_path / "chat.json", [json.dumps([CHAT[1], {"role": "user"}, 7, CHAT[2]])])
    report = migrate(path, status=1)
    assert (len(report["results"]), sorted(map(tuple, report["left"].values()))) == (
        2,
        [("message 2",), ("message 3",)],
    )
    write_lines(path, [CHAT[1]])
    assert migrate(path)["left"] == {}


def test_mistakes_are_one_line_with_a_remedy(tmp_path, home):
    assert "cannot be read" in run(tmp_path / "none.jsonl", status=1).stderr
    (tmp_path / "latin.jsonl").write_bytes(b'{"role": "user", "content": "caf\xe9"}')
    assert "UTF-8" in run(tmp_path / "latin.jsonl", status=1).stderr
    with Memory(tmp_path / "other") as memory:
        memory.add("I moved to Lisbon.", user_id="tom", infer=False)
        memory.export(tmp_path / "export.jsonl")
    assert "import it with `graphmem import`" in run(tmp_path / "export.jsonl", status=1).stderr
    assert "is an SQLite database" in run(tmp_path / "other" / "ledger.sqlite", status=1).stderr
    assert "bad.json, line 2" in run(write_lines(tmp_path / "bad.json", ["[", "}"]), status=1).stderr
    result = runner.invoke(app, ["migrate", "jsonl", str(write_lines(tmp_path / "m.jsonl", GRAPH))])
    assert (result.exit_code, "--user" in result.stderr) == (2, True)


def test_only_lines_of_a_graph_are_recognised_as_one():
    assert is_graph('\n{"type": "relation", "from": "a"}')
    assert not is_graph('{"type": "entity", "role": "user", "content": "x"}')
    for text in ("", "{", "[1]", '{"role": "user"}', "words"):
        assert not is_graph(text)


# --- records of converters -------------------------------------------------------------------------------------------

UID = "00000000-0000-4000-8000-000000000001"


def test_records_can_be_imported_without_a_file(memory):
    record = {"type": "memory", "id": UID, "user_id": "tom", "text": "tea", "at": "2024-05-01"}
    assert memory.import_([record])["added"] == 1
    assert memory.import_(iter([record]))["known"] == 1
    with pytest.raises(ValidationError, match="record 2"):
        memory.import_([record, {**record, "colour": "red"}])
    for value in (7, {"type": "memory"}, b"x"):
        with pytest.raises(ValidationError, match="path_or_file"):
            memory.import_(value)
