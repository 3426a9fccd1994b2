"""Reads chat files for `graphmem migrate jsonl` as messages for `add`.

Messages without id and time get an id made of their content, so that a file read again adds nothing.
"""

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
from graphmem.transfer.sources.skipped_records import SkippedRecords


def messages(path: Path, text: str, limits: validation.InputLimits, skipped: SkippedRecords) -> list[Any]:
    """Returns the messages of a file's text in order; adds invalid ones to `skipped`, by line or by message number.

    Raises ValidationError if the file as a whole cannot be read.
    """
    occurrences: Counter[str] = Counter()
    accepted = []
    for place, message in _messages_with_places(path, text, skipped):
        with skipped.skip_invalid(place):
            _check(message, limits)
            if isinstance(message, dict) and not {"id", "timestamp"} & message.keys():
                serialised = json.dumps(message, sort_keys=True, default=str)
                occurrences[serialised] += 1
                id_ = uuid5(NAMESPACE_OID, f"{serialised}#{occurrences[serialised]}")
                accepted.append({**message, "id": str(id_)})
            else:
                accepted.append(message)
    return accepted


def _messages_with_places(path: Path, text: str, skipped: SkippedRecords) -> Iterator[tuple[str, Any]]:
    """Yields each message with its place for errors: "line 3" of JSON Lines, else "message 3"."""
    if not is_lines(path, text):
        _, read_messages = read_file(path, MessageDefaults())
        yield from ((f"message {number}", message) for number, message in enumerate(read_messages, 1))
        return
    for number, line in numbered_lines(text):
        place, line_messages = f"line {number}", list[Any]()
        with skipped.skip_invalid(place):
            line_messages = [MessageDefaults().complete(message) for message in parse_line(line)]
        yield from ((place, message) for message in line_messages)


def _check(message: Any, limits: validation.InputLimits) -> None:
    try:
        validation.message_list([message], now=datetime.now(UTC), limits=limits)
    except ValidationError as error:
        # The place is reported separately, so the index that `message_list` puts first is removed.
        raise ValidationError(str(error).replace("messages[0].", "", 1).replace("messages[0]", "message", 1)) from None
