"""The text of an answer, read from its bytes however they are cut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from graphmem.service import limits
from graphmem.service.proxy.answers import AnswerReader

STREAM = {"content-type": "text/event-stream; charset=utf-8"}
WHOLE = {"content-type": "application/json"}


def event(content: Any = None, finish_reason: str | None = None, index: int = 0, **delta: Any) -> bytes:
    choice = {"index": index, "delta": {"content": content, **delta}, "finish_reason": finish_reason}
    return f"data: {json.dumps({'choices': [choice]}, ensure_ascii=False)}\r\n\r\n".encode()


def read(headers: Mapping[str, str], data: bytes, size: int = 1) -> str | None:
    reader = AnswerReader(headers)
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
    return reader.text()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_a_stream_is_read_however_it_is_cut(size: int) -> None:
    data = b": ping\n\n" + event(role="assistant") + event("Grüße, ") + event("no", index=1) + event("小雨")
    data += b"data: {garbage\n\ndata: {}\n\n" + event(finish_reason="stop") + b"data: [DONE]\n\n"
    assert read(STREAM, data, size) == "Grüße, 小雨"


def test_an_answer_is_read_as_a_whole() -> None:
    choices = [{"index": 0, "message": {"content": " Tea. "}, "finish_reason": "length"}]
    assert read(WHOLE, json.dumps({"choices": choices}).encode()) == "Tea."


def test_an_answer_in_parts_is_read_without_thinking() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Tea."}]
    choices = [{"index": 0, "message": {"content": parts}, "finish_reason": "stop"}]
    assert read(WHOLE, json.dumps({"choices": choices}).encode()) == "Tea."
    events = event([{"type": "thinking", "thinking": []}]) + event([{"type": "text", "text": "Te"}]) + event("a.")
    assert read(STREAM, events + event(None, "stop")) == "Tea."


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        (STREAM, event("breaks off")),
        (STREAM, event("hidden", "content_filter")),
        (STREAM, event("", "stop")),
        (STREAM, event(None, "tool_calls")),
        (({"content-type": "text/event-stream", "content-encoding": "gzip"}), event("x", "stop")),
        (WHOLE, b""),
        (WHOLE, b"[1]"),
        (WHOLE, b'{"choices": [{"message": null}]}'),
        (WHOLE, b'{"choices": [{"message": {"content": [1]}, "finish_reason": "stop"}]}'),
        (WHOLE, b"[" * 100_000),
    ],
)
def test_what_is_no_answer_has_no_text(headers: Mapping[str, str], data: bytes) -> None:
    assert read(headers, data, 1000) is None


def test_a_long_line_is_collected_and_not_copied_for_each_piece() -> None:
    reader = AnswerReader(STREAM)
    reader.feed(b"data: ")
    collected = reader._rest
    for _ in range(100):
        reader.feed(b"x" * 200)
    assert reader._rest is collected and len(collected) == len(b"data: ") + 100 * 200


def test_each_mark_of_the_end_counts_once() -> None:
    reader, ends = AnswerReader(STREAM), []
    for data in (event("One"), event(None, "stop", 1), event(None, "stop"), event(" two", "stop"), b"data: [DONE]\n\n"):
        reader.feed(data)
        ends.append(reader.ends)
    assert ends == [0, 0, 1, 1, 2]
    assert reader.text() == "One two"


def test_an_endless_answer_has_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ANSWER_BYTES", 1000)
    assert read(STREAM, event("x" * 2000, "stop"), 100) is None
