"""graphmem: memory for agents. A ledger with two projections: a vector index and a graph of entities and relations."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes a tenth of the time of a coding agent's hook
if TYPE_CHECKING:
    from typing import Any

    from graphmem.async_memory import AsyncMemory
    from graphmem.chat import ChatLink
    from graphmem.memory import Memory
    from graphmem.model import MemoryEvent
    from graphmem.settings import Settings

__version__ = "0.1.0"
__all__ = ["AsyncMemory", "ChatLink", "Memory", "MemoryEvent", "Settings", "__version__", "errors"]

# Loaded on first use, so that importing graphmem is fast, whatever its stores import.
_MODULES = {
    "AsyncMemory": "graphmem.async_memory",
    "ChatLink": "graphmem.chat",
    "Memory": "graphmem.memory",
    "MemoryEvent": "graphmem.model",
    "Settings": "graphmem.settings",
    "errors": "graphmem.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'graphmem' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    module = import_module(_MODULES[name])
    return module if name == "errors" else getattr(module, name)
