"""The HTTP server of a `ModelEndpoint`: reads requests, sends answers whole or as a stream, notices who hangs up."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, TypeAlias, cast

from graphmem.testing.behaviours import Behaviour

Body: TypeAlias = bytes | list[bytes]
"""The body of a response: bytes are JSON, a list has the events of a stream."""

# Seconds to wait for the end of a connection's thread.
_JOIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request: `path` such as "/v1/chat/completions", `headers` by lower-case names, the JSON `body`.

    `raw` has the bytes of the body as they came. `abandoned` is set as soon as the client closes the connection before
    the whole answer was sent, also during a pause or silence; closing the endpoint does not set it.
    """

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    method: str = "POST"
    raw: bytes = b""
    abandoned: Event = field(default_factory=Event, repr=False, compare=False)


class EndpointServer(ThreadingHTTPServer):
    """Answers each request with `respond(request)`, on a free port of 127.0.0.1. `closing` is set before its end."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, respond: Callable[[Request], tuple[Behaviour, Body]], closing: Event) -> None:
        self.respond = respond
        self.closing = closing
        self._connections: dict[Thread, socket.socket] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for a connection."""
        thread = Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="model-endpoint-connection",
            daemon=True,
        )
        self._connections = {other: sock for other, sock in self._connections.items() if other.is_alive()}
        self._connections[thread] = request
        thread.start()

    def end_connections(self) -> None:
        """Closes connections that clients keep alive, and ends their threads. To be called after `server_close`."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            with suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)
        for thread in connections:
            thread.join(_JOIN_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints an error of a connection, unless the client ended it."""
        if not isinstance(sys.exc_info()[1], ConnectionError):  # tests make clients give up
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answers a request without a body."""
        self._answer(b"")

    def do_POST(self) -> None:
        """Answers a request with a JSON body; any other body counts as {}."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            return
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # a trailer
        self._answer(b"".join(chunks))

    def log_message(self, *_: Any) -> None:
        """Logs nothing, to keep the output of tests clean."""

    def _answer(self, raw: bytes) -> None:
        server = cast("EndpointServer", self.server)
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        request = Request(
            path=self.path.partition("?")[0].rstrip("/"),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body if isinstance(body, dict) else {},
            method=self.command,
            raw=raw,
        )
        behaviour, answer = server.respond(request)
        try:
            self._send(behaviour, answer)
        except ConnectionError:
            self.close_connection = True
            if not server.closing.is_set():
                request.abandoned.set()

    def _send(self, behaviour: Behaviour, body: Body) -> None:
        self._wait(behaviour.delay)
        if behaviour.end == "silent":
            self._wait(None)
        sent = body[: {"whole": len(body), "empty": 0}.get(behaviour.end, len(body) // 2)]
        # The others announce more than they send.
        ends_well = behaviour.end in ("whole", "empty", "unfinished")
        streams = isinstance(body, list)
        self.send_response(behaviour.status)
        own = {"Content-Type": "text/event-stream; charset=utf-8" if streams else "application/json"}
        for name, value in {**own, **behaviour.headers}.items():
            self.send_header(name, value)
        if streams:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(sent if ends_well else body)))
        self.end_headers()
        if isinstance(sent, bytes):
            self.wfile.write(sent)
        else:
            self._send_events(sent, behaviour.pause, ends_well=ends_well)
        if behaviour.end == "stalled":
            self._wait(None)
        if behaviour.end == "dropped":
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def _send_events(self, events: list[bytes], pause: float, *, ends_well: bool) -> None:
        """Sends each event at once, as one chunk of HTTP, and with the last event the end of the response.

        A client that closes the connection after the last event thus abandons nothing.
        """
        chunks = [b"%x\r\n%s\r\n" % (len(event), event) for event in events]
        if ends_well:
            chunks = [*chunks[:-1], b"".join([*chunks[-1:], b"0\r\n\r\n"])]
        for number, chunk in enumerate(chunks):
            self._wait(pause if number else 0.0)
            self.wfile.write(chunk)

    def _wait(self, seconds: float | None) -> None:
        """Waits so many seconds, or (None) without limit.

        Raises ConnectionAbortedError as soon as the client closes the connection, even if for sending only, or the
        endpoint is closed.
        """
        self.connection.settimeout(seconds)
        try:
            # Returns at once if the connection is closed (b""), or if the client's next request is there already.
            more = self.connection.recv(1, socket.MSG_PEEK)
        except (TimeoutError, BlockingIOError):
            return
        finally:
            self.connection.settimeout(None)
        if not more or cast("EndpointServer", self.server).closing.wait(seconds):
            raise ConnectionAbortedError
