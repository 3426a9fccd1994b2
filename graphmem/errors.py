"""Everything that can leave the public surface.

GraphmemError
├── ConfigError                the configuration cannot be used; says which key and what to put there
├── ValidationError            an argument cannot be used (also a ValueError)
├── NotFoundError              no such memory in this scope (also a LookupError)
├── StoreError                 a store failed
│   ├── StoreUnavailable       it cannot be reached, or its files cannot be used
│   └── StoreLocked            another process holds it
├── PartialWrite               strict=True only: durable, but not in every projection; `.result` has the rest
└── ModelError                 a model failed
    ├── EmbeddingError
    └── LLMError               by name: what it was, and in `.usage` what it cost all the same
        ├── LLMUnavailable     out of reach, too slow, overloaded, or it failed
        ├── LLMRejected        the endpoint does not take the request (key, model, size)
        ├── LLMTruncated       the answer was cut off
        ├── LLMRefused         the model would not answer, or a filter withheld it
        └── LLMUnusable        the answer is not what was asked for
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLOSED = "this Memory is closed; open a new one"
NO_THREAD = (
    "no thread can be started for this: the process is ending, or it has as many as it may have; what was stored is "
    "safe, and its enrichment and delivery are done by the next process that opens this memory, or by flush()"
)
FORKED = "this Memory was opened before this process was forked; open it after the fork, in each process its own"


class GraphmemError(Exception):
    """The root of the tree above."""


class ConfigError(GraphmemError):
    """The configuration cannot be used."""


class ValidationError(GraphmemError, ValueError):
    """An argument cannot be used; names the argument, its value and the remedy."""


class NotFoundError(GraphmemError, LookupError):
    """No such memory; an id of another scope reads exactly like an absent one."""


class StoreError(GraphmemError):
    """A store failed."""


class StoreUnavailable(StoreError):
    """A store cannot be reached, or its files cannot be used."""


class StoreLocked(StoreError):
    """Another process holds the store."""


class PartialWrite(GraphmemError):
    """The write is durable in the ledger but not yet in every projection (`strict=True` only).

    `result` is what the call would have returned, its `pending` naming the projections that lag.
    """

    def __init__(self, message: str, result: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.result = result


class ModelError(GraphmemError):
    """A model failed; the words it was asked about are safe in the ledger."""


class EmbeddingError(ModelError):
    """The embedding model failed."""


class LLMError(ModelError):
    """The language model failed. `usage` is what the attempt took, as a `graphmem.models.protocols.Usage`."""

    def __init__(self, message: str, usage: Any = None) -> None:
        super().__init__(message)
        self.usage = usage


class LLMUnavailable(LLMError):
    """The endpoint is out of reach, too slow, overloaded, or failed; asking again later may help."""


class LLMRejected(LLMError):
    """The endpoint does not take the request: its key, the model's name, or the size."""


class LLMTruncated(LLMError):
    """The answer was cut off: nothing of it is used."""


class LLMRefused(LLMError):
    """The model would not answer, or a content filter withheld the answer."""


class LLMUnusable(LLMError):
    """The answer is not what was asked for, and could not be mended."""
