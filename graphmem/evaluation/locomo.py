"""Reads LOCOMO (Maharana et al., 2024): long conversations of two people, and questions with the turns that answer.

The format is that of the public `locomo10.json`. Each conversation is a partition of its own, each turn a message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
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

NAME = "locomo"
# The file has numbers only. Questions of category 5 have no answer in the conversation, so recall is undefined.
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ADVERSARIAL = 5
# The conversations to develop with, which the published figures are of; the others are not looked at.
DEVELOPMENT = ("conv-26", "conv-30", "conv-41", "conv-42")
# The right answer to a question of category 5.
NOT_MENTIONED = "Not mentioned in the conversation."
# Questions with so many gold turns or more are one group.
MAX_GOLD_TURNS = 4
_SESSION = re.compile(r"session_(\d+)")
_TIME = "%I:%M %p on %d %B, %Y"
# Ids as in "D8:6; D9:17"; some are miswritten as "D:11:26" or "D30:05".
_TURN_ID = re.compile(r"D:?(\d+):(\d+)")


def load(path: Path, *, for_recall: bool = True) -> Dataset:
    """Reads the conversations and questions of a file: those with gold, or else (`for_recall=False`) with an answer.

    Raises ValidationError, naming the file and the expectation.
    """
    source, samples = read_objects(path)
    partitions: dict[str, tuple[Message, ...]] = {}
    cases: list[BenchmarkQuestion] = []
    left_out: Counter[str] = Counter()
    for where, sample in samples:
        name = field_of(sample, "sample_id", str, where)
        if name in partitions:
            raise ValidationError(f"{where}: 'sample_id' {name!r} is there twice; each conversation needs its own")
        partitions[name] = tuple(_messages(field_of(sample, "conversation", dict, where), f"{where}, 'conversation'"))
        turn_ids = {_normalise_turn_id(message["id"]): str(message["id"]) for message in partitions[name]}
        for number, (position, question) in enumerate(items_of(sample, "qa", dict, where), 1):
            case = replace(_case(question, position, name, turn_ids, left_out), id=f"{name}:{number}")
            if (reason := _why_left_out(case, for_recall=for_recall)) is None:
                cases.append(case)
            else:
                left_out[reason] += 1
    if not cases:
        missing = "names a turn of its conversation as 'evidence'" if for_recall else "has an 'answer'"
        raise ValidationError(f"{path}: no question {missing}; nothing to measure")
    return Dataset(NAME, partitions, tuple(cases), dict(+left_out), (source,))


def _messages(conversation: dict[str, Any], where: str) -> Iterator[Message]:
    """Yields every turn with words, in the order of sessions, at the time of its session: LOCOMO dates no turns.

    Raises ValidationError for a conversation without sessions.
    """
    sessions = [match for key in conversation if (match := _SESSION.fullmatch(key))]
    if not sessions:
        raise ValidationError(f"{where}: expected 'session_1', a list of turns, and 'session_1_date_time'")
    for session in sorted(sessions, key=lambda match: int(match[1])):
        time = field_of(conversation, f"{session[0]}_date_time", str, where)
        try:
            at = datetime.strptime(time.strip(), _TIME).replace(tzinfo=UTC).isoformat()  # LOCOMO names no zone
        except ValueError:
            place = f"{where}, {session[0]}_date_time"
            raise ValidationError(
                f"{place}: expected a time like '1:56 pm on 8 May, 2023', not {time[:40]!r}"
            ) from None
        for position, turn in items_of(conversation, session[0], dict, where):
            content = _content(turn, position)
            if content.strip():
                speaker, turn_id = field_of(turn, "speaker", str, position), field_of(turn, "dia_id", str, position)
                yield {"role": "user", "name": speaker, "content": content, "timestamp": at, "id": turn_id}


def _content(turn: dict[str, Any], where: str) -> str:
    text, image_caption = field_of(turn, "text", str, where), turn.get("blip_caption")
    return f"{text} [shares {image_caption}]" if isinstance(image_caption, str) else text


def _case(
    question: dict[str, Any], where: str, partition: str, turn_ids: dict[str, str], left_out: Counter[str]
) -> BenchmarkQuestion:
    """Returns a question. `left_out` counts gold turns that do not exist; `turn_ids` maps normalised ids of turns to
    ids of messages.
    """
    category = field_of(question, "category", int, where)
    if category not in CATEGORIES:
        raise ValidationError(f"{where}: expected 'category' to be 1 to 5, not {category}")
    if category == ADVERSARIAL:
        # What the turns tell is about somebody else: they are no gold.
        asked = field_of(question, "question", str, where)
        group = QuestionGroup(NAME, "category", str(category), CATEGORIES[category])
        return BenchmarkQuestion(asked, frozenset(), partition, (group,), answer=NOT_MENTIONED, is_answerable=False)
    evidence = list[str]()
    for _, entry in items_of(question, "evidence", str, where):
        # An entry has several ids, or none that can be read.
        evidence += [_normalise_turn_id(match[0]) for match in _TURN_ID.finditer(entry)] or [entry]
    gold = frozenset(turn_ids[turn_id] for turn_id in evidence if turn_id in turn_ids)
    left_out["turns named as evidence that do not exist"] += sum(turn_id not in turn_ids for turn_id in evidence)
    asked = field_of(question, "question", str, where)
    return BenchmarkQuestion(asked, gold, partition, _groups(category, len(gold)), answer=answer_of(question))


def _why_left_out(case: BenchmarkQuestion, *, for_recall: bool) -> str | None:
    """Returns why a question is left out, None if it is not."""
    if for_recall and not case.is_answerable:
        return f"questions of category {ADVERSARIAL} ({CATEGORIES[ADVERSARIAL]})"
    if for_recall and not case.gold:
        return "questions without evidence"
    return None if for_recall or case.answer else "questions without an answer"


def _groups(category: int, gold_turns: int) -> tuple[QuestionGroup, ...]:
    return (
        QuestionGroup(NAME, "all", "1-4", "categories 1 to 4 together"),
        QuestionGroup(NAME, "category", str(category), CATEGORIES[category]),
        QuestionGroup(NAME, "gold turns", f"{gold_turns}" if gold_turns < MAX_GOLD_TURNS else f"{MAX_GOLD_TURNS}+"),
    )


def _normalise_turn_id(turn_id: str) -> str:
    """Converts the miswritten forms of a turn's id to the usual one: "D:11:26" to "D11:26", "D30:05" to "D30:5"."""
    match = _TURN_ID.fullmatch(turn_id.strip())
    return turn_id if match is None else f"D{int(match[1])}:{int(match[2])}"
