"""Forwards requests to the language model's endpoint, and its answers to the client, byte for byte as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from time import monotonic
from typing import NamedTuple

import anyio
import httpx2
from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from graphmem.logs import log_text
from graphmem.models.http import (
    CONNECT_SECONDS,
    NO_KEY,
    Endpoint,
    EndpointNames,
    mute_request_logs,
    resolve_endpoint,
)
from graphmem.service.auth import NO_KEY as NO_SERVICE_KEY
from graphmem.service.auth import Caller
from graphmem.service.keys import KEY_TEXT
from graphmem.service.problems import Problem
from graphmem.service.proxy.answers import AnswerReader
from graphmem.settings.schema import OpenaiLlm, ProxySettings
from graphmem.tracing import trace_headers

logger = logging.getLogger("graphmem")

# Seconds for which the list of models is kept, and for which it is waited.
MODELS_SECONDS, MODELS_TIME_LIMIT = 60.0, 30.0
STATUS_HEADER = "X-Graphmem"
# Headers of a connection, and those that tell who the client of the service is.
_CONNECTION = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade", "proxy-connection",
})  # fmt: skip
_NOT_SENT = _CONNECTION | {
    "host",
    "content-length",
    "authorization",
    "x-api-key",
    "cookie",
    "accept-encoding",
    "expect",
}
# Beginnings of headers that tell who talks.
_IDENTITIES = ("x-graphmem", "x-openwebui-", "x-forwarded-")
_NOT_RETURNED = _CONNECTION | {"date", "server", "set-cookie", "x-request-id"}


def configured_endpoint(proxy: ProxySettings, llm: OpenaiLlm | None) -> Endpoint | None:
    """Returns the endpoint of the proxy, by default that of the language model; None without either.

    Raises ConfigError for an unusable one.
    """
    if proxy.upstream_url is not None:
        names = EndpointNames("upstream_url", "upstream_key")
        return resolve_endpoint("serve.proxy", _text(proxy.upstream_key), _text(proxy.upstream_url), names)
    if llm is None:
        return None
    return resolve_endpoint("llm.config", _text(llm.config.api_key), _text(llm.config.openai_base_url))


def _text(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


class Outgoing(NamedTuple):
    """A request to the endpoint: its path below the endpoint's URL, with the query, and its body."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Upstream:
    """The endpoint of the language model, as the proxy's settings name it."""

    def __init__(self, endpoint: Endpoint, settings: ProxySettings) -> None:
        self._endpoint, self._forwards = endpoint, settings.forward_authorization
        names = (*settings.user_headers, *settings.session_headers)
        self._not_sent = _NOT_SENT | {name.lower() for name in names}
        self._models: tuple[httpx2.Response, float] | None = None
        # No limit for reading: a model may think for minutes. The client ends the request by leaving.
        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        # A redirect would send the words of a chat to another host, a cookie one user's session to another's requests.
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, follow_redirects=False, cookies=no_cookies)

    def headers_for(self, sent: Headers, caller: Caller) -> dict[str, str]:
        """Returns the headers of a request to the endpoint: those of the client, but with the endpoint's key.

        None has a key of the service or names its user; a `traceparent` names the span of this request. Raises Problem
        401 if the client's Authorization, which is to be sent on, is the service's key.
        """
        headers = {
            name: value
            for name, value in sent.items()
            if name not in self._not_sent and not name.startswith(_IDENTITIES) and not KEY_TEXT.search(value)
        }
        authorization = sent.get("authorization")
        if self._forwards and authorization is not None:
            is_our_key = caller.key_id != NO_SERVICE_KEY and "x-api-key" not in sent
            if is_our_key or KEY_TEXT.search(authorization):
                raise Problem(401, "Authorization is sent on to the endpoint; send the service's key as X-API-Key.")
            headers["authorization"] = authorization
        elif not self._forwards and self._endpoint.key != NO_KEY:
            headers["authorization"] = f"Bearer {self._endpoint.key}"
        credentials = {name.lower(): value for name, value in self._endpoint.headers.items()}
        return {**headers, **credentials, **trace_headers(), "accept-encoding": "identity"}

    def request(self, outgoing: Outgoing) -> httpx2.Request:
        """Returns a request for `open`."""
        url = self._endpoint.url + outgoing.path
        return self._client.build_request(
            outgoing.method, url, headers=dict(outgoing.headers), content=outgoing.body or None
        )

    async def open(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request and returns the answer, of which only the head is read. Raises httpx2.HTTPError."""
        with mute_request_logs():
            return await self._client.send(request, stream=True)

    async def models(self, outgoing: Outgoing) -> Response:
        """Returns the answer to the request for the models, which is kept for a minute if all clients have one key."""
        if self._models is not None and self._models[1] >= monotonic():
            return _copy(self._models[0])
        try:
            async with asyncio.timeout(MODELS_TIME_LIMIT):
                answer = await self.open(self.request(outgoing))
                await answer.aread()
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            return _unreachable(error)
        if answer.is_success and not self._forwards:
            self._models = answer, monotonic() + MODELS_SECONDS
        return _copy(answer)

    async def close(self) -> None:
        """Closes all connections."""
        await self._client.aclose()


class RedirectError(Exception):
    """The endpoint redirects to another address."""


class ForwardedAnswer(Response):
    """The endpoint's answer to a request, sent on while it comes.

    `status_line` is the header X-Graphmem. `on_answer` gets the text of an answer that the client got as a whole. A
    client that leaves ends the request to the endpoint.
    """

    def __init__(
        self,
        upstream: Upstream,
        outgoing: Outgoing,
        status_line: str = "",
        on_answer: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._upstream, self._outgoing = upstream, outgoing
        self._status_line, self._on_answer = status_line, on_answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        forwarding = asyncio.ensure_future(self._forward(scope, receive, send_and_note))
        leaving = asyncio.ensure_future(_until_left(receive))
        is_ending = False
        try:
            await asyncio.wait({forwarding, leaving}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the service ends, and this request took longer than it may then
            is_ending = True
        leaving.cancel()
        forwarding.cancel()
        with suppress(asyncio.CancelledError):
            await forwarding
        if is_ending and not is_started:
            await _failed(503, "The service ends; send the request again.", self._status_line)(scope, receive, send)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._upstream.open(self._upstream.request(self._outgoing))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            await _unreachable(error, self._status_line)(scope, receive, send)
            return
        try:
            if answer.has_redirect_location:  # the client would follow it, with the service's key
                await _unreachable(RedirectError(), self._status_line)(scope, receive, send)
            else:
                await self._send(answer, send)
        finally:
            # Also when the client has left, which cancels this task.
            with anyio.CancelScope(shield=True):
                await answer.aclose()

    async def _send(self, answer: httpx2.Response, send: Send) -> None:
        headers = [
            (name.lower(), value) for name, value in answer.headers.raw if name.lower().decode() not in _NOT_RETURNED
        ]
        if self._status_line:
            headers.append((STATUS_HEADER.lower().encode(), self._status_line.encode()))
        is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
        if is_stream:
            headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
        reader = AnswerReader(answer.headers)
        try:
            async for chunk in answer.aiter_raw():
                reader.feed(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:  # also if the client has left after "[DONE]", before the end of the response
            if self._on_answer is not None and answer.is_success and (text := reader.text()):
                self._on_answer(text)


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _copy(answer: httpx2.Response) -> Response:
    return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))


def _unreachable(error: Exception, status_line: str = "") -> Response:
    """Returns an error in OpenAI's form, which the client's SDK understands."""
    logger.warning("the endpoint of the language model could not be reached (%s)", log_text(error))
    detail = "The language model's endpoint cannot be reached; the service's log names the kind of the error."
    return _failed(502, detail, status_line)


def _failed(status: int, message: str, status_line: str) -> Response:
    body = {"message": message, "type": "upstream_unreachable", "param": None, "code": "upstream_unreachable"}
    return JSONResponse({"error": body}, status, {STATUS_HEADER: status_line} if status_line else None)
