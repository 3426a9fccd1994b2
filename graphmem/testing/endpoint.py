"""An OpenAI-compatible server on loopback, for tests: it answers as it is told to, and remembers what it was asked."""

from __future__ import annotations

import base64
import json
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, cast

from graphmem.testing.behaviours import Behaviour
from graphmem.testing.models import HashEmbedder

Trait: TypeAlias = Literal["json_schema", "json_object", "temperature", "top_p", "max_tokens", "dimensions"]
"""What a server may refuse in a request."""

_POLL = 0.02
# Seconds that a connection's thread is waited for.
_PATIENCE = 5.0

# As DeepSeek, LM Studio, OpenAI and vLLM put it.
_REFUSALS: Mapping[str, Mapping[str, Any]] = {
    "json_schema": {"message": "This response_format type is unavailable now", "type": "invalid_request_error"},
    "json_object": {"message": "'response_format.type' must be 'json_schema' or 'text'"},
    "temperature": {
        "message": "Unsupported value: 'temperature' does not support this value with this model. Only the default (1) "
        "value is supported.",
        "param": "temperature",
        "code": "unsupported_value",
    },
    "top_p": {
        "message": "Unsupported parameter: 'top_p' is not supported with this model.",
        "param": "top_p",
        "code": "unsupported_parameter",
    },
    "max_tokens": {
        "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
        "instead.",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    },
    "dimensions": {
        "message": "Model does not support matryoshka representation, changing output dimensions will lead to poor "
        "results."
    },
}


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent: `path` such as "/v1/chat/completions", `headers` by names in lower case, the JSON `body`."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


class ModelEndpoint:
    """A real HTTP server that speaks /v1/chat/completions, /v1/embeddings and /v1/models, for testing what uses models.

        from graphmem.testing import ModelEndpoint, behaviours

        with ModelEndpoint([behaviours.rate_limited(0.1), behaviours.fenced('{"facts": []}')]) as endpoint:
            config = {"openai_base_url": endpoint.url, "api_key": "any"}
            with Memory.from_config({"llm": {"provider": "openai", "config": config}}) as memory:
                ...
            assert len(endpoint.requests) == 2

    Chat requests are answered by `script`, one behaviour for each (a string: that content, well), tried-again requests
    included. When it is used up, and where a behaviour has no content, `default` writes the content: a string, or a
    function of the request's body.

    `refuses`: kinds of answers and parameters that requests are refused for (HTTP 400), which uses up nothing of the
    script. Embeddings are those of `HashEmbedder(dims)`: texts that share words are near; `most_inputs` texts at most.
    `usage` counts four characters as a token, `cached_tokens` of a prompt as read before. Nothing but this machine can
    reach it. Streaming is not spoken.
    """

    def __init__(
        self,
        script: Iterable[Behaviour | str] = (),
        *,
        default: str | Callable[[Mapping[str, Any]], str] = "{}",
        refuses: Collection[Trait] = (),
        dims: int = 64,
        most_inputs: int = 2048,
        cached_tokens: int = 0,
        models: Iterable[str] = ("test-model",),
    ) -> None:
        self._script: deque[Behaviour] = deque()
        self._default = default
        self._refuses = frozenset(refuses)
        self._dims = dims
        self._most_inputs = most_inputs
        self._cached_tokens = cached_tokens
        self._models = tuple(models)
        self._lock = Lock()
        self._requests: list[Request] = []
        self._closing = Event()
        self._server = _Server(self)
        self._thread: Thread | None = None
        self.then(*script)

    @property
    def url(self) -> str:
        """The base URL, for `openai_base_url` or OPENAI_BASE_URL."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def requests(self) -> list[Request]:
        """What was asked so far, in the order it came."""
        with self._lock:
            return list(self._requests)

    def then(self, *more: Behaviour | str) -> None:
        """Adds to the script."""
        with self._lock:
            self._script.extend(Behaviour(one) if isinstance(one, str) else one for one in more)

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, args=(_POLL,), name="model-endpoint", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops answering, also those who wait for an answer that never comes, and ends every connection.

        A second call does nothing.
        """
        self._closing.set()
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()
        self._server.end_connections()

    def respond(self, request: Request) -> tuple[Behaviour, bytes]:
        """How a request is answered, and with what body. To be overridden for what scripts cannot say."""
        with self._lock:
            self._requests.append(request)
        if request.path == "/v1/chat/completions":
            return self._chat(request.body)
        if request.path == "/v1/embeddings":
            return self._embeddings(request.body)
        if request.path == "/v1/models":
            listed = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in self._models]
            return Behaviour(), _json({"object": "list", "data": listed})
        return _error(404, {"message": "no such path", "type": "invalid_request_error"})

    def wait(self, seconds: float | None) -> None:
        """Waits, at most until the endpoint is closed. None: until then."""
        self._closing.wait(seconds)

    def _chat(self, body: Mapping[str, Any]) -> tuple[Behaviour, bytes]:
        form = body.get("response_format")
        kinds = {form.get("type") if isinstance(form, dict) else None, *body}
        for trait in sorted(self._refuses & kinds):
            return _error(400, _REFUSALS[trait])
        with self._lock:
            behaviour = self._script.popleft() if self._script else Behaviour()
        if behaviour.error is not None:
            return behaviour, _json({"error": dict(behaviour.error)})
        written = behaviour.content
        if written is None:
            written = self._default if isinstance(self._default, str) else self._default(body)
        content = behaviour.change(written)
        message = {"role": "assistant", "content": content or None, "refusal": behaviour.refusal}
        sent = max(len(json.dumps(body.get("messages"), ensure_ascii=False)) // 4, 1)
        made = -(-len(content) // 4)
        answer = {
            "id": "chatcmpl-test",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model"),
            "choices": [
                {"index": 0, "finish_reason": behaviour.finish_reason, "logprobs": None, "message": message},
            ],
            "usage": {
                "prompt_tokens": sent,
                "completion_tokens": made,
                "total_tokens": sent + made,
                "prompt_tokens_details": {"cached_tokens": min(self._cached_tokens, sent)},
            },
        }
        return behaviour, _json(answer)

    def _embeddings(self, body: Mapping[str, Any]) -> tuple[Behaviour, bytes]:
        given = body.get("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            return _error(400, {"message": "input must be a text, or texts, and none empty", "param": "input"})
        if len(texts) > self._most_inputs:
            return _error(422, {"message": f"batch size {len(texts)} > maximum allowed batch size {self._most_inputs}"})
        if "dimensions" in body and "dimensions" in self._refuses:
            return _error(400, _REFUSALS["dimensions"])
        embedder = HashEmbedder(body.get("dimensions") or self._dims)
        rows = [embedder.embed_query(text) for text in texts]
        packed = body.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(row.astype("<f4").tobytes()).decode() if packed else row.tolist(),
            }
            for index, row in enumerate(rows)
        ]
        tokens = sum(len(text) for text in texts) // 4 + 1
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return Behaviour(), _json({"object": "list", "model": body.get("model"), "data": data, "usage": usage})


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _error(status: int, told: Mapping[str, Any]) -> tuple[Behaviour, bytes]:
    return Behaviour(status=status), _json({"error": {"type": "BadRequestError", "param": None, "code": None, **told}})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self.endpoint = endpoint
        self._connections: dict[Thread, socket.socket] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="model-endpoint-connection",
            daemon=True,
        )
        self._connections = {one: there for one, there in self._connections.items() if one.is_alive()}
        self._connections[thread] = request
        thread.start()

    def end_connections(self) -> None:
        """Ends those that clients keep alive, and their threads. Not while new ones are taken."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            with suppress(OSError):  # it is over
                connection.shutdown(socket.SHUT_RDWR)
        for thread in connections:
            thread.join(_PATIENCE)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients that give up are what is tested
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answers what has no body."""
        self._answer({})

    def do_POST(self) -> None:
        """Answers what has one."""
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        except ValueError:
            body = None
        self._answer(body if isinstance(body, dict) else {})

    def log_message(self, *_: Any) -> None:
        """Says nothing: tests have their own output."""

    def _answer(self, body: Mapping[str, Any]) -> None:
        endpoint = cast("_Server", self.server).endpoint
        headers = {name.lower(): value for name, value in self.headers.items()}
        behaviour, content = endpoint.respond(Request(self.path.partition("?")[0].rstrip("/"), headers, body))
        if behaviour.delay:
            endpoint.wait(behaviour.delay)
        if behaviour.end == "silent":
            endpoint.wait(None)
            self.close_connection = True
            return
        content = b"" if behaviour.end == "empty" else content
        self.send_response(behaviour.status)
        for name, value in {"Content-Type": "application/json", **behaviour.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if behaviour.end == "dropped":
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(content)
