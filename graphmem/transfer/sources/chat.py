"""Plain chat exports as messages for `add`, recognised when they come again: those that name no id are given one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.transfer.sources.message_files import MessageDefaults, is_lines, numbered_lines, parse_line, read_file
from graphmem.transfer.sources.records import SkippedRecords


def messages(path: Path, text: str, limits: validation.InputLimits, left: SkippedRecords) -> list[Any]:
    """What was said, in order; what is no message is noted in `left`, by its line where the file has one for each.

    Raises ValidationError for a file that cannot be read.
    """
    seen: Counter[str] = Counter()
    taken = []
    for place, message in _placed(path, text, left):
        with left.skip_invalid(place):
            _check(message, limits)
            taken.append(_recognisable(message, seen))
    return taken


def _placed(path: Path, text: str, left: SkippedRecords) -> Iterator[tuple[str, Any]]:
    """Each message with where it stands."""
    if not is_lines(path, text):
        _, said = read_file(path, MessageDefaults())
        yield from ((f"message {number}", message) for number, message in enumerate(said, 1))
        return
    for number, line in numbered_lines(text):
        place, found = f"line {number}", list[Any]()
        with left.skip_invalid(place):
            found = [MessageDefaults().complete(message) for message in parse_line(line)]
        yield from ((place, message) for message in found)


def _check(message: Any, limits: validation.InputLimits) -> None:
    try:
        validation.message_list([message], now=datetime.now(UTC), limits=limits)
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
