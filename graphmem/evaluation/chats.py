"""Chats of our own making: with an assistant, among friends, in English and Chinese (`benchmarks/chats`).

A file is one chat, which is a partition of its own: sessions of turns, and questions with the turns that answer them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.evaluation.datasets import (
    BenchmarkQuestion,
    Dataset,
    Message,
    QuestionGroup,
    SourceFile,
    field_of,
    items_of,
    read_objects,
)

NAME = "chats"
# Who speaks in a chat with an assistant; every other name is that of a person in a group.
ROLES = ("user", "assistant")


def load(path: Path) -> Dataset:
    """The chats of a file, or of all JSON files of a folder. Raises ValidationError, naming the file and the place."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ValidationError(f"{path}: holds no chats; name a JSON file, or a folder of them")
    partitions: dict[str, tuple[Message, ...]] = {}
    cases: list[BenchmarkQuestion] = []
    sources: list[SourceFile] = []
    for file in files:
        source, chats = read_objects(file)
        sources.append(source)
        for where, chat in chats:
            name = validation.stored_name(field_of(chat, "name", str, where), f"{where}, 'name'")
            if name in partitions:
                raise ValidationError(f"{where}: 'name' {name!r} is there twice; each chat needs its own")
            partitions[name] = tuple(_messages(chat, where))
            cases += _cases(chat, where, {str(message["id"]) for message in partitions[name]})
    if not cases:
        raise ValidationError(f"{path}: asks no questions; nothing to measure")
    return Dataset(NAME, partitions, tuple(cases), {}, tuple(sources))


def _messages(chat: dict[str, Any], where: str) -> Iterator[Message]:
    """Every turn, by its number in its session ("3:2"), at the time of the session."""
    for number, (here, session) in enumerate(items_of(chat, "sessions", dict, where), 1):
        at = _moment(session, here)
        for place, (there, turn) in enumerate(items_of(session, "turns", list, here), 1):
            if len(turn) != 2 or not all(isinstance(one, str) for one in turn):  # noqa: PLR2004
                raise ValidationError(f"{there}: expected two texts, who speaks and what is said")
            speaker = validation.stored_name(turn[0], f"{there}, the speaker")
            words = validation.stored_text(turn[1], f"{there}, the words")
            if not words.strip():
                raise ValidationError(f"{there}: says nothing; leave it out")
            who = {"role": speaker} if speaker in ROLES else {"role": "user", "name": speaker}
            yield {**who, "content": words, "timestamp": at, "id": f"{number}:{place}"}


def _cases(chat: dict[str, Any], where: str, turns: set[str]) -> Iterator[BenchmarkQuestion]:
    about, name = field_of(chat, "about", str, where), field_of(chat, "name", str, where)
    for here, question in items_of(chat, "questions", dict, where):
        gold = frozenset(key for _, key in items_of(question, "gold", str, here))
        if not gold or not gold <= turns:
            raise ValidationError(f"{here}: 'gold' names no turns, or some that are not there; use ids like '3:2'")
        kind = field_of(question, "kind", str, here)
        groups = (QuestionGroup(about, "all", "all"), QuestionGroup(about, "kind", kind))
        ask = validation.query(field_of(question, "ask", str, here), f"{here}, 'ask'")
        yield BenchmarkQuestion(ask, gold, name, groups, _moment(question, here))


def _moment(record: dict[str, Any], where: str) -> datetime:
    text = field_of(record, "at", str, where)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValidationError(f"{where}: expected 'at' to be a time with its zone in ISO 8601, not {text[:40]!r}")
    return found
