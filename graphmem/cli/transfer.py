"""Commands that bring memories out of a ledger, backup and export, and into one from other systems: `migrate`.

Heavy imports wait until a command runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from graphmem.boundary import validation
from graphmem.cli.options import CommandContext, command, unscoped_command
from graphmem.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from graphmem.cli.render import Renderer
    from graphmem.memory import Memory
    from graphmem.transfer.sources.skipped_records import Record, SkippedRecords

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
        from graphmem.cli.render import one_line  # noqa: PLC0415

        # A misspelt user would be noticed only when the export is needed.
        scope = ", ".join(f"--{name.removesuffix('_id')} {value}" for name, value in call.scope.items())
        replaced = "; the file that was there is replaced" if replaces else ""
        typer.echo(
            f"graphmem: there are no memories{' of ' if scope else ''}{one_line(scope)} to export{replaced}", err=True
        )
    summary = f"{counts['memories']} memories, {counts['erased']} erased ones noted"
    if path_or_file == STANDARD_STREAM:
        typer.echo(f"graphmem: {summary}", err=True)
    else:
        call.print_answer(counts, lambda renderer: renderer.line(f"{summary}: {path_or_file}"))


# Skipped records that are named for each reason; --json lists all of them.
MAX_IDS_SHOWN = 5

migrate = typer.Typer(
    help="Imports memories from another system, which is not changed. Repeating a command adds only new memories.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@command
def mem0(
    call: CommandContext,
    qdrant: Annotated[
        str, typer.Option(metavar="URL|PATH", help="mem0's Qdrant: a server, or the folder of its local mode.")
    ],
    history: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="mem0's history database; without it no histories."),
    ] = None,
    collection: Annotated[str, typer.Option(metavar="NAME", help="mem0's collection.")] = "mem0",
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", envvar="QDRANT_API_KEY", help="The API key of the Qdrant server.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="The time of memories that have none in mem0.")
    ] = None,
) -> None:
    """Imports mem0's memories (1.x and 2.x) with their histories.

    They keep ids, times and metadata.
    --user, --agent and --run import only memories with these ids; memories without any id get them.
    """
    from graphmem.transfer.sources import mem0_stores  # noqa: PLC0415
    from graphmem.transfer.sources.mem0 import Mem0Source  # noqa: PLC0415

    scope, zone = validation.scope(**call.scope)[0], call.settings().zone
    at = None if timestamp is None else validation.moment(timestamp, "--timestamp", zone)
    with (
        mem0_stores.open_history(history) as past,
        mem0_stores.open_collection(qdrant, collection, api_key) as points,
    ):
        source = Mem0Source(points, past, scope, at, zone)
        total = source.survey()
        with call.memory(may_create=True) as memory:
            report = import_records(memory, source.records(), total)
            report |= {"others": source.other_scopes}
            _print_report(call, memory, report, source.skipped)


@command
def jsonl(
    call: CommandContext,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A memory file of an MCP server, or messages.")],
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The time of messages without one.", show_default="the file's date"),
    ] = None,
) -> None:
    """Imports a memory file of an MCP server, or the messages of a program.

    The MCP server is `server-memory`; messages have role and content, as JSON Lines or JSON. What ChatGPT, Claude,
    Claude Code or WhatsApp wrote is imported by `graphmem import`. Lines that cannot be imported are reported and
    skipped; the exit status is 1 then.
    """
    from graphmem.transfer import other_files  # noqa: PLC0415
    from graphmem.transfer.sources import mcp_memory  # noqa: PLC0415

    scope = validation.required_scope(**call.scope)[0]
    text, modified_at = _read(path)
    if other_files.program_of_text(text) == "whatsapp":
        raise ValidationError(f"{path}: {other_files.import_advice('whatsapp')}")
    at = modified_at if timestamp is None else validation.moment(timestamp, "--timestamp", call.settings().zone)
    if not mcp_memory.is_graph(text):
        _add_chat(call, path, text, at)
        return
    source = mcp_memory.McpMemoryFile(text, scope, at)
    records = list(source.records())
    with call.memory(may_create=True) as memory:
        report = import_records(memory, records, len(records))
        _print_report(call, memory, report, source.skipped)
    fail_if_any(source.skipped)


def _read(path: Path) -> tuple[str, datetime]:
    """Returns a file's text and the time of its last modification."""
    from graphmem.transfer.sources.message_files import decode  # noqa: PLC0415

    try:
        raw, modified_at = path.read_bytes(), datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError as error:
        raise ValidationError(f"{path}: cannot be read ({error.strerror}); give a readable file") from None
    return decode(str(path), raw), modified_at


def _add_chat(call: CommandContext, path: Path, text: str, at: datetime) -> None:
    from graphmem.cli.bulk_add import add_all  # noqa: PLC0415
    from graphmem.cli.write import show_added  # noqa: PLC0415
    from graphmem.transfer.sources import chat, skipped_records  # noqa: PLC0415

    def show(renderer: Renderer) -> None:
        show_added(renderer, result, len(messages))
        print_skipped(renderer, skipped)

    skipped = skipped_records.SkippedRecords()
    with call.memory(may_create=True) as memory:
        messages = chat.messages(path, text, memory.limits, skipped)
        result = add_all(memory, str(path), messages, {**call.scope, "timestamp": at}, wait=True)
        call.print_answer({**result, "left": skipped.by_reason}, show)
    fail_if_any(skipped)


def fail_if_any(skipped: SkippedRecords) -> None:
    """Exits with status 1 if records were skipped: nothing of a file that a person wrote may be lost unnoticed."""
    if skipped.by_reason:
        raise typer.Exit(1)


def import_records(memory: Memory, records: Iterable[Record], total: int) -> dict[str, Any]:
    """Imports records with a progress bar; returns the result of `Memory.import_`."""
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415

    with ProgressBar() as bar:
        return {**memory.import_(with_progress(records, lambda done: bar.update("memories", done, total)))}


def with_progress(records: Iterable[Record], progress: Callable[[int], None]) -> Iterator[Record]:
    """Yields records; calls `progress` with their number after each."""
    for number, record in enumerate(records, 1):
        yield record
        progress(number)


def _print_report(call: CommandContext, memory: Memory, report: Mapping[str, Any], skipped: SkippedRecords) -> None:
    answer = {**report, "left": skipped.by_reason, "embedder": memory.stats()["embedder"]}

    labels = {
        "added": f"added, embedded by {answer['embedder']}",
        "known": "known already",
        "erased": "erased here before, not added again",
        "tombstones": "deleted there: their history, without words",
        "others": "of others",
        "unenriched": "still to be embedded",
    }
    parts = [f"{answer[name]} {label}" for name, label in labels.items() if answer.get(name) or name == "added"]
    parts += [f"not yet in {' and '.join(answer['pending'])}"] if answer.get("pending") else []

    def show(renderer: Renderer) -> None:
        renderer.line("; ".join(parts))
        print_skipped(renderer, skipped)

    call.print_answer(answer, show)


def print_skipped(renderer: Renderer, skipped: SkippedRecords) -> None:
    """Prints why records were skipped, and the first of them for each reason."""
    for reason, ids in skipped.by_reason.items():
        more = f" and {len(ids) - MAX_IDS_SHOWN} more" if len(ids) > MAX_IDS_SHOWN else ""
        renderer.line(
            (f"{len(ids)} not taken: ", "yellow"), f"{reason} ({', '.join(ids[:MAX_IDS_SHOWN])}{more})", hang=2
        )


for _command in (mem0, jsonl):
    migrate.command(_command.__name__)(_command)
