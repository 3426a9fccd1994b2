"""Commands that write: demo, add, update, undo, delete. Heavy imports wait until a command runs."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmem.cli.options import (
    CommandContext,
    Id,
    Metadata,
    command,
    confirm_erasure,
    error_exit,
    json_object,
    require_terminal,
    unscoped_command,
)
from graphmem.transfer.sources.message_files import InputFormat

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer


@unscoped_command
def demo(call: CommandContext) -> None:
    """Stores a conversation and answers questions about it. With --home it is kept there, to be explored."""
    from graphmem.cli.demo import run_demo  # noqa: PLC0415

    run_demo(call)


@command
def add(
    call: CommandContext,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT|-", help="The text of a memory, or - for standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Text or messages from a file instead.")] = None,
    form: Annotated[
        InputFormat | None,
        typer.Option(
            "--format", help="The input's format.", show_default="a file: by its content; standard input: text"
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The speaker, unless the input names one.")] = None,
    role: Annotated[str, typer.Option(help="user, assistant or tool, unless the input names one.")] = "user",
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="The time of the words: ISO 8601, or seconds since 1970.")
    ] = None,
    metadata: Metadata = None,
    importance: Annotated[
        float | None, typer.Option(help="How important it is to the lifecycle, 0 to 1.", show_default="computed")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for vectors and graph.")] = False,  # noqa: FBT002
    as_spoken: Annotated[bool, typer.Option("--as-spoken", help="Store the words without a language model.")] = False,  # noqa: FBT002
) -> None:
    """Stores words, or with a language model the facts in them.

    TEXT is one memory, even if it is the name of a file: only --file opens a file. Each paragraph of standard input
    becomes a memory. A file holds messages (JSON or JSON Lines, by its ending or its beginning), a transcript ("Name:
    words" on most lines, one speaker at least twice; or with a time in front, as WhatsApp exports chats) or text;
    --format names the format, also of TEXT and standard input.
    """
    from graphmem.boundary import validation  # noqa: PLC0415
    from graphmem.cli.bulk_add import add_all  # noqa: PLC0415
    from graphmem.transfer.sources.message_files import MessageDefaults, is_file, read_file, read_words  # noqa: PLC0415

    validation.one_of(role, "role", sorted(validation.REMEMBERED_ROLES))
    if name is not None:
        validation.entity_name(name, "name")
    extra, defaults = json_object(metadata, "--metadata"), MessageDefaults(role, name)
    if file is not None and text is None:
        source, messages = read_file(file, defaults, form)
    elif text is not None and file is None:
        source, messages = read_words(text, defaults, form)
        if is_file(text):
            typer.echo("graphmem: a file has this name; the name was added as text; --file reads the file", err=True)
    else:
        raise typer.BadParameter("give words (- for standard input) or --file FILE")
    with call.memory(may_create=True, embeds=True) as memory:
        options = {
            **call.scope,
            "metadata": extra,
            "timestamp": timestamp,
            "infer": False if as_spoken else None,
            "importance": importance,
        }
        result = add_all(memory, source, messages, options, wait=not no_wait)
        call.print_answer(result, lambda renderer: show_added(renderer, result, len(messages)))
        sys.stdout.flush()  # with --no-wait, closing the memory takes long; the answer comes before that


def show_added(renderer: Renderer, result: Mapping[str, Any], message_count: int) -> None:
    """Prints the result of adding `message_count` messages: counts by event, failures, pending projections, and ids."""
    from graphmem.responses import failure_texts  # noqa: PLC0415

    items = result["results"]
    counts = Counter("erased" if item.get("reason") == "erased" else item["event"] for item in items)
    model_used = "usage" in result or "failed" in result
    skipped = 0 if model_used else message_count - len(items)
    parts = [f"{counts['ADD']} added"]
    parts += [f"{counts['UPDATE']} updated"] if counts["UPDATE"] else []
    parts += [f"{counts['DELETE']} retired"] if counts["DELETE"] else []
    parts += [f"{counts['NONE']} known already"] if counts["NONE"] else []
    parts += [f"{counts['erased']} erased before, not added again"] if counts["erased"] else []
    parts += [f"{skipped} skipped (system messages, or without words)"] if skipped else []
    parts += [f"the model failed ({why}): retry-failed asks it again" for why in failure_texts(result).values()]
    parts += [f"not yet in {' and '.join(result['pending'])}"] if result.get("pending") else []
    renderer.line("; ".join(parts))
    for item in items if model_used else []:
        renderer.line((f"{item['event']:6} {item['memory']}", ""), (f"  {item['id']}", "dim"))
    if message_count == 1 and items and not model_used:
        renderer.line((items[0]["id"], "dim"))


@command
def update(
    call: CommandContext,
    memory_id: Id,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The new text.")] = None,
    metadata: Metadata = None,
    replace_metadata: Annotated[  # noqa: FBT002
        bool, typer.Option("--replace-metadata", help="Drop the keys that --metadata does not have.")
    ] = False,
) -> None:
    """Corrects a memory; its history keeps the old text."""
    extra = json_object(metadata, "--metadata")
    if text is None and extra is None:
        raise typer.BadParameter("nothing to change; give TEXT or --metadata")
    with call.memory() as memory:
        updated = memory.update(memory_id, text=text, metadata=extra, replace_metadata=replace_metadata, **call.scope)
    call.print_answer(updated, lambda renderer: renderer.updated_memory(updated))


@command
def undo(
    call: CommandContext,
    event_id: Annotated[str, typer.Argument(metavar="EVENT", help="The id of an event, from history.")],
) -> None:
    """Reverses an update, a retirement, a forgetting or a promotion."""
    with call.memory() as memory:
        updated = memory.undo(event_id, **call.scope)
    call.print_answer(updated, lambda renderer: renderer.updated_memory(updated))


@command
def forget(
    call: CommandContext,
    memory_id: Id,
    reason: Annotated[str | None, typer.Option(help="Why; the history keeps it.")] = None,
) -> None:
    """Hides a memory; undo shows it again, delete erases it."""
    with call.memory() as memory:
        changed = memory.forget(memory_id, reason=reason, **call.scope)
    call.print_answer(changed, lambda renderer: renderer.updated_memory(changed))


@command
def pin(
    call: CommandContext,
    memory_id: Id,
    remove: Annotated[bool, typer.Option("--remove", help="Unpin it.")] = False,  # noqa: FBT002
) -> None:
    """Pins a memory: no cycle of the lifecycle forgets it."""
    with call.memory() as memory:
        changed = (memory.unpin if remove else memory.pin)(memory_id, **call.scope)
    call.print_answer(changed, lambda renderer: renderer.updated_memory(changed))


@command
def delete(
    call: CommandContext,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The ids of the memories.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All memories of the scope.")] = False,  # noqa: FBT002
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,  # noqa: FBT002
) -> None:
    """Erases memories from all stores, with what has their words."""
    from graphmem.boundary import validation  # noqa: PLC0415
    from graphmem.memory import delete_together  # noqa: PLC0415

    if everything == bool(ids):
        raise typer.BadParameter("name ids, or give --all with --user, --agent or --run")
    if everything and call.scope and not yes:
        require_terminal("--all")
        owner = ", ".join(f"{name.removesuffix('_id')} {value!r}" for name, value in call.scope.items())
        confirm_erasure(f"Erase all memories of {owner}?")
    with call.memory() as memory:
        if everything:
            receipt: Mapping[str, Any] = memory.delete_all(**call.scope)
        else:
            memory_ids = list(dict.fromkeys(ids or ()))
            if missing := [uid for uid in memory_ids if memory.get(uid, **call.scope) is None]:
                raise error_exit(f"no memory {shlex.join(missing)}; nothing was deleted")
            message = f"{'Memory' if len(memory_ids) == 1 else f'{len(memory_ids)} memories'} deleted successfully!"
            # Together: one may be erased with another.
            scope = validation.scope(**call.scope)[0]
            receipt = delete_together(memory.engine, memory_ids, scope, message)
    call.print_answer(receipt, lambda renderer: renderer.line(receipt["message"]))
