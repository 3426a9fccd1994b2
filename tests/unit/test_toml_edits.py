"""A table added to TOML texts and taken out again."""

from __future__ import annotations

import tomllib

import pytest

from graphmem.coding_agents.toml_edits import TomlError, with_table, without_table

PATH = ["mcp_servers", "graphmem"]
TABLE = {"command": "graphmem", "args": ["mcp", "--user", "ana"]}
CONFIG = """\
# mine
model = "gpt"   # the good one

[mcp_servers.other]
command = "x"  # keep
[mcp_servers.other.env]
KEY = "a = b"
"""


@pytest.mark.parametrize("text", ["", CONFIG, CONFIG.replace("\n", "\r\n"), "a = 1\n\n", "[mcp_servers]\n"])
def test_a_table_is_appended_and_taken_out_again(text):
    changed = with_table(text, PATH, TABLE)
    assert changed.startswith(text)
    assert tomllib.loads(changed)["mcp_servers"]["graphmem"] == TABLE
    assert with_table(changed, PATH, TABLE) == changed
    assert without_table(changed, PATH) == text


def test_values_are_changed_in_place_and_others_stay():
    own = '[mcp_servers.graphmem]  # memory\nargs = ["old"]\nstartup_timeout_sec = 20\n\n# next\n[other]\na = 1\n'
    changed = with_table(own, PATH, TABLE)
    assert tomllib.loads(changed)["mcp_servers"]["graphmem"] == {**TABLE, "startup_timeout_sec": 20}
    assert changed.endswith("startup_timeout_sec = 20\n\n# next\n[other]\na = 1\n")
    assert without_table(changed, PATH) == "\n# next\n[other]\na = 1\n"


def test_tables_in_it_go_with_it():
    text = with_table(CONFIG, PATH, TABLE) + '[mcp_servers.graphmem.env]\nA = "1"\n[z]\nb = 1\n'
    assert without_table(text, PATH) == CONFIG + "[z]\nb = 1\n"


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = {graphmem = {command = "x"}}\n',
        'mcp_servers.graphmem.command = "x"\n',
        '[mcp_servers]\ngraphmem = {command = "x"}\n',
        '[mcp_servers.graphmem]\nargs = [\n  "a",\n]\ncommand = "x"\n',
    ],
)
def test_what_cannot_be_changed_by_its_lines_is_refused(text):
    with pytest.raises(TomlError, match=r"mcp_servers\.graphmem"):
        with_table(text, PATH, TABLE)


def test_a_table_in_a_string_is_none():
    text = 'prompt = """\n[mcp_servers.graphmem]\n"""\n'
    changed = with_table(text, PATH, TABLE)
    assert tomllib.loads(changed)["prompt"] == "[mcp_servers.graphmem]\n"
    with pytest.raises(TomlError, match="by hand"):
        without_table(changed, PATH)


def test_no_toml_is_refused():
    with pytest.raises(TomlError, match="line 1"):
        with_table("a = = 1", PATH, TABLE)
