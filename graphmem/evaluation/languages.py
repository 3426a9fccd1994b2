"""Reads parallel sentences in several languages (`benchmarks/languages`): the same ones, with the same questions.

A folder has a file of JSON Lines for each language, named by its code (`zh.jsonl`). An entry has an `id` that is the
same in every file, a sentence to be stored (`stored`), and the `question` that it answers; one without is a distractor.
Each language has stores of two sizes: small ones, of a few sentences that are asked for with all distractors, and one
of all sentences. Questions are asked in each language over its own stores, over English ones, and in English over
those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from graphmem.boundary import validation
from graphmem.errors import ValidationError
from graphmem.evaluation import metrics
from graphmem.evaluation.datasets import (
    BenchmarkQuestion,
    Dataset,
    Message,
    QuestionGroup,
    SourceFile,
    field_of,
    read_objects,
)
from graphmem.evaluation.runner import ARMS_ALONE, Measurement

NAME = "languages"
# The language that all others are compared with.
ENGLISH = "en"
# Sentences of a small store that are asked for; with the twelve distractors of `benchmarks/languages` it has 16.
ASKED_IN_SMALL_STORE = 4
# Ranks up to which the answer is looked for.
DEPTHS = (1, 3, 5)
# A store is one sitting: its sentences are a minute apart, in an order that is the same in all languages. The questions
# are asked a day later.
FIRST_TIME, TIME_STEP = datetime(2024, 5, 1, 18, tzinfo=UTC), timedelta(minutes=1)
QUERY_TIME = FIRST_TIME + timedelta(days=1)
ORDER_SEED = 0


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence to be stored, and the question that it answers (None: a distractor)."""

    stored: str
    question: str | None


def _scores(ranking: Sequence[str], gold: Collection[str], _words: Mapping[str, int]) -> dict[str, float]:
    """Returns the measures of one question; words as a unit mean nothing in scripts without blanks."""
    found = {f"recall@{depth}": metrics.recall(ranking, gold, depth) for depth in DEPTHS}
    return {**found, "mrr": metrics.reciprocal_rank(ranking, gold)}


MEASUREMENT = Measurement(ARMS_ALONE, (("full", "cosine"), ("full", "bm25")), _scores, ("recall@3",))


@dataclass(frozen=True, slots=True)
class _Store:
    """The ids of the sentences of a store, in order, and of those that are asked for; the same in each language."""

    name: str
    sentences: Sequence[int]
    asked: Sequence[int]


def load(folder: Path, languages: Sequence[str] | None = None, limit: int | None = None) -> Dataset:
    """Reads the files of English and of these languages (None: of all that the folder has).

    Only the first `limit` questions are asked, in each language. Raises ValidationError for a language without a file,
    for a limit that is no number of questions, and, naming file and position, for files of another form or that are
    not parallel.
    """
    files = {language: _read(folder / f"{language}.jsonl") for language in _chosen(folder, languages)}
    sentences = {language: content for language, (_, content) in files.items()}
    questions = _questions(folder, sentences)
    if limit is not None:
        validation.count(limit, "limit", 1, len(questions))
    stores = list(_stores(sentences[ENGLISH], questions, limit))
    partitions = {
        f"{language}-{store.name}": tuple(_messages(content, store))
        for language, content in sentences.items()
        for store in stores
    }
    cases: list[BenchmarkQuestion] = []
    baselines: dict[QuestionGroup, QuestionGroup] = {}
    # Each language with itself, and with English both ways.
    pairs = [(language, language) for language in sentences]
    others = (language for language in sentences if language != ENGLISH)
    pairs += [pair for language in others for pair in ((language, ENGLISH), (ENGLISH, language))]
    for asked, stored in pairs:
        for store in stores:
            group = _group(store, asked, stored)
            if (asked, stored) != (ENGLISH, ENGLISH):
                baselines[group] = _group(store, ENGLISH, ENGLISH)
            cases += [
                BenchmarkQuestion(
                    str(sentences[asked][key].question),
                    frozenset({str(key)}),
                    f"{stored}-{store.name}",
                    (group,),
                    QUERY_TIME,
                )
                for key in store.asked
            ]
    return Dataset(NAME, partitions, tuple(cases), {}, tuple(source for source, _ in files.values()), baselines)


def _chosen(folder: Path, languages: Sequence[str] | None) -> list[str]:
    """Returns the languages to be read, each once, English first."""
    available = sorted(path.stem for path in folder.glob("*.jsonl"))
    if not available:
        raise ValidationError(f"{folder}: holds no languages; name a folder with files such as {ENGLISH}.jsonl")
    chosen = available if languages is None else languages
    return list(dict.fromkeys([ENGLISH, *(validation.one_of(one, "languages", available) for one in chosen)]))


def _read(path: Path) -> tuple[SourceFile, dict[int, _Sentence]]:
    """Reads a file. Returns its sentences by id."""
    source, items = read_objects(path)
    sentences: dict[int, _Sentence] = {}
    for where, item in items:
        key = field_of(item, "id", int, where)
        if key in sentences:
            raise ValidationError(f"{where}: 'id' {key} is there twice; each sentence needs its own")
        stored = validation.stored_text(field_of(item, "stored", str, where), f"{where}, 'stored'")
        if not stored.strip():
            raise ValidationError(f"{where}, 'stored': says nothing; each sentence needs words")
        question = None
        if "question" in item:
            question = validation.query(field_of(item, "question", str, where), f"{where}, 'question'")
        sentences[key] = _Sentence(stored, question)
    return source, sentences


def _questions(folder: Path, sentences: Mapping[str, Mapping[int, _Sentence]]) -> list[int]:
    """Returns the ids of the questions; raises ValidationError unless all languages have the same, in whole stores."""
    asked = {
        language: {key: one.question is not None for key, one in content.items()}
        for language, content in sentences.items()
    }
    for language, ids in asked.items():
        if ids != asked[ENGLISH]:
            key = min(key for key, _ in ids.items() ^ asked[ENGLISH].items())
            raise ValidationError(
                f"{folder / language}.jsonl: differs from {ENGLISH}.jsonl in 'id' {key}; "
                "each sentence needs its translation, and each question"
            )
    questions = [key for key, is_asked in asked[ENGLISH].items() if is_asked]
    if not questions or len(questions) % ASKED_IN_SMALL_STORE:
        raise ValidationError(
            f"{folder}: asks {len(questions)} questions; expected a multiple of {ASKED_IN_SMALL_STORE}, "
            "as many as a small store answers"
        )
    return questions


def _stores(sentences: Collection[int], questions: Sequence[int], limit: int | None) -> Iterator[_Store]:
    """Yields the small stores that the first `limit` questions need, and the one of all sentences if it is larger."""
    order = [list(sentences)[place] for place in np.random.default_rng(ORDER_SEED).permutation(len(sentences))]
    asked, distractors = questions[:limit], set(sentences).difference(questions)
    size = len(distractors) + ASKED_IN_SMALL_STORE
    for number, start in enumerate(range(0, len(asked), ASKED_IN_SMALL_STORE), 1):
        held = distractors.union(questions[start : start + ASKED_IN_SMALL_STORE])
        yield _Store(
            f"{size}-{number}", [key for key in order if key in held], asked[start : start + ASKED_IN_SMALL_STORE]
        )
    if size < len(order):
        yield _Store(f"{len(order)}", order, asked)


def _messages(sentences: Mapping[int, _Sentence], store: _Store) -> Iterator[Message]:
    for place, key in enumerate(store.sentences):
        at = (FIRST_TIME + place * TIME_STEP).isoformat()
        yield {"role": "user", "content": sentences[key].stored, "timestamp": at, "id": str(key)}


def _group(store: _Store, asked: str, stored: str) -> QuestionGroup:
    size = f"{len(store.sentences)} sentences"
    if asked == stored:
        return QuestionGroup(size, "language", asked)
    return QuestionGroup(size, "pair", f"{asked} over {stored}")
