"""Reads questions that need several passages: files in the format of MuSiQue or HotpotQA.

All passages are in one partition: those of a corpus file, by default those in the questions' file, each once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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

# The partition of all passages. It must not look like a person's name, which would be embedded with each text.
PARTITION = "passages-1"
# Passages are no conversation: each is an hour later than the one before, in a session of its own, so that no search
# profits from the order of a file, which may have the passages of a question side by side.
FIRST_TIME, TIME_STEP = datetime(1970, 1, 1, tzinfo=UTC), timedelta(hours=1)
_HOPS = re.compile(r"(\d+)hop")
_EXPECTED = (
    "expected MuSiQue's form ('question', 'paragraphs': [{'title', 'paragraph_text', 'is_supporting'}]) "
    "or HotpotQA's ('question', 'context': [[title, [sentence, ...]]], 'supporting_facts': [[title, number]])"
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage, identified by title and text, whatever their white space."""

    title: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """Title and text with single blanks; equal for copies of one passage."""
        return " ".join(self.title.split()), " ".join(self.text.split())


@dataclass(frozen=True, slots=True)
class _MultihopQuestion:
    """A question with the passages of its entry. `complete`: all passages that support the answer are among them."""

    question: str
    passages: tuple[Passage, ...]
    supporting: tuple[Passage, ...]
    complete: bool
    groups: tuple[QuestionGroup, ...]
    answer: str


def load(path: Path, corpus: Path | None = None) -> Dataset:
    """Reads the questions of a file, and its passages or those of `corpus` ([{"title", "text"}]).

    Raises ValidationError, naming the file and the expectation.
    """
    source, items = read_objects(path)
    first = items[0][1]
    if "paragraphs" in first:
        name, parse_question = "musique", _musique
    elif "context" in first:
        name, parse_question = "hotpotqa", _hotpotqa
    else:
        raise ValidationError(f"{path}: {_EXPECTED}")
    questions = [parse_question(item, where) for where, item in items]
    sources = [source]
    if corpus is None:
        passages = _without_duplicates(passage for question in questions for passage in question.passages)
    else:
        corpus_source, corpus_items = read_objects(corpus)
        passages = _without_duplicates(
            Passage(field_of(item, "title", str, where), field_of(item, "text", str, where))
            for where, item in corpus_items
        )
        sources.append(corpus_source)
    ids = {passage.key: f"p{number}" for number, passage in enumerate(passages, 1)}
    left_out: Counter[str] = Counter()
    cases = tuple(_cases(questions, ids, left_out))
    if not cases:
        where = "the corpus" if corpus is not None else "it"
        raise ValidationError(f"{path}: no question has all its supporting passages in {where}; nothing to measure")
    return Dataset(name, {PARTITION: tuple(_messages(passages, ids))}, cases, dict(left_out), tuple(sources))


def _musique(item: Any, where: str) -> _MultihopQuestion:
    passages, supporting = [], []
    for position, paragraph in items_of(item, "paragraphs", dict, where):
        title = field_of(paragraph, "title", str, position)
        passage = Passage(title, field_of(paragraph, "paragraph_text", str, position))
        passages.append(passage)
        if field_of(paragraph, "is_supporting", bool, position):
            supporting.append(passage)
    hop_match = _HOPS.match(str(item.get("id", "")))
    hops = int(hop_match[1]) if hop_match else len(supporting)
    complete = bool(supporting) and item.get("answerable") is not False
    groups = (QuestionGroup("musique", "all", "all"), QuestionGroup("musique", "hops", str(hops)))
    asked = field_of(item, "question", str, where)
    return _MultihopQuestion(asked, tuple(passages), tuple(supporting), complete, groups, answer_of(item))


def _hotpotqa(item: Any, where: str) -> _MultihopQuestion:
    passages: dict[str, Passage] = {}
    for position, entry in items_of(item, "context", list, where):
        title = field_of(entry, 0, str, position)
        sentences = [sentence.strip() for _, sentence in items_of(entry, 1, str, position)]
        passages[title] = Passage(title, " ".join(sentences))
    titles = dict.fromkeys(
        field_of(fact, 0, str, position) for position, fact in items_of(item, "supporting_facts", list, where)
    )
    supporting = tuple(passages[title] for title in titles if title in passages)
    properties = {by: item[by] for by in ("type", "level") if isinstance(item.get(by), str)}
    groups = (
        QuestionGroup("hotpotqa", "all", "all"),
        QuestionGroup("hotpotqa", "hops", str(len(titles))),
        *(QuestionGroup("hotpotqa", by, value) for by, value in properties.items()),
    )
    complete = 0 < len(titles) == len(supporting)
    asked = field_of(item, "question", str, where)
    return _MultihopQuestion(asked, tuple(passages.values()), supporting, complete, groups, answer_of(item))


def _without_duplicates(passages: Iterable[Passage]) -> list[Passage]:
    """Returns each passage once, without empty ones."""
    passages_by_key: dict[tuple[str, str], Passage] = {}
    for passage in passages:
        if any(passage.key):
            passages_by_key.setdefault(passage.key, passage)
    return list(passages_by_key.values())


def _cases(
    questions: Iterable[_MultihopQuestion], ids: Mapping[tuple[str, str], str], left_out: Counter[str]
) -> Iterator[BenchmarkQuestion]:
    """Yields the questions whose supporting passages are all in `ids`; `left_out` counts the others."""
    for question in questions:
        if question.complete and all(passage.key in ids for passage in question.supporting):
            gold = frozenset(ids[passage.key] for passage in question.supporting)
            yield BenchmarkQuestion(question.question, gold, PARTITION, question.groups, answer=question.answer)
        else:
            left_out["questions without all their supporting passages"] += 1


def _messages(passages: Iterable[Passage], ids: Mapping[tuple[str, str], str]) -> Iterator[Message]:
    for index, passage in enumerate(passages):
        at = (FIRST_TIME + index * TIME_STEP).isoformat()
        content = f"{passage.title}\n{passage.text}"
        yield {"role": "user", "content": content, "timestamp": at, "id": ids[passage.key]}
