"""How a Redis server is connected to, by whichever part of graphmem."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from graphmem.errors import ConfigError, install_extra

# Seconds that Redis may take to connect, and to answer.
REDIS_SECONDS = 0.5


def redis_options(key: str) -> dict[str, Any]:
    """Returns the options of a client. Raises ConfigError, which names the setting `key`, if none is installed."""
    if find_spec("redis") is None:
        raise ConfigError(f"{key}: a Redis server needs its client; {install_extra('redis')}")
    return {"socket_timeout": REDIS_SECONDS, "socket_connect_timeout": REDIS_SECONDS}
