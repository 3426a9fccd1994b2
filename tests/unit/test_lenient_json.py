from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.exception_text import full_error_text
from support.waiting import TIMEOUT

from graphmem.errors import LLMError, LLMTruncated, LLMUnusable
from graphmem.models import lenient_json
from graphmem.models.lenient_json import parse_json
from graphmem.testing import behaviours

SCHEMA = {"type": "object", "required": ["facts"]}
FACTS = {"facts": ['it\'s "tea" {', "Paris ]", "喝茶,]\n", "a\\"], "more": [1, None, True, {"x": []}]}
CONTENT = json.dumps(FACTS, ensure_ascii=False)
MANY = 200_000


@pytest.mark.parametrize(
    "change", [behaviours.well, behaviours.fenced, behaviours.surrounded, behaviours.trailing_commas]
)
def test_surrounding_text_and_trailing_commas_are_ignored(change: Any) -> None:
    assert parse_json(change().change(CONTENT), SCHEMA) == FACTS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'facts': ['it is', 'x } y', \"it's\"], 'a': True, 'b': None}",
         {"facts": ["it is", "x } y", "it's"], "a": True, "b": None}),
        ("{facts: ['tea']}", {"facts": ["tea"]}),
        ('{"facts": ["two\nlines"]}', {"facts": ["two\nlines"]}),
        ('\ufeff{"facts": []}', {"facts": []}),
        ('<think>{"facts": [maybe {</think>\n{"facts": []}', {"facts": []}),
        ('so, {"facts": hm</think>```json\n{"facts": []}\n```', {"facts": []}),
        ('For {name}, see [1]: {"facts": ["a"]} {so}', {"facts": ["a"]}),
        ('Draft {"facts": ["a"]}, final {"facts": ["b"]}.', {"facts": ["b"]}),
        ('{"facts": ["</think> said he"]}', {"facts": ["</think> said he"]}),
        ('{"facts": "not a list"}', {"facts": "not a list"}),
        ('{"other": 1}', {"other": 1}),
        ('["a"]', ["a"]),
        ("null", None),
    ],
)  # fmt: skip
def test_answers_that_are_parsed(text: str, value: Any) -> None:
    assert parse_json(text, SCHEMA) == value


def test_an_array_is_searched_if_the_schema_asks_for_one() -> None:
    assert parse_json('Of {these}: ["a", {"b": 1}]', {"type": "array"}) == ["a", {"b": 1}]
    assert parse_json('Either: ["a"]', {}) == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        '{"facts": ["a", "b"',
        '{"facts": ["a", "b',
        '{"facts": ["a", "b"]',
        '```json\n{"facts": ["a"',
        '{"facts": ["a"}',
        '{"thought": 1} {"facts": [',
        '{"facts": ["a\\',
        "{'facts': ['a",
    ],
)
def test_a_truncated_answer_is_refused(text: str) -> None:
    with pytest.raises(LLMTruncated, match="max_tokens"):
        parse_json(text, SCHEMA)


@given(st.integers(1, len(CONTENT) - 1))
def test_no_prefix_of_an_answer_is_accepted(end: int) -> None:
    for text in (CONTENT, f"```json\n{CONTENT}", repr(FACTS)):
        with pytest.raises(LLMError):
            parse_json(text[: min(end, text.rindex("}"))], SCHEMA)


@pytest.mark.parametrize("text", ["no idea", "我不知道", "NaN", "```", "}", "-"])
def test_an_answer_without_json_is_unusable(text: str) -> None:
    with pytest.raises(LLMUnusable, match="JSON"):
        parse_json(text, SCHEMA)


@pytest.mark.parametrize("text", ["{" * MANY, '{"a":' * MANY + "1" + "}" * MANY, "{}" * MANY, "{'" * MANY])
def test_long_repetitive_answers_are_handled_in_linear_time(text: str) -> None:
    """An algorithm of quadratic time would hold up the tests for hours."""
    try:
        parse_json(text, SCHEMA)
    except LLMError as error:
        assert "{{" not in full_error_text(error)


ENDLESS = [
    '{"a":' + '\\"' * 250_000 + "}",
    '{"a": "' + '\\"' * 250_000 + "\\",
    '{"a": "' + '\\"' * 250_000 + "}]\\",
    "{" + "a: b, " * 80_000 + "}",
    "{'a': '" + "\\\\' \\' \" " * 50_000 + "'}",
    "{" + "," * 490_000 + "}",
    "{'" + " ' " * 160_000 + "'}",
    "{'a': 'b'" + ", " * 240_000 + "}",
    "{(}" * 160_000,
    "<think>" * 60_000 + '{"facts": [}',
    "[" * 490_000,
    '{"a":' * 80_000 + "}" * 80_000,
    '{"facts": [' + "1" * 490_000 + "]}",
    '{/*"*/”*/' + ":" * 7_900 + '/*"*/}',
]


@pytest.mark.thorough
def test_hostile_answers_are_refused_in_time() -> None:
    """In a process of its own, because some of these texts once blocked the process for minutes."""
    code = (
        "import ast, sys\nfrom graphmem.errors import LLMError\nfrom graphmem.models.lenient_json import parse_json\n"
        "for text in ast.literal_eval(sys.stdin.read()):\n"
        "    try:\n        parse_json(text, {'type': 'object', 'required': ['facts']})\n"
        "    except LLMError:\n        print('refused')\n    else:\n        print('read')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=repr(ENDLESS), capture_output=True, text=True, timeout=TIMEOUT, check=True
    )
    assert done.stdout.split() == ["refused"] * len(ENDLESS)


def test_repair_ends_when_its_budget_is_spent() -> None:
    """An answer that needs a million character accesses is given up: repairing it blocks the process."""
    budget = lenient_json._ScanBudget()
    assert lenient_json._repair("{'facts': ['it is \"tea\"']}" + " " * 900, budget) == {"facts": ['it is "tea"']}
    assert budget.left > lenient_json.MAX_SCANS * 0.9
    assert lenient_json._repair('{/*"*/”*/' + ":" * 2_000 + '/*"*/}', budget) is lenient_json._INVALID
    assert budget.left < 0


def test_an_answer_on_which_json_repair_fails_is_unusable() -> None:
    with pytest.raises(LLMUnusable):
        parse_json('{"```json 1```"}', SCHEMA)


def test_the_last_matching_draft_counts() -> None:
    drafts = " ".join(json.dumps({"facts": [n]}) for n in range(1_000))
    assert parse_json(drafts + ' {"x": 1}', SCHEMA) == {"facts": [999]}


@given(st.text(st.sampled_from("{}[]'\",:a \\\n`</think>1"), max_size=60))
def test_any_text_is_parsed_or_raises_an_llm_error(text: str) -> None:
    try:
        parse_json(text, SCHEMA)
    except LLMError as error:
        assert error.__context__ is None


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)


@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8), nested))
def test_surrounded_json_is_parsed_unchanged(value: Any) -> None:
    words = json.dumps({"facts": value}, ensure_ascii=False)
    for change in (behaviours.fenced, behaviours.surrounded):
        assert parse_json(change().change(words), SCHEMA) == {"facts": value}
