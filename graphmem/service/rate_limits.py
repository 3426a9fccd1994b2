"""Rate limits of the service: requests of a key, requests that add memories, refused requests of an address."""

from __future__ import annotations

import logging
import math
from ipaddress import IPv6Address, ip_address, ip_network
from time import time

from limits import RateLimitItem, parse
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from limits.errors import StorageError
from limits.storage import storage_from_string

from graphmem.logs import log_text
from graphmem.service import limits
from graphmem.service.problems import Problem
from graphmem.settings.schema import ServeSettings
from graphmem.stores.redis_options import redis_options

logger = logging.getLogger("graphmem")


class RateLimits:
    """Counts requests, in this process or in Redis. A Redis that does not answer limits nothing, with a warning.

    Raises ConfigError if it shall be Redis and its client is not installed.
    """

    def __init__(self, settings: ServeSettings) -> None:
        url, options = "async+memory://", {}
        if settings.redis_url is not None:
            url = _async_url(settings.redis_url.get_secret_value())
            options = {"implementation": "redispy", "wrap_exceptions": True, **redis_options("serve.redis_url")}
        self._limiter = SlidingWindowCounterRateLimiter(storage_from_string(url, **options))
        self._request, self._add, self._refusal = map(parse, (settings.rate, settings.add_rate, limits.REFUSALS))

    async def count_request(self, key_id: str, rate: str | None, *, adds: bool) -> dict[str, str]:
        """Counts a request of a key, and returns the headers that tell what is left. Raises Problem 429.

        `rate` replaces the configured rate for all requests; `adds` counts it as one that adds memories, too.
        """
        headers = await self._hit(self._request if rate is None else parse(rate), "key", key_id)
        return await self._hit(self._add, "add", key_id) if adds else headers

    async def count_refusal(self, address: str) -> None:
        """Counts a request without a valid key. Raises Problem 429 for an address with too many.

        IPv6 addresses count by their /64: that is the least that a provider assigns, so whoever has one has all of it.
        """
        await self._hit(self._refusal, "refused", _counted_address(address))

    async def _hit(self, limit: RateLimitItem, *identifiers: str) -> dict[str, str]:
        try:
            is_allowed = await self._limiter.hit(limit, *identifiers)
            reset_at, remaining = await self._limiter.get_window_stats(limit, *identifiers)
        except StorageError as error:
            logger.warning("requests cannot be counted (%s)", log_text(error))
            return {}
        seconds = max(1, math.ceil(reset_at - time()))
        headers = {
            "RateLimit-Limit": str(limit.amount),
            "RateLimit-Remaining": str(remaining),
            "RateLimit-Reset": str(seconds),
        }
        if not is_allowed:
            raise Problem(429, f"At most {limit}; wait.", headers={**headers, "Retry-After": str(seconds)})
        return headers


def _counted_address(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:  # such as that of a Unix socket
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or ip_network((parsed.packed, 64), strict=False))


def _async_url(url: str) -> str:
    return url if url.startswith("async+") else f"async+{url}"
