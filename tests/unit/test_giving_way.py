"""Work that can wait gives way to searches."""

from __future__ import annotations

import pytest

from graphmem import concurrency
from graphmem.concurrency import GivingWay, SearchLoad


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that work has slept; the clock stands still but for `advance`."""
    seconds: list[float] = []
    monkeypatch.setattr(concurrency, "sleep", seconds.append)
    return seconds


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(concurrency, "monotonic", clock)
    return clock


def test_work_rests_only_while_searches_run_and_shortly_after(slept: list[float], clock: Clock) -> None:
    load = SearchLoad()
    work = GivingWay(load)
    assert not work.rest()
    with load.searching(), load.searching():
        assert work.rest()
    assert work.rest()
    clock.now += concurrency.LATELY
    assert not work.rest()
    assert len(slept) == 2


def test_a_search_that_fails_is_over(clock: Clock) -> None:
    load = SearchLoad()
    with pytest.raises(ValueError, match="failed"), load.searching():
        raise ValueError("failed")
    clock.now += concurrency.LATELY
    assert not load.is_high


def test_work_rests_in_proportion_to_what_it_did(slept: list[float], clock: Clock) -> None:
    load = SearchLoad()
    work = GivingWay(load)
    with load.searching():
        for worked in (0.01, 0.02, 60.0):
            clock.now += worked
            work.rest()
    assert slept == pytest.approx([0.01 * concurrency.REST, 0.02 * concurrency.REST, concurrency.LONGEST_REST])
