"""What every request passes before it is routed, outermost first: `RequestLog`, `Hosts`, `Heads`, `BodyLimit`,
`Authentication`.

Plain ASGI applications around another one, so that they do not hold up streams.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphmem.concurrency import as_exception
from graphmem.service import limits
from graphmem.service.auth import Authenticator, Caller, refusal, refuse_two_keys, sent_key
from graphmem.service.calls import calling_user
from graphmem.service.connections import max_connections
from graphmem.service.problems import Problem, problem_of
from graphmem.service.rate_limits import RateLimits
from graphmem.tracing import Span, request_span

logger = logging.getLogger("graphmem.requests")

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Headers of an answer that does not set them itself: none is kept by a cache, or taken for another type than it names.
ANSWER_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
# Stands in logs for the template of a path that no route has, for another method, and for the role without a key.
UNKNOWN = "-"
_CLOSE = {"Connection": "close"}


class RequestLog:
    """Gives each request an id, logs it in one line, and answers errors that nothing else has caught.

    Answers get the request's id and `ANSWER_HEADERS`.

    A line has method, route template, status, milliseconds, request id and role: neither path nor query, which hold
    ids. Each of `listeners` is called with method, route, status, seconds and role. With OpenTelemetry each request is
    a span with method, route and status.
    """

    def __init__(self, app: ASGIApp, *listeners: Callable[[str, str, int, float, str], None]) -> None:
        self._app, self._listeners = app, listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope)
        sent_id = sent.get("x-request-id", "")
        request_id = sent_id if REQUEST_ID.fullmatch(sent_id) else secrets.token_hex(8)
        state = scope.setdefault("state", {})
        state["request_id"], state["headers"], begin, status = request_id, {}, perf_counter(), 0
        method = scope["method"] if scope["method"] in METHODS else UNKNOWN

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in {"X-Request-ID": request_id, **ANSWER_HEADERS, **state["headers"]}.items():
                    headers.setdefault(name, value)
            await send(message)

        with request_span(method, sent) as traced:
            try:
                await self._app(scope, receive, send_with_headers)
            except BaseException as error:  # noqa: BLE001  (the server would log a stack)
                problem = problem_of(as_exception(error))
                if not status:
                    await problem.response(request_id, scope["path"])(scope, receive, send_with_headers)
            route = getattr(scope.get("route"), "path_format", UNKNOWN)
            _describe(traced, method, route, status)
        seconds = perf_counter() - begin
        caller: Caller | None = state.get("caller")
        role = UNKNOWN if caller is None else caller.role
        for listener in self._listeners:
            listener(method, route, status, seconds, role)
        logger.info("%s %s %d %.1f ms %s %s", method, route, status, seconds * 1000, request_id, role)


def _describe(traced: Span, method: str, route: str, status: int) -> None:
    """Gives the span of a request its name and attributes."""
    known_route = None if route == UNKNOWN else route
    traced.set_attributes(
        **{"http.request.method": method, "http.route": known_route, "http.response.status_code": status or None}
    )
    if known_route is not None:
        traced.rename(f"{method} {route}")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        traced.fail()


class Hosts:
    """Refuses requests under another host name, which a web page can have pointed at this address (DNS rebinding), and
    those of pages of other origins, which a browser sends without asking and, if no key is needed, are answered.

    `origins` are those that may call, "*" all.
    """

    def __init__(self, app: ASGIApp, allowed: Iterable[str], origins: Iterable[str]) -> None:
        self._app, self._allowed = app, frozenset(name.lower() for name in (*allowed, *LOOPBACK))
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            address = headers.get("host", "").lower()
            if re.sub(r":\d+$", "", address) not in self._allowed:
                raise Problem(421, "This host name is not served here; add it to serve.allowed_hosts.")
            origin = headers.get("origin")
            if not (origin is None or "*" in self._origins or origin in self._origins or _is_of(origin, address)):
                raise Problem(403, "Pages of this origin may not call; add it to serve.cors_origins.", "other_origin")
        await self._app(scope, receive, send)


def _is_of(origin: str, address: str) -> bool:
    """Tells whether an origin is that of a host and port, over HTTP or, by a proxy in front, HTTPS."""
    return origin.lower() in {f"http://{address}", f"https://{address}"}


class Heads:
    """Refuses heads over the limits, and those that could be read in two ways, of which one may be that of a proxy in
    front.

    Those have two lengths of the body, percent-encoded bytes that are not UTF-8, which decoding would make other ids
    of, headers of `single` that are there twice, such as those with the key, and query parameters that are, unless
    `repeatable` has their names or `forwarded_paths` the path.
    """

    def __init__(
        self, app: ASGIApp, single: Iterable[str], repeatable: Iterable[str], forwarded_paths: Iterable[str]
    ) -> None:
        self._app, self._single = app, {name.lower(): name for name in single}
        self._repeatable, self._forwarded_paths = frozenset(repeatable), frozenset(forwarded_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            address = scope.get("raw_path", b"") + b"?" + scope["query_string"]
            _check_head(len(address), scope["headers"])
            _check_encoding(address)
            headers = (name.decode("latin-1").lower() for name, _ in scope["headers"])
            _refuse_repeated(self._single[name] for name in headers if name in self._single)
            if scope["path"] not in self._forwarded_paths:
                query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
                _refuse_repeated(name for name, _ in query if name not in self._repeatable)
        await self._app(scope, receive, send)


def _refuse_repeated(names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise Problem(400, f"{name[:40]}: is there {count} times; send it once", "invalid_argument")


def _check_head(address_bytes: int, headers: Collection[tuple[bytes, bytes]]) -> None:
    """Raises Problem for a head over a limit, which the server has read because it came at once, or with two lengths.

    The connection ends with the answer: where the next request begins is not sure (RFC 9112, 6.1).
    """
    size = address_bytes + sum(len(name) + len(value) for name, value in headers)
    if size > limits.MAX_HEAD_BYTES or len(headers) > limits.MAX_HEADERS:
        detail = f"The head has more than {limits.MAX_HEAD_BYTES} bytes or {limits.MAX_HEADERS} headers; send less."
        raise Problem(431, detail, headers=_CLOSE)
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}:
        detail = "Content-Length and Transfer-Encoding are both there; send the one that is true."
        raise Problem(400, detail, "two_lengths", _CLOSE)


def _check_encoding(address: bytes) -> None:
    try:
        unquote_to_bytes(address).decode()
    except UnicodeDecodeError:
        detail = "The address cannot be read: percent-encode its path and query as UTF-8."
        raise Problem(400, detail, "unreadable_address") from None


class BodyLimit:
    """Refuses a body over the limit, before it is read if its length is declared, and one that comes too slowly.

    `limit_of(path)` returns the most bytes of a body.
    """

    def __init__(self, app: ASGIApp, limit_of: Callable[[str], int]) -> None:
        self._app, self._limit_of = app, limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(receive, send, self._limit_of(scope["path"]))
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdigit() and int(length) > body.limit:
            raise body.too_large()
        try:
            await self._app(scope, body.receive, body.send)
        finally:
            # Also where the application has made an answer of its own of the refusal, which `send` has dropped.
            if body.refusal is not None and not body.is_answered:
                raise body.refusal


class _Body:
    """The body of one request, with a limit of its bytes and of the time for each part."""

    def __init__(self, receive: Receive, send: Send, limit: int) -> None:
        self._receive, self._send, self.limit = receive, send, limit
        self._size, self._is_read = 0, False
        self.is_answered = False
        self.refusal: Problem | None = None

    def too_large(self) -> Problem:
        return Problem(413, f"The body is larger than {self.limit} bytes; send less at a time.")

    async def receive(self) -> Message:
        if self._is_read:
            return await self._receive()  # waits until the client leaves
        try:
            message = await asyncio.wait_for(self._receive(), limits.BODY_SECONDS)
        except TimeoutError:
            self.refusal = Problem(408, f"No part of the body came for {limits.BODY_SECONDS:.0f} seconds.")
            raise self.refusal from None
        self._size += len(message.get("body", b""))
        self._is_read = not message.get("more_body", False)
        if self._size > self.limit:
            self.refusal = self.too_large()
            raise self.refusal
        return message

    async def send(self, message: Message) -> None:
        if self.refusal is None or self.is_answered:
            self.is_answered = True
            await self._send(message)


class Authentication:
    """Finds the caller of each request, before its body is read, and counts the request against the rate limits.

    Sets `caller`, and as `admission_seconds` the seconds that this took, in the request's state. Paths in `open_paths`,
    and those below the ones that end with "/", need no key. On `forwarded_paths` the key in `Authorization` may be that
    of an endpoint, beside ours. `adds(method, path)` tells requests that add memories.
    `on_refusal` is called with the status of each refusal. The requests of a user's keys that are under way at a time,
    streams among them, take at most `limits.CONNECTION_SHARE` of the connections.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        rate_limits: RateLimits,
        open_paths: Iterable[str],
        forwarded_paths: Iterable[str],
        adds: Callable[[str, str], bool],
        on_refusal: Callable[[int], None],
    ) -> None:
        self._app, self._authenticator, self._rate_limits = app, authenticator, rate_limits
        self._open_paths, self._forwarded_paths = tuple(open_paths), frozenset(forwarded_paths)
        self._adds, self._on_refusal = adds, on_refusal
        self._under_way = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]) and not _is_preflight(scope):
            try:
                caller = await self._admit(scope)
            except Problem as problem:
                self._on_refusal(problem.status)
                raise
            with self._counting(caller.user_id):
                await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    @contextmanager
    def _counting(self, user_id: str | None) -> Iterator[None]:
        """Counts a request under way of a user's key. Raises Problem 503 if there are as many as may be."""
        if user_id is None:  # the key of an admin, or of an application with many users
            yield
            return
        if self._under_way[user_id] >= limits.CONNECTION_SHARE * max_connections():
            detail = "Too many requests of this user are under way; try again in a second."
            raise Problem(503, detail, "overloaded", {"Retry-After": "1"})
        self._under_way[user_id] += 1
        try:
            yield
        finally:
            self._under_way[user_id] -= 1
            if not self._under_way[user_id]:
                del self._under_way[user_id]

    def _is_open(self, path: str) -> bool:
        return any(
            path == one or (one.endswith("/") and one != "/" and path.startswith(one)) for one in self._open_paths
        )

    async def _admit(self, scope: Scope) -> Caller:
        headers, begin = Headers(scope=scope), perf_counter()
        if scope["path"] not in self._forwarded_paths:
            refuse_two_keys(headers)
        text = sent_key(headers)
        caller = await self._authenticator.find(text)
        if caller is None:
            await self._rate_limits.count_refusal((scope.get("client") or ("",))[0])
            raise refusal(text)
        state: dict[str, Any] = scope["state"]
        state["caller"] = caller
        calling_user.set(caller.user_id)
        adds = self._adds(scope["method"], scope["path"])
        state["headers"].update(await self._rate_limits.count_request(caller.key_id, caller.rate, adds=adds))
        state["admission_seconds"] = perf_counter() - begin
        return caller


def _is_preflight(scope: Scope) -> bool:
    return scope["method"] == "OPTIONS" and "access-control-request-method" in Headers(scope=scope)
