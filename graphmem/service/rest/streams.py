"""Bodies of requests and responses as files, for calls of a memory that read or write them in a thread."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from threading import Semaphore
from time import monotonic
from typing import Any

from starlette.requests import ClientDisconnect

from graphmem.service import limits


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
