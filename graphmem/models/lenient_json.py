"""Parses the JSON value in a language model's answer, despite surrounding text and slips. Refuses truncated answers."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, SupportsIndex

from graphmem.errors import LLMTruncated, LLMUnusable

# Characters of an answer. The longest requested answer, 40 memories and 12 facts in 2,000 characters each, has about
# 110,000; the rest is room for a model's reasoning, of which 32,000 tokens have about 130,000.
MAX_SIZE = 500_000
# The number of bracketed parts of an answer that are tried, counted from the end.
MAX_VALUES = 50
# Limits for json_repair in one answer: characters given to it, and character accesses it makes. It guesses and goes
# back, which takes two or three accesses per character of normal answers, and without end in hostile ones.
MAX_REPAIRED, MAX_SCANS = 8_000, 100_000

# A model's reasoning before the answer; some servers remove the opening tag.
_REASONING = re.compile(r"\A(?!\s*[\[{`]).*?</think(?:ing)?>", re.DOTALL)
_ESCAPE_QUOTE_OR_BRACKET = re.compile(r"\\.|[\"'{}\[\]]", re.DOTALL)
# A string, also an unterminated one (else each quotation mark in it would be tried), or a trailing comma.
_STRING_OR_TRAILING_COMMA = re.compile(r'"(?:\\.|[^"\\])*+"?|,(?=\s*+[}\]])', re.DOTALL)
_CLOSING_BRACKETS = {"{": "}", "[": "]"}
_OPENING_BRACKETS = {"object": "{", "array": "["}
_INVALID = object()


def matches_schema(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value roughly matches a schema: an array, or an object with the first of the required properties.

    What an answer is about is the first; models that do without the others answer what they were asked.
    """
    if schema.get("type") == "array":
        return isinstance(value, list)
    return isinstance(value, dict) and value.keys() >= set(schema.get("required", ())[:1])


def _fit_schema(value: Any, schema: Mapping[str, Any]) -> Any:
    """Returns an object with the schema's names of properties, if an answer has them in another form.

    Small models write a tool call, with the object as its arguments, and names in another case.
    """
    if not isinstance(value, dict) or value.keys() >= set(schema.get("required", ())):
        return value
    function = value.get("function")
    call = function if isinstance(function, dict) else value
    # Llama's models name them parameters.
    arguments = call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):
        arguments = _loads(arguments)
    names = {name.casefold(): name for name in schema.get("properties", ())}
    fields = arguments if isinstance(arguments, dict) else value
    return {names.get(key.casefold(), key): field for key, field in fields.items()}


def parse_json(text: str, schema: Mapping[str, Any]) -> Any:
    """Returns the JSON value of an answer: the whole answer, or a bracketed part of it, repaired if need be.

    Of several parts it returns the last that matches the schema roughly (see `matches_schema`), else the last value.
    Properties in a tool call's arguments, or in another case, count as the schema's. Raises LLMTruncated if brackets do
    not balance, LLMUnusable if there is no value.
    """
    text = _REASONING.sub("", text).strip().removeprefix("\ufeff")
    whole = _loads(text)
    if whole is not _INVALID:
        return _fit_schema(whole, schema)
    parts = deque(_bracketed_parts(text, _OPENING_BRACKETS.get(str(schema.get("type")), "{[")), MAX_VALUES)
    scans, repairable, last = _ScanBudget(), MAX_REPAIRED, _INVALID
    for part in reversed(parts):
        # The most frequent slip is corrected here: json_repair guesses, and sometimes changes strings.
        value = _loads(_STRING_OR_TRAILING_COMMA.sub(lambda match: "" if match[0] == "," else match[0], part))
        if value is _INVALID and len(part) <= repairable:
            repairable -= len(part)
            value = _repair(part, scans)
        value = _fit_schema(value, schema)
        if value is not _INVALID and matches_schema(value, schema):
            return value
        last = value if last is _INVALID else last
    if last is _INVALID:
        raise LLMUnusable("the model's answer is not the JSON it was asked for; use a model that is better at JSON")
    return last


def _loads(text: str) -> Any:
    try:
        # Accepts line breaks in strings, but not NaN and Infinity, which are no JSON.
        return json.loads(text, strict=False, parse_constant=_reject_constant)
    except (ValueError, RecursionError):  # not re-raised: the error quotes the text
        return _INVALID


def _reject_constant(name: str) -> None:
    raise ValueError(name)


class _ScanBudget:
    """Counts accesses to the characters of an answer. Raises ValueError beyond `MAX_SCANS`."""

    def __init__(self) -> None:
        self.left = MAX_SCANS

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise ValueError


class _CountedText(str):
    """A string that charges each access to a budget; so do its slices and concatenations."""

    __slots__ = ("_budget",)
    _budget: _ScanBudget

    @classmethod
    def wrap(cls, budget: _ScanBudget, text: str) -> _CountedText:
        counted_text = cls(text)
        counted_text._budget = budget
        return counted_text

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        part = super().__getitem__(key)
        self._budget.spend(1 + len(part) // 100)
        return _CountedText.wrap(self._budget, part) if isinstance(key, slice) else part

    def __add__(self, other: str) -> str:
        return _CountedText.wrap(self._budget, super().__add__(other))


def _repair(text: str, budget: _ScanBudget) -> Any:
    import json_repair

    try:
        value = json_repair.loads(_CountedText.wrap(budget, text), skip_json_loads=True)
    except Exception:  # noqa: BLE001  (the budget is spent, brackets nest too deep, its own assertions)
        return _INVALID
    return value if isinstance(value, dict if text[0] == "{" else list) else _INVALID


def _bracketed_parts(text: str, opening: str) -> Iterator[str]:
    """Yields the outermost bracketed parts that begin with one of the `opening` brackets.

    Raises LLMTruncated for one that no bracket closes.
    """
    start, end = re.compile(f"[{re.escape(opening)}]"), 0
    while match := start.search(text, end):
        expected, end = list[str](), 0
        for bracket, offset in _brackets(text, match.start()):
            if bracket in _CLOSING_BRACKETS:
                expected.append(_CLOSING_BRACKETS[bracket])
            elif bracket != expected.pop():
                break
            if not expected:
                end = offset + 1
                break
        if not end:
            raise LLMTruncated(
                "the model's answer breaks off; raise llm.config.max_tokens, or the server's own limit for generated "
                "tokens"
            )
        yield text[match.start() : end]


def _brackets(text: str, start: int) -> Iterator[tuple[str, int]]:
    """Yields the brackets outside strings from `start` on, with their offsets."""
    quote = ""
    for match in _ESCAPE_QUOTE_OR_BRACKET.finditer(text, start):
        sign, offset = match[0], match.start()
        if quote:
            if sign == quote and (quote == '"' or _closes_string(text, offset)):
                quote = ""
        elif sign == '"' or (sign == "'" and _opens_string(text, offset)):
            quote = sign
        elif sign in "{}[]":
            yield sign, offset


def _opens_string(text: str, offset: int) -> bool:
    """Whether the ' at `offset` opens a string; otherwise it is an apostrophe."""
    while offset and text[offset - 1].isspace():
        offset -= 1
    return offset > 0 and text[offset - 1] in "{[,:"


def _closes_string(text: str, offset: int) -> bool:
    """Whether the ' at `offset` closes a string; otherwise it is an apostrophe."""
    offset += 1
    while offset < len(text) and text[offset].isspace():
        offset += 1
    return offset == len(text) or text[offset] in ",:}]"
