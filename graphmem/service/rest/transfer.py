"""Routes that move memories from one ledger to another: export and import, as JSON Lines."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncIterator
from threading import Semaphore
from time import monotonic
from typing import IO, Annotated, Any, cast

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from graphmem.logs import log_text
from graphmem.service import limits, problems
from graphmem.service.auth import Caller
from graphmem.service.rest.dependencies import AdminParam, CallerParam, Service, ServiceParam
from graphmem.service.schemas import Ids
from graphmem.types import ImportResult

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


@router.post(
    "/import",
    openapi_extra={"requestBody": {"required": True, "content": {JSON_LINES: {"schema": {"type": "string"}}}}},
)
async def import_memories(
    query: Annotated[ImportQuery, Query()], request: Request, caller: AdminParam, service: ServiceParam
) -> ImportResult:
    """Imports an export, with the memories of all its scopes, while it is sent.

    Memories and settings that are here already stay as they are, and no key is made. An error names the line and how
    many memories were added before it; these stay, and the import can be repeated.
    """
    body = body_file(request.stream())
    return await service.transfer(caller, service.memory.sync.import_, body, restore=query.restore)


class ResponseFile:
    """A file that a thread writes and an event loop sends in chunks, of which few wait.

    `write` and `flush`, for the thread, raise BrokenPipeError once the client has left, takes nothing for
    `limits.STALL_SECONDS`, or has not taken all after `limits.EXPORT_SECONDS`. The rest is for the event loop: `chunks`
    yields what is written until `finish` is called, and after `close` the thread can write nothing more.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = Semaphore(limits.MAX_CHUNKS)
        self._is_closed = False
        self._deadline = monotonic() + limits.EXPORT_SECONDS
        self._buffer = bytearray()

    def write(self, data: bytes) -> None:
        """Writes bytes, and waits while `limits.MAX_CHUNKS` chunks wait for the client."""
        self._buffer += data
        if len(self._buffer) >= limits.CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Passes on what is written."""
        seconds = min(limits.STALL_SECONDS, self._deadline - monotonic())
        if seconds <= 0 or not self._room.acquire(timeout=seconds) or self._is_closed:
            raise BrokenPipeError
        chunk, self._buffer = bytes(self._buffer), bytearray()
        self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields the chunks in order."""
        while (chunk := await self._chunks.get()) is not None:
            self._room.release()
            yield chunk

    def finish(self) -> None:
        """Ends the chunks after those that are written."""
        self._chunks.put_nowait(None)

    def close(self) -> None:
        """Makes the thread's next write fail, and ends one that waits."""
        self._is_closed = True
        self._room.release()


class _BodyStream(io.RawIOBase):
    """The body of a request as a raw file. The parts are awaited in the event loop while the thread waits for them."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._parts = parts
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads up to the length of the buffer; 0 at the end. Raises EOFError if the client has left."""
        while not self._rest:
            part = asyncio.run_coroutine_threadsafe(self._next_part(), self._loop).result()
            if part is None:
                return 0
            self._rest = memoryview(part)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    async def _next_part(self) -> bytes | None:
        try:
            return await anext(self._parts, None)
        except ClientDisconnect:
            raise EOFError from None


def body_file(parts: AsyncIterator[bytes]) -> io.BufferedReader:
    """Returns the body of a request, given by its parts, as a file for a thread; to be called in the event loop.

    Reading raises what awaiting the parts raises, and EOFError if the client leaves before the end.
    """
    return io.BufferedReader(_BodyStream(parts), limits.READ_BYTES)
