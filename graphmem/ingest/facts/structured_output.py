"""Helpers for requests to a language model (prompts, JSON schemas) and for values of its answers. Pure: no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.plugins import Prompt
from graphmem.prompts import load

T = TypeVar("T")
_SPACES = re.compile(r"\s+")


def object_schema(**properties: Any) -> dict[str, Any]:
    """Returns the strict JSON Schema of an object: all of these properties are required, no others are allowed."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def array_schema(items: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON Schema of a list."""
    return {"type": "array", "items": items}


def build_prompt(
    operation: str,
    data: Mapping[str, Any],
    schema: Mapping[str, Any],
    instructions: str | None = None,
    further: Sequence[str] = (),
) -> Prompt:
    """Builds a prompt: instructions and contract of an operation as the system text, `data` as JSON.

    `instructions` replace the template of graphmem, but not the contract, which defines the form of the answer.
    `further` names templates that follow it.
    """
    system = (instructions or load(operation), *map(load, (f"{operation}_contract", *further)))
    return Prompt(operation, "\n\n".join(system), as_json(data), schema)


def as_json(data: Mapping[str, Any]) -> str:
    """Returns the data of a request as JSON, in which no text of a user can end the data early."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def answer_entries(value: Any, *names: str) -> list[Any] | None:
    """Returns the list of an answer: the answer itself, or its field of one of these names; None if there is none.

    Null, and an object without fields, stand for an empty list, a single text or object for a list of one.
    """
    if isinstance(value, Mapping):
        name = next((name for name in names if name in value), None)
        if name is None:
            return None if value else []
        value = value[name]
        if value is None:
            return []
        if isinstance(value, str | Mapping):
            return [value]
    return value if isinstance(value, list) else None


def single_line(value: Any, max_chars: int | None = None) -> str | None:
    """Returns a text in one line.

    None for a value that is no text, is empty, is longer than `max_chars`, or has characters that a store refuses.
    """
    if not isinstance(value, str) or (max_chars is not None and len(value) > max_chars):
        return None
    text = _SPACES.sub(" ", value).strip()
    return checked_or(validation.content, text, None) if text else None


def checked_or(check: Callable[[Any, str], T], value: Any, default: T | None) -> T | None:
    """Returns a value of an answer as a check of `boundary.validation` converts it, or `default` if that refuses it."""
    try:
        return check(value, "answer")
    except ValidationError:
        return default


def whole_number(value: Any) -> int | None:
    """Returns a whole number of an answer, also one written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None
