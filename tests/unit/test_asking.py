"""What a language model answers is read as data: text that no store can hold is none."""

from __future__ import annotations

from typing import Any

import pytest

from graphmem.errors import LLMUnusable
from graphmem.remember import summarise
from graphmem.remember.asking import line


@pytest.mark.parametrize(
    ("told", "read"),
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
def test_a_line(told: Any, read: str | None) -> None:
    assert line(told) == read


def test_a_line_that_is_too_long_is_none() -> None:
    assert line("x" * 10, 10) == "x" * 10
    assert line("x" * 11, 10) is None


@pytest.mark.parametrize("answer", [{}, {"summary": 3}, {"summary": " "}, {"summary": "Ann\x00sings."}, 3, None, []])
def test_no_summary(answer: Any) -> None:
    with pytest.raises(LLMUnusable):
        summarise.read(answer)


def test_a_summary_ends_with_a_sentence() -> None:
    sentence = "Ann sings. "
    text = summarise.read({"summary": sentence * 200})
    assert len(text) <= summarise.LONGEST
    assert text.endswith("sings.")
    assert summarise.read("x" * 2_000) == "x" * summarise.LONGEST
