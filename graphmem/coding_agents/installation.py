"""What `graphmem install` writes into the configuration of a coding agent, and how it is taken out again.

An installation is a list of changes to files, made of what the files have now; nothing is written before all of them
are known. Each file that was there is kept beside it as it was, under the name of `BACKUP`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from graphmem.atomic_files import replace_file
from graphmem.coding_agents import json_edits, toml_edits
from graphmem.coding_agents.connection import DEFAULT_URL, FILE_NAME, address_of
from graphmem.coding_agents.turns import PENDING_FOLDER
from graphmem.errors import ConfigError, StoreError

try:
    import fcntl
except ImportError:  # Windows has none: there nothing keeps two installations apart
    fcntl = None  # type: ignore[assignment]

NAME = "graphmem"
BACKUP = ".graphmem-backup"
PLUGIN_MARK = b"graphmem install"
FILE_MODE = 0o600
# The hooks of each client by its names of the events, and what graphmem does at them.
HOOKS: dict[str, dict[str, str]] = {
    "claude-code": {"UserPromptSubmit": "recall", "Stop": "store", "PreCompact": "store", "SessionEnd": "store"},
    "codex": {"UserPromptSubmit": "recall", "Stop": "store", "PreCompact": "store"},
    "cursor": {"beforeSubmitPrompt": "recall", "afterAgentResponse": "answer", "stop": "store", "preCompact": "store"},
    "opencode": {},  # its plugin calls the hooks
}
# Seconds after which a client ends a hook that has not ended itself.
HOOK_TIMEOUT = 10
NOTES: dict[str, tuple[str, ...]] = {
    "claude-code": ("start Claude Code again, and look at /hooks and /mcp",),
    "codex": ("start Codex again, and trust the hooks with /hooks: until then it skips them",),
    "cursor": (
        "open a new chat; Settings > Hooks lists the hooks",
        "Cursor documents no context from hooks at prompts: where it takes none, its model recalls by the MCP server",
    ),
    "opencode": ("start opencode again",),
}


class Change(NamedTuple):
    """A file, and its content before and after; None for no file."""

    path: Path
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True)
class Installation:
    """One client's configuration: of the user, or of the project in the folder `project`.

    `command` starts graphmem; `options` are `--home` and `--config` with their values, if they are given.
    """

    client: str
    home: Path
    project: Path | None = None
    command: Sequence[str] = field(default_factory=lambda: own_command())  # noqa: PLW0108  (defined below)
    options: Mapping[str, str] = field(default_factory=dict)

    def installed(self, user_id: str) -> list[Change]:
        """Returns what an installation changes: nothing where all is there already. Raises StoreError."""
        arguments = ["mcp", "--user", user_id, *(part for option in self.options.items() for part in option)]
        changes = [self._with_server(arguments)]
        if self.client == "opencode":
            changes.append(Change(self._plugin_file(), _read(self._plugin_file()), self._plugin().encode()))
        else:
            changes.append(self._with_hooks())
        for path in (self.home, *(change.path for change in changes)):
            if str(path).encode("utf-8", "replace") != os.fsencode(path):
                raise StoreError(f"{str(path)!r} is not UTF-8, as the client's files are; nothing was changed")
        return [change for change in changes if change.before != change.after]

    def uninstalled(self) -> list[Change]:
        """Returns what takes out all that installations wrote, for this user or project. Raises StoreError."""
        written = _written(self.home)
        changes = []
        path, _ = self._server_place()
        places = [(path, self._without_server)]
        places += [] if self.client == "opencode" else [(self._hooks_file(), self._without_hooks)]
        for path, without in places:
            text, before = _text(path)
            with _reading(path):
                left = without(text)
            record = written.get(str(path), {})
            original, copy = _text(_backup(path))
            after: bytes | None = left.encode()
            if before is not None and record.get("sha256") == sha256(before).hexdigest():
                # Nobody has changed it since: it becomes as it was, to the byte.
                if record.get("created"):
                    after = None
                elif copy is not None and without(original) == original:
                    after = copy
            if before is not None:
                changes.append(Change(path, before, after))
        if self.client == "opencode":
            path = self._plugin_file()
            plugin = _read(path)
            changes.append(Change(path, plugin, None if PLUGIN_MARK in (plugin or b"") else plugin))
        return [change for change in changes if change.before != change.after]

    # --- the MCP server ---

    def _with_server(self, arguments: Sequence[str]) -> Change:
        program, *rest = self.command
        path, keys = self._server_place()
        text, before = _text(path)
        with _reading(path):
            if self.client == "codex":
                there = toml_edits.value_of(text).get("mcp_servers", {})
                _refuse_foreign(path, there.get(NAME) if isinstance(there, dict) else None)
                after = toml_edits.with_table(text, keys, {"command": program, "args": [*rest, *arguments]})
                return Change(path, before, after.encode())
            there = json_edits.value_of(text)
            for key in keys:
                there = there.get(key) if isinstance(there, dict) else None
            _refuse_foreign(path, there)
            if self.client == "opencode":
                entry: dict[str, Any] = {"type": "local", "command": [*self.command, *arguments]}
                entry |= {} if "servers" in keys else {"enabled": True}
                if before is None:
                    text = json_edits.with_member(text, ["$schema"], "https://opencode.ai/config.json")
            else:
                entry = {"command": program, "args": [*rest, *arguments]}
                entry = {"type": "stdio", **entry} if self.client == "claude-code" else entry
            kept = there if isinstance(there, dict) else {}
            return Change(path, before, json_edits.with_member(text, keys, {**kept, **entry}).encode())

    def _server_place(self) -> tuple[Path, list[str]]:
        """Returns the file with the MCP servers, and the keys that lead to graphmem's in it."""
        if self.client == "codex":
            return self._file("config.toml"), ["mcp_servers", NAME]
        if self.client == "cursor":
            return self._file("mcp.json"), ["mcpServers", NAME]
        if self.client == "claude-code":
            if self.project is not None:
                return _real(self.project / ".mcp.json"), ["mcpServers", NAME]
            folder = os.environ.get("CLAUDE_CONFIG_DIR")
            return _real((Path(folder) if folder else Path.home()) / ".claude.json"), ["mcpServers", NAME]
        folder_path = self._folder() if self.project is None else self.project
        names = ("opencode.jsonc", "opencode.json")
        path = next((folder_path / name for name in names if (folder_path / name).exists()), folder_path / names[1])
        path = _real(path)
        with _reading(path):
            value = json_edits.value_of(_text(path)[0])
        servers = value.get("mcp", {}).get("servers") if isinstance(value, dict) and _is_object(value, "mcp") else None
        is_second = isinstance(servers, dict) and "type" not in servers  # the form of opencode 2
        return path, ["mcp", "servers", NAME] if is_second else ["mcp", NAME]

    # --- hooks ---

    def _with_hooks(self) -> Change:
        path = self._hooks_file()
        text, before = _text(path)
        with _reading(path):
            # Taken out and put in again only where something differs: the others keep their place.
            wanted = {event: self._hook(action) for event, action in HOOKS[self.client].items()}
            if self._hooks_of(text) != {event: [hook] for event, hook in wanted.items()}:
                text = self._without_hooks(text)
                if self.client == "cursor" and "version" not in json_edits.value_of(text):
                    text = json_edits.with_member(text, ["version"], 1)
                for event, hook in wanted.items():
                    text = json_edits.with_item(text, ["hooks", event], hook)
        return Change(path, before, text.encode())

    def _hook(self, action: str) -> dict[str, Any]:
        words = [*self.command, "hook", self.client, action]
        words += ["--home", self.options["--home"]] if "--home" in self.options else []
        line = subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
        if self.client == "cursor":
            return {"command": line, "timeout": HOOK_TIMEOUT}
        return {"hooks": [{"type": "command", "command": line, "timeout": HOOK_TIMEOUT}]}

    def _hooks_of(self, text: str) -> dict[str, list[Any]]:
        """Returns the entries in which graphmem is run by their events."""
        value = json_edits.value_of(text)
        events = value.get("hooks", {}) if isinstance(value, dict) else {}
        entries = events.items() if isinstance(events, dict) else ()
        own = {
            name: [one for one in listed if any(map(self._runs_hook, self._commands(one)))]
            for name, listed in entries
            if isinstance(listed, list)
        }
        return {name: listed for name, listed in own.items() if listed}

    def _without_hooks(self, text: str) -> str:
        for event in self._hooks_of(text):
            text = json_edits.without_items(text, ["hooks", event], self._is_own)
            entries = json_edits.value_of(text).get("hooks", {}).get(event, [])
            for place, entry in enumerate(entries):
                if any(map(self._runs_hook, self._commands(entry))):  # beside a hook of somebody else
                    text = json_edits.without_items(text, ["hooks", event, place, "hooks"], self._runs_hook)
        return text

    def _is_own(self, entry: object) -> bool:
        """Tells whether an entry of an event runs nothing but graphmem's hook."""
        commands = self._commands(entry)
        return bool(commands) and all(map(self._runs_hook, commands))

    def _commands(self, entry: object) -> list[object]:
        """Returns the hooks of an entry: a list in it or, of Cursor, itself."""
        commands = [entry] if self.client == "cursor" else entry.get("hooks") if isinstance(entry, dict) else None
        return commands if isinstance(commands, list) else []

    def _runs_hook(self, hook: object) -> bool:
        line = hook.get("command") if isinstance(hook, dict) else None
        return isinstance(line, str) and NAME in line and re.search(rf"\bhook {self.client} \w+", line) is not None

    def _hooks_file(self) -> Path:
        if self.client == "claude-code":
            return self._file("settings.json")
        return self._file("hooks.json")

    def _plugin(self) -> str:
        words = [*self.command, "hook", self.client]
        words += ["--home", self.options["--home"]] if "--home" in self.options else []
        # The action is the last word, so the folder stands before it.
        source = (files("graphmem.coding_agents") / "opencode_plugin.js").read_text("utf-8")
        return source.replace("__COMMAND__", json.dumps(words))

    # --- places ---

    def _folder(self) -> Path:
        """Returns the client's folder: of the user, where its variable names another one there, or of the project."""
        name = {"claude-code": ".claude", "codex": ".codex", "cursor": ".cursor", "opencode": ".opencode"}[self.client]
        if self.project is not None:
            return self.project / name
        if self.client == "opencode":
            return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode"
        variable = {"claude-code": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}.get(self.client)
        return Path(os.environ.get(variable or "") or Path.home() / name)

    def _file(self, *names: str) -> Path:
        return _real(self._folder().joinpath(*names))

    def _without_server(self, text: str) -> str:
        _, keys = self._server_place()
        if self.client == "codex":
            entry = toml_edits.value_of(text).get(keys[0], {}).get(NAME)
            return toml_edits.without_table(text, keys) if _runs_server(entry) else text
        entry = json_edits.value_of(text)
        for key in keys:
            entry = entry.get(key) if isinstance(entry, dict) else None
        return json_edits.without_member(text, keys) if _runs_server(entry) else text

    def _plugin_file(self) -> Path:
        return self._file("plugins", "graphmem.js")


# --- writing --------------------------------------------------------------------------------------------------------


@contextmanager
def installing(home: Path) -> Iterator[None]:
    """Makes a home folder, and waits for other installations in it: one would lose what the other has noted."""
    with _writing(home):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(home, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write(changes: Sequence[Change], home: Path) -> None:
    """Writes what an installation changes, each file completely or not at all, and keeps what was there.

    Raises StoreError for a file that cannot be written, or was changed in the meantime, such as by its client.
    """
    _refuse_changed(changes)
    for number, change in enumerate(changes):
        written = _written(home)
        record = written.get(str(change.path), {})
        is_untouched = change.before is not None and record.get("sha256") == sha256(change.before).hexdigest()
        with _writing(change.path, number):
            change.path.parent.mkdir(parents=True, exist_ok=True)
            if change.before is not None and not is_untouched:
                _replace(_backup(change.path), change.before, _mode(change.path))
            _replace(change.path, change.after or b"", _mode(change.path))
        created = change.before is None or (is_untouched and bool(record.get("created")))
        written[str(change.path)] = {"sha256": sha256(change.after or b"").hexdigest(), "created": created}
        _keep_settings(home, {"files": written})


def take_out(changes: Sequence[Change], home: Path) -> None:
    """Writes what an uninstallation changes; a file that is back as it was needs its copy no more.

    With the last client the settings of the hooks go, and turns that have not ended.
    """
    _refuse_changed(changes)
    for number, change in enumerate(changes):
        with _writing(change.path, number):
            if change.after is None:
                change.path.unlink()
            else:
                _replace(change.path, change.after, _mode(change.path))
            if change.after is None or _read(_backup(change.path)) == change.after:
                _backup(change.path).unlink(missing_ok=True)
        written = _written(home)
        if written.pop(str(change.path), None) is not None:
            _keep_settings(home, {"files": written})
    if connection(home).get("files") == {}:  # no client is left
        with _writing(home):
            (home / FILE_NAME).unlink()
            shutil.rmtree(home / PENDING_FOLDER, ignore_errors=True)


def keep_connection(home: Path, url: str | None, user_id: str | None, api_key: str | None) -> dict[str, Any]:
    """Writes which service the hooks of a home folder ask and for whom; None keeps what is there. Returns it all."""
    return _keep_settings(home, {"url": url, "user_id": user_id, "api_key": api_key})


def connection(home: Path) -> dict[str, Any]:
    """Returns the settings of the hooks of a home folder; {} without any. Raises ConfigError for unusable ones."""
    path = home / FILE_NAME
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({type(error).__name__}); delete it, and install again") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object; delete it, and install again")
    return value


def is_listening(url: str) -> bool:
    """Tells whether anything takes connections at the address of a service."""
    _, host, port, _ = address_of(url)
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def checked_url(url: str) -> str:
    """Returns the address of a service. Raises ConfigError for one that is none."""
    try:
        address_of(url)
        url.encode("ascii")
    except ValueError:
        raise ConfigError(f"--url is no address of a service; give one such as {DEFAULT_URL}") from None
    return url.rstrip("/")


def diff(change: Change) -> str:
    """Returns the lines that change, as `diff -u` shows them."""
    before, after = ((one or b"").decode("utf-8", "replace").splitlines() for one in (change.before, change.after))
    names = str(change.path), str(change.path) if change.after is not None else "(no file)"
    return "\n".join(difflib.unified_diff(before, after, *names, lineterm="", n=2))


def own_command() -> list[str]:
    """Returns the command that starts this graphmem, also from another folder and without the shell's PATH.

    `-P`: a module in the project where an agent works is not imported in place of ours.
    """
    script = Path(sys.argv[0])
    if script.name in {NAME, f"{NAME}.exe"} and script.is_file():
        return [str(script.absolute())]
    return [sys.executable, "-P", "-m", NAME]


def _keep_settings(home: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    settings = connection(home) | {key: value for key, value in values.items() if value is not None}
    with _writing(home / FILE_NAME):
        _replace(home / FILE_NAME, (json.dumps(settings, ensure_ascii=False, indent=2) + "\n").encode(), FILE_MODE)
    return settings


def _written(home: Path) -> dict[str, dict[str, Any]]:
    """Returns what installations have written, by paths: the digest of the content, and whether the file is ours."""
    record = connection(home).get("files")
    return dict(record) if isinstance(record, dict) else {}


def _refuse_changed(changes: Sequence[Change]) -> None:
    for change in changes:
        if _read(change.path) != change.before:
            raise StoreError(f"{change.path} was changed in the meantime; nothing was changed here: repeat the command")


def _replace(path: Path, content: bytes, mode: int) -> None:
    with replace_file(path) as write_bytes:
        write_bytes(content)
    path.chmod(mode)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return FILE_MODE


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def _real(path: Path) -> Path:
    """Returns the file behind links, which stay links."""
    return Path(os.path.realpath(path))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); nothing was changed") from None


def _text(path: Path) -> tuple[str, bytes | None]:
    content = _read(path)
    return _decoded(path, content or b""), content


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise StoreError(f"{path} is not UTF-8; nothing was changed: mend the file first") from None


class _reading:  # noqa: N801  (used as a statement)
    """Turns faults of a client's file into an error that names it and says that nothing was changed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, json_edits.JsonError | toml_edits.TomlError):
            raise StoreError(
                f"{self._path} cannot be used: {error}; nothing was changed: mend the file first"
            ) from None


class _writing:  # noqa: N801
    """Turns the system's errors about a file into ours."""

    def __init__(self, path: Path, changed_files: int = 0) -> None:
        self._path, self._changed_files = path, changed_files

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, OSError):
            state = "; other files are changed already" if self._changed_files else ""
            raise StoreError(
                f"{self._path} cannot be written ({error.strerror}){state}; mend that, and repeat the command"
            )


def _is_object(value: Mapping[str, Any], key: str) -> bool:
    return isinstance(value.get(key), dict)


def _runs_server(entry: object) -> bool:
    """Tells whether an entry among MCP servers starts `graphmem mcp`."""
    if not isinstance(entry, dict):
        return False
    command, arguments = entry.get("command"), entry.get("args", [])
    words = [
        *(command if isinstance(command, list) else [command]),
        *(arguments if isinstance(arguments, list) else []),
    ]
    return "mcp" in words and any(isinstance(word, str) and NAME in word for word in words)


def _refuse_foreign(path: Path, entry: object) -> None:
    if entry is not None and not _runs_server(entry):
        raise StoreError(f"{path} has an MCP server {NAME!r} that is another one; nothing was changed: rename it first")
