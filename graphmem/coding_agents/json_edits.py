"""Changes single values of a JSON text, also one with comments and trailing commas, and keeps every other character.

What `with_member` and `with_item` add to a list or object that has something in it already, `without_member` and
`without_items` take out again to the character. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

# White space, comments and the mark of a byte order.
_SKIPPED = re.compile(r"(?:[\s\ufeff]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
# Comments of the line on which a value ends.
_SAME_LINE = re.compile(r"(?:[ \t]*/\*[^\r\n]*?\*/)*(?:[ \t]*//[^\r\n]*)?")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"[\w.+-]+")


class JsonError(ValueError):
    """A text is no JSON, or no JSON of the expected shape: why, and on which line."""

    def __init__(self, text: str, position: int, why: str) -> None:
        self.line, self.why = text.count("\n", 0, position) + 1, why
        super().__init__(f"line {self.line}: {why}")


class Node(NamedTuple):
    """A value and where it stands: its elements are the members of an object or the items of a list, in order."""

    start: int
    end: int
    value: Any
    elements: tuple[Element, ...] = ()


class Element(NamedTuple):
    """A member of an object, with its key, or an item of a list; `start` is that of the key."""

    start: int
    key: str | None
    node: Node

    @property
    def end(self) -> int:
        """Where it ends, without a comma."""
        return self.node.end


def value_of(text: str) -> Any:
    """Returns the value of a JSON text; an empty one is an empty object. Raises JsonError."""
    return _parse(text).value


def with_member(text: str, path: Sequence[str], value: Any) -> str:
    """Returns the text with a value at a path of keys. Objects on the way are made; a value that is there is replaced.

    A value that is there and equal stays as it is written. Raises JsonError if something else than an object is on the
    way.
    """
    text = text if _has_value(text) else "{}\n"
    node, depth = _reach(text, path)
    if depth == len(path):
        if node.value == value:
            return text
        indent = _line_indent(text, node.start)
        return text[: node.start] + _dumped(value, text, indent) + text[node.end :]
    _require(text, node, dict)
    for key in reversed(path[depth + 1 :]):
        value = {key: value}
    return _insert(text, node, value, path[depth])


def with_item(text: str, path: Sequence[str], value: Any) -> str:
    """Returns the text with one more item of the list at a path of keys, which is made if it is not there."""
    text = text if _has_value(text) else "{}\n"
    node, depth = _reach(text, path)
    if depth < len(path):
        return with_member(text, path, [value])
    _require(text, node, list)
    return _insert(text, node, value, None)


def without_member(text: str, path: Sequence[str | int]) -> str:
    """Returns the text without the value at a path; objects that are empty without it go as well, but for the first."""
    node, depth = _reach(text, path)
    if depth < len(path) or not path:
        return text
    parent, _ = _reach(text, path[:-1])
    text = _remove(
        text, parent, next(i for i, one in enumerate(parent.elements) if one.node is node or one.node == node)
    )
    return _prune(text, path[:-1])


def without_items(text: str, path: Sequence[str | int], is_unwanted: Callable[[Any], bool]) -> str:
    """Returns the text without those items of the list at a path, and without the list if none is left of it.

    A number in the path is an item's place in a list.
    """
    while True:
        node, depth = _reach(text, path)
        if depth < len(path) or not isinstance(node.value, list):
            return text
        place = next((i for i, one in enumerate(node.elements) if is_unwanted(one.node.value)), None)
        if place is None:
            return text
        text = _prune(_remove(text, node, place), path)


# --- reading --------------------------------------------------------------------------------------------------------


def _has_value(text: str) -> bool:
    return _SKIPPED.fullmatch(text) is None


def _parse(text: str) -> Node:
    if not _has_value(text):
        return Node(len(text), len(text), {})
    try:
        node = _node(text, _skip(text, 0))
    except RecursionError:
        raise JsonError(text, 0, "it is nested too deeply") from None
    end = _skip(text, node.end)
    if end < len(text):
        raise JsonError(text, end, "something follows the end of the JSON")
    return node


def _skip(text: str, position: int) -> int:
    match = _SKIPPED.match(text, position)
    return position if match is None else match.end()


def _node(text: str, start: int) -> Node:
    first = text[start : start + 1]
    if first in {"{", "["} and first:
        return _container(text, start, "}" if first == "{" else "]")
    match = _STRING.match(text, start) or _WORD.match(text, start)
    try:
        if match is None:
            raise ValueError  # noqa: TRY301
        return Node(start, match.end(), json.loads(match[0]))
    except ValueError:
        raise JsonError(text, start, "a value is expected here") from None


def _container(text: str, start: int, close: str) -> Node:
    elements: list[Element] = []
    position = _skip(text, start + 1)
    while text[position : position + 1] != close:
        begin, key = position, None
        if close == "}":
            match = _STRING.match(text, position)
            colon = _skip(text, match.end()) if match else position
            if match is None or text[colon : colon + 1] != ":":
                raise JsonError(text, position, f"a key in quotes with a colon, or {close!r}, is expected here")
            key = _node(text, begin).value
            position = _skip(text, colon + 1)
        node = _node(text, position)
        elements.append(Element(begin, key, node))
        position = _skip(text, node.end)
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)
        elif text[position : position + 1] != close:
            raise JsonError(text, position, f"',' or {close!r} is expected here")
    value: Any = [one.node.value for one in elements]
    if close == "}":
        value = {one.key: one.node.value for one in elements}
    return Node(start, position + 1, value, tuple(elements))


def _reach(text: str, path: Sequence[str | int]) -> tuple[Node, int]:
    """Returns the deepest node on a path and the number of steps that lead to it. Of a key that is there twice the last
    counts, as for JSON's readers.
    """
    node = _parse(text)
    for depth, key in enumerate(path):
        if isinstance(key, int):
            found = [one.node for one in node.elements[key : key + 1]] if isinstance(node.value, list) else []
        else:
            found = [one.node for one in node.elements if one.key == key] if isinstance(node.value, dict) else []
        if not found:
            return node, depth
        node = found[-1]
    return node, len(path)


def _require(text: str, node: Node, kind: type) -> None:
    if not isinstance(node.value, kind):
        raise JsonError(text, node.start, f"{'an object' if kind is dict else 'a list'} is expected here")


# --- writing --------------------------------------------------------------------------------------------------------


def _insert(text: str, container: Node, value: Any, key: str | None) -> str:
    newline, unit = _newline(text), _unit(text)
    name = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    if not container.elements:
        indent = _line_indent(text, container.start)
        inside = text[container.start + 1 : container.end - 1].rstrip()
        new = f"{inside}{newline}{indent}{unit}{name}{_dumped(value, text, indent + unit)}{newline}{indent}"
        return text[: container.start + 1] + new + text[container.end - 1 :]
    last, first = container.elements[-1].end, container.elements[0].start
    point, has_comma = _end_of_line(text, last)
    if "\n" in text[container.start : first]:
        indent = _line_indent(text, first)
        new = newline + indent + name + _dumped(value, text, indent)
    else:
        new = " " + name + json.dumps(value, ensure_ascii=False)
    comma_before, comma_after = ("", ",") if has_comma else (",", "")
    return text[:last] + comma_before + text[last:point] + new + comma_after + text[point:]


def _remove(text: str, container: Node, place: int) -> str:
    elements = container.elements
    begin = container.start + 1 if place == 0 else _end_of_line(text, elements[place - 1].end)[0]
    comma = _skip(text, elements[place].end)
    has_comma = text[comma] == ","
    end = comma + 1 if has_comma else elements[place].end
    left = text[:begin] + text[end:]
    if place > 0 and not has_comma:  # the last one: the comma before it goes as well
        comma = _skip(text, elements[place - 1].end)
        left = left[:comma] + left[comma + 1 :]
    if len(elements) == 1 and not left[container.start + 1 : (close := container.end - 1 - (end - begin))].strip():
        left = left[: container.start + 1] + left[close:]
    return left


def _prune(text: str, path: Sequence[str | int]) -> str:
    node, depth = _reach(text, path)
    is_empty = depth == len(path) and text[node.start + 1 : node.end - 1] == ""
    return without_member(text, path) if path and is_empty and isinstance(node.value, dict | list) else text


def _end_of_line(text: str, end: int) -> tuple[int, bool]:
    """Returns where the line of an element ends, after its comma and its comments, and whether it has a comma."""
    comma = _skip(text, end)
    has_comma = text[comma : comma + 1] == ","
    point = comma + 1 if has_comma else end
    match = _SAME_LINE.match(text, point)
    return (point if match is None else match.end()), has_comma


def _dumped(value: Any, text: str, indent: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return (_newline(text) + indent).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Returns the indentation of the first indented line: by how much a text indents."""
    match = re.search(r'^([ \t]+)["\[{/]', text, re.MULTILINE)
    return "  " if match is None else match[1]


def _line_indent(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]
