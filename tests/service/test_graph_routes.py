"""Routes for the graph of a scope and for the origin of a memory: the answers are those of the library."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import networkx as nx
import pytest
from starlette.testclient import TestClient
from support.service import headers, ok

from graphmem import Memory
from graphmem.commands.types import RetireMemory

Make = Callable[..., Memory]
ANA = {"user_id": "ana"}


@pytest.fixture
def memory(make: Make) -> Memory:
    memory = make()
    memory.add(["Clara met Dora in Bergen.", "Dora likes Bergen.", "Klara sings."], **ANA)
    memory.add("Clara met Ben in Oslo.", user_id="ben")
    return memory


# --- the graph --------------------------------------------------------------------------------------------------------


def test_the_graph_is_that_of_the_library_as_node_link_json(client: TestClient, memory: Memory) -> None:
    memory.alias("Clara", "Klara", **ANA)
    found = ok(client.get("/graph", params=ANA))
    assert found == nx.node_link_data(memory.graph(**ANA, limit=500), edges="edges")
    assert nx.node_link_graph(found, edges="edges").number_of_nodes() == len(found["nodes"]) > 5
    assert {edge["relationship"] for edge in found["edges"]} == {"MENTIONS", "NEXT", "RELATES_TO", "SAME_AS"}


def test_a_part_of_the_graph(client: TestClient, memory: Memory) -> None:
    for options in ({"around": "Dora", "hops": 1}, {"around": "Dora", "hops": 0}, {"limit": 1}, {"around": "Nobody"}):
        expected = nx.node_link_data(memory.graph(**ANA, **options), edges="edges")  # type: ignore[arg-type]
        assert ok(client.get("/graph", params={**ANA, **options})) == expected


@pytest.mark.parametrize(
    ("options", "status"),
    [({"hops": 11}, 422), ({"hops": "a"}, 422), ({"limit": 0}, 422), ({"limit": 10_001}, 422), ({"app_id": "x"}, 422),
     ({"around": ""}, 400), ({"around": "x" * 600}, 400)],
    ids=str,
)  # fmt: skip
def test_an_unusable_option_of_the_graph_is_refused(client: TestClient, options: dict[str, Any], status: int) -> None:
    (name,) = options
    assert name in ok(client.get("/graph", params={**ANA, **options}), status)["detail"]


# --- entities ---------------------------------------------------------------------------------------------------------


def test_entities_are_listed_as_by_the_library(client: TestClient, memory: Memory) -> None:
    for options in ({}, {"query": "lara"}, {"type": "other"}, {"limit": 1}):
        expected = memory.entities(**ANA, **options)  # type: ignore[arg-type]
        assert ok(client.get("/graph/entities", params={**ANA, **options})) == expected != []
    assert "Person" in ok(client.get("/graph/entities", params={**ANA, "type": "Robot"}), 400)["detail"]
    ok(client.get("/graph/entities", params={**ANA, "offset": 1}), 422)


def test_a_graph_and_an_entity_as_they_were(client: TestClient, memory: Memory) -> None:
    memory.add("Dora met Clara in Oslo.", **ANA, timestamp="2025-03-02T23:30:00+00:00")
    memory_id = memory.add("Dora met Ben in Rome.", **ANA, timestamp="2025-03-03T12:00:00+00:00")["results"][0]["id"]
    before = {**ANA, "as_of": "2025-03-03"}
    graph = ok(client.get("/graph", params=before))
    assert graph == nx.node_link_data(memory.graph(**before), edges="edges")
    names = {node.get("name") for node in graph["nodes"]}
    assert {"Dora", "Clara"} <= names and not {"Ben", "Rome"} & names
    entity = ok(client.get("/graph/entities/Dora", params=before))
    assert entity == memory.entity("Dora", **before)
    assert [one["memory"] for one in entity["memories"]] == ["Dora met Clara in Oslo."]
    ok(client.get("/graph/entities/Ben", params=before), 404)
    memory.delete(memory_id)
    assert "Ben" not in client.get("/graph", params={**ANA, "as_of": "2025-03-04"}).text
    for path in ("/graph", "/graph/entities/Dora"):
        assert "as_of" in ok(client.get(path, params={**ANA, "as_of": "soon"}), 400)["detail"]


def test_names_of_what_is_no_longer_true_are_listed_and_shown_on_request(client: TestClient, memory: Memory) -> None:
    (old,) = [one["id"] for one in memory.get_all(**ANA)["results"] if one["memory"] == "Klara sings."]
    met = [one["id"] for one in memory.get_all(**ANA)["results"] if "Bergen" in one["memory"]]
    memory.engine.commit([RetireMemory(one, at=datetime.now(UTC), reason="moved") for one in (old, met[0])])
    shown = {**ANA, "show_retired": True}
    for asked, bergen in ((ANA, 1), (shown, 2)):
        listed = {one["name"]: one["memories"] for one in ok(client.get("/graph/entities", params=asked))}
        assert (listed["Bergen"], listed.get("Klara")) == (bergen, 1 if asked is shown else None)
        assert ok(client.get("/graph/entities", params=asked)) == memory.entities(**asked)
    ok(client.get("/graph/entities/Klara", params=ANA), 404)
    klara = ok(client.get("/graph/entities/Klara", params=shown))
    assert klara == memory.entity("Klara", **shown)
    assert [one["id"] for one in klara["memories"]] == [old]
    bergen = ok(client.get("/graph/entities/Bergen", params=shown))
    assert {one["id"] for one in bergen["memories"]} == set(met)
    assert len(bergen["relations"]) > len(ok(client.get("/graph/entities/Bergen", params=ANA))["relations"])
    memory.delete(old)
    ok(client.get("/graph/entities/Klara", params=shown), 404)


def test_memories_are_counted_by_day(client: TestClient, memory: Memory) -> None:
    ana = {"user_id": "ana", "run_id": "rain"}
    for moment in ("1969-12-31T23:59:59", "2025-03-02T22:30:00", "2025-03-02T23:30:00", "2025-03-03T12:00:00"):
        memory.add(f"It rained at {moment}.", **ana, timestamp=f"{moment}+00:00")
    by_utc = {"1969-12-31": 1, "2025-03-02": 2, "2025-03-03": 1}
    by_berlin = {"1970-01-01": 1, "2025-03-02": 1, "2025-03-03": 2}
    for offset, expected in ((0, by_utc), (60, by_berlin)):
        found = ok(client.get("/graph/days", params={**ana, "utc_offset": offset}))
        assert found == memory.count_by_day(**ana, utc_offset=offset)
        assert [(one["day"], one["memories"]) for one in found] == list(expected.items())
    assert ok(client.get("/graph/days", params={"user_id": "nobody"})) == []
    assert "utc_offset" in ok(client.get("/graph/days", params={**ana, "utc_offset": 1441}), 422)["detail"]


def test_an_entity_has_its_memories_and_relations(client: TestClient, memory: Memory) -> None:
    found = ok(client.get("/graph/entities/Dora", params=ANA))
    assert found == memory.entity("Dora", **ANA)
    assert len(found["memories"]) == 2
    assert found["relations"]
    assert len(ok(client.get("/graph/entities/dora", params={**ANA, "limit": 1}))["memories"]) == 1
    assert ok(client.get("/graph/entities/Oslo", params=ANA), 404)["code"] == "not_found"


def test_a_name_with_a_slash_is_a_key(client: TestClient, memory: Memory) -> None:
    memory.add("Ana uses TCP/IP.", **ANA)
    (key,) = [one["key"] for one in memory.entities(**ANA) if "tcp" in one["key"]]
    assert ok(client.get(f"/graph/entities/{key}", params=ANA)) == memory.entity(key, **ANA)
    ok(client.patch("/graph/entities/a%2Fb", params=ANA, json={"name": "x"}), 404)
    assert client.delete("/graph/entities/a/b").headers["allow"] == "GET, PATCH"


def test_two_names_are_linked_and_the_link_is_removed(client: TestClient, memory: Memory) -> None:
    body = {**ANA, "a": "Clara", "b": "Klara"}
    linked = ok(client.post("/graph/aliases", json=body))
    assert linked == memory.entity("Clara", **ANA)
    assert [alias["origin"] for alias in linked["aliases"]] == ["user"]
    assert ok(client.request("DELETE", "/graph/aliases", json=body))["aliases"] == []
    ok(client.request("DELETE", "/graph/aliases", json=body), 404)
    for unusable, status in (({"b": "Clara"}, 400), ({"b": "Nobody"}, 404), ({"b": 7}, 422), ({"c": "x"}, 422)):
        refused = ok(client.post("/graph/aliases", json={**body, **unusable}), status)
        assert "Nobody" not in refused["detail"]


def test_an_entity_gets_another_name(client: TestClient, memory: Memory) -> None:
    assert ok(client.patch("/graph/entities/Bergen", params=ANA, json={"name": "Bjørgvin"}))["name"] == "Bjørgvin"
    assert memory.entity("Bjørgvin", **ANA) == ok(client.get("/graph/entities/bergen", params=ANA))
    for name, status in (("", 400), ("two\nlines", 400), ("x" * 257, 400), (None, 422)):
        ok(client.patch("/graph/entities/Bergen", params=ANA, json={"name": name}), status)


# --- the origin of a memory -------------------------------------------------------------------------------------------


def test_where_a_memory_comes_from(client: TestClient, memory: Memory) -> None:
    memory_id = memory.get_all(**ANA)["results"][0]["id"]
    memory.update(memory_id, "Klara sings in Bergen.")
    origin = ok(client.get(f"/memories/{memory_id}/explain"))
    assert origin == memory.explain(memory_id)
    assert [event["event"] for event in origin["events"]] == ["ADD", "UPDATE"]
    assert origin["mentions"]
    ok(client.get("/memories/unknown/explain"), 404)


def test_a_change_is_taken_back_once(client: TestClient, memory: Memory) -> None:
    memory_id = memory.get_all(**ANA)["results"][0]["id"]
    memory.update(memory_id, "Klara sings in Bergen.")
    event_id = memory.history(memory_id)[-1]["id"]
    changed = ok(client.post(f"/events/{event_id}/undo", params=ANA))
    assert (changed["memory"], changed["message"]) == ("Klara sings.", "Taken back.")
    for refused, status in ((event_id, 400), (memory.history(memory_id)[0]["id"], 400), ("unknown", 404)):
        assert refused not in ok(client.post(f"/events/{refused}/undo"), status)["detail"]


# --- roles ------------------------------------------------------------------------------------------------------------

CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/graph", {}),
    ("GET", "/graph/entities", {}),
    ("GET", "/graph/entities/Clara", {}),
    ("PATCH", "/graph/entities/Clara", {"json": {"name": "Klara"}}),
]


@pytest.mark.parametrize(("method", "path", "more"), CALLS)
def test_a_users_key_reaches_its_own_graph_and_others_have_to_name_a_user(
    memory: Memory, client: TestClient, method: str, path: str, more: dict[str, Any]
) -> None:
    own = headers(memory, "user", user_id="ben")
    answer = client.request(method, path, headers=own, **more)
    assert "Oslo" in answer.text
    assert "Bergen" not in answer.text
    ok(client.request(method, path, params=ANA, headers=own, **more), 403)
    for role in ("app", "admin"):
        ok(client.request(method, path, headers=headers(memory, role), **more), 400)
    ok(client.request(method, path, headers=headers(memory, "metrics"), **more), 403)


def test_another_users_memory_and_event_are_not_found(memory: Memory, client: TestClient) -> None:
    memory_id = memory.get_all(**ANA)["results"][0]["id"]
    memory.update(memory_id, "Klara sings in Bergen.")
    event_id = memory.history(memory_id)[-1]["id"]
    own = headers(memory, "user", user_id="ben")
    ok(client.get(f"/memories/{memory_id}/explain", headers=own), 404)
    ok(client.post(f"/events/{event_id}/undo", headers=own), 404)
    ok(client.get(f"/memories/{memory_id}/explain", headers=headers(memory, "app")), 400)
    assert memory.history(memory_id)[-1]["id"] == event_id
