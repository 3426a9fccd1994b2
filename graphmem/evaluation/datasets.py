"""The common format of all benchmarks: messages by partition, questions with their gold, and source files.

*Gold* are the ids of the messages that answer a question. Also checks and reads the fields of benchmark files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from graphmem.errors import ValidationError

T = TypeVar("T")
Message = Mapping[str, Any]

# The partition of pooled data sets. It must not look like a person's name, which would be embedded with each text.
POOLED = "pooled-1"
_KINDS = {str: "text", list: "a list", dict: "an object", int: "a whole number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file: name without folders, SHA-256, length in bytes."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, order=True)
class QuestionGroup:
    """A group of questions with figures of its own: those of `data` whose property `by` has `value`, named `name`."""

    data: str
    by: str
    value: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class BenchmarkQuestion:
    """A question, its gold (at least one message id where recall is measured), the partition to search in, its groups.

    `query_time` is the reference date of the question (None: now); `answer` the right answer, "" where the data has
    none; `id` names the question in its data, "" where nothing is recorded by question. `is_answerable`: the partition
    tells the answer; otherwise it is right to say that it does not.
    """

    question: str
    gold: frozenset[str]
    partition: str
    groups: tuple[QuestionGroup, ...]
    query_time: datetime | None = None
    answer: str = ""
    id: str = ""
    is_answerable: bool = True


@dataclass(frozen=True, slots=True)
class Dataset:
    """Messages in the format of `Memory.add` by partition (a user_id), and questions.

    Each message has an `id` that is unique in its partition. `left_out` counts omitted items by reason. `baselines`
    names for groups the one that they are compared with: it asks the same in the same order, about other messages.
    """

    name: str
    partitions: Mapping[str, tuple[Message, ...]]
    cases: tuple[BenchmarkQuestion, ...]
    left_out: Mapping[str, int]
    sources: tuple[SourceFile, ...]
    baselines: Mapping[QuestionGroup, QuestionGroup] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """The number of messages in all partitions."""
        return sum(map(len, self.partitions.values()))

    def messages_by_id(self) -> dict[str, dict[str, Message]]:
        """Returns the messages of each partition by their ids."""
        return {
            partition: {message["id"]: message for message in messages}
            for partition, messages in self.partitions.items()
        }


def pooled(parts: Iterable[Dataset]) -> Dataset:
    """Merges data sets into one partition. Message ids get their partition as prefix ("conv-26:D1:3")."""
    datasets = list(parts)
    everything = QuestionGroup("pooled", "all", "all")
    messages = [
        {**message, "id": f"{partition}:{message['id']}"}
        for dataset in datasets
        for partition, partition_messages in dataset.partitions.items()
        for message in partition_messages
    ]
    cases = [
        replace(
            case,
            gold=frozenset(f"{case.partition}:{key}" for key in case.gold),
            partition=POOLED,
            groups=(everything, *case.groups),
        )
        for dataset in datasets
        for case in dataset.cases
    ]
    return Dataset(
        name="pooled",
        partitions={POOLED: tuple(messages)},
        cases=tuple(cases),
        left_out={
            f"{dataset.name}: {reason}": count for dataset in datasets for reason, count in dataset.left_out.items()
        },
        sources=tuple(source for dataset in datasets for source in dataset.sources),
    )


def read_objects(path: Path) -> tuple[SourceFile, list[tuple[str, dict[str, Any]]]]:
    """Reads the objects of a file: a JSON list, or JSON Lines. Returns each with its position, as text for errors.

    Raises ValidationError, naming the file, for any other content.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ValidationError(f"{path}: cannot be read ({error.strerror}); give a readable file") from None
    items = _parse(path, raw)
    if not isinstance(items, list) or not items:
        raise ValidationError(f"{path}: holds no list of objects; expected a JSON list, or JSON Lines")
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise ValidationError(f"{path}, entry {number}: is no JSON object; expected a list of objects")
    source = SourceFile(path.name, hashlib.sha256(raw).hexdigest(), len(raw))
    return source, [(f"{path}, entry {number}", item) for number, item in enumerate(items, 1)]


def _parse(path: Path, raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8-sig")
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) > 1 and lines[0].startswith("{") and lines[1].startswith("{"):
            return [json.loads(line) for line in lines]
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError includes UnicodeDecodeError
        raise ValidationError(f"{path}: is not valid JSON ({error}); expected a JSON list, or JSON Lines") from None


def field_of(record: Any, key: str | int, kind: type[T], where: str) -> T:
    """Returns `record[key]`. Raises ValidationError, with the position `where`, unless it is of type `kind`."""
    try:
        value = record[key]
    except (KeyError, IndexError, TypeError):
        value = None
    if not isinstance(value, kind):
        name = repr(key) if isinstance(key, str) else "it"
        raise ValidationError(f"{where}: expected {name} to be {_KINDS.get(kind, kind.__name__)}")
    return value


def answer_of(record: Mapping[str, Any]) -> str:
    """Returns the right answer of a question's record, a text or a number; "" without one."""
    answer = record.get("answer", "")
    return str(answer).strip() if isinstance(answer, str | int | float) else ""


def items_of(record: Any, key: str | int, kind: type[T], where: str) -> Iterator[tuple[str, T]]:
    """Yields (position, item) for the list `record[key]`. Raises ValidationError for an item of another type."""
    for number, _ in enumerate(items := field_of(record, key, list, where), 1):
        position = f"{where}, {key!r}, number {number}"
        yield position, field_of(items, number - 1, kind, position)
