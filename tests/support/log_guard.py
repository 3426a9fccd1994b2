"""What may be logged: our own sentences, with names of ours and numbers in them. Every test listens (see conftest).

The sentences are read out of the source, so nobody has to list them; words that tests store, ask or name are noted
where they come in, at the checks of arguments.
"""

from __future__ import annotations

import ast
import logging
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
OUR_NAMES = frozenset({"vectors", "graph"})
# Shorter ones are in every sentence; of longer ones the beginning will do.
TELLING, NOTED = 6, 200


def calls(source: str) -> Iterator[ast.Call]:
    """What a source calls a logger with."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if isinstance(of, ast.Name) and of.id in {"logger", "logging", "log"} and hasattr(logging, node.func.attr):
                yield node


@cache
def sentences() -> frozenset[str]:
    """The sentences that the package logs: literals, or this fails."""
    found = set()
    for file in Path(graphmem.__file__).parent.rglob("*.py"):
        for call in calls(file.read_text("utf-8")):
            name = call.func.attr  # type: ignore[attr-defined]
            if name == "getLogger":
                continue
            assert name in LEVELS, f"{file}:{call.lineno}: no {name}(): it would log a stack, or at any level"
            first = call.args[0]
            assert isinstance(first, ast.Constant), f"{file}:{call.lineno}: a literal, and values as its arguments"
            assert not call.keywords, f"{file}:{call.lineno}: no stack, nothing besides"
            found.add(str(first.value))
    return frozenset(found)


class Listener(logging.Handler):
    """Keeps what anybody logs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[str]:
        """As a file would hold it, tracebacks included."""
        return [logging.Formatter().format(record) for record in self.records]


@contextmanager
def listening() -> Iterator[Listener]:
    """Ours at any level, everybody else's from INFO on."""
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
    """Finds in logs what should not be there."""

    def __init__(self) -> None:
        self._sentences = sentences()
        self._texts: set[str] = set()

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Notes every text, id and name that is handed in."""

        def noted(check: Callable[..., Any]) -> Callable[..., Any]:
            def checked(value: Any, *more: Any) -> Any:
                if isinstance(value, str) and len(text := value.strip()) >= TELLING:
                    self._texts.add(text[:NOTED])
                return check(value, *more)

            return checked

        with patch.multiple(
            validation, _checked_text=noted(validation._checked_text), _checked_name=noted(validation._checked_name)
        ):
            yield

    def complaint(self, record: logging.LogRecord) -> str:
        """What is wrong with a record; "" if nothing is."""
        line = logging.Formatter().format(record)
        if record.exc_info or record.stack_info:
            return f"a stack: {line}"
        if record.name.startswith("graphmem"):
            if record.msg not in self._sentences:
                return f"none of our sentences: {line}"
            values = record.args if isinstance(record.args, tuple) else (record.args,)
            if unknown := [one for one in values if not _is_ours(one)]:
                return f"{unknown!r} is neither a number nor a name of ours: {line}"
        if record.name.startswith(("alembic", "mem0")):  # the titles of our migrations; what a mem0 in a test says
            return ""
        told = sorted(text for text in self._texts if text in line and not any(text in one for one in self._sentences))
        return f"{told!r} was handed in: {line}" if told else ""


def _is_ours(value: object) -> bool:
    if isinstance(value, int | float | GraphmemError):  # an error's text is looked through with the line
        return True
    return isinstance(value, str) and (value in OUR_NAMES or value in _errors())


def _errors() -> set[str]:
    """The names of all classes of exceptions that there are (several may have one name: mem0 has an LLMError, too)."""
    found, todo = set[type[BaseException]](), list[type[BaseException]]([BaseException])
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += type.__subclasses__(one)
    return {one.__name__ for one in found}
