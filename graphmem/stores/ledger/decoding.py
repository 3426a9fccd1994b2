"""Decodes column values of the ledger. A value that this code cannot have written means that the ledger is damaged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import ParamSpec, TypeVar

from graphmem.errors import StoreUnavailable
from graphmem.model import EntityType, MentionKind, from_micros

P = ParamSpec("P")
T = TypeVar("T")


class CorruptValue(StoreUnavailable):
    """A column value that this code cannot have written: a date out of range, truncated JSON, an unknown kind.

    `Database` turns it into a StoreUnavailable that names the ledger and the remedy.
    """


def decoding(read: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function that decodes column values: it raises CorruptValue for those that it cannot decode."""

    @wraps(read)
    def decoded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (ValueError, OverflowError, TypeError) as error:
            raise CorruptValue(type(error).__name__) from error

    return decoded


@decoding
def moment(value: int) -> datetime:
    """Returns the moment that a column holds in microseconds since 1970-01-01 UTC; raises CorruptValue."""
    return from_micros(value)


@decoding
def entity_type(value: str) -> EntityType:
    """Returns the entity type that a column holds; raises CorruptValue."""
    return EntityType(value)


@decoding
def mention_kind(value: int) -> MentionKind:
    """Returns the mention kind that a column holds; raises CorruptValue."""
    return MentionKind(value)
