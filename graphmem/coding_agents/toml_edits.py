"""Adds a table to a TOML text and takes it out again, and keeps every other character. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


class TomlError(ValueError):
    """A text is no TOML, or has the table in a form that cannot be changed line by line."""


def value_of(text: str) -> dict[str, Any]:
    """Returns the value of a TOML text. Raises TomlError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(str(error)) from None


def with_table(text: str, path: Sequence[str], table: Mapping[str, str | Sequence[str]]) -> str:
    """Returns the text with these values in a table, such as `[mcp_servers.graphmem]`, which is appended or changed.

    Other values of a table that is there stay. Raises TomlError.
    """
    before = value_of(text)
    there = _at(before, path)
    if there is not None and all(there.get(key) == value for key, value in table.items()):
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
    if there is None:
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        after = text + gap + newline.join([f"[{'.'.join(path)}]", *lines, ""])
    else:
        begin, end = _span(text, path)
        head, *rest = text[begin:end].splitlines(keepends=True)
        kept = [line for line in rest if line.partition("=")[0].strip() not in table]
        after = text[:begin] + head + newline.join([*lines, ""]) + "".join(kept) + text[end:]
    expected = _with(before, path, {**(there or {}), **table})
    return _checked(after, expected, path)


def without_table(text: str, path: Sequence[str]) -> str:
    """Returns the text without a table and the tables in it. Raises TomlError."""
    left = before = value_of(text)
    while _at(left, path) is not None:
        begin, end = _span(text, path, also_inside=True)
        blank = re.search(r"(?:(?<=\n)|\A)\r?\n\Z", text[:begin])
        text = text[: begin if blank is None else blank.start()] + text[end:]
        try:
            left = tomllib.loads(text)
        except tomllib.TOMLDecodeError:  # the lines were inside a string
            raise _unchangeable(path) from None
    return _checked(text, _with(before, path, None), path)


def _at(value: Any, path: Sequence[str]) -> dict[str, Any] | None:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


def _span(text: str, path: Sequence[str], *, also_inside: bool = False) -> tuple[int, int]:
    keys = r"\s*\.\s*".join(rf"(?:{re.escape(key)}|\"{re.escape(key)}\")" for key in path)
    inside = r"(?:\s*\.[^\]\r\n]*)?" if also_inside else r"\s*"
    match = re.search(rf"^[ \t]*\[\s*{keys}{inside}\][^\r\n]*(?:\r?\n|\Z)", text, re.MULTILINE)
    if match is None:
        raise _unchangeable(path)
    following = _TABLE.search(text, match.end())
    if following is None:
        return match.start(), len(text)
    # Comments and blank lines in front of the next table belong to that one.
    lead = re.search(r"(?:^[ \t]*(?:#[^\r\n]*)?\r?\n)*\Z", text[match.end() : following.start()], re.MULTILINE)
    return match.start(), following.start() if lead is None else match.end() + lead.start()


def _with(value: dict[str, Any], path: Sequence[str], table: Mapping[str, Any] | None) -> dict[str, Any]:
    key, *rest = path
    inner = _with(value.get(key, {}), rest, table) if rest else table
    return {**{name: one for name, one in value.items() if name != key}, **({key: inner} if inner else {})}


def _without_empty(value: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    return _with(value, path, _at(value, path))


def _checked(text: str, expected: dict[str, Any], path: Sequence[str]) -> str:
    """Returns the text if it has the expected values: lines may be inside a multi-line string, or a table inline."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        found = {}
    if found == {} != expected or _without_empty(found, path) != _without_empty(expected, path):
        raise _unchangeable(path)
    return text


def _unchangeable(path: Sequence[str]) -> TomlError:
    return TomlError(f"{'.'.join(path)} is not written as a table [{'.'.join(path)}] of its own; take it out by hand")
