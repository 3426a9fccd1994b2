"""The service as an ASGI application: REST, MCP at `/mcp`, health, and everything that a request passes before them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from graphmem import __version__
from graphmem.administration import prepare_searches
from graphmem.async_memory import AsyncMemory
from graphmem.chat_worker import ChatWorker
from graphmem.concurrency import Pool
from graphmem.errors import StoreError
from graphmem.logs import log_text
from graphmem.memory import Memory
from graphmem.queries.gauges import read_gauges
from graphmem.service import limits, problems
from graphmem.service.auth import Authenticator, sent_key
from graphmem.service.calls import CallPool
from graphmem.service.chat_settings import configured_settings
from graphmem.service.keys import Keys
from graphmem.service.mcp.http import USER_HEADER, Key, service_mcp_app
from graphmem.service.metrics import ServiceMetrics
from graphmem.service.middleware import (
    LOOPBACK,
    Authentication,
    BodyLimit,
    Compression,
    Heads,
    Hosts,
    RateLimits,
    RequestLog,
)
from graphmem.service.proxy.proxy import AGENT_HEADER, SESSION_HEADER, ChatProxy
from graphmem.service.proxy.routes import router as proxy_router
from graphmem.service.proxy.upstream import Upstream, configured_endpoint
from graphmem.service.rest.chats import router as chats_router
from graphmem.service.rest.dependencies import Service, refuse_unread
from graphmem.service.rest.events import router as events_router
from graphmem.service.rest.graph import router as graph_router
from graphmem.service.rest.health import metrics_router
from graphmem.service.rest.health import router as health_router
from graphmem.service.rest.lifecycle import router as lifecycle_router
from graphmem.service.rest.maintenance import router as maintenance_router
from graphmem.service.rest.mem0 import router as mem0_router
from graphmem.service.rest.mem0_admin import router as mem0_admin_router
from graphmem.service.rest.mem0_platform import router as mem0_platform_router
from graphmem.service.rest.memories import router as memories_router
from graphmem.service.rest.page import router as page_router
from graphmem.service.rest.settings import router as settings_router
from graphmem.service.rest.transfer import router as transfer_router
from graphmem.service.schemas import Mem0Fields
from graphmem.settings.schema import ServeSettings

logger = logging.getLogger("graphmem")

MCP_PATH = "/mcp"
OPEN_PATHS = ("/", "/healthz", "/readyz", "/openapi.json", "/ui/")
# Paths whose POST requests add memories: they have a rate limit of their own.
ADDING_PATHS = frozenset({"/memories", "/v3/memories/add/", "/chats/saved"})
# Headers that say who calls, and for whom, beside those that the settings of the proxy name.
CREDENTIALS = ("Authorization", "X-API-Key", USER_HEADER, AGENT_HEADER, SESSION_HEADER)
# In the order of the reference.
ROUTERS = (
    mem0_router,
    memories_router,
    lifecycle_router,
    chats_router,
    events_router,
    graph_router,
    settings_router,
    transfer_router,
    maintenance_router,
    mem0_admin_router,
    mem0_platform_router,
    proxy_router,
    health_router,
    metrics_router,
    page_router,
)
# Routers that take more than they read: the proxy's endpoint reads it, and watchers add queries against caches.
LENIENT = (proxy_router, health_router)
# Query parameters that may be there several times: lists, and those that are ignored.
REPEATABLE = frozenset({"kinds", *Mem0Fields.model_fields})


def service_app(
    memory: Memory, settings: ServeSettings | None = None, *, needs_key: bool = True, close_memory: bool = False
) -> ASGIApp:
    """Returns the service of an open memory.

    The server has to send it the events of its lifespan. Without `needs_key` everybody who reaches it is an admin.
    `close_memory`: the end of the application closes the memory.
    """
    settings = settings or ServeSettings()
    service = _open_service(memory, settings)
    authenticator = Authenticator(
        service.keys, admin_key=settings.admin_api_key, is_open=not needs_key, default_user=settings.default_user
    )
    hosts = [*LOOPBACK, settings.host, *settings.allowed_hosts]
    mcp = service_mcp_app(service.memory, _mcp_keys(authenticator), MCP_PATH)
    problems.answer_unexpected(mcp)
    rest = _rest_app(service, mcp, authenticator, close_memory=close_memory)
    app: ASGIApp = _Gate(Compression(rest, problems.OPENAI_PATHS), mcp, settings.default_user)
    forwarding = problems.OPENAI_PATHS if settings.proxy.forward_authorization else ()
    on_refusal = service.metrics.on_refusal
    app = Authentication(app, authenticator, RateLimits(settings), OPEN_PATHS, forwarding, _adds, on_refusal)
    app = BodyLimit(app, partial(_max_body_bytes, settings))
    names = (*CREDENTIALS, *settings.proxy.user_headers, *settings.proxy.session_headers)
    app = Heads(app, names, REPEATABLE, problems.OPENAI_PATHS)
    app = RequestLog(Hosts(app, hosts, settings.cors_origins), service.requests.note, service.metrics.on_request)
    if settings.cors_origins:
        # Without credentials, which no answer allows, "*" exposes every header: those of MCP, limits and request ids.
        app = CORSMiddleware(app, settings.cors_origins, ["*"], ["*"], expose_headers=["*"])
    return app


def _open_service(memory: Memory, settings: ServeSettings) -> Service:
    engine, proxy = memory.engine, settings.proxy
    pool = CallPool(settings.threads, settings.queue, limits.USER_SHARE)
    calls = AsyncMemory(sync=memory, executor=pool)
    chats = ChatWorker(memory, limits.RECALL_SECONDS, settings.threads)
    endpoint = configured_endpoint(proxy, engine.settings.llm)
    lifecycle = engine.settings.lifecycle.enabled
    metrics = ServiceMetrics(lambda: read_gauges(engine.ledger, engine.projections, lifecycle=lifecycle))
    engine.observers.add(metrics)
    return Service(
        memory=calls,
        pool=pool,
        exports=CallPool(limits.TRANSFERS, 0, 1 / limits.TRANSFERS),
        admin_transfers=CallPool(limits.TRANSFERS, 0),
        probes=Pool(1, thread_name_prefix="graphmem-probe"),
        keys=Keys(memory),
        chats=chats,
        chat_defaults=configured_settings(proxy),
        proxy=ChatProxy(calls, chats, proxy, metrics.on_recall, is_shared=settings.workers > 1),
        upstream=None if endpoint is None else Upstream(endpoint, proxy, settings.admin_api_key),
        settings=settings,
        metrics=metrics,
    )


def _adds(method: str, path: str) -> bool:
    return method == "POST" and path in ADDING_PATHS


def _max_body_bytes(settings: ServeSettings, path: str) -> int:
    if path == "/import":
        return limits.MAX_IMPORT_BYTES
    return settings.proxy.max_body_bytes if path in problems.OPENAI_PATHS else settings.max_body_bytes


def _rest_app(service: Service, mcp: Any, authenticator: Authenticator, *, close_memory: bool) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(mcp.router.lifespan_context(mcp))
            # Before the server takes requests: a recall would have no time left.
            await asyncio.to_thread(prepare_searches, service.engine)
            service.proxy.start()
            yield
        service.proxy.close()
        if service.upstream is not None:
            await service.upstream.close()
        # Before the pool and the memory, which storing the accepted chats needs.
        await asyncio.to_thread(service.chats.close, limits.CHATS_SECONDS)
        for pool in (service.exports, service.admin_transfers, service.pool):
            await asyncio.to_thread(pool.shutdown)
        service.probes.shutdown(wait=False)
        service.metrics.close()
        await asyncio.to_thread(authenticator.close)
        if close_memory:
            try:
                await asyncio.to_thread(service.memory.sync.close, wait=False)
            except StoreError as error:  # the end goes on: uvicorn would log a stack
                logger.error(  # noqa: TRY400
                    "the stores could not be closed (%s); what was stored is in the ledger; check that the home folder "
                    "can be written and its disk has space, then start again",
                    log_text(error),
                )

    app = FastAPI(
        title="graphmem",
        summary="Memory for agents.",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # FastAPI's own spans and logs hold paths with ids and texts of errors.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service = service
    problems.install(app)
    optional = [(metrics_router, service.settings.metrics), (page_router, service.settings.ui)]
    left_out = [router for router, is_served in optional if not is_served]
    for router in ROUTERS:
        if router not in left_out:
            app.include_router(router, dependencies=[] if router in LENIENT else [Depends(refuse_unread)])
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's way to change the document
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Returns the OpenAPI document with the schema of problems."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas["ProblemBody"] = problems.ProblemBody.model_json_schema()
        app.openapi_schema = document
    return app.openapi_schema


# For logs; the SDK has a route of its own.
_MCP_ROUTE = Route(MCP_PATH, endpoint=lambda _: None)


class _Gate:
    """Passes requests of MCP to its application, and all else to that of REST."""

    def __init__(self, rest: ASGIApp, mcp: ASGIApp, default_user: str | None) -> None:
        self._rest, self._mcp, self._default_user = rest, mcp, default_user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        is_mcp = path == MCP_PATH or path.startswith("/.well-known/oauth-protected-resource")
        if scope["type"] != "http" or not is_mcp:
            await self._rest(scope, receive, send)
            return
        scope["route"] = _MCP_ROUTE
        # The SDK reads `Authorization: Bearer` alone.
        headers = MutableHeaders(raw=list(scope["headers"]))
        headers["authorization"] = f"Bearer {sent_key(Headers(scope=scope)) or '-'}"
        if self._default_user is not None and scope["state"]["caller"].role == "admin":
            headers.setdefault(USER_HEADER, self._default_user)
        await self._mcp({**scope, "headers": headers.raw}, receive, send)


def _mcp_keys(authenticator: Authenticator) -> Any:
    async def find(text: str) -> Key | None:
        caller = await authenticator.find(text)
        return (
            None if caller is None or caller.role == "metrics" else Key(caller.key_id, caller.user_id, caller.agent_id)
        )

    return find
