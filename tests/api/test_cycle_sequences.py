"""Any sequence of cycles and undos: what is visible as of a moment, and that a dry run says what a cycle does."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.contract import ids
from support.fakes import fake_models

from graphmem import Memory, Settings
from graphmem.errors import NotFoundError, ValidationError

pytestmark = pytest.mark.thorough

TEXTS = (
    "I like green tea with milk.", "green tea with milk like I", "I live in Lisbon.", "The weather was grey at noon.",
    "We met Clara near the bridge.", "Tomorrow I will bake bread.", "I was happy about the letter.",
)  # fmt: skip
LIFECYCLE = {
    "enabled": True, "since": "2020-01-01", "daily_at": "never", "long_term_capacity": 3, "short_term_capacity": 8,
    "brake_share": 1.0,
}  # fmt: skip
ANA = {"user_id": "ana"}
# A cycle so many days ahead; an undo of the cycle with this number among those that ran; forgetting the memory there.
STEPS = st.one_of(
    st.tuples(st.just("tend"), st.integers(0, 12)),
    st.tuples(st.just("undo"), st.integers(0, 5)),
    st.tuples(st.just("forget"), st.integers(0, 11)),
)


def filled(stored: list[tuple[int, int]]) -> Memory:
    memory = Memory(":memory:", settings=Settings.from_dict(fake_models(lifecycle=LIFECYCLE)))
    now = datetime.now(UTC)
    records = []
    for number, (text, age) in enumerate(stored):
        at = (now - timedelta(days=age)).isoformat()
        uid = f"00000000-0000-4000-8000-{number:012}"
        records.append({"type": "memory", "id": uid, "text": TEXTS[text], "at": at, "created_at": at, **ANA})
    memory.import_(records)
    return memory


def visible(memory: Memory, as_of: datetime | None = None) -> set[str]:
    return set(ids(memory.get_all(**ANA, limit=100, as_of=as_of)))


def run(memory: Memory, name: str, number: int, cycles: list[str]) -> None:
    """Takes one step; a cycle does what its dry run has just said."""
    if name == "tend":
        now = datetime.now(UTC) + timedelta(days=number)  # with one of the past it would forget as of then
        dry = memory.tend(**ANA, now=now, dry_run=True)
        before = visible(memory)
        result = memory.tend(**ANA, now=now)
        for count in ("processed", "decayed", "forgotten", "merged", "promoted"):
            assert dry[count] == result[count], count
        told = {change["id"] for change in dry["changes"] if change["change"] == "forget"}
        assert told == before - visible(memory)
        assert memory.tend(**ANA, now=now)["forgotten"] == 0
        cycles += [result["cycle"]] if result["cycle"] else []
    elif name == "undo" and cycles:
        with suppress(NotFoundError, ValidationError):  # it changed nothing, or nothing of it holds any more
            memory.undo_cycle(cycles[number % len(cycles)], **ANA)
    elif name == "forget" and (shown := sorted(visible(memory))):
        memory.forget(shown[number % len(shown)], **ANA)


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.integers(0, len(TEXTS) - 1), st.integers(1, 20)), min_size=4, max_size=12),
    st.lists(STEPS, min_size=2, max_size=7),
)
def test_as_of_a_moment_that_is_visible_which_was_and_what_has_come_back_since(
    stored: list[tuple[int, int]], steps: list[tuple[str, int]]
) -> None:
    """LIFECYCLE §14. What was taken back is as if it had not been: a memory that came back was never away."""
    with filled(stored) as memory:
        cycles: list[str] = []
        noted: list[tuple[datetime, set[str]]] = [(datetime.now(UTC), visible(memory))]
        for name, number in steps:
            run(memory, name, number, cycles)
            noted.append((datetime.now(UTC), visible(memory)))
        back: set[str] = set()
        later = noted[-1][1]
        for moment, shown in reversed(noted):
            back |= later - shown
            assert visible(memory, as_of=moment) == shown | back, moment
            later = shown
        assert memory.verify()["ok"]
