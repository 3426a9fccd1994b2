"""JSON of requests, read without what two readers would read in two ways."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NoReturn


class AmbiguousJson(ValueError):
    """A body that not every reader takes alike. The text names a member at most, and repeats no value."""


def read_json(body: bytes) -> Any:
    """Returns the value of a body.

    Raises AmbiguousJson for an object with a member twice, of which some readers take the first and others the last,
    and for NaN and Infinity, which Python takes though they are no JSON; ValueError for anything else that is none;
    RecursionError for what is nested too deeply.
    """
    return json.loads(body, object_pairs_hook=_object, parse_constant=_refuse_constant)


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        ((name, count),) = Counter(name for name, _ in members).most_common(1)
        shown = name[:40].encode(errors="replace").decode()  # half of a surrogate pair is no UTF-8
        raise AmbiguousJson(f"{shown}: is there {count} times in one object; send it once")
    return found


def _refuse_constant(_: str) -> NoReturn:
    raise AmbiguousJson("NaN and Infinity are no numbers of JSON; leave them out, or send null")
