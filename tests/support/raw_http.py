"""Requests as bytes on a socket, for those that no HTTP client sends."""

from __future__ import annotations

import json
import socket
from http.client import HTTPResponse
from typing import Any, NamedTuple

from support.waiting import TIMEOUT

JSON = {"Content-Type": "application/json"}


class Answer(NamedTuple):
    """A response; the names of its headers are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """Headers and body."""
        return f"{self.headers} {self.body.decode()}"

    def json(self) -> Any:
        return json.loads(self.body)


def head(method: str, target: str, headers: dict[str, str] | list[tuple[str, str]] = {}, length: int = 0) -> bytes:  # noqa: B006  (is not changed)
    """The head of a request that is the last of its connection, for a body of so many bytes (0: none)."""
    pairs = [*(headers.items() if isinstance(headers, dict) else headers)]
    if "host" not in {name.lower() for name, _ in pairs}:
        pairs.append(("Host", "localhost"))
    if length:
        pairs.append(("Content-Length", str(length)))
    pairs.append(("Connection", "close"))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def connect(address: str) -> socket.socket:
    """A connection to an address "http://host:port"."""
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), TIMEOUT)


def read_answer(wire: socket.socket, method: str = "GET") -> Answer:
    """Reads the next response, to a request of this method."""
    response = HTTPResponse(wire, method=method)
    response.begin()
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


def send_raw(address: str, *parts: bytes, method: str = "GET") -> Answer:
    """Sends bytes on a new connection and returns the first response."""
    with connect(address) as wire:
        for part in parts:
            wire.sendall(part)
        return read_answer(wire, method)
