"""Reads graphmem's own benchmark chats (`benchmarks/chats`): with an assistant or among friends, English or Chinese.

Each chat is a partition of its own, with sessions of turns, and questions with the turns that answer them.
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
# Speakers that are roles; any other speaker is a person in a group chat.
ROLES = ("user", "assistant")


def load(path: Path) -> Dataset:
    """Reads the chats of a file, or of all JSON files of a folder. Raises ValidationError, naming file and position."""
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
                raise ValidationError(f"{where}: 'name' {name!r} is there twice; each chat needs its own name")
            partitions[name] = tuple(_messages(chat, where))
            cases += _cases(chat, where, {str(message["id"]) for message in partitions[name]})
    if not cases:
        raise ValidationError(f"{path}: asks no questions; nothing to measure")
    return Dataset(NAME, partitions, tuple(cases), {}, tuple(sources))


def _messages(chat: dict[str, Any], where: str) -> Iterator[Message]:
    """Yields every turn as a message; its id is session and turn number ("3:2"), its time that of the session."""
    for session_number, (session_position, session) in enumerate(items_of(chat, "sessions", dict, where), 1):
        at = _time_of(session, session_position)
        for turn_number, (position, turn) in enumerate(items_of(session, "turns", list, session_position), 1):
            if len(turn) != 2 or not all(isinstance(item, str) for item in turn):  # noqa: PLR2004
                raise ValidationError(f"{position}: expected two texts, speaker and words")
            speaker = validation.stored_name(turn[0], f"{position}, the speaker")
            text = validation.stored_text(turn[1], f"{position}, the words")
            if not text.strip():
                raise ValidationError(f"{position}: says nothing; leave it out")
            author = {"role": speaker} if speaker in ROLES else {"role": "user", "name": speaker}
            yield {**author, "content": text, "timestamp": at, "id": f"{session_number}:{turn_number}"}


def _cases(chat: dict[str, Any], where: str, turn_ids: set[str]) -> Iterator[BenchmarkQuestion]:
    topic, name = field_of(chat, "about", str, where), field_of(chat, "name", str, where)
    for position, question in items_of(chat, "questions", dict, where):
        gold = frozenset(turn_id for _, turn_id in items_of(question, "gold", str, position))
        if not gold or not gold <= turn_ids:
            raise ValidationError(f"{position}: 'gold' names no turns, or some that are not there; use ids like '3:2'")
        kind = field_of(question, "kind", str, position)
        groups = (QuestionGroup(topic, "all", "all"), QuestionGroup(topic, "kind", kind))
        query = validation.query(field_of(question, "ask", str, position), f"{position}, 'ask'")
        yield BenchmarkQuestion(query, gold, name, groups, _time_of(question, position))


def _time_of(record: dict[str, Any], where: str) -> datetime:
    text = field_of(record, "at", str, where)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValidationError(f"{where}: expected 'at' to be a time with its zone in ISO 8601, not {text[:40]!r}")
    return time
