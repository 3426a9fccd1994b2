"""Answers in the format of OpenAI's chat completions and text completions: whole, or as the events of a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from graphmem.testing.behaviours import Behaviour


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
    usage = _count_tokens(body, contents, cached_tokens)
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


def _count_tokens(body: Mapping[str, Any], contents: Sequence[str], cached_tokens: int) -> dict[str, Any]:
    prompt_tokens = max(len(json.dumps(body.get("messages", body.get("prompt")), ensure_ascii=False)) // 4, 1)
    completion_tokens = -(-sum(len(content) for content in contents) // 4)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": min(cached_tokens, prompt_tokens)},
    }


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
