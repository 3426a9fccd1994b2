"""Commands that look after the folder as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from graphmem.cli.options import CommandContext, command


class ProjectionName(StrEnum):
    """What can be rebuilt by itself."""

    VECTORS = "vectors"
    GRAPH = "graph"


@command
def verify(
    call: CommandContext,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what is found.")] = False,  # noqa: FBT002
) -> None:
    """Compares the projections with the ledger. Exit status 1 if they do not agree."""
    with call.whole_memory() as memory:
        found = memory.verify(repair=repair)
    _report(call, found)


@command
def repair(call: CommandContext) -> None:
    """Finishes what is unfinished and mends what verify finds."""
    with call.whole_memory() as memory:
        found = memory.repair()
    _report(call, found)


@command
def rebuild(
    call: CommandContext,
    projection: Annotated[ProjectionName | None, typer.Argument(help="Only this one; else both.")] = None,
) -> None:
    """Makes vectors and graph anew from the ledger, as after a change of the embedding model."""
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415

    with call.whole_memory() as memory, ProgressBar() as bar:
        found = memory.rebuild(None if projection is None else projection.value, bar.update)
    _report(call, found)


def _report(call: CommandContext, found: Mapping[str, Any]) -> None:
    call.print_answer(found, lambda renderer: renderer.report(found))
    if not found["ok"]:
        raise typer.Exit(1)


@command
def retry_failed(call: CommandContext) -> None:
    """Asks the language model again what it has failed to answer. Exit status 1 if it fails again."""
    with call.whole_memory() as memory:
        came = memory.retry_failed()
    call.print_answer(came, lambda renderer: renderer.pairs(came))
    if came["failed"]:
        raise typer.Exit(1)


@command
def stats(call: CommandContext) -> None:
    """Counts, sizes, what is unfinished."""
    with call.whole_memory() as memory:
        found = memory.stats()
    call.print_answer(found, lambda renderer: renderer.pairs(found))
