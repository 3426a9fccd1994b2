"""Reads JSON objects as the TypedDicts of `records` describe them, for `format`.

Each field is converted by the check of its type, and named in errors by its place in the record, such as
"events[0].at". Unknown fields are refused, because a misspelt field would be lost silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from enum import Enum
from functools import lru_cache, partial
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen
from pydantic.fields import FieldInfo
from typing_extensions import get_type_hints, is_typeddict

from graphmem.boundary import validation
from graphmem.errors import ValidationError

T = TypeVar("T")
Read: TypeAlias = Callable[[Any, str], Any]
"""Takes a value that is not null and its place in the record; returns it converted, or raises ValidationError."""


@dataclass(frozen=True, slots=True)
class Check:
    """Stands in `Annotated` and reads values of that type. If it `takes_zone`, its third argument is the time zone."""

    read: Callable[..., Any]
    takes_zone: bool = False


class ObjectReader:
    """Reads JSON objects that a TypedDict describes; times without an offset are local to `zone`.

    Of an object whose description says `extra="allow"`, unknown fields are returned unread.
    """

    def __init__(self, described: type, zone: tzinfo | None) -> None:
        self._reads: dict[str, Read] = {}
        self._required: list[str] = []
        self._nullable: list[str] = []
        self._is_open = getattr(described, "__pydantic_config__", {}).get("extra") == "allow"
        for name, annotation in get_type_hints(described, include_extras=True).items():
            self._reads[name], may_be_null = _read_of(annotation, zone)
            origin: Any = get_origin(annotation)
            if origin is not NotRequired:
                (self._nullable if may_be_null else self._required).append(name)

    def __call__(self, value: object, path: str = "") -> dict[str, Any]:
        """Returns the object's fields that are there, null ones as None. `path` is its place in the record."""
        given = validation.as_object(value, path or "record")
        place = f"{path}." if path else ""
        fields: dict[str, Any] = {}
        unknown = []
        for name, field in given.items():
            read = self._reads.get(name)
            if read is None:
                unknown.append(name)
                fields[name] = field
            else:
                fields[name] = None if field is None else read(field, place + name)
        for name in self._required:
            if fields.get(name) is None:
                raise missing(place + name)
        for name in self._nullable:
            if name not in fields:
                raise missing(place + name)
        if unknown and not self._is_open:
            remedy = "is not a field of this type of record; remove it"
            name_text = str(unknown[0])[:80]
            raise ValidationError(f"{place}{name_text!r}: {remedy}", f"{place}(another name): {remedy}")
        return fields

    def field(self, record: Mapping[str, Any], name: str) -> Any:
        """Returns one field of a record, without a look at the others; None if it is null or missing.

        Raises ValidationError for a required one.
        """
        value = record.get(name)
        if value is None:
            if name in self._required:
                raise missing(name)
            return None
        return self._reads[name](value, name)


@lru_cache(maxsize=256)
def object_reader(described: type, zone: tzinfo | None) -> ObjectReader:
    """Returns the reader of the objects that a TypedDict describes."""
    return ObjectReader(described, zone)


def missing(place: str) -> ValidationError:
    """Returns the error for a required field that is missing or null."""
    return ValidationError(f"{place}: is missing; every such record has one")


def _read_of(annotation: Any, zone: tzinfo | None) -> tuple[Read, bool]:
    """Returns what reads a field of this type, and whether it may be null.

    That is its `Check`, the outermost one, else follows from the type. Raises TypeError without either.
    """
    notes: list[Any] = []
    may_be_null = annotation is Any
    while (origin := get_origin(annotation)) in {NotRequired, Annotated, Union, UnionType}:
        first, *others = get_args(annotation)
        if origin is Annotated:
            notes = [*others, *notes]
            may_be_null |= first is Any
        elif origin is not NotRequired:
            if others != [type(None)]:
                break
            may_be_null = True
        annotation = first
    check = next((note for note in reversed(notes) if isinstance(note, Check)), None)
    if check is None:
        return _read_of_type(annotation, notes, zone), may_be_null
    return (partial(check.read, zone=zone) if check.takes_zone else check.read), may_be_null


def _read_of_type(bare: Any, notes: Sequence[Any], zone: tzinfo | None) -> Read:
    bounds: list[Any] = [one for note in notes for one in (note.metadata if isinstance(note, FieldInfo) else [note])]
    if get_origin(bare) is list:
        most: int | None = next((bound.max_length for bound in bounds if isinstance(bound, MaxLen)), None)
        return partial(read_list, read=_read_of(get_args(bare)[0], zone)[0], most=most)
    if get_origin(bare) is Literal:
        return partial(validation.one_of, names=get_args(bare))
    if is_typeddict(bare):
        return object_reader(bare, zone)
    if bare is bool:
        return validation.flag
    if bare is int:
        minimum: Any = next((bound.ge for bound in bounds if isinstance(bound, Ge)), None)
        maximum: Any = next((bound.le for bound in bounds if isinstance(bound, Le)), None)
        if minimum is not None and maximum is not None:
            return partial(validation.count, minimum=minimum, maximum=maximum)
    if isinstance(bare, type) and issubclass(bare, Enum):
        return partial(_read_member, enum=bare)
    raise TypeError(f"no check reads {bare}; give it one")


def read_list(value: object, path: str, read: Callable[[Any, str], T], most: int | None = None) -> list[T]:
    """Returns a list of at most `most` items (None: any number), each converted by `read`."""
    return [read(item, f"{path}[{index}]") for index, item in enumerate(validation.as_list(value, path, most))]


def _read_member(value: object, path: str, enum: type[Enum]) -> Enum:
    return enum(validation.one_of(value, path, [member.value for member in enum]))
