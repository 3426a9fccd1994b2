"""The words of a turn: Claude Code's transcripts, turns that are told in parts, and the project that they belong to."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time

import pytest

from graphmem.boundary import validation
from graphmem.coding_agents import turns
from graphmem.coding_agents.connection import HookError
from graphmem.coding_agents.hook import project_id
from graphmem.coding_agents.turns import (
    Turn,
    answer_turn,
    begin_turn,
    claude_turn,
    end_turn,
    pending_turn,
    spoken,
    stored_words,
)
from graphmem.retrieval.context.frame import block, memory_line


def user(text, **more):
    return {"type": "user", "uuid": f"u-{text[:20]}", "timestamp": "2026-05-01T10:00:00.000Z",
            "message": {"role": "user", "content": text}, **more}  # fmt: skip


def assistant(*parts, message_id="msg_1", **more):
    return {"type": "assistant", "uuid": f"a-{message_id}", "timestamp": "2026-05-01T10:00:09.000Z",
            "message": {"role": "assistant", "id": message_id, "content": list(parts)}, **more}  # fmt: skip


def text(words):
    return {"type": "text", "text": words}


TOOL_USE = assistant(
    {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "cat .env"}}, message_id="m0"
)
TOOL_RESULT = {
    "type": "user", "uuid": "u-tool", "toolUseResult": {"stdout": "KEY=1"},
    "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "KEY=1"}]},
}  # fmt: skip


@pytest.fixture
def transcript(tmp_path):
    def write(*records):
        path = tmp_path / "session.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
        return str(path)

    return write


def test_a_turn_is_the_last_prompt_and_the_last_answer_without_tools(transcript):
    path = transcript(
        {"type": "summary", "summary": "earlier"},
        user("Old question"), assistant(text("Old answer"), message_id="m"),
        user("Why is the build red?"), assistant(text("Let me look."), message_id="m0"), TOOL_USE, TOOL_RESULT,
        assistant({"type": "thinking", "thinking": "hm"}), assistant(text("A test fails.")),
        assistant(text("It is flaky.")),
        {"type": "file-history-snapshot", "snapshot": {}}, {"type": "system", "subtype": "turn_duration"},
    )  # fmt: skip
    turn = claude_turn(path)
    assert (turn.prompt, turn.answer) == ("Why is the build red?", "A test fails.\nIt is flaky.")
    assert (turn.prompt_at, turn.answer_at) == ("2026-05-01T10:00:00.000Z", "2026-05-01T10:00:09.000Z")
    assert "KEY" not in json.dumps(turn.messages("claude-code"))


def test_the_answer_that_the_hook_was_told_counts(transcript):
    assert claude_turn(transcript(user("Hello?")), "I am here.").answer == "I am here."
    assert claude_turn(transcript(user("Hello?"))).answer == ""


def test_parts_of_a_prompt_that_are_no_words_are_left_out(transcript):
    parts = [
        text("<ide_opened_file>secret.py</ide_opened_file>"),
        {"type": "image", "source": {}},
        text("Explain this."),
    ]
    turn = claude_turn(transcript({"type": "user", "uuid": "u", "message": {"role": "user", "content": parts}}))
    assert turn.prompt == "Explain this."


@pytest.mark.parametrize(
    "last",
    [
        user("<command-name>/review</command-name>\n<command-args></command-args>"),
        user("/deploy staging"),
        user("<task-notification>done</task-notification>"),
        user("[Request interrupted by user]"),
        user("<bash-input>ls</bash-input>"),
    ],
)
def test_a_turn_that_no_words_begin_is_none(transcript, last):
    assert (
        claude_turn(transcript(user("Real words"), assistant(text("Fine.")), last, assistant(text("Reviewed."))))
        is None
    )


def test_records_of_subagents_and_of_the_client_are_no_part_of_a_turn(transcript):
    path = transcript(
        user("Real words"), assistant(text("Fine."), message_id="m9"),
        user("You are a subagent", isSidechain=True), assistant(text("Sub"), message_id="m8", isSidechain=True),
        user("Summary of it all", isCompactSummary=True), user("Expanded command", isMeta=True),
        assistant(text("API Error"), message_id="m7", isApiErrorMessage=True),
    )  # fmt: skip
    assert (claude_turn(path).prompt, claude_turn(path).answer) == ("Real words", "Fine.")


def test_a_transcript_with_broken_lines_and_a_long_turn_is_read_from_its_end(tmp_path):
    path = tmp_path / "session.jsonl"
    lines = [json.dumps(user("Where are we?")), "{broken", "", json.dumps([1]), "null"]
    lines += [json.dumps(TOOL_RESULT | {"toolUseResult": "x" * 40_000})] * 30
    lines += [json.dumps(assistant(text("Here — und da."))), '{"type": "assistant", "mess']
    path.write_text("\n".join(lines), "utf-8")
    assert (claude_turn(str(path)).prompt, claude_turn(str(path)).answer) == ("Where are we?", "Here — und da.")


def test_the_beginning_of_a_turn_is_not_looked_for_without_end(transcript, monkeypatch):
    monkeypatch.setattr(turns, "MAX_TRANSCRIPT_BYTES", 1000)
    path = transcript(user("Far away"), *[TOOL_RESULT] * 50, assistant(text("Done.")))
    with pytest.raises(HookError, match="not stored"):
        claude_turn(path)


@pytest.mark.parametrize(
    "piece",
    ["<system-reminder> a ", "<system-reminder", "<ide_a></ide_b>", "<memories>\n", "token: a ", "<command-name>x</"],
)
def test_a_huge_prompt_is_read_in_time(piece):
    begin = time.process_time()
    stored = stored_words(spoken(piece * (7_000_000 // len(piece))))
    assert len(stored) <= turns.MAX_CHARS + 2
    assert time.process_time() - begin < 4


def test_a_secret_at_the_place_where_a_text_is_cut_is_masked():
    stored = stored_words("x" * (turns.MAX_CHARS - 5) + " ghp_" + "a1" * 18 + " and more")
    assert "ghp_" not in stored and stored.endswith(" …")


def test_blocks_without_an_end_stay_and_others_are_left_out():
    said = "<system-reminder>Use <ide_selection>x</ide_selection> now. <bash-input>ls</bash-input>Why?"
    assert spoken(said) == "<system-reminder>Use  now. Why?"
    assert spoken("<bash-input>a<system-reminder>b</bash-input>c</system-reminder>d") == "c</system-reminder>d"


def test_a_turn_read_again_has_the_same_ids(transcript):
    before = claude_turn(transcript(user("Go on."), assistant(text("Working on it."), message_id="m1")))
    after = claude_turn(
        transcript(
            user("Go on."),
            assistant(text("Working on it."), message_id="m1"),
            assistant(text("Done."), message_id="m2"),
        )
    )
    first, second = before.messages("claude-code"), after.messages("claude-code")
    assert first[0] == second[0]
    assert first[1]["id"] != second[1]["id"]


def test_the_same_words_in_another_turn_are_another_message():
    ids = {one["id"] for key in "ab" for one in Turn(key, "ok", "ok").messages("codex")}
    assert len(ids) == 4


def test_memories_that_were_injected_are_not_the_users_words():
    injected = block([memory_line("Ana likes tea.", "2026-05-01", "Ana")])
    assert spoken(f"{injected}\n\nWhat do I like?") == "What do I like?"
    assert spoken("What is <memories> in HTML?") == "What is <memories> in HTML?"


@pytest.mark.parametrize("text_given", [None, 3, ["x"], "", " \n"])
def test_what_is_no_text_has_no_words(text_given):
    assert spoken(text_given) == ""
    assert Turn("k", text_given, "answer").messages("codex") == []


def test_texts_that_no_store_can_hold_are_made_storable():
    (message,) = Turn("k", "a\0b\ud800c").messages("codex")
    assert message["content"] == "ab?c"


def test_long_texts_are_cut():
    prompt, answer = Turn("k", "p" * 50_000, "a" * 50_000).messages("codex")
    assert len(prompt["content"]) == len(answer["content"]) == turns.MAX_CHARS + 2


# --- turns that are told in parts ------------------------------------------------------------------------------------


def test_a_turn_is_kept_until_it_ends(tmp_path):
    home = str(tmp_path / "home")
    assert pending_turn(home, "s") is None
    answer_turn(home, "s", "nothing began")
    begin_turn(home, "s", "t1", "My token=abc123 is old.")
    answer_turn(home, "s", "First.")
    answer_turn(home, "s", "Last.")
    (file,) = (tmp_path / "home" / "hooks").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "abc123" not in file.read_text("utf-8")
    turn = pending_turn(home, "s")
    assert (turn.key, turn.prompt, turn.answer) == ("t1", "My token=[secret] is old.", "Last.")
    assert pending_turn(home, "s", "Told.").answer == "Told."
    assert pending_turn(home, "another") is None
    end_turn(home, "s")
    end_turn(home, "s")
    assert pending_turn(home, "s") is None


def test_what_is_said_while_the_agent_works_joins_its_turn(tmp_path):
    begin_turn(str(tmp_path), "s", "t1", "Fix it.")
    begin_turn(str(tmp_path), "s", "t1", "And test it.")
    assert pending_turn(str(tmp_path), "s").prompt == "Fix it.\n\nAnd test it."
    begin_turn(str(tmp_path), "s", "t2", "Next.")
    assert pending_turn(str(tmp_path), "s").prompt == "Next."


def test_turns_that_never_ended_are_removed_and_broken_ones_are_none(tmp_path):
    begin_turn(str(tmp_path), "old", "t", "Old.")
    (old,) = (tmp_path / "hooks").iterdir()
    os.utime(old, (0, 0))
    begin_turn(str(tmp_path), "new", "t", "New.")
    (new,) = (tmp_path / "hooks").iterdir()
    new.write_text('{"key": ', "utf-8")
    assert pending_turn(str(tmp_path), "new") is None


# --- projects --------------------------------------------------------------------------------------------------------


@pytest.fixture
def user_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_project_is_the_repository_around_a_folder(user_home):
    inner = user_home / "code" / "api" / "src"
    inner.mkdir(parents=True)
    assert project_id(str(inner)) == "~/code/api/src"
    (user_home / "code" / "api" / ".git").mkdir()
    assert project_id(str(inner)) == project_id(str(inner.parent)) == "~/code/api"
    (user_home / ".git").mkdir()  # a repository of dotfiles holds no projects
    assert project_id(str(user_home / "code")) == "~/code"
    assert project_id(str(user_home)) == "~"
    assert project_id("/") == "/"


def test_a_worktree_belongs_to_its_repository(user_home):
    main, tree = user_home / "main", user_home / "tree"
    git = ["git", "-C", str(main), "-c", "user.name=a", "-c", "user.email=a@b"]
    main.mkdir()
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True)
    assert project_id(str(tree)) == project_id(str(main)) == "~/main"


def test_a_long_path_keeps_its_end(user_home):
    deep = user_home.joinpath(*["x" * 100] * 4, "end")
    assert len(project_id(str(deep))) == 256
    assert project_id(str(deep)).endswith("/end")


@pytest.mark.parametrize(
    ("folder", "project"), [("/srv/a\nb ", "/srv/a?b"), ("/srv/\ud83d", "/srv/?"), ("/srv/\0x", "/srv/?x")]
)
def test_a_project_is_an_id_whatever_its_folder_is_called(folder, project):
    assert project_id(folder) == project
    assert validation.required_scope(agent_id=project_id(folder))[0].agent_id == project
