"""The programs of examples/: what one process is told answers a question of two hops in the next."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from langgraph.runtime import Runtime

from graphmem import Memory
from graphmem.integrations.langgraph import GraphmemStore

EXAMPLES = Path(__file__).parents[2] / "examples"
TOLD = ["Paulo Reyes drums for us. He lives above the Marlow Clinic.", "At the Marlow Clinic ask for Hannah Osei."]
QUESTION = "Which doctor is near where Paulo Reyes lives?"


def run(home: Path, name: str, *arguments: str, text: str = "") -> str:
    environment = {**os.environ, "GRAPHMEM_HOME": str(home)}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=True).stdout


def test_all_examples_are_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "chat_loop.py", "langgraph_agent.py", "mcp_client.py", "openai_agents_agent.py"
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "chat_loop.py",
        "langgraph_agent.py",
        pytest.param("mcp_client.py", marks=pytest.mark.thorough),  # its SDK takes a second to import
        pytest.param("openai_agents_agent.py", marks=pytest.mark.thorough),
    ],
)
def test_a_program_without_arguments_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    output = capsys.readouterr()
    assert ended.value.code == 2
    assert output.out == ""
    assert output.err.startswith(f"usage: {name} ")


@pytest.mark.thorough  # three processes load the models, which takes seconds
@pytest.mark.parametrize("name", ["langgraph_agent.py", "openai_agents_agent.py"])
def test_an_agent_remembers_over_processes(tmp_path: Path, name: str) -> None:
    for text in TOLD:
        run(tmp_path, name, "ana", text)
    assert "Hannah Osei" in run(tmp_path, name, "ana", QUESTION)
    assert "Hannah Osei" not in run(tmp_path, name, "ben", QUESTION)


@pytest.mark.thorough
def test_a_chat_loop_remembers_over_processes(tmp_path: Path) -> None:
    for text in TOLD:
        run(tmp_path, "chat_loop.py", "--user", "ana", text=text)
    assert "Hannah Osei" in run(tmp_path, "chat_loop.py", "--user", "ana", text=QUESTION)


@pytest.mark.thorough
def test_a_client_of_mcp_remembers_over_processes(tmp_path: Path) -> None:
    assert "Hannah Osei" in run(tmp_path, "mcp_client.py", "ana", *TOLD, QUESTION)
    assert "Hannah Osei" in run(tmp_path, "mcp_client.py", "ana", QUESTION)
    assert "Hannah Osei" not in run(tmp_path, "mcp_client.py", "ben", QUESTION)


@pytest.mark.parametrize("beginning", ["word " * 1000, "\x00\ud800"])
def test_the_langgraph_agent_keeps_notes_that_begin_alike(make_memory: Callable[..., Memory], beginning: str) -> None:
    program = runpy.run_path(str(EXAMPLES / "langgraph_agent.py"))
    store = GraphmemStore(make_memory(), user_label=1)
    texts = [f"{beginning} {end}" for end in ("one", "two")]
    for text in [*texts, texts[0]]:
        program["remember"]({"text": text}, Runtime(context={"user_id": "ana"}, store=store))
    assert sorted(item.value["text"] for item in store.search(("notes", "ana"))) == sorted(texts)
