"""What requests to a language model, and the reading of its answers, have in common. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.models.protocols import Prompt
from graphmem.prompts import load

T = TypeVar("T")
_SPACES = re.compile(r"\s+")


def object_schema(**properties: Any) -> dict[str, Any]:
    """The strict JSON Schema of an object: each of these, and nothing else."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def array_schema(items: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a list."""
    return {"type": "array", "items": items}


def build_prompt(
    operation: str, told: Mapping[str, Any], schema: Mapping[str, Any], instructions: str | None = None
) -> Prompt:
    """Asks by the instructions and the contract that are named for an operation, about data.

    `instructions` replace ours, not the contract: what an answer has to look like.
    """
    system = f"{instructions or load(operation)}\n\n{load(f'{operation}_contract')}"
    return Prompt(operation, system, as_json(told), schema)


def as_json(told: Mapping[str, Any]) -> str:
    """What a request is about, as JSON: nothing in it can end it."""
    return json.dumps(told, ensure_ascii=False)


def single_line(value: Any, longest: int | None = None) -> str | None:
    """Text in one line that any store can hold; None for what is no such text, or longer than that."""
    if not isinstance(value, str) or (longest is not None and len(value) > longest):
        return None
    words = _SPACES.sub(" ", value).strip()
    return checked_or(validation.content, words, None) if words else None


def checked_or(check: Callable[[Any, str], T], value: Any, otherwise: T | None) -> T | None:
    """What an argument's check makes of a part of an answer; what it refuses is `otherwise`."""
    try:
        return check(value, "answer")
    except ValidationError:
        return otherwise


def whole_number(value: Any) -> int | None:
    """A whole number of an answer, also one written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None
