"""Asks the questions of all sets, and keeps what each search tells the model of relevance, and which of it answers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import numpy as np

from graphmem import Memory
from graphmem.cli.render import ProgressBar
from graphmem.evaluation import answers, chats, locomo
from graphmem.evaluation.datasets import Dataset, SourceFile
from graphmem.evaluation.runner import store
from graphmem.model import Scope, View
from graphmem.retrieval import relevance
from graphmem.retrieval.pipeline import search
from graphmem.retrieval.ranking import MIN_ASSESSED
from graphmem.retrieval.relevance import AskedQuestion, FoundMemory
from graphmem.retrieval.types import SearchQuery

T = TypeVar("T")

BENCHMARKS = Path(__file__).parents[1]
# Everyday questions: `benchmarks/answers` itself, and those of its folders that are there to fit to.
EVERYDAY = ("answers", "training", "further", "attributes", "work")
# Every so many questions of a conversation are asked in another one as well, where nothing answers.
FOREIGN_EVERY = 3
# Each set of cases is asked once as its files have it, and once for each of these orders, among other memories.
SHUFFLED = (1,)


@dataclass(frozen=True, slots=True)
class Told:
    """What a search tells the model: the question, the memories found, best first, and the ids of these."""

    question: AskedQuestion
    memories: Sequence[FoundMemory]
    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One question of a set with the memories found for it, best first: `answering` those that answer it.

    `counted`: those that do, or do not; others may be shown as well, and are left out. `unit`: the first memory of
    the case, its id if it has none, or the conversation: what is told about the same things.
    """

    data: str
    unit: str
    question: AskedQuestion
    memories: Sequence[FoundMemory]
    answering: Sequence[bool]
    counted: Sequence[bool]


def collect(locomo_file: Path) -> tuple[list[Evidence], list[SourceFile]]:
    """Asks the questions of all sets. Returns what the searches told the model, and the sets' files."""
    found: list[Evidence] = []
    sources: list[SourceFile] = []
    for name in EVERYDAY:
        answer_set = answers.load(BENCHMARKS / "answers" / ("" if name == "answers" else name))
        sources += answer_set.sources
        for one in (answer_set, *(_shuffled(answer_set, number) for number in SHUFFLED)):
            data, asked = answers.lay_out(one)
            found += _ask_cases(name, data, asked)
    everything = locomo.load(locomo_file)
    conversations = {name: everything.partitions[name] for name in locomo.DEVELOPMENT if name in everything.partitions}
    cases = tuple(case for case in everything.cases if case.partition in conversations)
    for data in (replace(everything, partitions=conversations, cases=cases), chats.load(BENCHMARKS / "chats")):
        found += _ask_conversations(data)
        sources += data.sources
    return found, sources


def _shuffled(answer_set: answers.AnswerSet, number: int) -> answers.AnswerSet:
    """Returns a set whose cases and noise are in another order, so that they are laid out beside others."""

    def mixed(ones: Iterable[T]) -> list[T]:
        ordered = list(ones)
        random.Random(number).shuffle(ordered)  # noqa: S311  (an order, no secret)
        return ordered

    noise = {language: mixed(texts) for language, texts in answer_set.noise.items()}
    return replace(answer_set, cases=tuple(mixed(answer_set.cases)), noise=noise)


def _ask_cases(name: str, data: Dataset, asked: Sequence[answers.Asked]) -> Iterator[Evidence]:
    with Memory(":memory:") as memory, ProgressBar() as bar:
        store(memory, data, bar.update)
        for number, one in enumerate(asked, 1):
            bar.update(f"questions of {name}", number, len(asked))
            told = _ask(memory, one.partition, one.case.question, answers.ASKED_AT)
            if told is not None:
                answering = [any(part in found.text for part in one.case.needed) for found in told.memories]
                others = [found.text in one.case.right for found in told.memories]
                counted = [is_gold or not other for is_gold, other in zip(answering, others, strict=True)]
                # Cases that begin with the same memory ask about the same thing.
                unit = one.case.turns[0][1] if one.case.turns else one.case.id
                yield Evidence(name, unit, told.question, told.memories, answering, counted)


def _ask_conversations(data: Dataset) -> Iterator[Evidence]:
    """Asks each question of conversations, and every third one in another conversation."""
    chance = random.Random(5)  # noqa: S311  (a sample, no secret)
    with Memory(":memory:") as memory, ProgressBar() as bar:
        keys = store(memory, data, bar.update).keys
        for number, case in enumerate(data.cases):
            bar.update(f"questions of {data.name}", number + 1, len(data.cases))
            others = [name for name in data.partitions if name != case.partition]
            asked_in = [case.partition] + ([chance.choice(others)] if number % FOREIGN_EVERY == 0 else [])
            for partition in asked_in:
                gold = case.gold if partition == case.partition else frozenset()
                told = _ask(memory, partition, case.question, case.query_time)
                if told is not None:
                    answering = [keys[uid] in gold for uid in told.ids]
                    counted = [True] * len(told.ids)
                    yield Evidence(data.name, partition, told.question, told.memories, answering, counted)


def _ask(memory: Memory, user: str, question: str, now: datetime | None) -> Told | None:
    """Searches; returns what the search told the model, None if it found nothing."""
    moment = datetime.now(UTC)
    query = SearchQuery(question, View(Scope(user), moment, Scope(user).partition), MIN_ASSESSED, now=now or moment)
    with patch.object(relevance, "assess", wraps=relevance.assess) as assess:
        outcome = search(query, memory.engine.search_deps)
    if not assess.called:
        return None
    asked, memories = assess.call_args.args  # of the last call: one before it dates an event that the question names
    # In half the room; the encoder's own numbers have no more digits.
    small = [replace(one, vector=None if one.vector is None else one.vector.astype(np.float32)) for one in memories]
    return Told(asked, small, [hit.record.id for hit in outcome.hits])
