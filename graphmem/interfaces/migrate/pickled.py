"""Points of Qdrant's local mode, which keeps them as pickles, read without running what a pickle could ask for.

A pickle names functions to call, so that an unpickled file can do anything. Here a name is never looked up: whatever a
pickle names becomes a `_Husk`, which takes all that is said to it and does nothing. Times are the only exception.
"""

from __future__ import annotations

import datetime as dt
import io
import pickle
from collections.abc import Mapping
from typing import Any

_HARMLESS = {name: getattr(dt, name) for name in ("date", "datetime", "time", "timedelta", "timezone")}


class _Husk:
    """Stands for any class and function, and for what they would make."""

    def __init__(self, *_: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _HARMLESS.get(name, _Husk) if module == "datetime" else _Husk


def fields(data: bytes) -> Mapping[str, Any] | None:
    """The fields of a pickled point ("id", "payload", …); None if it is none."""
    try:
        point = _Reader(io.BytesIO(data)).load()
    except Exception:  # noqa: BLE001  (a damaged pickle can fail in any way)
        return None
    # A model of pydantic 2 or 1: its state holds the fields.
    state = getattr(point, "state", None)
    found = state.get("__dict__") if isinstance(state, dict) else None
    return found if isinstance(found, dict) else None
