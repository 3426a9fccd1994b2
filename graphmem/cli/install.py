"""`graphmem install` and `uninstall`: the configuration of coding agents; and `hook`, which their hooks call."""

from __future__ import annotations

import getpass
import os
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphmem.cli.options import CommandContext, PathOption, unscoped_command
from graphmem.errors import ConfigError, install_extra

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphmem.coding_agents.installation import Change, Installation

Client = Annotated[
    Literal["claude-code", "codex", "cursor", "opencode"],
    typer.Argument(metavar="CLIENT", help="claude-code, codex, cursor or opencode."),
]
Project = Annotated[
    bool, typer.Option("--project", help="The configuration of the project in this folder, not the user's.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]


@unscoped_command
def install(
    call: CommandContext,
    client: Client,
    user: Annotated[
        str | None, typer.Option(metavar="ID", help="Whose memories these are.", show_default="your login")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The service that hooks ask.", show_default="http://127.0.0.1:8700"),
    ] = None,
    key_file: Annotated[
        Path | None,
        PathOption(
            metavar="FILE|-", help="A file with a key of the service, or - for standard input.", allow_dash=True
        ),
    ] = None,
    project: Project = False,  # noqa: FBT002
    dry_run: DryRun = False,  # noqa: FBT002
) -> None:
    """Gives a coding agent a memory: an MCP server, and hooks.

    It changes the client's own configuration, shows how, and keeps copies. Hooks recall at a prompt and store each turn
    through a running `graphmem serve`; nothing is started here.
    """
    from graphmem.boundary import validation  # noqa: PLC0415
    from graphmem.coding_agents import installation as writing  # noqa: PLC0415
    from graphmem.coding_agents.connection import DEFAULT_URL  # noqa: PLC0415

    wanted, home = _installation(call, client, project=project)
    api_key = None if key_file is None else _read_key(key_file)
    with nullcontext() if dry_run else writing.installing(home):
        before = writing.connection(home)
        known = before.get("user_id") or os.environ.get("GRAPHMEM_MCP__USER_ID") or getpass.getuser()
        user_id = str(validation.required_scope(known if user is None else user, None, None)[0].user_id)
        address = writing.checked_url((before.get("url") or DEFAULT_URL) if url is None else url)
        changes = wanted.installed(user_id)
        if not dry_run:
            writing.keep_connection(home, address, user_id, api_key)
            writing.write(changes, home)
    has_key = bool(api_key or before.get("api_key"))
    lines = [
        f"hooks ask {address} for the memories of {user_id}, {'with a' if has_key else 'without a'} key",
        *writing.NOTES[client],
    ]
    if not writing.is_listening(address):
        lines.append(f"nothing answers at {address}: hooks do nothing until 'graphmem serve' runs there")
    if find_spec("mcp") is None:
        lines.append(f"the MCP server cannot start yet: mcp is not installed; {install_extra('mcp')}")
    _report(call, changes, lines, is_plan=dry_run, done="installed", extra={"url": address, "user_id": user_id})


@unscoped_command
def uninstall(
    call: CommandContext,
    client: Client,
    project: Project = False,  # noqa: FBT002
    dry_run: DryRun = False,  # noqa: FBT002
) -> None:
    """Takes out of a coding agent what install wrote.

    A file that nobody has changed since is as it was before, to the byte. Memories stay.
    """
    from graphmem.coding_agents import installation as writing  # noqa: PLC0415

    wanted, home = _installation(call, client, project=project)
    with writing.installing(home) if home.is_dir() and not dry_run else nullcontext():
        changes = wanted.uninstalled()
        if not dry_run:
            writing.take_out(changes, home)
    _report(call, changes, [], is_plan=dry_run, done="uninstalled", extra={})


def _installation(call: CommandContext, client: str, *, project: bool) -> tuple[Installation, Path]:
    from graphmem.coding_agents.connection import home_folder  # noqa: PLC0415
    from graphmem.coding_agents.installation import Installation  # noqa: PLC0415

    home = Path(home_folder(None if call.home is None else str(call.home))).absolute()
    options = {} if home == Path(home_folder("~/.graphmem")).absolute() else {"--home": str(home)}
    if call.config is not None:
        options["--config"] = str(call.config.absolute())
    return Installation(client, home, Path.cwd() if project else None, options=options), home


def _read_key(file: Path) -> str:
    """Reads a key. Raises ConfigError, without any of the content."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"--key-file cannot be read: {file}") from None
    key = text.strip()
    if not key or not key.isascii() or len(key.split()) != 1:
        raise ConfigError("--key-file holds no key: one line is expected, as 'graphmem keys create' prints it")
    return key


def _report(
    call: CommandContext,
    changes: Sequence[Change],
    lines: Sequence[str],
    *,
    is_plan: bool,
    done: str,
    extra: dict[str, Any],
) -> None:
    from graphmem.cli.render import Renderer, escape_controls  # noqa: PLC0415
    from graphmem.coding_agents.installation import diff  # noqa: PLC0415

    def show(renderer: Renderer) -> None:
        for change in changes:
            renderer.plain(escape_controls(diff(change)))
        renderer.plain(f"nothing to change: {done} already" if not changes else f"{'not yet ' * is_plan}{done}")

    value = {"changes": [{"path": str(one.path), "diff": diff(one)} for one in changes], "dry_run": is_plan, **extra}
    call.print_answer(value, show)
    for line in lines:
        typer.echo(f"graphmem: {line}", err=True)


def hook(context: typer.Context) -> None:
    """Answers a coding agent's hook, as install has written it.

    JSON comes on standard input and goes to standard output.
    """  # `graphmem.__main__` runs it without this module, which takes long to import
    from graphmem.coding_agents.hook import main  # noqa: PLC0415

    main(context.args)
