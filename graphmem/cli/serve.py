"""Commands that serve other programs until they are stopped: `graphmem serve` (REST, MCP and health over HTTP),
`graphmem mcp` (one MCP client over standard input and output), `graphmem worker` (the jobs of a ledger).
"""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from threading import Event
from time import monotonic
from typing import Annotated, Any, Literal

import typer

from graphmem.cli.options import INTERRUPTED, CommandContext, error_exit, server_command, service_command
from graphmem.errors import ConfigError, GraphmemError
from graphmem.logs import log_text

logger = logging.getLogger("graphmem")


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


@server_command
def mcp(
    call: CommandContext,
    tools: Annotated[
        Literal["core", "read", "full", "chatgpt"] | None,
        typer.Option(help="The tools that the client is offered.", show_default="full"),
    ] = None,
    names: Annotated[
        Literal["plain", "dotted"] | None,
        typer.Option(help="The names of the core tools: add_memory or memory.add.", show_default="plain"),
    ] = None,
) -> None:
    """Serves the memories of one user to an MCP client.

    They speak over standard input and output. The client starts this command, and its model uses the tools. --user is
    required, or GRAPHMEM_MCP__USER_ID.
    """
    # Before the SDK is imported, and on standard error: standard output has the protocol alone.
    logging.basicConfig(level=logging.WARNING, format="graphmem: %(message)s")
    import anyio  # noqa: PLC0415

    from graphmem.boundary import validation  # noqa: PLC0415
    from graphmem.service.mcp.server import create_server, serve_stdio  # noqa: PLC0415  (needs the extra `mcp`)

    configured = call.settings().mcp
    ids = {"user_id": configured.user_id, "agent_id": configured.agent_id, "run_id": configured.run_id, **call.scope}
    if ids["user_id"] is None:
        raise ConfigError("--user is missing: name the user whose memories these are, or set GRAPHMEM_MCP__USER_ID")
    scope = validation.required_scope(**ids)[0]
    with call.memory(may_create=True, is_server=True) as memory:
        server = create_server(
            memory,
            lambda _: scope,
            profile=tools or configured.tools,
            names=names or configured.names,
            instructions=configured.instructions or "",
        )
        # Reading standard input cannot be interrupted. Acknowledged memories are durable; unfinished work is recorded.
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        try:
            anyio.run(serve_stdio, server)
        except* BrokenPipeError:
            raise error_exit("the client has closed the connection") from None


# Seconds between two looks for jobs; a look itself takes at most a tenth of the time.
LOOK_SECONDS, LOOK_SHARE = 0.5, 0.1


@service_command
def worker(call: CommandContext) -> None:
    """Does the jobs of other programs until it is stopped.

    With the setting workers.provider=process the programs that have the memory open leave it to this one, nightly
    cycles of the lifecycle included.
    """
    from graphmem.background import take_up_work  # noqa: PLC0415
    from graphmem.engine import Engine  # noqa: PLC0415  (takes a second, for which --help need not wait)
    from graphmem.service.process import begin_log, end_in_time  # noqa: PLC0415
    from graphmem.settings.schema import ThreadWorkers  # noqa: PLC0415

    begin_log()
    stopped = Event()
    engine = Engine(call.settings().model_copy(update={"workers": ThreadWorkers()}), in_memory=False, is_worker=True)
    try:
        end_in_time(lambda *_: stopped.set(), engine.job_worker.release)
        typer.echo("graphmem: doing the jobs of this ledger", err=True)
        pause = 0.0
        while not stopped.wait(pause):
            begun = monotonic()
            try:
                take_up_work(engine)
            except GraphmemError as error:
                logger.warning("recorded work could not be taken up (%s)", log_text(error))
            pause = max(LOOK_SECONDS, (monotonic() - begun) / LOOK_SHARE)
    finally:
        engine.close(wait=False)
