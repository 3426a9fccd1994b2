"""JSON objects are read as a TypedDict describes them; what no check reads cannot be described."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, NotRequired, TypeAlias

import pytest
from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.transfer.fields import Check, ObjectReader
from graphmem.transfer.records import Name, Time


def read_loudly(value: object, path: str) -> str:
    return f"{validation.stored_name(value, path)}!"


Loud: TypeAlias = Annotated[Name, Check(read_loudly)]


class Leaf(TypedDict):
    size: Annotated[int, Field(ge=1, le=3)]


class Tree(TypedDict):
    name: Loud
    planted: Annotated[Time | None, Field(description="May be null, but not missing.")]
    leaves: NotRequired[Annotated[Annotated[list[Leaf], Field(max_length=3)] | None, Field(description="In order.")]]


@with_config(ConfigDict(extra="allow"))
class Open(TypedDict):
    name: Name


class Unbounded(TypedDict):
    size: int


TREE = ObjectReader(Tree, timezone(timedelta(hours=2)))


def test_fields_are_converted_by_the_outermost_check_and_times_by_the_zone() -> None:
    assert TREE({"name": " Oak ", "planted": "2024-05-01T12:00", "leaves": [{"size": 2}]}) == {
        "name": "Oak!", "planted": datetime(2024, 5, 1, 10, tzinfo=UTC), "leaves": [{"size": 2}],
    }  # fmt: skip


def test_a_null_field_stays_apart_from_a_missing_one() -> None:
    assert TREE({"name": "Oak", "planted": None, "leaves": None}) == {"name": "Oak!", "planted": None, "leaves": None}
    assert "leaves" not in TREE({"name": "Oak", "planted": None})


@pytest.mark.parametrize(
    ("tree", "error"),
    [
        ({"planted": 0}, "name: is missing; every such record has one"),
        ({"name": None, "planted": 0}, "name: is missing"),
        ({"name": "Oak"}, "planted: is missing"),
        ({"name": "Oak", "planted": 0, "leaves": [{"size": 1}, {"size": 4}]}, "leaves[1].size=4: must be a whole"),
        ({"name": "Oak", "planted": 0, "leaves": [{}]}, "leaves[0].size: is missing"),
        ({"name": "Oak", "planted": 0, "leaves": [{"size": 1, "colour": 1}]}, "leaves[0].'colour': is not a field"),
        ({"name": "Oak", "planted": 0, "leaves": 7}, "leaves=7: must be a list"),
        ({"name": "Oak", "planted": 0, "leaves": [{"size": 1}] * 4}, "leaves=<list>: has 4 items; give at most 3"),
        ({"name": "Oak", "planted": 0, 7: 1}, "'7': is not a field"),
        ([], "record"),
    ],
)
def test_an_error_names_the_place_and_the_remedy(tree: Any, error: str) -> None:
    with pytest.raises(ValidationError) as raised:
        TREE(tree)
    assert str(raised.value).startswith(error)


def test_an_open_object_keeps_unknown_fields_unread() -> None:
    assert ObjectReader(Open, None)({"name": " x ", "form": [" y "]}) == {"name": "x", "form": [" y "]}


def test_a_type_that_no_check_reads_is_refused() -> None:
    with pytest.raises(TypeError, match="no check reads <class 'int'>"):
        ObjectReader(Unbounded, None)
