"""Packages of others for mem0's platform, unchanged, against the service: as the pages about them say, and further.

`.ci/thorough` installs the packages, pinned with hashes by `tests/clients`, in places of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.documentation import ROOT, blocks_of
from support.service import served

from graphmem import Memory
from graphmem.service.keys import Keys
from graphmem.testing import ModelEndpoint

pytestmark = pytest.mark.thorough

CLIENTS = ROOT / "tests/clients"
NODE_MODULES, PYTHON = CLIENTS / "node_modules", ROOT / ".venv-clients/bin/python"
needs_node = pytest.mark.skipif(
    not NODE_MODULES.exists() or shutil.which("node") is None, reason="node, or tests/clients/node_modules, is missing"
)
needs_python = pytest.mark.skipif(not PYTHON.exists(), reason=".venv-clients is missing")

Run = Callable[..., str]


def program_of(page: str, language: str, part: str) -> str:
    """The only block of a page in this language that has this part."""
    sources = [source for info, source in blocks_of(ROOT / "docs/integrations" / page) if info == language]
    (source,) = [one for one in sources if part in one]
    return source


@pytest.fixture
def run(memory: Memory, tmp_path: Path) -> Iterator[Run]:
    """`run(program, source, **environment)`: the output of a program that calls a service of `memory`."""
    with served(memory, infer_needs_llm=False) as address:
        shared = {
            "KEY": Keys(memory).create("admin").text,
            "HOST": address,
            "MEM0_TELEMETRY": "false",
            "MEM0_DIR": str(tmp_path),
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
        }

        def run_program(program: str, source: str, **environment: str) -> str:
            file = tmp_path / ("program.mjs" if program == "node" else "program.py")
            file.write_text(source.replace("http://127.0.0.1:8700", address), "utf-8")
            if program == "node" and not (tmp_path / "node_modules").exists():
                (tmp_path / "node_modules").symlink_to(NODE_MODULES)
            done = subprocess.run(
                [program, str(file)], env={**shared, **environment}, cwd=tmp_path, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run_program


def texts_of(memory: Memory, user_id: str) -> list[str]:
    return sorted(one["memory"] for one in memory.get_all(user_id=user_id)["results"])


@needs_node
def test_mem0s_typescript_client(run: Run, memory: Memory) -> None:
    run("node", (CLIENTS / "mem0ai.mjs").read_text("utf-8"))
    output = run("node", program_of("typescript.md", "js", 'from "mem0ai"'))
    assert output.splitlines() == ["Ben moved to Porto.", "{ topic: 'home', sure: true }"]
    assert texts_of(memory, "ana") == []


@needs_node
def test_the_provider_of_the_vercel_ai_sdk(run: Run, memory: Memory) -> None:
    source = program_of("typescript.md", "js", "vercel-ai-provider")
    with ModelEndpoint(default="In Lisbon.") as endpoint:
        output = run("node", source, OPENAI_API_KEY="any", OPENAI_BASE_URL=endpoint.url)
        assert "Memory: Clara works in Lisbon." in output
        assert output.splitlines()[-1] == "In Lisbon."
        assert "Clara works in Lisbon." in str(endpoint.requests[0].body["messages"][0])
    assert "Clara works in Lisbon." in texts_of(memory, "ana")


@needs_python
def test_the_store_of_strands(run: Run, memory: Memory) -> None:
    output = run(str(PYTHON), program_of("mem0-packages.md", "python", "mem0_strands"))
    assert "Clara works in Lisbon." in output
    assert texts_of(memory, "ana") == ["Ben moved to Porto.", "Clara works in Lisbon."]
    (clara,) = memory.get_all(user_id="ana", filters={"topic": "work"})["results"]
    assert clara["metadata"] == {"topic": "work", "app_id": "shop", "source": "STRANDS"}


@needs_python
def test_the_provider_of_microsofts_agent_framework(run: Run, memory: Memory) -> None:
    memory.add("Clara works in Rome.", user_id="ana", metadata={"app_id": "other"})
    output = run(str(PYTHON), program_of("mem0-packages.md", "python", "agent_framework_mem0"))
    assert "Clara works in Lisbon." in output
    assert "Rome" not in output
