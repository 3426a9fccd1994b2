"""The filter language: its grammar, its meaning, and the laws of logic."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem.boundary import filters as filtering
from graphmem.boundary.filters import OPERATORS, SPECIAL_FIELDS, Filter, Matcher, fields_of, parse, text_hash
from graphmem.errors import ValidationError
from graphmem.model import Kind, MemoryRecord, Scope

AT = datetime(2024, 3, 1, 12, tzinfo=UTC)
FIELDS: dict[str, Any] = {
    "topic": "Travel plans",
    "stars": 4,
    "price": 9.5,
    "zero": 0,
    "done": True,
    "nothing": None,
    "tags": ["Work", "home", 3],
    "due": "2024-03-01T12:00:00+00:00",
    "day": "2024-03-01",
    "address": {"city": "Paris", "geo": {"lat": 48.8}},
    "a.b": "literal",
    "a": {"b": "nested"},
    "star": "*",
    "created_at": AT,
    "at": "2024-03-01T12:00:00Z",
    "kind": "fact",
}


def parse_filter(filters: Any) -> Filter:
    result = parse(filters)
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        # equality, type for type
        ({"topic": "Travel plans"}, True),
        ({"topic": "travel plans"}, False),
        ({"stars": 4}, True),
        ({"stars": 4.0}, True),
        ({"stars": "4"}, False),
        ({"stars": True}, False),
        ({"done": True}, True),
        ({"done": 1}, False),
        ({"zero": False}, False),
        ({"zero": 0}, True),
        ({"nothing": None}, True),
        ({"zero": None}, False),
        ({"tags": ["Work", "home", 3]}, True),
        ({"tags": ("Work", "home", 3.0)}, True),
        ({"tags": ["home", "Work", 3]}, False),
        ({"tags": "Work"}, False),
        ({"address": {"eq": {"geo": {"lat": 48.8}, "city": "Paris"}}}, True),
        ({"address": {"eq": {"city": "Paris"}}}, False),
        ({"topic": "*"}, True),
        ({"topic": {"eq": "*"}}, False),
        ({"nothing": "*"}, True),
        ({"address.city": "*"}, True),
        ({"missing": "*"}, False),
        ({"NOT": {"missing": "*"}}, True),
        ({"star": "*"}, True),
        ({"stars": {"eq": 4, "ne": 5}}, True),
        ({"stars": {"eq": 4, "ne": 4}}, False),
        ({"stars": {"ne": "4"}}, True),
        # ordering
        ({"stars": {"gte": 4, "lt": 5}}, True),
        ({"stars": {"gt": 4}}, False),
        ({"stars": {"lte": 4.5}}, True),
        ({"price": {"gt": 9, "lt": 10}}, True),
        ({"topic": {"gt": "Train"}}, True),
        ({"topic": {"gt": 3}}, False),
        ({"topic": {"lte": 3}}, False),
        ({"stars": {"gt": "3"}}, False),
        ({"done": {"gte": 0}}, False),
        ({"nothing": {"lt": 1}}, False),
        ({"tags": {"gt": "A"}}, False),
        # membership
        ({"stars": {"in": [1, 4.0]}}, True),
        ({"stars": {"in": ["4", True]}}, False),
        ({"stars": {"in": []}}, False),
        ({"stars": {"nin": []}}, True),
        ({"stars": {"nin": (4,)}}, False),
        ({"done": {"nin": [1]}}, True),
        ({"topic": {"contains": "plan"}}, True),
        ({"topic": {"contains": "Plan"}}, False),
        ({"topic": {"icontains": "PLAN"}}, True),
        ({"topic": {"contains": 3}}, False),
        ({"tags": {"contains": "Work"}}, True),
        ({"tags": {"contains": "Wor"}}, False),
        ({"tags": {"contains": 3.0}}, True),
        ({"tags": {"contains": "3"}}, False),
        ({"tags": {"icontains": "wORK"}}, True),
        ({"tags": {"icontains": "wor"}}, False),
        ({"stars": {"contains": "4"}}, False),
        ({"stars": {"icontains": "4"}}, False),
        ({"address": {"contains": "city"}}, False),
        # missing fields
        ({"gone": None}, False),
        ({"gone": "x"}, False),
        ({"gone": {"ne": "x"}}, True),
        ({"gone": {"ne": None}}, True),
        ({"gone": {"nin": ["x"]}}, True),
        ({"gone": {"in": [None]}}, False),
        ({"gone": {"lt": 1}}, False),
        ({"gone": {"contains": ""}}, False),
        ({"gone": {"icontains": ""}}, False),
        # times
        ({"created_at": "2024-03-01T13:00:00+01:00"}, True),
        ({"created_at": {"in": [0, AT]}}, True),
        ({"created_at": {"gte": "2024-03-01", "lt": date(2024, 3, 2)}}, True),
        ({"created_at": {"gt": AT}}, False),
        ({"created_at": {"ne": AT.timestamp()}}, False),
        ({"at": datetime(2024, 3, 1, 17, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))}, True),
        ({"at": {"lt": "2024-03-01T12:00:00.000001"}}, True),
        ({"due": AT}, True),
        ({"due": "2024-03-01T12:00:00Z"}, True),
        ({"due": {"gt": date(2024, 3, 1)}}, True),
        ({"due": {"in": [AT]}}, True),
        ({"day": date(2024, 3, 1)}, True),
        ({"day": {"gt": "2024-02-29"}}, True),
        ({"topic": {"gt": AT}}, False),
        ({"stars": {"lt": AT}}, False),
        # paths
        ({"address.city": "Paris"}, True),
        ({"address.geo.lat": {"gt": 48}}, True),
        ({"address.city.x": "Paris"}, False),
        ({"address.gone": {"ne": 1}}, True),
        ({"a.b": "literal"}, True),
        ({"topic.": "Travel plans"}, False),
        # logic
        ({"stars": 4, "done": True}, True),
        ({"stars": 4, "done": False}, False),
        ({"AND": [{"stars": 4}, {"done": True}]}, True),
        ({"OR": [{"stars": 5}, {"done": True}]}, True),
        ({"OR": [{"stars": 5}, {"done": False}]}, False),
        ({"NOT": {"stars": 5}}, True),
        ({"NOT": [{"stars": 5}, {"done": True}]}, False),
        ({"NOT": [{"stars": 5}, {"done": False}]}, True),
        ({"kind": "fact", "OR": [{"stars": 5}, {"NOT": [{"AND": [{"done": True}, {"zero": 1}]}]}]}, True),
        ({"kind": "episode", "OR": [{"stars": 4}]}, False),
    ],
)
def test_meaning(filters: dict[str, Any], *, expected: bool) -> None:
    assert parse_filter(filters).matches(FIELDS) is expected


def levels(count: int) -> dict[str, Any]:
    filters: dict[str, Any] = {"x": 1}
    for _ in range(count):
        filters = {"NOT": [filters]}
    return filters


@pytest.mark.parametrize(
    ("bad", "pattern"),
    [
        ([], "filters="),
        ("x", "filters="),
        ({1: 2}, "must be a string"),
        ({"": 2}, "non-empty string"),
        ({"x": {}}, "names no operator"),
        ({"x": {"gte": 1, "$lt": 2}}, "did you mean 'lt'"),
        ({"x": {"regex": "a"}}, "known are eq, ne, gt"),
        ({"x": {"EQ": "a"}}, "did you mean 'eq'"),
        ({"x": {1: "a"}}, "is not an operator"),
        ({"$or": [{"x": 1}]}, "write AND, OR, NOT in capitals"),
        ({"or": [{"x": 1}]}, "write AND, OR, NOT in capitals"),
        ({"AND": {"x": 1}}, r"filters\.AND"),
        ({"AND": []}, r"filters\.AND"),
        ({"OR": "x"}, r"filters\.OR"),
        ({"OR": [{}]}, r"filters\.OR\[0\]"),
        ({"NOT": {}}, r"filters\.NOT"),
        ({"NOT": [1]}, r"filters\.NOT\[0\]"),
        ({"x": {"in": "abc"}}, r"filters\.x\.in"),
        ({"x": {"nin": 3}}, r"filters\.x\.nin"),
        ({"x": {"in": [float("nan")]}}, "NaN"),
        ({"x": float("nan")}, "NaN"),
        ({"x": {"gt": float("inf")}}, r"filters\.x\.gt"),
        ({"x": {"gt": None}}, "number, a string or a date"),
        ({"x": {"gt": True}}, "number, a string or a date"),
        ({"x": {"lte": [1]}}, "number, a string or a date"),
        ({"x": {"contains": ["a"]}}, "must be one value"),
        ({"x": {"icontains": 3}}, "must be a string"),
        ({"x": "\x00"}, "no store can keep"),
        ({"x": b"a"}, "not JSON"),
        ({"created_at": "soon"}, r"filters\.created_at\.eq='soon'"),
        ({"at": None}, r"filters\.at\.eq"),
        ({"updated_at": {"contains": "2024"}}, "use gte and lt"),
        ({"at": {"icontains": "2024"}}, "use gte and lt"),
        ({"user_id": "a"}, "give user_id beside"),
        ({"OR": [{"NOT": {"agent_id": "a"}}]}, "give agent_id beside"),
        (levels(11), "at most 10"),
    ],
)
def test_refused(bad: Any, pattern: str) -> None:
    with pytest.raises(ValidationError, match=pattern):
        parse(bad)


def test_no_filter() -> None:
    assert parse(None) is None
    assert parse({}) is None


def test_ten_levels_are_fine() -> None:
    assert parse_filter(levels(10)).matches({"x": 1})
    assert not parse_filter(levels(9)).matches({"x": 1})


MANY = [{"x": n} for n in range(250)]


@pytest.mark.parametrize(
    ("filters", "count", "suggested"),
    [
        ({f"k{n}": n for n in range(201)}, 201, False),
        ({"x": {"in": [1]}, "AND": [{f"k{n}": {"gt": 1, "lt": 5}} for n in range(100)]}, 201, False),
        ({"NOT": [{"OR": MANY}]}, 250, True),
        ({"OR": [{"x": {"eq": n}} for n in range(201)]}, 201, True),
        ({"OR": [*MANY[:150], *({"y": n} for n in range(60))]}, 210, True),
        ({"OR": [*MANY[:150], *({"y": {"gt": n}} for n in range(250))]}, 400, False),
        ({"AND": MANY}, 250, False),
        ({"OR": [{"x": {"contains": str(n)}} for n in range(201)]}, 201, False),
    ],
)
def test_more_than_two_hundred_conditions_are_refused(filters: Any, count: int, *, suggested: bool) -> None:
    with pytest.raises(ValidationError, match=f"has {count} conditions; use at most 200") as caught:
        parse(filters)
    assert ("{'x': {'in': [...]}}" in str(caught.value)) == suggested


def test_two_hundred_conditions_are_fine() -> None:
    assert parse_filter({"OR": MANY[:200]}).matches({"x": 199})
    assert not parse_filter({"OR": MANY[:200]}).matches({"x": 200})


class CountingStr(str):
    """Counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountingStr.comparisons += 1
        return str.__eq__(self, other)


def test_any_number_of_values_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory's value is looked up by its hash, not compared with each of them."""
    monkeypatch.setattr(CountingStr, "comparisons", 0)
    values = parse_filter({"x": {"in": [str(n) for n in range(100_000)]}})
    assert sum(values.matches({"x": CountingStr(n)}) for n in range(0, 200_000, 100)) == 1000
    assert CountingStr.comparisons < 10_000


def test_a_filter_does_not_change_with_the_dict_it_came_from() -> None:
    names = ["a"]
    parsed_filter = parse_filter({"x": {"in": names}})
    names.append("b")
    assert not parsed_filter.matches({"x": "b"})


RECORD = MemoryRecord(
    id="1", partition="user:a", scope=Scope("a"), kind=Kind.FACT, text="tea", at=AT, valid_from=AT, created_at=AT,
    updated_at=AT, session="s", role="user", metadata={"tags": ["x"], "kind": "mine", "user_id": "mine"},
)  # fmt: skip


def test_fields_of() -> None:
    fields = fields_of(RECORD)
    assert set(SPECIAL_FIELDS) <= set(fields)
    assert fields["kind"] == "fact"
    assert fields["hash"] == text_hash("tea") == "7239ea2b5dc943f61f3c0a0276c20974"
    for filters in (
        {"kind": "fact", "tags": {"contains": "x"}, "role": "user", "actor_id": None},
        {"created_at": {"lte": AT}, "updated_at": AT, "at": {"gte": "2024-03-01"}},
        {"memory_type": {"ne": "semantic"}, "hash": text_hash("tea")},
    ):
        assert parse_filter(filters).matches(fields)


class FoldingStr(str):
    """A text that counts how often it is case-folded."""

    __slots__ = ()
    folded = 0

    def casefold(self) -> str:
        FoldingStr.folded += 1
        return super().casefold()


def test_a_value_is_case_folded_once_for_all_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FoldingStr, "folded", 0)
    many = parse_filter({"OR": [{"x": {"icontains": f"no {number}"}} for number in range(200)]})
    assert not many.matches({"x": FoldingStr("NOTHING")})
    assert FoldingStr.folded == 1


DEEP: dict[str, Any] = {"a": {"a": {"a": list(range(10))}}}


@pytest.mark.parametrize(
    ("filters", "metadata", "fits"),
    [
        ({"x": {"icontains": "b"}}, {"x": "a" * 3000}, True),
        ({"x": {"icontains": "b"}}, {"x": "a" * 30_000}, False),
        ({"OR": [{"x": {"contains": str(n)}} for n in range(12)]}, {"x": "a" * 3000}, False),
        ({"OR": [{"x": n} for n in range(150)]}, {"x": -1}, False),
        ({"OR": [{"x": n} for n in range(50)]}, {"x": -1}, True),
        ({"x": [2]}, {"x": list(range(100))}, False),
        ({"OR": [{"a": [1]}]}, DEEP, True),
        ({"OR": [{"a": [1]}, {"a.a": [2]}, {"a.a.a": [3]}]}, DEEP, False),
    ],
)
def test_the_cost_of_a_filter_is_limited(
    filters: Any, metadata: dict[str, Any], *, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "MAX_COMPARED_CHARS", 10_000)
    record = replace(RECORD, metadata=metadata)
    if fits:
        matcher = Matcher(parse_filter(filters))
        assert not matcher.matches(record)
        with pytest.raises(ValidationError):  # the memories of a call count together
            for _ in range(10):
                matcher.matches(record)
    else:
        with pytest.raises(ValidationError, match="^filters: needs more than 10,000 comparisons"):
            Matcher(parse_filter(filters)).matches(record)


# --- laws ----------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "a.b", "tags", "created_at"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from(["", "x", "2024-01-01", "\x00", "\ud800"])
    | st.datetimes(timezones=st.just(UTC) | st.none())
    | st.dates()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=5,
)
OTHER = (
    VALUES
    | st.binary(max_size=2)
    | st.builds(object)
    | st.frozensets(st.integers(0, 3))
    | st.dictionaries(KEYS, VALUES)
)
CONDITIONS = st.dictionaries(
    KEYS | st.text(max_size=3),
    OTHER | st.dictionaries(st.sampled_from([*OPERATORS, "near"]), OTHER, max_size=2),
    max_size=2,
)
FILTERS: st.SearchStrategy[Any] = st.recursive(
    CONDITIONS,
    lambda inner: st.dictionaries(
        st.sampled_from(["AND", "OR", "NOT", "or", "user_id"]), st.lists(inner, max_size=3) | inner, max_size=2
    ),
    max_leaves=8,
)
RECORDS = st.dictionaries(KEYS, OTHER, max_size=4)


def try_parse(filters: Any) -> Filter | None:
    try:
        return parse(filters)
    except ValidationError:
        return None


@settings(deadline=None)
@given(FILTERS | OTHER, RECORDS)
def test_only_parse_raises_and_only_validation_errors(filters: Any, fields: dict[str, Any]) -> None:
    parsed_filter = try_parse(filters)
    if parsed_filter is not None:
        assert parsed_filter.matches(fields) in {True, False}


GOOD_OPERANDS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x", "X"])
GOOD = st.one_of(
    st.dictionaries(st.sampled_from("ab"), GOOD_OPERANDS, min_size=1),
    st.builds(lambda key, one: {key: {"ne": one}}, st.sampled_from("ab"), GOOD_OPERANDS),
    st.builds(lambda key, many: {key: {"in": many}}, st.sampled_from("ab"), st.lists(GOOD_OPERANDS)),
    st.builds(
        lambda key, word, one: {key: {word: one}},
        st.sampled_from("ab"),
        st.sampled_from(["gt", "gte", "lt", "lte"]),
        st.integers(-2, 2) | st.just("x"),
    ),
)
GOOD_RECORDS = st.dictionaries(st.sampled_from("ab"), GOOD_OPERANDS | st.lists(GOOD_OPERANDS, max_size=2))


@settings(deadline=None)
@given(GOOD, GOOD, GOOD_RECORDS)
def test_logic_is_logic(one: Any, two: Any, fields: dict[str, Any]) -> None:
    def holds(filters: Any) -> bool:
        return parse_filter(filters).matches(fields)

    first, second = holds(one), holds(two)
    assert holds({"AND": [one, two]}) is (first and second)
    assert holds({"OR": [one, two]}) is (first or second)
    assert holds({"NOT": one}) is (not first)
    assert holds({"NOT": [one, two]}) is (not (first or second))
    assert holds({"NOT": [{"NOT": one}]}) is first
    assert holds({"NOT": {"AND": [one, two]}}) is holds({"OR": [{"NOT": one}, {"NOT": two}]})


@settings(deadline=None)
@given(GOOD_OPERANDS, st.lists(GOOD_OPERANDS), GOOD_RECORDS)
def test_negated_operators_are_negations(one: Any, many: list[Any], fields: dict[str, Any]) -> None:
    assert parse_filter({"a": {"ne": one}}).matches(fields) is not parse_filter({"a": one}).matches(fields)
    assert parse_filter({"a": {"nin": many}}).matches(fields) is not parse_filter({"a": {"in": many}}).matches(fields)
    assert parse_filter({"a": {"in": many}}).matches(fields) is any(
        parse_filter({"a": x}).matches(fields) for x in many
    )
