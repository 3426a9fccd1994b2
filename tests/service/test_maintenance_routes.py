"""Routes for counts, usage, checks and repairs: the answers are those of the library, and who may have them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.databases import SQLITE_ONLY
from support.service import client_of, headers, ok
from support.waiting import TIMEOUT

from graphmem import Memory
from graphmem.stores.ledger import schema
from graphmem.testing import ModelEndpoint

Make = Callable[..., Memory]
SINGS = json.dumps({"facts": [{"text": "Sings", "messages": [1]}]})
NONSENSE = "I would rather talk about the weather."


def with_model(make_memory: Make, endpoint: ModelEndpoint) -> Memory:
    config = {"openai_base_url": endpoint.url, "api_key": "any", "model": "scripted", "timeout": TIMEOUT}
    return make_memory(llm={"provider": "openai", "config": config}, summary_messages=0)


def test_reports_are_those_of_the_library(client: TestClient, memory: Memory) -> None:
    memory.add(["I like tea.", "I like cake."], user_id="ana")
    assert ok(client.get("/stats")) == memory.stats()
    assert ok(client.post("/verify")) == memory.verify()
    assert ok(client.post("/repair")) == memory.verify()
    assert ok(client.post("/flush")) == {"pending": []}
    assert ok(client.post("/retry"), 409)["code"] == "not_configured"


@SQLITE_ONLY
def test_a_lost_vector_is_reported_and_repaired(client: TestClient, memory: Memory) -> None:
    memory_id = memory.add("I like tea.", user_id="ana")["results"][0]["id"]
    memory.search("tea", user_id="ana")
    with memory.engine.ledger.write() as connection:
        connection.execute(schema.embeddings.delete())
    report = ok(client.post("/verify"))
    assert (report["ok"], report["projections"]["vectors"]["missing"]) == (False, [memory_id])
    assert ok(client.post("/repair"))["ok"]
    assert ok(client.post("/verify"))["ok"]


@pytest.mark.thorough  # it opens a folder twice
def test_another_configured_embedder_is_named(make: Make, tmp_path: Any) -> None:
    with make(tmp_path) as memory:
        memory.add("I like tea.", user_id="ana")
    with client_of(make(tmp_path, size=32)) as client:
        stats = ok(client.get("/stats"))
    assert (stats["embedder_dims"], stats["configured_embedder_dims"]) == (64, 32)


def test_usage_is_that_of_the_user_and_counts_are_an_admins(make_memory: Make) -> None:
    with ModelEndpoint(default=SINGS) as endpoint:
        memory = with_model(make_memory, endpoint)
        for user in ("ana", "ana", "ben"):
            memory.add("I sing.", user_id=user, run_id=f"{user}{len(endpoint.requests)}")
        own, app = headers(memory, "user", user_id="ben"), headers(memory, "app")
        with client_of(memory) as client:
            assert ok(client.get("/stats")) == memory.stats()
            assert ok(client.get("/stats", params={"user_id": "ben"})) == memory.stats(user_id="ben")
            for sent, params in ((own, {}), (app, {"user_id": "ben"})):
                answer = ok(client.get("/stats", params=params, headers=sent))
                assert answer == {"usage": memory.stats(user_id="ben")["usage"]}
                assert answer["usage"][0]["calls"] < memory.stats()["usage"][0]["calls"]
            ok(client.get("/stats", params={"user_id": "ana"}, headers=own), 403)
            ok(client.get("/stats", headers=app), 400)
            ok(client.get("/stats", params={"app_id": "x"}), 422)


def test_failed_jobs_run_again(make_memory: Make) -> None:
    with ModelEndpoint(default=NONSENSE) as endpoint:
        memory = with_model(make_memory, endpoint)
        memory.add("I sing.", user_id="ana")
        with client_of(memory) as client:
            answer = ok(client.post("/retry"))
            assert answer == memory.retry_failed()
            assert (answer["failed"], answer["pending"]) == ({"LLMUnusable": 1}, ["facts"])
            assert answer["causes"]["LLMUnusable"].startswith("the model's answer")
            endpoint._default = SINGS
            assert ok(client.post("/retry")) == {"done": 1, "failed": {}, "pending": []}


PATHS = "/verify", "/repair", "/flush", "/retry"


@pytest.mark.parametrize("path", PATHS)
def test_a_parameter_that_would_be_ignored_is_refused(client: TestClient, path: str) -> None:
    assert "repair" in ok(client.post(path, params={"repair": True}), 422)["detail"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("role", ["user", "app", "metrics"])
def test_maintenance_takes_an_admin(memory: Memory, path: str, role: str) -> None:
    with client_of(memory, role=role) as client:
        assert ok(client.post(path), 403)["code"] == "other_role"
