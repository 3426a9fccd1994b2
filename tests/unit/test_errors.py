"""Errors in another process: `multiprocessing` and pools pickle them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from graphmem import errors
from graphmem.commands.types import MessageIdReused
from graphmem.errors import GraphmemError, LLMUnavailable, PartialWrite, ValidationError
from graphmem.plugins import Usage


def subclasses(error_class: type[GraphmemError]) -> list[type[GraphmemError]]:
    return [error_class, *(each for child in error_class.__subclasses__() for each in subclasses(child))]


@pytest.mark.parametrize(
    "error",
    [
        PartialWrite("the graph is pending", {"results": [], "pending": ["graph"]}),
        MessageIdReused("m1"),
        ValidationError("top_k=0: must be more", "top_k=<int>: must be more", argument="top_k"),
        LLMUnavailable("it is too slow", Usage(calls=1), is_timeout=True),
        *(each.__new__(each, "text") for each in subclasses(GraphmemError) if each.__module__ == errors.__name__),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_in_another_process(error: GraphmemError) -> None:
    again: Any
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert (type(again), str(again), again.args, vars(again)) == (type(error), str(error), error.args, vars(error))
