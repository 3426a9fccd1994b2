"""What gives way where the long-term layer is full: always what is worth least among what stays (seed 002 §3.2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.lifecycle import likeness
from graphmem.lifecycle.decay import CyclePlan, LifecyclePolicy, Vitals, lasting_worth, make_room
from graphmem.lifecycle.importance import WEIGHTS
from graphmem.lifecycle.likeness import OF_ONE_KIND, Comparison
from graphmem.model import Layer, Scope

NOW = datetime(2026, 6, 1, tzinfo=UTC)
# Unit vectors of which each cosine is 0, 0.5 or 1 to the last bit, however it is computed.
AXES = np.eye(4, dtype=np.float32)
HALVES = np.array([[0.5, *((0.5, -0.5)[n >> bit & 1] for bit in range(3))] for n in range(8)], np.float32)
VECTORS = np.concatenate([AXES, HALVES])


def memory(row: int, importance: float, days: float = 3, accesses: int = 0, speaker: str | None = None) -> Vitals:
    return Vitals(
        id=str(row), row=row, seq=row, scope=Scope("ana"), layer=Layer.LONG_TERM, memory_type="fact",
        importance=importance, pinned=False, created_at=NOW - timedelta(days=days), is_valid=True, accesses=accesses,
        speaker=speaker,
    )  # fmt: skip


def given_way(memories: list[Vitals], matrices: likeness.Matrices, capacity: int) -> list[int]:
    policy = LifecyclePolicy(long_term_capacity=capacity)
    plan, _ = make_room(CyclePlan(), memories, NOW, policy, matrices)
    return [one.memory.row for one in plan.crowded]


def given_way_one_by_one(memories: list[Vitals], matrices: likeness.Matrices, capacity: int) -> list[int]:
    """The same by its definition: everything is compared with everything again whenever one has gone."""
    left = sorted(memories, key=lambda one: (one.created_at, one.row))
    gone = []
    while len(left) > capacity:
        like = np.triu(Comparison(left, matrices).cosines(slice(None)), 1)
        like[like < OF_ONE_KIND] = 0.0
        worth = [lasting_worth(one, NOW, LifecyclePolicy()) for one in left]
        gone.append(left.pop(int((np.array(worth) - WEIGHTS["scarcity"] * like.max(axis=1)).argmin())).row)
    return gone


@given(st.data(), st.integers(1, 3), st.sampled_from([1, 2, 16]), st.sampled_from([1, 3, 500]))
def test_what_gives_way_is_worth_least_of_what_is_left(
    data: st.DataObject, capacity: int, near: int, block: int
) -> None:
    numbers = range(data.draw(st.integers(1, 14)))
    memories = [
        memory(
            row,
            data.draw(st.sampled_from([0.8, 0.85, 0.9])),
            data.draw(st.integers(0, 40)),
            data.draw(st.integers(0, 3)),
            data.draw(st.sampled_from([None, "Ben"])),
        )
        for row in numbers
    ]
    with_vectors = data.draw(st.lists(st.sampled_from(numbers), unique=True))
    places = [data.draw(st.integers(0, len(VECTORS) - 1)) for _ in with_vectors]
    matrices = {
        "own": (with_vectors, VECTORS[np.array(places, int)]),
        "multilingual": (list(numbers), VECTORS[[data.draw(st.integers(0, 3)) for _ in numbers]]),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(likeness, "MOST_NEAR", near)
        patch.setattr(likeness, "BLOCK", block)
        assert given_way(memories, matrices, capacity) == given_way_one_by_one(memories, matrices, capacity)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.5])
def test_room_is_made_with_at_most_one_comparison_of_each_two(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much alike: by n x n cosines, of which each pair has two, and never more than a block of them at once."""
    number, block = 600, 50
    dice = np.random.default_rng(7)
    vectors = np.eye(1, 32, dtype=np.float32) + dice.standard_normal((number, 32)).astype(np.float32) * spread / 5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    memories = [memory(row, 0.8 + 0.1 * float(dice.random()), days=40 * float(dice.random())) for row in range(number)]
    sizes = []
    compute = Comparison.cosines

    def counted(self: Comparison, of: slice | list[int], first: int = 0) -> np.ndarray:
        found = compute(self, of, first)
        sizes.append(found.size)
        return found

    monkeypatch.setattr(Comparison, "cosines", counted)
    monkeypatch.setattr(likeness, "BLOCK", block)
    assert len(given_way(memories, {"own": (list(range(number)), vectors)}, 20)) == number - 20
    assert sum(sizes) <= number**2
    assert max(sizes) <= block * number
