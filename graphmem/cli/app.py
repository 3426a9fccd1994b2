"""The commands. What they answer goes to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from graphmem import __version__
from graphmem.cli import maintenance, search, transfer, write
from graphmem.cli.bench import bench
from graphmem.cli.graph.commands import graph
from graphmem.cli.migrate import migrate
from graphmem.cli.options import INTERRUPTED

app = typer.Typer(
    help="Memory for agents: a vector index and an entity-relation graph over one durable ledger.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """The program: `graphmem` and `python -m graphmem`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what a terminal's encoding has no letter for is shown by its number
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="graphmem")
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(INTERRUPTED)
    finally:
        _let_go()


def _let_go() -> None:
    """A reader that has gone (`| head`) is no error; Python would complain about it once more at its own end."""
    if sys.stdout is None:  # closed by the caller
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"graphmem: cannot write to standard output: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(1)


def _version(asked: bool) -> None:  # noqa: FBT001  (typer's form)
    if asked:
        typer.echo(f"graphmem {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Tell the version.")] = False,  # noqa: FBT002
) -> None:
    pass


for _one in (
    write.demo,
    write.add,
    search.search,
    search.context,
    search.list_,
    search.show,
    search.history,
    search.explain,
    write.update,
    write.undo,
    write.delete,
    graph,
    transfer.export,
    transfer.import_,
    maintenance.verify,
    maintenance.repair,
    maintenance.rebuild,
    maintenance.retry_failed,
    maintenance.stats,
):
    app.command(_one.__name__.rstrip("_").replace("_", "-"))(_one)
app.add_typer(bench, name="bench")
app.add_typer(migrate, name="migrate")
