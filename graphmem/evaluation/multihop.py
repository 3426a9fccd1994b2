"""Questions over passages that need several of them: files in the style of MuSiQue and of HotpotQA.

All passages are in one partition: those of a corpus file, else those that come along with the questions, each once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    SourceFile,
    field_of,
    items_of,
    read_objects,
)

# The partition of all passages. It must not read like somebody's name: that would stand in front of what is embedded.
SPACE = "passages-1"
# Passages are no conversation: each is said an hour after the one before, in a session of its own, so that no search
# profits from the order of a file, which may have the passages of a question side by side.
FIRST, TIME_STEP = datetime(1970, 1, 1, tzinfo=UTC), timedelta(hours=1)
_HOPS = re.compile(r"(\d+)hop")
_EXPECTED = (
    "expected MuSiQue's form ('question', 'paragraphs': [{'title', 'paragraph_text', 'is_supporting'}]) "
    "or HotpotQA's ('question', 'context': [[title, [sentence, ...]]], 'supporting_facts': [[title, number]])"
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage, to be recognised by its title and words, however the words are spaced."""

    title: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """What makes it the same passage."""
        return " ".join(self.title.split()), " ".join(self.text.split())


@dataclass(frozen=True, slots=True)
class _MultihopQuestion:
    """A question with the passages that come along. `complete`: all that support it are among them."""

    question: str
    passages: tuple[Passage, ...]
    supporting: tuple[Passage, ...]
    complete: bool
    groups: tuple[QuestionGroup, ...]


def load(path: Path, corpus: Path | None = None) -> Dataset:
    """The questions of a file over all its passages or, with `corpus` ([{"title", "text"}]), over those.

    Raises ValidationError, naming the file and what was expected.
    """
    source, items = read_objects(path)
    name, reader = _style(items[0][1], str(path))
    asked = [reader(item, where) for where, item in items]
    sources = [source]
    if corpus is None:
        passages = _each_once(passage for one in asked for passage in one.passages)
    else:
        passages, more = _corpus(corpus)
        sources.append(more)
    ids = {passage.key: f"p{place}" for place, passage in enumerate(passages, 1)}
    left_out: Counter[str] = Counter()
    cases = tuple(_cases(asked, ids, left_out))
    if not cases:
        where = "the corpus" if corpus is not None else "it"
        raise ValidationError(f"{path}: no question has all its supporting passages in {where}; nothing to measure")
    return Dataset(name, {SPACE: tuple(_messages(passages, ids))}, cases, dict(left_out), tuple(sources))


def _style(first: Mapping[str, Any], where: str) -> tuple[str, Callable[[Any, str], _MultihopQuestion]]:
    if "paragraphs" in first:
        return "musique", _musique
    if "context" in first:
        return "hotpotqa", _hotpotqa
    raise ValidationError(f"{where}: {_EXPECTED}")


def _musique(item: Any, where: str) -> _MultihopQuestion:
    passages, supporting = [], []
    for here, paragraph in items_of(item, "paragraphs", dict, where):
        passage = Passage(field_of(paragraph, "title", str, here), field_of(paragraph, "paragraph_text", str, here))
        passages.append(passage)
        if field_of(paragraph, "is_supporting", bool, here):
            supporting.append(passage)
    counted = _HOPS.match(str(item.get("id", "")))
    hops = int(counted[1]) if counted else len(supporting)
    complete = bool(supporting) and item.get("answerable") is not False
    groups = (QuestionGroup("musique", "all", "all"), QuestionGroup("musique", "hops", str(hops)))
    return _MultihopQuestion(
        field_of(item, "question", str, where), tuple(passages), tuple(supporting), complete, groups
    )


def _hotpotqa(item: Any, where: str) -> _MultihopQuestion:
    passages: dict[str, Passage] = {}
    for here, entry in items_of(item, "context", list, where):
        title = field_of(entry, 0, str, here)
        sentences = [sentence.strip() for _, sentence in items_of(entry, 1, str, here)]
        passages[title] = Passage(title, " ".join(sentences))
    titles = dict.fromkeys(
        field_of(fact, 0, str, here) for here, fact in items_of(item, "supporting_facts", list, where)
    )
    supporting = tuple(passages[title] for title in titles if title in passages)
    told = {by: item[by] for by in ("type", "level") if isinstance(item.get(by), str)}
    groups = (
        QuestionGroup("hotpotqa", "all", "all"),
        QuestionGroup("hotpotqa", "hops", str(len(titles))),
        *(QuestionGroup("hotpotqa", by, value) for by, value in told.items()),
    )
    complete = 0 < len(titles) == len(supporting)
    return _MultihopQuestion(
        field_of(item, "question", str, where), tuple(passages.values()), supporting, complete, groups
    )


def _corpus(path: Path) -> tuple[list[Passage], SourceFile]:
    source, items = read_objects(path)
    found = [Passage(field_of(item, "title", str, where), field_of(item, "text", str, where)) for where, item in items]
    return _each_once(found), source


def _each_once(passages: Iterable[Passage]) -> list[Passage]:
    found: dict[tuple[str, str], Passage] = {}
    for passage in passages:
        if any(passage.key):
            found.setdefault(passage.key, passage)
    return list(found.values())


def _cases(
    asked: Iterable[_MultihopQuestion], ids: Mapping[tuple[str, str], str], left_out: Counter[str]
) -> Iterator[BenchmarkQuestion]:
    """The questions that can be answered from the passages there are; the others are counted in `left_out`."""
    for one in asked:
        if one.complete and all(passage.key in ids for passage in one.supporting):
            yield BenchmarkQuestion(
                one.question, frozenset(ids[passage.key] for passage in one.supporting), SPACE, one.groups
            )
        else:
            left_out["questions without all their supporting passages"] += 1


def _messages(passages: Iterable[Passage], ids: Mapping[tuple[str, str], str]) -> Iterator[Message]:
    for place, passage in enumerate(passages):
        at = (FIRST + place * TIME_STEP).isoformat()
        content = f"{passage.title}\n{passage.text}"
        yield {"role": "user", "content": content, "timestamp": at, "id": ids[passage.key]}
