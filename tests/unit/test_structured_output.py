"""Reading of a language model's answers: text that no store can hold is read as None."""

from __future__ import annotations

from typing import Any

import pytest

from graphmem.errors import LLMUnusable
from graphmem.ingest.facts import summaries
from graphmem.ingest.facts.structured_output import single_line


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Ann sings.", "Ann sings."),
        ("  Ann\n\tsings.\u2028 ", "Ann sings."),
        ("", None),
        (" \n", None),
        ("Ann\x00sings.", None),
        ("Ann \ud83d sings.", None),
        (7, None),
        (["Ann sings."], None),
        (None, None),
    ],
)
def test_a_text_is_read_as_one_line(value: Any, expected: str | None) -> None:
    assert single_line(value) == expected


def test_a_text_that_is_too_long_is_none() -> None:
    assert single_line("x" * 10, 10) == "x" * 10
    assert single_line("x" * 11, 10) is None


@pytest.mark.parametrize("answer", [{}, {"summary": 3}, {"summary": " "}, {"summary": "Ann\x00sings."}, 3, None, []])
def test_an_answer_without_a_summary_is_refused(answer: Any) -> None:
    with pytest.raises(LLMUnusable):
        summaries.read_summary(answer)


def test_a_summary_ends_with_a_sentence() -> None:
    sentence = "Ann sings. "
    text = summaries.read_summary({"summary": sentence * 200})
    assert len(text) <= summaries.MAX_SUMMARY_CHARS
    assert text.endswith("sings.")
    assert summaries.read_summary("x" * 2_000) == "x" * summaries.MAX_SUMMARY_CHARS
