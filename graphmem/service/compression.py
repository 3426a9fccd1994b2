"""Answers compressed with gzip, for clients that take it."""

from __future__ import annotations

import asyncio
import gzip
import io
import re
import secrets
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphmem.service import limits

# Of 4 to 6, which make a graph of 781 kB 159, 151 and 149 kB: 8 ms, 15 and 22.
LEVEL = 4


def takes_gzip(headers: Headers) -> bool:
    """Tells whether the client of a request names gzip among the encodings that it takes."""
    for encoding in headers.get("accept-encoding", "").lower().split(","):
        name, _, quality = encoding.partition(";")
        if name.strip() == "gzip":
            return re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", quality) is None
    return False


class Compression:
    """Compresses JSON answers from `limits.MIN_COMPRESSED_BYTES` on.

    Streams, other types, other statuses than 200 and answers of the paths `left_out` pass as they are, and at once.
    """

    def __init__(self, app: ASGIApp, left_out: Collection[str]) -> None:
        self._app, self._left_out = app, left_out

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._left_out:
            await self._app(scope, receive, send)
            return
        is_taken = takes_gzip(Headers(scope=scope))
        held: Message | None = None  # the head of an answer that may be compressed

        async def send_compressed(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_large_json(message):
                MutableHeaders(scope=message).add_vary_header("Accept-Encoding")
                if is_taken:
                    held = message
                    return
            if held is not None:
                head, held = held, None
                if not message.get("more_body", False):
                    body = await asyncio.to_thread(_padded_gzip, message.get("body", b""))
                    MutableHeaders(scope=head).update({"Content-Encoding": "gzip", "Content-Length": str(len(body))})
                    message = {**message, "body": body}
                await send(head)
            await send(message)

        await self._app(scope, receive, send_compressed)


def _is_large_json(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    return (
        start["status"] == 200  # noqa: PLR2004
        and headers.get("content-type") == "application/json"
        and "content-encoding" not in headers
        and int(headers.get("content-length", 0)) >= limits.MIN_COMPRESSED_BYTES
    )


def _padded_gzip(body: bytes) -> bytes:
    """Returns a body compressed, with a file name of random length in the header, which clients skip.

    An answer has words of several people: without it, how well it compresses would tell who sees its length whether
    words that he had stored are those of others.
    """
    target = io.BytesIO()
    name = "-" * secrets.randbelow(limits.MAX_PADDING_BYTES + 1)
    with gzip.GzipFile(name, "wb", LEVEL, target, mtime=0) as file:
        file.write(body)
    return target.getvalue()
