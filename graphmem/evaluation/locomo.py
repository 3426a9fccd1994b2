"""LOCOMO (Maharana et al., 2024): long conversations of two people, and questions with the turns that answer them.

Read as the public `locomo10.json` has it. Each conversation is a partition of its own, each turn a message.
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
    field_of,
    items_of,
    read_objects,
)

NAME = "locomo"
# What the file calls by number only. The questions of 5 have no answer in the conversation, so no recall.
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ADVERSARIAL = 5
# Questions with more gold turns are counted together.
MAX_GOLD_TURNS = 4
_SESSION = re.compile(r"session_(\d+)")
_TIME = "%I:%M %p on %d %B, %Y"
# As in "D8:6; D9:17"; some are written "D:11:26" or "D30:05".
_TURN = re.compile(r"D:?(\d+):(\d+)")


def load(path: Path) -> Dataset:
    """The conversations and questions of a file. Raises ValidationError, naming the file and what was expected."""
    source, samples = read_objects(path)
    partitions: dict[str, tuple[Message, ...]] = {}
    cases: list[BenchmarkQuestion] = []
    left_out: Counter[str] = Counter()
    for where, sample in samples:
        name = field_of(sample, "sample_id", str, where)
        if name in partitions:
            raise ValidationError(f"{where}: 'sample_id' {name!r} is there twice; each conversation needs its own")
        partitions[name] = tuple(_messages(field_of(sample, "conversation", dict, where), f"{where}, 'conversation'"))
        turns = {_key(message["id"]): str(message["id"]) for message in partitions[name]}
        for here, asked in items_of(sample, "qa", dict, where):
            cases.extend(_case(asked, here, name, turns, left_out))
    if not cases:
        raise ValidationError(f"{path}: no question names a turn of its conversation as 'evidence'; nothing to measure")
    return Dataset(NAME, partitions, tuple(cases), dict(+left_out), (source,))


def _messages(conversation: dict[str, Any], where: str) -> Iterator[Message]:
    """Every turn with words, in the order of the sessions. All turns have their session's time: there is no other."""
    found = [match for key in conversation if (match := _SESSION.fullmatch(key))]
    if not found:
        raise ValidationError(f"{where}: expected 'session_1', a list of turns, and 'session_1_date_time'")
    for session in sorted(found, key=lambda match: int(match[1])):
        at = _moment(field_of(conversation, f"{session[0]}_date_time", str, where), f"{where}, {session[0]}_date_time")
        for here, turn in items_of(conversation, session[0], dict, where):
            content = _content(turn, here)
            if content.strip():
                speaker, key = field_of(turn, "speaker", str, here), field_of(turn, "dia_id", str, here)
                yield {"role": "user", "name": speaker, "content": content, "timestamp": at, "id": key}


def _content(turn: dict[str, Any], where: str) -> str:
    text, shared = field_of(turn, "text", str, where), turn.get("blip_caption")
    return f"{text} [shares {shared}]" if isinstance(shared, str) else text


def _moment(text: str, where: str) -> str:
    """The time as ISO 8601. LOCOMO names no zone."""
    try:
        return datetime.strptime(text.strip(), _TIME).replace(tzinfo=UTC).isoformat()
    except ValueError:
        raise ValidationError(f"{where}: expected a time like '1:56 pm on 8 May, 2023', not {text[:40]!r}") from None


def _case(
    asked: dict[str, Any], where: str, partition: str, turns: dict[str, str], left_out: Counter[str]
) -> Iterator[BenchmarkQuestion]:
    """The question, if it can be scored; else it is counted in `left_out`, as are turns that do not exist."""
    category = field_of(asked, "category", int, where)
    if category not in CATEGORIES:
        raise ValidationError(f"{where}: expected 'category' to be 1 to 5, not {category}")
    if category == ADVERSARIAL:
        left_out[f"questions of category {ADVERSARIAL} ({CATEGORIES[ADVERSARIAL]})"] += 1
        return
    named = [key for _, entry in items_of(asked, "evidence", str, where) for key in _keys(entry)]
    gold = frozenset(turns[key] for key in named if key in turns)
    left_out["turns named as evidence that do not exist"] += sum(key not in turns for key in named)
    if not gold:
        left_out["questions without evidence"] += 1
        return
    yield BenchmarkQuestion(field_of(asked, "question", str, where), gold, partition, _groups(category, len(gold)))


def _groups(category: int, turns: int) -> tuple[QuestionGroup, ...]:
    return (
        QuestionGroup(NAME, "all", "1-4", "categories 1 to 4 together"),
        QuestionGroup(NAME, "category", str(category), CATEGORIES[category]),
        QuestionGroup(NAME, "gold turns", f"{turns}" if turns < MAX_GOLD_TURNS else f"{MAX_GOLD_TURNS}+"),
    )


def _keys(entry: str) -> list[str]:
    """The turns that one entry of `evidence` names, however they are separated; what names none stays as it is."""
    return [_key(match[0]) for match in _TURN.finditer(entry)] or [entry]


def _key(turn: str) -> str:
    """A turn's id without the ways it is miswritten."""
    found = _TURN.fullmatch(turn.strip())
    return turn if found is None else f"D{int(found[1])}:{int(found[2])}"
