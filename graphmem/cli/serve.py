"""`graphmem serve`: REST, MCP and health over HTTP, for programs that are not written in Python."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any

import typer

from graphmem.cli.options import CommandContext, service_command
from graphmem.errors import ConfigError

# The exit status of a service that may not start as it is configured.
REFUSED = 2


@service_command
def serve(
    call: CommandContext,
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0: a free one.", show_default="8700")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes.", show_default="1")] = None,
    default_user: Annotated[str | None, typer.Option(metavar="ID", help="The user of requests that name none.")] = None,
    no_auth: Annotated[  # noqa: FBT002
        bool, typer.Option("--no-auth", help="Take every request without a key; only on this machine.")
    ] = False,
    alerts: Annotated[  # noqa: FBT002
        bool, typer.Option("--alerts", help="Print alert rules for Prometheus, and serve nothing.")
    ] = False,
) -> None:
    """Serves the memories over HTTP: REST as mem0's clients speak it, MCP at /mcp, and a page at /ui/.

    The first start on this machine makes a key and prints it. Requests send it as X-API-Key or as a Bearer token.
    """
    if alerts:
        typer.echo((files("graphmem.service") / "monitoring" / "alerts.yml").read_text("utf-8"), nl=False)
        return
    from graphmem.integrations.base import required  # noqa: PLC0415  (takes a second)

    with required("fastapi", "httpx2", "limits", "prometheus_client", "uvicorn", extra="serve"):
        from graphmem.service.server import Start, begin_log, listen, prepare, run  # noqa: PLC0415

    settings = call.settings()
    given: dict[str, Any] = {"host": host, "port": port, "workers": workers, "default_user": default_user}
    section = settings.serve.with_values(**{name: value for name, value in given.items() if value is not None})
    settings = settings.model_copy(update={"home": call.home or settings.home, "serve": section})
    start = Start(settings, needs_key=not no_auth)
    begin_log()
    try:
        new_key = prepare(start)
    except ConfigError as error:
        typer.echo(f"graphmem: {error}", err=True)
        raise typer.Exit(REFUSED) from None
    if new_key is not None:  # before anything else can fail: nobody could read it again
        typer.echo(f"graphmem: a key of the role admin, shown this once: {new_key}", err=True)
    with listen(section) as listener:
        name, number = listener.getsockname()[:2]
        address = f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"
        typer.echo(f"graphmem: serving on {address}", err=True)
        if section.ui and new_key is not None:  # browsers do not send what follows "#"
            typer.echo(f"graphmem: the page with this key: {address}/ui/#key={new_key}", err=True)
        run(start, listener)
