"""Metadata filters."""

from __future__ import annotations

from typing import Any

import pytest
from support.contract import Make, added, ids, texts

from graphmem import Memory
from graphmem.errors import (
    ValidationError,
)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({"n": 2}, {2}),
        ({"n": {"gte": 2, "lt": 4}}, {2, 3}),
        ({"n": {"in": [1, 4]}}, {1, 4}),
        ({"n": {"ne": 1}}, {2, 3, 4, 0}),
        ({"n": {"nin": [1, 2]}}, {3, 4, 0}),
        ({"word": {"contains": "ea"}}, {1, 2}),
        ({"word": {"icontains": "EA"}}, {1, 2}),
        ({"tags": {"contains": "hot"}}, {1, 3}),
        ({"OR": [{"n": 1}, {"tags": {"contains": "cold"}}]}, {1, 4}),
        ({"AND": [{"n": {"gt": 1}}, {"NOT": [{"n": 3}]}]}, {2, 4}),
        ({"NOT": [{"n": {"gt": 1}}]}, {0, 1}),
        ({"role": "assistant"}, {4}),
        ({"actor_id": "Ann"}, {3}),
        ({"kind": "episode"}, {0, 1, 2, 3, 4}),
        ({"kind": "fact"}, set()),
        ({"memory_type": "preference"}, {2}),
        ({"created_at": {"gte": "2020-01-01"}}, {0, 1, 2, 3, 4}),
        ({"created_at": {"lt": "2020-01-01"}}, set()),
        ({"n": "2"}, set()),
    ],
)
def test_filters_select_memories(make_memory: Make, filters: Any, wanted: set[int]) -> None:
    memory = make_memory()
    rows: list[tuple[int, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        (0, {}, {}, {}),
        (1, {"n": 1, "word": "tea", "tags": ["hot"]}, {}, {}),
        (2, {"n": 2, "word": "bean", "tags": []}, {}, {"memory_type": "preference"}),
        (3, {"n": 3, "word": "milk", "tags": ["hot", "white"]}, {"name": "Ann"}, {}),
        (4, {"n": 4, "word": "ice", "tags": ["cold"]}, {"role": "assistant"}, {}),
    ]
    for number, metadata, message, more in rows:
        memory.add({"role": "user", "content": f"drink {number}", **message}, user_id="u1", metadata=metadata, **more)
    for response in (
        memory.search("drink", user_id="u1", filters=filters),
        memory.get_all(user_id="u1", filters=filters),
    ):
        assert {int(text[-1]) for text in texts(response)} == wanted


@pytest.mark.parametrize(
    "filters", [{"n": {"near": 1}}, {"$or": [{"n": 1}]}, {"OR": []}, {"n": {}}, [], "n=1", {"n": {"gt": None}}, {"": 1}]
)
def test_a_filter_that_cannot_mean_anything_is_refused(memory: Memory, filters: Any) -> None:
    for call in (
        lambda: memory.search("x", user_id="u1", filters=filters),
        lambda: memory.get_all(user_id="u1", filters=filters),
    ):
        with pytest.raises(ValidationError):
            call()


def test_a_rare_match_is_found_behind_many_better_ones(memory: Memory) -> None:
    memory.add(["tea tea tea"] * 300, user_id="u1")
    uid = added(memory, "tea with a lot of other words beside it", metadata={"rare": True})
    assert ids(memory.search("tea", user_id="u1", filters={"rare": True})) == [uid]


def test_a_filter_refuses_the_neighbours_of_hits_as_well(memory: Memory) -> None:
    messages = [
        {"role": "user", "content": text, "metadata": {"public": public}}
        for n in range(250)
        for text, public in ((f"Tea is green {n}.", True), (f"quiv{n}a zorp{n}b melk{n}c", False))
    ]
    memory.add(messages, user_id="u1")
    found = memory.search("green tea", user_id="u1", filters={"public": True}, top_k=500)["results"]
    assert {hit["metadata"]["public"] for hit in found} == {True}
