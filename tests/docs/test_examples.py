"""The examples of README.md and docs/: each document's are run in order, in an empty folder, with one namespace.

Python blocks are executed, lines of `sh` blocks that begin with "graphmem" run by the command line in this process, and
a block with a `title` is written to the file that it names. `graphmem serve` starts the service for the rest of the
document, on a free port in place of 8700, with its key as $KEY; lines that begin with "curl" then call it. Other lines
of `sh` blocks (pip, docker, …) are not run. A comment `<!--- invisible-code-block: python … -->` holds set-up and
assertions that readers need not see, and `<!--- skip: next "reason" -->` leaves a block out.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.databases import postgres
from support.servers import NEO4J, PASSWORD, QDRANT
from support.service import free_port, served
from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer
from typer.testing import CliRunner

from graphmem import Memory
from graphmem.cli.app import app
from graphmem.service.keys import Keys

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Documents whose examples read the addresses of servers from the environment.
NEED_SERVERS = frozenset({"docs/how-to/servers.md", "docs/how-to/neo4j-browser.md"})

_titled_block = FencedCodeBlockLexer(
    language=r'\w+ title="[^"\n]+"', mapping={"language": "arguments", "source": "source"}
)


def _write_file(example: Example) -> None:
    name = shlex.split(example.region.lexemes["arguments"])[1].removeprefix("title=")
    Path(name).write_text(example.parsed, "utf-8")


def _find_files(document: Document) -> Iterable[Region]:
    for region in _titled_block(document):
        region.parsed, region.evaluator = region.lexemes["source"], _write_file
        yield region


def _commands(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["graphmem"]:
            yield words[1:]
        elif words[:1] == ["curl"]:
            yield words


def _run_commands(example: Example) -> None:
    for words in _commands(example.parsed):
        if words[0] == "curl":
            call = [os.path.expandvars(word) for word in words]
            example.namespace["output"] = subprocess.run(call, capture_output=True, text=True, check=True).stdout
            continue
        if words[0] == "serve":
            _serve(example)
            continue
        arguments, output = words, None
        if ">" in words:
            arguments, output = words[: words.index(">")], words[-1]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"graphmem {shlex.join(words)}: {result.output} {result.exception!r}"
        example.namespace["output"] = result.stdout
        if output is not None:
            Path(output).write_text(result.stdout, "utf-8")


def _serve(example: Example) -> None:
    memory = example.namespace["opened"].enter_context(Memory())
    os.environ["KEY"] = Keys(memory).create("admin").text
    configured = memory._engine.settings.serve.model_dump(exclude_unset=True) | {"port": example.namespace["port"]}
    example.namespace["opened"].enter_context(served(memory, **configured))


_sybil = Sybil([PythonCodeBlockParser(), CodeBlockParser("sh", _run_commands), _find_files, SkipParser()])


def _parameters() -> Iterator[object]:
    for path in DOCUMENTS:
        name = path.relative_to(ROOT).as_posix()
        marks = [pytest.mark.server, pytest.mark.quick] if name in NEED_SERVERS else []
        if any(_sybil.parse(path).examples()):
            yield pytest.param(path, id=name, marks=marks)


@pytest.fixture
def environment(request, tmp_path, monkeypatch):
    """An empty working folder and home, and the addresses of the servers for documents that read them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GRAPHMEM_HOME", str(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    if request.node.get_closest_marker("server") is None:
        yield
        return
    with postgres() as url:
        monkeypatch.setenv("LEDGER_URL", url)
        monkeypatch.setenv("QDRANT_URL", QDRANT)
        monkeypatch.setenv("NEO4J_URL", NEO4J)
        monkeypatch.setenv("NEO4J_PASSWORD", PASSWORD)
        yield


@pytest.mark.parametrize("document", list(_parameters()))
@pytest.mark.usefixtures("environment")
def test_examples_of_a_document_run(document, tmp_path, monkeypatch):
    text, port = document.read_text("utf-8"), free_port()
    if "\ngraphmem serve\n" in text:
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        monkeypatch.setenv("KEY", "")  # set by `_serve`
        document = tmp_path / document.name
        document.write_text(text.replace("127.0.0.1:8700", f"127.0.0.1:{port}"), "utf-8")
    parsed = _sybil.parse(document)
    with ExitStack() as opened:
        parsed.namespace.update(json=json, opened=opened, port=port)
        for example in parsed.examples():
            example.evaluate()
