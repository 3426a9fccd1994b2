"""`graphmem lifecycle`: runs cycles, makes abstractions, lists and erases what is forgotten, and takes cycles back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmem.cli.options import CommandContext, command, confirm_erasure, require_terminal

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer
    from graphmem.types import AbstractionResult, ForgottenResult, LifecycleDict

_NUMBERS = (
    "processed", "decayed", "promoted", "forgotten", "merged", "summarized", "abstracted", "purged", "saved_bytes",
)  # fmt: skip
lifecycle = typer.Typer(
    help="Forgets what has faded and keeps what matters.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@command
def run(
    call: CommandContext,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,  # noqa: FBT002
    force: Annotated[bool, typer.Option("--force", help="Forget as many as have faded.")] = False,  # noqa: FBT002
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Decide as of this time.")] = None,
) -> None:
    """Runs a cycle over the memories of a user."""
    with call.memory() as memory:
        result = memory.tend(**call.scope, dry_run=dry_run, force=force, now=now)
    call.print_answer(result, lambda renderer: _print_cycle(renderer, result))


@command
def status(
    call: CommandContext,
    limit: Annotated[int, typer.Option(help="The maximum number of cycles.")] = 50,
) -> None:
    """Counts the memories of a user by layer, and lists past cycles."""
    with call.memory() as memory:
        answer = memory.lifecycle_status(**call.scope, limit=limit)
    call.print_answer(answer, lambda renderer: _print_status(renderer, answer))


@command
def pending(
    call: CommandContext,
    limit: Annotated[int, typer.Option(help="The maximum number of memories.")] = 100,
) -> None:
    """Lists the memories that are forgotten and not erased."""
    with call.memory() as memory:
        page = memory.pending_deletion(**call.scope, limit=limit)
    call.print_answer(page, lambda renderer: _print_forgotten(renderer, page))
    typer.echo(f"graphmem: {len(page['results'])} of {page['total']} forgotten memories", err=True)


@command
def purge(
    call: CommandContext,
    forgotten_before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only those that were forgotten before this time.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,  # noqa: FBT002
) -> None:
    """Erases forgotten memories, and leaves what still says it."""
    must_ask = bool(call.scope) and not yes
    if must_ask:
        require_terminal("purge")
    with call.memory() as memory:
        if must_ask:
            number = memory.pending_deletion(**call.scope, limit=1)["total"]
            which = "all" if forgotten_before is None else f"those forgotten before {forgotten_before}, of"
            confirm_erasure(f"Erase {which} {number} forgotten memories?")
        receipt = memory.purge(**call.scope, forgotten_before=forgotten_before, confirm=True)
    call.print_answer(receipt, lambda renderer: renderer.line(receipt["message"]))


@command
def abstract(
    call: CommandContext,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Memories; without any, groups of like ones.")
    ] = None,
    level: Annotated[int, typer.Option(help="1 without times, 2 by kinds of things, 3 as a habit.")] = 1,
) -> None:
    """Stores what memories have in common, in one sentence; they stay."""
    with call.memory() as memory:
        result = memory.abstract(ids or None, level=level, **call.scope)
    call.print_answer(result, lambda renderer: _print_abstractions(renderer, result))


@command
def undo(
    call: CommandContext,
    cycle: Annotated[str, typer.Argument(metavar="CYCLE", help="The id of a cycle, as run prints it.")],
) -> None:
    """Takes back what a cycle did."""
    with call.memory() as memory:
        result = memory.undo_cycle(cycle, **call.scope)
    text = f"Taken back for {len(result['undone'])} memories; {result['skipped']} changes were made since and stay."
    if result["erased"]:
        text += f" {result['erased']} memories are erased and cannot be brought back."
    call.print_answer(result, lambda renderer: renderer.line(text))


def _print_cycle(renderer: Renderer, result: Any) -> None:
    from graphmem.cli.render import one_line  # noqa: PLC0415

    for change in result.get("changes", ()):
        renderer.line((change["change"], "bold"), f"  {change['reason']}  ", (change["id"], "dim"))
        renderer.line(one_line(change["memory"]), indent=4)
    for name in _NUMBERS:
        renderer.pair(name.replace("_", " "), result[name])
    for step, reason in result["skipped"].items():
        renderer.pair(f"skipped: {step}", reason)
    if "brake" in result:
        renderer.line((result["brake"], "yellow"))
    if result["cycle"] is not None:
        renderer.pair("cycle", result["cycle"])


def _print_abstractions(renderer: Renderer, result: AbstractionResult) -> None:
    for record in result["results"]:
        renderer.memory(record, f"level {record['level']}, of {len(record['abstracts'])} memories  ")
    for step, reason in result["skipped"].items():
        renderer.pair(f"skipped: {step}", reason)
    if result["results"]:
        renderer.pair("cycle", result["cycle"])


def _print_status(renderer: Renderer, answer: LifecycleDict) -> None:
    if not answer["enabled"]:
        renderer.line("The lifecycle is off: nothing is forgotten by itself. Set lifecycle.enabled to true.")
    elif (held := answer["held"]) is not None:
        told = (
            f"The last cycle forgot nothing: {held['forgotten']} of {held['memories']} memories at once are too many."
        )
        renderer.line((told, "yellow"))
        renderer.line("Look at graphmem lifecycle run --dry-run; with --force it runs.", indent=2)
    for name, number in (*answer["layers"].items(), ("pinned", answer["pinned"]), ("forgotten", answer["forgotten"])):
        renderer.pair(name.replace("_", " "), number)
    changed, since = answer["cycle_changed"], answer["lifecycle_since"]
    did = "" if changed is None else f", changed {changed or 'nothing'}"
    renderer.pair("last cycle", "none" if (at := answer["cycled_at"]) is None else f"{_minute(renderer, at)}{did}")
    renderer.pair("fading since", "none" if since is None else _minute(renderer, since))
    for cycle in answer["cycles"]:
        numbers = ", ".join(f"{cycle[name]} {name}" for name in ("forgotten", "merged", "promoted", "composed"))
        undone = [("  undone", "yellow")] if cycle["undone"] else []
        renderer.line((_minute(renderer, cycle["at"]), "green"), f"  {numbers}", *undone, "  ", (cycle["cycle"], "dim"))


def _minute(renderer: Renderer, at: str) -> str:
    return renderer.local_time(at)[:16].replace("T", " ")


def _print_forgotten(renderer: Renderer, page: ForgottenResult) -> None:
    for record in page["results"]:
        renderer.memory(record, f"{record['reason']}  ")


for _command in (run, status, abstract, pending, purge, undo):
    lifecycle.command(_command.__name__)(_command)
