"""Opaque cursors: where the next page of a result begins, bound to the arguments of the call. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn
from zlib import crc32

from graphmem.boundary import validation


def cursor_at(place: object, arguments: Mapping[str, Any]) -> str:
    """Returns the opaque cursor of a place (JSON) in the result for these arguments."""
    return base64.urlsafe_b64encode(json.dumps([place, _checksum(arguments)]).encode()).decode()


def place_of(cursor: str, arguments: Mapping[str, Any]) -> Any:
    """Returns the place of a cursor. Raises ValidationError for one of another call."""
    try:
        place, checksum = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, RecursionError):
        refuse_cursor(cursor)
    if checksum != _checksum(arguments):
        refuse_cursor(cursor)
    return place


def offset_at(cursor: str, arguments: Mapping[str, Any]) -> int:
    """Returns the offset that a cursor stands for, 0 for "". Raises ValidationError for a cursor of another call."""
    if not cursor:
        return 0
    place = place_of(cursor, arguments)
    if type(place) is not int or place < 0:
        refuse_cursor(cursor)
    return place


def cursor_after(memory: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Returns the cursor of the place after a memory in a list of memories."""
    return cursor_at([memory["at"], memory["id"]], arguments)


def place_after(cursor: str, arguments: Mapping[str, Any]) -> tuple[datetime, str] | None:
    """Returns the time and the id of the memory that a cursor of `cursor_after` names, None for "".

    Raises ValidationError for another cursor.
    """
    if not cursor:
        return None
    place = place_of(cursor, arguments)
    if not (isinstance(place, list) and len(place) == 2 and all(isinstance(part, str) for part in place)):  # noqa: PLR2004
        refuse_cursor(cursor)
    try:
        return datetime.fromisoformat(place[0]).astimezone(UTC), validation.memory_id(place[1])
    except (ValueError, OverflowError):
        refuse_cursor(cursor)


def refuse_cursor(cursor: str) -> NoReturn:
    """Raises ValidationError for a cursor that the call did not return."""
    validation.refuse("cursor", cursor, "is no next_cursor of this call; leave it out to begin again")


def _checksum(arguments: Mapping[str, Any]) -> int:
    return crc32(json.dumps(arguments, sort_keys=True).encode())
