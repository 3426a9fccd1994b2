"""Which memories are alike, and which say again what was said before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from graphmem.lifecycle import likeness
from graphmem.lifecycle.decay import Vitals
from graphmem.lifecycle.likeness import Comparison, said_again
from graphmem.model import Layer, Scope

NOW = datetime(2026, 6, 1, 20, tzinfo=UTC)
DAY = timedelta(days=1)


def memory(row: int, age: float, **more: object) -> Vitals:
    values = {"scope": Scope("ana"), "layer": Layer.SHORT_TERM, **more}
    return Vitals(
        id=str(row), row=row, seq=row, memory_type=None, importance=0.5, pinned=False, created_at=NOW - age * DAY,
        is_valid=True, **values,  # type: ignore[arg-type]
    )  # fmt: skip


def space(degrees: dict[int, float]) -> tuple[list[int], np.ndarray]:
    angles = np.radians(list(degrees.values()))
    return list(degrees), np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_a_pair_is_compared_in_the_space_in_which_it_is_nearest() -> None:
    memories = [memory(row, 0) for row in (3, 5, 8)]
    matrices = {"own": space({3: 0, 5: 90}), "multilingual": space({3: 0, 5: 60, 8: 180})}
    found = Comparison(memories, matrices).cosines(slice(None))
    assert found == pytest.approx(np.array([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]), abs=1e-6)
    assert Comparison(memories, matrices).cosines([0], 1) == pytest.approx(found[:1, 1:])
    assert Comparison(memories, {"own": space({5: 0})}).cosines([1])[0] == pytest.approx([0, 1, 0])
    assert Comparison(memories, {}).cosines(slice(None)).tolist() == [[0] * 3] * 3


def test_memories_of_another_speaker_or_scope_are_not_alike() -> None:
    memories = [memory(1, 0), memory(2, 0, speaker="Ben"), memory(3, 0, scope=Scope("ana", "guide")), memory(4, 0)]
    found = Comparison(memories, {"own": space(dict.fromkeys((1, 2, 3, 4), 30.0))}).cosines(slice(None))
    assert found[0] == pytest.approx([1, 0, 0, 1])


def test_what_is_said_on_another_day_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the nearest memory before that day, and of none that is only of the same kind."""
    memories = [memory(1, 9), memory(2, 8), memory(3, 2), memory(4, 1), memory(5, 1)]
    matrices = {"own": space({1: 0, 2: 10, 3: 12, 4: 13, 5: 60})}
    for block in (500, 1):
        monkeypatch.setattr(likeness, "BLOCK", block)
        again = said_again({3, 4, 5}, memories, matrices)
        assert {one.row: [other.row for other in others] for one, others in again.items()} == {2: [3], 3: [4]}
    same_day = [memory(1, 0.1), memory(2, 0)]
    assert said_again({2}, same_day, {"own": space({1: 0, 2: 0})}) == {}
    assert said_again(set(), memories, matrices) == {}
