"""server.json, which MCP registries read: its form, and that it says the same as the package."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema

import graphmem

ROOT = Path(__file__).parents[2]
ENTRY = json.loads((ROOT / "server.json").read_text("utf-8"))


def test_it_has_the_form_that_registries_accept() -> None:
    """The rules of the schema named in the file, without its descriptions: static.modelcontextprotocol.io/schemas."""
    schema = json.loads((ROOT / "tests" / "data" / "server-2025-12-11.schema.json").read_text("utf-8"))
    assert ENTRY["$schema"] == schema["$id"]
    jsonschema.Draft7Validator(schema).validate(ENTRY)


def test_its_versions_are_those_of_the_package() -> None:
    (package,) = ENTRY["packages"]
    assert (ENTRY["version"], package["version"]) == (graphmem.__version__, graphmem.__version__)
    assert package["identifier"] == "graphmem"


def test_the_readme_names_it() -> None:
    """A registry asks the published README whose package this is."""
    assert f"<!-- mcp-name: {ENTRY['name']} -->" in (ROOT / "README.md").read_text("utf-8")


def test_it_installs_the_bounds_of_the_extra() -> None:
    (bounds,) = re.findall(r'^mcp = \["(.*)"\]$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert ENTRY["packages"][0]["runtimeArguments"] == [{"type": "named", "name": "--with", "value": bounds}]
