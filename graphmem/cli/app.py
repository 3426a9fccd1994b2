"""The command line `graphmem`: all commands. Answers go to standard output, warnings and errors to standard error."""

from __future__ import annotations

import errno
import gc
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

from graphmem import __version__
from graphmem.cli import maintenance, search, transfer, write
from graphmem.cli.bench import bench
from graphmem.cli.graph import graph
from graphmem.cli.imports import imports
from graphmem.cli.install import hook, install, uninstall
from graphmem.cli.keys import keys
from graphmem.cli.lifecycle import lifecycle
from graphmem.cli.options import FAILED, INTERRUPTED
from graphmem.cli.serve import mcp, serve, worker
from graphmem.cli.transfer import migrate

# Objects that are made before the garbage collector looks for unused ones among the newest. A command makes some
# 140,000 that stay: by Python's own threshold all of them would be looked through again and again.
GARBAGE_THRESHOLD = 200_000
# The errors of a command that writes its answer where there is no room. They name no file, as those of opened files do;
# what else commands write is a StoreError if it fails.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

app = typer.Typer(
    help="Memory for agents: a vector index and an entity-relation graph over one durable ledger.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Runs the command that the arguments of the process name; the entry point of `graphmem`."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    # Encoders and searches multiply on one thread each; starting the others takes a tenth of a second.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for pydantic's plugins reads the metadata of every installed package; "" has them looked for all the same.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # shows characters outside the terminal's encoding as \uXXXX
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="graphmem")
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        _exit_unwritable(error)
    finally:
        _flush_stdout()
        # Python would look through all of a command's objects several times before it frees them: .2 s of CPU.
        gc.freeze()


def _flush_stdout() -> None:
    """Flushes standard output, ignoring a reader that closed the pipe (`| head`).

    Standard output then becomes the null device, or Python would report the broken pipe once more at exit.
    """
    if sys.stdout is None:  # closed by the caller
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _exit_unwritable(error)


def _exit_unwritable(error: OSError) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):  # standard error may be the same file
        print(f"graphmem: cannot write to standard output: {error.strerror}", file=sys.stderr)  # noqa: T201
    sys.exit(FAILED)


def _print_version(requested: bool) -> None:  # noqa: FBT001  (the signature that typer expects)
    if requested:
        typer.echo(f"graphmem {__version__}")
        raise typer.Exit


_Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


@app.callback()
def _root(_: _Version = False) -> None:  # noqa: FBT002
    pass


for _command in (
    write.demo,
    write.add,
    search.search,
    search.why_not,
    search.context,
    search.profile,
    search.list_,
    search.show,
    search.history,
    search.explain,
    search.judge,
    search.judgements,
    write.update,
    write.undo,
    write.forget,
    write.pin,
    write.delete,
    graph,
    transfer.backup,
    transfer.export,
    maintenance.verify,
    maintenance.repair,
    maintenance.rebuild,
    maintenance.retry_failed,
    maintenance.stats,
    mcp,
    serve,
    worker,
    install,
    uninstall,
):
    app.command(_command.__name__.rstrip("_").replace("_", "-"))(_command)
# It takes whatever it is given: a usage error would be status 2, by which agents block prompts.
_ANY_WORDS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
app.command("hook", hidden=True, context_settings=_ANY_WORDS)(hook)
app.add_typer(imports, name="import")
app.add_typer(bench, name="bench")
app.add_typer(keys, name="keys")
app.add_typer(lifecycle, name="lifecycle")
app.add_typer(migrate, name="migrate")
