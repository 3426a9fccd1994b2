"""`why_not`: at which step of a search a memory falls out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.contract import added, ids
from support.facts import fact, source_message
from support.ledger_snapshot import contents

from graphmem import Memory
from graphmem.errors import NotFoundError, ValidationError

ANA: dict[str, Any] = {"user_id": "u1"}


def told(memory: Memory, uid: str, query: str = "green tea", **more: Any) -> tuple[str, str, dict[str, Any]]:
    answer = memory.why_not(query, uid, **ANA, **more)
    assert answer["id"] == uid
    assert answer["why"] and "\n" not in answer["why"]
    return answer["step"], answer["why"], answer["details"]


def test_a_hit_has_its_place_and_the_shares_of_its_score(memory: Memory) -> None:
    tea = added(memory, "green tea with milk")
    step, why, details = told(memory, tea)
    assert (step, why, details["rank"], details["score"]) == ("hit", "it is hit 1", 1, 1.0)
    assert sum(share["share"] for share in details["shares"].values()) == pytest.approx(1.0)


def test_what_a_view_hides_is_said_with_its_remedy(memory: Memory) -> None:
    gone, late = added(memory, "green tea", expiration_date="2020-01-01"), added(memory, "green tea again", run_id="r")
    step, why, details = told(memory, gone)
    assert (step, details["reason"], why.rpartition("; ")[2]) == ("not_visible", "expired", "show_expired finds it")
    assert told(memory, gone, show_expired=True)[0] == "hit"
    assert told(memory, late, as_of=datetime.now(UTC) - timedelta(days=1))[2]["reason"] == "as_of"
    assert told(memory, late, kinds="fact")[2]["reason"] == "kinds"
    assert told(memory, late, run_id="other")[2] == {"reason": "scope", "differs": ["run_id"]}
    memory.forget(late, **ANA)
    assert told(memory, late)[2]["reason"] == "forgotten"


def test_a_filter_that_refuses_is_named(memory: Memory) -> None:
    tea = added(memory, "green tea", metadata={"cup": 1, "sugar": 2})
    step, why, details = told(memory, tea, filters={"cup": 1, "sugar": 3, "role": "user"})
    assert (step, details) == ("filtered", {"conditions": ["sugar"]})
    assert why.endswith("sugar")
    assert told(memory, tea, filters={"user_id": "u1", "cup": 1})[0] == "hit"


def test_a_memory_below_the_threshold_the_relevance_or_the_last_hit(memory: Memory) -> None:
    memory.add(["green tea", "green tea again"], **ANA)
    other = added(memory, "a blue kettle", run_id="later")  # in a session of its own: no path leads to it
    step, _, details = told(memory, other, top_k=1)
    assert (step, details["rank"], details["candidates"]) == ("rank", 3, 3)
    assert details["score"] < details["last_score"] == 1.0
    step, _, details = told(memory, other, threshold=0.9)
    assert (step, details["threshold"]) == ("threshold", 0.9)
    step, _, details = told(memory, other, min_relevance=0.99)
    assert (step, details["floor"]) == ("relevance", 0.99)
    assert details["relevance"] < 0.99
    assert ids(memory.search("green tea", **ANA, min_relevance=0.99)).count(other) == 0


def test_a_memory_that_no_arm_gives_to_the_search_has_its_ranks(memory: Memory) -> None:
    memory.add([f"green tea number {n}" for n in range(260)], **ANA)
    other = added(memory, "a blue kettle", run_id="later")  # in a session of its own
    step, why, details = told(memory, other)
    assert (step, details["limits"]["dense"]) == ("not_found", 100)
    assert details["ranks"].get("dense", 101) > 100
    assert "vectors" in why and "words: not at all" in why


def test_a_source_message_stands_under_its_fact(memory: Memory) -> None:
    source = source_message(memory, "green tea in Oslo", user_id="u1")
    drawn = fact(memory, "drinks green tea in Oslo", source, user_id="u1")
    step, why, details = told(memory, source, "green tea in Oslo")
    assert (step, details["under"]) == ("grouped", drawn)
    assert drawn in why


def test_another_users_memory_is_not_there(memory: Memory) -> None:
    foreign = added(memory, "green tea", user_id="u2")
    for uid in (foreign, "nothing"):
        with pytest.raises(NotFoundError):
            memory.why_not("green tea", uid, **ANA)
    with pytest.raises(ValidationError, match="query"):
        memory.why_not(" ", added(memory, "green tea"), **ANA)


def test_it_counts_as_no_access(make_memory: Any) -> None:
    memory = make_memory(lifecycle={"enabled": True, "daily_at": "never"})
    tea = added(memory, "green tea")
    told(memory, tea)
    memory.flush()
    assert [row["accesses"] for row in contents(memory)["vitals"]] == []
