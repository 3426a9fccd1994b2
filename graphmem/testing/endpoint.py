"""An OpenAI-compatible server on loopback for tests: it answers by a script, and records the requests.

Chat completions and text completions are answered whole, or as the events of a stream.
"""

from __future__ import annotations

import base64
import json
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from graphmem.testing.behaviours import Behaviour
from graphmem.testing.models import HashEmbedder
from graphmem.testing.server import Body, EndpointServer, Request

Trait: TypeAlias = Literal["json_schema", "json_object", "temperature", "top_p", "max_tokens", "dimensions"]
"""A feature of requests that a server may refuse."""

# Seconds between two checks of the server for `shutdown`.
_POLL_SECONDS = 0.02

# Errors in the words of DeepSeek, LM Studio, OpenAI and vLLM.
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


class ModelEndpoint:
    """An HTTP server with OpenAI's chat completions, transcriptions, embeddings and models, for tests.

        from graphmem.testing import ModelEndpoint, behaviours

        with ModelEndpoint([behaviours.rate_limited(0.1), behaviours.fenced('{"facts": []}')]) as endpoint:
            config = {"openai_base_url": endpoint.url, "api_key": "any"}
            with Memory.from_config({"llm": {"provider": "openai", "config": config}}) as memory:
                ...
            assert len(endpoint.requests) == 2

    Each chat request, retries included, is answered by the next behaviour of `script`; a string is a good answer with
    that content. After the last one, and for behaviours without content, the content is `default`: a string, or a
    function from the request's body to a string. A request with `stream` gets the same answer as a stream of chunks,
    errors excepted, one with `n` so many choices. The legacy /v1/completions is answered likewise, and a sound for
    /v1/audio/transcriptions, whose form is in the `raw` of its request, with the content as its text.

    `refuses` names response formats and parameters; a request with one of them gets HTTP 400 and leaves the script as
    it is. Embeddings are those of `HashEmbedder(dims)`: texts with common words are similar. A request may have at
    most `most_inputs` texts. `usage` counts four characters as a token, and reports up to `cached_tokens` of each
    prompt as cached. The server is reachable from this machine only.
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
        # Not the method as it is now: a test may replace it later.
        self._server = EndpointServer(lambda request: self.respond(request), self._closing)  # noqa: PLW0108
        self._thread: Thread | None = None
        self.then(*script)

    @property
    def url(self) -> str:
        """The base URL, for `openai_base_url` or OPENAI_BASE_URL."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def requests(self) -> list[Request]:
        """The requests so far, in order of arrival."""
        with self._lock:
            return list(self._requests)

    def then(self, *more: Behaviour | str) -> None:
        """Appends answers to the script."""
        with self._lock:
            self._script.extend(Behaviour(answer) if isinstance(answer, str) else answer for answer in more)

    def __enter__(self) -> Self:
        self._thread = Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="model-endpoint", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops the server and ends all connections, those of clients that wait for a silent answer as well.

        A second call does nothing.
        """
        self._closing.set()
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()
        self._server.end_connections()

    def respond(self, request: Request) -> tuple[Behaviour, Body]:
        """Records a request; returns behaviour and body of its response. Override it for answers beyond a script.

        The body of a stream is a list of its events, any other is JSON in bytes.
        """
        with self._lock:
            self._requests.append(request)
        if request.path in ("/v1/chat/completions", "/v1/completions"):
            return self._complete(request.body, chat=request.path == "/v1/chat/completions")
        if request.path == "/v1/audio/transcriptions":
            behaviour, content = self._next_content(request.body)
            error = behaviour.error
            return behaviour, to_json({"text": behaviour.change(content)} if error is None else {"error": dict(error)})
        if request.path == "/v1/embeddings":
            return self._embeddings(request.body)
        if request.path == "/v1/models":
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in self._models]
            return Behaviour(), to_json({"object": "list", "data": models})
        return _error(404, {"message": "no such path", "type": "invalid_request_error"})

    def _complete(self, body: Mapping[str, Any], *, chat: bool) -> tuple[Behaviour, Body]:
        response_format = body.get("response_format")
        traits = {response_format.get("type") if isinstance(response_format, dict) else None, *body}
        for trait in sorted(self._refuses & traits):
            return _error(400, _REFUSALS[trait])
        count = body.get("n") or 1
        if not isinstance(count, int) or count < 1:
            return _error(400, {"message": "n must be a positive number", "param": "n"})
        behaviour, content = self._next_content(body)
        if behaviour.error is not None:
            return behaviour, to_json({"error": dict(behaviour.error)})
        contents = [content, *behaviour.others, *[content] * (count - 1)][:count]
        changed = [behaviour.change(one) for one in contents]
        return behaviour, complete(body, behaviour, changed, self._cached_tokens, chat=chat)

    def _next_content(self, body: Mapping[str, Any]) -> tuple[Behaviour, str]:
        """Returns the next behaviour of the script, and the content of its answer, "" for an error."""
        with self._lock:
            behaviour = self._script.popleft() if self._script else Behaviour()
        if behaviour.error is not None:
            return behaviour, ""
        if behaviour.content is not None:
            return behaviour, behaviour.content
        return behaviour, self._default if isinstance(self._default, str) else self._default(body)

    def _embeddings(self, body: Mapping[str, Any]) -> tuple[Behaviour, bytes]:
        texts = body.get("input")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            return _error(400, {"message": "input must be a text, or texts, and none empty", "param": "input"})
        if len(texts) > self._most_inputs:
            return _error(422, {"message": f"batch size {len(texts)} > maximum allowed batch size {self._most_inputs}"})
        if "dimensions" in body and "dimensions" in self._refuses:
            return _error(400, _REFUSALS["dimensions"])
        embedder = HashEmbedder(body.get("dimensions") or self._dims)
        rows = [embedder.embed_query(text) for text in texts]
        as_base64 = body.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(row.astype("<f4").tobytes()).decode() if as_base64 else row.tolist(),
            }
            for index, row in enumerate(rows)
        ]
        tokens = sum(len(text) for text in texts) // 4 + 1
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return Behaviour(), to_json({"object": "list", "model": body.get("model"), "data": data, "usage": usage})


def _error(status: int, fields: Mapping[str, Any]) -> tuple[Behaviour, bytes]:
    return Behaviour(status=status), to_json(
        {"error": {"type": "BadRequestError", "param": None, "code": None, **fields}}
    )


# --- chat completions and text completions ---------------------------------------------------------------------------


def to_json(value: Any) -> bytes:
    """JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def complete(
    body: Mapping[str, Any], behaviour: Behaviour, contents: Sequence[str], cached_tokens: int, *, chat: bool
) -> bytes | list[bytes]:
    """The answer to a request's `body` with one choice for each of the contents: JSON, or (`stream`) a list of events.

    `chat` tells chat completions from text completions, which have neither reasoning, refusals nor tool calls.
    """
    streams = bool(body.get("stream"))
    head = {
        "id": "chatcmpl-test" if chat else "cmpl-test",
        "object": ("chat.completion.chunk" if streams else "chat.completion") if chat else "text_completion",
        "created": int(time.time()),
        "model": body.get("model"),
    }
    prompt_tokens = max(len(json.dumps(body.get("messages", body.get("prompt")), ensure_ascii=False)) // 4, 1)
    completion_tokens = -(-sum(len(content) for content in contents) // 4)
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": min(cached_tokens, prompt_tokens)},
    }
    if streams:
        return _write_events(body, behaviour, head, contents, usage, chat=chat)
    choices = [
        {
            "index": index,
            "finish_reason": behaviour.finish_reason,
            "logprobs": None,
            **({"message": _message(behaviour, content)} if chat else {"text": content}),
        }
        for index, content in enumerate(contents)
    ]
    return to_json({**head, "choices": choices, "usage": usage})


def _message(behaviour: Behaviour, content: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content or None, "refusal": behaviour.refusal}
    if behaviour.reasoning:
        message["reasoning_content"] = behaviour.reasoning
    if behaviour.tool_calls:
        message["tool_calls"] = [dict(call) for call in behaviour.tool_calls]
    return message


def _write_events(
    body: Mapping[str, Any],
    behaviour: Behaviour,
    head: Mapping[str, Any],
    contents: Sequence[str],
    usage: Mapping[str, Any],
    *,
    chat: bool,
) -> list[bytes]:
    """Events with one chunk each, in which the choices take turns; then usage, if it is asked for, and [DONE]."""
    options = body.get("stream_options")
    with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    by_choice = []
    for index, content in enumerate(contents):
        parts: list[dict[str, Any]]
        if chat:
            parts = [{"delta": delta} for delta in (*_deltas(behaviour, content), {})]
        else:
            parts = [{"text": piece} for piece in (*_cut(content, behaviour.chunks), "")]
        reasons = [None] * (len(parts) - 1) + [behaviour.finish_reason]
        by_choice.append(
            [
                {"index": index, **part, "logprobs": None, "finish_reason": reason}
                for part, reason in zip(parts, reasons, strict=True)
            ]
        )
    events = []
    for turn in zip_longest(*by_choice):
        for choice in turn:
            if choice is not None:
                chunk = {**head, "choices": [choice], **({"usage": None} if with_usage else {})}
                events.append(_event(to_json(chunk)))
                events += [f"{line}\n\n".encode() for line in behaviour.noise]
    if with_usage:
        events.append(_event(to_json({**head, "choices": [], "usage": usage})))
    return [*events, _event(b"[DONE]")]


def _deltas(behaviour: Behaviour, content: str) -> Iterator[dict[str, Any]]:
    """The deltas of a chat message before the one with the finish reason."""
    yield {"role": "assistant", "content": "" if content else None}
    for piece in _cut(behaviour.reasoning or "", behaviour.chunks):
        yield {"reasoning_content": piece}
    for piece in _cut(content, behaviour.chunks):
        yield {"content": piece}
    if behaviour.refusal:
        yield {"refusal": behaviour.refusal}
    for index, call in enumerate(behaviour.tool_calls):
        begun = {**call, "function": {**call["function"], "arguments": ""}}
        yield {"tool_calls": [{"index": index, **begun}]}
        for piece in _cut(call["function"]["arguments"], behaviour.chunks):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _cut(text: str, count: int) -> list[str]:
    """Cuts a text into `count` pieces of nearly the same length, but none empty."""
    count = min(count, len(text))
    return [text[len(text) * n // count : len(text) * (n + 1) // count] for n in range(count)]


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
