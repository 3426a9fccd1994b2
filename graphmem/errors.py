"""All errors that the public methods raise.

GraphmemError
├── ConfigError                the configuration cannot be used; names the key and the remedy
├── ValidationError            an argument cannot be used (also a ValueError)
├── NotFoundError              no such memory in this scope (also a LookupError and a ValueError)
├── StoreError                 a store failed
│   └── StoreUnavailable       it cannot be reached, or its files cannot be used
│       └── StoreLocked        another process holds the lock of its writers
├── PartialWrite               strict=True only: durable, but not in every projection; `.result` is the call's result
└── ModelError                 a model failed
    ├── EmbeddingError
    │   └── EmbedderUnavailable  unreachable, too slow or overloaded, or its files cannot be loaded
    └── LLMError               the subclass names the cause; `.usage` has the cost of the failed attempt
        ├── LLMUnavailable     unreachable, too slow, overloaded, or it failed
        ├── LLMRejected        the endpoint does not accept the request (key, model, size)
        ├── LLMTruncated       the answer was cut off
        ├── LLMRefused         the model refused to answer, or a filter withheld the answer
        └── LLMUnusable        the answer does not have the requested form
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

CLOSED = "this Memory is closed; open a new one"
NO_THREAD = (
    "no thread can be started for this: the process is ending, or it has as many as it may have; stored memories are "
    "safe, and the next process that opens this memory, or flush(), enriches and delivers them"
)
FORKED = "this Memory was opened before this process was forked; open a Memory in each process, after the fork"

# Texts of errors that quote nothing, so that a log may have them.
LOGGABLE_CAUSES = frozenset({CLOSED, NO_THREAD, FORKED})


def install_extra(extra: str) -> str:
    """Returns the remedy for a package that is not installed: the extra of graphmem that brings it, and the command.

    Before its first release graphmem is on no package index: the command is that for a clone.
    """
    return f"install the extra {extra}: pip install '.[{extra}]' in a clone of graphmem"


class GraphmemError(Exception):
    """The base class of all errors.

    `is_loggable`: whether the text quotes nothing that a caller passed, so that logs and results may hold it.
    """

    is_loggable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own calls the class with the message alone: another process of a pool could not read the error
        # of a class that takes more, and the pool would wait for it for ever.
        return _restored, (type(self), self.args), self.__dict__


def _restored(error_class: type[GraphmemError], args: tuple[Any, ...]) -> GraphmemError:
    return error_class.__new__(error_class, *args)


class ConfigError(GraphmemError):
    """The configuration cannot be used."""


class ValidationError(GraphmemError, ValueError):
    """An argument cannot be used; the message names the argument, its value and the remedy.

    `without_value` is the message for places where no input may be repeated: it names the value's class instead.
    `argument` is the name at its beginning, None if that is no argument of the call, but a line of a file, for example.
    """

    def __init__(self, message: str, without_value: str | None = None, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.without_value = message if without_value is None else without_value
        self.argument = argument


class NotFoundError(GraphmemError, LookupError, ValueError):
    """No such memory. An id of another scope reads exactly like an absent one.

    A ValueError as well: mem0 raises one, so programs that were written for it catch that.
    """


class StoreError(GraphmemError):
    """A store failed."""


class StoreUnavailable(StoreError):
    """A store cannot be reached, or its files cannot be used."""


class StoreLocked(StoreUnavailable):
    """Another process held the lock of the store's writers for longer than a write waits; nothing was written."""


class PartialWrite(GraphmemError):
    """The write is durable in the ledger, but not yet in every projection (`strict=True` only).

    `result` is the result that the call would have returned; its `pending` names the lagging projections.
    """

    def __init__(self, message: str, result: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.result = result


class ModelError(GraphmemError):
    """A model failed; the words for it are safe in the ledger."""

    is_loggable = True


class EmbeddingError(ModelError):
    """The embedding model failed."""


class EmbedderUnavailable(EmbeddingError):
    """The embedding model cannot be reached or loaded, is too slow or overloaded: whatever the text is."""


class LLMError(ModelError):
    """The language model failed. `usage` is the cost of the attempt, a `graphmem.plugins.Usage`, or None."""

    def __init__(self, message: str, usage: Any = None) -> None:
        super().__init__(message)
        self.usage = usage


class LLMUnavailable(LLMError):
    """The endpoint is unreachable, too slow or overloaded, or it failed; a later attempt may succeed.

    `is_timeout`: whether it was too slow.
    """

    def __init__(self, message: str, usage: Any = None, *, is_timeout: bool = False) -> None:
        super().__init__(message, usage)
        self.is_timeout = is_timeout


class LLMRejected(LLMError):
    """The endpoint does not accept the request: its key, the model's name, or the size."""


class LLMTruncated(LLMError):
    """The answer was cut off; no part of it is used."""


class LLMRefused(LLMError):
    """The model refused to answer, or a content filter withheld the answer."""


class LLMUnusable(LLMError):
    """The answer does not have the requested form and could not be corrected."""
