"""What `Memory` returns is told once, in `graphmem.types`: no answer of REST has a copy of its fields."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import is_typeddict

import graphmem.service.rest
from graphmem import types

# An edge joins nodes of any kind: one of a relation has its fields, others have other ones.
OTHERS = {"GraphEdge"}
NAMES = [module.name for module in pkgutil.iter_modules(graphmem.service.rest.__path__)]


def declared(module: ModuleType) -> list[Any]:
    """Returns the types of dicts and the models that a module declares."""
    found = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]
    return [kind for kind in found if is_typeddict(kind) or issubclass(kind, BaseModel)]


def own_fields(kind: Any) -> set[str]:
    """Returns the fields of a type without those of the types that it extends."""
    inherited = {name for base in getattr(kind, "__orig_bases__", ()) for name in getattr(base, "__annotations__", ())}
    return set(kind.__annotations__) - inherited


@pytest.mark.parametrize("name", NAMES)
def test_no_answer_repeats_the_fields_of_a_result(name: str) -> None:
    results = [kind for kind in declared(types) if len(own_fields(kind)) > 2]
    answers = [kind for kind in declared(import_module(f"graphmem.service.rest.{name}")) if kind.__name__ not in OTHERS]
    repeated = [
        (one.__name__, kind.__name__) for one in answers for kind in results if own_fields(kind) <= own_fields(one)
    ]
    assert repeated == []
