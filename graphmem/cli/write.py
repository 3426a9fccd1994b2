"""Commands that remember, correct and erase. Heavy imports wait until a command runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmem.cli.options import CommandContext, Id, Metadata, command, error_exit, json_object
from graphmem.transfer.sources.message_files import InputFormat

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer


@command
def demo(call: CommandContext) -> None:
    """A conversation is remembered, and questions are answered across it. With --home it stays there to explore."""
    from graphmem.cli.demo import run_demo  # noqa: PLC0415

    run_demo(call)


@command
def add(
    call: CommandContext,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT|-", help="Words, as they are, or - for those on standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Words and messages from a file instead.")] = None,
    form: Annotated[
        InputFormat | None,
        typer.Option("--format", help="What is given.", show_default="a file: as it looks; standard input: text"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Who said it, where the words do not tell.")] = None,
    role: Annotated[str, typer.Option(help="user, assistant or tool, where the words do not tell.")] = "user",
    timestamp: Annotated[str | None, typer.Option(metavar="TIME", help="When it was said, ISO 8601.")] = None,
    metadata: Metadata = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Answer before vectors and graph are made.")] = False,  # noqa: FBT002
    as_spoken: Annotated[bool, typer.Option("--as-spoken", help="Ask no language model for facts.")] = False,  # noqa: FBT002
) -> None:
    """Remembers words or, where a language model is configured, the facts in them.

    TEXT is one memory, even where it names a file: only --file opens one. Of standard input each paragraph becomes
    a memory. A file is messages (JSON or JSON Lines, by its ending or its beginning), a transcript ("Name: words" on
    most lines, somebody speaking at least twice), or text; --format says which, also of TEXT and standard input.
    """
    from graphmem.cli.bulk_add import add_all  # noqa: PLC0415
    from graphmem.transfer.sources.message_files import MessageDefaults, is_file, read_file, read_words  # noqa: PLC0415

    kept, defaults = json_object(metadata, "--metadata"), MessageDefaults(role, name)
    if file is not None and text is None:
        source, messages = read_file(file, defaults, form)
    elif text is not None and file is None:
        source, messages = read_words(text, defaults, form)
        if is_file(text):
            typer.echo("graphmem: a file has this name; what was added is the name, --file reads the file", err=True)
    else:
        raise typer.BadParameter("give words (- for standard input) or --file FILE")
    with call.memory() as memory:
        options = {**call.scope, "metadata": kept, "timestamp": timestamp, "infer": False if as_spoken else None}
        result = add_all(memory, source, messages, options, wait=not no_wait)
        call.print_answer(result, lambda renderer: show_added(renderer, result, len(messages)))
        sys.stdout.flush()  # with --no-wait the rest is still to be done, on the way out


def show_added(renderer: Renderer, result: Mapping[str, Any], given: int) -> None:
    """What became of so many messages."""
    found = result["results"]
    counts = Counter("erased" if one.get("reason") == "erased" else one["event"] for one in found)
    asked = "usage" in result or "failed" in result
    skipped = 0 if asked else given - len(found)
    told = [f"{counts['ADD']} added"]
    told += [f"{counts['UPDATE']} updated"] if counts["UPDATE"] else []
    told += [f"{counts['DELETE']} retired"] if counts["DELETE"] else []
    told += [f"{counts['NONE']} known already"] if counts["NONE"] else []
    told += [f"{counts['erased']} erased before, not added again"] if counts["erased"] else []
    told += [f"{skipped} skipped (system messages, or without words)"] if skipped else []
    told += [f"the model failed ({error}): retry-failed asks it again" for error in result.get("failed", {}).values()]
    told += [f"not yet in {' and '.join(result['pending'])}"] if result.get("pending") else []
    renderer.line("; ".join(told))
    for one in found if asked else []:
        renderer.line((f"{one['event']:6} {one['memory']}", ""), (f"  {one['id']}", "dim"))
    if given == 1 and found and not asked:
        renderer.line((found[0]["id"], "dim"))


@command
def update(
    call: CommandContext,
    memory_id: Id,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The words as they should be.")] = None,
    metadata: Metadata = None,
) -> None:
    """Corrects a memory; its history keeps the old words."""
    kept = json_object(metadata, "--metadata")
    with call.memory() as memory:
        changed = memory.update(memory_id, text, metadata=kept, **call.scope)
    call.print_answer(changed, lambda renderer: renderer.updated_memory(changed))


@command
def undo(
    call: CommandContext,
    event_id: Annotated[str, typer.Argument(metavar="EVENT", help="The id of an update or retirement (history).")],
) -> None:
    """Takes an update or a retirement back."""
    with call.memory() as memory:
        changed = memory.undo(event_id, **call.scope)
    call.print_answer(changed, lambda renderer: renderer.updated_memory(changed))


@command
def delete(
    call: CommandContext,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The memories' ids.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything of this scope.")] = False,  # noqa: FBT002
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,  # noqa: FBT002
) -> None:
    """Erases memories, from every store."""
    if everything == bool(ids):
        raise typer.BadParameter("name some ids, or say --all with --user, --agent or --run")
    if everything and call.scope and not yes:
        _confirm(call)
    with call.memory() as memory:
        if everything:
            receipt: Mapping[str, Any] = memory.delete_all(**call.scope)
        else:
            wanted = list(dict.fromkeys(ids or ()))
            if missing := [uid for uid in wanted if memory.get(uid, **call.scope) is None]:
                raise error_exit(f"no memory {', '.join(missing)}; nothing was deleted")
            receipt = _sum([memory.delete(uid, **call.scope) for uid in wanted])
    call.print_answer(receipt, lambda renderer: renderer.line(receipt["message"]))


def _confirm(call: CommandContext) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("--all needs --yes where nobody can be asked")
    whose = ", ".join(f"{name.removesuffix('_id')} {value!r}" for name, value in call.scope.items())
    if not typer.confirm(f"Erase everything of {whose}? There is no way back.", err=True):
        raise error_exit("nothing was deleted")


def _sum(receipts: list[Any]) -> Mapping[str, Any]:
    """Several receipts as one, in the same shape."""
    if len(receipts) == 1:
        return dict(receipts[0])
    erased: Counter[str] = Counter()
    for receipt in receipts:
        erased.update(receipt["erased"])
    return {
        "message": f"{len(receipts)} memories deleted successfully!",
        "deleted": [uid for receipt in receipts for uid in receipt["deleted"]],
        "erased": dict(erased),
        **({"pending": receipts[-1]["pending"]} if "pending" in receipts[-1] else {}),
    }
