"""`graphmem keys`: makes, lists and revokes the keys of MCP clients over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphmem.cli.options import CommandContext, unscoped_command
from graphmem.model import iso, optional_iso

if TYPE_CHECKING:
    from graphmem.cli.render import Renderer
    from graphmem.stores.ledger.service_tables import ApiKey

keys = typer.Typer(
    help="Makes, lists and revokes the keys of clients of the service.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@unscoped_command
def create(
    call: CommandContext,
    role: Annotated[
        Literal["user", "app", "admin", "metrics"],
        typer.Option(help="user: one user's memories; app: those of the user that a request names; admin: everything."),
    ] = "user",
    user: Annotated[str | None, typer.Option(metavar="ID", help="The user of a key with the role user.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="ID", help="Only the memories of this agent.")] = None,
    label: Annotated[str, typer.Option(metavar="TEXT", help="What the key is for.")] = "",
    expires_at: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="Its end: a time, or the last day.")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Its most requests, such as 600/minute; by default as configured."),
    ] = None,
) -> None:
    """Makes a key and prints it. It cannot be shown again."""
    from graphmem.service.keys import Keys  # noqa: PLC0415

    if role == "user" and user is None:
        raise typer.BadParameter(
            "--user is missing: name the user whose memories the key reaches, or give another --role"
        )
    with call.memory(may_create=True) as memory:
        key, text = Keys(memory).create(
            role, user_id=user, agent_id=agent, label=label, expires_at=expires_at, rate=rate
        )
    call.print_answer({**_shown(key), "key": text}, lambda renderer: renderer.plain(text))


@unscoped_command
def list_(call: CommandContext) -> None:
    """Lists all keys, without their secrets."""
    from graphmem.service.keys import Keys  # noqa: PLC0415

    with call.memory() as memory:
        rows = [_shown(key) for key in Keys(memory).all()]
    call.print_answer(rows, lambda renderer: _print_rows(renderer, rows))


@unscoped_command
def revoke(call: CommandContext, key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id.")]) -> None:
    """Revokes a key: it is refused from now on."""
    from graphmem.service.keys import Keys  # noqa: PLC0415

    with call.memory() as memory:
        Keys(memory).revoke(key_id)
    call.print_answer({"id": key_id}, lambda renderer: renderer.line("Revoked."))


def _shown(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "label": key.label,
        "role": key.role,
        "user_id": key.user_id,
        "agent_id": key.agent_id,
        "created_at": iso(key.created_at),
        "expires_at": optional_iso(key.expires_at),
        "revoked_at": optional_iso(key.revoked_at),
        "rate": key.rate,
        "last_used_at": optional_iso(key.last_used_at),
    }


def _print_rows(renderer: Renderer, rows: list[dict[str, Any]]) -> None:
    from graphmem.cli.render import one_line  # noqa: PLC0415

    for row in rows:
        state = f"  revoked {renderer.day(row['revoked_at'])}" if row["revoked_at"] else ""
        ends = ""
        if row["expires_at"]:  # the day if the key is valid until its end, otherwise the time and its UTC offset too
            until = renderer.local_time(row["expires_at"])
            day, time, offset = until[:10], until[11:], until[-6:]
            exact = f"{day} {time[:5]} {'UTC' if offset == '+00:00' else offset}"
            ends = f"  until {day if time.startswith('23:59:59.999') else exact}"
        owner = "".join(f"  {name} {one_line(row[f'{name}_id'])}" for name in ("user", "agent") if row[f"{name}_id"])
        rate = f"  {row['rate']}" if row["rate"] else ""
        used = f"  used {renderer.day(row['last_used_at'])}" if row["last_used_at"] else ""
        label = one_line(row["label"])
        renderer.line(row["id"], "  ", (row["role"], "bold"), owner, "  ", label, rate, used, ends, state)


for _command in (create, list_, revoke):
    keys.command(_command.__name__.rstrip("_"))(_command)
