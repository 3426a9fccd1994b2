"""`graphmem serve`: REST, MCP and health over HTTP, for programs that are not written in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Annotated, Any

import typer

from graphmem.cli.options import CommandContext, service_command
from graphmem.errors import ConfigError


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
    """Serves the memories over HTTP: REST, MCP and a page.

    REST is that of mem0's clients, MCP is at /mcp, the page at /ui/. The first start on this machine makes a key and
    prints it. Requests send it as X-API-Key or as a Bearer token.
    """
    if alerts:
        typer.echo((files("graphmem.service") / "monitoring" / "alerts.yml").read_text("utf-8"), nl=False)
        return
    from graphmem.integrations.base import required  # noqa: PLC0415  (takes a second)

    with required("fastapi", "httpx2", "limits", "prometheus_client", "uvicorn", extra="serve"):
        from graphmem.service.process import begin_log  # noqa: PLC0415
        from graphmem.service.server import Start, listen, prepare, run  # noqa: PLC0415

    settings = call.settings()
    options = {"host": host, "port": port, "workers": workers, "default_user": default_user}
    given = {name: value for name, value in options.items() if value is not None}
    with _naming_options(given):
        section = settings.serve.with_values(**given)
        start = Start(settings.model_copy(update={"serve": section}), needs_key=not no_auth)
        begin_log()
        new_key = prepare(start)
        if new_key is not None:  # before anything else can fail: nobody could read it again
            typer.echo(f"graphmem: a key of the role admin, shown this once: {new_key}", err=True)
        with listen(section) as listener:
            name, number = listener.getsockname()[:2]
            address = f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"
            typer.echo(f"graphmem: serving on {address}", err=True)
            if section.ui and new_key is not None:  # browsers do not send what follows "#"
                typer.echo(f"graphmem: the page with this key: {address}/ui/#key={new_key}", err=True)
            run(start, listener)


@contextmanager
def _naming_options(given: Mapping[str, Any]) -> Iterator[None]:
    """Lets errors about the settings whose values are `given` by options name these options."""
    try:
        yield
    except ConfigError as error:
        written = re.sub(
            r"\bserve\.(\w+)",
            lambda match: f"--{match[1].replace('_', '-')}" if match[1] in given else match[0],
            str(error),
        )
        raise ConfigError(written.removeprefix("serve: ")) from None
