"""Whether the process runs and the memory answers, for whoever starts, watches and restarts it; and its metrics."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from graphmem.administration import needs_rebuild
from graphmem.errors import StoreError
from graphmem.service import limits, problems
from graphmem.service.metrics import MEDIA_TYPE
from graphmem.service.rest.dependencies import Service, ServiceParam, WatcherParam

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """`status` is "ok"."""

    status: str = "ok"


class Readiness(BaseModel):
    """`status` is "ready", "unavailable" (the ledger does not answer) or "needs_rebuild".

    "needs_rebuild": the ledger's vectors are of another embedder than the configured one, so that nothing is added and
    found before `graphmem rebuild`. `degraded` names the projections without which searches answer.
    """

    status: str
    degraded: list[str] = []


@router.get("/healthz")
async def healthz() -> Health:
    """Tells that the process answers."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "Not ready."}})
async def readyz(service: ServiceParam, response: Response) -> Readiness:
    """Tells whether the ledger answers and fits the embedder, and which projections are out of reach."""
    probe = asyncio.get_running_loop().run_in_executor(service.probes, _readiness, service)
    try:
        readiness = await asyncio.wait_for(probe, limits.PROBE_SECONDS)
    except TimeoutError:
        readiness = Readiness(status="unavailable")
    if readiness.status != "ready":
        response.status_code = 503
    return readiness


for path, endpoint in (("/healthz", healthz), ("/readyz", readyz)):  # programs that watch servers send HEAD
    router.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False)


def _readiness(service: Service) -> Readiness:
    engine = service.engine
    try:
        engine.check_open()
        status = "needs_rebuild" if needs_rebuild(engine) else "ready"
    except StoreError:
        return Readiness(status="unavailable")
    return Readiness(
        status=status, degraded=[worker.name for worker in engine.projection_workers if worker.is_unavailable]
    )


metrics_router = APIRouter(tags=["health"], responses=problems.documented())


@metrics_router.get("/metrics", response_class=PlainTextResponse)
async def get_metrics(_: WatcherParam, service: ServiceParam) -> Response:
    """Returns the metrics in the text format of Prometheus. The ledger is read at most every 15 seconds."""
    return Response(await service.metrics.text(), media_type=MEDIA_TYPE)
