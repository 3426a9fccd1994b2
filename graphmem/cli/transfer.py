"""Commands that write memories to a file and read them from one: backup, export and import."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from graphmem.cli.options import CommandContext, command, unscoped_command

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer

# The file name for standard input or output.
STANDARD_STREAM = "-"


@unscoped_command
def backup(
    call: CommandContext,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The file to write, or - for standard output.")],
) -> None:
    """Writes a copy of an SQLite ledger, also one in use.

    It has all that was committed when the command began, and is readable by you only. The ledger's secret.key is not in
    it: keep that apart. For a ledger on PostgreSQL use pg_dump.
    """
    from graphmem.transfer.backup import back_up  # noqa: PLC0415

    if file == STANDARD_STREAM:
        back_up(call.settings(), sys.stdout.buffer)
        return
    size = back_up(call.settings(), Path(file))
    call.print_answer({"path": file, "bytes": size}, lambda renderer: renderer.line(f"{size:,} bytes: {file}"))


@command
def export(
    call: CommandContext,
    path_or_file: Annotated[str, typer.Argument(metavar="FILE|-", help="The file to write, or - for standard output.")],
) -> None:
    """Writes all memories, or those of a scope, to a file.

    They keep ids, times, history, links, entities and vectors. All memories come with the settings and keys of the
    service, these without secrets. The file is readable by you only.
    """
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415

    target: str | IO[bytes] = sys.stdout.buffer if path_or_file == STANDARD_STREAM else path_or_file
    replaces = path_or_file != STANDARD_STREAM and os.path.exists(path_or_file)  # noqa: PTH110  (Path.exists raises for a name that is too long)
    with call.memory() as memory, ProgressBar() as bar:
        counts = memory.export(target, **call.scope, progress=bar.update)
    if not counts["memories"]:
        _warn_empty_export(call, replaces=replaces)
    summary = f"{counts['memories']} memories, {counts['erased']} erased ones noted"
    if path_or_file == STANDARD_STREAM:
        typer.echo(f"graphmem: {summary}", err=True)
    else:
        call.print_answer(counts, lambda renderer: renderer.line(f"{summary}: {path_or_file}"))


def _warn_empty_export(call: CommandContext, *, replaces: bool) -> None:
    """Warns of an export without memories: a misspelt user would be noticed only when the export is needed."""
    from graphmem.cli.render import one_line  # noqa: PLC0415

    scope = ", ".join(f"--{name.removesuffix('_id')} {value}" for name, value in call.scope.items())
    replaced = "; the file that was there is replaced" if replaces else ""
    typer.echo(
        f"graphmem: there are no memories{' of ' if scope else ''}{one_line(scope)} to export{replaced}", err=True
    )


@unscoped_command
def import_(
    call: CommandContext,
    path_or_file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A file that export wrote, or - for standard input.")
    ],
    restore: Annotated[bool, typer.Option("--restore", help="Import memories that were erased here, too.")] = False,  # noqa: FBT002
) -> None:
    """Imports all memories of a file that export wrote.

    Memories that exist here stay as they are, so an import can be repeated. It takes the memories of all scopes in the
    file; for those of one, give --user, --agent or --run to export.
    """
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415

    source: str | IO[bytes] = sys.stdin.buffer if path_or_file == STANDARD_STREAM else path_or_file
    with call.memory(may_create=True) as memory, ProgressBar() as bar:
        counts = memory.import_(source, restore=restore, progress=bar.update)
    call.print_answer(counts, lambda renderer: _print_imported(renderer, counts))


def _print_imported(renderer: Renderer, counts: Mapping[str, Any]) -> None:
    parts = [f"{counts['added']} added"]
    parts += [f"{counts['known']} known already"] if counts["known"] else []
    parts += [f"{counts['erased']} erased here before, not brought back without --restore"] if counts["erased"] else []
    parts += [f"{counts['tombstones']} erased there, noted"] if counts["tombstones"] else []
    parts += [f"{counts['skipped_links']} links to memories that are not here"] if counts["skipped_links"] else []
    parts += [f"{counts['settings']} settings restored"] if counts["settings"] else []
    parts += [f"{counts['keys']} keys to be made anew (graphmem keys create)"] if counts["keys"] else []
    parts += [f"{counts['unenriched']} still without vectors and entities"] if counts["unenriched"] else []
    parts += [f"not yet in {' and '.join(counts['pending'])}"] if counts.get("pending") else []
    renderer.line("; ".join(parts))
