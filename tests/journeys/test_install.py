"""`graphmem install` and `uninstall`: the configuration of coding agents is changed, and is as before without it."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.waiting import TIMEOUT
from typer.testing import CliRunner

from graphmem.cli.app import app
from graphmem.coding_agents.installation import HOOKS, Installation, installing, write
from graphmem.errors import StoreError

CLIENTS = ["claude-code", "codex", "cursor", "opencode"]
# The files of each client, of the user and of a project: that of MCP servers first.
USER_FILES = {
    "claude-code": [".claude.json", ".claude/settings.json"],
    "codex": [".codex/config.toml", ".codex/hooks.json"],
    "cursor": [".cursor/mcp.json", ".cursor/hooks.json"],
    "opencode": [".config/opencode/opencode.json", ".config/opencode/plugins/graphmem.js"],
}
PROJECT_FILES = {
    **USER_FILES,
    "claude-code": [".mcp.json", ".claude/settings.json"],
    "opencode": ["opencode.json", ".opencode/plugins/graphmem.js"],
}
FOREIGN = {
    ".claude.json": '{"numStartups": 3,   "mcpServers": {"other": {"command": "x"}}, "projects": {}}',
    ".mcp.json": '{\n    "mcpServers": {\n        "other": {"command": "x"}\n    }\n}\n',
    ".claude/settings.json": """{
\t"model": "opus",
\t"hooks": {
\t\t"Stop": [
\t\t\t{"matcher": "", "hooks": [{"type": "command", "command": "say done"}]}
\t\t],
\t\t"PreToolUse": []
\t}
}""",
    ".codex/config.toml": '# mine\nmodel = "gpt"  # good\n\n[mcp_servers.other]\ncommand = "x"\n\n[tui]\ntheme = "a"\n',
    ".codex/hooks.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}\r\n',
    ".cursor/mcp.json": '{"mcpServers": {}}',
    ".cursor/hooks.json": '{\n  "version": 1,\n  "hooks": {\n    "stop": [{"command": "./say.sh"}]\n  }\n}\n',
    "opencode.json": '{\n  // mine\n  "model": "a/b", /* good */\n  "mcp": {\n'
    '    "other": {"type": "remote"}, // keep\n  },\n}\n',
}
FOREIGN[".config/opencode/opencode.json"] = FOREIGN["opencode.json"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The user's home, where the commands run as well; no variable names another place."""
    for name in ("GRAPHMEM_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "GRAPHMEM_MCP__USER_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, status=0, **more):
    result = CliRunner().invoke(app, list(arguments), **more)
    assert result.exit_code == status, (result.stdout, result.stderr, result.exception)
    return result


def contents(folder):
    """All files of a folder but graphmem's own."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(".graphmem/")}


def put(folder, names):
    for name in names:
        if name in FOREIGN:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(FOREIGN[name].encode())


def commands_of(folder, client, files=USER_FILES):
    """The command lines of the hooks that are installed, by events."""
    value = json.loads((folder / files[client][1]).read_text("utf-8"))
    return {
        event: [
            hook["command"]
            for entry in entries
            for hook in (entry["hooks"] if "hooks" in entry else [entry])
            if "graphmem" in hook["command"]
        ]
        for event, entries in value["hooks"].items()
    }


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("foreign", [False, True])
def test_installed_twice_and_taken_out_everything_is_as_it_was(place, client, project, foreign):
    files = (PROJECT_FILES if project else USER_FILES)[client]
    option = ["--project"] if project else []
    if foreign:
        put(place, files)
    before = contents(place)
    first = run("install", client, "--user", "ana", *option)
    assert first.stdout.endswith("\ninstalled\n")
    for name in files:
        assert f"+++ {place / name}" in first.stdout
    installed = contents(place)
    assert {name for name in installed if not name.endswith(".graphmem-backup")} == set(files) | set(before)
    assert {name.removesuffix(".graphmem-backup"): installed[name] for name in installed if "backup" in name} == before
    assert run("install", client, "--user", "ana", *option).stdout == "nothing to change: installed already\n"
    assert contents(place) == installed
    run("uninstall", client, *option)
    assert contents(place) == before
    assert list((place / ".graphmem").iterdir()) == []
    assert run("uninstall", client, *option).stdout == "nothing to change: uninstalled already\n"


@pytest.mark.parametrize("client", CLIENTS)
def test_other_values_stay_beside_ours(place, client):
    put(place, USER_FILES[client])
    run("install", client, "--user", "ana")
    path = place / USER_FILES[client][0]
    text = path.read_text("utf-8")
    if client == "codex":
        value = tomllib.loads(text)
        entry = value["mcp_servers"]["graphmem"]
        assert text.startswith(FOREIGN[".codex/config.toml"])
        assert value["mcp_servers"]["other"] == {"command": "x"}
        assert [entry["command"], *entry["args"]][-3:] == ["mcp", "--user", "ana"]
    elif client == "opencode":
        assert "// mine" in text and "/* good */" in text and "// keep" in text
        assert '"mcp", "--user", "ana"' in " ".join(text.split()).replace('", "', '", "')
    else:
        entry = json.loads(text)["mcpServers"]["graphmem"]
        assert [entry["command"], *entry["args"]][-3:] == ["mcp", "--user", "ana"]
    if client in {"claude-code", "codex"}:
        hooks = json.loads((place / USER_FILES[client][1]).read_text("utf-8"))["hooks"]
        assert "say done" in json.dumps(hooks["Stop"][0])
        assert hooks.get("PreToolUse", []) == []


@pytest.mark.parametrize("client", ["claude-code", "codex", "cursor"])
def test_each_event_has_one_hook_that_names_what_to_do(place, client):
    run("install", client, "--user", "ana")
    commands = commands_of(place, client)
    assert commands.keys() == HOOKS[client].keys()
    for event, (command,) in commands.items():
        assert shlex.split(command)[-3:] == ["hook", client, HOOKS[client][event]]


@pytest.mark.parametrize("client", CLIENTS)
def test_what_others_changed_since_stays_when_ours_is_taken_out(place, client):
    put(place, USER_FILES[client])
    before = contents(place)
    run("install", client, "--user", "ana")
    path = place / USER_FILES[client][0]
    text = path.read_text("utf-8")
    if client == "codex":
        path.write_text(text.replace('theme = "a"', 'theme = "b"'), "utf-8")
    else:
        brace = text.index("{") + 1
        path.write_text(text[:brace] + '"new": 1, ' + text[brace:], "utf-8")
    changed = path.read_text("utf-8")
    run("uninstall", client)
    left = path.read_text("utf-8")
    assert "graphmem" not in left
    assert ('theme = "b"' if client == "codex" else '"new": 1') in left
    assert left != before[USER_FILES[client][0]].decode() and left != changed
    if client == "codex":
        assert left == FOREIGN[".codex/config.toml"].replace('theme = "a"', 'theme = "b"')


def test_a_hook_that_joined_ours_stays_alone_and_ours_is_not_run_twice(place):
    run("install", "claude-code", "--user", "ana")
    settings = place / ".claude/settings.json"
    value = json.loads(settings.read_text("utf-8"))
    alien = {"type": "command", "command": "say done"}
    for event, before in (("Stop", False), ("SessionEnd", True)):
        hooks = value["hooks"][event][0]["hooks"]
        value["hooks"][event][0] = {"matcher": "", "hooks": [alien, *hooks] if before else [*hooks, alien]}
    settings.write_text(json.dumps(value, indent=2), "utf-8")
    run("install", "claude-code", "--user", "ana")
    assert {event: len(commands) for event, commands in commands_of(place, "claude-code").items()} == dict.fromkeys(
        HOOKS["claude-code"], 1
    )
    run("uninstall", "claude-code")
    left = {"matcher": "", "hooks": [alien]}
    assert json.loads(settings.read_text("utf-8")) == {"hooks": {"Stop": [left], "SessionEnd": [left]}}


def test_installations_at_once_keep_the_notes_of_each_other(place):
    command = [sys.executable, "-P", "-m", "graphmem"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    def at_once(*commands):
        started = [
            subprocess.Popen([*command, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for words in commands
        ]
        for process in started:
            _, error = process.communicate(timeout=TIMEOUT)
            assert process.returncode == 0, error

    at_once(*(["install", client, "--user", "ana"] for client in [*CLIENTS, *CLIENTS]))
    noted = json.loads((place / ".graphmem/hooks.json").read_text("utf-8"))["files"]
    assert set(noted) == {str(place / name) for names in USER_FILES.values() for name in names}
    at_once(*(["uninstall", client] for client in CLIENTS))
    assert contents(place) == {} and not (place / ".graphmem/hooks.json").exists()


def test_a_folder_whose_name_is_no_text_is_refused(place, monkeypatch):
    folder = Path(os.fsdecode(os.fsencode(place) + b"/b\xff"))
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for client in CLIENTS:
        assert "is not UTF-8" in run("install", client, "--user", "ana", status=1).stderr
    assert contents(folder) == {}


def test_what_a_client_writes_in_the_meantime_is_not_lost(place):
    wanted = Installation("claude-code", place / ".graphmem")
    changes = wanted.installed("ana")
    (place / ".claude.json").write_text('{"numStartups": 4}')
    with pytest.raises(StoreError, match="changed in the meantime; nothing was changed"):
        write(changes, place / ".graphmem")
    assert (place / ".claude.json").read_text() == '{"numStartups": 4}'
    changes = wanted.installed("ana")
    (place / ".claude").symlink_to("/proc/none/claude")
    changes = wanted.installed("ana")
    with installing(place / ".graphmem"), pytest.raises(StoreError, match="other files are changed already; mend"):
        write(changes, place / ".graphmem")


def test_a_second_installation_for_another_user_keeps_what_its_owner_added(place):
    run("install", "claude-code", "--user", "ana")
    path = place / ".claude.json"
    value = json.loads(path.read_text("utf-8"))
    value["mcpServers"]["graphmem"]["env"] = {"A": "1"}
    path.write_text(json.dumps(value), "utf-8")
    run("install", "claude-code", "--user", "bo")
    entry = json.loads(path.read_text("utf-8"))["mcpServers"]["graphmem"]
    assert entry["args"][-1] == "bo" and entry["env"] == {"A": "1"}
    assert [len(one) for one in commands_of(place, "claude-code").values()] == [1, 1, 1, 1]
    run("uninstall", "claude-code")
    assert json.loads(path.read_text("utf-8")) == {}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dry_run_shows_everything_and_writes_nothing(place, client):
    put(place, USER_FILES[client])
    before = contents(place)
    planned = run("install", client, "--user", "ana", "--dry-run")
    assert planned.stdout.endswith("not yet installed\n")
    assert "+" in planned.stdout and "mcp" in planned.stdout
    assert contents(place) == before and not (place / ".graphmem").exists()
    told = json.loads(run("install", client, "--user", "ana", "--dry-run", "--json").stdout)
    assert [Path(one["path"]).name for one in told["changes"]] == [Path(one).name for one in USER_FILES[client]]
    run("install", client, "--user", "ana")
    installed = contents(place)
    assert run("uninstall", client, "--dry-run").stdout.endswith("not yet uninstalled\n")
    assert contents(place) == installed


BROKEN = {
    ".claude.json": "{'a': 1}", ".claude/settings.json": '{"hooks": [}', ".codex/config.toml": "a = = 1",
    ".codex/hooks.json": '{"hooks": {"Stop": 3}}', ".cursor/mcp.json": "[]", ".cursor/hooks.json": "{",
    ".config/opencode/opencode.json": '{"mcp": 3}',
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_read_is_refused_and_nothing_is_changed(place, name):
    client = next(client for client, files in USER_FILES.items() if name in files)
    put(place, USER_FILES[client])
    for content in (BROKEN[name].encode(), b"\xff\xfe\x00"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
        before = contents(place)
        error = run("install", client, "--user", "ana", status=1).stderr
        assert error.startswith(f"graphmem: {place / name} ") and "nothing was changed" in error
        assert error.count("\n") == 1
        assert contents(place) == before


def test_a_foreign_server_of_our_name_is_refused(place):
    path = place / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"graphmem": {"url": "https://example.org/mcp"}}}', "utf-8")
    before = contents(place)
    assert "is another one; nothing was changed" in run("install", "cursor", "--user", "ana", status=1).stderr
    run("uninstall", "cursor")
    assert contents(place) == before


def test_a_linked_file_stays_a_link_and_modes_stay(place):
    dotfiles = place / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "settings.json").write_text("{}\n", "utf-8")
    (dotfiles / "settings.json").chmod(0o640)
    (place / ".claude").mkdir()
    (place / ".claude" / "settings.json").symlink_to(dotfiles / "settings.json")
    run("install", "claude-code", "--user", "ana")
    assert (place / ".claude" / "settings.json").is_symlink()
    assert stat.S_IMODE((dotfiles / "settings.json").stat().st_mode) == 0o640
    assert "graphmem" in (dotfiles / "settings.json").read_text("utf-8")
    run("uninstall", "claude-code")
    assert (dotfiles / "settings.json").read_text("utf-8") == "{}\n"


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(place):
    (place / ".cursor").write_text("a file", "utf-8")
    error = run("install", "cursor", "--user", "ana", status=1).stderr
    assert error.count("\n") == 1 and ".cursor" in error


def test_the_key_is_in_our_file_only_and_stays(place):
    (place / "key").write_text("gm_secretsecretsecret\n", "utf-8")
    told = run("install", "claude-code", "--user", "ana", "--key-file", "key", "--url", "https://memory.example.org/")
    assert "gm_secret" not in told.stdout + told.stderr
    ours = place / ".graphmem" / "hooks.json"
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600 and stat.S_IMODE(ours.parent.stat().st_mode) == 0o700
    run("install", "codex", input="")
    kept = json.loads(ours.read_text("utf-8"))
    assert (kept["api_key"], kept["user_id"]) == ("gm_secretsecretsecret", "ana")
    assert kept["url"] == "https://memory.example.org"
    assert not any(b"gm_secret" in content for name, content in contents(place).items() if name != "key")
    run("install", "codex", "--key-file", "-", input="gm_other_key_other\n")
    assert json.loads(ours.read_text("utf-8"))["api_key"] == "gm_other_key_other"


def test_places_that_variables_name_are_used(place, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(place / "c"))
    monkeypatch.setenv("CODEX_HOME", str(place / "x"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "o"))
    monkeypatch.setenv("GRAPHMEM_HOME", str(place / "memory"))
    for client in ("claude-code", "codex", "opencode"):
        run("install", client, "--user", "ana")
    names = {"c/.claude.json", "c/settings.json", "x/config.toml", "x/hooks.json", "memory/hooks.json",
             "o/opencode/opencode.json", "o/opencode/plugins/graphmem.js"}  # fmt: skip
    assert contents(place).keys() == names
    for name in names - {"memory/hooks.json"}:
        assert str(place / "memory") in (place / name).read_text("utf-8"), name


def test_the_files_of_opencode_2_and_with_comments_are_kept_in_their_form(place):
    folder = place / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.jsonc").write_text('{"mcp": {"servers": {"a": {"type": "local", "command": ["x"]}}}} // 2\n')
    run("install", "opencode", "--user", "ana")
    assert not (folder / "opencode.json").exists()
    text = (folder / "opencode.jsonc").read_text("utf-8")
    servers = json.loads(text.removesuffix(" // 2\n"))["mcp"]["servers"]
    assert set(servers) == {"a", "graphmem"} and "enabled" not in servers["graphmem"]


def test_what_users_cannot_know_is_said(place):
    told = run("install", "codex", "--user", "ana", "--url", "http://127.0.0.1:9").stderr
    assert "trust the hooks with /hooks" in told
    assert "nothing answers at http://127.0.0.1:9: hooks do nothing until 'graphmem serve' runs there" in told
    assert "Cursor documents no context from hooks at prompts" in run("install", "cursor").stderr


def test_no_module_of_the_project_is_run_in_place_of_ours(place):
    (place / "json.py").write_text("raise SystemExit('foreign code')", "utf-8")
    (place / "graphmem.py").write_text("raise SystemExit('foreign code')", "utf-8")
    run("install", "claude-code", "--user", "ana")
    ((command,), *_) = commands_of(place, "claude-code").values()
    root = Path(__file__).parents[2]
    done = subprocess.run(
        shlex.split(command),
        input="{}",
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_hook_loads_nothing_that_takes_long():
    code = (
        "import sys; sys.argv = ['graphmem', 'hook', 'claude-code', 'recall', '--home', '/nowhere']\n"
        "from graphmem.__main__ import main; main()\n"
        "heavy = 'typing http email ssl pathlib hashlib tempfile urllib typer numpy pydantic logging graphmem.errors'\n"
        "print([name for name in heavy.split() if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n{code}"],
        input='{"prompt": "Where do we deploy?"}', capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"
    assert done.stderr == "graphmem: /nowhere/hooks.json is missing; run 'graphmem install' again\n"
