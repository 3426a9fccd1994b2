"""A receiver of webhooks on this machine, which verifies each signature as the specification says."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple, Self

SECRET = "whsec_" + b64encode(bytes(range(32))).decode()


class Received(NamedTuple):
    """A request: its body, its headers, and whether its signature is that of `SECRET`."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    is_signed: bool


class Receiver:
    """Answers each request with the status that `answer` returns for it, by default 204."""

    def __init__(
        self,
        answer: Callable[[Received], int] = lambda _: 204,
        location: str = "",
        port: int = 0,
        retry_after: str = "",
    ) -> None:
        self.received: list[Received] = []
        self.answer, self.location = answer, location
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                one = Received(json.loads(body), dict(self.headers.items()), is_signed(self.headers, body))
                status = receiver.answer(one)
                receiver.received.append(one)
                self.send_response(status)
                if receiver.location:
                    self.send_header("Location", receiver.location)
                if retry_after:
                    self.send_header("Retry-After", retry_after)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?from=graphmem"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def ids(self) -> list[str]:
        """The ids of the events, in the order of the requests."""
        return [one.body["id"] for one in self.received]


def is_signed(headers: Mapping[str, str], body: bytes) -> bool:
    """Verifies a request: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(b64decode(SECRET.removeprefix("whsec_")), signed, sha256).digest()
    given = [one.removeprefix("v1,") for one in headers["webhook-signature"].split() if one.startswith("v1,")]
    return any(hmac.compare_digest(b64encode(digest).decode(), one) for one in given)
