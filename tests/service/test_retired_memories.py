"""What is no longer true, asked for in Python, over REST, over MCP and at the command line: the same memories, and one
number for one question.
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
    memory._engine.commit([RetireMemory(old, at=datetime.now(UTC), reason="moved", successor=new)])
    return memory


async def answer(memory: Memory, tool: str, **arguments: Any) -> dict[str, Any]:
    async with Client(create_server(memory, lambda _: Scope(**ANA), profile="full")) as client:
        result = (await client.call_tool(tool, arguments)).structured_content
    assert result is not None
    return result


def at_the_command_line(memory: Memory, home: Path, *words: str) -> Any:
    """The answer of a command, on the memory's own database where that is on a server."""
    url = memory._engine.settings.ledger_url
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
