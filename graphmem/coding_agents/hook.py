"""`graphmem hook CLIENT recall|answer|store`: what the hooks of coding agents call, with JSON on standard input.

At a prompt it prints memories in the form that the client puts before its model; at the end of a turn it stores the
turn. It never breaks the agent: whatever fails is one line on standard error, nothing on standard output, and status 0
(Claude Code and Cursor take 2 as a reason to block). It imports no other part of graphmem that takes long.
"""

from __future__ import annotations

import json
import os
import re
import sys

from graphmem.coding_agents.connection import HookError, home_folder, post, read_settings
from graphmem.coding_agents.turns import (
    MAX_CHARS,
    Turn,
    answer_turn,
    begin_turn,
    claude_turn,
    end_turn,
    pending_turn,
    spoken,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

CLIENTS = "claude-code", "codex", "cursor", "opencode"
ACTIONS = "recall", "answer", "store"
# Seconds after which an agent goes on without memories, and without storing, unless hooks.json says otherwise.
RECALL_SECONDS, STORE_SECONDS = 0.5, 5.0
MAX_INPUT_BYTES = 8 << 20
# The most characters of a prompt that are searched with, half of them from its end.
MAX_QUERY_CHARS = 4000
MAX_ID_CHARS = 256


def main(arguments: Sequence[str]) -> None:
    """Runs a hook. Returns normally whatever happens."""
    try:
        _run(arguments)
    except HookError as error:
        _tell(str(error))
    except OSError as error:
        _tell(f"{error.filename or 'a file'} cannot be used ({error.strerror or type(error).__name__})")
    except Exception as error:  # noqa: BLE001  (an agent must not stop for its memory)
        _tell(f"the hook failed ({type(error).__name__})")


def _tell(line: str) -> None:
    try:
        print("graphmem:", " ".join(line.split()), file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError, AttributeError):  # standard error is closed
        pass


def _run(arguments: Sequence[str]) -> None:
    client, action, home = _parsed(arguments)
    data = _read_input()
    if action == "recall":
        _recall(client, data, home)
    elif action == "answer":
        answer_turn(home, _session(client, data), data.get("text"))
    else:
        _store(client, data, home)


def _parsed(arguments: Sequence[str]) -> tuple[str, str, str]:
    rest = list(arguments)
    home = None
    if "--home" in rest[:-1]:
        place = rest.index("--home")
        home = rest[place + 1]
        del rest[place : place + 2]
    if len(rest) != 2 or rest[0] not in CLIENTS or rest[1] not in ACTIONS:  # noqa: PLR2004
        raise HookError(f"usage: graphmem hook {'|'.join(CLIENTS)} {'|'.join(ACTIONS)} [--home DIR]")
    return rest[0], rest[1], home_folder(home)


def _read_input() -> dict[str, Any]:
    content = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if len(content) > MAX_INPUT_BYTES:
        raise HookError(f"standard input has more than {MAX_INPUT_BYTES >> 20} MiB; nothing is done with it")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise HookError("standard input is no JSON object of a hook")
    return data


# --- recall and store -----------------------------------------------------------------------------------------------


def _recall(client: str, data: dict[str, Any], home: str) -> None:
    prompt = spoken(data.get("prompt"))
    keeps = client in {"codex", "cursor"}
    if prompt:
        try:
            block = _recalled(prompt, _project(client, data), read_settings(home))
            if block:
                print(json.dumps(_with_context(client, block)), flush=True)  # noqa: T201
        finally:
            if keeps:
                begin_turn(home, _session(client, data), _turn_key(client, data), prompt)
    elif keeps:
        end_turn(home, _session(client, data))


def _recalled(prompt: str, project: str, settings: dict[str, Any]) -> str:
    from graphmem.coding_agents.secrets import without_secrets  # noqa: PLC0415  (compiled only where it is needed)

    if len(prompt) > 2 * MAX_CHARS:
        prompt = f"{prompt[:MAX_CHARS]}\n{prompt[-MAX_CHARS:]}"
    query = without_secrets(prompt)
    if len(query) > MAX_QUERY_CHARS:
        query = f"{query[: MAX_QUERY_CHARS // 2]}\n{query[-MAX_QUERY_CHARS // 2 :]}"
    # Memories of this project, and those of the person that belong to none.
    filters = {"OR": [{"project": project}, {"NOT": [{"project": "*"}]}]}
    body = {"user_id": settings["user_id"], "query": query, "filters": filters}
    block = post(settings, "/context", body, _seconds(settings, "recall_seconds", RECALL_SECONDS)).get("context")
    return block if isinstance(block, str) else ""


def _seconds(settings: dict[str, Any], name: str, default: float) -> float:
    value = settings.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else default


def _with_context(client: str, block: str) -> dict[str, Any]:
    if client == "cursor":
        return {"continue": True, "additional_context": block}
    if client == "opencode":
        return {"context": block}
    return {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": block}}


def _store(client: str, data: dict[str, Any], home: str) -> None:
    turn = _turn(client, data, home)
    messages = [] if turn is None else turn.messages(client)
    if messages:
        project, settings = _project(client, data), read_settings(home)
        metadata = {"project": project, "client": client, "session": _session(client, data)[:MAX_ID_CHARS]}
        ids = {"user_id": settings["user_id"], "agent_id": project}
        body = {**ids, "metadata": metadata, "messages": messages}
        post(settings, "/memories?wait=false", body, _seconds(settings, "store_seconds", STORE_SECONDS))
    if client in {"codex", "cursor"} and str(data.get("hook_event_name", "")).lower() != "precompact":
        end_turn(home, _session(client, data))


def _turn(client: str, data: dict[str, Any], home: str) -> Turn | None:
    if client == "claude-code":
        path = data.get("transcript_path")
        if not isinstance(path, str):
            raise HookError("the hook's input has no transcript_path")
        try:
            return claude_turn(os.path.expanduser(path), data.get("last_assistant_message"))
        except OSError as error:
            raise HookError(f"the transcript cannot be read ({type(error).__name__})") from None
    if client == "opencode":
        times = (data.get("prompt_at"), data.get("answer_at"))
        prompt_at, answer_at = (one if isinstance(one, str) else None for one in times)
        return Turn(
            str(data.get("key")), str(data.get("prompt", "")), str(data.get("answer", "")), prompt_at, answer_at
        )
    return pending_turn(home, _session(client, data), data.get("last_assistant_message"))


# --- whose turn it is -----------------------------------------------------------------------------------------------


def _session(client: str, data: dict[str, Any]) -> str:
    return str(data.get("conversation_id" if client == "cursor" else "session_id", ""))


def _turn_key(client: str, data: dict[str, Any]) -> str:
    return str(data.get("generation_id" if client == "cursor" else "turn_id", "")) or os.urandom(8).hex()


def _project(client: str, data: dict[str, Any]) -> str:
    """Returns the id of the project in which an agent works: the folder of its repository, or that of the session."""
    folder = data.get("cwd")
    if client == "claude-code":
        folder = os.environ.get("CLAUDE_PROJECT_DIR") or folder
    elif client == "cursor":
        roots = data.get("workspace_roots")
        folder = roots[0] if isinstance(roots, list) and roots else os.environ.get("CURSOR_PROJECT_DIR") or folder
    return project_id(folder if isinstance(folder, str) and folder else os.getcwd())


def project_id(folder: str) -> str:
    """Returns the path of the repository around a folder, else of the folder; that of the home folder is "~".

    A worktree belongs to its repository. A path that is too long for an id keeps its end.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    try:
        start = path = os.path.realpath(folder)
    except ValueError:  # characters that no path has
        start = path = folder
    root = None
    while root is None and path != home:
        root = _repository(path)
        parent = os.path.dirname(path)
        if parent == path:
            break
        path = parent
    found = root or start
    if found == home or found.startswith(home.rstrip(os.sep) + os.sep):
        found = "~" + found[len(home) :]
    # An id is text without control characters.
    found = re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", found.encode("utf-8", "replace").decode()).strip()
    return found if len(found) <= MAX_ID_CHARS else "…" + found[1 - MAX_ID_CHARS :]


def _repository(folder: str) -> str | None:
    """Returns the folder of the repository whose files are in this folder; None if it is no root of one."""
    git = os.path.join(folder, ".git")
    if os.path.isdir(git):
        return folder
    try:
        with open(git, encoding="utf-8") as file:
            linked = file.read(4096).strip().removeprefix("gitdir:").strip()
    except (OSError, ValueError):
        return None
    repository, marker, _ = linked.replace("\\", "/").partition("/.git/worktrees/")
    return os.path.realpath(repository) if marker else folder
