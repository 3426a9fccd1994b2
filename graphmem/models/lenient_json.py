"""Reads the JSON in a model's answer, whatever stands around it and however it is written; never half of it."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, SupportsIndex

from graphmem.errors import LLMTruncated, LLMUnusable

# Characters of an answer. The longest that is asked for, 40 memories and 12 facts in 2,000 characters each, has about
# 110,000; the rest is room for what a model thinks aloud, of which 32,000 tokens have about 130,000.
MAX_SIZE = 500_000
# Bracketed parts of an answer that are tried, the last ones.
MAX_VALUES = 50
# What the library that mends gets of an answer: characters, and looks at any of them. It guesses and goes back, which
# takes two or three looks for each character of what models write, and without end where one makes it so.
MAX_REPAIRED, MAX_SCANS = 8_000, 100_000

# What a model thinks aloud before it answers; some servers keep the first tag to themselves.
_THOUGHTS = re.compile(r"\A(?!\s*[\[{`]).*?</think(?:ing)?>", re.DOTALL)
_SIGN = re.compile(r"\\.|[\"'{}\[\]]", re.DOTALL)
# A string, also one that does not end (else each quotation mark in it would be tried), or a comma with nothing after.
_STRING_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*+"?|,(?=\s*+[}\]])', re.DOTALL)
_OPENS = {"{": "}", "[": "]"}
_ROOTS = {"object": "{", "array": "["}
_NOTHING = object()


def matches_schema(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is roughly what a schema asks for: an object with what is required, or an array."""
    if schema.get("type") == "array":
        return isinstance(value, list)
    return isinstance(value, dict) and value.keys() >= set(schema.get("required", ()))


def parse_json(text: str, schema: Mapping[str, Any]) -> Any:
    """The JSON value that an answer holds: as it is, or with what stands around it taken off, or mended.

    Of several the last that fits. Raises LLMTruncated if its brackets do not balance, LLMUnusable if there is none.
    """
    text = _THOUGHTS.sub("", text).strip().removeprefix("\ufeff")
    whole = _strict(text)
    if whole is not _NOTHING:
        return whole
    parts = deque(_parts(text, _ROOTS.get(str(schema.get("type")), "{[")), MAX_VALUES)
    looks, room, last = _ScanBudget(), MAX_REPAIRED, _NOTHING
    for part in reversed(parts):
        value = _tidied(part)
        if value is _NOTHING and len(part) <= room:
            room -= len(part)
            value = _mended(part, looks)
        if value is not _NOTHING and matches_schema(value, schema):
            return value
        last = value if last is _NOTHING else last
    if last is _NOTHING:
        raise LLMUnusable("the model's answer is not the JSON it was asked for; use a model that is better at JSON")
    return last


def _strict(text: str) -> Any:
    try:
        # Plain line breaks in strings are fine, numbers that JSON does not have are not.
        return json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):  # it quotes the text, so nothing is raised from here
        return _NOTHING


def _refuse(name: str) -> None:
    raise ValueError(name)


def _tidied(text: str) -> Any:
    # The commonest slip first: the library, which guesses, is not always true to the strings.
    return _strict(_STRING_OR_COMMA.sub(lambda found: "" if found[0] == "," else found[0], text))


class _ScanBudget:
    """Counts looks at the characters of an answer. Raises ValueError for too many."""

    def __init__(self) -> None:
        self.left = MAX_SCANS

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise ValueError


class _CountedText(str):
    """A text that counts the looks at it, and so do its parts and what is put together from it."""

    __slots__ = ("_looks",)
    _looks: _ScanBudget

    @classmethod
    def wrap(cls, looks: _ScanBudget, text: str) -> _CountedText:
        made = cls(text)
        made._looks = looks
        return made

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        found = super().__getitem__(key)
        self._looks.spend(1 + len(found) // 100)
        return _CountedText.wrap(self._looks, found) if isinstance(key, slice) else found

    def __add__(self, other: str) -> str:
        return _CountedText.wrap(self._looks, super().__add__(other))


def _mended(text: str, looks: _ScanBudget) -> Any:
    import json_repair

    try:
        found = json_repair.loads(_CountedText.wrap(looks, text), skip_json_loads=True)
    except Exception:  # noqa: BLE001  (too many looks, brackets too deep, its own assertions)
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
