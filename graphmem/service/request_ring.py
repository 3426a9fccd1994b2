"""The latest requests of this process, for an admin who looks for what fails or is slow."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime

from pydantic import BaseModel

from graphmem.service import limits


class RequestItem(BaseModel):
    """One request: neither its path nor its query, which hold ids."""

    method: str
    route: str
    status: int
    latency_ms: float
    role: str
    at: datetime


class LatestRequests:
    """Keeps the latest `limits.MAX_REQUESTS` requests."""

    def __init__(self) -> None:
        self._items: deque[RequestItem] = deque(maxlen=limits.MAX_REQUESTS)

    def note(self, method: str, route: str, status: int, seconds: float, role: str) -> None:
        """Adds a request; a listener of `RequestLog`."""
        now, milliseconds = datetime.now(UTC), round(seconds * 1000, 1)
        self._items.append(
            RequestItem(method=method, route=route, status=status, latency_ms=milliseconds, role=role, at=now)
        )

    def newest(self, limit: int) -> list[RequestItem]:
        """Returns the latest requests, newest first."""
        return list(self._items)[: -limit - 1 : -1]
