"""Commands that find and show what is remembered."""

from __future__ import annotations

from typing import Annotated

import typer

from graphmem.cli.options import CommandContext, Filters, Id, Kinds, comma_separated, command, error_exit, json_object


def _checked(value: str) -> str:
    value = value.strip().casefold()
    if value != "auto" and not value.lstrip("-").isdecimal():
        raise typer.BadParameter(f'{value!r} is neither a whole number nor "auto"')
    return value


@command
def search(
    call: CommandContext,
    query: Annotated[str, typer.Argument(metavar="QUERY")],
    top_k: Annotated[
        str,
        typer.Option(metavar="NUMBER|auto", callback=_checked, help='At most; "auto": those not far behind the best.'),
    ] = "10",
    filters: Filters = None,
    threshold: Annotated[float | None, typer.Option(help="The least cosine similarity, -1 to 1.")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="TIME", help="The state of the world at that time.")] = None,
    kinds: Kinds = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show why, and the way to each hit.")] = False,  # noqa: FBT002
) -> None:
    """Finds what belongs to a question, also several hops away."""
    only = json_object(filters, "--filters")
    with call.memory() as memory:
        found = memory.search(
            query,
            **call.scope,
            top_k=top_k if top_k == "auto" else int(top_k),
            filters=only,
            threshold=threshold,
            as_of=as_of,
            kinds=comma_separated(kinds),
            explain=explain,
        )
    if found.get("degraded"):
        typer.echo(f"graphmem: answered without {', '.join(found['degraded'])}", err=True)
    call.print_answer(found, lambda renderer: renderer.hits(found["results"]))
    if not found["results"]:
        typer.echo("graphmem: nothing found", err=True)


@command
def context(
    call: CommandContext,
    query: Annotated[str, typer.Argument(metavar="QUERY")],
    max_chars: Annotated[int, typer.Option(help="How many characters, at most.")] = 1200,
) -> None:
    """The block of memories to put into a prompt."""
    with call.memory() as memory:
        block = memory.context(query, **call.scope, max_chars=max_chars)
    call.print_answer({"context": block}, lambda renderer: renderer.plain(block))


@command
def list_(
    call: CommandContext,
    limit: Annotated[int, typer.Option(help="How many, at most.")] = 100,
    offset: Annotated[int, typer.Option(help="How many to leave out first.")] = 0,
    filters: Filters = None,
    kinds: Kinds = None,
) -> None:
    """The memories of a scope, newest first."""
    only = json_object(filters, "--filters")
    with call.memory() as memory:
        found = memory.get_all(**call.scope, limit=limit, offset=offset, filters=only, kinds=comma_separated(kinds))
    call.print_answer(found, lambda renderer: renderer.memories(found["results"]))
    typer.echo(f"graphmem: {len(found['results'])} of {found['total']} memories", err=True)


@command
def show(call: CommandContext, memory_id: Id) -> None:
    """Everything about one memory."""
    with call.memory() as memory:
        found = memory.get(memory_id, **call.scope)
    _show(call, memory_id, found, "details")


@command
def history(call: CommandContext, memory_id: Id) -> None:
    """What happened to a memory, oldest first."""
    with call.memory() as memory:
        found = memory.history(memory_id, **call.scope)
    _show(call, memory_id, found, "history")


@command
def explain(call: CommandContext, memory_id: Id) -> None:
    """Why something is remembered: who said it, what it mentions and states, its history."""
    with call.memory() as memory:
        found = memory.explain(memory_id, **call.scope)
    _show(call, memory_id, found, "explanation")


def _show(call: CommandContext, memory_id: str, found: object, form: str) -> None:
    if not found:
        raise error_exit(f"no memory {memory_id}; 'graphmem list' gives the ids that exist")
    call.print_answer(found, lambda renderer: getattr(renderer, form)(found))
