"""`search`: hits, scores, thresholds, explanations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.contract import HIT, JANUARY, JUNE, RELATION, added, check, ids, texts
from support.facts import fact, source_message

from graphmem import Memory
from graphmem.errors import (
    ConfigError,
    ValidationError,
)
from graphmem.model import EntityType


def test_search_gives_hits_best_first(memory: Memory) -> None:
    for n, words in enumerate(["tea and cake", "the car is red", "cake"]):
        memory.add(words, user_id="u1", metadata={"a": 1}, timestamp=JUNE + timedelta(days=n))
    response = memory.search("cake", user_id="u1")
    assert texts(response)[0] == "cake"
    for hit in response["results"]:
        check(hit, HIT)
        assert 0 <= hit["score"] <= 1
        assert -1 <= hit["similarity"] <= 1.000001
    scores = [hit["score"] for hit in response["results"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1)
    assert "explain" not in response["results"][0]


def test_a_scope_without_memories_gives_empty_results(memory: Memory) -> None:
    assert memory.search("tea", user_id="nobody") == {"results": [], "relations": []}
    assert memory.context("tea", user_id="nobody") == ""
    assert memory.get_all(user_id="nobody") == {"results": [], "relations": [], "total": 0}


def test_top_k_and_limit_mean_the_same(memory: Memory) -> None:
    memory.add([f"tea {n}" for n in range(12)], user_id="u1")
    assert len(ids(memory.search("tea", user_id="u1"))) == 10
    assert len(ids(memory.search("tea", user_id="u1", top_k=3))) == 3
    assert len(ids(memory.search("tea", user_id="u1", limit=3))) == 3
    assert len(ids(memory.get_all(user_id="u1", top_k=3))) == 3
    with pytest.raises(ValidationError):
        memory.search("tea", user_id="u1", limit=3, top_k=4)
    for bad in (0, -1, 1.5, "3", True, 10**6):
        with pytest.raises(ValidationError):
            memory.search("tea", user_id="u1", top_k=bad)


def test_top_k_is_kept_whatever_it_is(memory: Memory) -> None:
    messages = [
        {
            "role": "user",
            "content": f"bus {n} is late",
            "metadata": {"even": n % 2 == 0},
            "timestamp": 1_700_000_000 + n,
        }
        for n in range(300)
    ]
    memory.add(messages, user_id="u1")
    found = {k: ids(memory.search("bus", user_id="u1", top_k=k)) for k in (10, 50, 250, 1000)}
    assert {k: len(set(hits)) for k, hits in found.items()} == {10: 10, 50: 50, 250: 250, 1000: 300}
    assert found[10] == found[250][:10]
    assert found[50] == found[1000][:50]
    scores = [hit["score"] for hit in memory.search("bus", user_id="u1", top_k=250)["results"]]
    assert scores == sorted(scores, reverse=True)
    even = memory.search("bus", user_id="u1", top_k=250, filters={"even": True}, explain=True)["results"]
    assert len(even) == 150
    assert all(hit["metadata"]["even"] and hit["explain"]["path"] for hit in even)


@pytest.mark.parametrize("bad", ["", "   ", None, 7, "a\x00", "\ud800"])
def test_a_bad_query_is_refused(memory: Memory, bad: Any) -> None:
    for call in (memory.search, memory.context):
        with pytest.raises(ValidationError, match="query"):
            call(bad, user_id="u1")


def test_any_query_is_answered_without_degradation(memory: Memory) -> None:
    memory.add("tea", user_id="u1")
    for query in ("the of and", "???", "😀", "' OR 1=1 --", "tea " * 5000, "日本語の茶", "%_\\"):
        assert "degraded" not in memory.search(query, user_id="u1")


def test_threshold_is_a_least_similarity(memory: Memory) -> None:
    memory.add("tea with milk", user_id="u1", timestamp=JUNE)
    memory.add("the car is red", user_id="u1", timestamp=JANUARY)
    response = memory.search("tea with milk", user_id="u1", threshold=0.9)
    assert texts(response) == ["tea with milk"]
    assert response["results"][0]["similarity"] == pytest.approx(1, abs=1e-5)
    assert len(ids(memory.search("tea with milk", user_id="u1", threshold=-1))) == 2
    for bad in (2, "high", True, float("nan")):
        with pytest.raises(ValidationError):
            memory.search("tea", user_id="u1", threshold=bad)


def test_a_hit_reached_from_a_similar_one_passes_the_threshold(memory: Memory) -> None:
    first, second = ids(memory.add(["quartz pendulum", "zeppelin harbour"], user_id="u1", timestamp=JUNE))
    response = memory.search("quartz pendulum", user_id="u1", threshold=0.9, explain=True)
    assert set(ids(response)) <= {first, second}
    for hit in response["results"]:
        starts = [step["id"] for step in hit["explain"]["path"] if step["type"] == "memory"][:1]
        assert hit["similarity"] >= 0.9 or starts == [first]


def test_kinds_select_memories(memory: Memory) -> None:
    uid = added(memory, "tea")
    assert ids(memory.search("tea", user_id="u1", kinds="episode")) == [uid]
    assert ids(memory.search("tea", user_id="u1", kinds=["fact", "summary"])) == []
    assert ids(memory.get_all(user_id="u1", kinds=["episode"])) == [uid]
    assert ids(memory.get_all(user_id="u1", kinds="fact")) == []
    for bad in ("dream", [], ["fact", "dream"], 7, [None]):
        with pytest.raises(ValidationError, match="kind"):
            memory.search("tea", user_id="u1", kinds=bad)


def test_reranking_and_bad_reference_dates_are_refused(memory: Memory) -> None:
    with pytest.raises(ConfigError):
        memory.search("tea", user_id="u1", rerank=True)
    with pytest.raises(ValidationError):
        memory.search("tea", user_id="u1", reference_date="whenever")
    memory.search("tea yesterday", user_id="u1", reference_date="2024-01-01")


def test_why_begins_with_the_share_that_is_greatest(memory: Memory) -> None:
    source = source_message(memory, "Which green tea did we order for the office in Oslo?", user_id="u1")
    drawn = fact(memory, "buys Sencha", source, user_id="u1")
    for number in range(3):
        added(memory, f"something else {number}")
    first = memory.search("Which green tea did we order for the office?", user_id="u1", explain=True)["results"][0]
    assert first["id"] == drawn
    assert next(iter(first["explain"]["shares"])) == "raised"
    assert first["explain"]["why"].startswith("raised by its source message or its question")


def test_explain_gives_arms_path_and_reason(anna: Memory) -> None:
    response = anna.search("Where does Anna work?", user_id="u1", agent_id="a", explain=True)
    assert texts(response)[0] == "Anna works at Siemens."
    for hit in response["results"]:
        explanation = hit["explain"]
        assert set(explanation) == {"arms", "path", "why", "shares", "relevance"}
        assert all(set(share) == {"value", "weight", "share"} for share in explanation["shares"].values())
        assert sum(share["share"] for share in explanation["shares"].values()) == pytest.approx(hit["score"])
        assert explanation["shares"].keys().isdisjoint({"raised"})
        sizes = [abs(share["share"]) for share in explanation["shares"].values()]
        assert sizes == sorted(sizes, reverse=True)
        assert explanation["why"] and "\n" not in explanation["why"]
        for arm in explanation["arms"].values():
            assert arm["rank"] >= 1 and isinstance(arm["score"], float)
        kinds = ["memory" if step["type"] == "memory" else "other" for step in explanation["path"]]
        assert all(a != b for a, b in zip(kinds, kinds[1:], strict=False))
        if explanation["path"]:
            assert explanation["path"][-1]["id"] == hit["id"]


@pytest.mark.quick
def test_a_path_leads_over_a_shared_entity(anna: Memory) -> None:
    response = anna.search("Where does Anna work?", user_id="u1", agent_id="a", explain=True, top_k=4)
    (lisbon,) = [hit for hit in response["results"] if "Lisbon" in hit["memory"]]
    assert "graph" in lisbon["explain"]["arms"]
    path = lisbon["explain"]["path"]
    assert len(path) >= 2
    memories = {hit["id"]: hit for hit in response["results"]}
    for step in path:
        if step["type"] == "entity":
            assert step["entity_type"] in set(EntityType)
        elif step.get("id") in memories:
            assert all(step[name] == memories[step["id"]][name] for name in ("at", "role", "actor_id"))


def test_relations_of_a_search_are_those_its_hits_state(anna: Memory) -> None:
    response = anna.search("Where does Anna work?", user_id="u1", agent_id="a")
    assert response["relations"]
    for relation in response["relations"]:
        check(relation, RELATION)
        assert set(relation["memory_ids"]) <= set(ids(response))
