"""Answers have at most `limits.MAX_PAGE_BYTES`: a list goes on at a cursor, every other one is refused in time."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from mcp import Client
from starlette.testclient import TestClient
from support.mcp_clients import server_of
from support.service import client_of, ok, served
from support.waiting import TIMEOUT, wait_until

from graphmem import Memory, chat_worker
from graphmem.boundary import filters
from graphmem.concurrency import WorkStopped, raise_if_stopped
from graphmem.service import limits
from graphmem.stores.ledger import memories

# Memories, and bytes of the metadata of each.
MEMORIES, BYTES = 40, 5000
LIMIT = 10 * BYTES


@pytest.fixture
def memory(make_memory: Any, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """A memory with large memories of one user."""
    monkeypatch.setattr(limits, "MAX_PAGE_BYTES", LIMIT)
    memory: Memory = make_memory()
    note = {"role": "user", "metadata": {"blob": "x" * BYTES}}
    memory.add([{**note, "content": f"Note {number} about Lisbon."} for number in range(MEMORIES)], user_id="ana")
    return memory


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The ids of the memories that are read from the ledger, one for each time."""
    read, decode = list[str](), memories.decode_record

    def note(row: Any) -> Any:
        read.append(row["uid"])
        return decode(row)

    monkeypatch.setattr(memories, "decode_record", note)
    return read


def test_the_pages_of_a_list_end_at_the_limit_and_lose_nothing(
    client: TestClient, memory: Memory, decoded: list[str]
) -> None:
    found, cursor, pages = [], "", 0
    while cursor is not None:
        decoded.clear()
        response = client.get("/memories", params={"user_id": "ana", "limit": 1000, "cursor": cursor})
        page = ok(response)
        assert len(response.content) <= LIMIT
        assert page["total"] == MEMORIES
        assert len(decoded) < MEMORIES / 2
        found += [one["id"] for one in page["results"]]
        cursor, pages = page["next_cursor"], pages + 1
    assert found == [one["id"] for one in memory.get_all(user_id="ana", limit=MEMORIES)["results"]]
    assert pages == 5


def test_a_memory_above_the_limit_is_a_page_of_its_own(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PAGE_BYTES", 100)
    page = ok(client.get("/memories", params={"user_id": "ana", "limit": 1000}))
    assert len(page["results"]) == 1
    assert page["next_cursor"]


@pytest.mark.parametrize(
    ("method", "path", "body", "argument"),
    [
        ("POST", "/search", {"user_id": "ana", "query": "Lisbon", "top_k": MEMORIES}, "top_k"),
        ("POST", "/search", {"user_id": "ana", "query": "Lisbon", "top_k": MEMORIES, "explain": True}, "top_k"),
        ("POST", "/v3/memories/search/", {"filters": {"user_id": "ana"}, "query": "Lisbon", "top_k": 40}, "top_k"),
        ("POST", "/v3/memories/?page_size=40", {"user_id": "ana"}, "page_size"),
        ("POST", "/v3/memories/?page_size=40", {"filters": {"user_id": "ana", "role": "user"}}, "page_size"),
    ],
)
def test_an_answer_without_a_cursor_is_refused_before_its_memories_are_read(
    client: TestClient, decoded: list[str], method: str, path: str, body: Any, argument: str
) -> None:
    smaller = {**body, "top_k": 5} if argument == "top_k" else body
    assert ok(client.request(method, path.replace("40", "5"), json=smaller))["results"]
    decoded.clear()
    problem = ok(client.request(method, path, json=body), 400)
    assert problem["code"] == "invalid_argument"
    assert problem["detail"].startswith(f"{argument}: what was found takes more than 50,000 bytes; ask for ")
    assert len(decoded) < MEMORIES / 2


def test_what_is_forgotten_is_refused_likewise(client: TestClient, memory: Memory, decoded: list[str]) -> None:
    for one in memory.get_all(user_id="ana", limit=MEMORIES)["results"]:
        memory.forget(one["id"])
    decoded.clear()
    asked = {"user_id": "ana", "limit": MEMORIES}
    problem = ok(client.get("/lifecycle/forgotten", params=asked), 400)
    assert problem["detail"].startswith("limit: what was found takes more than 50,000 bytes; ask for fewer memories")
    assert len(decoded) < MEMORIES / 2
    assert len(ok(client.get("/lifecycle/forgotten", params={**asked, "limit": 5}))["results"]) == 5


def test_the_words_of_a_dry_run_are_counted(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"dry_run": True, "force": True, "now": "2999-01-01"}
    assert len(ok(client.post("/lifecycle/cycles", params={"user_id": "ana"}, json=asked))["changes"]) == MEMORIES
    monkeypatch.setattr(limits, "MAX_PAGE_BYTES", 500)
    problem = ok(client.post("/lifecycle/cycles", params={"user_id": "ana"}, json=asked), 400)
    assert problem["detail"].startswith("dry_run: what was found takes more than 500 bytes; graphmem lifecycle run")


def test_a_numbered_page_reads_its_own_memories_only(client: TestClient, decoded: list[str]) -> None:
    page = ok(client.post("/v3/memories/?page=3&page_size=5", json={"user_id": "ana"}))
    assert (page["count"], len(page["results"]), len(decoded)) == (MEMORIES, 5, 5)


def test_a_filter_that_costs_too_much_is_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_COMPARED_CHARS", 2 * MEMORIES * BYTES)
    for path in ("/search", "/v3/memories/?page_size=5"):
        question = {"query": "Lisbon", "top_k": 5} if path == "/search" else {}
        for conditions, status in ((1, 200), (3, 400)):
            any_of = [{"blob": {"icontains": f"y{number}"}} for number in range(conditions)]
            answer = ok(client.post(path, json={"user_id": "ana", "filters": {"OR": any_of}, **question}), status)
            assert status == 200 or answer["detail"].startswith("filters: needs more than 400,000 comparisons")


def test_a_recall_makes_do_with_the_hits_that_are_not_too_large(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chat_worker, "FEW_SPARE_HITS", 1)
    asked = {"user_id": "ana", "question": "What about Lisbon?", "top_k": 3, "max_chars": 5000}
    # What the conversation has already is no hit of a recall, which then searches for many more.
    recent = [{"role": "user", "content": f"Note {number} about Lisbon."} for number in range(MEMORIES - 1)]
    monkeypatch.setattr(chat_worker, "MAX_FOUND_BYTES", 8 * BYTES)
    recalled = ok(client.post("/recall", json={**asked, "recent": recent}))
    assert "failed" not in recalled
    monkeypatch.setattr(chat_worker, "MAX_FOUND_BYTES", BYTES)
    problem = ok(client.post("/recall", json=asked), 400)
    assert problem["detail"].startswith("top_k: what was found takes more than")


def test_a_recall_lists_the_hits_that_an_answer_may_have(client: TestClient) -> None:
    asked = {"user_id": "ana", "question": "What about Lisbon?", "top_k": 20, "max_chars": 5000}
    recalled = ok(client.post("/recall", json=asked))
    assert recalled["steps"][-1]["found"] == 20
    assert 0 < len(recalled["results"]) < 10


def test_a_long_history_is_refused_with_the_way_to_it(client: TestClient, memory: Memory) -> None:
    memory_id = memory.get_all(user_id="ana", limit=1)["results"][0]["id"]
    assert len(ok(client.get(f"/memories/{memory_id}/history"))) == 1
    for number in range(10):
        memory.update(memory_id, f"{number} {'word ' * 1000}")
    for path in ("history", "explain"):
        problem = ok(client.get(f"/memories/{memory_id}/{path}"), 400)
        assert "GET /export" in problem["detail"]


def test_a_graph_and_an_entity_with_long_memories_are_refused(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = make()
    memory.add([f"Clara {number} {'word ' * 1000}" for number in range(15)], user_id="ana")
    monkeypatch.setattr(limits, "MAX_PAGE_BYTES", LIMIT)
    with client_of(memory) as client:
        for path in ("/graph", "/graph/entities/clara"):
            problem = ok(client.get(path, params={"user_id": "ana"}), 400)
            assert problem["detail"].startswith("limit: what was found takes more than 50,000 bytes; ask for fewer")
            assert ok(client.get(path, params={"user_id": "ana", "limit": 5}))


async def test_tools_page_refuse_and_cut_what_is_too_large(memory: Memory) -> None:
    async with Client(server_of(memory, "ana")) as client:

        async def ask(name: str, **arguments: Any) -> Any:
            return await client.call_tool(name, arguments)

        page = (await ask("get_memories", limit=50)).structured_content
        assert page["total"] == MEMORIES
        assert page["next_cursor"]
        refused = await ask("search_memories", query="Lisbon", top_k=MEMORIES)
        assert refused.is_error
        assert "takes more than 50,000 bytes; ask for fewer memories" in refused.content[0].text
        assert (await ask("search_memories", query="Lisbon", top_k=3)).structured_content["results"]


async def test_the_graph_of_a_tool_has_the_newest_memories_that_fit(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = make()
    memory.add([f"Clara{number} {'word ' * 1000}" for number in range(15)], user_id="ana")
    monkeypatch.setattr(limits, "MAX_PAGE_BYTES", 11 * BYTES)
    async with Client(server_of(memory, "ana")) as client:
        newest = await client.call_tool("search_graph", {"query": "Clara14", "hops": 0})
        oldest = await client.call_tool("search_graph", {"query": "Clara0", "hops": 0})
    assert [one["name"] for one in newest.structured_content["entities"]] == ["Clara14"]
    assert not oldest.is_error
    assert oldest.structured_content["entities"] == []


def test_a_read_ends_when_its_client_has_left(
    memory: Memory, decoded: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "graphmem.requests")
    reading, decode = threading.Event(), memories.decode_record

    def is_stopped() -> bool:
        try:
            raise_if_stopped()
        except WorkStopped:
            return True
        return False

    def decode_until_left(row: Any) -> Any:
        reading.set()
        wait_until(is_stopped)
        return decode(row)

    monkeypatch.setattr(memories, "decode_record", decode_until_left)
    body = json.dumps({"user_id": "ana", "filters": {"blob": {"icontains": "y"}}})
    with served(memory, needs_key=False) as url:
        client = HTTPConnection(url.removeprefix("http://"))
        client.request("POST", "/v3/memories/", body, {"Content-Type": "application/json"})
        assert reading.wait(TIMEOUT)
        client.close()
        wait_until(lambda: "POST /v3/memories/ 503" in caplog.text)
    assert len(decoded) == 1
    assert "failed" not in caplog.text
