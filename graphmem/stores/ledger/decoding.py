"""What rows hold, read as what the code wrote. A value that it cannot have written is damage, and nothing else is."""

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
    """A value in a row that the code cannot have written: a date past all years, half a JSON, a kind there is not.

    `engine.Database` names the ledger, and what to do.
    """


def decoding(read: Callable[P, T]) -> Callable[P, T]:
    """A function of a row's values that raises `CorruptValue` for those that it cannot read."""

    @wraps(read)
    def decoded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (ValueError, OverflowError, TypeError) as error:
            raise CorruptValue(type(error).__name__) from error

    return decoded


@decoding
def moment(value: int) -> datetime:
    """A moment, from its microseconds."""
    return from_micros(value)


@decoding
def entity_type(value: str) -> EntityType:
    """The type of an entity."""
    return EntityType(value)


@decoding
def mention_kind(value: int) -> MentionKind:
    """How a memory mentions an entity."""
    return MentionKind(value)
