"""The stand-in for a language model by which a simulated year counts requests and tokens."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from graphmem.evaluation.lifecycle import QuotingModel
from graphmem.ingest.facts.compositions import read, request
from graphmem.lifecycle.decay import Operation
from graphmem.model import Kind, MemoryRecord, Scope

LONG = " ".join(f"word{number}" for number in range(60))


def records(*texts: str) -> list[MemoryRecord]:
    at = datetime(2026, 6, 1, tzinfo=UTC)
    return [
        MemoryRecord(
            id=str(n), partition="ana", scope=Scope("ana"), kind=Kind.EPISODE, text=text, at=at, utc_offset=0,
            valid_from=at, created_at=at, updated_at=at, session="s",
        )
        for n, text in enumerate(texts)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "texts", "said"),
    [
        (Operation.MERGE, ("I like tea.", "I like green tea."), "I like green tea."),
        (Operation.MERGE, (LONG, "I like tea."), "I like tea."),
        (Operation.MERGE, (LONG,), None),
        (Operation.SUMMARIZE, ("We walked.", "It rained."), "We walked. It rained."),
        (Operation.SUMMARIZE, ("x " * 500, "y " * 500, "It rained."), "x " * 499 + "x It rained."),
        (Operation.ABSTRACT, ("Bought a latte at noon on Monday",), "Repeatedly: Bought a latte at noon"),
        (Operation.ABSTRACT, ("周三早上在星巴克买了拿铁",), "常常：早上在星巴克买了拿铁"),
    ],
)
def test_its_answers_are_quotations_that_are_taken(operation: Operation, texts: tuple[str, ...], said: str) -> None:
    sources = records(*texts)
    reply = QuotingModel().answer(request(operation, 1, sources))
    text, fault = read(operation, reply.value, sources)
    assert (text, fault) == (said, "" if said else "no common statement")


def test_tokens_are_those_of_the_request_and_of_the_answer() -> None:
    few, many = (QuotingModel().answer(request(Operation.MERGE, 0, records(*texts))).usage for texts in
                 (("I like tea.",), ("I like tea.",) * 9))  # fmt: skip
    assert (few.calls, few.completion_tokens) == (1, many.completion_tokens)
    assert 100 < few.prompt_tokens < many.prompt_tokens
