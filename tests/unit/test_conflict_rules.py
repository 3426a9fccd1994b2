"""Which of two facts counts that contradict each other: the numbers of seed 002 §9.1, and what holds for any two."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.ingest.facts import pipeline
from graphmem.lifecycle import conflicts
from graphmem.lifecycle.conflicts import Resolution, begin_of, rule_of
from graphmem.model import DEFAULT_CONFIDENCE, Kind, MemoryRecord, Scope

NOON = datetime(2024, 5, 15, 12, tzinfo=UTC)
DAY = timedelta(days=1)
MOVED = "another value of 'lives in'"
CONFIDENCES = st.sampled_from([0.0, 0.3, 0.5, 0.55, 0.6, DEFAULT_CONFIDENCE, 0.75, 0.8, 0.9, 0.95, 1.0])


def record(days: float = 0, confidence: float = 0.9, **more: Any) -> MemoryRecord:
    at, scope = NOON + days * DAY, Scope("u1")
    fields = {"valid_from": at, "confidence": confidence, **more}
    return MemoryRecord(
        "id", scope.partition, scope, Kind.FACT, "Lives", at, created_at=at, updated_at=at, session="s", **fields
    )


def resolve(
    old: MemoryRecord, new: MemoryRecord, *, is_composed: bool = False, by_confidence: bool = False
) -> Resolution:
    begin = begin_of(old, is_composed=is_composed)
    return conflicts.resolve(old, new, MOVED, begin=begin, by_confidence=by_confidence)


# --- §9.1: time -------------------------------------------------------------------------------------------------------


def test_what_was_said_later_counts_whichever_was_stored_first() -> None:
    earlier, later = record(0), record(10)
    assert resolve(earlier, later) == (True, later.at, MOVED, MOVED)
    assert resolve(later, earlier) == (False, later.at, MOVED, f"said earlier: {MOVED}")


def test_of_two_that_were_said_together_the_new_one_counts() -> None:
    assert resolve(record(), record()).new_counts


def test_a_memory_counts_from_the_day_on_which_it_becomes_valid() -> None:
    """An imported one may say so of a later day than that on which it was said."""
    memory = record(0, valid_from=NOON + 10 * DAY)
    assert resolve(memory, record(5))[:2] == (False, memory.valid_from)
    assert resolve(memory, record(11))[:2] == (True, NOON + 11 * DAY)


def test_a_composed_memory_counts_since_the_last_of_its_sources_was_said() -> None:
    memory = record(0, valid_from=NOON + 10 * DAY)
    assert resolve(memory, record(5), is_composed=True)[:2] == (True, memory.valid_from)
    assert resolve(memory, record(-5), is_composed=True)[:2] == (False, memory.at)


def test_beside_a_memory_that_was_updated_a_fact_is_true_until_the_update() -> None:
    memory = record(10, valid_from=NOON)
    assert resolve(memory, record(5))[:2] == (False, memory.at)


# --- §9.1: confidence -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "later", "is_overruled"),
    [
        (0.95, 0.6, True),
        (0.81, 0.6, True),
        (0.8, 0.6, False),  # not more than 0.2 higher, although 0.8 - 0.6 is as a float
        (0.9, 0.8, False),
        (0.6, 0.95, False),
        (0.95, DEFAULT_CONFIDENCE, False),  # unknown
        (DEFAULT_CONFIDENCE, 0.3, False),
        (1.0, 0.0, True),
    ],
)
def test_an_earlier_fact_counts_if_its_confidence_is_higher_by_more_than_the_margin(
    earlier: float, later: float, *, is_overruled: bool
) -> None:
    assert conflicts.CONFIDENCE_MARGIN == 0.2
    first, second = record(0, earlier), record(10, later)
    for old, new in ((first, second), (second, first)):
        assert resolve(old, new, by_confidence=True).new_counts is (is_overruled == (new is first))
        assert resolve(old, new).new_counts is (new is second)


def test_a_reason_has_both_confidences() -> None:
    resolution = resolve(record(10, 0.6), record(0, 0.95), by_confidence=True)
    assert (resolution.reason, resolution.contradiction) == ("confidence 0.95 against 0.60", MOVED)
    # What is less sure was said later, and was never true.
    assert resolution.at == NOON + 10 * DAY


@given(st.integers(0, 30), st.integers(0, 30), CONFIDENCES, CONFIDENCES, st.booleans())
def test_it_does_not_matter_which_of_two_was_stored_first(
    days: int, other_days: int, confidence: float, other_confidence: float, by_confidence: bool
) -> None:
    one, other = record(days, confidence), record(other_days, other_confidence)
    first = resolve(one, other, by_confidence=by_confidence)
    if days == other_days:
        return
    second = resolve(other, one, by_confidence=by_confidence)
    assert (first.new_counts, first.at) == (not second.new_counts, second.at)
    loser = one if first.new_counts else other
    assert first.at >= max(loser.at, loser.valid_from)  # else `retire_memory` refuses it


# --- the rule of an event ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "reason", "rule"),
    [
        ("RETIRE", MOVED, "time"),
        ("RETIRE", f"said earlier: {MOVED}", "time"),
        ("RETIRE", "confidence 0.95 against 0.60", "confidence"),
        ("UPDATE", conflicts.REFINED, "merge"),
        ("UPDATE", MOVED, "merge"),
        ("UPDATE", "confidence 0.95 against 0.60", "confidence"),
        ("UPDATE", None, None),  # a user's
        ("UPDATE", "undo of 1", None),
        ("RESTORE", "undo of 1", None),
        ("ADD", None, None),
        ("FORGET", "merged into 1", None),
    ],
)
def test_the_rule_of_an_event_is_told_by_its_reason(event: str, reason: str | None, rule: str | None) -> None:
    assert rule_of(event, reason) == rule


# --- §9.1: which pairs are compared -----------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), max_size=40))
def test_each_fact_above_the_threshold_is_compared(similarities: list[float]) -> None:
    assert conflicts.CONFLICT_SIMILARITY == 0.8
    hits = [(str(n), similarity) for n, similarity in enumerate(sorted(similarities, reverse=True))]
    compared = set(pipeline._nearest(hits))
    assert {uid for uid, similarity in hits if similarity > 0.8} <= compared
    assert len([uid for uid, similarity in hits if uid in compared and similarity <= 0.8]) <= pipeline.NEAREST_LIMIT
