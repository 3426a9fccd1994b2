"""Reads LongMemEval (Wu et al., 2025): questions, each about a history of chats of its own with an assistant.

The format is that of `longmemeval_s.json`. The history of each question is a partition of its own, named by its
`question_id`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphmem.errors import ValidationError
from graphmem.evaluation.datasets import (
    BenchmarkQuestion,
    Dataset,
    Message,
    QuestionGroup,
    answer_of,
    field_of,
    items_of,
    read_objects,
)
from graphmem.model import ASSISTANT

NAME = "longmemeval"
HISTORY = "haystack_sessions"
# Questions about what the history does not tell: their ids end so, and their answer says what is missing.
_UNANSWERABLE = "_abs"
_WEEKDAY = re.compile(r"\s*\([A-Za-z]+\)")
_TIMES = ("%Y/%m/%d %H:%M", "%Y/%m/%d")


def load(path: Path) -> Dataset:
    """Reads the questions of a file with their histories. Raises ValidationError, naming file and expectation."""
    source, records = read_objects(path)
    partitions: dict[str, tuple[Message, ...]] = {}
    cases: list[BenchmarkQuestion] = []
    left_out: Counter[str] = Counter()
    for where, record in records:
        name = field_of(record, "question_id", str, where)
        if name in partitions:
            raise ValidationError(f"{where}: 'question_id' {name!r} is there twice; each question needs its own")
        if not (answer := answer_of(record)):
            left_out["questions without an answer"] += 1
            continue
        sessions = list(_sessions(record, where))
        partitions[name] = tuple(message for _, session, _ in sessions for message in session)
        is_answerable = not name.endswith(_UNANSWERABLE)
        kind, asked = field_of(record, "question_type", str, where), field_of(record, "question", str, where)
        gold = frozenset[str]()
        if is_answerable:  # the marked turns; where none is marked, those of the sessions named as evidence
            gold = frozenset(key for _, _, keys in sessions for key in keys)
            named = {uid for _, uid in items_of(record, "answer_session_ids", str, where)}
            gold = gold or frozenset(str(one["id"]) for uid, session, _ in sessions if uid in named for one in session)
        cases.append(
            BenchmarkQuestion(
                asked,
                gold,
                name,
                (QuestionGroup(NAME, "category", kind),),
                _time(field_of(record, "question_date", str, where), f"{where}, 'question_date'"),
                answer,
                name,
                is_answerable,
            )
        )
    if not cases:
        raise ValidationError(f"{path}: no question has an 'answer'; nothing to measure")
    return Dataset(NAME, partitions, tuple(cases), dict(left_out), (source,))


_Session = tuple[str, list[Message], list[str]]
"""Its id, its messages, and the ids of the messages that are marked as evidence."""


def _sessions(record: dict[str, Any], where: str) -> Iterator[_Session]:
    """Yields the sessions of a history with words, in the order of their times."""
    names, dates = (
        [text for _, text in items_of(record, key, str, where)] for key in ("haystack_session_ids", "haystack_dates")
    )
    sessions = list(items_of(record, HISTORY, list, where))
    if not len(names) == len(dates) == len(sessions):
        raise ValidationError(
            f"{where}: 'haystack_session_ids', 'haystack_dates' and {HISTORY!r} have {len(names)}, {len(dates)} and "
            f"{len(sessions)} entries; expected one of each for every session"
        )
    times = [_time(date, f"{where}, 'haystack_dates', number {number}") for number, date in enumerate(dates, 1)]
    for place in sorted(range(len(sessions)), key=times.__getitem__):
        position, session = sessions[place]
        messages: list[Message] = []
        marked: list[str] = []
        for number in range(len(session)):
            turn = field_of(session, number, dict, f"{position}, turn {number + 1}")
            content = field_of(turn, "content", str, f"{position}, turn {number + 1}")
            if content.strip():
                role = ASSISTANT if turn.get("role") == ASSISTANT else "user"
                key = f"S{place + 1}:{number + 1}"
                messages.append({"role": role, "content": content, "timestamp": times[place].isoformat(), "id": key})
                marked += [key] if turn.get("has_answer") is True else []
        yield names[place], messages, marked


def _time(text: str, where: str) -> datetime:
    """Reads a time like "2023/05/30 (Tue) 20:42", in UTC, as the data names no zone."""
    plain = _WEEKDAY.sub("", text.strip())
    for form in _TIMES:
        try:
            return datetime.strptime(plain, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise ValidationError(f"{where}: expected a time like '2023/05/30 (Tue) 20:42', not {text[:40]!r}")
