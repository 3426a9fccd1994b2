"""The route of the metrics, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response

from graphmem.service import problems
from graphmem.service.metrics import MEDIA_TYPE
from graphmem.service.rest.dependencies import ServiceParam, WatcherParam

router = APIRouter(tags=["health"], responses=problems.documented())


@router.get("/metrics", response_class=PlainTextResponse)
async def get_metrics(_: WatcherParam, service: ServiceParam) -> Response:
    """Returns the metrics in the text format of Prometheus. The ledger is read at most every 15 seconds."""
    return Response(await service.metrics.text(), media_type=MEDIA_TYPE)
