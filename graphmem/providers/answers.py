"""Reads the JSON in a model's answer, whatever stands around it and however it is written; never half of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from graphmem.errors import LLMTruncated, LLMUnusable

# What a model thinks aloud before it answers; some servers keep the first tag to themselves.
_THOUGHTS = re.compile(r"\A(?!\s*[\[{`]).*?</think(?:ing)?>", re.DOTALL)
_SIGN = re.compile(r"\\.|[\"'{}\[\]]", re.DOTALL)
# A string, or a comma with nothing after it.
_STRING_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*+"|,(?=\s*[}\]])', re.DOTALL)
_OPENS = {"{": "}", "[": "]"}
_ROOTS = {"object": "{", "array": "["}
_NOTHING = object()


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is roughly what a schema asks for: an object with what is required, or an array."""
    if schema.get("type") == "array":
        return isinstance(value, list)
    return isinstance(value, dict) and value.keys() >= set(schema.get("required", ()))


def read_json(text: str, schema: Mapping[str, Any]) -> Any:
    """The JSON value that an answer holds: as it is, or with what stands around it taken off, or mended.

    Of several the last that fits. Raises LLMTruncated if its brackets do not balance, LLMUnusable if there is none.
    """
    text = _THOUGHTS.sub("", text).strip().removeprefix("\ufeff")
    whole = _strict(text)
    if whole is not _NOTHING:
        return whole
    opens = _ROOTS.get(str(schema.get("type")), "{[")
    found = [value for part in _parts(text, opens) if (value := _lenient(part)) is not _NOTHING]
    if not found:
        raise LLMUnusable("the model's answer is not the JSON it was asked for; use a model that is better at JSON")
    return next((value for value in reversed(found) if fits(value, schema)), found[-1])


def _strict(text: str) -> Any:
    try:
        # Plain line breaks in strings are fine, numbers that JSON does not have are not.
        return json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):  # it quotes the text, so nothing is raised from here
        return _NOTHING


def _refuse(name: str) -> None:
    raise ValueError(name)


def _lenient(text: str) -> Any:
    # The commonest slip first: the library, which guesses, is not always true to the strings.
    tidy = _STRING_OR_COMMA.sub(lambda found: "" if found[0] == "," else found[0], text)
    found = _strict(tidy)
    return _mended(text) if found is _NOTHING else found


def _mended(text: str) -> Any:
    import json_repair

    try:
        found = json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError):
        return _NOTHING
    return found if isinstance(found, dict if text[0] == "{" else list) else _NOTHING


def _parts(text: str, opens: str) -> Iterator[str]:
    """The outermost bracketed parts that begin with one of `opens`."""
    begins, end = re.compile(f"[{re.escape(opens)}]"), 0
    while found := begins.search(text, end):
        end = _end(text, found.start())
        yield text[found.start() : end]


def _end(text: str, start: int) -> int:
    """Where the part ends whose bracket stands there. Raises LLMTruncated if nowhere."""
    awaited: list[str] = []
    for sign, at in _brackets(text, start):
        if sign in _OPENS:
            awaited.append(_OPENS[sign])
        elif sign != awaited.pop():
            break
        if not awaited:
            return at + 1
    raise LLMTruncated(
        "the model's answer breaks off; raise llm.config.max_tokens, or the server's own limit of what it generates"
    )


def _brackets(text: str, start: int) -> Iterator[tuple[str, int]]:
    """The brackets from there on that are in no string, and where they stand."""
    quote = ""
    for found in _SIGN.finditer(text, start):
        sign, at = found[0], found.start()
        if quote:
            if sign == quote and (quote == '"' or _ends(text, at)):
                quote = ""
        elif sign == '"' or (sign == "'" and _begins(text, at)):
            quote = sign
        elif sign in "{}[]":
            yield sign, at


def _begins(text: str, at: int) -> bool:
    """Whether the ' there begins a string, and is no apostrophe."""
    while at and text[at - 1].isspace():
        at -= 1
    return at > 0 and text[at - 1] in "{[,:"


def _ends(text: str, at: int) -> bool:
    """Whether the ' there ends a string, and is no apostrophe."""
    at += 1
    while at < len(text) and text[at].isspace():
        at += 1
    return at == len(text) or text[at] in ",:}]"
