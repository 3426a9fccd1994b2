"""What is no longer true, or forgotten, asked for in Python, over REST, over MCP and at the command line: the same
memories, and one number for one question.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from support.service import client_of, ok
from typer.testing import CliRunner

from graphmem import Memory
from graphmem.cli.app import app
from graphmem.commands.types import RetireMemory
from graphmem.model import Scope
from graphmem.service.mcp.server import create_server

ANA = {"user_id": "ana"}
OPTIONS = ["", "show_retired", "retired_only"]


@pytest.fixture
def memory(make: Callable[..., Memory], tmp_path: Path) -> Memory:
    """Three memories, one of which is no longer true: the only one that mentions Rome."""
    memory = make(tmp_path)
    texts = ["Clara lives in Rome.", "Clara lives in Oslo.", "Dora sings."]
    old, new, _ = (memory.add(text, **ANA)["results"][0]["id"] for text in texts)
    memory.engine.commit([RetireMemory(old, at=datetime.now(UTC), reason="moved", successor=new)])
    return memory


async def answer(memory: Memory, tool: str, **arguments: Any) -> dict[str, Any]:
    async with Client(create_server(memory, lambda _: Scope(**ANA), profile="full")) as client:
        result = (await client.call_tool(tool, arguments)).structured_content
    assert result is not None
    return result


def at_the_command_line(memory: Memory, home: Path, *words: str) -> Any:
    """The answer of a command, on the memory's own database where that is on a server."""
    url = memory.engine.settings.ledger_url
    environment = {"GRAPHMEM_HOME": str(home)} | (
        {} if url is None else {"GRAPHMEM_LEDGER_URL": url.get_secret_value()}
    )
    return json.loads(CliRunner(env=environment).invoke(app, [*words, "--json"]).stdout)


def counted(page: dict[str, Any], total: str = "total") -> tuple[set[str], int, int]:
    """The ids of a list, how many there are, and how many match that are no longer true."""
    return {one["id"] for one in page["results"]}, page[total], page.get("retired", 0)


@pytest.mark.parametrize("option", OPTIONS)
async def test_lists_have_the_same_memories_and_numbers(memory: Memory, tmp_path: Path, option: str) -> None:
    chosen = {option: True} if option else {}
    expected = counted(dict(memory.get_all(**ANA, **chosen)))  # type: ignore[arg-type]
    assert expected[1:] == {"": (2, 1), "show_retired": (3, 1), "retired_only": (1, 1)}[option]
    assert counted(dict(memory.get_all(**ANA, **chosen, filters={"role": "user"}))) == expected  # type: ignore[arg-type]
    assert counted(await answer(memory, "get_memories", **chosen)) == expected
    with client_of(memory) as client:
        assert counted(ok(client.get("/memories", params={**ANA, **chosen}))) == expected
        assert counted(ok(client.post("/v3/memories/", json={**ANA, **chosen})), "count") == expected
    flags = [f"--{name.replace('_', '-')}" for name in chosen]
    assert counted(at_the_command_line(memory, tmp_path, "list", "--user", "ana", *flags)) == expected


async def test_statistics_have_the_numbers_of_the_lists(memory: Memory, tmp_path: Path) -> None:
    expected = {"memories": 3, "retired": 1, "source_messages": 0}
    answers = [memory.stats()]
    with client_of(memory) as client:
        answers.append(ok(client.get("/stats")))
    answers.append(at_the_command_line(memory, tmp_path, "stats"))
    for one in answers:
        assert expected.items() <= one.items()


async def test_entities_count_what_is_no_longer_true_on_request(memory: Memory) -> None:
    for shown, count in ((False, 1), (True, 2)):
        entities = memory.entities(**ANA, show_retired=shown)  # type: ignore[arg-type]
        counts = {one["name"]: one["memories"] for one in entities}
        assert counts["Clara"] == count
        assert ("Rome" in counts) == shown
        details = memory.entity("Rome", **ANA, show_retired=shown)  # type: ignore[arg-type]
        assert (details is not None) == shown
        with client_of(memory) as client:
            query: dict[str, Any] = {**ANA, "show_retired": shown}
            assert ok(client.get("/graph/entities", params=query)) == entities
            found = ok(client.get("/graph/entities/Rome", params=query), 200 if shown else 404)
            assert not shown or found == details
    texts = [one["memory"] for one in (await answer(memory, "get_entity", name="Rome", show_retired=True))["memories"]]
    assert "Clara lives in Rome." in texts
    graph = await answer(memory, "search_graph", query="Rome", show_retired=True)
    assert "Rome" in {one["name"] for one in graph["entities"]}
    graph = await answer(memory, "search_graph", query="Clara")
    assert "Clara lives in Rome." not in {one["memory"] for one in graph["memories"]}


@pytest.mark.parametrize("shown", [False, True])
async def test_what_is_forgotten_is_shown_on_request_by_every_door(make: Any, tmp_path: Path, shown: bool) -> None:
    memory = make(tmp_path)
    rome, oslo = (memory.add(text, **ANA)["results"][0]["id"] for text in ("Clara lives in Rome.", "Clara sings."))
    memory.forget(rome, **ANA)
    view = {"show_forgotten": shown}
    expected = {rome, oslo} if shown else {oslo}
    entities = {one["name"]: one["memories"] for one in memory.entities(**ANA, **view)}
    assert entities == ({"Ana": 2, "Clara": 2, "Rome": 1} if shown else {"Ana": 1, "Clara": 1})
    details = memory.entity("Rome", **ANA, **view)
    assert (details is not None) == shown
    graph = memory.graph(**ANA, **view)
    assert {node for node, one in graph.nodes(data=True) if one["node"] == "memory"} == expected
    assert {node for node, one in graph.nodes(data=True) if one.get("forgotten_at")} == expected - {oslo}
    days = memory.count_by_day(**ANA, utc_offset=0, **view)
    assert [one["memories"] for one in days] == [len(expected)]

    with client_of(memory) as client:
        query: dict[str, Any] = {**ANA, **view}
        assert {one["id"] for one in ok(client.get("/memories", params=query))["results"]} == expected
        assert {one["id"] for one in ok(client.post("/v3/memories/", json=query))["results"]} == expected
        assert {
            one["id"] for one in ok(client.post("/search", json={"query": "Clara", **query}))["results"]
        } == expected
        nodes = {one["id"]: one for one in ok(client.get("/graph", params=query))["nodes"]}
        assert {uid for uid, one in nodes.items() if one["node"] == "memory"} == expected
        assert ok(client.get("/graph/days", params={**query, "utc_offset": 0})) == days
        assert ok(client.get("/graph/entities", params=query)) == memory.entities(**ANA, **view)
        found = ok(client.get("/graph/entities/Rome", params=query), 200 if shown else 404)
        assert not shown or found == details
        (ana,) = ok(client.get("/entities", params=view))
        assert ana["total_memories"] == len(expected)

    for tool, asked in (("get_memories", {}), ("search_memories", {"query": "Clara"})):
        results = (await answer(memory, tool, **asked, **view))["results"]
        assert {one["id"] for one in results} == expected, tool
        assert {one["id"] for one in results if one.get("forgotten_at")} == expected - {oslo}, tool
    for tool, asked in (("search_graph", {"query": "Clara"}), ("get_entity", {"name": "Clara"})):
        assert {one["id"] for one in (await answer(memory, tool, **asked, **view))["memories"]} == expected, tool

    flags = ["--show-forgotten"] if shown else []
    for words in (["list"], ["search", "Clara"]):
        page = at_the_command_line(memory, tmp_path, *words, "--user", "ana", *flags)
        assert {one["id"] for one in page["results"]} == expected, words
    drawn = at_the_command_line(memory, tmp_path, "graph", "--user", "ana", *flags)
    assert {one["id"] for one in drawn["nodes"] if one["node"] == "memory"} == expected
