"""Commands for the whole memory, without a scope: verify, repair, rebuild, retry-failed, stats."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from graphmem.cli.options import CommandContext, unscoped_command
from graphmem.errors import ConfigError


class ProjectionName(StrEnum):
    """A projection that `rebuild` can make anew without the other."""

    VECTORS = "vectors"
    GRAPH = "graph"


@unscoped_command
def verify(
    call: CommandContext,
    repair: Annotated[bool, typer.Option("--repair", help="Repair the differences.")] = False,  # noqa: FBT002
) -> None:
    """Checks the ledger, and compares the projections with it. Exit status 1 if something is wrong."""
    with call.memory() as memory:
        report = memory.verify(repair=repair)
    _print_report(call, report)


@unscoped_command
def repair(call: CommandContext) -> None:
    """Finishes pending work and repairs differences."""
    with call.memory() as memory:
        report = memory.repair()
    _print_report(call, report)


@unscoped_command
def rebuild(
    call: CommandContext,
    projection: Annotated[ProjectionName | None, typer.Argument(help="Only this projection; by default both.")] = None,
) -> None:
    """Rebuilds vector index and graph from the ledger.

    This is needed after a change of the embedder, for example. The change has to be configured: a rebuild never
    replaces another embedder's vectors by those of the default.
    """
    from graphmem.cli.render import ProgressBar  # noqa: PLC0415

    with call.memory() as memory, ProgressBar() as bar:
        if projection is not ProjectionName.GRAPH and "embedder" not in call.settings().model_fields_set:
            stats = memory.stats()
            if "configured_embedder" in stats:  # that is the default, which nobody has named
                raise ConfigError(
                    f"embedder: this ledger's vectors are of {stats['embedder']!r}, and none is configured; configure "
                    "that one (if it is a function: call Memory.rebuild() from Python instead), or, to replace its "
                    f"vectors by those of {stats['configured_embedder']!r}, set GRAPHMEM_EMBEDDER__PROVIDER=minilm"
                )
        report = memory.rebuild(None if projection is None else projection.value, bar.update)
    _print_report(call, report)


def _print_report(call: CommandContext, report: Mapping[str, Any]) -> None:
    call.print_answer(report, lambda renderer: renderer.report(report))
    if not report["ok"]:
        raise typer.Exit(1)


@unscoped_command
def retry_failed(call: CommandContext) -> None:
    """Retries failed jobs of the language model at once. Exit status 1 if one fails again."""
    with call.memory() as memory:
        result = memory.retry_failed()
    call.print_answer(result, lambda renderer: renderer.retried(result))
    if result["failed"]:
        raise typer.Exit(1)


@unscoped_command
def stats(call: CommandContext) -> None:
    """Prints counts, sizes and pending work."""
    with call.memory() as memory:
        report = memory.stats()
    call.print_answer(report, lambda renderer: renderer.statistics(report))
