"""MCP over streamable HTTP, as an ASGI application for a server of one's own; each key is bound to one user."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graphmem.async_memory import AsyncMemory
from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.integrations.base import required, sync_memory
from graphmem.memory import Memory
from graphmem.model import Scope
from graphmem.service.keys import Keys
from graphmem.service.mcp.server import create_server

with required("mcp", "mcp"):
    from mcp.server import ServerRequestContext
    from mcp.server.auth.middleware.auth_context import get_access_token
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.transport_security import TransportSecuritySettings
    from pydantic import AnyHttpUrl
    from starlette.applications import Starlette

USER_HEADER = "X-Graphmem-User"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Key:
    """A key that was recognised: its id, and the user to whom it is bound.

    The key of an application has `user_id=None`: each of its requests names the user in the header `X-Graphmem-User`.
    `agent_id` narrows what the key reaches to that agent's memories.
    """

    id: str
    user_id: str | None
    agent_id: str | None = None


FindKey = Callable[[str], Awaitable[Key | None]]
"""Finds the key that a client sends as `Authorization: Bearer …`; None refuses the request."""


def mcp_app(
    memory: Memory | AsyncMemory,
    find_key: FindKey | None = None,
    *,
    path: str = "/mcp",
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    profile: str = "full",
    names: str = "plain",
    instructions: str = "",
) -> Starlette:
    """Returns an ASGI application that answers MCP at `path`. Its lifespan has to be entered; the memory stays open.

    `find_key` is by default that of the ledger's keys, which `graphmem keys create` makes. A request without a key that
    it recognises gets 401. `allowed_hosts` are the values of the header Host under
    which the application may be reached ("memory.example.org", "127.0.0.1:*"; default: the names of this machine's
    loopback), any other gets 421. `allowed_origins` are web pages that may call it (default: none). `profile`, `names`
    and `instructions` are those of `create_server`. An application that mounts this one has to enter
    `app.router.lifespan_context(app)` in its own lifespan.

    Raises ValidationError for an unusable argument.
    """
    if find_key is None:
        find_key = _ledger_keys(sync_memory(memory))
    if not callable(find_key):
        validation.refuse("find_key", type(find_key).__name__, "must be an async function of a key's text")
    if not isinstance(path, str) or not path.startswith("/"):
        validation.refuse("path", path, 'must begin with "/"')
    server = create_server(memory, _scope_of_request, profile=profile, names=names, instructions=instructions)
    return server.streamable_http_app(
        streamable_http_path=path,
        stateless_http=True,
        json_response=True,
        transport_security=TransportSecuritySettings(
            allowed_hosts=list(allowed_hosts) or [host for name in _LOOPBACK for host in (name, f"{name}:*")],
            allowed_origins=list(allowed_origins),
        ),
        auth=_auth_settings(),
        token_verifier=_KeyVerifier(find_key),
    )


def _ledger_keys(memory: Memory) -> FindKey:
    keys = Keys(memory)

    async def find(text: str) -> Key | None:
        key = await asyncio.to_thread(keys.find, text)
        return None if key is None or key.role == "metrics" else Key(key.id, key.user_id, key.agent_id)

    return find


class _KeyVerifier:
    """Translates our keys to the access tokens of the SDK."""

    def __init__(self, find_key: FindKey) -> None:
        self._find_key = find_key

    async def verify_token(self, token: str) -> AccessToken | None:
        key = await self._find_key(token)
        if key is None:
            return None
        claims = {"agent_id": key.agent_id}
        return AccessToken(token="", client_id=key.id, scopes=[], subject=key.user_id, claims=claims)


def _scope_of_request(request: ServerRequestContext[Any, Any]) -> Scope:
    """Returns the scope of the key of a request. Raises ValidationError if an application's key names no user."""
    token = get_access_token()
    if token is None:
        raise ValidationError("Authorization: this request has no key")
    named = request.request.headers.get(USER_HEADER) if request.request is not None else None
    if token.subject is None and not named:
        raise ValidationError(f"{USER_HEADER}: is missing; the key of an application names the user of each request")
    if token.subject is not None and named not in {None, token.subject}:
        raise ValidationError(f"{USER_HEADER}: names another user than the one to whom this key is bound; leave it out")
    agent_id = (token.claims or {}).get("agent_id")
    return validation.required_scope(token.subject or named, agent_id)[0]


def _auth_settings() -> AuthSettings:
    """Returns settings without an authorization server: keys are made by the operator."""
    options: dict[str, Any] = {"issuer_url": AnyHttpUrl("http://127.0.0.1"), "resource_server_url": None}
    if "validate_token_resource" in inspect.signature(AuthSettings).parameters:  # since 2.3
        options["validate_token_resource"] = False
    return AuthSettings(**options)
