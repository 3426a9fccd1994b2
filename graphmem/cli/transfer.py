"""Commands that write memories to a file and take them in again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from graphmem.cli.options import CommandContext, command

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer

STANDARD = "-"


@command
def export(
    call: CommandContext,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Where to write it, or - for standard output.")],
) -> None:
    """Writes the memories of a scope, or without one everything, to a file that import takes in again.

    With ids, times, history, links, entities and vectors. The file is readable by you only.
    """
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415

    target: str | IO[bytes] = sys.stdout.buffer if file == STANDARD else file
    replaces = file != STANDARD and os.path.exists(file)  # noqa: PTH110  (a name too long is there no more than others)
    with call.memory() as memory, ProgressBar() as bar:
        done = memory.export(target, **call.scope, progress=bar.update)
    if not done["memories"]:
        _warn_of_nothing(call, replaces=replaces)
    told = f"{done['memories']} memories, {done['erased']} erased ones noted"
    if file == STANDARD:
        typer.echo(f"graphmem: {told}", err=True)
    else:
        call.print_answer(done, lambda renderer: renderer.line(f"{told}: {file}"))


def _warn_of_nothing(call: CommandContext, *, replaces: bool) -> None:
    """A misspelt user is found out too late, when the export is needed."""
    from graphmem.cli.render import one_line  # noqa: PLC0415

    whose = ", ".join(f"--{name.removesuffix('_id')} {value}" for name, value in call.scope.items())
    lost = "; the file that was there is replaced" if replaces else ""
    typer.echo(f"graphmem: there are no memories{' of ' if whose else ''}{one_line(whose)} to export{lost}", err=True)


@command
def import_(
    call: CommandContext,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What export wrote, or - for standard input.")],
    restore: Annotated[bool, typer.Option("--restore", help="Bring back what was erased here.")] = False,  # noqa: FBT002
) -> None:
    """Takes in what export has written. What is here already stays as it is, so it can be repeated.

    All of the file: --user, --agent and --run belong to export.
    """
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415

    if call.scope:  # to take everybody's memories for one user's is not to be done in silence
        raise typer.BadParameter(
            "import takes all that is in the file, whosever it is; to take one scope's, give the option to export"
        )
    source: str | IO[bytes] = sys.stdin.buffer if file == STANDARD else file
    with call.memory() as memory, ProgressBar() as bar:
        done = memory.import_(source, restore=restore, progress=bar.update)
    call.print_answer(done, lambda renderer: _tell_imported(renderer, done))


def _tell_imported(renderer: Renderer, done: Mapping[str, Any]) -> None:
    told = [f"{done['added']} added"]
    told += [f"{done['known']} known already"] if done["known"] else []
    told += [f"{done['erased']} erased here before, not brought back without --restore"] if done["erased"] else []
    told += [f"{done['tombstones']} erased there, noted"] if done["tombstones"] else []
    told += [f"{done['skipped_links']} links to memories that are not here"] if done["skipped_links"] else []
    told += [f"{done['unenriched']} still without vectors and entities"] if done["unenriched"] else []
    told += [f"not yet in {' and '.join(done['pending'])}"] if done.get("pending") else []
    renderer.line("; ".join(told))
