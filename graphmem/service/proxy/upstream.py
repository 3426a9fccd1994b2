"""Forwards requests to the language model's endpoint, and its answers to the client, byte for byte as they come."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
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
from graphmem.service import limits
from graphmem.service.auth import NO_KEY as NO_SERVICE_KEY
from graphmem.service.auth import Caller
from graphmem.service.keys import PREFIX
from graphmem.service.problems import Problem
from graphmem.service.proxy.answers import AnswerReader, Saving
from graphmem.service.proxy.chat_body import without_members
from graphmem.settings.schema import OpenaiLlm, ProxySettings
from graphmem.tracing import trace_headers

logger = logging.getLogger("graphmem")

STATUS_HEADER = "X-Graphmem"
# Headers of a connection, and those that tell who the client of the service is.
_NOT_SENT = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade", "proxy-connection",
    "host", "content-length", "authorization", "x-api-key", "cookie", "accept-encoding", "expect",
    "forwarded", "x-real-ip",
})  # fmt: skip
# Beginnings of headers that tell who talks.
_IDENTITIES = ("x-graphmem", "x-openwebui-", "x-forwarded-")
# Headers of an answer that describe its body, and those that clients of OpenAI read: when to try again, and what is
# left of the endpoint's limits. Any other could change what a browser does with our origin, or our own headers.
_RETURNED = frozenset({
    "content-type", "content-language", "content-encoding",
    "retry-after", "retry-after-ms", "x-should-retry",
    "openai-model", "openai-processing-ms", "openai-version",
})  # fmt: skip
_RETURNED_BEGINNINGS = ("x-ratelimit-",)
# Members of a body that hold what people say, who may say anything.
_WORDS = frozenset({"messages", "input", "prompt"})


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

    def __init__(self, endpoint: Endpoint, settings: ProxySettings, admin_key: SecretStr | None = None) -> None:
        """`admin_key` is the service's key of the configuration, which does not look like those of the ledger."""
        self._endpoint, self._forwards = endpoint, settings.forward_authorization
        self._keys = KeyForms(_text(admin_key))
        names = (*settings.user_headers, *settings.session_headers)
        self._not_sent = _NOT_SENT | {name.lower() for name in names}
        self._models: tuple[Callable[[], Response], float] | None = None
        # A model may think for minutes. A client that leaves ends the request before.
        timeout = httpx2.Timeout(limits.UPSTREAM_SECONDS, connect=CONNECT_SECONDS)
        connections = httpx2.Limits(max_connections=None, max_keepalive_connections=32)
        # A redirect would send the words of a chat to another host, a cookie one user's session to another's requests.
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        self._client = httpx2.AsyncClient(
            timeout=timeout, limits=connections, follow_redirects=False, cookies=no_cookies
        )

    def headers_for(self, sent: Headers, caller: Caller) -> dict[str, str]:
        """Returns the headers of a request to the endpoint: those of the client, but with the endpoint's key.

        None has a key of the service or names its user; a `traceparent` names the span of this request. Raises Problem
        401 if the client's Authorization, which is to be sent on, is the service's key.
        """
        headers = {
            name: value
            for name, value in sent.items()
            if name not in self._not_sent and not name.startswith(_IDENTITIES) and not self._keys.are_in(value)
        }
        authorization = sent.get("authorization")
        if self._forwards and authorization is not None:
            is_our_key = caller.key_id != NO_SERVICE_KEY and "x-api-key" not in sent
            if is_our_key or self._keys.are_in(authorization):
                raise Problem(401, "Authorization is sent on to the endpoint; send the service's key as X-API-Key.")
            headers["authorization"] = authorization
        elif not self._forwards and self._endpoint.key != NO_KEY:
            headers["authorization"] = f"Bearer {self._endpoint.key}"
        credentials = {name.lower(): value for name, value in self._endpoint.headers.items()}
        return {**headers, **credentials, **trace_headers(), "accept-encoding": "identity"}

    def query_for(self, sent: str) -> str:
        """Returns the query of a request without the parameters that have a key of the service."""
        return "&".join(parameter for parameter in sent.split("&") if not self._keys.are_in(parameter))

    def check_body(self, body: bytes) -> None:
        """Raises Problem 400 for a body that has a key of the service elsewhere than in what people say."""
        text = body.decode("utf-8", "replace")
        if not self._keys.are_in(text):
            return
        if self._keys.are_in(without_members(text, _WORDS)):
            raise Problem(400, "The body has a key of the service, which must not reach the endpoint; leave it out.")

    def request(self, outgoing: Outgoing) -> httpx2.Request:
        """Returns a request for `open`."""
        url = self._endpoint.url + outgoing.path
        return self._client.build_request(
            outgoing.method, url, headers=dict(outgoing.headers), content=outgoing.body or None
        )

    @asynccontextmanager
    async def open(self, request: httpx2.Request) -> AsyncIterator[httpx2.Response]:
        """Sends a request and yields the answer, of which only the head is read.

        Raises httpx2.HTTPError, and UnusableAnswer for a status that no client may get.
        """
        with mute_request_logs():
            answer = await self._client.send(request, stream=True)
        try:
            # A client would follow a redirect with the service's key, and wait for more after an informational answer.
            if not (answer.is_success or answer.is_client_error or answer.is_server_error):
                raise UnusableAnswer
            yield answer
        finally:
            # Also when the client has left, which cancels this task.
            with anyio.CancelScope(shield=True):
                await answer.aclose()

    async def models(self, outgoing: Outgoing) -> Response:
        """Returns the answer to the request for the models, which is kept for a minute if all clients have one key."""
        if self._models is not None and self._models[1] >= monotonic():
            return self._models[0]()
        content = bytearray()
        try:
            async with asyncio.timeout(limits.MODELS_TIME_LIMIT), self.open(self.request(outgoing)) as answer:
                async for chunk in answer.aiter_bytes():
                    content += chunk
                    if len(content) > limits.MAX_MODELS_BYTES:
                        raise UnusableAnswer
        except (*_ERRORS, TimeoutError) as error:
            return _unreachable(error)
        headers = {name: value for name, value in _returned_headers(answer) if name != "content-encoding"}
        models = partial(Response, bytes(content), answer.status_code, headers)
        if answer.is_success and not self._forwards:
            self._models = models, monotonic() + limits.MODELS_SECONDS
        return models()

    async def close(self) -> None:
        """Closes all connections."""
        await self._client.aclose()


class UnusableAnswer(Exception):
    """The endpoint's answer is none that a client may get."""


# How the request to the endpoint fails.
_ERRORS = (httpx2.HTTPError, httpx2.InvalidURL, UnusableAnswer)


class ForwardedAnswer(Response):
    """The endpoint's answer to a request, sent on while it comes.

    `status_line` is the header X-Graphmem. `saving` stores the chat: the end of the answer waits for it. A client that
    leaves ends the request to the endpoint.
    """

    def __init__(
        self,
        upstream: Upstream,
        outgoing: Outgoing,
        status_line: str = "",
        saving: Saving | None = None,
    ) -> None:
        super().__init__()
        self._upstream, self._outgoing = upstream, outgoing
        self._status_line, self._saving = status_line, saving
        self._kept: str | None = None

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
        is_answered = False
        try:
            async with self._upstream.open(self._upstream.request(self._outgoing)) as answer:
                is_answered = True
                await self._send(answer, send)
        except _ERRORS as error:
            if is_answered:  # the client has the beginning of it; the connection ends
                raise
            await _unreachable(error, self._status_line)(scope, receive, send)

    async def _send(self, answer: httpx2.Response, send: Send) -> None:
        reader = AnswerReader(answer.headers)
        headers = _returned_headers(answer)
        if self._status_line:
            headers.append((STATUS_HEADER.lower(), self._status_line))
        if reader.is_stream:
            headers += [("cache-control", "no-cache"), ("x-accel-buffering", "no")]
        # The transfer encoding goes before a length beside it, which is wrong; some answers have no body at all.
        if "transfer-encoding" not in answer.headers and answer.status_code != HTTPStatus.NO_CONTENT:
            headers += [("content-length", value) for value in answer.headers.get_list("content-length")[:1]]
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": raw})
        # The part of an answer that ends it, for the client, waits until the chat is durable. In a stream that is the
        # one with a mark of the end, otherwise the last one.
        held, ends = b"", 0
        async for chunk in answer.aiter_raw():
            reader.feed(chunk)
            if not reader.is_stream:
                held, chunk = chunk, held  # noqa: PLW2901
            elif reader.ends > ends:
                ends = reader.ends
                await self._store(answer, reader)
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await self._store(answer, reader)
        await send({"type": "http.response.body", "body": held, "more_body": False})

    async def _store(self, answer: httpx2.Response, reader: AnswerReader) -> None:
        """Begins to store the text of the answer, and waits until the chat is durable, or cannot be."""
        if self._saving is None:
            return
        text = reader.text() if answer.is_success else None
        if text and text != self._kept and self._saving.keep is not None:
            self._kept = text
            self._saving.keep(text)
        await self._saving.finish()


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _returned_headers(answer: httpx2.Response) -> list[tuple[str, str]]:
    """Returns the headers of an answer that its client gets, by names in lower case. Their bytes stay as they are."""
    headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in answer.headers.raw]
    return [(name, value) for name, value in headers if name in _RETURNED or name.startswith(_RETURNED_BEGINNINGS)]


def _unreachable(error: Exception, status_line: str = "") -> Response:
    """Returns an error in OpenAI's form, which the client's SDK understands."""
    logger.warning("the endpoint of the language model could not be reached (%s)", log_text(error))
    detail = "The language model's endpoint cannot be reached; the service's log names the kind of the error."
    return _failed(502, detail, status_line)


def _failed(status: int, message: str, status_line: str) -> Response:
    body = {"message": message, "type": "upstream_unreachable", "param": None, "code": "upstream_unreachable"}
    return JSONResponse({"error": body}, status, {STATUS_HEADER: status_line} if status_line else None)


class KeyForms:
    """Finds the keys of the ledger, and the one of the configuration, in text, in JSON, percent-encoded, or both.

    Each text is read once, as it is: decoding one of 32 MiB, which anybody may send, takes seconds and a gigabyte.
    """

    def __init__(self, admin_key: str | None) -> None:
        digits = "|".join(["[0-9a-f]", *(form for digit in "0123456789abcdef" for form in _encoded(digit))])
        of_ledger = f"{_forms(f'{PREFIX}_')}(?:{digits}){{8}}{_forms('_')}"
        # One by one: each is looked for where one of its first characters stands.
        self._expressions = [re.compile(one) for one in (of_ledger, _forms(admin_key or "")) if one]

    def are_in(self, text: str) -> bool:
        """Tells whether a text has a key."""
        return any(expression.search(text) for expression in self._expressions)


def _forms(text: str) -> str:
    """Returns an expression for a text of which each character stands as it is or encoded."""
    return "".join(f"(?:{'|'.join([re.escape(character), *_encoded(character)])})" for character in text)


def _encoded(character: str) -> list[str]:
    """Returns expressions for a character in JSON, percent-encoded, and percent-encoded in JSON."""
    octets = "".join(f"{byte:02x}" for byte in character.encode())
    pairs = [f"{_digit(first)}{_digit(second)}" for first, second in zip(octets[::2], octets[1::2], strict=True)]
    encoded = r"(?:%|\\u0025)".join(pairs)
    forms = [_escape(character), f"%{encoded}", rf"\\u0025{encoded}"]
    if character in r"\"/":
        forms.append(rf"\\{re.escape(character)}")
    if character == " ":
        forms.append(r"\+")
    return forms


def _digit(digit: str) -> str:
    """Returns an expression for a hexadecimal digit, in upper or lower case, as it is or as JSON may write it."""
    cases = sorted({digit, digit.upper()})
    return f"(?:{'|'.join([*cases, *map(_escape, cases)])})"


def _escape(character: str) -> str:
    r"""Returns an expression for a character as JSON may write it, such as \u005f."""
    units = character.encode("utf-16-be")
    codes = (units[place : place + 2].hex() for place in range(0, len(units), 2))
    return "".join(r"\\u" + "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in code) for code in codes)
