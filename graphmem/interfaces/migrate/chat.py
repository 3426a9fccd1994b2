"""Plain chat exports as messages for `add`, recognised when they come again: those that name no id are given one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from graphmem import arguments
from graphmem.errors import ValidationError
from graphmem.interfaces.migrate.records import Left
from graphmem.interfaces.reading import Defaults, is_lines, numbered, read_file, said_on


def messages(path: Path, text: str, limits: arguments.Limits, left: Left) -> list[Any]:
    """What was said, in order; what is no message is noted in `left`, by its line where the file has one for each.

    Raises ValidationError for a file that cannot be read.
    """
    seen: Counter[str] = Counter()
    taken = []
    for place, message in _placed(path, text, left):
        with left.if_bad(place):
            _check(message, limits)
            taken.append(_recognisable(message, seen))
    return taken


def _placed(path: Path, text: str, left: Left) -> Iterator[tuple[str, Any]]:
    """Each message with where it stands."""
    if not is_lines(path, text):
        _, said = read_file(path, Defaults())
        yield from ((f"message {number}", message) for number, message in enumerate(said, 1))
        return
    for number, line in numbered(text):
        place, found = f"line {number}", list[Any]()
        with left.if_bad(place):
            found = [Defaults().complete(message) for message in said_on(line)]
        yield from ((place, message) for message in found)


def _check(message: Any, limits: arguments.Limits) -> None:
    try:
        arguments.messages([message], now=datetime.now(UTC), limits=limits)
    except ValidationError as error:
        # It is told which message it is by its line.
        raise ValidationError(str(error).replace("messages[0].", "", 1).replace("messages[0]", "message", 1)) from None


def _recognisable(message: Any, seen: Counter[str]) -> Any:
    """One with a time of its own is known by that."""
    if not isinstance(message, dict) or {"id", "timestamp"} & message.keys():
        return message
    said = json.dumps(message, sort_keys=True, default=str)
    seen[said] += 1
    return {**message, "id": str(uuid5(NAMESPACE_OID, f"{said}#{seen[said]}"))}
