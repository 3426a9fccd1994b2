"""The benchmark of relevance: its fit to rows made by a known model, and what it takes from searches."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from graphmem.evaluation.datasets import BenchmarkQuestion, Dataset

FOLDER = Path(__file__).parents[2] / "benchmarks" / "relevance"
ROWS = 4_000


@pytest.fixture(scope="module")
def fitting() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield import_module("fitting")


def made_rows(fitting: ModuleType, **changed: Any) -> Any:
    """A table of two features, of which memories answer by 2 · first - second - 1 in log odds."""
    chance = np.random.default_rng(3)
    columns = chance.normal(size=(ROWS, 2)).astype(np.float32)
    odds = 1 / (1 + np.exp(-(columns @ [2.0, -1.0] - 1.0)))
    rows = {
        "names": ["first", "second"], "columns": columns, "answers": chance.random(ROWS) < odds,
        "is_counted": np.ones(ROWS, bool), "data": np.array(["answers"] * ROWS), "fold": np.arange(ROWS) % 5,
    }  # fmt: skip
    return fitting.Table(**rows | changed)


def test_a_fit_finds_the_model_that_made_the_rows(fitting: ModuleType) -> None:
    table = made_rows(fitting)
    fit = fitting.fit_rows(table, np.ones(ROWS, bool))
    assert fit.coefficients == pytest.approx([2.0, -1.0], abs=0.15)
    assert fit.constant == pytest.approx(-1.0, abs=0.15)
    # As the constant has no penalty, the relevances add up to the number of memories that answer.
    assert fit.predict(table.columns).sum() == pytest.approx(table.answers.sum(), rel=1e-3)


def test_a_start_changes_no_fit(fitting: ModuleType) -> None:
    table = made_rows(fitting)
    half, whole = table.fold < 2, np.ones(ROWS, bool)
    first = fitting.fit_rows(table, half)
    again = fitting.fit_rows(table, half, fitting.fit_rows(table, whole))
    assert first.coefficients == pytest.approx(again.coefficients, abs=1e-3)
    assert first.constant == pytest.approx(again.constant, abs=1e-3)


def test_memories_that_may_be_shown_but_do_not_answer_are_left_out(fitting: ModuleType) -> None:
    table = made_rows(fitting)
    is_counted = table.fold > 0
    wrong = made_rows(fitting, answers=np.where(is_counted, table.answers, True), is_counted=is_counted)
    right = fitting.fit_rows(table, is_counted)
    assert fitting.fit_rows(wrong, np.ones(ROWS, bool)).coefficients == pytest.approx(right.coefficients)


def test_a_network_finds_what_no_sum_of_columns_tells(fitting: ModuleType) -> None:
    """Memories answer where two columns have the same sign, which each alone says nothing of."""
    chance = np.random.default_rng(7)
    columns = chance.normal(size=(ROWS, 3)).astype(np.float32)
    answers, weights = columns[:, 0] * columns[:, 1] > 0, np.ones(ROWS)
    seen, odds = slice(ROWS // 2), np.zeros(ROWS // 2)
    fitted = fitting.network.fit(columns[seen], answers[seen], weights[seen], odds)
    told = fitted.log_odds(columns[ROWS // 2 :]) > 0
    assert (told == answers[ROWS // 2 :]).mean() > 0.85
    again = fitting.network.fit(columns[seen], answers[seen], weights[seen], odds)
    assert np.array_equal(fitted.log_odds(columns), again.log_odds(columns))


def test_a_network_adds_nothing_where_other_evidence_is_right(fitting: ModuleType) -> None:
    columns = np.random.default_rng(9).normal(size=(ROWS, 3)).astype(np.float32)
    odds = 4.0 * columns[:, 0].astype(np.float64)
    answers = np.random.default_rng(10).random(ROWS) < 1 / (1 + np.exp(-odds))
    fitted = fitting.network.fit(columns, answers, np.ones(ROWS), odds)
    assert np.abs(fitted.log_odds(columns)).mean() < 0.5


@pytest.mark.thorough
def test_evidence_is_what_searches_find_and_which_of_it_answers(fitting: ModuleType) -> None:
    texts = {"a": ["I moved to Lisbon in May.", "I bought a bicycle."], "b": ["Ingrid lives in Tavira."]}
    said = {
        name: tuple({"role": "user", "content": text, "id": str(n)} for n, text in enumerate(ones))
        for name, ones in texts.items()
    }
    case = BenchmarkQuestion("Where do I live?", frozenset({"0"}), "a", ())
    own, foreign = import_module("evidence")._ask_conversations(Dataset("chats", said, (case,), {}, ()))
    assert [(memory.text, answers) for memory, answers in zip(own.memories, own.answering, strict=True)] == [
        (texts["a"][0], True),
        (texts["a"][1], False),
    ]
    assert ([memory.text for memory in foreign.memories], foreign.answering) == (texts["b"], [False])
    assert (own.question.text, own.question.size, foreign.question.size) == (case.question, 2, 1)
    table = fitting.tabulate([own, foreign], has_vectors=True)
    assert table.columns.shape == (3, len(table.names) + 3 * fitting.AXES)
    assert table.answers.tolist() == [True, False, False]
