"""What every benchmark is turned into: messages by partition, questions with their gold, and the
files they come from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from graphmem.errors import ValidationError

T = TypeVar("T")
Message = Mapping[str, Any]

# One partition for everything. It must not read like somebody's name: that would stand in front of what is embedded.
POOLED = "pooled-1"
_KINDS = {str: "text", list: "a list", dict: "an object", int: "a whole number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file: its name without the folders, its SHA-256, its length in bytes."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, order=True)
class QuestionGroup:
    """Questions that share a figure: of which data, divided by what, and which of its values (with its name)."""

    data: str
    by: str
    value: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class BenchmarkQuestion:
    """A question, the ids of the messages that answer it (at least one), whose partition is asked, the groups it is in.

    `query_time` is the moment it is asked from (None: now).
    """

    question: str
    gold: frozenset[str]
    partition: str
    groups: tuple[QuestionGroup, ...]
    query_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """Messages as `Memory.add` takes them, by user_id, each with an `id` unique there; questions; how often what was
    left out.
    """

    name: str
    partitions: Mapping[str, tuple[Message, ...]]
    cases: tuple[BenchmarkQuestion, ...]
    left_out: Mapping[str, int]
    sources: tuple[SourceFile, ...]

    @property
    def messages(self) -> int:
        """How many there are, in all partitions."""
        return sum(map(len, self.partitions.values()))


def pooled(parts: Iterable[Dataset]) -> Dataset:
    """Several data sets in one partition: an id gets its partition in front ("conv-26:D1:3"), questions stay as they
    are.
    """
    given = list(parts)
    everything = QuestionGroup("pooled", "all", "all")
    messages = [
        {**message, "id": f"{partition}:{message['id']}"}
        for part in given
        for partition, said in part.partitions.items()
        for message in said
    ]
    cases = [
        replace(
            case,
            gold=frozenset(f"{case.partition}:{key}" for key in case.gold),
            partition=POOLED,
            groups=(everything, *case.groups),
        )
        for part in given
        for case in part.cases
    ]
    return Dataset(
        name="pooled",
        partitions={POOLED: tuple(messages)},
        cases=tuple(cases),
        left_out={f"{part.name}: {why}": count for part in given for why, count in part.left_out.items()},
        sources=tuple(source for part in given for source in part.sources),
    )


def read_objects(path: Path) -> tuple[SourceFile, list[tuple[str, dict[str, Any]]]]:
    """A file's objects, each with words for where it stands: a JSON list of them, or one on each line (JSON Lines).

    Raises ValidationError, naming the file, for what is neither.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ValidationError(f"{path}: cannot be read ({error.strerror}); give a readable file") from None
    found = _parsed(path, raw)
    if not isinstance(found, list) or not found:
        raise ValidationError(f"{path}: holds no list of objects; expected a JSON list, or JSON Lines")
    for place, item in enumerate(found, 1):
        if not isinstance(item, dict):
            raise ValidationError(f"{path}, entry {place}: is no JSON object; expected a list of objects")
    source = SourceFile(path.name, hashlib.sha256(raw).hexdigest(), len(raw))
    return source, [(f"{path}, entry {place}", item) for place, item in enumerate(found, 1)]


def _parsed(path: Path, raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8-sig")
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) > 1 and lines[0].startswith("{") and lines[1].startswith("{"):
            return [json.loads(line) for line in lines]
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is one as well
        raise ValidationError(f"{path}: is not valid JSON ({error}); expected a JSON list, or JSON Lines") from None


def field_of(record: Any, key: str | int, kind: type[T], where: str) -> T:
    """`record[key]`, if it is of that kind. Raises ValidationError with `where` and what was expected there."""
    try:
        value = record[key]
    except (KeyError, IndexError, TypeError):
        value = None
    if not isinstance(value, kind):
        named = repr(key) if isinstance(key, str) else "it"
        raise ValidationError(f"{where}: expected {named} to be {_KINDS.get(kind, kind.__name__)}")
    return value


def items_of(record: Any, key: str | int, kind: type[T], where: str) -> Iterator[tuple[str, T]]:
    """The members of the list `record[key]`, each of that kind, with words for where it stands. Raises likewise."""
    for place, _ in enumerate(members := field_of(record, key, list, where), 1):
        here = f"{where}, {key!r}, number {place}"
        yield here, field_of(members, place - 1, kind, here)
