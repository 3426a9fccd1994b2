"""What holds for every plan of a cycle, whatever the memories are (seed 002 §2.1, §4.2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from graphmem.lifecycle.decay import (
    Composition,
    CyclePlan,
    LifecyclePolicy,
    Operation,
    Vitals,
    brake,
    kept_certainty,
    make_room,
    plan_cycle,
    retention,
)
from graphmem.model import Layer, Scope

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
POLICY = LifecyclePolicy(short_term_capacity=8, long_term_capacity=4, brake_memories=3)


@st.composite
def partitions(draw: st.DrawFn) -> list[Vitals]:
    """Memories of one partition, at most thirty."""
    return [
        Vitals(
            id=str(row),
            row=row,
            scope=Scope("ana"),
            seq=row,
            layer=draw(st.sampled_from(Layer)),
            memory_type=draw(st.sampled_from(["preference", "fact", "semantic", "episodic", None])),
            importance=draw(st.sampled_from([0.2, 0.5, 0.8, 0.85, 0.9])),
            pinned=draw(st.booleans()),
            created_at=NOW - draw(st.integers(-3, 40)) * DAY,
            is_valid=draw(st.booleans()),
            accesses=draw(st.integers(0, 120)),
            strength=draw(st.sampled_from([1.0, 0.5, 0.0])),
        )
        for row in range(draw(st.integers(0, 30)))
    ]


def planned(memories: list[Vitals], policy: LifecyclePolicy = POLICY) -> CyclePlan:
    return make_room(plan_cycle(memories, NOW, policy), memories, NOW, policy, {})[0]


def after(memories: list[Vitals], plan: CyclePlan) -> list[Vitals]:
    """The memories as the next cycle finds them."""
    gone, moved = ({one.memory.row for one in ones} for ones in (plan.forgotten, plan.promoted))
    return [
        replace(
            memory,
            layer=Layer.LONG_TERM if memory.row in moved else memory.layer,
            strength=plan.decayed.get(memory.row, memory.strength),
        )
        for memory in memories
        if memory.row not in gone
    ]


@given(partitions())
def test_a_cycle_twice_is_a_cycle_once(memories: list[Vitals]) -> None:
    plan = planned(memories)
    again = planned(after(memories, plan))
    assert (again.forgotten, again.promoted, again.decayed) == ((), (), {})


@given(partitions())
def test_pinned_and_retired_memories_are_never_touched(memories: list[Vitals]) -> None:
    plan = planned(memories)
    touched = {one.memory.row for one in (*plan.forgotten, *plan.promoted)} | set(plan.decayed)
    assert not touched & {memory.row for memory in memories if memory.pinned or not memory.is_valid}


@given(partitions())
def test_no_memory_is_decided_on_twice(memories: list[Vitals]) -> None:
    plan = planned(memories)
    rows = [one.memory.row for one in (*plan.forgotten, *plan.promoted)] + list(plan.decayed)
    assert len(rows) == len(set(rows))


@given(partitions())
def test_capacities_hold_after_a_cycle(memories: list[Vitals]) -> None:
    left = [one for one in after(memories, planned(memories)) if one.is_valid]
    counted = [one.layer for one in left if not one.pinned]
    assert counted.count(Layer.SHORT_TERM) <= POLICY.short_term_capacity
    assert counted.count(Layer.LONG_TERM) <= POLICY.long_term_capacity


@given(partitions())
def test_what_is_left_in_the_short_term_has_not_faded(memories: list[Vitals]) -> None:
    for memory in after(memories, planned(memories)):
        if memory.layer is Layer.SHORT_TERM and memory.is_valid and not memory.pinned:
            assert not POLICY.curve.is_forgettable(retention(memory, NOW, POLICY))


@given(partitions())
def test_the_brake_lets_no_more_than_its_share_go(memories: list[Vitals]) -> None:
    plan = planned(memories)
    most = max(POLICY.brake_memories, POLICY.brake_share * len(memories))
    held = brake(plan, len(memories), POLICY)
    assert (held is None) == (len(plan.forgotten) <= most)
    composed = replace(plan, compositions=(Composition(Operation.MERGE, tuple(memories), hides=True),))
    held = brake(composed, len(memories), POLICY)
    assert (held is None) == (len(plan.forgotten) + len(memories) <= most)


def test_the_words_of_a_life_event_hold_against_its_kind() -> None:
    """What its kind alone would not have kept was told by its words, unless they are those of a preference."""
    assert kept_certainty(0.9, "episodic", 0.1) is None
    assert kept_certainty(0.9, "episodic", 0.7) == 0.7
    assert kept_certainty(0.5, "episodic", 0.1) == 0.1
    assert kept_certainty(0.9, "preference", 0.1) == 0.1


@given(partitions(), st.integers(0, 30))
def test_nothing_fades_before_the_lifecycle_began(memories: list[Vitals], days: int) -> None:
    policy = replace(POLICY, since=NOW - days * DAY, short_term_capacity=100, long_term_capacity=100)
    early = planned(memories, policy)
    if days < 3:  # even the least important memory is not forgotten before the fourth day
        assert early.forgotten == ()
