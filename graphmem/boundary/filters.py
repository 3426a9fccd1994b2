"""Metadata filters: the one implementation, pure. `parse` refuses what is wrong up front, `matches` never raises.

    {"key": value}                                    equal
    {"key": {"gte": 3, "lt": 5}}                      eq ne gt gte lt lte in nin contains icontains, all of them
    {"AND": [f, …]}  {"OR": [f, …]}  {"NOT": [f, …]}  all, any, none of them; {"NOT": f} too
    {"a": 1, "OR": […]}                               all keys of a dict

- Types are kept apart: True is not 1, "1" is not 1 (1.0 is), and ordering unlike things is False.
- A key that is missing matches `ne` and `nin` only; a special field that is not set is None, not missing.
- Equality with a list means that whole list; `contains` asks for a member, or for a substring of a text. "*" is a text.
- `created_at`, `updated_at`, `at`, and any key whose operand is a date or datetime, compare as moments.
- "a.b" reaches into nested metadata unless there is a key "a.b".
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from operator import ge, gt, itemgetter, le, lt
from typing import TYPE_CHECKING, Any, NamedTuple

from graphmem.boundary.validation import (
    LIMITS,
    LOGIC,
    MAX_DOCUMENT_DEPTH,
    InputLimits,
    json_ready,
    moment,
    refuse,
    refuse_scope_names,
)
from graphmem.boundary.validation import key as metadata_key
from graphmem.errors import ValidationError

if TYPE_CHECKING:
    from graphmem.model import MemoryRecord

SPECIAL_FIELDS = ("kind", "memory_type", "created_at", "updated_at", "at", "actor_id", "role", "tags", "hash")
TIME_FIELDS = frozenset({"created_at", "updated_at", "at"})
OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "icontains")

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
_NEGATED = {"ne": "eq", "nin": "in"}
_MISSING = object()


class Filter(ABC):
    """A condition on a memory's fields, as `fields_of` names them."""

    @abstractmethod
    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether a memory with these fields is wanted. Never raises, whatever the fields hold."""


@dataclass(frozen=True, slots=True)
class And(Filter):
    """AND: all parts match."""

    parts: tuple[Filter, ...]

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether all parts match."""
        return all(part.matches(fields) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or(Filter):
    """OR: at least one part matches."""

    parts: tuple[Filter, ...]

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether at least one part matches."""
        return any(part.matches(fields) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Not(Filter):
    """NOT: no part matches."""

    parts: tuple[Filter, ...]

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether no part matches."""
        return not any(part.matches(fields) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Equals(Filter):
    """`eq` and `in`: the field is one of `values`. With `compares_moments`, a text that names a moment counts as that
    moment.
    """

    key: str
    values: frozenset[Hashable]
    compares_moments: bool

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether the field's value is among the wanted ones."""
        value = _look_up(fields, self.key)
        return not self.values.isdisjoint(_forms(value, timed=self.compares_moments))


@dataclass(frozen=True, slots=True)
class Compare(Filter):
    """`gt gte lt lte` against a number, a text or a moment."""

    key: str
    operator: str
    bound: float | str | datetime

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether the field's value is of the bound's type and on the wanted side of it."""
        value = _look_up(fields, self.key)
        if isinstance(self.bound, datetime):
            value = _as_moment(value)
        alike = (_is_number(value) and _is_number(self.bound)) or any(
            isinstance(value, kind) and isinstance(self.bound, kind) for kind in (str, datetime)
        )
        return alike and _ORDER[self.operator](value, self.bound)


@dataclass(frozen=True, slots=True)
class Contains(Filter):
    """`contains`: a substring of a text, or a member of a list."""

    key: str
    text: str | None
    values: frozenset[Hashable]
    compares_moments: bool

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether the field's value contains the operand."""
        value = _look_up(fields, self.key)
        if isinstance(value, str):
            return self.text is not None and self.text in value
        return any(not self.values.isdisjoint(_forms(one, timed=self.compares_moments)) for one in _members(value))


@dataclass(frozen=True, slots=True)
class ContainsIgnoreCase(Filter):
    """`icontains`: the same without regard to case; `text` is case-folded already."""

    key: str
    text: str

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether the field's value contains the text in any case."""
        value = _look_up(fields, self.key)
        if isinstance(value, str):
            return self.text in value.casefold()
        return any(isinstance(one, str) and one.casefold() == self.text for one in _members(value))


_LOGIC: Mapping[str, Callable[[tuple[Filter, ...]], Filter]] = {"AND": And, "OR": Or, "NOT": Not}


# --- reading a filter ----------------------------------------------------------------------------------------------


def parse(filters: Mapping[str, Any] | None, argument: str = "filters", limits: InputLimits = LIMITS) -> Filter | None:
    """The filter that a dict means (see the module's head); None or an empty dict is none.

    Raises `ValidationError` for whatever could not match as meant: unknown operators, operands of the wrong type, NaN,
    more levels of AND / OR / NOT or more conditions than `limits` allow, and scope ids (`boundary.validation.scope` has
    taken out those that are allowed).
    """
    if filters is None:
        return None
    if not isinstance(filters, Mapping):
        refuse(argument, filters, 'must be a dict such as {"project": "atlas"}')
    refuse_scope_names(filters, argument)
    _refuse_too_many(filters, argument, limits.max_filter_conditions)
    levels = limits.max_filter_depth
    return _every(filters, argument, _DepthBudget(levels, levels)) if filters else None


def _refuse_too_many(filters: Mapping[str, Any], argument: str, most: int) -> None:
    """Counts the conditions, for each is asked of each memory. What is no filter is left for `_every` to refuse."""
    count, waiting = 0, [filters]
    key, times = "", 0  # what most alternatives of one OR ask for
    while waiting:
        for name, value in waiting.pop().items():
            if name not in LOGIC:
                count += len(value) if isinstance(value, Mapping) else 1
                continue
            inner = [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, Mapping)]
            waiting += inner
            if name == "OR":
                keys = Counter(filter(None, map(_key_of_one_value, inner)))
                key, times = max([(key, times), *keys.most_common(1)], key=itemgetter(1))
    if count > most:
        spared = f"; OR over values of {key!r:.80} is one as {{{key!r:.80}: {{'in': [...]}}}}"
        remedy = spared if count - times < most else ""
        refuse(argument, filters, f"has {count:,} conditions; use at most {most}{remedy}")


def _key_of_one_value(alternative: Mapping[str, Any]) -> str | None:
    """The key of a filter that asks for one value of one key, and no more."""
    if len(alternative) != 1:
        return None
    ((key, value),) = alternative.items()
    equal = not isinstance(value, Mapping) or value.keys() == {"eq"}
    return key if equal and isinstance(key, str) and key not in LOGIC else None


class _DepthBudget(NamedTuple):
    """How many levels of logic may be opened from here, and how many there may be at all."""

    levels: int
    max_levels: int


def _every(filters: object, argument: str, left: _DepthBudget) -> Filter:
    if not isinstance(filters, Mapping) or not filters:
        refuse(argument, filters, "must be a dict with at least one condition")
    if left.levels < 0:
        refuse(argument, filters, f"is nested too deeply; use at most {left.max_levels} levels of AND / OR / NOT")
    parts = tuple(part for key, value in filters.items() for part in _entry(key, value, argument, left))
    return parts[0] if len(parts) == 1 else And(parts)


def _entry(named: object, value: object, argument: str, left: _DepthBudget) -> Iterator[Filter]:
    key = metadata_key(named, argument)
    if not key:
        refuse(argument, key, "a key must be a non-empty string")
    where = f"{argument}.{key}"
    if key in LOGIC:
        yield _logic(key, value, where, left._replace(levels=left.levels - 1))
    elif key.startswith("$") or key.upper() in LOGIC:
        # Taken for a metadata key, {"or": …} would match nothing, and nobody would see why.
        refuse(argument, key, f"is not a key; logic is written {', '.join(LOGIC)}, in capitals")
    elif isinstance(value, Mapping):
        if not value:
            refuse(where, value, f"names no operator; use some of {', '.join(OPERATORS)}")
        for operator, operand in value.items():
            yield _condition(key, operator, operand, where)
    else:
        yield _condition(key, "eq", value, where)


def _logic(word: str, value: object, where: str, left: _DepthBudget) -> Filter:
    listed = [value] if word == "NOT" and isinstance(value, Mapping) else value
    if not isinstance(listed, list | tuple) or not listed:
        refuse(where, value, "must be a list with at least one filter")
    parts = tuple(_every(one, f"{where}[{index}]", left) for index, one in enumerate(listed))
    return _LOGIC[word](parts)


def _condition(key: str, operator: object, operand: object, argument: str) -> Filter:
    if not isinstance(operator, str) or operator not in OPERATORS:
        close = get_close_matches(str.lower(operator).lstrip("$"), OPERATORS, 1) if isinstance(operator, str) else []
        hint = f"did you mean {close[0]!r}? " if close else ""
        refuse(argument, operator, f"is not an operator; {hint}known are {', '.join(OPERATORS)}")
    where = f"{argument}.{operator}"
    if operator in _NEGATED:
        return Not((_positive(key, _NEGATED[operator], operand, where),))
    return _positive(key, operator, operand, where)


def _positive(key: str, operator: str, operand: object, where: str) -> Filter:
    if operator == "eq":
        return Equals(key, *_wanted(key, [operand], where))
    if operator == "in":
        if not isinstance(operand, list | tuple | set | frozenset):
            refuse(where, operand, "must be a list of values")
        return Equals(key, *_wanted(key, operand, where))
    if operator in _ORDER:
        return Compare(key, operator, _bound(key, operand, where))
    if key in TIME_FIELDS:
        refuse(where, operand, f"{key} is a time; use gte and lt")
    if operator == "icontains":
        if not isinstance(operand, str):
            refuse(where, operand, "must be a string")
        return ContainsIgnoreCase(key, str(json_ready(operand, where)).casefold())
    if isinstance(operand, list | tuple | Mapping):
        refuse(where, operand, "must be one value; for several, put one contains for each into AND or OR")
    return Contains(key, operand if isinstance(operand, str) else None, *_wanted(key, [operand], where))


def _wanted(key: str, operands: Iterable[object], where: str) -> tuple[frozenset[Hashable], bool]:
    """The forms of some operands, and whether there is a moment among them."""
    values = [_operand(key, one, where) for one in operands]
    return frozenset(_form(value) for value in values), any(isinstance(value, datetime) for value in values)


def _operand(key: str, value: object, where: str) -> object:
    return moment(value, where) if key in TIME_FIELDS or isinstance(value, date) else json_ready(value, where)


def _bound(key: str, operand: object, where: str) -> float | str | datetime:
    value = _operand(key, operand, where)
    if isinstance(value, bool) or not isinstance(value, int | float | str | datetime):
        refuse(where, operand, "must be a number, a string or a date")
    return value


# --- reading a memory ----------------------------------------------------------------------------------------------


def fields_of(record: MemoryRecord) -> dict[str, Any]:
    """What filters see of a memory: its metadata (`tags` among it), overridden by the special fields."""
    return {
        **record.metadata,
        "kind": record.kind.value,
        "memory_type": record.memory_type,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "at": record.at,
        "actor_id": record.actor_id,
        "role": record.role,
        "hash": text_hash(record.text),
    }


def text_hash(text: str) -> str:
    """A memory's `hash` as mem0 has it: the MD5 of its text in hexadecimal. It finds equal texts, no more."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _look_up(fields: Mapping[str, Any], key: str) -> object:
    if key in fields:
        return fields[key]
    value: object = fields
    for step in key.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return _MISSING
        value = value[step]
    return value


def _forms(value: object, *, timed: bool) -> list[Hashable]:
    """Everything that `value` may be equal to: itself and, where moments are wanted, the moment that a text names."""
    at = _as_moment(value) if timed and isinstance(value, str) else None
    return [_form(value)] if at is None else [_form(value), _form(at)]


def _form(value: object, depth: int = 0) -> Hashable:
    """A value as something hashable that is equal exactly when the values are, type for type."""
    if isinstance(value, list | tuple | Mapping):
        # What lies deeper than any operand is equal to nothing.
        return object() if depth > MAX_DOCUMENT_DEPTH else _nested_form(value, depth + 1)
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return "constant", value
    if _is_number(value):
        return "number", value
    return _as_moment(value) or object()


def _nested_form(value: list[Any] | tuple[Any, ...] | Mapping[Any, Any], depth: int) -> Hashable:
    if isinstance(value, Mapping):
        return "dict", frozenset((_form(key, depth), _form(one, depth)) for key, one in value.items())
    return "list", tuple(_form(one, depth) for one in value)


def _as_moment(value: object) -> datetime | None:
    if not isinstance(value, str | date):
        return None
    try:
        return moment(value, "value")
    except ValidationError:
        return None


def _members(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple | set | frozenset) else ()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
