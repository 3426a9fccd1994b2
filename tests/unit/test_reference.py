"""The reference pages: generated from the code as it is, and complete."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer import Context
from typer.main import get_command

import graphmem
import graphmem.testing
from graphmem import AsyncMemory, Memory, Settings
from graphmem.boundary.filters import SPECIAL_FIELDS
from graphmem.cli.app import app
from graphmem.retrieval import explanation
from graphmem.types import ImportResult, UsageDict

DOCS = Path(__file__).parents[2] / "docs"
RETRIEVAL_PAGE = (DOCS / "concepts" / "retrieval.md").read_text("utf-8")
spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)


def test_generated_pages_are_up_to_date() -> None:
    stale = [path.name for path in generate.stale_files()]
    assert not stale, "run python docs/generate.py"


def test_each_configuration_key_has_a_meaning() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text("utf-8").partition(generate.MARKER)[2]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert not [row for row in rows if row.endswith("|  |")]


def test_the_api_page_has_each_public_name() -> None:
    named = set(re.findall(r"^::: (\S+)$", (DOCS / "reference" / "api.md").read_text("utf-8"), re.MULTILINE))
    public = {f"graphmem.{name}" for name in graphmem.__all__} - {"graphmem.__version__"}
    tools = {f"graphmem.testing.{name}" for name in graphmem.testing.__all__}
    modules = {"graphmem.types", "graphmem.plugins", "graphmem.testing", "graphmem.testing.conformance"}
    assert named == public | tools | modules


def test_each_count_of_an_import_is_documented() -> None:
    page = (DOCS / "how-to" / "export-and-import.md").read_text("utf-8")
    section = page.partition("### Read the counts")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(ImportResult.__annotations__)


def test_search_documents_each_field_that_filters_know() -> None:
    for method in (Memory.search, AsyncMemory.search):
        assert [name for name in SPECIAL_FIELDS if f"`{name}`" not in method.__doc__] == []


def test_each_key_of_usage_is_documented() -> None:
    page = (DOCS / "how-to" / "language-models.md").read_text("utf-8")
    assert [name for name in UsageDict.__annotations__ if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", sorted({*explanation.REASONS, *explanation.PATH_ARMS}))
def test_each_name_in_an_explanation_is_documented(name: str) -> None:
    rows = [line.split(" | ") for line in RETRIEVAL_PAGE.splitlines() if line.startswith("| `")]
    (cells,) = [cells for cells in rows if f"`{name}`" in cells[0]]
    assert explanation.REASONS.get(name, "(the path)") in cells[1]


@pytest.mark.parametrize(
    "words",
    [
        explanation.UNSPACED_REASONS["keyword"],
        explanation.NO_REASON,
        explanation.REACHED_FROM,
        explanation.NEXT_MESSAGE,
    ],
)
def test_each_other_phrase_of_an_explanation_is_documented(words: str) -> None:
    assert f'"{words}"' in " ".join(RETRIEVAL_PAGE.split())


def test_every_length_of_time_is_bounded() -> None:
    """Python's and the libraries' times end somewhere, mostly with an OverflowError in the middle of a call."""
    schema = Settings.model_json_schema(schema_generator=generate._SchemaGenerator)
    unbounded = [
        (name, key)
        for name, part in [("Settings", schema), *schema["$defs"].items()]
        for key, value in part.get("properties", {}).items()
        for one in (value, *value.get("anyOf", ()))
        if re.search("second|minute|hour|day|gap|timeout|wait", f"{key} {value.get('description', '')}".lower())
        if one.get("type") in ("number", "integer") and not {"maximum", "exclusiveMaximum"} & one.keys()
    ]
    assert unbounded == []


def test_the_common_options_of_the_command_line_are_those_that_its_commands_take() -> None:
    page = (DOCS / "reference" / "command-line.md").read_text("utf-8").partition("## Common options")[2]
    exceptions: dict[str, set[str]] = {}
    for heading, options in re.findall(r"^Options of every command(.*):\n\n((?:\* .*\n?)+)", page, re.MULTILINE):
        for option in re.findall(r"^\* `(--[a-z]+)", options, re.MULTILINE):
            exceptions[option] = set(re.findall(r"`([^`]+)`", heading))
    assert exceptions.keys() == {"--home", "--config", "--json", "--help", "--user", "--agent", "--run"}
    for words, command in _commands(get_command(app)):
        taken = {name for parameter in command.get_params(Context(command)) for name in parameter.opts}
        for option, names in exceptions.items():
            is_excepted = bool({" ".join(words[:count]) for count in (1, 2)} & names)
            own = option in {"keys create": {"--user", "--agent"}, "install": {"--user"}}.get(" ".join(words), ())
            assert (option in taken) is (not is_excepted or own), (words, option)


def _commands(command: Any, words: Sequence[str] = ()) -> Iterator[tuple[list[str], Any]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from _commands(one, [*words, name])
    if not hasattr(command, "commands"):
        yield list(words), command
