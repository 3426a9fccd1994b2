"""What a cycle plans to merge, to summarise and to abstract (seed 002 §5.1, §5.2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.lifecycle import compression
from graphmem.lifecycle.compression import compress
from graphmem.lifecycle.decay import CyclePlan, LifecyclePolicy, Operation, Vitals, plan_cycle
from graphmem.lifecycle.likeness import Comparison
from graphmem.model import Layer, Scope

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
POLICY = LifecyclePolicy()
STREETS = ("Elm", "Oak", "Ash", "Yew")
TEXTS = ("Drinks tea each morning", "Drinks tea in the morning", "Each morning a tea")


def memory(row: int, **more: object) -> Vitals:
    values = {"scope": Scope("ana"), "importance": 0.5, "memory_type": "episodic", "layer": Layer.SHORT_TERM, **more}
    return Vitals(id=str(row), row=row, seq=row, pinned=False, created_at=NOW, is_valid=True, **values)  # type: ignore[arg-type]


def planned(
    memories: list[Vitals],
    degrees: list[float],
    texts: dict[str, str] | None = None,
    *,
    summarised: tuple[int, ...] = (),
    policy: LifecyclePolicy = POLICY,
    has_model: bool = True,
) -> CyclePlan:
    angles = np.radians(degrees)
    matrix = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    words = {one.id: f"words of {one.id}" for one in memories} | (texts or {})
    return compress(
        plan_cycle(memories, NOW, policy),
        memories,
        {"vector": ([one.row for one in memories], matrix)},
        lambda rows: {str(row): words[str(row)] for row in rows},
        summarised,
        policy,
        NOW,
        has_model=has_model,
    )


def like(texts: tuple[str, ...], **more: object) -> tuple[list[Vitals], list[float], dict[str, str]]:
    memories = [memory(n, memory_type="preference", **more) for n in range(len(texts))]
    return memories, [5.0 * n for n in range(len(texts))], {str(n): text for n, text in enumerate(texts)}


def test_with_a_model_like_memories_are_to_become_one() -> None:
    plan = planned(*like(TEXTS))
    (composition,) = plan.compositions
    assert (composition.operation, {one.id for one in composition.sources}) == (Operation.MERGE, {"0", "1", "2"})
    assert composition.hides
    assert (plan.forgotten, plan.promoted) == ((), ())


def test_what_says_the_same_to_the_word_needs_no_model() -> None:
    plan = planned(*like(TEXTS[:1] * 3))
    assert plan.compositions == ()
    assert (len(plan.promoted), len(plan.forgotten), len(plan.merged)) == (1, 2, 2)


@pytest.mark.parametrize("other", ["Never drinks tea in the morning", "Drinks 3 cups of tea each morning, at 7"])
def test_what_contradicts_is_never_merged(other: str) -> None:
    """§9.1: one denies what the others say, or has another number than one of them."""
    memories, degrees, texts = like((*TEXTS, "Drinks 2 cups of tea each morning", other))
    (composition,) = planned(memories, degrees, texts).compositions
    said = {texts[one.id] for one in composition.sources}
    assert said == {*TEXTS, "Drinks 2 cups of tea each morning"}


def test_a_pinned_memory_is_not_merged() -> None:
    memories, degrees, texts = like((*TEXTS, "Tea each morning"))
    memories[0] = replace(memories[0], pinned=True)
    (composition,) = planned(memories, degrees, texts).compositions
    assert {one.id for one in composition.sources} == {"1", "2", "3"}


def test_a_second_cycle_finds_nothing_more_to_merge() -> None:
    """Of a group several clusters are made, and what is left over is grouped again."""
    texts = tuple(
        f"The shop in street {street} sells good bread{sign}" for sign in ("", ".", "!") for street in STREETS
    )
    memories, degrees, by_id = like(texts)
    degrees = [degree / 10 for degree in degrees]
    plan = planned(memories, degrees, by_id, has_model=False)
    assert (len(plan.promoted), len(plan.forgotten)) == (4, 8)
    gone = {one.memory.row for one in plan.forgotten}
    kept = {one.memory.row for one in plan.promoted}
    left = [replace(one, layer=Layer.LONG_TERM if one.row in kept else one.layer) for one in memories]
    again = planned(
        [one for one in left if one.row not in gone],
        [degree for degree, one in zip(degrees, left, strict=True) if one.row not in gone],
        by_id,
        has_model=False,
    )
    assert (again.promoted, again.forgotten, again.compositions) == ((), (), ())


def test_what_is_kept_already_is_not_kept_again() -> None:
    """Neither beside an older memory that says it nor beside another one of the same day."""
    kept = memory(0, layer=Layer.LONG_TERM, importance=0.9)
    again = [
        replace(memory(row, importance=0.9, memory_type="preference"), created_at=NOW - timedelta(days=8))
        for row in (1, 2, 3)
    ]
    texts = {
        "0": "I like green tea with milk",
        "1": "I like green tea",
        "2": "I like black coffee",
        "3": "I like black coffee.",
    }
    plan = planned([kept, *again], [0, 1, 60, 61], texts)
    assert ([one.memory.id for one in plan.promoted], plan.merged) == (["2"], {"1": "0", "3": "2"})
    assert {one.reason for one in plan.forgotten} == {"merged into 0", "merged into 2"}
    full = [memory(9, layer=Layer.LONG_TERM, importance=0.85, memory_type="fact")]
    plan = planned([kept, *again[:1], *full], [0, 1, 120], texts, policy=LifecyclePolicy(long_term_capacity=2))
    assert (plan.merged, plan.crowded, len(plan.forgotten)) == ({"1": "0"}, (), 1)


def test_each_of_many_is_compared_once_with_all_that_may_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one product of matrices for each block of those that move up, and by their words where they are near."""
    kept = [memory(row, layer=Layer.LONG_TERM, importance=0.9) for row in range(2)]
    days = timedelta(days=8)
    again = [
        replace(memory(row, importance=0.9, memory_type="preference"), created_at=NOW - days) for row in range(2, 42)
    ]
    texts = {str(row): f"I like tea number {row // 2}" for row in range(42)}
    sizes, compared = [], []
    compute, compare = Comparison.cosines, compression.says

    def counted(self: Comparison, of: slice | list[int], first: int = 0) -> np.ndarray:
        found = compute(self, of, first)
        sizes.append(found.size)
        return found

    def noted(one: str, other: str) -> bool:
        compared.append(other)
        return compare(one, other)

    monkeypatch.setattr(Comparison, "cosines", counted)
    monkeypatch.setattr(compression, "says", noted)
    plan = planned([*kept, *again], [60.0 * (row // 2) for row in range(42)], texts, has_model=False)
    assert plan.merged == {str(row): str(row - 1) for row in range(3, 42, 2)}
    assert sum(sizes) == 40 * 42
    assert len(compared) <= 40 * 5  # at most so many stay in each of six directions


def test_nothing_is_merged_into_what_is_forgotten_in_the_same_cycle() -> None:
    said = "I like green tea"
    old = memory(0, layer=Layer.LONG_TERM, importance=0.81, memory_type="preference")
    others = [memory(row, layer=Layer.LONG_TERM, importance=0.95) for row in (2, 3)]
    new = replace(memory(1, importance=0.9, memory_type="preference"), created_at=NOW - timedelta(days=8))
    policy = LifecyclePolicy(long_term_capacity=2)
    plan = planned([old, new, *others], [0, 1, 90, 180], {"0": f"{said}.", "1": said}, policy=policy, has_model=False)
    assert ({one.memory.id: one.reason for one in plan.forgotten}, plan.merged) == (
        {"0": "over capacity", "1": "over capacity"},
        {},
    )
    assert plan.promoted == ()


def kept_of(memories: list[Vitals], degrees: list[float], capacity: int) -> set[str]:
    policy = LifecyclePolicy(long_term_capacity=capacity)
    plan = planned(memories, degrees, policy=policy, has_model=False)
    return {one.id for one in memories} - {one.memory.id for one in plan.forgotten}


def test_without_room_what_a_newer_memory_says_much_the_same_of_gives_way_first() -> None:
    """Whatever is a little more important: scarcity is a term of its own (seed 002 §3.2)."""
    old, other, new = (
        replace(memory(row, layer=Layer.LONG_TERM, importance=importance), created_at=NOW - (40 - row) * DAY)
        for row, importance in ((0, 0.9), (1, 0.85), (2, 0.85))
    )
    assert kept_of([old, other, new], [0, 90, 30], 2) == {"1", "2"}
    assert kept_of([old, other, new], [0, 90, 61], 2) == {"0", "2"}  # 61 degrees: a cosine below 0.5 is no likeness


def test_without_room_what_was_said_or_found_more_and_later_stays() -> None:
    """A constant importance of 0.85 does not give way to one of 0.9 whatever happens (seed 002 §4.1: rehearsal)."""
    long_ago = NOW - 40 * DAY
    fact, preference = (
        replace(memory(row, layer=Layer.LONG_TERM, importance=importance), created_at=long_ago)
        for row, importance in ((0, 0.85), (1, 0.9))
    )
    assert kept_of([fact, preference], [0, 90], 1) == {"1"}
    assert kept_of([replace(fact, accesses=6), preference], [0, 90], 1) == {"0"}
    assert kept_of([replace(fact, accessed_at=NOW - 5 * DAY), preference], [0, 90], 1) == {"0"}


def test_without_room_what_was_told_lately_is_worth_no_more_than_what_was_told_long_ago() -> None:
    """A remark that is taken for a fact does not drive out a fact for a month; of equal ones the older gives way."""
    fact, remark = (
        replace(memory(row, layer=Layer.LONG_TERM, importance=0.85), created_at=at, certainty=certainty)
        for row, at, certainty in ((0, NOW - 200 * DAY, 0.9), (1, NOW - 8 * DAY, 0.5))
    )
    assert kept_of([fact, remark], [0, 90], 1) == {"0"}
    assert kept_of([fact, replace(remark, certainty=0.9)], [0, 90], 1) == {"1"}


def test_without_room_what_is_less_surely_of_a_kind_that_is_kept_gives_way_first() -> None:
    """Certainty is a term of its own (seed 002 §3.2): what a sentence is was guessed of some, and of others not."""
    long_ago = NOW - 40 * DAY
    surely, perhaps, named = (
        replace(memory(row, layer=Layer.LONG_TERM, importance=importance), created_at=long_ago, certainty=certainty)
        for row, importance, certainty in ((0, 0.85, 0.95), (1, 0.9, 0.55), (2, 0.85, None))
    )
    assert kept_of([surely, perhaps], [0, 90], 1) == {"0"}
    assert kept_of([perhaps, named], [0, 90], 1) == {"2"}
    assert kept_of([surely, replace(perhaps, accesses=9)], [0, 90], 1) == {"1"}  # said so often that it is proven


@pytest.mark.parametrize("other", ["The code of the flat is 1234", "The code of the flat is not 9876"])
def test_a_faded_memory_is_not_merged_into_one_that_says_something_else(other: str) -> None:
    long_ago = NOW - timedelta(days=30)
    faded, kept = memory(0, importance=0.2), memory(1, layer=Layer.LONG_TERM)
    memories = [replace(faded, created_at=long_ago), kept]
    said = "The code of the flat is 9876"
    assert planned(memories, [0, 5], {"0": said, "1": other}).merged == {}
    assert planned(memories, [0, 5], {"0": said, "1": f"{said}."}).merged == {"0": "1"}


@pytest.mark.parametrize("has_model", [True, False])
def test_what_stands_for_others_competes_for_the_room(has_model: bool) -> None:  # noqa: FBT001
    """By what it is worth, as what is promoted does; without room the others stay as they are."""
    memories, degrees, texts = like(TEXTS if has_model else TEXTS[:1] * 3, importance=0.6)
    full = replace(memory(9, layer=Layer.LONG_TERM, memory_type="fact"), created_at=NOW - 40 * DAY)
    policy = LifecyclePolicy(long_term_capacity=1)

    def planned_beside(importance: float) -> CyclePlan:
        kept = replace(full, importance=importance)
        return planned([*memories, kept], [*degrees, 90], texts, policy=policy, has_model=has_model)

    plan = planned_beside(0.5)
    assert [one.memory.id for one in plan.crowded] == ["9"]
    assert (len(plan.compositions), len(plan.promoted)) == ((1, 0) if has_model else (0, 1))
    assert "merge" not in plan.skipped
    plan = planned_beside(0.95)
    assert (plan.forgotten, plan.promoted, plan.compositions, plan.merged) == ((), (), (), {})
    assert plan.skipped == {"merge": "the long-term layer (long_term_capacity) has no room for 1 more"}


def test_of_the_same_words_that_stands_for_the_others_which_was_said_again_most() -> None:
    memories, degrees, texts = like(TEXTS[:1] * 3)
    memories[1] = replace(memories[1], accesses=2)
    plan = planned(memories, [0.0] * len(degrees), texts, has_model=False)
    assert [one.memory.id for one in plan.promoted] == ["1"]


def after(memories: list[Vitals], plan: CyclePlan) -> list[Vitals]:
    """The memories as the next cycle finds them: what stands for others has the highest importance of all."""
    gone = {one.memory.row for one in plan.forgotten} | {
        one.row for composition in plan.compositions if composition.hides for one in composition.sources
    }
    moved = {one.memory.row for one in plan.promoted}
    importance = {
        target: max(one.importance for one in memories if one.id == target or plan.merged.get(one.id) == target)
        for target in plan.merged.values()
    }
    return [
        replace(
            one,
            layer=Layer.LONG_TERM if one.row in moved else one.layer,
            importance=importance.get(one.id, one.importance),
        )
        for one in memories
        if one.row not in gone
    ]


@pytest.mark.thorough
@given(
    st.lists(
        st.tuples(
            st.sampled_from(Layer),
            st.sampled_from([0.4, 0.6, 0.85]),
            st.integers(0, 3),
            st.sampled_from([0, 1, 6, 20]),
            st.integers(0, 3),
            st.sampled_from([0.0, 4.0, 8.0]),
        ),
        max_size=24,
    ),
    st.integers(1, 4),
)
def test_a_second_cycle_finds_nothing_whoever_competes_for_the_room(
    drawn: list[tuple[Layer, float, int, int, int, float]], capacity: int
) -> None:
    """Neither what was left without room, nor what took a place, nor what gave way."""
    policy = LifecyclePolicy(long_term_capacity=capacity)
    memories = [
        replace(memory(row, layer=layer, importance=number, accesses=accesses), created_at=NOW - days * DAY)
        for row, (layer, number, accesses, days, *_) in enumerate(drawn)
    ]
    degrees = [60.0 * thing + off for *_, thing, off in drawn]
    texts = {str(row): f"Thing {thing} is good" for row, (*_, thing, _) in enumerate(drawn)}
    plan = planned(memories, degrees, texts, policy=policy, has_model=False)
    left = after(memories, plan)
    assert sum(one.layer is Layer.LONG_TERM for one in left) <= capacity
    decided = [one.row for one in plan.changed]
    assert len(decided) == len(set(decided))
    again = planned(left, [degrees[one.row] for one in left], texts, policy=policy, has_model=False)
    assert (again.promoted, again.forgotten, again.compositions) == ((), (), ())


def events(count: int) -> tuple[list[Vitals], list[float]]:
    return [memory(n) for n in range(count)], [137.0 * n for n in range(count)]


def test_more_than_twenty_events_are_summarised() -> None:
    """§5.1: `len(episodic) > 20`."""
    assert planned(*events(20)).compositions == ()
    (composition,) = [one for one in planned(*events(21)).compositions if one.operation is Operation.SUMMARIZE]
    assert (len(composition.sources), composition.hides) == (21, False)


def test_events_of_which_there_is_a_summary_are_not_summarised_again() -> None:
    memories, degrees = events(41)
    assert planned(memories, degrees, summarised=tuple(range(21))).compositions == ()
    (composition,) = planned(memories, degrees, summarised=tuple(range(20))).compositions
    assert {one.row for one in composition.sources} == set(range(20, 41))


def test_only_events_of_one_scope_are_summarised() -> None:
    memories, degrees = events(21)
    assert planned([replace(memories[0], scope=Scope("ana", "bot")), *memories[1:]], degrees).compositions == ()
    assert planned([replace(one, memory_type="fact") for one in memories], degrees).compositions == ()


def test_what_is_forgotten_in_the_same_cycle_is_in_the_summary() -> None:
    memories, degrees = events(21)
    memories = [replace(one, created_at=NOW - timedelta(days=30)) for one in memories]
    plan = planned(memories, degrees)
    assert (len(plan.forgotten), len(plan.compositions[0].sources)) == (21, 21)


def test_one_summary_is_made_of_at_most_sixty() -> None:
    plan = planned(*events(61))
    assert sorted(len(one.sources) for one in plan.compositions) == [30, 31]


def test_without_a_model_nothing_is_composed_and_that_is_said() -> None:
    plan = planned(*events(21), has_model=False)
    assert (plan.compositions, dict(plan.skipped)) == (
        (), {"summarize": "needs a language model, and none is configured"},
    )  # fmt: skip


CROWDED = LifecyclePolicy(long_term_capacity=6)


def long_term(importance: list[float]) -> list[Vitals]:
    return [memory(n, layer=Layer.LONG_TERM, memory_type="fact", importance=i) for n, i in enumerate(importance)]


def test_what_the_long_term_layer_has_no_room_for_is_abstracted() -> None:
    """§8: the least important ones that are of one kind; the others stay."""
    memories = long_term([0.5, 0.5, 0.5, 0.6, 0.9, 0.9, 0.9, 0.9])
    plan = planned(memories, [0, 20, 40, 180, 0, 90, 180, 270], policy=CROWDED)
    (composition,) = plan.compositions
    assert (composition.operation, composition.level, composition.hides) == (Operation.ABSTRACT, 1, True)
    assert {one.row for one in composition.sources} == {0, 1, 2}
    assert plan.forgotten == ()


def test_an_abstraction_of_all_that_is_crowded_out_leaves_room_for_itself() -> None:
    """Three of nine give way and are of one kind: the abstraction is a seventh, so the next least important goes."""
    memories = long_term([0.3, 0.5, 0.9, 0.5, 0.3, 0.5, 0.9, 0.9, 0.3])
    plan = planned(memories, [177, 180, 10, 180, 270, 90, 180, 14, 0], policy=CROWDED)
    (composition,) = plan.compositions
    assert {one.row for one in composition.sources} == {0, 1, 3}
    assert [one.memory.row for one in plan.forgotten] == [4]


def test_what_is_not_of_one_kind_is_forgotten_for_room_as_without_a_model() -> None:
    memories = long_term([0.5, 0.55, 0.6, 0.65, 0.9, 0.9, 0.9, 0.9])
    degrees = [0, 90, 180, 270, 45, 135, 225, 315]
    for has_model in (True, False):
        plan = planned(memories, degrees, policy=CROWDED, has_model=has_model)
        assert ([one.memory.row for one in plan.forgotten], plan.compositions) == ([0, 1], ())
    assert planned(memories, degrees, policy=CROWDED, has_model=False).skipped["abstract"].startswith("needs a")


def test_an_abstraction_of_abstractions_is_one_level_higher_and_the_highest_is_not_abstracted() -> None:
    memories = [
        replace(one, level=level) for one, level in zip(long_term([0.5] * 7), [1, 0, 2, 3, 3, 3, 3], strict=True)
    ]
    plan = planned(memories, [0, 5, 10, 0, 5, 10, 15], policy=CROWDED)
    (composition,) = plan.compositions
    assert ({one.row for one in composition.sources}, composition.level) == ({0, 1, 2}, 3)


@given(st.lists(st.sampled_from([0.3, 0.5, 0.9]), max_size=20), st.lists(st.floats(0, 360), min_size=20, max_size=20))
def test_room_is_made_by_no_more_than_needed(importance: list[float], degrees: list[float]) -> None:
    """What stays is at most the capacity, and nothing important goes while something less important stays whole."""
    memories = long_term(importance)
    plan = planned(memories, degrees[: len(memories)], policy=CROWDED)
    hidden = [one.row for composition in plan.compositions for one in composition.sources]
    gone = [one.memory.row for one in plan.forgotten]
    assert len(hidden) == len(set(hidden))
    assert not set(hidden) & set(gone)
    assert len(memories) - len(hidden) - len(gone) + len(plan.compositions) <= CROWDED.long_term_capacity
    without = planned(memories, degrees[: len(memories)], policy=CROWDED, has_model=False)
    assert len(gone) <= len(without.forgotten)
