"""MCP over streamable HTTP, as an ASGI application for a server of one's own; each key is bound to one user."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import pydantic

from graphmem.async_memory import AsyncMemory
from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.integrations.base import required, sync_memory
from graphmem.logs import log_text
from graphmem.memory import Memory
from graphmem.model import Scope
from graphmem.service.calls import calling_user
from graphmem.service.json_bodies import AmbiguousJson, read_json
from graphmem.service.keys import Keys
from graphmem.service.mcp.server import VERSION, create_server, unsupported_version

with required("mcp", extra="mcp"):
    from mcp.server import Server, ServerRequestContext
    from mcp.server.auth.middleware.auth_context import get_access_token
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.transport_security import (
        DEFAULT_MAX_REQUEST_BODY_SIZE,
        TransportSecurityMiddleware,
        TransportSecuritySettings,
    )
    from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCNotification, jsonrpc_message_adapter
    from pydantic import AnyHttpUrl
    from starlette.applications import Starlette
    from starlette.authentication import AuthenticationError
    from starlette.datastructures import Headers
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Message, Receive, Send
    from starlette.types import Scope as HttpScope

logger = logging.getLogger("graphmem")

USER_HEADER = "X-Graphmem-User"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_NO_CHECK = TransportSecuritySettings(enable_dns_rebinding_protection=False)
_NO_MESSAGE = (
    'The body must be one message of JSON-RPC 2.0: an object with "jsonrpc": "2.0" and the text "method"; in a request '
    'an "id", which is a text or a whole number; "params", if there, an object.'
)


@dataclass(frozen=True, slots=True)
class Key:
    """A key that was recognised: its id, and the user to whom it is bound.

    The key of an application has `user_id=None`: each of its requests names the user in the header `X-Graphmem-User`.
    `agent_id` narrows what the key reaches to that agent's memories.
    """

    id: str
    user_id: str | None
    agent_id: str | None = None

    def __post_init__(self) -> None:
        """Raises ValidationError for unusable ids, such as an empty one."""
        for name in ("user_id", "agent_id"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, validation.identifier(value, name))


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
    loopback), any other gets 421. `allowed_origins` are web pages that may call it beside those of these hosts, any
    other gets 403. `profile`, `names` and `instructions` are those of `create_server`. An application that mounts this
    one has to enter `app.router.lifespan_context(app)` in its own lifespan.

    Raises ValidationError for an unusable argument.
    """
    if find_key is None:
        find_key = _ledger_keys(sync_memory(memory))
    if not (inspect.iscoroutinefunction(find_key) or inspect.iscoroutinefunction(type(find_key).__call__)):
        validation.refuse_unseen("find_key", find_key, "must be an async function of a key's text")
    if not isinstance(path, str) or not path.startswith("/"):
        validation.refuse("path", path, 'must begin with "/"')
    server = create_server(memory, _scope_of_request, profile=profile, names=names, instructions=instructions)
    hosts = [
        host for name in _checked_names(allowed_hosts, "allowed_hosts") or _LOOPBACK for host in (name, f"{name}:*")
    ]
    own_origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    allowed_origins = [*_checked_names(allowed_origins, "allowed_origins"), *own_origins]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=allowed_origins)
    return _http_app(server, find_key, path, security)


def service_mcp_app(memory: AsyncMemory, find_key: FindKey, path: str) -> Starlette:
    """Returns `mcp_app` for the service, which checks Host and Origin itself, of every request."""
    return _http_app(create_server(memory, _scope_of_request), find_key, path, _NO_CHECK)


def _http_app(server: Server[Any], find_key: FindKey, path: str, security: TransportSecuritySettings) -> Starlette:
    # No authorization server: keys are made by the operator.
    options: dict[str, Any] = {"issuer_url": AnyHttpUrl("http://127.0.0.1"), "resource_server_url": None}
    if "validate_token_resource" in inspect.signature(AuthSettings).parameters:  # since 2.3
        options["validate_token_resource"] = False
    app = server.streamable_http_app(
        streamable_http_path=path,
        stateless_http=True,
        json_response=True,
        transport_security=_NO_CHECK,
        auth=AuthSettings(**options),
        token_verifier=_KeyVerifier(find_key),
    )
    # The innermost: it knows whether there is a key.
    app.user_middleware.append(Middleware(_CheckedRequests, security=security))
    return app


def _ledger_keys(memory: Memory) -> FindKey:
    keys = Keys(memory)

    async def find(text: str) -> Key | None:
        key = await asyncio.to_thread(keys.find, text)
        return None if key is None or key.role == "metrics" else Key(key.id, key.user_id, key.agent_id)

    return find


def _checked_names(names: Sequence[str], argument: str) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        validation.refuse(argument, names, 'must be a list of names, such as ["memory.example.org"]')
    return list(names)


class _KeyVerifier:
    """Translates our keys to the access tokens of the SDK."""

    def __init__(self, find_key: FindKey) -> None:
        self._find_key = find_key

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            key = await self._find_key(token)
        except Exception as error:  # noqa: BLE001  (the server would log a stack)
            logger.warning("a key could not be checked (%s)", log_text(error))
            raise AuthenticationError("keys cannot be checked now; try again later") from None
        if key is None:
            return None
        claims = {"agent_id": key.agent_id}
        return AccessToken(token="", client_id=key.id, scopes=[], subject=key.user_id, claims=claims)


class _CheckedRequests:
    """Refuses foreign hosts and origins, two keys, and what is no message of the protocol: the SDK's errors repeat what
    was sent.

    Passes on requests without a key, whose bodies are not read, and bodies over the SDK's limit, which it refuses.
    """

    def __init__(self, app: ASGIApp, security: TransportSecuritySettings) -> None:
        self._app, self._security = app, TransportSecurityMiddleware(security)

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (refusal := await self._security.validate_request(Request(scope))) is not None:
            await refusal(scope, receive, send)
            return
        if (count := len(Headers(scope=scope).getlist("authorization"))) > 1:  # a proxy in front may read another one
            error_text = f"Authorization: is there {count} times; send it once."
            await JSONResponse({"error": error_text}, HTTPStatus.BAD_REQUEST)(scope, receive, send)
            return
        if scope["method"] == "GET" and get_access_token() is not None:
            # The server sends nothing by itself, so the stream would carry nothing, and outlive its key.
            headers = {"Allow": "POST, DELETE"}
            await JSONResponse({"error": "There is no stream; send messages by POST."}, 405, headers)(
                scope, receive, send
            )
            return
        if scope["method"] != "POST" or get_access_token() is None:
            await self._app(scope, receive, send)
            return
        error, parts = _version_error(Headers(scope=scope)), list[Message]()
        if error is None:
            parts, body = await _read_body(receive)
            error = None if body is None else _message_error(body)
        if error is not None:
            content = {"jsonrpc": "2.0", "id": None, "error": error.model_dump(exclude_none=True)}
            await JSONResponse(content, HTTPStatus.BAD_REQUEST)(scope, receive, send)
            return
        waiting = iter(parts)

        async def read_again() -> Message:
            return next(waiting, None) or await receive()

        with suppress(ClientDisconnect):  # there is nobody to answer
            await self._app(scope, read_again, send)


async def _read_body(receive: Receive) -> tuple[list[Message], bytes | None]:
    """Returns the parts that have come, and the body: None if the client has left or it is over the SDK's limit."""
    parts, size = list[Message](), 0
    while size <= DEFAULT_MAX_REQUEST_BODY_SIZE:
        parts.append(part := await receive())
        if part["type"] != "http.request":
            return parts, None
        size += len(part.get("body", b""))
        if not part.get("more_body", False):
            return parts, b"".join(one.get("body", b"") for one in parts)
    return parts, None


def _version_error(headers: Headers) -> ErrorData | None:
    """Returns the error of a protocol version that is no date; the SDK's repeats the version, as the protocol asks."""
    version = headers.get("mcp-protocol-version")
    if version is None or VERSION.fullmatch(version):
        return None
    return unsupported_version("MCP-Protocol-Version: is no version of the protocol; send one such as 2025-11-25")


def _message_error(body: bytes) -> ErrorData | None:
    """Returns the error of a body that is no message."""
    try:
        value = read_json(body)
        message = jsonrpc_message_adapter.validate_python(value, by_name=False)
    except AmbiguousJson as error:
        return ErrorData(code=INVALID_REQUEST, message=str(error))
    except pydantic.ValidationError:
        return ErrorData(code=INVALID_REQUEST, message=_NO_MESSAGE)
    except (ValueError, RecursionError):
        return ErrorData(code=PARSE_ERROR, message="The body cannot be read: it must be JSON in UTF-8.")
    # The adapter takes a request whose id is of another type for a notification, which gets no answer.
    if isinstance(message, JSONRPCNotification) and value.get("id") is not None:
        return ErrorData(code=INVALID_REQUEST, message=_NO_MESSAGE)
    return None


def _scope_of_request(request: ServerRequestContext[Any, Any]) -> Scope:
    """Returns the scope of the key of a request. Raises ValidationError if an application's key names no user."""
    token = get_access_token()
    if token is None:
        raise ValidationError("Authorization: this request has no key")
    named = None if request.request is None else _named_user(request.request.headers.getlist(USER_HEADER))
    if token.subject is None and named is None:
        raise ValidationError(f"{USER_HEADER}: is missing; the key of an application names the user of each request")
    if token.subject is not None and named not in {None, token.subject}:
        raise ValidationError(f"{USER_HEADER}: names another user than the one to whom this key is bound; leave it out")
    user_id = named if token.subject is None else token.subject
    calling_user.set(user_id)
    agent_id = (token.claims or {}).get("agent_id")
    return validation.required_scope(user_id, agent_id)[0]


def _named_user(values: list[str]) -> str | None:
    """Returns the user that the header names, as UTF-8; None without the header."""
    if not values:
        return None
    if len(values) > 1:
        raise ValidationError(f"{USER_HEADER}: is there {len(values)} times; a request names one user")
    try:
        name = values[0].encode("latin-1").decode()
    except UnicodeError:
        raise ValidationError(f"{USER_HEADER}: is not UTF-8") from None
    return validation.identifier(name, USER_HEADER)
