"""The numbers of LIFECYCLE that are settings or constants, each by the section that names it.

Those of §3 and §4 are in `test_lifecycle_policies`, those of §17 in `test_year`.
"""

from __future__ import annotations

import inspect
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from graphmem import Memory, accesses
from graphmem.boundary.validation import MEMORY_TYPES
from graphmem.ingest.facts.compositions import MOST_WORDS
from graphmem.ingest.facts.pipeline import MIN_SIMILARITY
from graphmem.ingest.facts.summaries import MAX_SUMMARY_CHARS
from graphmem.jobs import cycle, handover
from graphmem.lifecycle import compression, conflicts, decay
from graphmem.lifecycle.decay import LifecyclePolicy, Operation, Vitals, matters, plan_cycle
from graphmem.model import MAX_CAPTION_CHARS, Layer, Scope
from graphmem.queries import memories as reads
from graphmem.settings import Settings
from graphmem.stores.ledger import schema
from graphmem.stores.working import memory as working_memory

SETTINGS = Settings()
POLICY = SETTINGS.lifecycle.policy(None)
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def short_term(age: timedelta = timedelta(), **more: object) -> Vitals:
    """A memory that was stored so long before NOW, of importance 0.5 and no type."""
    values = {"importance": 0.5, "memory_type": None, **more}
    return Vitals(
        id="1", row=1, scope=Scope("ana"), seq=1, layer=Layer.SHORT_TERM, pinned=False, created_at=NOW - age,
        is_valid=True, **values,  # type: ignore[arg-type]
    )  # fmt: skip


def test_2_the_types_and_what_a_row_has_by_default() -> None:
    """§2: "fact" is the fifth type; short_term, 0.5, level 0 and no pin; a strength of 1 and no accesses."""
    assert {*MEMORY_TYPES} == {"episodic", "semantic", "procedural", "preference", "fact"}
    defaults = {
        column.name: column.server_default.arg  # type: ignore[union-attr]
        for column in (*schema.memories.c, *schema.vitals.c)
        if column.name in {"layer", "level", "pinned", "strength", "accesses"} or column is schema.memories.c.importance
    }
    assert {name: str(value) for name, value in defaults.items()} == {
        "layer": "short_term", "importance": "0.5", "level": "0", "pinned": "false", "strength": "1", "accesses": "0",
    }  # fmt: skip


def test_4_the_six_numbers_of_the_curve_are_settings() -> None:
    """§4: S = min(10.0, (1.0 + importance × 2.0 + accesses × 0.1) × 1.5 or 1.3); R < 0.1."""
    curve = SETTINGS.lifecycle
    assert (curve.base_strength, curve.importance_multiplier, curve.access_bonus) == (1.0, 2.0, 0.1)
    assert (curve.type_factors, curve.max_strength, curve.min_retention) == (
        {"preference": 1.5, "fact": 1.3}, 10.0, 0.1,
    )  # fmt: skip
    assert POLICY.curve.strength(0.5, 3, "fact") == pytest.approx((1 + 0.5 * 2 + 3 * 0.1) * 1.3)


def test_5_the_cycle_and_its_brake() -> None:
    """§5: each night at 03:00 of UTC; more than 30 % and more than 50; commits of at most 500; nothing is purged."""
    enabled = SETTINGS.lifecycle.model_copy(update={"enabled": True})
    nights = enabled.nights(SETTINGS.zone)
    assert nights is not None
    assert nights.next(datetime(2026, 1, 1, 3, tzinfo=UTC)) == datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert (POLICY.brake_share, POLICY.brake_memories, POLICY.purge_after) == (0.3, 50, None)
    assert cycle.COMMAND_BATCH == 500
    for forgotten, memories, is_held in ((51, 169, True), (51, 170, False), (50, 100, False)):
        plan = decay.CyclePlan(forgotten=(None,) * forgotten)  # type: ignore[arg-type]
        assert (decay.brake(plan, memories, POLICY) is not None) == is_held, (forgotten, memories)


@pytest.mark.parametrize(
    ("importance", "memory_type", "is_kept"),
    [
        (0.8, "preference", True), (0.8, "fact", True), (0.79, "fact", False), (0.8, "episodic", False),
        (0.9, "episodic", True), (0.89, "semantic", False), (0.9, None, True),
    ],
)  # fmt: skip
def test_6_what_is_kept_for_good(importance: float, memory_type: str | None, is_kept: bool) -> None:
    """§6 P1: importance of 0.8 as a preference or fact, or 0.9 as anything."""
    assert matters(importance, memory_type) == is_kept


@pytest.mark.parametrize(
    ("memory", "is_promoted"),
    [
        (short_term(timedelta(days=7), importance=0.9), True),
        (short_term(timedelta(days=7) - timedelta(seconds=1), importance=0.9), False),
        (short_term(timedelta(days=7), importance=0.89), False),
        (short_term(accesses=80), True),  # (1 + 1 + 8) is 10
        (short_term(accesses=79), False),
    ],
)
def test_6_what_moves_to_the_long_term_layer(memory: Vitals, is_promoted: bool) -> None:
    """§6 P1: older than 7 days. §6 P2: S has reached 10.0, at any age."""
    assert bool(plan_cycle([memory], NOW, POLICY).promoted) == is_promoted


def test_6_seven_days_and_the_capacities() -> None:
    """§1, §6: "older than 7 days"; short-term > 500; long-term > 100. §6 P2: S has reached 10.0."""
    assert POLICY == LifecyclePolicy()
    assert POLICY.promote_after == timedelta(days=7)
    assert (POLICY.short_term_capacity, POLICY.long_term_capacity) == (500, 100)
    assert POLICY.curve.max_strength == 10.0


def test_7_compression() -> None:
    """§7: cosine > 0.85, at least 3, at most 50 words, more than 20 events, a summary of at most 1,200 characters."""
    assert (POLICY.merged_similarity, POLICY.smallest_cluster, POLICY.summarised_memories) == (0.85, 3, 20)
    assert MOST_WORDS[Operation.MERGE] == 50
    assert MAX_SUMMARY_CHARS == 1_200


def test_8_abstraction() -> None:
    """§8: levels 1 to 3; one sentence of at most 30 words."""
    assert compression.HIGHEST_LEVEL == 3
    assert MOST_WORDS[Operation.ABSTRACT] == 30


def test_9_conflicts() -> None:
    """§9: above 0.8 every pair is compared, as from 0.3 on facts are; a confidence higher by more than 0.2."""
    assert (conflicts.CONFLICT_SIMILARITY, conflicts.CONFIDENCE_MARGIN) == (0.8, 0.2)
    assert MIN_SIMILARITY <= 0.3


def test_10_accesses_are_written_each_minute_and_at_500_rows() -> None:
    assert (accesses.WRITE_SECONDS, accesses.WRITE_ROWS) == (60.0, 500)


def test_11_working_memory() -> None:
    """§1, §11: 10 rounds, 4,000 tokens (as `estimate_tokens` counts them), 1,000 sessions of a process."""
    working = Settings.from_dict({"working": {"provider": "memory"}}).working
    assert working is not None
    assert (working.config.rounds, working.config.tokens) == (10, 4_000)
    assert working_memory.MAX_LISTS == 1_000


def test_12_background_work() -> None:
    """§12: a connect limit of 1 s; the sweep sends again after 30 s; the queue is "graphmem"."""
    assert (handover.SEND_SECONDS, handover.RESEND_SECONDS) == (1.0, 30.0)
    workers = {"workers": {"provider": "celery", "config": {"broker_url": "redis://localhost"}}}
    assert Settings.from_dict(workers).workers.config.queue == "graphmem"
    assert (handover.JOB_TASK, handover.SWEEP_TASK) == ("graphmem.job", "graphmem.sweep")


def test_12_celery_and_redis_are_two_requirements() -> None:
    """§12: `celery>=5.7,<6` and `redis>=6.4,<9`, for `celery[redis]` pins `packaging`."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["optional-dependencies"]["celery"] == ["celery>=5.7,<6", "redis>=6.4,<9"]


def test_13_a_session_ends_after_thirty_minutes() -> None:
    assert SETTINGS.session_gap == 30.0


def test_15_a_caption_has_at_most_2000_characters() -> None:
    assert MAX_CAPTION_CHARS == 2_000


def test_16_a_profile() -> None:
    """§16: at most 1,000 tokens; the 10 that were found last; 3 topics."""
    assert inspect.signature(Memory.profile).parameters["max_tokens"].default == 1_000
    assert (reads.RECENT, reads.TOPICS) == (10, 3)
