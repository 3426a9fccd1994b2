"""`graphmem migrate`: takes over what another memory holds. Heavy imports wait until a command runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmem.boundary import validation
from graphmem.cli.options import CommandContext, command
from graphmem.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from graphmem.cli.render import Renderer
    from graphmem.memory import Memory
    from graphmem.transfer.sources.records import Record, SkippedRecords

# Of what was not taken so many are named for each reason; --json has them all.
MAX_IDS_SHOWN = 5

migrate = typer.Typer(
    help="Takes over what another memory holds. Nothing there is changed, and a second time adds what is new.",
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
        Path | None, typer.Option(metavar="FILE", help="mem0's history database; without it there are no histories.")
    ] = None,
    collection: Annotated[str, typer.Option(metavar="NAME", help="mem0's collection.")] = "mem0",
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", envvar="QDRANT_API_KEY", help="The server's, if it has one.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it was said, where mem0 does not tell.")
    ] = None,
) -> None:
    """Takes over mem0's memories (1.x and 2.x), with their ids, times, metadata and histories.

    --user, --agent and --run take only what carries them, and say whose that is which carries none at all.
    """
    from graphmem.transfer.sources import mem0_collection  # noqa: PLC0415
    from graphmem.transfer.sources import mem0_history as histories  # noqa: PLC0415
    from graphmem.transfer.sources.mem0 import Mem0Source  # noqa: PLC0415

    at = None if timestamp is None else validation.moment(timestamp, "--timestamp")
    with histories.open_history(history) as past, mem0_collection.open_collection(qdrant, collection, api_key) as found:
        source = Mem0Source(found, past, validation.scope(**call.scope)[0], at)
        total = source.survey()
        with call.memory() as memory:
            report = _take(memory, source.records(), total)
            report |= {"others": source.other_scopes}
            _answer(call, memory, report, source.skipped)


@command
def jsonl(
    call: CommandContext,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A memory file of an MCP server, or a chat.")],
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When it was said, where the file does not tell.", show_default="its date"),
    ] = None,
) -> None:
    """Takes over a file of the MCP server `server-memory`, or a chat export: JSON Lines or JSON of messages.

    Lines that are no good are named, and all others taken; then the exit status is 1.
    """
    from graphmem.transfer.sources import mcp_memory  # noqa: PLC0415

    whose = validation.required_scope(**call.scope)[0]
    text, changed = _read(path)
    at = changed if timestamp is None else validation.moment(timestamp, "--timestamp")
    if not mcp_memory.is_graph(text):
        _remember(call, path, text, at)
        return
    source = mcp_memory.McpMemoryFile(text, whose, at)
    records = list(source.records())
    with call.memory() as memory:
        report = _take(memory, records, len(records))
        _answer(call, memory, report, source.skipped)
    _fail_if_any(source.skipped)


def _read(path: Path) -> tuple[str, datetime]:
    """A file's text and when it was changed last."""
    try:
        return path.read_text("utf-8-sig"), datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError as error:
        raise ValidationError(f"{path}: cannot be read ({error.strerror}); give a readable file") from None
    except UnicodeDecodeError:
        raise ValidationError(f"{path}: is not UTF-8; convert it, e.g. with iconv") from None


def _remember(call: CommandContext, path: Path, text: str, at: datetime) -> None:
    from graphmem.cli.bulk_add import add_all  # noqa: PLC0415
    from graphmem.cli.write import show_added  # noqa: PLC0415
    from graphmem.transfer.sources import chat, records  # noqa: PLC0415

    def show(renderer: Renderer) -> None:
        show_added(renderer, result, len(messages))
        _tell_left(renderer, told)

    left = records.SkippedRecords()
    with call.memory() as memory:
        messages = chat.messages(path, text, memory.limits, left)
        result = add_all(memory, str(path), messages, {**call.scope, "timestamp": at}, wait=True)
        told = {**result, "left": left.by_reason}
        call.print_answer(told, show)
    _fail_if_any(left)


def _fail_if_any(left: SkippedRecords) -> None:
    """Of a file that somebody wrote, nothing is to be left out unnoticed."""
    if left.by_reason:
        raise typer.Exit(1)


def _take(memory: Memory, records: Iterable[Record], total: int) -> dict[str, Any]:
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415

    with ProgressBar() as bar:
        return {**memory.import_(_counted(records, lambda done: bar.update("memories", done, total)))}


def _counted(records: Iterable[Record], tell: Callable[[int], None]) -> Iterator[Record]:
    for number, record in enumerate(records, 1):
        yield record
        tell(number)


def _answer(call: CommandContext, memory: Memory, report: Mapping[str, Any], left: SkippedRecords) -> None:
    told = {**report, "left": left.by_reason, "embedder": memory.stats()["embedder"]}
    call.print_answer(told, lambda renderer: _tell(renderer, told))


def _tell(renderer: Renderer, told: Mapping[str, Any]) -> None:
    words = {
        "added": f"added, embedded by {told['embedder']}",
        "known": "known already",
        "erased": "erased here before, not added again",
        "tombstones": "deleted there: their history, without words",
        "others": "of others",
        "unenriched": "still to be embedded",
    }
    counts = [f"{told[name]} {what}" for name, what in words.items() if told.get(name) or name == "added"]
    counts += [f"not yet in {' and '.join(told['pending'])}"] if told.get("pending") else []
    renderer.line("; ".join(counts))
    _tell_left(renderer, told)


def _tell_left(renderer: Renderer, told: Mapping[str, Any]) -> None:
    for reason, ids in told["left"].items():
        more = f" and {len(ids) - MAX_IDS_SHOWN} more" if len(ids) > MAX_IDS_SHOWN else ""
        renderer.line(
            (f"{len(ids)} not taken: ", "yellow"), f"{reason} ({', '.join(ids[:MAX_IDS_SHOWN])}{more})", hang=2
        )


for _one in (mem0, jsonl):
    migrate.command(_one.__name__)(_one)
