"""The routes of mem0's own server and of its platform client: requests that mem0's users send, and the answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from support.facts import fact, source_message, store
from support.service import client_of, headers, ok, served
from support.waiting import TIMEOUT

from graphmem import Memory
from graphmem.commands.types import RetireMemory
from graphmem.service.keys import Keys
from graphmem.stores.ledger import memories

Make = Callable[..., Memory]
BOB = {"role": "user", "content": "I moved to Bergen in May."}
# A model that is configured and does not answer.
NO_MODEL = {"provider": "openai", "config": {"api_key": "any", "openai_base_url": "http://127.0.0.1:9"}}
# The ten columns of mem0's history.
HISTORY = {
    "id", "memory_id", "old_memory", "new_memory", "event", "created_at", "updated_at", "is_deleted", "actor_id",
    "role",
}  # fmt: skip


def added(client: TestClient, text: str = "I moved to Bergen in May.", user_id: str = "ana", **more: Any) -> str:
    """Adds one message and returns the id of its memory."""
    body = {"messages": [{"role": "user", "content": text}], "user_id": user_id, **more}
    memory_id: str = ok(client.post("/memories", json=body))["results"][0]["id"]
    return memory_id


def ids_of(answer: Any) -> list[str]:
    return [one["id"] for one in answer["results"]]


# --- adding ---------------------------------------------------------------------------------------------------------


def test_the_requests_of_a_chat_client_that_writes_and_searches(client: TestClient) -> None:
    stored = client.post(
        "/memories",
        json={
            "messages": [
                {"role": "user", "content": "我海鲜过敏，别推荐海鲜"},
                {"role": "assistant", "content": "好的，我记住了。"},
            ],
            "user_id": "default-user",
            "agent_id": "Seraphina",
            "metadata": {"chatfile": "Seraphina - 2025-12-28", "avatar_url": "s.png", "timestamp": 1_766_880_000},
        },
    )
    results = ok(stored)["results"]
    assert [one["event"] for one in results] == ["ADD", "ADD"]
    assert {"id", "memory", "event"} <= set(results[0])
    query = {"query": "我海鲜过敏", "user_id": "default-user", "agent_id": "Seraphina", "top_k": 5, "rerank": True}
    searched = client.post("/search", json=query)
    hit = ok(searched)["results"][0]
    assert hit["memory"] == "我海鲜过敏，别推荐海鲜"
    assert hit["metadata"]["chatfile"] == "Seraphina - 2025-12-28"
    assert hit["score"] == 1
    assert searched.headers["x-graphmem-ignored"] == "rerank"


def test_rerank_is_used_where_a_reranker_is_configured(make_memory: Make) -> None:
    def last_first(_: str, texts: list[str]) -> list[int]:
        return list(range(len(texts)))

    with client_of(make_memory(reranker={"provider": "callable", "config": {"rerank": last_first}})) as client:
        for text in ("green tea", "green tea with milk", "green tea with milk and sugar"):
            added(client, text)
        query = {"query": "green tea", "user_id": "ana", "top_k": 2, "explain": True}
        plain = client.post("/search", json={**query, "top_k": 3})
        reranked = client.post("/search", json={**query, "rerank": True})
        assert ids_of(ok(reranked)) == ids_of(ok(plain))[:0:-1]
        assert "x-graphmem-ignored" not in reranked.headers
        assert ok(reranked)["results"][0]["explain"]["shares"]["reranker"]["value"] == 2
        first = ids_of(ok(plain))[0]
        told = ok(client.post(f"/memories/{first}/why-not", json={**query, "rerank": True}))
        assert told["step"] == "reranked"
        assert client.post("/search", json={**query, "rerank": "yes"}).status_code == 422


@pytest.mark.parametrize(
    "messages",
    [
        "I like tea.",
        {"role": "user", "content": "I like tea."},
        [{"role": "user", "content": [{"type": "text", "text": "I like tea."}], "refusal": None}],
    ],
)
def test_messages_come_in_several_forms(client: TestClient, messages: Any) -> None:
    answer = ok(client.post("/memories", json={"messages": messages, "user_id": "ana"}))
    assert [one["memory"] for one in answer["results"]] == ["I like tea."]


def test_a_message_has_a_speaker_a_time_an_id_and_metadata(client: TestClient) -> None:
    message = {**BOB, "name": "Bob", "timestamp": "2026-05-04T10:00:00Z", "id": "m1", "metadata": {"topic": "home"}}
    body = {"messages": [message], "user_id": "ana", "run_id": "r", "expiration_date": "2999-01-01"}
    memory_id = ok(client.post("/memories", json=body))["results"][0]["id"]
    stored = ok(client.get(f"/memories/{memory_id}"))
    assert stored["actor_id"] == "Bob"
    assert stored["at"] == "2026-05-04T10:00:00.000000+00:00"
    assert stored["metadata"] == {"topic": "home"}
    assert stored["expiration_date"].startswith("2999-01-01T23:59:59")
    assert ok(client.post("/memories", json=body))["results"][0]["event"] == "NONE"


def test_attachments_of_a_message_are_in_lists_hits_and_memories(client: TestClient) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}, "caption": "A cat"}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Look!"}, picture]},
        {"role": "user", "content": "No."},
    ]
    added = ok(client.post("/memories", json={"messages": messages, "user_id": "ana"}))["results"]
    (hit, *_) = ok(client.post("/search", json={"query": "cat", "user_id": "ana"}))["results"]
    shown = [
        hit,
        ok(client.get(f"/memories/{added[0]['id']}", params={"user_id": "ana"})),
        *ok(client.get("/memories", params={"user_id": "ana"}))["results"],
    ]
    attachment = {"kind": "image", "ref": "https://x.test/a.png", "caption": "A cat", "transcript": None}
    assert [one.get("attachments") for one in sorted(shown, key=lambda one: one["memory"])] == [[attachment]] * 3 + [
        None
    ]


def test_a_request_that_does_not_wait_is_accepted(client: TestClient, memory: Memory) -> None:
    answer = ok(client.post("/memories?wait=false", json={"messages": [BOB], "user_id": "ana"}), 202)
    assert answer["results"][0]["event"] == "ADD"
    memory.flush()
    assert ok(client.get("/memories?user_id=ana"))["total"] == 1


def test_a_request_repeated_under_one_key_stores_nothing_again(client: TestClient) -> None:
    body = {"messages": [BOB, {"role": "user", "content": "I like tea.", "id": "own"}], "user_id": "ana"}

    def events(key: str) -> list[str]:
        answer = ok(client.post("/memories", json=body, headers={"Idempotency-Key": key}))
        return [one["event"] for one in answer["results"]]

    assert events("request-1") == ["ADD", "ADD"]
    assert events("request-1") == ["NONE", "NONE"]
    assert events("request-2") == ["ADD", "NONE"]
    assert ok(client.get("/memories?user_id=ana"))["total"] == 3


TEA, WINE = {"role": "user", "content": "I like tea."}, {"role": "user", "content": "I like wine."}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([BOB], [BOB, TEA]),
        ([BOB, TEA], [BOB]),
        ([BOB, TEA], [BOB, WINE]),
        ([BOB, TEA], [BOB, WINE, TEA]),
        ([BOB, {**TEA, "id": "own"}], [TEA, {**TEA, "id": "own"}]),
        ("I like tea.", "I like wine."),
    ],
)
def test_a_key_of_a_request_with_other_messages_is_refused(client: TestClient, first: Any, second: Any) -> None:
    def send(messages: Any, user_id: str = "ana") -> Any:
        body = {"messages": messages, "user_id": user_id}
        return client.post("/memories", json=body, headers={"Idempotency-Key": "request-1"})

    stored = len(ok(send(first))["results"])
    problem = ok(send(second), 422)
    assert problem["code"] == "idempotency_key_reused"
    assert "Idempotency-Key" in problem["detail"]
    assert ok(client.get("/memories?user_id=ana"))["total"] == stored
    assert [one["event"] for one in ok(send(first))["results"]] == ["NONE"] * stored
    ok(send(second, "ben"))


def test_the_id_of_a_message_with_other_words_is_not_repeated(client: TestClient) -> None:
    def send(text: str) -> Any:
        return client.post(
            "/memories", json={"messages": [{**TEA, "content": text, "id": "jane@x.org"}], "user_id": "ana"}
        )

    ok(send("I like tea."))
    detail = ok(send("I like wine."), 400)["detail"]
    assert "messages: the id of one was stored" in detail
    assert "jane" not in detail


def test_without_an_id_nothing_is_added_or_searched(client: TestClient) -> None:
    for path, body in (("/memories", {"messages": [BOB]}), ("/search", {"query": "Where?"})):
        refused = client.post(path, json=body)
        assert "user_id" in ok(refused, 400)["detail"]


@pytest.mark.parametrize("field", ["app_id", "org_id", "project_id"])
def test_a_scope_that_would_be_ignored_is_refused(client: TestClient, field: str) -> None:
    added(client)
    for path, body in (("/memories", {"messages": [BOB]}), ("/search", {"query": "Where?"})):
        if field != "app_id":
            assert field in ok(client.post(path, json={**body, "user_id": "ana", field: "x"}), 422)["detail"]
    for method, path in (("GET", "/memories"), ("DELETE", "/memories"), ("GET", "/memories/x")):
        assert field in ok(client.request(method, f"{path}?user_id=ana&{field}=x"), 422)["detail"]
    assert ok(client.get("/memories?user_id=ana"))["total"] == 1


@pytest.mark.parametrize("path", ["/memories", "/v3/memories/add/"])
def test_the_program_and_the_source_of_messages_are_metadata(client: TestClient, path: str) -> None:
    body = {"messages": [BOB], "user_id": "ana", "app_id": "notes", "source": "STRANDS", "metadata": {"topic": "home"}}
    (memory_id,) = ids_of(ok(client.post(path, json=body)))
    expected = {"topic": "home", "app_id": "notes", "source": "STRANDS"}
    assert ok(client.get(f"/memories/{memory_id}"))["metadata"] == expected
    differs = {**body, "metadata": {"app_id": "other"}}
    assert "metadata.app_id" in ok(client.post(path, json=differs), 400)["detail"]
    assert ok(client.get("/memories?user_id=ana"))["total"] == 1


def test_a_search_and_a_list_are_of_one_program(client: TestClient) -> None:
    notes, mail = added(client, app_id="notes"), added(client, "Bergen is rainy.", app_id="mail", metadata={"topic": 1})
    body = {"messages": "I like Bergen.", "filters": {"user_id": "ana", "app_id": "notes"}}
    more = ids_of(ok(client.post("/v3/memories/add/", json=body)))
    for where, expected in (
        ({"app_id": "notes", "user_id": "ana"}, {notes, *more}),
        ({"filters": {"app_id": "mail", "user_id": "ana"}}, {mail}),
        ({"filters": {"AND": [{"user_id": "ana"}, {"app_id": "mail"}]}, "app_id": "mail"}, {mail}),
        ({"filters": {"user_id": "ana", "topic": 1}, "app_id": "notes"}, set()),
        ({"filters": {"user_id": "ana", "app_id": "*"}}, {notes, mail, *more}),
    ):
        assert set(ids_of(ok(client.post("/search", json={"query": "Bergen", **where})))) == expected, where
        assert set(ids_of(ok(client.post("/v3/memories/", json=where)))) == expected, where
    for wrong in ({"app_id": "*", "topic": 1}, {"app_id": 1}, {"OR": [{"app_id": "notes"}]}):
        body = {"messages": "I like tea.", "filters": {"user_id": "ana", **wrong}}
        assert "filters" in ok(client.post("/v3/memories/add/", json=body), 400)["detail"]


@pytest.mark.parametrize("field", ["immutable", "includes", "excludes", "custom_instructions", "custom_categories"])
def test_a_field_of_mem0_that_would_be_half_obeyed_is_refused_with_a_remedy(client: TestClient, field: str) -> None:
    body = {"messages": [BOB], "user_id": "ana", field: "x"}
    assert f"{field}: is no field of this request; " in ok(client.post("/v3/memories/add/", json=body), 422)["detail"]
    assert ok(client.get("/memories?user_id=ana"))["total"] == 0


@pytest.mark.parametrize("name", ["categories", "keywords", "feedback", "memory_ids"])
def test_a_filter_on_what_is_never_stored_is_refused(client: TestClient, name: str) -> None:
    added(client)
    condition = {name: {"in": ["work"]}}
    for conditions in (condition, {"AND": [{"NOT": condition}]}, {"OR": [{"topic": "x"}, {"AND": [condition]}]}):
        filters = {"user_id": "ana", **conditions}
        for path, more in (
            ("/search", {"query": "x"}),
            ("/v3/memories/search/", {"query": "x"}),
            ("/v3/memories/", {}),
        ):
            assert f"filters.{name}" in ok(client.post(path, json={**more, "filters": filters}), 400)["detail"]
    assert name in ok(client.post("/v3/memories/", json={"user_id": "ana", name: ["work"]}), 422)["detail"]


def test_a_server_without_a_model_takes_words_as_spoken_if_it_is_set_so(memory: Memory) -> None:
    body = {"messages": [BOB], "user_id": "ana", "infer": True}
    with client_of(memory) as client:
        assert ok(client.post("/memories", json=body), 409)["code"] == "not_configured"
    with client_of(memory, infer_needs_llm=False) as client:
        for path in ("/memories", "/v3/memories/add/"):
            sent = client.post(path, json={**body, "prompt": "Only places."})
            assert [one["memory"] for one in ok(sent)["results"]] == [BOB["content"]]
            assert sent.headers["x-graphmem-ignored"] == "infer, prompt"
        for plain in (False, None):
            assert "x-graphmem-ignored" not in client.post("/memories", json={**body, "infer": plain}).headers


def test_a_server_with_a_model_asks_it_whatever_is_set(make_memory: Make) -> None:
    with client_of(make_memory(llm=NO_MODEL), infer_needs_llm=False) as client:
        sent = client.post("/memories?wait=false", json={"messages": [BOB], "user_id": "ana", "infer": True})
        assert "facts" in ok(sent, 202)["pending"]
        assert "x-graphmem-ignored" not in sent.headers


def test_harmless_fields_are_named_in_a_header(client: TestClient) -> None:
    fields = {"version": "v2", "output_format": "v1.1", "async_mode": True, "enable_graph": False}
    sent = client.post("/memories", json={"messages": [BOB], "user_id": "ana", **fields})
    assert sent.headers["x-graphmem-ignored"] == "async_mode, enable_graph, output_format, version"
    memory_id = ids_of(ok(sent))[0]
    listed = client.get("/memories?user_id=ana&latest_only=true&fields=id&fields=memory&keyword_search=1")
    assert len(ok(listed)["results"]) == 1
    assert listed.headers["x-graphmem-ignored"] == "fields, keyword_search, latest_only"
    changed = client.put(f"/memories/{memory_id}?version=v2", json={"text": "I like tea.", "async_mode": True})
    assert changed.headers["x-graphmem-ignored"] == "async_mode, version"
    assert "x-graphmem-ignored" not in client.get("/memories?user_id=ana").headers


# --- one memory -----------------------------------------------------------------------------------------------------


def test_a_memory_is_read_changed_and_erased(client: TestClient, memory: Memory) -> None:
    memory_id = added(client, metadata={"topic": "home"})
    assert ok(client.get(f"/memories/{memory_id}")) == memory.get(memory_id)
    changed = ok(
        client.put(f"/memories/{memory_id}", json={"text": "I moved to Oslo.", "expiration_date": "2999-01-01"})
    )
    assert changed["message"] == "Memory updated successfully!"
    assert changed["memory"] == "I moved to Oslo."
    assert changed["metadata"] == {"topic": "home"}
    assert changed["expiration_date"] is not None
    assert ok(client.put(f"/memories/{memory_id}", json={"expiration_date": None}))["expiration_date"] is None
    assert ok(client.put(f"/memories/{memory_id}", json={}), 400)["code"] == "invalid_argument"
    receipt = ok(client.delete(f"/memories/{memory_id}"))
    assert receipt["message"] == "Memory deleted successfully"
    assert receipt["deleted"] == [memory_id]
    assert receipt["erased"]["ledger"] == 1
    for method, body in (("GET", None), ("DELETE", None), ("PUT", {"text": "x"})):
        assert ok(client.request(method, f"/memories/{memory_id}", json=body), 404)["code"] == "not_found"


def test_an_update_adds_to_the_metadata_or_replaces_it(client: TestClient) -> None:
    memory_id = added(client, metadata={"topic": "home", "sure": True})
    path = f"/v1/memories/{memory_id}/"
    expected = {"topic": "work", "sure": True}
    assert ok(client.put(path, json={"metadata": {"topic": "work"}}))["metadata"] == expected
    changed = ok(client.put(path, json={"metadata": {"place": "Oslo"}, "replace_metadata": True}))
    assert changed["metadata"] == {"place": "Oslo"}


def test_a_batch_is_changed_and_erased_as_a_whole(client: TestClient) -> None:
    first, second = added(client, metadata={"topic": "home"}), added(client, "I like tea.")
    bens = added(client, "I like wine.", user_id="ben")

    def batch(method: str, *memories: dict[str, Any], query: str = "") -> httpx.Response:
        return client.request(method, f"/v1/batch/{query}", json={"memories": list(memories)})

    new_text, new_metadata = {"memory_id": second, "text": "I like coffee."}, {"memory_id": first, "metadata": {"a": 1}}
    for wrong, status in (
        ({"memory_id": "unknown", "text": "x"}, 404),
        ({"memory_id": first, "text": ""}, 400),
        ({"memory_id": first}, 400),
    ):
        ok(batch("PUT", new_text, wrong), status)
    ok(batch("PUT", new_text, {"memory_id": bens, "text": "x"}, query="?user_id=ana"), 404)
    assert ok(client.get(f"/memories/{second}"))["memory"] == "I like tea."
    updated = ok(batch("PUT", new_text, new_metadata))
    assert updated["message"] == "Successfully updated 2 memories"
    assert [one["memory"] for one in updated["results"]] == ["I like coffee.", BOB["content"]]
    assert updated["results"][1]["metadata"] == {"topic": "home", "a": 1}
    ok(batch("DELETE", {"memory_id": first}, {"memory_id": "unknown"}), 404)
    ok(batch("DELETE", {"memory_id": first}, {"memory_id": bens}, query="?user_id=ana"), 404)
    assert ok(client.get("/memories"))["total"] == 3
    receipt = ok(batch("DELETE", {"memory_id": first}, {"memory_id": second}, {"memory_id": first}))
    assert receipt["message"] == "Successfully deleted 2 memories"
    assert set(receipt["deleted"]) == {first, second}
    assert ids_of(ok(client.get("/memories"))) == [bens]
    for method in ("PUT", "DELETE"):
        ok(batch(method), 422)
        ok(batch(method, *[{"memory_id": bens}] * 1001), 422)


def test_a_batch_of_a_users_key_reaches_that_users_memories_only(memory: Memory) -> None:
    bens = memory.add("Ben likes tea.", user_id="ben")["results"][0]["id"]
    with client_of(memory, "user") as client:
        own = added(client)
        for method, change in (("PUT", {"text": "x"}), ("DELETE", {})):
            memories = [{"memory_id": own, **change}, {"memory_id": bens, **change}]
            ok(client.request(method, "/v1/batch/", json={"memories": memories}), 404)
        assert ok(client.get(f"/memories/{own}"))["memory"] == BOB["content"]
    with client_of(memory, "app") as client:
        ok(client.put("/v1/batch/", json={"memories": [{"memory_id": bens, "text": "x"}]}), 400)
    assert memory.get(bens)["memory"] == "Ben likes tea."  # type: ignore[index]


def test_the_project_is_that_of_the_configuration(make_memory: Make) -> None:
    path = "/api/v1/orgs/organizations/graphmem/projects/graphmem/"
    with client_of(make_memory(llm=NO_MODEL, custom_instructions="Only places.")) as client:
        assert ok(client.get(path)) == {"custom_instructions": "Only places.", "custom_categories": None}
        query = "?fields=custom_instructions&org_id=graphmem&project_id=graphmem"
        assert ok(client.get(path + query)) == {"custom_instructions": "Only places."}
        ok(client.get(f"{path}?fields=decay"), 422)
        ok(client.get(path.replace("projects/graphmem", "projects/other")), 404)
        assert "configuration file" in ok(client.patch(path, json={"custom_instructions": "x"}), 405)["detail"]


@pytest.mark.parametrize(
    ("method", "path", "remedy"),
    [
        ("POST", "/v1/feedback/", "names no question"),
        ("POST", "/v1/exports/", "GET /export"),
        ("POST", "/v1/exports/get/", "GET /export"),
        ("GET", "/v2/entities/user/ana/profile/", "POST /context"),
        ("GET", "/v2/profiles/settings/", "POST /context"),
        ("GET", "/api/v1/webhooks/projects/graphmem/", "GET /memories?since"),
        ("POST", "//v3/memories/add/", "two slashes"),
    ],
)
def test_calls_that_have_nothing_here_say_so_and_not_that_a_memory_is_missing(
    client: TestClient, method: str, path: str, remedy: str
) -> None:
    status = 404 if path.startswith("//") else 422
    assert remedy in ok(client.request(method, f"http://testserver{path}"), status)["detail"]


def test_conditions_under_metadata_are_those_of_its_keys(client: TestClient, memory: Memory) -> None:
    work, home = (
        memory.add(f"Tea at {place}.", user_id="ana", metadata={"place": place, "n": n})["results"][0]["id"]
        for n, place in enumerate(("work", "home"))
    )
    metadata = {"metadata": {"place": "home"}}
    cases: list[tuple[dict[str, Any], set[str]]] = [
        (metadata, {home}),
        ({"AND": [metadata]}, {home}),
        ({"NOT": [metadata]}, {work}),
        ({"OR": [metadata, {"metadata": {"n": {"lt": 1}}}]}, {home, work}),
        ({**metadata, "AND": [{"n": 0}]}, set()),
        ({"metadata": {"eq": "home"}}, set()),
    ]
    for conditions, expected in cases:
        filters = {"user_id": "ana", **conditions}
        found = ok(client.post("/v3/memories/search/", json={"query": "tea", "filters": filters}))
        assert (
            set(ids_of(found)) == set(ids_of(ok(client.post("/v3/memories/", json={"filters": filters})))) == expected
        )


def test_the_history_is_a_list_of_mem0s_columns_with_reasons(client: TestClient, memory: Memory) -> None:
    memory_id = added(client)
    client.put(f"/memories/{memory_id}", json={"text": "I moved to Oslo."})
    events = ok(client.get(f"/memories/{memory_id}/history"))
    assert [event["event"] for event in events] == ["ADD", "UPDATE"]
    assert all(set(event) - {"is_retired", "reason"} == HISTORY for event in events)
    assert [{k: v for k, v in event.items() if k != "reason"} for event in events] == memory.history(memory_id)
    client.delete(f"/memories/{memory_id}")
    erased = ok(client.get(f"/memories/{memory_id}/history"))
    assert erased[-1]["is_deleted"]
    assert "Oslo" not in json.dumps(erased)
    ok(client.get("/memories/unknown/history"), 404)


# --- lists ----------------------------------------------------------------------------------------------------------


def test_a_list_is_that_of_the_library(client: TestClient, memory: Memory) -> None:
    for number in range(3):
        added(client, f"I like tea number {number}.", agent_id="maid", run_id=f"r{number}")
    added(client, "I like coffee.", user_id="ben")
    memory.add("Gone.", user_id="ana", expiration_date="2020-01-01")
    for ids in ({"user_id": "ana"}, {"agent_id": "maid"}, {"run_id": "r1"}, {"user_id": "ana", "run_id": "r2"}):
        answer, expected = ok(client.get("/memories", params=ids)), memory.get_all(**ids)
        assert answer == {"results": expected["results"], "total": expected["total"], "next_cursor": None}
    assert ok(client.get("/memories?user_id=ana&show_expired=true"))["total"] == 4
    assert ok(client.get("/memories?user_id=nobody")) == {"results": [], "total": 0, "next_cursor": None}
    counted = ok(client.get("/memories?user_id=ana&top_k=0"))
    assert counted == {"results": [], "total": 3, "next_cursor": None}
    ok(client.get("/memories?user_id=ana&top_k=1001"), 422)
    ok(client.get("/memories?user_id=ana&top_k=1&limit=2"), 400)
    ok(client.get("/memories?user_id=ana&limit=0"), 422)


def test_memories_that_are_no_longer_true_are_listed_and_found_on_request(client: TestClient, memory: Memory) -> None:
    old, new = added(client, "Anna lives in Rome."), added(client, "Anna lives in Oslo.")
    memory.engine.commit([RetireMemory(old, at=datetime.now(UTC), reason="moved", successor=new)])
    first = ok(client.get("/memories?user_id=ana"))
    assert (ids_of(first), first["total"], first["retired"]) == ([new], 1, 1)
    for option, listed in (("show_retired", [new, old]), ("retired_only", [old])):
        page = ok(client.get(f"/memories?user_id=ana&{option}=true"))
        assert (ids_of(page), page["total"], page["retired"]) == (listed, len(listed), 1)
    start = ok(client.get("/memories?user_id=ana&show_retired=true&limit=1"))
    ok(client.get(f"/memories?user_id=ana&limit=1&cursor={start['next_cursor']}"), 400)
    rest = ok(client.get(f"/memories?user_id=ana&show_retired=true&limit=1&cursor={start['next_cursor']}"))
    assert ids_of(rest) == [old]
    added_event, retired_event = ok(client.get(f"/memories/{old}/explain"))["events"]
    assert (retired_event["rule"], retired_event["replaced_by"]) == ("time", new)
    assert (added_event["rule"], added_event["replaced_by"]) == (None, None)
    body = {"query": "Where does Anna live?", "user_id": "ana"}
    assert ids_of(ok(client.post("/search", json=body))) == [new]
    assert set(ids_of(ok(client.post("/search", json={**body, "show_retired": True})))) == {old, new}
    numbered = {"user_id": "ana", "show_retired": True}
    assert set(ids_of(ok(client.post("/v3/memories/", json=numbered)))) == {old, new}
    shown = ok(client.get("/graph?user_id=ana&show_retired=true"))["nodes"]
    assert old in {node["id"] for node in shown}
    assert old not in {node["id"] for node in ok(client.get("/graph?user_id=ana"))["nodes"]}
    ok(client.delete(f"/memories/{old}"))
    assert "retired" not in ok(client.get("/memories?user_id=ana&show_retired=true"))


def test_the_counts_of_users_are_those_of_their_lists(client: TestClient, memory: Memory) -> None:
    """Also with a fact and its source, a summary, and memories that are no longer true or expired."""
    message = source_message(memory, "I live in Porto.", user_id="ana", valid_to="2024-06-01T00:00:00Z")
    fact(memory, "Clara lives in Porto.", message, user_id="ana", valid_to="2024-06-01T00:00:00Z")
    fact(memory, "Clara sings.", source_message(memory, "I sing.", user_id="ana"), user_id="ana")
    store(memory, "They talked.", user_id="ana", kind="summary")
    memory.add("Until then.", user_id="ana", expiration_date="2001-01-01")
    memory.add("Ben drinks tea.", user_id="ben")
    for option in ("", "show_retired=true"):
        users = {one["id"]: one["total_memories"] for one in ok(client.get(f"/entities?{option}"))}
        listed = {user: ok(client.get(f"/memories?user_id={user}&{option}"))["total"] for user in users}
        assert users == listed == {"ana": 3 if option else 1, "ben": 1}
    stats, everybody = ok(client.get("/stats")), ok(client.get("/memories"))
    assert (stats["listed"], stats["retired"]) == (everybody["total"], everybody["retired"]) == (2, 2)
    assert stats["memories"] == 7


def test_words_are_looked_for_in_all_memories(client: TestClient, memory: Memory) -> None:
    first = memory.add("ÄRGER am Zeppelin, 100 % sicher_", user_id="ana", timestamp="2020-01-01")["results"][0]["id"]
    said = memory.add([{"role": "user", "content": "Moored.", "name": "Zoë"}], user_id="ana")["results"][0]["id"]
    memory.add([f"Bus {n}." for n in range(20)], user_id="ana")

    def found(q: str, **more: Any) -> list[str]:
        page = ok(client.get("/memories", params={"user_id": "ana", "q": q, **more}))
        assert page["total"] == len(page["results"])
        return ids_of(page)

    assert found("ärger ZEPP") == found("% sicher_") == [first]
    assert found("zoë") == [said]
    assert found("zeppelin moored") == found("n%r") == found("'; --") == []
    assert len(found("ana bus")) == 20
    page = ok(client.get("/memories?user_id=ana&q=bus&limit=15"))
    assert (len(page["results"]), page["total"]) == (15, 20)
    rest = ok(client.get(f"/memories?user_id=ana&q=bus&limit=15&cursor={page['next_cursor']}"))
    assert (len(rest["results"]), rest["next_cursor"]) == (5, None)
    ok(client.get(f"/memories?user_id=ana&q=other&cursor={page['next_cursor']}"), 400)
    for unusable in ("", " ", "x" * 257):
        assert ok(client.get("/memories", params={"user_id": "ana", "q": unusable}), 400)["detail"].startswith("q")


def test_a_list_of_kinds_and_of_a_past_moment(client: TestClient, memory: Memory) -> None:
    early = memory.add("I like tea.", user_id="ana", timestamp="2020-01-01")["results"][0]["id"]
    added(client)
    assert ids_of(ok(client.get("/memories?user_id=ana&as_of=2021-01-01"))) == [early]
    assert ok(client.get("/memories?user_id=ana&kinds=fact,summary"))["total"] == 0
    assert ok(client.get("/memories?user_id=ana&kinds=fact&kinds=episode"))["total"] == 2
    ok(client.get("/memories?user_id=ana&kinds=letter"), 400)
    ok(client.get("/memories?user_id=ana&as_of=yesterday"), 400)


@pytest.mark.parametrize("ids", [{"user_id": "ana"}, {}], ids=["user", "all"])
def test_a_list_by_type_of_name_and_by_time(make: Make, ids: dict[str, str]) -> None:
    memory = make()
    with client_of(memory) as client:
        texts = ["Clara met Dora.", "nothing to name.", "Clara sings.", "Ben drinks tea."]
        met, nameless, sings, tea = (
            added(client, text, timestamp=f"2026-05-0{day}T12:00:00Z") for day, text in enumerate(texts, 1)
        )
        clara_type = memory.entity("Clara", user_id="ana")["type"]  # type: ignore[index]

        def listed(**params: Any) -> list[str]:
            answer = ok(client.get("/memories", params={**ids, **params}))
            assert answer["total"] >= len(answer["results"])
            return ids_of(answer)

        assert listed(mentions_type=clara_type.lower()) == [tea, sings, met]
        assert listed(mentions_type="Event") == []
        assert listed(since="2026-05-02T12:00:00Z", until="2026-05-04T12:00:00Z") == [sings, nameless]
        assert listed(until="2026-05-02T14:00:00+02:00", mentions_type=clara_type) == [met]
        params = {**ids, "mentions_type": clara_type, "limit": "2"}
        page = ok(client.get("/memories", params=params))
        assert (ids_of(page), page["total"]) == ([tea, sings], 3)
        rest = {**params, "cursor": page["next_cursor"]}
        assert ids_of(ok(client.get("/memories", params=rest))) == [met]
        ok(client.get("/memories", params={**rest, "mentions_type": "Event"}), 400)
        for wrong in ({"mentions_type": "Dragon"}, {"since": "soon"}, {"until": "soon"}):
            (name,) = wrong
            assert name in ok(client.get("/memories", params={**ids, **wrong}), 400)["detail"]


def test_an_admin_lists_the_memories_of_all(client: TestClient) -> None:
    expected = {added(client), added(client, user_id="ben")}
    answer = ok(client.get("/memories"))
    assert set(ids_of(answer)) == expected
    assert answer["total"] == 2


@pytest.mark.parametrize("ids", [{"user_id": "ana"}, {"agent_id": "maid"}, {}], ids=["user", "agent", "all"])
def test_pages_neither_skip_nor_repeat_when_memories_change(
    client: TestClient, memory: Memory, ids: dict[str, str]
) -> None:
    # Some of one moment, some of others.
    for number in range(12):
        day = 1 + max(0, number - 5)
        memory.add(f"Tea {number}.", user_id="ana", agent_id="maid", timestamp=f"2026-05-{day:02}")
    before = {one["id"] for one in memory.get_all(user_id="ana")["results"]}
    shown: list[str] = []
    cursor = ""
    while cursor is not None:
        page = ok(client.get("/memories", params={**ids, "limit": 3, "cursor": cursor}))
        shown += ids_of(page)
        cursor = page["next_cursor"]
        memory.delete(page["results"][0]["id"])
        memory.add(f"Coffee, {len(shown)}.", user_id="ana", agent_id="maid")
    assert len(shown) == len(set(shown))
    assert set(shown) == before


def test_a_page_after_an_erased_memory_misses_none(client: TestClient, memory: Memory) -> None:
    texts = [{"role": "user", "content": f"Tea {number}."} for number in range(6)]
    memory.add(texts, user_id="ana", timestamp="2026-05-01")
    every = [one["id"] for one in memory.get_all(user_id="ana")["results"]]
    page = ok(client.get("/memories?user_id=ana&limit=3"))
    memory.delete(every[2])
    rest = ok(client.get("/memories", params={"user_id": "ana", "cursor": page["next_cursor"]}))
    assert set(every[3:]) <= set(ids_of(rest))


def test_a_cursor_belongs_to_its_list(client: TestClient) -> None:
    for user_id, text in (("ana", "I like tea."), ("ana", "I like cake."), ("ben", "I like tea.")):
        added(client, text, user_id=user_id)
    cursor = ok(client.get("/memories?user_id=ana&limit=1"))["next_cursor"]
    for params in ({"user_id": "ben"}, {}, {"user_id": "ana", "kinds": "episode"}):
        assert ok(client.get("/memories", params={**params, "cursor": cursor}), 400)["detail"].startswith("cursor")
    ok(client.get("/memories?user_id=ana&cursor=nonsense"), 400)


def test_former_words_are_looked_for_with_what_is_retired_and_gone_when_erased(
    client: TestClient, memory: Memory
) -> None:
    edited, other = (memory.add(text, user_id="ana")["results"][0]["id"] for text in ("At 12 Harbour Street.", "Tea."))
    memory.update(edited, "At 5 Mill Lane.")
    memory.update(other, "Green tea, at harbour.")

    def found(q: str, **more: Any) -> tuple[list[str], int, int]:
        page = ok(client.get("/memories", params={"user_id": "ana", "q": q, **more}))
        return ids_of(page), page["total"], page.get("retired", 0)

    assert found("harbour street") == ([], 0, 0)
    assert found("harbour street", show_retired=True) == ([edited], 1, 0)
    assert found("mill lane", show_retired=True) == found("mill lane") == ([edited], 1, 0)
    assert found("harbour street mill", show_retired=True) == ([], 0, 0)
    assert found("harbour", retired_only=True) == ([], 0, 0)
    ok(client.delete(f"/memories/{edited}"))
    assert found("harbour street", show_retired=True) == ([], 0, 0)
    assert "Harbour" not in client.get("/export").text


def test_the_same_words_sent_again_within_a_minute_are_one_memory(client: TestClient) -> None:
    body = {"messages": "I moved to Bergen.", "user_id": "ana"}
    first, again = (ok(client.post("/memories", json=body))["results"][0] for _ in range(2))
    assert (first["event"], again["event"], again["id"]) == ("ADD", "NONE", first["id"])
    assert ok(client.post("/memories", json={**body, "user_id": "ben"}))["results"][0]["event"] == "ADD"
    assert ok(client.get("/memories?user_id=ana"))["total"] == 1


def test_all_memories_of_a_scope_are_erased(client: TestClient) -> None:
    added(client)
    kept = added(client, user_id="ben")
    assert "missing" in ok(client.delete("/memories"), 400)["detail"]
    receipt = ok(client.delete("/memories?user_id=ana"))
    assert receipt["message"] == "All relevant memories deleted"
    assert len(receipt["deleted"]) == 1
    assert ids_of(ok(client.get("/memories"))) == [kept]


def test_an_admin_with_a_default_user_names_whom_to_erase(memory: Memory) -> None:
    with client_of(memory, default_user="ana") as client:
        added(client)
        ok(client.delete("/memories"), 400)
        assert ok(client.get("/memories"))["total"] == 1


# --- searching ------------------------------------------------------------------------------------------------------


def test_a_search_finds_by_ids_in_the_body_or_in_filters(client: TestClient) -> None:
    memory_id = added(client, metadata={"topic": "home"})
    added(client, user_id="ben")
    for where in (
        {"user_id": "ana"},
        {"filters": {"user_id": "ana"}},
        {"filters": {"AND": [{"user_id": "ana"}]}},
        {"filters": {"AND": [{"user_id": "ana"}, {"topic": "home"}]}},
        {"user_id": "ana", "filters": {"topic": "home"}},
        {"user_id": "ana", "filters": {"topic": "*"}},
        {"filters": {"AND": [{"AND": [{"user_id": "ana"}]}, {"topic": "home"}]}},
        {"filters": {"AND": [{"user_id": "ana", "topic": "home"}]}},
    ):
        answer = ok(client.post("/search", json={"query": "Where is Bergen?", **where}))
        assert ids_of(answer) == [memory_id], where
        assert "explain" not in answer["results"][0]
    assert ids_of(ok(client.post("/search", json={"query": "x", "user_id": "ana", "filters": {"topic": "y"}}))) == []
    for where in (
        {"user_id": "ana", "filters": {"user_id": "ben"}},
        {"filters": {"AND": [{"user_id": "ana"}, {"user_id": "ben"}]}},
        {"filters": {"OR": [{"user_id": "ana"}, {"user_id": "ben"}]}},
        {"filters": {"user_id": "*"}},
    ):
        ok(client.post("/search", json={"query": "Where is Bergen?", **where}), 400)


def test_a_search_explains_its_hits_as_mem0_does_and_as_graphmem_does(client: TestClient) -> None:
    added(client)
    options = {"explain": True, "threshold": -1, "top_k": 3, "show_expired": False, "kinds": ["episode"]}
    hit = ok(client.post("/search", json={"query": "Where is Bergen?", "user_id": "ana", **options}))["results"][0]
    assert set(hit["explain"]) >= {"arms", "path", "why"}
    assert hit["score_details"]["final_score"] == hit["score"]
    assert hit["score_details"]["semantic_score"] == hit["similarity"]
    assert hit["score_details"]["bm25_score"] == hit["explain"]["arms"]["keyword"]["score"]
    added(client, "Bergen is where Ida works.")
    hits = ok(client.post("/search", json={"query": "Where is Bergen?", "user_id": "ana", **options}))["results"]
    boosts = [one["score_details"]["entity_boost"] for one in hits]
    assert boosts == [one["explain"]["arms"].get("graph", {"score": 0})["score"] for one in hits]
    assert max(boosts) > 0
    assert hit["score_details"]["threshold"] == -1
    assert 0 < hit["relevance"] < 1


@pytest.mark.parametrize("path", ["/search", "/v3/memories/search/"])
def test_a_search_leaves_out_what_is_below_the_least_relevance(client: TestClient, memory: Memory, path: str) -> None:
    memory.add(["Bergen is in Norway.", "I like tea."], user_id="ana")

    def relevances(**options: Any) -> list[float]:
        found = ok(client.post(path, json={"query": "Where is Bergen?", "user_id": "ana", **options}))["results"]
        return [hit["relevance"] for hit in found]

    every = relevances()
    assert len(every) == 2
    assert relevances(min_relevance=max(every)) == [max(every)]
    assert relevances(min_relevance="default") == relevances(top_k="auto") == [max(every)]
    assert relevances(min_relevance=None) == every


def test_values_of_another_type_are_refused(client: TestClient) -> None:
    for field, value in (("top_k", False), ("query", 3), ("explain", "yes"), ("filters", [])):
        body = {"query": "Where?", "user_id": "ana", field: value}
        assert field in ok(client.post("/search", json=body), 422)["detail"]


@pytest.mark.parametrize(
    ("messages", "detail"),
    [
        (5, "messages: should be a string or an object or a list; it is a number"),
        ([5], "messages.0: should be an object; it is a number"),
        ({"content": "Tea."}, "messages.role: is missing"),
        (
            [{"role": "user", "content": 5}],
            "messages.0.content: should be a string or an object or a list; it is a number",
        ),
        (
            [{"role": "user", "content": ["Tea.", 5]}],
            "messages.0.content.1: should be a string or an object; it is a number",
        ),
        ([{"role": "user", "content": "Tea."}, {"role": 1}], "messages.1.role: should be a string; it is a number"),
    ],
)
def test_an_error_names_the_field_and_no_types_of_python(client: TestClient, messages: Any, detail: str) -> None:
    body = {"messages": messages, "user_id": "ana"}
    assert ok(client.post("/memories", json=body), 422)["detail"] == detail


def test_the_fields_of_an_update_have_the_names_of_the_request(client: TestClient) -> None:
    path = f"/memories/{added(client)}"
    assert ok(client.put(path, json={"text": ""}), 400)["detail"].startswith("text (a string): is empty")
    assert "give text, metadata or expiration_date" in ok(client.put(path, json={}), 400)["detail"]


def test_a_field_at_the_wrong_place_is_told_its_place(client: TestClient) -> None:
    path = f"/memories/{added(client)}"
    for place in (path, "/settings"):
        detail = ok(client.put(place, json={"user_id": "ana"}), 422)["detail"]
        assert detail == "user_id: is no field of this request; it belongs in the query"
    assert ok(client.post("/flush?user_id=ana"), 422)["detail"] == "user_id: is no field of this request"
    misspelt = ok(client.post("/search", json={"qery": "tea", "query": "tea", "user_id": "ana"}), 422)["detail"]
    assert misspelt == "qery: is no field of this request; did you mean query?"
    assert ok(client.get("/graph?user_id=ana&hops=99"), 422)["detail"] == "hops: should be less than or equal to 10"


def test_a_time_in_a_query_is_taken_as_it_is_usually_sent(client: TestClient) -> None:
    ok(client.post("/memories", json={"messages": [{**BOB, "timestamp": "2024-11-25T01:00:00Z"}], "user_id": "ana"}))

    def total(as_of: str) -> int:
        found: int = ok(client.get(f"/memories?user_id=ana&as_of={as_of}"))["total"]
        return found

    # 2024-11-25T02:00:00 and an hour and a half before it
    for later in ("1732500000", "1732500000.5", "2024-11-25T02:00:00+00:00", "2024-11-25T03:00:00%2B01:00", "20241126"):
        assert total(later) == 1, later
    for earlier in ("1732490000", "2024-11-25T02:00:00+01:30", "2024-11-25+02:00:00+0130", "20241125", "-1"):
        assert total(earlier) == 0, earlier
    for unusable in ("soon", "2024-11-25T02:00:00%20UTC", "9" * 400, "1e5"):
        detail = ok(client.get(f"/memories?user_id=ana&as_of={unusable}"), 400)["detail"]
        assert "ISO 8601 text or epoch seconds" in detail
        assert unusable not in detail


def test_every_route_takes_the_same_times_in_its_query(client: TestClient) -> None:
    ok(client.post("/memories", json={"messages": [{**BOB, "timestamp": "2024-11-25T01:00:00Z"}], "user_id": "ana"}))
    for path, field in (("/graph", "nodes"), ("/memories", "results")):
        for later in ("1732500000", "2024-11-25T03:00:00+01:00"):
            assert ok(client.get(f"{path}?user_id=ana&as_of={later}"))[field], (path, later)
        assert not ok(client.get(f"{path}?user_id=ana&as_of=2024-11-25T02:00:00+01:30"))[field]
    for path in ("/graph", "/graph/entities/bob", "/memories"):
        assert "as_of" in ok(client.get(f"{path}?user_id=ana&as_of=soon"), 400)["detail"]
    ok(client.delete("/lifecycle/forgotten?user_id=ana&confirm=true&forgotten_before=2024-11-25T03:00:00+01:00"))


def test_an_expiration_date_is_text_or_a_number(client: TestClient) -> None:
    path = f"/memories/{added(client, expiration_date=4_000_000_000)}"
    assert ok(client.get(path))["expiration_date"].startswith("2096-10-02")
    assert ok(client.put(path, json={"expiration_date": 4_100_000_000}))["expiration_date"].startswith("2099-12-03")


# --- roles ----------------------------------------------------------------------------------------------------------


def test_a_users_key_reaches_that_users_memories_only(memory: Memory) -> None:
    with client_of(memory, "user") as client:
        own = added(client)
        bens = memory.add("Ben likes tea.", user_id="ben")["results"][0]["id"]
        assert ids_of(ok(client.get("/memories"))) == [own]
        unknown = ok(client.get("/memories/unknown"), 404)
        for method, path, body in (
            ("GET", "", None), ("PUT", "", {"text": "x"}), ("DELETE", "", None), ("GET", "/history", None),
        ):  # fmt: skip
            answer = ok(client.request(method, f"/memories/{bens}{path}", json=body), 404)
            assert answer | {"request_id": ""} == unknown | {"request_id": ""}
        for method, path, body in (
            ("GET", "/memories?user_id=ben", None),
            ("DELETE", "/memories?user_id=ben", None),
            ("GET", f"/memories/{bens}?user_id=ben", None),
            ("POST", "/memories", {"messages": [BOB], "user_id": "ben"}),
            ("POST", "/search", {"query": "tea", "filters": {"user_id": "ben"}}),
            ("POST", "/search", {"query": "tea", "filters": {"AND": [{"user_id": "ben"}]}}),
            ("POST", "/v3/memories/", {"filters": {"user_id": "ben"}}),
            ("POST", "/v3/memories/add/", {"messages": [BOB], "filters": {"user_id": "ben"}}),
        ):
            assert ok(client.request(method, path, json=body), 403)["code"] == "other_scope"
        assert ok(client.delete("/memories"))["deleted"] == [own]
    assert memory.get(bens) is not None


def test_an_apps_key_names_the_user_of_each_call(memory: Memory) -> None:
    with client_of(memory, "app") as client:
        own = added(client)
        assert ids_of(ok(client.get("/memories?user_id=ana"))) == [own]
        assert ok(client.get(f"/memories/{own}?user_id=ana"))["id"] == own
        ok(client.get(f"/memories/{own}?user_id=ben"), 404)
        for method, path, body in (
            ("GET", "/memories", None),
            ("DELETE", "/memories", None),
            ("GET", f"/memories/{own}", None),
            ("PUT", f"/memories/{own}", {"text": "x"}),
            ("DELETE", f"/memories/{own}", None),
            ("POST", "/memories", {"messages": [BOB], "agent_id": "maid"}),
            ("POST", "/search", {"query": "tea"}),
        ):
            assert "user_id" in ok(client.request(method, path, json=body), 400)["detail"]


ADMIN_ROUTES = (
    ("POST", "/reset"), ("GET", "/configure"), ("POST", "/configure"), ("GET", "/entities"),
    ("DELETE", "/entities/user/ana"), ("GET", "/requests"), ("GET", "/api-keys"), ("POST", "/api-keys"),
    ("DELETE", "/api-keys/x"), ("GET", "/v1/entities/"), ("DELETE", "/v2/entities/user/ana/"),
    ("GET", "/api/v1/orgs/organizations/graphmem/projects/graphmem/"),
)  # fmt: skip


@pytest.mark.parametrize("role", ["user", "app", "metrics"])
def test_only_an_admin_administers(memory: Memory, role: str) -> None:
    memory.add("Ana likes tea.", user_id="ana")
    with client_of(memory, role) as client:
        for method, path in ADMIN_ROUTES:
            body = {"label": "x"} if method == "POST" and path != "/reset" else None
            assert ok(client.request(method, path, json=body), 403)["code"] == "other_role"
        if role == "metrics":
            for method, path in (("GET", "/memories"), ("GET", "/memories/x"), ("GET", "/v1/ping/")):
                ok(client.request(method, path), 403)
    assert memory.get_all(user_id="ana")["total"] == 1


# --- beside memories ------------------------------------------------------------------------------------------------


def test_the_configuration_is_shown_without_secrets(make_memory: Make) -> None:
    llm = {"provider": "openai", "config": {"api_key": "sk-very-secret", "openai_base_url": "http://u:pw@127.0.0.1:9"}}
    memory = make_memory(llm=llm, secret_key="a-secret-of-the-ledger-" * 3)
    with client_of(memory) as client:
        shown = client.get("/configure")
        config = ok(shown)["llm"]["config"]
        assert config["api_key"] == config["openai_base_url"] == ok(shown)["secret_key"] == "***"
        for secret in ("sk-very-secret", "pw@", "a-secret-of"):
            assert secret not in shown.text
        assert ok(client.get("/configure/providers")) == {
            "llm": ["openai"], "embedder": ["callable", "minilm", "openai"],
        }  # fmt: skip
        ok(client.post("/configure", json={"top_k": 3}))
        assert ok(client.get("/settings"))["settings"]["top_k"] == 3
        assert "top_k" in ok(client.post("/configure", json={"top_k": "many", "rounds": 1}), 422)["detail"]
        assert ok(client.get("/settings"))["settings"]["rounds"] == 2
        assert "configuration file" in ok(client.post("/configure", json={"llm": None}), 409)["detail"]


def test_users_agents_and_runs_are_listed_with_counts_and_erased(client: TestClient, memory: Memory) -> None:
    added(client, agent_id="maid", run_id="r1")
    added(client, "I like tea.")
    bens = memory.add([BOB], user_id="ben/1", run_id="r2")["results"][0]["id"]
    with memory.engine.ledger.write() as connection:  # as facts that were said in two runs
        record = memories.records(connection, [bens])[bens]
        memories.set_further_runs(connection, record.row, ["r3"])
    entities = ok(client.get("/entities"))
    assert [(one["type"], one["id"], one["total_memories"]) for one in entities] == [
        ("user", "ana", 2), ("user", "ben/1", 1), ("agent", "maid", 1), ("run", "r1", 1), ("run", "r2", 1),
        ("run", "r3", 1),
    ]  # fmt: skip
    assert all(one["created_at"] <= one["updated_at"] for one in entities)
    assert len(ok(client.get("/entities?limit=2"))) == 2
    assert ok(client.delete("/entities/agent/maid"))["message"] == "Entity deleted"
    assert len(ok(client.delete("/entities/user/ben%2F1"))["deleted"]) == 1
    assert [one["id"] for one in ok(client.get("/entities"))] == ["ana"]
    ok(client.delete("/entities/app/x"), 422)


def test_the_latest_requests_are_listed_without_paths(client: TestClient) -> None:
    memory_id = added(client)
    client.get(f"/memories/{memory_id}?user_id=ana")
    client.get("/secret/place")
    answer = client.get("/requests?limit=3")
    shown = [(one["method"], one["route"], one["status"], one["role"]) for one in ok(answer)]
    assert shown == [
        ("GET", "-", 404, "admin"),
        ("GET", "/memories/{memory_id}", 200, "admin"),
        ("POST", "/memories", 200, "admin"),
    ]
    assert not {memory_id, "ana", "secret"} & set(answer.text.replace("/", '"').split('"'))
    ok(client.get("/requests?limit=201"), 422)
    for _ in range(210):
        client.get("/healthz")
    assert len(ok(client.get("/requests?limit=200"))) == 200


def test_a_key_is_made_shown_once_and_revoked(client: TestClient, memory: Memory) -> None:
    made = ok(client.post("/api-keys", json={"label": "phone", "user_id": "ana", "expires_at": "2999-01-01"}), 201)
    assert {"id", "key", "label", "key_prefix", "created_at"} <= set(made)
    assert (made["role"], made["user_id"]) == ("user", "ana")
    assert made["key"].startswith(made["key_prefix"])
    sent = {"X-API-Key": made["key"]}
    ok(client.get("/memories", headers=sent))
    listed = client.get("/api-keys")
    assert made["id"] in [one["id"] for one in ok(listed)]
    assert made["key"] not in listed.text
    ok(client.delete(f"/api-keys/{made['id']}"))
    ok(client.get("/memories", headers=sent), 401)
    assert next(one for one in ok(client.get("/api-keys")) if one["id"] == made["id"])["revoked_at"]
    ok(client.delete("/api-keys/unknown"), 404)
    assert ok(client.post("/api-keys", json={"label": "chat"}), 201)["role"] == "app"
    rare = ok(client.post("/api-keys", json={"label": "rare", "rate": "5/day"}), 201)
    assert (rare["rate"], rare["last_used_at"]) == ("5/day", None)
    assert "rate" in ok(client.post("/api-keys", json={"label": "x", "rate": "often"}), 400)["detail"]
    ok(client.post("/api-keys", json={"label": "x", "role": "user"}), 400)
    ok(client.post("/api-keys", json={"label": "x", "role": "king"}), 422)


def test_a_reset_erases_the_memories_of_all_and_keeps_keys(client: TestClient, memory: Memory) -> None:
    added(client)
    other = headers(memory, "app")
    assert ok(client.post("/reset"))["message"] == "All memories reset"
    assert ok(client.get("/memories"))["total"] == 0
    assert ok(client.get("/memories?user_id=ana", headers=other))["total"] == 0


def test_the_root_leads_to_the_page_without_a_key(memory: Memory) -> None:
    with client_of(memory, role=None) as client:
        answer = client.get("/", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/auth/login"), ("GET", "/auth/a/b"), ("POST", "/generate-instructions")]
)
def test_routes_of_mem0_that_are_missing_say_why(client: TestClient, method: str, path: str) -> None:
    detail = ok(client.request(method, path), 404)["detail"]
    assert "here" in detail
    assert "openapi" not in detail


# --- mem0's platform client -----------------------------------------------------------------------------------------


@contextmanager
def platform_client(address: str, key: str) -> Iterator[Any]:
    """mem0's own client. Its log of failed requests has their addresses, so it is off."""
    from mem0 import MemoryClient

    logging.getLogger("mem0.client.utils").setLevel(logging.CRITICAL)
    with httpx.Client(timeout=TIMEOUT) as http:
        yield MemoryClient(api_key=key, host=address, client=http)


def test_mem0s_platform_client_works_against_the_service(memory: Memory) -> None:
    key = Keys(memory).create("admin").text
    with served(memory) as address, platform_client(address, key) as client:
        stored = client.add([BOB], user_id="ana", metadata={"topic": "home"})
        (memory_id,) = ids_of(stored)
        client.add("I like tea.", filters={"user_id": "ana"}, agent_id="maid", async_mode=False)
        assert memory_id in ids_of(client.search("Where is Bergen?", filters={"user_id": "ana"}, rerank=True, top_k=5))
        assert ids_of(client.search("Bergen", filters={"AND": [{"user_id": "ana"}, {"topic": "home"}]})) == [memory_id]
        listed = client.get_all(filters={"user_id": "ana"})
        assert (listed["count"], listed["next"], listed["previous"]) == (2, None, None)
        first = client.get_all(filters={"user_id": "ana"}, page=1, page_size=1)
        second = client.get_all(filters={"user_id": "ana"}, page=2, page_size=1)
        assert ids_of(first) + ids_of(second) == ids_of(listed)
        assert "page=2" in first["next"]
        assert "page=1" in second["previous"]
        assert client.get(memory_id)["memory"] == BOB["content"]
        assert client.update(memory_id, text="I moved to Oslo.")["memory"] == "I moved to Oslo."
        assert [event["event"] for event in client.history(memory_id)] == ["ADD", "UPDATE"]
        users = client.users()["results"]
        assert [(one["type"], one["name"], one["total_memories"]) for one in users] == [
            ("user", "ana", 2), ("agent", "maid", 1),
        ]  # fmt: skip
        assert client.delete(memory_id)["message"] == "Memory deleted successfully"
        client.delete_users(agent_id="maid")
        assert client.get_all(filters={"user_id": "ana"})["count"] == 0
        client.add("I like coffee.", user_id="ana")
        assert client.delete_all(user_id="ana")["message"] == "All relevant memories deleted"
        assert client.users()["count"] == 0


def test_mem0s_platform_client_reports_a_wrong_key_and_an_unknown_id(memory: Memory) -> None:
    from mem0.exceptions import MemoryNotFoundError

    key = Keys(memory).create("user", user_id="ana").text
    with served(memory) as address:
        with pytest.raises(ValueError, match="not valid"), platform_client(address, "gm_00000000_x"):
            pass
        with platform_client(address, key) as client:
            assert [one["event"] for one in client.add("I like tea.")["results"]] == ["ADD"]
            with pytest.raises(MemoryNotFoundError):
                client.get("unknown")


def test_requests_that_add_memories_have_a_rate_of_their_own_by_either_path(memory: Memory) -> None:
    with client_of(memory, add_rate="1/hour") as client:
        added(client)
        ok(client.post("/v3/memories/add/", json={"messages": "I like tea.", "user_id": "ana"}), 429)
        ok(client.get("/memories?user_id=ana"))
