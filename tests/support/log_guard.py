"""Allowed log records: literal messages of the package, with its own names and numbers as arguments. Checked in every
test (see conftest).

The messages are read from the source, so nobody has to list them. Texts, ids and names that tests pass in are recorded
by the argument checks.
"""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import graphmem
from graphmem.boundary import validation
from graphmem.errors import GraphmemError

LEVELS = {"debug", "info", "warning", "error", "critical"}
OUR_NAMES = frozenset({"vectors", "graph", "user_id", "recall_user_id", "agent_id", "run_id"})
# Classes of values: a warning about an unusable value names its class.
VALUE_CLASSES = frozenset({"NoneType", "str", "coroutine"})
# The values in a request's line besides numbers: method, template of the route, request id, role.
REQUEST_VALUES = (
    re.compile(r"GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|-"),
    re.compile(r"(/([a-z.0-9_-]+|\{[a-z_]+\})?)+|-"),
    re.compile(r"[A-Za-z0-9._-]{1,64}"),
    re.compile(r"user|app|admin|metrics|-"),
)
# What follows events in logs: a webhook by its configured name, or any handler of the program.
FOLLOWERS = re.compile(r"webhook:[A-Za-z0-9._-]{1,80}|a handler")
# The names of embedders in tests: an error about a changed embedder says them, and an export hands them in.
EMBEDDERS = re.compile(r"fake-\d+")
# Keys of the metadata of turns that hooks and imports store: every server logs some of these words.
METADATA_KEYS = frozenset({"client", "project", "session"})
# Texts shorter than the first occur in any message; of longer ones a prefix of the second length is searched for.
MIN_LENGTH, PREFIX_LENGTH = 6, 200


def calls(source: str) -> Iterator[ast.Call]:
    """The calls of loggers in a source text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target = node.func.value
            if (
                isinstance(target, ast.Name)
                and target.id in {"logger", "logging", "log"}
                and hasattr(logging, node.func.attr)
            ):
                yield node


@cache
def sentences() -> frozenset[str]:
    """The sentences that the package logs: literals, or this fails."""
    messages = set()
    for file in Path(graphmem.__file__).parent.rglob("*.py"):
        source = file.read_text("utf-8")
        # Parsing each file of the package took a second of every test process.
        for call in calls(source) if "log" in source else ():
            name = call.func.attr  # type: ignore[attr-defined]
            if name in {"getLogger", "basicConfig"}:
                continue
            assert name in LEVELS, f"{file}:{call.lineno}: no {name}(): it would log a stack, or at any level"
            first = call.args[0]
            assert isinstance(first, ast.Constant), f"{file}:{call.lineno}: a literal, and values as its arguments"
            assert not call.keywords, f"{file}:{call.lineno}: no stack, nothing besides"
            messages.add(str(first.value))
    return frozenset(messages)


class Listener(logging.Handler):
    """Keeps all log records."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[str]:
        """The records as a log file has them, tracebacks included."""
        return [logging.Formatter().format(record) for record in self.records]


@contextmanager
def listening() -> Iterator[Listener]:
    """Keeps records of the package at any level, of other loggers from INFO on."""
    root, ours, listener = logging.getLogger(), logging.getLogger("graphmem"), Listener()
    before = root.level, ours.level
    root.addHandler(listener)
    root.setLevel(logging.INFO)
    ours.setLevel(logging.DEBUG)
    try:
        yield listener
    finally:
        root.removeHandler(listener)
        root.setLevel(before[0])
        ours.setLevel(before[1])


class Censor:
    """Finds log records that are not allowed."""

    def __init__(self) -> None:
        self._sentences = sentences()
        self._texts: set[str] = set()

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Records every text, id and name that is passed in."""

        def wrap(check: Callable[..., Any]) -> Callable[..., Any]:
            def note_and_check(value: Any, *more: Any) -> Any:
                if isinstance(value, str) and len(text := value.strip()) >= MIN_LENGTH:
                    self._texts.add(text[:PREFIX_LENGTH])
                return check(value, *more)

            return note_and_check

        with patch.multiple(
            validation, _checked_text=wrap(validation._checked_text), _checked_name=wrap(validation._checked_name)
        ):
            yield

    def complaint(self, record: logging.LogRecord) -> str:
        """Says why a record is not allowed; "" if it is."""
        line = logging.Formatter().format(record)
        if record.exc_info or record.stack_info:
            return f"a stack: {line}"
        if record.name.startswith("graphmem"):
            if record.msg not in self._sentences:
                return f"none of our sentences: {line}"
            values = record.args if isinstance(record.args, tuple) else (record.args,)
            if record.name == "graphmem.requests":
                texts = [one for one in values if isinstance(one, str)]
                checks = zip(REQUEST_VALUES, texts, strict=True)
                return (
                    "" if all(pattern.fullmatch(text) for pattern, text in checks) else f"a value of a request: {line}"
                )
            if unknown := [one for one in values if not _is_ours(one)]:
                return f"{unknown!r} is neither a number nor a name of ours: {line}"
        if record.name.startswith(("alembic", "mem0")):  # titles of our migrations; records of mem0 in its tests
            return ""
        leaks = sorted(
            text
            for text in self._texts - METADATA_KEYS
            if text in line and not EMBEDDERS.fullmatch(text) and not any(text in one for one in self._sentences)
        )
        return f"{leaks!r} was handed in: {line}" if leaks else ""


def _is_ours(value: object) -> bool:
    if isinstance(value, int | float | GraphmemError):  # an error's text is looked through with the line
        return True
    # "Name: text" is an error with its text (`graphmem.logs`), which is looked through with the line, too.
    return isinstance(value, str) and (
        value in OUR_NAMES | VALUE_CLASSES
        or FOLLOWERS.fullmatch(value) is not None
        or value.partition(": ")[0] in _errors()
    )


def _errors() -> set[str]:
    """The names of all classes of exceptions that there are (several may have one name: mem0 has an LLMError, too)."""
    classes, todo = set[type[BaseException]](), list[type[BaseException]]([BaseException])
    while todo:
        one = todo.pop()
        if one not in classes:
            classes.add(one)
            todo += type.__subclasses__(one)
    return {one.__name__ for one in classes}
