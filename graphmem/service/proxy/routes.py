"""The paths of the proxy: chat completions with memory, and what passes through unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from fastapi import APIRouter, Request, Response

from graphmem.errors import ConfigError
from graphmem.service import problems
from graphmem.service.proxy.upstream import ForwardedAnswer, Outgoing, Upstream
from graphmem.service.rest.dependencies import CallerParam, Service, ServiceParam

CHAT_PATH = "/v1/chat/completions"
# Any JSON is taken: what it has to be, the endpoint says.
_ANY_BODY: dict[str, Any] = {"requestBody": {"content": {"application/json": {"schema": {}}}, "required": True}}
_ANY_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"description": "The endpoint's answer.", "content": {"application/json": {}, "text/event-stream": {}}},
    "default": {"description": "The endpoint's answer, whatever its status."},
}

router = APIRouter(tags=["proxy"], responses={**problems.documented(502), **_ANY_ANSWER})


@router.post(CHAT_PATH, openapi_extra=_ANY_BODY)
async def chat_completions(request: Request, caller: CallerParam, service: ServiceParam) -> Response:
    """Answers a chat by the configured endpoint, with memories of its user added, and stores the chat.

    The header X-Graphmem of the answer says what was recalled, or why nothing was.
    """
    upstream = _upstream(service)
    headers = upstream.headers_for(request.headers, caller)
    body, waited, begin = await request.body(), request.state.admission_seconds, perf_counter()
    upstream.check_body(body)
    prepared = await service.proxy.prepare(body, request.headers, caller, waited)
    service.metrics.on_chat(prepared.status_line, waited + perf_counter() - begin)
    outgoing = _outgoing(request, upstream, headers, prepared.body)
    return ForwardedAnswer(upstream, outgoing, prepared.status_line, prepared.saving)


@router.post("/v1/completions", openapi_extra=_ANY_BODY)
@router.post("/v1/embeddings", openapi_extra=_ANY_BODY)
async def pass_through(request: Request, caller: CallerParam, service: ServiceParam) -> Response:
    """Passes a request to the configured endpoint, unchanged."""
    upstream = _upstream(service)
    headers, body = upstream.headers_for(request.headers, caller), await request.body()
    upstream.check_body(body)
    return ForwardedAnswer(upstream, _outgoing(request, upstream, headers, body))


@router.get("/v1/models")
async def models(request: Request, caller: CallerParam, service: ServiceParam) -> Response:
    """Returns the models of the configured endpoint. The list may be a minute old."""
    upstream = _upstream(service)
    headers = upstream.headers_for(request.headers, caller)
    return await upstream.models(_outgoing(request, upstream, headers, b""))


def _upstream(service: Service) -> Upstream:
    """Returns the endpoint. Raises ConfigError."""
    if service.upstream is None:
        raise ConfigError("serve.proxy.upstream_url: is not set, nor llm; name the endpoint that answers chats")
    return service.upstream


def _outgoing(request: Request, upstream: Upstream, headers: Mapping[str, str], body: bytes) -> Outgoing:
    query = upstream.query_for(request.url.query)
    path = request.url.path.removeprefix("/v1") + (f"?{query}" if query else "")
    return Outgoing(request.method, path, headers, body)
