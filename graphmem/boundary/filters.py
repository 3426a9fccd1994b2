"""Parses the filters of `search` and `get_all`, and matches them against memories; there is no other implementation.

Pure. `parse` raises `ValidationError` for every malformed filter, so that `matches` never raises.

    {"key": value}                                    equality
    {"key": "*"}                                      the key is there
    {"key": {"gte": 3, "lt": 5}}                      eq ne gt gte lt lte in nin contains icontains; all must hold
    {"AND": [f, …]}  {"OR": [f, …]}  {"NOT": [f, …]}  all, any, none of the filters match; {"NOT": f} is allowed
    {"a": 1, "OR": […]}                               all entries of a dict must match

- Types are distinct: True is not 1, "1" is not 1 (1.0 is), and an order comparison between types is False.
- A missing key matches `ne` and `nin` only; a special field without a value is None, not missing.
- Equality with a list compares the whole list; `contains` tests for a member of a list or a substring of a text.
- {"key": "*"} matches any value, null as well, of a key that is there; as the operand of an operator "*" is a text.
- `created_at`, `updated_at`, `at`, and any key with a date or datetime as operand, compare as moments. So do two texts
  that are both a date, or a date and a time, in ISO 8601; one without a UTC offset is local to the configured zone, and
  a date is its midnight there. All other texts compare as texts.
- "a.b" reads nested metadata unless there is a key "a.b".
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from difflib import get_close_matches
from operator import ge, gt, itemgetter, le, lt
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from graphmem.boundary.validation import (
    LIMITS,
    LOGIC,
    MAX_COMPARED_CHARS,
    MAX_DOCUMENT_DEPTH,
    InputLimits,
    json_ready,
    moment,
    refuse,
    refuse_scope_names,
    stored_moment,
)
from graphmem.boundary.validation import key as metadata_key
from graphmem.errors import ValidationError

if TYPE_CHECKING:
    from graphmem.model import MemoryRecord

SPECIAL_FIELDS = ("kind", "memory_type", "created_at", "updated_at", "at", "actor_id", "role", "tags", "hash")
TIME_FIELDS = frozenset({"created_at", "updated_at", "at"})
ANY_VALUE = "*"
OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "icontains")

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
_POSITIVE_OF = {"ne": "eq", "nin": "in"}
_MISSING = object()
# What it costs to look up the value of a condition, and to convert one part of a value, in comparisons of characters.
# On a busy machine these take 0.7 µs and 4 µs, and 1,000 characters 2 µs, of repeated ones 10 µs.
CHARS_OF_CONDITION, CHARS_OF_PART = 100, 300

T = TypeVar("T")


class Filter(ABC):
    """A condition on a memory's fields, in the form in which `fields_of` returns them."""

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Returns True if a memory with these fields passes. Never raises, whatever the fields' values are."""
        return self.accepts(Values(fields))

    @abstractmethod
    def accepts(self, values: Values) -> bool:
        """Returns True if a memory with these values passes, as `matches` does."""


class Matcher:
    """Tests the memories of one call against its filter (None: all match), and limits what that costs."""

    def __init__(self, condition: Filter | None) -> None:
        self._condition = condition
        self._left = MAX_COMPARED_CHARS

    def matches(self, record: MemoryRecord) -> bool:
        """Returns True if a memory passes.

        Raises ValidationError if the call's memories need more than `MAX_COMPARED_CHARS` comparisons.
        """
        if self._condition is None:
            return True
        values = Values(fields_of(record))
        is_match = self._condition.accepts(values)
        self._left -= values.compared
        if self._left < 0:
            refusal = (
                f"filters: needs more than {MAX_COMPARED_CHARS:,} comparisons of characters with the memories of this "
                "scope; use fewer conditions, above all contains and icontains, or a narrower scope"
            )
            raise ValidationError(refusal, argument="filters")
        return is_match


@dataclass(frozen=True, slots=True)
class And(Filter):
    """AND: all parts match."""

    parts: tuple[Filter, ...]

    def accepts(self, values: Values) -> bool:
        """Returns True if all parts match."""
        return all(part.accepts(values) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or(Filter):
    """OR: at least one part matches."""

    parts: tuple[Filter, ...]

    def accepts(self, values: Values) -> bool:
        """Returns True if at least one part matches."""
        return any(part.accepts(values) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Not(Filter):
    """NOT: no part matches."""

    parts: tuple[Filter, ...]

    def accepts(self, values: Values) -> bool:
        """Returns True if no part matches."""
        return not any(part.accepts(values) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Equals(Filter):
    """Compares a field with operands, for `eq` and `in`: it has to equal one of `operands` in type and value.

    `operands` holds them in the hashable form that `_comparable_form` returns. With `compares_moments`, a text that is
    a date or time in ISO 8601 is also compared as a UTC datetime, so that its other notations are equal to it; `zone`
    is that of times without an offset.
    """

    key: str
    operands: frozenset[Hashable]
    compares_moments: bool
    zone: tzinfo | None = None

    def accepts(self, values: Values) -> bool:
        """Returns True if the field's value equals one of the operands."""
        forms = values.forms(self.key, self.zone, with_moments=self.compares_moments)
        return not self.operands.isdisjoint(forms)


@dataclass(frozen=True, slots=True)
class Exists(Filter):
    """The field is there, whatever its value."""

    key: str

    def accepts(self, values: Values) -> bool:
        """Returns True if there is such a field."""
        return values.value(self.key) is not _MISSING


@dataclass(frozen=True, slots=True)
class Compare(Filter):
    """An order comparison, true only between values of one type; numbers are one type.

    `moment` is the bound as a moment if it is one: it is compared with a text that is a moment, too.
    """

    key: str
    operator: str
    bound: float | str | datetime
    moment: datetime | None = None
    zone: tzinfo | None = None

    def accepts(self, values: Values) -> bool:
        """Returns True if the field's value has the bound's type and the comparison holds."""
        value, bound = values.value(self.key), self.bound
        if self.moment is not None and (instant := values.moment(self.key, self.zone)) is not None:
            value, bound = instant, self.moment
        is_comparable = (_is_number(value) and _is_number(bound)) or any(
            isinstance(value, type_) and isinstance(bound, type_) for type_ in (str, datetime)
        )
        return is_comparable and _COMPARISONS[self.operator](value, bound)


@dataclass(frozen=True, slots=True)
class Contains(Filter):
    """`contains`: `text` is a substring of the field's text, or one of `operands` is a member of the field's list."""

    key: str
    text: str | None
    operands: frozenset[Hashable]
    compares_moments: bool
    zone: tzinfo | None = None

    def accepts(self, values: Values) -> bool:
        """Returns True if the field's value contains the operand."""
        value = values.value(self.key)
        if isinstance(value, str):
            return self.text is not None and values.has_part(value, self.text)
        return not self.operands.isdisjoint(
            values.forms_of_members(self.key, self.zone, with_moments=self.compares_moments)
        )


@dataclass(frozen=True, slots=True)
class ContainsIgnoreCase(Filter):
    """`icontains`: the field's text contains `text`, or its list has it as a member, ignoring case.

    `text` is already case-folded.
    """

    key: str
    text: str

    def accepts(self, values: Values) -> bool:
        """Returns True if the field's value contains the text, ignoring case."""
        folded = values.folded(self.key)
        return values.has_part(folded, self.text) if isinstance(folded, str) else self.text in folded


_FILTER_OF_WORD: Mapping[str, Callable[[tuple[Filter, ...]], Filter]] = {"AND": And, "OR": Or, "NOT": Not}


# --- reading a filter ----------------------------------------------------------------------------------------------


def parse(filters: Mapping[str, Any] | None, argument: str = "filters", limits: InputLimits = LIMITS) -> Filter | None:
    """Parses a filter dict (syntax: module docstring); returns None for None or an empty dict.

    Raises `ValidationError` for filters that cannot match as meant: unknown operators, operands of the wrong type, NaN,
    more levels of AND / OR / NOT or more conditions than `limits` allow, and scope ids (`boundary.validation.scope` has
    already removed those that are allowed).
    """
    if filters is None:
        return None
    if not isinstance(filters, Mapping):
        refuse(argument, filters, 'must be a dict such as {"project": "atlas"}')
    refuse_scope_names(filters, argument)
    _refuse_too_many(filters, argument, limits.max_filter_conditions)
    levels = limits.max_filter_depth
    return _parse_filter(filters, argument, _Bounds(levels, levels, limits.timezone)) if filters else None


def refusing_conditions(
    filters: Mapping[str, Any] | None, record: MemoryRecord, limits: InputLimits = LIMITS
) -> list[str]:
    """Returns the keys at the top of a filter dict whose conditions a memory does not meet. Raises as `parse`."""
    fields = fields_of(record)
    parts = {name: parse({name: condition}, limits=limits) for name, condition in (filters or {}).items()}
    return [name for name, part in parts.items() if part is not None and not part.matches(fields)]


def _refuse_too_many(filters: Mapping[str, Any], argument: str, max_conditions: int) -> None:
    """Refuses a filter with too many conditions, as each is tested on each memory.

    Values that are no filters are ignored: `_parse_filter` refuses them. The error recommends `in` if that suffices.
    """
    count, pending = 0, [filters]
    key, repeats = "", 0  # the key that most alternatives of one OR compare for equality, and how many do
    while pending:
        for name, value in pending.pop().items():
            if name not in LOGIC:
                count += len(value) if isinstance(value, Mapping) else 1
                continue
            items = value if isinstance(value, list | tuple) else [value]
            children = [item for item in items if isinstance(item, Mapping)]
            pending += children
            if name == "OR":
                keys_of_equalities = Counter(filter(None, map(_key_of_equality, children)))
                key, repeats = max([(key, repeats), *keys_of_equalities.most_common(1)], key=itemgetter(1))
    if count > max_conditions:
        advice = f"; write the OR over values of {key!r:.80} as {{{key!r:.80}: {{'in': [...]}}}}"
        remedy = advice if count - repeats < max_conditions else ""
        refuse(argument, filters, f"has {count:,} conditions; use at most {max_conditions}{remedy}")


def _key_of_equality(alternative: Mapping[str, Any]) -> str | None:
    """Returns the key of a filter that is one equality, else None."""
    if len(alternative) != 1:
        return None
    ((key, value),) = alternative.items()
    is_equality = not isinstance(value, Mapping) or value.keys() == {"eq"}
    return key if is_equality and isinstance(key, str) and key not in LOGIC else None


class _Bounds(NamedTuple):
    """The levels of AND / OR / NOT still allowed below this point, and those allowed in the whole filter.

    `zone` is that of times without an offset.
    """

    levels: int
    max_levels: int
    zone: tzinfo | None


def _parse_filter(filters: object, argument: str, bounds: _Bounds) -> Filter:
    if not isinstance(filters, Mapping) or not filters:
        refuse(argument, filters, "must be a dict with at least one condition")
    if bounds.levels < 0:
        refuse(argument, filters, f"is nested too deeply; use at most {bounds.max_levels} levels of AND / OR / NOT")
    parts = tuple(part for key, value in filters.items() for part in _parse_entry(key, value, argument, bounds))
    return parts[0] if len(parts) == 1 else And(parts)


def _parse_entry(name: object, value: object, argument: str, bounds: _Bounds) -> Iterator[Filter]:
    key = metadata_key(name, argument)
    if not key:
        refuse(argument, key, "a key must be a non-empty string")
    path = f"{argument}.{key}"
    if key in LOGIC:
        yield _parse_logic(key, value, path, bounds._replace(levels=bounds.levels - 1))
    elif key.startswith("$") or key.upper() in LOGIC:
        # As a metadata key, {"or": …} would silently match nothing.
        refuse(argument, key, f"is not a key; write {', '.join(LOGIC)} in capitals")
    elif isinstance(value, Mapping):
        if not value:
            refuse(path, value, f"names no operator; use some of {', '.join(OPERATORS)}")
        for operator, operand in value.items():
            yield _parse_condition(key, operator, operand, path, bounds.zone)
    elif isinstance(value, str) and value == ANY_VALUE:
        yield Exists(key)
    else:
        yield _parse_condition(key, "eq", value, path, bounds.zone)


def _parse_logic(word: str, value: object, path: str, bounds: _Bounds) -> Filter:
    items = [value] if word == "NOT" and isinstance(value, Mapping) else value
    if not isinstance(items, list | tuple) or not items:
        refuse(path, value, "must be a list with at least one filter")
    parts = tuple(_parse_filter(item, f"{path}[{index}]", bounds) for index, item in enumerate(items))
    return _FILTER_OF_WORD[word](parts)


def _parse_condition(key: str, operator: object, operand: object, argument: str, zone: tzinfo | None) -> Filter:
    if not isinstance(operator, str) or operator not in OPERATORS:
        similar = get_close_matches(str.lower(operator).lstrip("$"), OPERATORS, 1) if isinstance(operator, str) else []
        hint = f"did you mean {similar[0]!r}? " if similar else ""
        refuse(argument, operator, f"is not an operator; {hint}known are {', '.join(OPERATORS)}")
    path = f"{argument}.{operator}"
    if operator in _POSITIVE_OF:
        return Not((_positive_condition(key, _POSITIVE_OF[operator], operand, path, zone),))
    return _positive_condition(key, operator, operand, path, zone)


def _positive_condition(key: str, operator: str, operand: object, path: str, zone: tzinfo | None) -> Filter:
    if operator == "eq":
        return Equals(key, *_comparable_operands(key, [operand], path, zone), zone)
    if operator == "in":
        if not isinstance(operand, list | tuple | set | frozenset):
            refuse(path, operand, "must be a list of values")
        return Equals(key, *_comparable_operands(key, operand, path, zone), zone)
    if operator in _COMPARISONS:
        bound = _convert_bound(key, operand, path, zone)
        return Compare(key, operator, bound, stored_moment(bound, zone), zone)
    if key in TIME_FIELDS:
        refuse(path, operand, f"{key} is a time; use gte and lt")
    if operator == "icontains":
        if not isinstance(operand, str):
            refuse(path, operand, "must be a string")
        return ContainsIgnoreCase(key, str(json_ready(operand, path)).casefold())
    if isinstance(operand, list | tuple | Mapping):
        refuse(path, operand, "must be one value; for several, put one contains for each into AND or OR")
    text = operand if isinstance(operand, str) else None
    return Contains(key, text, *_comparable_operands(key, [operand], path, zone), zone)


def _comparable_operands(
    key: str, operands: Iterable[object], path: str, zone: tzinfo | None
) -> tuple[frozenset[Hashable], bool]:
    """Returns the comparable forms of operands, and whether one of them is a moment."""
    values = [_convert_operand(key, operand, path, zone) for operand in operands]
    moments = [instant for value in values if (instant := stored_moment(value, zone)) is not None]
    return frozenset(map(_comparable_form, (*values, *moments))), bool(moments)


def _convert_operand(key: str, value: object, path: str, zone: tzinfo | None) -> object:
    if key in TIME_FIELDS or isinstance(value, date):
        return moment(value, path, zone)
    return json_ready(value, path, zone=zone)


def _convert_bound(key: str, operand: object, path: str, zone: tzinfo | None) -> float | str | datetime:
    value = _convert_operand(key, operand, path, zone)
    if isinstance(value, bool) or not isinstance(value, int | float | str | datetime):
        refuse(path, operand, "must be a number, a string or a date")
    return value


# --- reading a memory ----------------------------------------------------------------------------------------------


class Values:
    """The values of one memory's fields, each converted once, however many conditions compare it.

    `compared` says what the conditions have cost so far, in comparisons of characters.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields
        self._converted: dict[Hashable, Any] = {}
        self.compared = 0

    def value(self, key: str) -> object:
        """Returns the value of a field, `_MISSING` without one; "a.b" is that of "b" in the value of "a"."""
        self.compared += CHARS_OF_CONDITION
        if key in self._fields:
            return self._fields[key]
        value: object = self._fields
        for name in key.split("."):
            if not isinstance(value, Mapping) or name not in value:
                return _MISSING
            value = value[name]
        return value

    def has_part(self, value: str, text: str) -> bool:
        """Returns True if `text` is a part of `value`."""
        self.compared += len(value)
        return text in value

    def moment(self, key: str, zone: tzinfo | None) -> datetime | None:
        """Returns the moment that a field's value names, None if it names none."""
        return self._once(("moment", key), lambda value: stored_moment(value, zone))

    def folded(self, key: str) -> str | frozenset[str]:
        """Returns the case-folded text of a field; the case-folded texts in it if it is a list."""
        return self._once(
            ("folded", key),
            lambda value: (
                value.casefold()
                if isinstance(value, str)
                else frozenset(member.casefold() for member in _members(value) if isinstance(member, str))
            ),
        )

    def forms(self, key: str, zone: tzinfo | None, *, with_moments: bool) -> frozenset[Hashable]:
        """Returns the comparable forms of a field's value, see `_comparable_forms`."""
        return self._once(
            ("forms", key, with_moments), lambda value: self._forms_of([value], zone, with_moments=with_moments)
        )

    def forms_of_members(self, key: str, zone: tzinfo | None, *, with_moments: bool) -> frozenset[Hashable]:
        """Returns the comparable forms of the members of a field's list."""
        return self._once(
            ("forms of members", key, with_moments),
            lambda value: self._forms_of(_members(value), zone, with_moments=with_moments),
        )

    def _forms_of(self, values: Iterable[object], zone: tzinfo | None, *, with_moments: bool) -> frozenset[Hashable]:
        """Returns the forms of values. Each part of one counts: keys with dots name ever smaller parts of the same."""
        forms: list[Hashable] = []
        for value in values:
            self.compared += CHARS_OF_PART * _parts(value)
            forms += _comparable_forms(value, zone, with_moments=with_moments)
        return frozenset(forms)

    def _once(self, name: tuple[Hashable, ...], convert: Callable[[Any], T]) -> T:
        """Returns the conversion of this name of a field's value. One filter has one zone."""
        value = self.value(str(name[1]))
        if name not in self._converted:
            self._converted[name] = convert(value)
        converted: T = self._converted[name]
        return converted


def fields_of(record: MemoryRecord) -> dict[str, Any]:
    """Returns the fields of a memory for `Filter.matches`: its metadata (with `tags`), overridden by special fields."""
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
    """Returns a memory's `hash` as mem0 defines it: the MD5 of its text in hexadecimal. Only for comparing texts."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _comparable_forms(value: object, zone: tzinfo | None, *, with_moments: bool) -> list[Hashable]:
    """Returns the comparable form of `value` and, with `with_moments`, that of the moment which a text names."""
    instant = stored_moment(value, zone) if with_moments and isinstance(value, str) else None
    return [_comparable_form(value)] if instant is None else [_comparable_form(value), _comparable_form(instant)]


def _comparable_form(value: object, depth: int = 0) -> Hashable:
    """Returns a hashable form of a value; two forms are equal exactly if type and value are."""
    if isinstance(value, str):
        return value
    # Metadata nested deeper than any operand can be equals nothing.
    if isinstance(value, Mapping) and depth <= MAX_DOCUMENT_DEPTH:
        return "dict", frozenset(
            (_comparable_form(key, depth + 1), _comparable_form(child, depth + 1)) for key, child in value.items()
        )
    if isinstance(value, list | tuple) and depth <= MAX_DOCUMENT_DEPTH:
        return "list", tuple(_comparable_form(child, depth + 1) for child in value)
    if value is None or isinstance(value, bool):
        return "constant", value
    if _is_number(value):
        return "number", value
    return value if isinstance(value, datetime) else object()


def _parts(value: object, depth: int = 0) -> int:
    """Returns how many values a value has in it, itself among them, down to the depth that forms have."""
    if depth > MAX_DOCUMENT_DEPTH or not isinstance(value, list | tuple | Mapping):
        return 1
    children = value.values() if isinstance(value, Mapping) else value
    return 1 + sum(_parts(child, depth + 1) for child in children)


def _members(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple | set | frozenset) else ()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
