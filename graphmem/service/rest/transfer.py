"""Routes that move memories from one ledger to another: export and import, as JSON Lines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import IO, Annotated, Any, cast

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from graphmem.logs import log_text
from graphmem.service import problems
from graphmem.service.auth import Caller
from graphmem.service.rest.dependencies import AdminParam, CallerParam, Service, ServiceParam
from graphmem.service.rest.streams import ResponseFile, body_file
from graphmem.service.schemas import Ids

logger = logging.getLogger("graphmem")

JSON_LINES = "application/x-ndjson"

router = APIRouter(tags=["export and import"], responses=problems.documented())


# --- export -----------------------------------------------------------------------------------------------------------


class ExportResponse(StreamingResponse):
    """The lines of an export, while it is made. One that fails breaks off: its last line is missing."""

    media_type = JSON_LINES

    def __init__(self, file: ResponseFile, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(chunks)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except Exception as error:  # noqa: BLE001  (the status is sent; the server closes the connection)
            logger.warning("an export broke off (%s)", log_text(error))
        finally:
            self._file.close()


@router.get("/export", response_class=ExportResponse, status_code=200)
async def export_memories(query: Annotated[Ids, Query()], caller: CallerParam, service: ServiceParam) -> ExportResponse:
    """Returns the memories of a scope with their history, entities and vectors as JSON Lines, which POST /import reads.

    An admin who names nobody gets the whole ledger, with settings, and keys without their secrets. The last line has a
    checksum: without it the export is incomplete.
    """
    ids = caller.scope(query.named(), required=False)
    file = ResponseFile()
    try:
        chunks = _exported(service, caller, file, ids)
        first = await anext(chunks)  # raises the error of an export that cannot begin
    except BaseException:
        file.close()
        raise
    return ExportResponse(file, _with_first(first, chunks))


async def _exported(service: Service, caller: Caller, file: ResponseFile, ids: dict[str, Any]) -> AsyncIterator[bytes]:
    memory, written = service.memory.sync, cast("IO[bytes]", file)
    exporting = asyncio.ensure_future(service.transfer(caller, memory.export, written, **ids))

    def finish(_: object) -> None:
        file.finish()
        if not exporting.cancelled():
            exporting.exception()  # nobody reads it if the client has left

    exporting.add_done_callback(finish)
    async for chunk in file.chunks():
        yield chunk
    await exporting


async def _with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


# --- import -----------------------------------------------------------------------------------------------------------


class ImportQuery(BaseModel):
    """How an export is imported."""

    model_config = ConfigDict(extra="forbid")

    restore: bool = Field(default=False, description="Also import memories that were erased here.")


class ImportAnswer(BaseModel):
    """Counts of the records of an export.

    Memories: `added`; `known`, which stay unchanged; `erased` here before; `refused` by the hook `before_store`.
    `tombstones`: erased memories of the export. `named`: aliases and names of entities. `skipped_links`: links to
    memories that are not here. `items`: exact values of adapters. `settings`: settings that were not set here. `keys`:
    valid keys that are not here; they are to be made anew. `unenriched`: memories still without vectors.
    `pending`: projections that do not have the memories yet.
    """

    added: int
    known: int
    erased: int
    refused: int
    tombstones: int
    named: int
    skipped_links: int
    items: int
    settings: int
    keys: int
    unenriched: int
    pending: list[str] = []


@router.post(
    "/import",
    response_model_exclude_unset=True,
    openapi_extra={"requestBody": {"required": True, "content": {JSON_LINES: {"schema": {"type": "string"}}}}},
)
async def import_memories(
    query: Annotated[ImportQuery, Query()], request: Request, caller: AdminParam, service: ServiceParam
) -> ImportAnswer:
    """Imports an export, with the memories of all its scopes, while it is sent.

    Memories and settings that are here already stay as they are, and no key is made. An error names the line and how
    many memories were added before it; these stay, and the import can be repeated.
    """
    body = body_file(request.stream())
    counts = await service.transfer(caller, service.memory.sync.import_, body, restore=query.restore)
    return ImportAnswer.model_validate(counts)
