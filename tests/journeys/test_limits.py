"""Input limits of one call: every entry point accepts exactly the limit; its error for more says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.databases import SQLITE
from support.fakes import fake_models
from typer.testing import CliRunner

import graphmem
from graphmem import Memory, Settings
from graphmem.boundary.validation import LIMITS, MAX_KEY_CHARS, MAX_NAME_CHARS, MAX_QUERY_CHARS
from graphmem.cli.app import app
from graphmem.errors import ConfigError, ValidationError
from graphmem.ingest.facts.extraction import MAX_ENTITIES, MAX_FACTS, MAX_RELATIONS
from graphmem.models.lenient_json import MAX_SIZE


@pytest.fixture
def database() -> str:
    """SQLite only: arguments are refused before any store is used."""
    return SQLITE


ROOT = Path(graphmem.__file__).parents[1]
SMALL = {
    "max_message_chars": 40,
    "max_messages": 3,
    "max_metadata_bytes": 30,
    "max_attachment_bytes": 30,
    "max_filter_depth": 2,
    "max_filter_conditions": 3,
    "max_top_k": 60,
}


@pytest.fixture
def memory(make_memory):
    memory = make_memory(limits=SMALL)
    memory.add("Ann likes tea.", user_id="u")
    return memory


def nested(levels: int) -> dict[str, Any]:
    filters: dict[str, Any] = {"colour": "red"}
    for _ in range(levels):
        filters = {"NOT": [filters]}
    return filters


def get_uid(memory: Memory) -> str:
    return memory.get_all(user_id="u")["results"][0]["id"]


U = {"user_id": "u"}
# For each entry point: a call with an input of size n, the limit of n, and the error beyond.
CONFIGURED_LIMITS = {
    "a message": (lambda m, n: m.add("x" * n, **U), 40, "messages.content=<41 characters>: has 41 characters; use at"),
    "a message's parts": (
        lambda m, n: m.add({"role": "user", "content": ["x" * 20, "x" * (n - 21)]}, **U),
        40,
        "messages.content=<41 characters>: has 41 characters; use at most 40",
    ),
    "one part": (
        lambda m, n: m.add({"role": "user", "content": [{"type": "text", "text": "x" * n}]}, **U),
        40,
        re.escape("messages.content[0].text=<41 characters>: has 41 characters; use at most 40"),
    ),
    "the words of an update": (
        lambda m, n: m.update(get_uid(m), "x" * n),
        40,
        "data=<41 characters>: has 41 characters; use at most 40",
    ),
    "messages": (lambda m, n: m.add(["x"] * n, **U), 3, "messages: 4 in one call; pass at most 3, then call again"),
    "metadata": (
        lambda m, n: m.add("x", **U, metadata={"a": "x" * (n - 9)}),
        30,
        "metadata=.*: takes 31 bytes as JSON; use at most 30",
    ),
    "a message's metadata": (
        lambda m, n: m.add({"role": "user", "content": "x", "metadata": {"a": "x" * (n - 9)}}, **U),
        30,
        "messages.metadata=.*: takes 31 bytes as JSON; use at most 30",
    ),
    "an update's metadata": (
        lambda m, n: m.update(get_uid(m), metadata={"a": "x" * (n - 9)}),
        30,
        "metadata=.*: takes 31 bytes as JSON; use at most 30",
    ),
    "an attachment": (
        lambda m, n: m.add({"role": "user", "content": [{"type": "file", "url": "data:," + "x" * n}, "x"]}, **U),
        30,
        "data of a message's attachments has more than 30 bytes; send smaller ones, or their URLs",
    ),
    "a search's filters": (
        lambda m, n: m.search("x", **U, filters=nested(n)),
        2,
        "filters.*is nested too deeply; use at most 2 levels of AND / OR / NOT",
    ),
    "a listing's filters": (
        lambda m, n: m.get_all(**U, filters=nested(n)),
        2,
        "filters.*is nested too deeply; use at most 2 levels of AND / OR / NOT",
    ),
    "a search's conditions": (
        lambda m, n: m.search("x", **U, filters={f"k{i}": 1 for i in range(n)}),
        3,
        "filters=.*has 4 conditions; use at most 3$",
    ),
    "a listing's conditions": (
        lambda m, n: m.get_all(**U, filters={"OR": [{"colour": i} for i in range(n)]}),
        3,
        re.escape("has 4 conditions; use at most 3; write the OR over values of 'colour' as {'colour': {'in': [...]}}"),
    ),
    "top_k": (lambda m, n: m.search("x", **U, top_k=n), 60, "top_k=61: must be a whole number from 1 to 60"),
    "limit": (lambda m, n: m.search("x", **U, limit=n), 60, "limit=61: must be a whole number from 1 to 60"),
}


@pytest.mark.parametrize("entry_point", CONFIGURED_LIMITS)
def test_configured_limits_are_exact(memory, entry_point):
    call, limit, message = CONFIGURED_LIMITS[entry_point]
    call(memory, limit)
    with pytest.raises(ValidationError, match=message):
        call(memory, limit + 1)


FIXED_LIMITS = {
    "a question": (lambda m, n: m.search("x" * n, **U), MAX_QUERY_CHARS, "query=.*use at most 100,000"),
    "an id": (lambda m, n: m.get_all(user_id="x" * n), MAX_NAME_CHARS, "user_id=.*use at most 256"),
    "a name": (
        lambda m, n: m.add({"role": "user", "content": "x", "name": "x" * n}, **U),
        MAX_NAME_CHARS,
        "messages.name=.*use at most 256",
    ),
    "a key": (lambda m, n: m.add("x", **U, metadata={"x" * n: 1}), MAX_NAME_CHARS, "metadata key=.*use at most 256"),
    "a filter's key": (lambda m, n: m.get_all(**U, filters={"x" * n: 1}), MAX_NAME_CHARS, "filters key=.*most 256"),
    "an entity": (lambda m, n: m.entity("x" * n, **U), MAX_KEY_CHARS, "key=.*use at most 512"),
    "around": (lambda m, n: m.graph(around="x" * n, **U), MAX_KEY_CHARS, "around=.*use at most 512"),
    "a listing": (lambda m, n: m.get_all(**U, limit=n), 100_000, "limit=100001: must be a whole number"),
}


@pytest.mark.parametrize("entry_point", FIXED_LIMITS)
def test_fixed_limits_are_exact(make_memory, entry_point):
    call, limit, message = FIXED_LIMITS[entry_point]
    memory = make_memory(limits={"max_metadata_bytes": 1000})
    call(memory, limit)
    with pytest.raises(ValidationError, match=message):
        call(memory, limit + 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, long: m.delete(long),
        lambda m, long: m.explain(long),
        lambda m, long: m.update(long, "x"),
        lambda m, long: m.get_all(**U, filters={long[:256]: {long: 1}}),
        lambda m, long: m.get_all(**U, filters={"a": {"AND": {"b": long}}}),
        lambda m, long: m.get_all(**U, filters={"NOT": [{long[:256]: {"gt": []}}]}),
        lambda m, long: m.add("x", **U, metadata={long[:256]: {long[:255]: {long[:254]: object()}}}),
        lambda m, long: m.alias(long[:999], "y", **U),
        lambda m, long: m.add("x", user_id=long),
        lambda m, long: m.add({"role": long, "content": long}, **U),
        lambda m, long: m.search("x", **U, top_k=long),
        lambda m, long: m.search("x", **U, as_of=long),
        lambda m, long: m.search("x", **U, kinds=[long]),
        lambda m, long: m.entities(**U, type=long),
    ],
)
@pytest.mark.parametrize("long", ["x" * 100_000, "\n\x1b[31m\x85\u2028" * 30_000], ids=["long", "many lines"])
def test_errors_are_short_and_in_one_line(memory, call, long):
    with pytest.raises(graphmem.errors.GraphmemError) as error:
        call(memory, long)
    assert len(str(error.value)) < 1000
    assert str(error.value).isprintable()


def test_defaults_are_documented():
    assert Settings().limits.model_dump() == {name: getattr(LIMITS, name) for name in SMALL}
    security, reference = (
        (ROOT / name).read_text("utf-8") for name in ("SECURITY.md", "docs/reference/configuration.md")
    )
    for name in SMALL:
        row = f"| `{name}` | {getattr(LIMITS, name):,} |"
        assert row in security, row
        assert f"`{name}` | " in reference, name
    of_an_answer = f"{MAX_SIZE:,} characters, {MAX_FACTS} facts"
    assert f"{of_an_answer} and {MAX_ENTITIES} entities of one answer, {MAX_RELATIONS} relations of a fact" in " ".join(
        security.split()
    )
    assert f"{of_an_answer}, {MAX_ENTITIES} entities, and {MAX_RELATIONS} relations of a fact" in " ".join(
        reference.split()
    )


def test_limits_can_be_lowered_only():
    for name, value in SMALL.items():
        assert getattr(Settings.from_dict({"limits": {name: value}}).limits, name) == value
        with pytest.raises(ConfigError, match=f"limits.{name}: Input should be less than or equal to"):
            Settings.from_dict({"limits": {name: getattr(LIMITS, name) + 1}})
    with pytest.raises(ConfigError, match=r"limits.max_top_k: Input should be greater than or equal to 50"):
        Settings.from_dict({"limits": {"max_top_k": 49}})
    with pytest.raises(ConfigError, match="did you mean 'max_top_k'"):
        Settings.from_dict({"limits": {"top_k": 60}})


def test_limits_hold_at_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHMEM_EXTRACTOR__PROVIDER", "none")
    monkeypatch.setenv("GRAPHMEM_LIMITS__MAX_MESSAGE_CHARS", "40")
    runner, more = CliRunner(), ["--user", "u", "--home", str(tmp_path / "home")]
    assert runner.invoke(app, ["add", "x" * 40, *more]).exit_code == 0
    result = runner.invoke(app, ["add", "x" * 41, *more])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "has 41 characters; use at most 40" in result.stderr
    file = tmp_path / "said.txt"
    file.write_text("Short.\n\n" + "x" * 41)
    assert "has 41 characters; use at most 40" in runner.invoke(app, ["add", "--file", str(file), *more]).stderr


def test_limits_hold_in_memory():
    with Memory(":memory:", settings=Settings.from_dict(fake_models(limits=SMALL))) as memory:
        assert memory.limits.max_messages == 3


def test_the_metadata_of_a_call_is_limited_with_its_messages(make_memory):
    memory = make_memory()
    messages = [{"role": "user", "content": f"Note {number}."} for number in range(200)]
    with pytest.raises(ValidationError, match=r"metadata=.*with each of 200 messages; use at most 33,554,432 in all"):
        memory.add(messages, metadata={"notes": "x" * 200_000}, **U)
    assert memory.get_all(**U)["total"] == 0
