"""The routers of the service, in the order of the reference."""

from __future__ import annotations

from graphmem.service.proxy import routes as proxy
from graphmem.service.rest import (
    chats,
    events,
    graph,
    health,
    lifecycle,
    maintenance,
    mem0,
    mem0_admin,
    mem0_platform,
    memories,
    page,
    settings,
    transfer,
)

ROUTERS = (
    mem0.router,
    memories.router,
    lifecycle.router,
    chats.router,
    events.router,
    graph.router,
    settings.router,
    transfer.router,
    maintenance.router,
    mem0_admin.router,
    mem0_platform.router,
    proxy.router,
    health.router,
    health.metrics_router,
    page.router,
)
