"""The lifecycle over HTTP: forgetting, pins, and a cycle that is seen before it runs, run, and undone."""

from __future__ import annotations

from typing import Any

import pytest
from support.ages import make_older
from support.contract import Make
from support.service import client_of

LATER = "2999-01-01"


@pytest.fixture
def memory(make_memory: Make) -> Any:
    return make_memory(lifecycle={"enabled": True, "since": "2026-01-01", "daily_at": "never", "purge_after_days": 30})


def test_a_cycle_over_http(memory: Any) -> None:
    memory.add(["I like tea.", "The weather is grey."], user_id="ana")
    with client_of(memory) as client:
        ana = {"user_id": "ana"}
        dry = client.post("/lifecycle/cycles", params=ana, json={"dry_run": True, "now": LATER}).json()
        assert [(change["change"], change["memory"]) for change in dry["changes"]] == [
            ("promote", "I like tea."), ("forget", "The weather is grey."),
        ]  # fmt: skip
        make_older(memory, 9)
        result = client.post("/lifecycle/cycles", params=ana).json()
        assert (result["forgotten"], result["promoted"]) == (1, 1)
        (listed,) = client.get("/lifecycle/forgotten", params=ana).json()["results"]
        assert (listed["memory"], listed["reason"]) == ("The weather is grey.", "retention below 0.1")
        status = client.get("/lifecycle", params=ana).json()
        assert (status["enabled"], status["layers"]) == (True, {"short_term": 0, "long_term": 1})
        assert (status["forgotten"], status["pinned"]) == (1, 0)
        assert [(one["cycle"], one["undone"]) for one in status["cycles"]] == [(result["cycle"], False)]
        assert client.get("/lifecycle", params={**ana, "limit": 0}).status_code == 422
        undone = client.post("/lifecycle/undo", params=ana, json={"cycle": result["cycle"]}).json()
        assert (len(undone["undone"]), undone["skipped"]) == (2, 0)
        client.post(f"/memories/{listed['id']}/forget", params=ana)
        make_older(memory, 31)
        dry = client.post("/lifecycle/cycles", params=ana, json={"dry_run": True}).json()
        assert (dry["changes"][-1]["change"], dry["purged"]) == ("purge", 1)
        unmeant = client.delete("/lifecycle/forgotten", params=ana)
        assert (unmeant.status_code, "add confirm=true to the query" in unmeant.json()["detail"]) == (400, True)
        assert "True" not in unmeant.text
        receipt = client.delete("/lifecycle/forgotten", params={**ana, "confirm": True}).json()
        assert receipt["deleted"] == [listed["id"]]


def test_memories_are_abstracted_over_http(memory: Any) -> None:
    (dated,) = (one["id"] for one in memory.add("On Monday Ana bought a latte.", user_id="ana")["results"])
    with client_of(memory) as client:
        ana = {"user_id": "ana"}
        made = client.post("/lifecycle/abstractions", params=ana, json={"ids": [dated]}).json()
        (one,) = made["results"]
        assert (one["memory"], one["level"], one["abstracts"]) == ("Ana bought a latte.", 1, [dated])
        skipped = client.post("/lifecycle/abstractions", params=ana, json={"ids": [dated], "level": 2}).json()[
            "skipped"
        ]
        assert skipped == {"abstract": "needs a language model, and none is configured"}
        assert client.post("/lifecycle/abstractions", params=ana, json={"level": 4}).status_code in {400, 422}
        assert client.post("/lifecycle/abstractions", json={}).status_code == 400
        undone = client.post("/lifecycle/undo", params=ana, json={"cycle": made["cycle"]}).json()
        assert undone["undone"] == [one["id"]]


def test_a_forgotten_memory_is_shown_again_by_the_event_of_its_line(memory: Any) -> None:
    (tea,) = (one["id"] for one in memory.add("I like tea.", user_id="ana")["results"])
    memory.forget(tea, user_id="ana")
    with client_of(memory, role="user") as client:
        (listed,) = client.get("/lifecycle/forgotten").json()["results"]
        client.post(f"/events/{listed['event_id']}/undo")
        assert client.get("/lifecycle/forgotten").json() == {"results": [], "total": 0}
        assert [one["id"] for one in client.get("/memories").json()["results"]] == [tea]
        assert client.get("/lifecycle", params={"user_id": "ben"}).status_code == 403


def test_forget_and_pin_over_http(memory: Any) -> None:
    (tea,) = (one["id"] for one in memory.add("I like tea.", user_id="ana")["results"])
    with client_of(memory) as client:
        ana = {"user_id": "ana"}
        assert client.put(f"/memories/{tea}/pin", params=ana).json()["pinned"]
        assert "pinned" not in client.delete(f"/memories/{tea}/pin", params=ana).json()
        forgotten = client.post(f"/memories/{tea}/forget", params=ana, json={"reason": "asked"}).json()
        assert client.get("/memories", params=ana).json()["results"] == []
        shown = client.get("/memories", params={**ana, "show_forgotten": True}).json()["results"]
        assert [one["forgotten_at"] for one in shown] == [forgotten["forgotten_at"]]
        client.post(f"/events/{forgotten['event_id']}/undo", params=ana)
        assert client.post("/search", json={"query": "tea", **ana}).json()["results"][0]["id"] == tea
