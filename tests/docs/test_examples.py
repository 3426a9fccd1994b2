"""The examples of README.md and docs/: each page's are run in order, in an empty folder, with one namespace.

Python blocks are executed. Of `sh` blocks commands that begin with "graphmem" are run by the command line in this
process; `graphmem serve` starts the service for the rest of the page, on a free port in place of 8700, with its key as
$KEY, and commands that begin with "curl" then call it. A block with a `title` is written to the file that it names;
JSON and TOML without one have to be readable, and what they tell a client to start has to be a command of graphmem. A
comment `<!--- invisible-code-block: python … -->` holds set-up and assertions that readers need not see.

All others, in any language, are in `NOT_RUN` of support/documentation.py, with the reason.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.command_line import check_command
from support.databases import postgres
from support.documentation import NOT_RUN, PAGES, blocks, blocks_of, examples, name_of
from support.servers import NEO4J, PASSWORD, QDRANT
from support.service import free_port, served
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.abstract import AbstractCodeBlockParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer
from typer.testing import CliRunner

from graphmem import Memory
from graphmem.cli.app import app
from graphmem.service.keys import Keys

# Pages whose examples read the addresses of servers from the environment.
NEED_SERVERS = frozenset({"docs/how-to/servers.md", "docs/how-to/neo4j-browser.md"})
PROGRAMS = ("graphmem", "curl")


def _write_file(example: Example) -> None:
    name = shlex.split(example.region.lexemes["info"])[1].removeprefix("title=")
    Path(name).write_text(example.parsed, "utf-8")


def _reads(load: Callable[[str], Any]) -> Callable[[Example], None]:
    """Evaluates a block as data: it can be read, and the commands of graphmem in it can be used."""

    def evaluate(example: Example) -> None:
        found = [load(example.parsed)]
        while found:
            value = found.pop()
            if isinstance(value, Mapping):
                found += value.values()
                if "command" in value:
                    check_command([value["command"], *value["args"]])
            elif isinstance(value, list):
                found += value

    return evaluate


def _run_command(example: Example, words: list[str]) -> None:
    program, *arguments = words
    if program == "curl":
        call = [program, "--fail-with-body", *map(os.path.expandvars, arguments)]
        result = subprocess.run(call, capture_output=True, text=True)
        assert result.returncode == 0, f"{shlex.join(words)}: {result.stdout} {result.stderr}"
        example.namespace["output"] = result.stdout
    elif arguments == ["serve"]:
        _serve(example)
    else:
        assert program == "graphmem", f"{program} is run by nothing: name this command in NOT_RUN"
        output = arguments[-1] if ">" in arguments else None
        arguments = arguments if output is None else arguments[: arguments.index(">")]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"{shlex.join(words)}: {result.output} {result.exception!r}"
        example.namespace["output"] = result.stdout
        if output is not None:
            Path(output).write_text(result.stdout, "utf-8")


def _serve(example: Example) -> None:
    memory = example.namespace["opened"].enter_context(Memory())
    os.environ["KEY"] = Keys(memory).create("admin").text
    configured = memory.engine.settings.serve.model_dump(exclude_unset=True) | {"port": example.namespace["port"]}
    example.namespace["opened"].enter_context(served(memory, **configured))


EVALUATORS = {"python": PythonEvaluator(), "json": _reads(json.loads), "toml": _reads(tomllib.loads)}


def _is_run(info: str, example: str) -> bool:
    """Whether there is a way to run an example of a block with this language and title."""
    return example.split(maxsplit=1)[0] in PROGRAMS if info == "sh" else info in EVALUATORS or " title=" in info


def _visible_blocks(document: Document) -> Iterable[Region]:
    for region in blocks(document):
        region.parsed, info = region.lexemes["source"], region.lexemes["info"]
        region.evaluator = _write_file if " title=" in info else EVALUATORS.get(info)
        yield region


_invisible_blocks = AbstractCodeBlockParser(
    [DirectiveInHTMLCommentLexer("invisible-code-block", "python")], "python", EVALUATORS["python"]
)
_sybil = Sybil([_visible_blocks, _invisible_blocks])


def run(page: Path, left_out: Collection[str], **namespace: Any) -> list[str]:
    """Runs the examples of a page but those left out, and its invisible blocks; returns the examples that it ran."""
    parsed, ran = _sybil.parse(page), list[str]()
    parsed.namespace.update(namespace)
    for example in parsed.examples():
        info = example.region.lexemes.get("info")
        if info is None:
            example.evaluate()
            continue
        for name in examples(info, example.parsed):
            if name in left_out:
                continue
            if info == "sh":
                _run_command(example, shlex.split(name))
            else:
                assert example.region.evaluator, f"line {example.line} is run by nothing: name the block in NOT_RUN"
                example.evaluate()
            ran.append(name)
    return ran


def _parameters() -> Iterator[object]:
    for page in PAGES:
        name = name_of(page)
        marks = [pytest.mark.server, pytest.mark.quick] if name in NEED_SERVERS else []
        if blocks_of(page):
            yield pytest.param(page, id=name, marks=marks)


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


@pytest.mark.parametrize("page", list(_parameters()))
@pytest.mark.usefixtures("environment")
def test_examples_of_a_page_run(page, tmp_path, monkeypatch):
    text, port = page.read_text("utf-8"), free_port()
    left_out, all_of_it = NOT_RUN.get(name_of(page), {}), [one for block in blocks_of(page) for one in examples(*block)]
    if "\ngraphmem serve\n" in text:
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        monkeypatch.setenv("KEY", "")  # set by `_serve`
        text = text.replace("127.0.0.1:8700", f"127.0.0.1:{port}")
        all_of_it = [one.replace("127.0.0.1:8700", f"127.0.0.1:{port}") for one in all_of_it]
        page = tmp_path / page.name
        page.write_text(text, "utf-8")
    with ExitStack() as opened:
        ran = run(page, left_out, json=json, opened=opened, port=port)
    assert sorted([*ran, *left_out]) == sorted(all_of_it)


def test_an_example_is_run_or_in_the_list():
    pages = {
        name_of(page): [(block[0], one) for block in blocks_of(page) for one in examples(*block)] for page in PAGES
    }
    listed = {(name, example) for name, examples_ in NOT_RUN.items() for example in examples_}
    assert listed - {(name, example) for name, found in pages.items() for _, example in found} == set()
    run_by_nothing = {(name, one[1]) for name, found in pages.items() for one in found if not _is_run(*one)}
    assert run_by_nothing - listed == set()


def test_an_example_that_is_left_out_leaves_out_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nseen = [1]\n```\n\n```python\nseen = None\n```\n\n```python\nseen.append(2)\n```\n")
    assert run(page, {"seen = None"}) == ["seen = [1]", "seen.append(2)"]


@pytest.mark.parametrize("block", ["```py\n1\n```", "~~~\n1\n~~~", "- A list:\n\n        1", "```sh\nmake 1\n```"])
def test_a_block_that_nothing_runs_is_noticed(tmp_path, block):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{block}\n")
    with pytest.raises(AssertionError, match="NOT_RUN"):
        run(page, {})


@pytest.mark.parametrize(
    "block",
    ['```json\n{"command": "graphmem", "args": ["mcp", "--usr", "ana"]}\n```', "```json\n{\n```", "```toml\na =\n```"],
)
def test_data_that_no_client_can_use_is_noticed(tmp_path, block):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{block}\n")
    with pytest.raises((AssertionError, ValueError)):
        run(page, {})
