"""The files of the page at `/ui/`, and whose key a request carries, which the page shows."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from graphmem.service import problems
from graphmem.service.middleware import takes_gzip
from graphmem.service.problems import Problem
from graphmem.service.rest.dependencies import CallerParam

INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
UI = files("graphmem.service") / "ui"
# The style sheets that bundled libraries put into the page, by their hashes.
LIBRARY_STYLES = [
    f"'{style}'"
    for entry in json.loads((UI / "vendor" / "manifest.json").read_text("utf-8")).values()
    for style in entry.get("styles", [])
]
# The page loads nothing from elsewhere, runs no script and no style that is in its markup, and is in no frame.
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {' '.join(LIBRARY_STYLES)}; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Browsers ask each time, and get 304 unless the file has changed: a new version is never mixed with an old one.
    "Cache-Control": "no-cache",
}

router = APIRouter(tags=["page"], responses=problems.documented())


class _File(NamedTuple):
    """A file as it is and compressed. The ETag of the compressed one ends with the name of the encoding."""

    content: bytes
    compressed: bytes
    media_type: str
    digest: str

    def etag(self, *, is_compressed: bool) -> str:
        return f'"{self.digest}{"-gzip" if is_compressed else ""}"'


@cache
def page_files() -> Mapping[str, _File]:
    """Returns the files of the page by their paths below `/ui/`, compressed once, at the first request."""
    found: dict[str, _File] = {}

    def read(folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            path = f"{prefix}{entry.name}"
            if entry.is_dir():
                read(entry, f"{path}/")
            elif media_type := MEDIA_TYPES.get(PurePosixPath(path).suffix):
                content = entry.read_bytes()
                digest = hashlib.sha256(content).hexdigest()[:32]
                found[path] = _File(content, gzip.compress(content, mtime=0), media_type, digest)

    read(UI, "")
    return found


@router.get(
    "/ui/{path:path}",
    response_class=Response,
    responses={
        200: {"content": {media_type: {} for media_type in MEDIA_TYPES.values()}},
        304: {"description": "The file has not changed since the answer with this ETag."},
        **problems.documented(404),
    },
)
async def get_page_file(path: str, request: Request) -> Response:
    """Returns a file of the page; that of the empty path is its document. Needs no key."""
    file = page_files().get(path or INDEX)
    if file is None:
        raise Problem(404, "The page has no such file; it begins at /ui/.", "no_such_path")
    is_compressed = takes_gzip(request.headers)
    etag = file.etag(is_compressed=is_compressed)
    headers = {**HEADERS, "ETag": etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    if is_compressed:
        headers["Content-Encoding"] = "gzip"
    return Response(file.compressed if is_compressed else file.content, media_type=file.media_type, headers=headers)


class CallerAnswer(BaseModel):
    """The role of a key, and the user and the agent that it is bound to.

    `default_user` is the user of an admin's requests that name nobody.
    """

    role: str
    user_id: str | None
    agent_id: str | None
    default_user: str | None


@router.get("/caller")
async def get_caller(caller: CallerParam) -> CallerAnswer:
    """Returns whose key the request carries."""
    return CallerAnswer(
        role=caller.role, user_id=caller.user_id, agent_id=caller.agent_id, default_user=caller.default_user
    )
