"""What a `ModelEndpoint` does with a chat request: answer well, or in one of the ways in which models go wrong.

Each takes the content of the answer; without it, the endpoint's default writes one, which is then spoilt as named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


def _same(content: str) -> str:
    return content


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One answer to a chat request. The functions of this module make the usual ones.

    `content`: the assistant's words, by default what the endpoint's default writes; `change` rewrites them. `delay` is
    in seconds, before anything is sent. `error` is the body of an answer that is none, with a `status` for it. `end`:
    "whole", or "empty" (no body), "dropped" (half of it, then the connection is closed), "silent" (nothing at all, for
    as long as the endpoint lives).
    """

    content: str | None = None
    change: Callable[[str], str] = _same
    finish_reason: str = "stop"
    refusal: str | None = None
    delay: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    end: Literal["whole", "empty", "dropped", "silent"] = "whole"


def well(content: str | None = None) -> Behaviour:
    """Answers with the content as it is: any language, unknown ids, a hundred facts are yours to write."""
    return Behaviour(content)


def slow(seconds: float, content: str | None = None) -> Behaviour:
    """Answers well after so many seconds."""
    return Behaviour(content, delay=seconds)


def fenced(content: str | None = None) -> Behaviour:
    """Puts the content into a Markdown code block."""
    return Behaviour(content, lambda words: f"```json\n{words}\n```")


def surrounded(content: str | None = None) -> Behaviour:
    """Puts prose before and after the content."""
    return Behaviour(content, lambda words: f"Sure! Here's what I found:\n\n{words}\n\nLet me know if you need more.")


def trailing_commas(content: str | None = None) -> Behaviour:
    """Writes a comma after the last item of every list and object of the content, which must be JSON."""
    return Behaviour(content, _with_commas)


def single_quotes(content: str | None = None) -> Behaviour:
    """Writes the content, which must be JSON, as Python would: 'single quotes', True, None."""
    return Behaviour(content, lambda words: repr(json.loads(words)))


def truncated(content: str | None = None) -> Behaviour:
    """Stops after two thirds of the content, as if that were all."""
    return Behaviour(content, _cut)


def length(content: str | None = None) -> Behaviour:
    """Stops after two thirds of the content, and says that the limit of tokens is reached."""
    return Behaviour(content, _cut, finish_reason="length")


def wrong_types(content: str | None = None) -> Behaviour:
    """Gives each value of the content, which must be a JSON object, another type: lists are words, words are lists."""
    return Behaviour(content, lambda words: json.dumps({key: _other(one) for key, one in json.loads(words).items()}))


def empty_content() -> Behaviour:
    """Answers with no words."""
    return Behaviour("")


def empty_body() -> Behaviour:
    """Answers 200 with nothing in it."""
    return Behaviour(end="empty")


def refused(words: str = "I'm sorry, I can't help with that.") -> Behaviour:
    """Declines, in the field for that."""
    return Behaviour("", refusal=words)


def filtered() -> Behaviour:
    """The content filter withholds the answer."""
    return Behaviour("", finish_reason="content_filter")


def failed(status: int = 500, message: str = "Something went wrong.", **more: Any) -> Behaviour:
    """Answers with an HTTP error. `more` is put into it: `code`, `param`, `type`."""
    return Behaviour(
        status=status, error={"message": message, "type": "server_error", "param": None, "code": None, **more}
    )


def rate_limited(retry_after: float = 1.0) -> Behaviour:
    """429: asks to come again in so many seconds."""
    return Behaviour(
        status=429,
        headers={"Retry-After": f"{retry_after:g}"},
        error={"message": "Rate limit reached.", "type": "requests", "param": None, "code": "rate_limit_exceeded"},
    )


def silent() -> Behaviour:
    """Never answers: the client's time runs out."""
    return Behaviour(end="silent")


def dropped(content: str | None = None) -> Behaviour:
    """Closes the connection in the middle of the answer."""
    return Behaviour(content, end="dropped")


def _with_commas(content: str) -> str:
    # With an indent what closes a list or an object stands on a line of its own, and nothing else does.
    return re.sub(r"\n( *[}\]])", r",\n\1", json.dumps(json.loads(content), ensure_ascii=False, indent=1))


def _cut(content: str) -> str:
    return content[: len(content) * 2 // 3]


def _other(value: Any) -> Any:
    return [value] if isinstance(value, str) else "several" if isinstance(value, list | dict) else {"value": value}
