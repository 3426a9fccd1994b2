"""Answers of a `ModelEndpoint` to chat requests: good ones, and the faults that language models have.

Most functions are named after a fault, and return an answer that has it. Their argument `content` is the content of the
answer before the fault is applied, by default the endpoint's `default`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


def _unchanged(content: str) -> str:
    return content


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One answer to a chat request. The functions of this module return the usual ones.

    `content` is the assistant's message (None: the endpoint's `default`). `others` are the contents of the second and
    further choices of a request with `n`; choices beyond these repeat `content`. `change` rewrites every content.
    `reasoning` is sent in the field `reasoning_content`. Each of `tool_calls` is {"id", "type", "function": {"name",
    "arguments"}}. `delay` is in seconds, before anything is sent. `error` is the body of an error response, sent with
    `status` and `headers`.

    A stream has the content in at most `chunks` deltas; the same holds for the reasoning and for the arguments of each
    tool call. `pause` is in seconds, between two events. Each line of `noise` follows each chunk as an event.

    `end` is "whole", "empty" (no body), "unfinished" (half of the body, as if that were all), "dropped" (half of the
    body, then the connection is closed), "stalled" (half of the body, then nothing until the client leaves or the
    endpoint is closed) or "silent" (no response until then). Half of a stream is half of its events.
    """

    content: str | None = None
    change: Callable[[str], str] = _unchanged
    finish_reason: str = "stop"
    refusal: str | None = None
    delay: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    end: Literal["whole", "empty", "unfinished", "dropped", "stalled", "silent"] = "whole"
    others: Sequence[str] = ()
    reasoning: str | None = None
    tool_calls: Sequence[Mapping[str, Any]] = ()
    chunks: int = 8
    pause: float = 0.0
    noise: Sequence[str] = ()


def well(content: str | None = None) -> Behaviour:
    """Answers with exactly this content, e.g. in any language, with unknown ids, with a hundred facts."""
    return Behaviour(content)


def slow(seconds: float, content: str | None = None) -> Behaviour:
    """Answers without a fault after so many seconds."""
    return Behaviour(content, delay=seconds)


def streamed(content: str | None = None, *, chunks: int = 8, pause: float = 0.0) -> Behaviour:
    """Answers without a fault; a stream has the content in at most so many deltas, `pause` seconds apart."""
    return Behaviour(content, chunks=chunks, pause=pause)


def choices(*contents: str) -> Behaviour:
    """Answers with these contents, one for each choice that the request asks for by `n`; further ones have the first.

    The first is the answer to a request without `n`.
    """
    return Behaviour(contents[0], others=contents[1:])


def tool_calls(*calls: Mapping[str, Any], content: str = "") -> Behaviour:
    """Calls tools, each {"id", "type", "function": {"name", "arguments"}}, with finish reason "tool_calls"."""
    return Behaviour(content, finish_reason="tool_calls", tool_calls=calls)


def reasoned(reasoning: str, content: str | None = None) -> Behaviour:
    """Sends reasoning in the field `reasoning_content`, before the content."""
    return Behaviour(content, reasoning=reasoning)


def fenced(content: str | None = None) -> Behaviour:
    """Puts the content into a Markdown code block."""
    return Behaviour(content, lambda answer: f"```json\n{answer}\n```")


def surrounded(content: str | None = None) -> Behaviour:
    """Puts prose before and after the content."""
    return Behaviour(content, lambda answer: f"Sure! Here's what I found:\n\n{answer}\n\nLet me know if you need more.")


def trailing_commas(content: str | None = None) -> Behaviour:
    """Writes a comma after the last item of every list and object of the content, which must be JSON."""
    return Behaviour(content, _add_trailing_commas)


def single_quotes(content: str | None = None) -> Behaviour:
    """Writes the content, which must be JSON, as Python would: 'single quotes', True, None."""
    return Behaviour(content, lambda answer: repr(json.loads(answer)))


def truncated(content: str | None = None) -> Behaviour:
    """Stops after two thirds of the content, with finish reason "stop"."""
    return Behaviour(content, _first_two_thirds)


def length(content: str | None = None) -> Behaviour:
    """Stops after two thirds of the content, with finish reason "length": the token limit."""
    return Behaviour(content, _first_two_thirds, finish_reason="length")


def wrong_types(content: str | None = None) -> Behaviour:
    """Changes the type of each value of the content, which must be a JSON object: strings to lists and vice versa."""
    return Behaviour(
        content,
        lambda answer: json.dumps({key: _with_other_type(value) for key, value in json.loads(answer).items()}),
    )


def empty_content() -> Behaviour:
    """Answers with an empty content."""
    return Behaviour("")


def empty_body() -> Behaviour:
    """Answers with status 200 and an empty body."""
    return Behaviour(end="empty")


def refused(words: str = "I'm sorry, I can't help with that.") -> Behaviour:
    """Declines in the field `refusal`, with an empty content."""
    return Behaviour("", refusal=words)


def filtered() -> Behaviour:
    """Answers with an empty content and finish reason "content_filter"."""
    return Behaviour("", finish_reason="content_filter")


def failed(status: int = 500, message: str = "Something went wrong.", **more: Any) -> Behaviour:
    """Answers with an HTTP error; `more` are further fields of the error, such as `code`, `param`, `type`."""
    return Behaviour(
        status=status, error={"message": message, "type": "server_error", "param": None, "code": None, **more}
    )


def rate_limited(retry_after: float = 1.0) -> Behaviour:
    """Answers with status 429 and a Retry-After header in seconds."""
    return Behaviour(
        status=429,
        headers={"Retry-After": f"{retry_after:g}"},
        error={"message": "Rate limit reached.", "type": "requests", "param": None, "code": "rate_limit_exceeded"},
    )


def silent() -> Behaviour:
    """Never answers, so that the client times out."""
    return Behaviour(end="silent")


def stalled(content: str | None = None) -> Behaviour:
    """Sends half of the answer, of a stream half of its events, and then nothing until the client leaves."""
    return Behaviour(content, end="stalled")


def dropped(content: str | None = None) -> Behaviour:
    """Closes the connection after half of the answer, of a stream after half of its events."""
    return Behaviour(content, end="dropped")


def unfinished(content: str | None = None) -> Behaviour:
    """Ends the response after half of the answer as if it were whole: a stream has no finish reason and no [DONE]."""
    return Behaviour(content, end="unfinished")


def noisy(content: str | None = None, lines: Sequence[str] = (": ping", "data: {no JSON")) -> Behaviour:
    """Sends each of the lines, by default a comment and broken JSON, after each chunk of a stream."""
    return Behaviour(content, noise=lines)


def _add_trailing_commas(content: str) -> str:
    # With `indent`, closing brackets are the only text that begins a line.
    return re.sub(r"\n( *[}\]])", r",\n\1", json.dumps(json.loads(content), ensure_ascii=False, indent=1))


def _first_two_thirds(content: str) -> str:
    return content[: len(content) * 2 // 3]


def _with_other_type(value: Any) -> Any:
    return [value] if isinstance(value, str) else "several" if isinstance(value, list | dict) else {"value": value}
