"""Payloads and conditions of Qdrant points: neither contains values that most points share."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphmem.model import ALL_KINDS, Kind, MemoryRecord, Scope, View, micros
from graphmem.stores.qdrant.payload import best_by_memory, conditions, payload

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
ALICE = Scope("alice")


def record(**more: Any) -> MemoryRecord:
    times = dict.fromkeys(("at", "valid_from", "created_at", "updated_at"), NOON)
    return MemoryRecord(
        id="m",
        partition=ALICE.partition,
        scope=ALICE,
        text="words",
        session="s",
        seq=4,
        **{"kind": Kind.EPISODE, **times, **more},
    )


def test_a_payload_leaves_out_common_values() -> None:
    usual = payload(record())
    assert usual == {
        "memory": "m", "seq": 4, "partition": "user:alice", "valid_from": micros(NOON), "user_id": "alice"
    }  # fmt: skip
    rare = payload(record(kind=Kind.FACT, valid_to=LATER, expires_at=LATER))
    assert rare == {**usual, "kind": "fact", "valid_to": micros(LATER), "expires_at": micros(LATER)}


@pytest.mark.parametrize(
    ("scope", "partition", "parts"),
    [
        (ALICE, "user:alice", {}),
        (Scope("alice", "tutor"), "user:alice", {"agent_id": "tutor"}),
        (Scope(None, "tutor"), "agent:tutor", {}),
        (Scope(None, "tutor"), "user:alice", {"agent_id": "tutor"}),
        (Scope(None, "tutor", "today"), None, {"agent_id": "tutor", "run_id": "today"}),
    ],
)
def test_the_scope_part_of_the_partition_is_no_condition(
    scope: Scope, partition: str | None, parts: dict[str, str]
) -> None:
    assert conditions(View(scope, NOON, partition)).parts == parts


@pytest.mark.parametrize(
    ("kinds", "wanted", "unwanted"),
    [
        (ALL_KINDS, None, []),
        ({Kind.EPISODE}, None, ["fact", "summary"]),
        ({Kind.EPISODE, Kind.FACT}, None, ["summary"]),
        ({Kind.SUMMARY, Kind.FACT}, ["fact", "summary"], []),
    ],
)
def test_episodes_are_selected_by_excluding_other_kinds(
    kinds: set[Kind], wanted: list[str] | None, unwanted: list[str]
) -> None:
    result = conditions(View(ALICE, NOON, kinds=frozenset(kinds)))
    assert (result.kinds, list(result.not_kinds)) == (wanted, unwanted)


def test_dates_become_conditions_as_in_the_view() -> None:
    now = View(ALICE, LATER)
    result = conditions(now)
    assert (result.moment, result.started_fields, result.ended_fields) == (
        micros(LATER), (), ("valid_to", "expires_at", "forgotten_at"),
    )  # fmt: skip
    assert conditions(replace(now, show_expired=True)).ended_fields == ("valid_to", "forgotten_at")
    assert conditions(replace(now, show_retired=True)).ended_fields == ("expires_at", "forgotten_at")
    assert conditions(replace(now, show_forgotten=True)).ended_fields == ("valid_to", "expires_at")
    everything = replace(now, show_retired=True, show_expired=True, show_forgotten=True)
    assert conditions(everything).ended_fields == ()
    then = conditions(replace(now, as_of=NOON))
    assert (then.moment, then.started_fields) == (micros(NOON), ("valid_from",))


def test_more_points_are_requested_while_windows_fill_the_list() -> None:
    points = [("long", 1.0 - n / 1000) for n in range(100)] + [("other", 0.5), ("third", 0.5)]
    limits: list[int] = []

    def search(limit: int) -> list[tuple[str, float]]:
        limits.append(limit)
        return points[:limit]

    assert best_by_memory(search, 2) == [("long", 1.0), ("other", 0.5)]
    assert len(limits) == 2  # noqa: PLR2004
