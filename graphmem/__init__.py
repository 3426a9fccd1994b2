"""graphmem: memory for agents. A ledger, and two projections of it: a vector index and an entity-relation graph."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmem.async_memory import AsyncMemory
    from graphmem.chat import ChatLink
    from graphmem.memory import Memory
    from graphmem.settings import Settings

__version__ = "0.1.0"
__all__ = ["AsyncMemory", "ChatLink", "Memory", "Settings", "__version__", "errors"]

# Loaded when first asked for: importing graphmem costs next to nothing, whatever the stores behind it need.
_HOMES = {
    "AsyncMemory": "graphmem.async_memory",
    "ChatLink": "graphmem.chat",
    "Memory": "graphmem.memory",
    "Settings": "graphmem.settings",
    "errors": "graphmem.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphmem' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return home if name == "errors" else getattr(home, name)
