"""Changes of single values in JSON texts: what is added and taken out again leaves every other character."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.coding_agents.json_edits import (
    JsonError,
    value_of,
    with_item,
    with_member,
    without_items,
    without_member,
)

COMMENTED = """\
// my editor
{
  "theme": "dark", // easier
  /* servers
     of mine */
  "mcp": {
    "other": {"type": "local", "command": ["x"]}, // keep
  },
  "list": [
    1,
    2 // two
  ]
}
"""


def test_a_member_is_added_where_comments_and_trailing_commas_stand():
    changed = with_member(COMMENTED, ["mcp", "graphmem"], {"enabled": True})
    assert changed == COMMENTED.replace("// keep\n", '// keep\n    "graphmem": {\n      "enabled": true\n    },\n')
    assert value_of(changed)["mcp"]["graphmem"] == {"enabled": True}
    assert without_member(changed, ["mcp", "graphmem"]) == COMMENTED


def test_an_item_is_added_behind_a_comment_and_taken_out_again():
    changed = with_item(COMMENTED, ["list"], 3)
    assert "    2, // two\n    3\n  ]" in changed
    assert without_items(changed, ["list"], lambda item: item == 3) == COMMENTED


def test_objects_on_the_way_are_made_and_go_when_they_are_empty():
    changed = with_item('{"a": 1}', ["hooks", "Stop"], {"command": "x"})
    assert json.loads(changed) == {"a": 1, "hooks": {"Stop": [{"command": "x"}]}}
    assert without_items(changed, ["hooks", "Stop"], lambda item: True) == '{"a": 1}'


@pytest.mark.parametrize("text", ["", "  \n", "\ufeff"])
def test_an_empty_file_is_an_empty_object(text):
    assert json.loads(with_member(text, ["a"], 1)) == {"a": 1}


def test_an_equal_value_stays_as_it_is_written():
    text = '{"a": {"b":   1}}'
    assert with_member(text, ["a"], {"b": 1}) is text


def test_a_value_is_replaced_in_its_place():
    assert with_member('{\n  "a": [1, 2],\n  "b": 3\n}', ["a"], 4) == '{\n  "a": 4,\n  "b": 3\n}'


def test_line_ends_and_indentation_are_those_of_the_text():
    changed = with_member('{\r\n\t"a": 1\r\n}\r\n', ["b"], {"c": 2})
    assert changed == '{\r\n\t"a": 1,\r\n\t"b": {\r\n\t\t"c": 2\r\n\t}\r\n}\r\n'


def test_of_a_key_that_is_there_twice_the_last_counts():
    assert with_member('{"a": 1, "a": 2}', ["a"], 3) == '{"a": 1, "a": 3}'
    assert without_member('{"a": 1, "b": 0, "a": 2}', ["a"]) == '{"a": 1, "b": 0}'


@pytest.mark.parametrize(
    ("text", "line"),
    [("{", 1), ('{"a": 1', 1), ('{\n"a" 1}', 2), ("{'a': 1}", 1), ('{"a": nope}', 1), ("{} {}", 1), ("[1 2]", 1),
     ('{"a": 1}\n}', 2), ('{"a": "x\ny"}', 1), ("[" * 100_000, 1), ("/* open", 1)],
)  # fmt: skip
def test_what_is_no_json_is_refused_with_its_line(text, line):
    with pytest.raises(JsonError, match=f"^line {line}: "):
        with_member(text, ["a"], 1)


@pytest.mark.parametrize("text", ["[]", "3", '{"mcp": []}', '{"mcp": null}'])
def test_what_is_no_object_on_the_way_is_refused(text):
    with pytest.raises(JsonError, match="an object is expected here"):
        with_member(text, ["mcp", "graphmem"], 1)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
layouts = st.sampled_from([{"indent": 2}, {"indent": 4}, {"indent": "\t"}, {}, {"separators": (",", ":")}])


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), values, layouts, st.booleans())
def test_any_object_gets_a_member_and_is_the_same_without_it(given_object, value, layout, has_newline):
    given_object.pop("graphmem", None)
    text = json.dumps(given_object, ensure_ascii=False, **layout) + "\n" * has_newline
    changed = with_member(text, ["graphmem"], value)
    assert json.loads(changed) == {**given_object, "graphmem": value}
    assert without_member(changed, ["graphmem"]) == text


@given(st.lists(values, max_size=4), values, layouts)
def test_any_list_gets_an_item_and_is_the_same_without_it(items, value, layout):
    text = json.dumps({"first": items, "last": 0}, ensure_ascii=False, **layout)
    changed = with_item(text, ["first"], {"graphmem": value})
    assert json.loads(changed) == {"first": [*items, {"graphmem": value}], "last": 0}
    left = without_items(changed, ["first"], lambda item: isinstance(item, dict) and "graphmem" in item)
    own = [item for item in items if isinstance(item, dict) and "graphmem" in item]
    if items and not own:
        assert left == text
