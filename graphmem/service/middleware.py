"""What every request passes before it is routed, outermost first: `RequestLog`, `Hosts`, `Heads`, `BodyLimit`,
`Authentication`, which counts requests by `RateLimits`; and `Compression` of the answers.

Plain ASGI applications around another one, so that they do not hold up streams.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import logging
import math
import re
import secrets
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network
from time import perf_counter, time
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from limits import RateLimitItem, parse
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError
from limits.storage import storage_from_string
from pydantic import BaseModel
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphmem.concurrency import as_exception
from graphmem.logs import log_text
from graphmem.service import limits
from graphmem.service.auth import Authenticator, Caller, refusal, refuse_two_keys, sent_key
from graphmem.service.calls import calling_user
from graphmem.service.connections import max_connections
from graphmem.service.problems import Problem, problem_of
from graphmem.settings.schema import ServeSettings
from graphmem.stores.redis_options import redis_options
from graphmem.tracing import Span, request_span

logger = logging.getLogger("graphmem")
log = logging.getLogger("graphmem.requests")

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Headers of an answer that does not set them itself: none is kept by a cache, or taken for another type than it names.
ANSWER_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
# Stands in logs for the template of a path that no route has, for another method, and for the role without a key.
UNKNOWN = "-"
_CLOSE = {"Connection": "close"}
# Of 4 to 6, which make a graph of 781 kB 159, 151 and 149 kB: 8 ms, 15 and 22.
LEVEL = 4


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
        log.info("%s %s %d %.1f ms %s %s", method, route, status, seconds * 1000, request_id, role)


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
            if not (
                origin is None
                or "*" in self._origins
                or origin in self._origins
                or (origin.lower() in {f"http://{address}", f"https://{address}"})
            ):
                raise Problem(403, "Pages of this origin may not call; add it to serve.cors_origins.", "other_origin")
        await self._app(scope, receive, send)


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
            try:
                unquote_to_bytes(address).decode()
            except UnicodeDecodeError:
                detail = "The address cannot be read: percent-encode its path and query as UTF-8."
                raise Problem(400, detail, "unreadable_address") from None
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


class RateLimits:
    """Counts requests, in this process or in Redis. A Redis that does not answer limits nothing, with a warning.

    Raises ConfigError if it shall be Redis and its client is not installed.
    """

    def __init__(self, settings: ServeSettings) -> None:
        url, options = "async+memory://", {}
        if settings.redis_url is not None:
            url = f"async+{settings.redis_url.get_secret_value().removeprefix('async+')}"
            options = {"implementation": "redispy", "wrap_exceptions": True, **redis_options("serve.redis_url")}
        self._limiter = SlidingWindowCounterRateLimiter(storage_from_string(url, **options))
        self._request, self._add, self._refusal = map(parse, (settings.rate, settings.add_rate, limits.REFUSALS))

    async def count_request(self, key_id: str, rate: str | None, *, adds: bool) -> dict[str, str]:
        """Counts a request of a key, and returns the headers that tell what is left. Raises Problem 429.

        `rate` replaces the configured rate for all requests; `adds` counts it as one that adds memories, too.
        """
        headers = await self._hit(self._request if rate is None else parse(rate), "key", key_id)
        return await self._hit(self._add, "add", key_id) if adds else headers

    async def count_refusal(self, address: str) -> None:
        """Counts a request without a valid key. Raises Problem 429 for an address with too many.

        IPv6 addresses count by their /64: that is the least that a provider assigns, so whoever has one has all of it.
        """
        await self._hit(self._refusal, "refused", _counted_address(address))

    async def _hit(self, limit: RateLimitItem, *identifiers: str) -> dict[str, str]:
        try:
            is_allowed = await self._limiter.hit(limit, *identifiers)
            reset_at, remaining = await self._limiter.get_window_stats(limit, *identifiers)
        except StorageError as error:
            logger.warning("requests cannot be counted (%s)", log_text(error))
            return {}
        seconds = max(1, math.ceil(reset_at - time()))
        headers = {
            "RateLimit-Limit": str(limit.amount),
            "RateLimit-Remaining": str(remaining),
            "RateLimit-Reset": str(seconds),
        }
        if not is_allowed:
            raise Problem(429, f"At most {limit}; wait.", headers={**headers, "Retry-After": str(seconds)})
        return headers


def _counted_address(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:  # such as that of a Unix socket
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or ip_network((parsed.packed, 64), strict=False))


def takes_gzip(headers: Headers) -> bool:
    """Tells whether the client of a request names gzip among the encodings that it takes."""
    for encoding in headers.get("accept-encoding", "").lower().split(","):
        name, _, quality = encoding.partition(";")
        if name.strip() == "gzip":
            return re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", quality) is None
    return False


class Compression:
    """Compresses JSON answers from `limits.MIN_COMPRESSED_BYTES` on.

    Streams, other types, other statuses than 200 and answers of the paths `left_out` pass as they are, and at once.
    """

    def __init__(self, app: ASGIApp, left_out: Collection[str]) -> None:
        self._app, self._left_out = app, left_out

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._left_out:
            await self._app(scope, receive, send)
            return
        is_taken = takes_gzip(Headers(scope=scope))
        held: Message | None = None  # the head of an answer that may be compressed

        async def send_compressed(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_large_json(message):
                MutableHeaders(scope=message).add_vary_header("Accept-Encoding")
                if is_taken:
                    held = message
                    return
            if held is not None:
                head, held = held, None
                if not message.get("more_body", False):
                    body = await asyncio.to_thread(_padded_gzip, message.get("body", b""))
                    MutableHeaders(scope=head).update({"Content-Encoding": "gzip", "Content-Length": str(len(body))})
                    message = {**message, "body": body}
                await send(head)
            await send(message)

        await self._app(scope, receive, send_compressed)


def _is_large_json(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    return (
        start["status"] == 200  # noqa: PLR2004
        and headers.get("content-type") == "application/json"
        and "content-encoding" not in headers
        and int(headers.get("content-length", 0)) >= limits.MIN_COMPRESSED_BYTES
    )


def _padded_gzip(body: bytes) -> bytes:
    """Returns a body compressed, with a file name of random length in the header, which clients skip.

    An answer has words of several people: without it, how well it compresses would tell who sees its length whether
    words that he had stored are those of others.
    """
    target = io.BytesIO()
    name = "-" * secrets.randbelow(limits.MAX_PADDING_BYTES + 1)
    with gzip.GzipFile(name, "wb", LEVEL, target, mtime=0) as file:
        file.write(body)
    return target.getvalue()


class RequestItem(BaseModel):
    """One request: neither its path nor its query, which hold ids."""

    method: str
    route: str
    status: int
    latency_ms: float
    role: str
    at: datetime


class LatestRequests:
    """Keeps the latest `limits.MAX_REQUESTS` requests."""

    def __init__(self) -> None:
        self._items: deque[RequestItem] = deque(maxlen=limits.MAX_REQUESTS)

    def note(self, method: str, route: str, status: int, seconds: float, role: str) -> None:
        """Adds a request; a listener of `RequestLog`."""
        now, milliseconds = datetime.now(UTC), round(seconds * 1000, 1)
        self._items.append(
            RequestItem(method=method, route=route, status=status, latency_ms=milliseconds, role=role, at=now)
        )

    def newest(self, limit: int) -> list[RequestItem]:
        """Returns the latest requests, newest first."""
        return list(self._items)[: -limit - 1 : -1]
