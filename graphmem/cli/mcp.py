"""`graphmem mcp`: answers an MCP client over standard input and output."""

from __future__ import annotations

import logging
import os
import signal
from typing import Annotated, Literal

import typer

from graphmem.cli.options import INTERRUPTED, CommandContext, error_exit, server_command
from graphmem.errors import ConfigError


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
