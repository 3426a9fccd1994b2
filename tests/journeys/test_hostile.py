"""More than 10,000 generated inputs for all entry points: each is refused with a GraphmemError or stored unchanged.

The generators follow the accepted formats (messages with roles, parts, ids and times, filters with operators and logic,
metadata of any depth and size, configurations, command lines) and fill them with values that are easily misread.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select
from support.fakes import DIMS, fake_models
from support.hostile_strings import INJECTIONS
from support.log_guard import listening
from typer.testing import CliRunner

import graphmem.wiring
from graphmem import Memory, Settings
from graphmem.boundary.filters import OPERATORS, SPECIAL_FIELDS
from graphmem.boundary.validation import MAX_DOCUMENT_DEPTH, MAX_FILTER_DEPTH, moment
from graphmem.cli.app import app
from graphmem.errors import ConfigError, GraphmemError, NotFoundError, ValidationError
from graphmem.stores.ledger.schema import memories
from graphmem.testing import HashEmbedder, WordExtractor

pytestmark = pytest.mark.thorough
# The number of inputs for each entry point. They are the same in every run: a new failure comes from a change.
INPUTS = {
    "messages kept": 3000,
    "messages": 2000,
    "metadata": 1000,
    "filters": 1500,
    "questions": 500,
    "ids": 1200,
    "names": 700,
    "configurations": 1200,
    "variables": 400,
    "command lines": 250,
}
BATCH = 25


def make_settings(entry_point: str, batch_size: int = 1) -> settings:
    return settings(
        max_examples=INPUTS[entry_point] // batch_size,
        deadline=None,
        derandomize=True,
        print_blob=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def test_there_are_more_than_ten_thousand_inputs():
    assert sum(INPUTS.values()) > 10_000


# --- strategies -------------------------------------------------------------------------------------------------------

# Drawn by index: hypothesis prints the values that a strategy is built from.
injections = st.integers(0, len(INJECTIONS) - 1).map(INJECTIONS.__getitem__)
letters = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)
# Texts that every store can hold.
texts = st.one_of(
    injections,
    letters,
    st.lists(st.one_of(injections, letters), min_size=2, max_size=4).map("".join),
    st.builds(lambda part, times: part * times, st.one_of(injections, letters), st.sampled_from((2, 20, 200))),
)
# Also texts that no store can hold.
any_texts = st.one_of(texts, st.text(max_size=20), texts.map(lambda text: text + "\0"), texts.map("\ud800".__add__))
huge = st.builds(
    lambda bits, sign: sign * 2**bits, st.sampled_from((31, 63, 64, 1023, 1024, 9000)), st.sampled_from((1, -1))
)
numbers = st.one_of(st.integers(), st.floats(), huge, st.sampled_from((1e308, 5e-324, -0.0)))
times = st.one_of(
    st.datetimes(timezones=st.sampled_from((None, UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=23))))),
    st.dates(),
    st.integers(-(10**12), 10**12),
    st.floats(-1e9, 1e9),
    st.sampled_from(("2024-02-30", "2024-W01-1", "0001-01-01", "9999-12-31T23:59:59.999999-14:00", "now", "", "1e3")),
    numbers,
    any_texts,
)
strange = st.one_of(
    st.none(), st.booleans(), numbers, any_texts, st.binary(max_size=5),
    st.sampled_from((object(), len, {1}, 1j, Ellipsis, type, float("nan"), date.max, datetime.min, range(3))),
)  # fmt: skip
finite_floats = st.floats(allow_nan=False, allow_infinity=False)
plain = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), finite_floats, texts)
documents = st.dictionaries(
    st.one_of(injections, letters),
    st.recursive(
        plain,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(letters, inner, max_size=4)),
        max_leaves=12,
    ),
    max_size=4,
)  # fmt: skip
any_documents = st.recursive(
    strange,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.dictionaries(st.one_of(any_texts, strange.filter(lambda one: one.__hash__ is not None)), inner, max_size=3),
    ),
    max_leaves=10,
)
roles = st.sampled_from(("user", "assistant", "tool", "function", "system", "developer"))


def deep(levels: int, inner: Any) -> Any:
    for _ in range(levels):
        inner = {"a": inner}
    return inner


@contextmanager
def open_memory() -> Iterator[Memory]:
    """Opens a memory with one entry and an extractor that finds names in any text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphmem.wiring, "_extractor", lambda _: WordExtractor())
        with Memory(":memory:", settings=Settings.from_dict(fake_models())) as memory:
            memory.add("Ann met Bob in Bergen", user_id="u", metadata={"a": 1, "b": ["x"], "c": {"d": "e"}})
            yield memory
            assert memory.verify()["ok"]


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    """A memory that the tests of this module share."""
    with open_memory() as memory:
        yield memory


@pytest.fixture(scope="module")
def unchanged_memory() -> Iterator[Memory]:
    """A memory to which no test adds: in the shared one, odd ids may have memories by now."""
    with open_memory() as memory:
        yield memory


def count_memories(memory: Memory) -> int:
    with memory.engine.ledger.read() as connection:
        return int(connection.scalar(select(func.count()).select_from(memories)))


# --- messages ---------------------------------------------------------------------------------------------------------

good_times = st.one_of(st.none(), st.datetimes(timezones=st.just(UTC)), st.integers(-(10**9), 10**10))
good_names = st.one_of(st.none(), st.sampled_from(("Ann", "Mr. O'Neil", "a*b", "%", "_", "北京", "a`b", "-x")))
good_messages = st.fixed_dictionaries({"role": roles, "content": texts, "name": good_names, "timestamp": good_times})


@make_settings("messages kept", BATCH)
@given(messages=st.lists(good_messages, min_size=BATCH, max_size=BATCH), metadata=documents)
def test_storable_messages_are_stored_unchanged(messages, metadata, memory):
    user = uuid4().hex
    results = memory.add(messages, user_id=user, metadata=metadata)["results"]
    expected = [one for one in messages if one["role"] not in {"system", "developer"} and one["content"].strip()]
    assert [one["memory"] for one in results] == [one["content"] for one in expected]
    by_id = {one["id"]: one for one in memory.get_all(user_id=user, limit=BATCH)["results"]}
    assert len(by_id) == len(expected)
    for result, message in zip(results, expected, strict=True):
        one = by_id[result["id"]]
        assert (one["memory"], one["role"], one["actor_id"]) == (message["content"], message["role"], message["name"])
        assert json.dumps(one["metadata"]) == json.dumps(metadata)
        if message["timestamp"] is not None:
            assert one["at"] == moment(message["timestamp"], "t").isoformat(timespec="microseconds")


parts = st.lists(
    st.one_of(
        any_texts,
        st.fixed_dictionaries({"type": st.sampled_from(("text", "image_url", "input_text", ""))}, optional={
            "text": st.one_of(any_texts, strange), "image_url": st.one_of(any_texts, st.just("data:" + "x" * 99)),
            "more": any_documents,
        }),
        strange,
    ),
    max_size=3,
)  # fmt: skip
any_messages = st.one_of(
    strange,
    st.fixed_dictionaries({}, optional={
        "role": st.one_of(roles, roles, roles, strange), "content": st.one_of(any_texts, any_texts, parts, strange),
        "name": st.one_of(any_texts, strange), "timestamp": times, "id": st.one_of(any_texts, numbers, strange),
        "tool_calls": any_documents, "metadata": any_documents,
    }),
)  # fmt: skip


@make_settings("messages")
@given(
    messages=st.one_of(any_messages, st.lists(any_messages, max_size=3)),
    options=st.fixed_dictionaries({}, optional={
        "timestamp": times, "expiration_date": times, "memory_type": strange, "prompt": strange, "infer": strange,
        "wait": strange, "agent_id": strange, "run_id": strange,
    }),
)  # fmt: skip
def test_messages_are_refused_as_a_whole_or_stored(messages, options, memory):
    before, user = count_memories(memory), uuid4().hex
    try:
        results = memory.add(messages, user_id=user, **options)["results"]
    except GraphmemError as error:
        event(type(error).__name__)
        assert isinstance(error, ValidationError | ConfigError)
        assert count_memories(memory) == before
        return
    event("kept" if results else "nothing to keep")
    listing = memory.get_all(user_id=user, show_expired=True)["results"]
    assert sorted(one["memory"] for one in listing) == sorted({one["id"]: one["memory"] for one in results}.values())


@make_settings("metadata")
@given(
    metadata=st.one_of(
        any_documents,
        st.builds(deep, st.integers(MAX_DOCUMENT_DEPTH - 3, MAX_DOCUMENT_DEPTH + 3), plain),
        st.builds(lambda text, n: {"a": text[:20] * (n // 20)}, texts, st.sampled_from((20, 1000, 100_000, 300_000))),
    ),
    by=st.sampled_from(("add", "update")),
)
def test_metadata_is_refused_or_stored_unchanged(metadata, by, memory):
    user, before = uuid4().hex, count_memories(memory)
    uid = memory.add("x", user_id=user)["results"][0]["id"] if by == "update" else None
    try:
        if uid is None:
            uid = memory.add("x", user_id=user, metadata=metadata)["results"][0]["id"]
        else:
            memory.update(uid, metadata=metadata)
    except ValidationError as error:
        event(f"refused by {by}")
        assert len(str(error)) < 1000
        if by == "add":
            assert count_memories(memory) == before
        else:
            assert memory.get(uid)["metadata"] == {}
        return
    event(f"kept by {by}")
    assert equal_as_stored(memory.get(uid)["metadata"], metadata or {})


def equal_as_stored(stored: Any, original: Any) -> bool:
    """True if both are equal after the documented conversions: tuples to lists, dates and times to ISO 8601 texts."""
    if isinstance(original, dict):
        return stored.keys() == original.keys() and all(equal_as_stored(stored[key], original[key]) for key in original)
    if isinstance(original, list | tuple):
        return len(stored) == len(original) and all(map(equal_as_stored, stored, original))
    if isinstance(original, datetime):
        return moment(stored, "") == moment(original, "")
    if isinstance(original, date):
        return bool(stored == original.isoformat())
    return type(stored) is type(original) and (stored == original or (stored != stored and original != original))


# --- queries and filters ----------------------------------------------------------------------------------------------

keys = st.one_of(
    st.sampled_from((*SPECIAL_FIELDS, "a", "b", "c.d", "user_id", "agent_id", "run_id", "AND", "or", "$or", "a.b.c")),
    any_texts,
)
operands = st.one_of(strange, times, st.lists(strange, max_size=3), any_documents)
conditions = st.dictionaries(
    keys,
    st.one_of(operands, st.dictionaries(st.one_of(st.sampled_from(OPERATORS), any_texts), operands, max_size=2)),
    max_size=3,
)
filters = st.one_of(
    st.recursive(
        conditions,
        lambda inner: st.dictionaries(
            st.sampled_from(("AND", "OR", "NOT", "and")), st.one_of(st.lists(inner, max_size=3), inner), max_size=2
        ),
        max_leaves=6,
    ),
    st.builds(lambda n, f: deep_logic(n, f), st.integers(MAX_FILTER_DEPTH - 2, MAX_FILTER_DEPTH + 2), conditions),
    strange,
)


def deep_logic(levels: int, inner: Any) -> Any:
    for _ in range(levels):
        inner = {"OR": [inner]}
    return inner


@make_settings("filters")
@given(criteria=filters)
def test_filters_are_refused_or_select_within_the_scope(criteria, memory):
    try:
        listing = memory.get_all(user_id="u", filters=criteria)
    except ValidationError as error:
        event("refused")
        assert len(str(error)) < 1000
        with suppress(UnicodeEncodeError):
            str(error).encode()
        return
    event("chooses")
    assert {one["memory"] for one in listing["results"]} <= {"Ann met Bob in Bergen"}


@make_settings("questions")
@given(
    query=st.one_of(any_texts, strange),
    options=st.fixed_dictionaries({}, optional={
        "top_k": strange, "limit": strange, "threshold": strange, "kinds": strange, "as_of": times,
        "reference_date": times, "show_expired": strange, "filters": filters, "rerank": strange,
    }),
)  # fmt: skip
def test_queries_are_refused_or_answered(query, options, memory):
    try:
        response = memory.search(query, user_id="u", explain=True, **options)
    except GraphmemError as error:
        event(type(error).__name__)
        assert isinstance(error, ValidationError | ConfigError)
        return
    event("answered")
    assert "degraded" not in response
    assert {one["memory"] for one in response["results"]} <= {"Ann met Bob in Bergen"}
    block = memory.context(query, user_id="u")
    assert block.count("</memories>") == (1 if block else 0)


# --- ids and names ----------------------------------------------------------------------------------------------------


@make_settings("ids")
@given(
    uid=st.one_of(any_texts, strange),
    call=st.sampled_from(("get", "history", "explain", "update", "delete", "delete_all", "get_all")),
    scope=st.fixed_dictionaries({}, optional={name: st.one_of(any_texts, strange) for name in ("user_id", "run_id")}),
)
def test_unknown_ids_are_refused_or_match_nothing(uid, call, scope, unchanged_memory):
    before = count_memories(unchanged_memory)
    arguments = {"delete_all": (), "get_all": (), "update": (uid, "x")}.get(call, (uid,))
    try:
        result = getattr(unchanged_memory, call)(*arguments, **scope)
    except (ValidationError, NotFoundError) as error:
        event(type(error).__name__)
        assert len(str(error)) < 1000
    else:
        event("nothing")
        assert not result or not (result.get("deleted") or result.get("results"))
    assert count_memories(unchanged_memory) == before


@make_settings("names")
@given(
    name=st.one_of(any_texts, strange),
    other=st.one_of(any_texts, st.just("Bob")),
    call=st.sampled_from(("entity", "entities", "alias", "unalias", "rename_entity", "graph", "renamed")),
)
def test_names_are_refused_or_stored(name, other, call, memory):
    scope = {"user_id": "u"}
    try:
        if call == "entities":
            memory.entities(query=name, **scope)
        elif call == "graph":
            assert len(memory.graph(around=name, **scope)) in {0, 4}
        elif call == "renamed":
            entity = memory.rename_entity("Bob", name, **scope)
            assert entity["name"] == name.strip()
            assert memory.entity("Bob", **scope)["name"] == name.strip()
            assert memory.graph(**scope).nodes["entity:bob"]["name"] == name.strip()
        else:
            getattr(memory, call)(*((name,) if call == "entity" else (name, other)), **scope)
    except GraphmemError as error:
        event(f"{call}: {type(error).__name__}")
        assert isinstance(error, ValidationError | NotFoundError)
        assert len(str(error)) < 1000
        return
    event(f"{call}: done")


# --- configurations ---------------------------------------------------------------------------------------------------

sections = st.sampled_from((*Settings.model_fields, "vector_store", "graph_store", "embedder", "hoem", "__class__"))
any_settings = st.dictionaries(
    st.one_of(sections, sections, sections, any_texts),
    st.one_of(
        strange,
        st.fixed_dictionaries(
            {},
            optional={
                "provider": st.one_of(st.sampled_from(("qdrant", "neo4j", "networkx", "spacy", "openai")), strange),
                "config": st.one_of(
                    strange,
                    st.dictionaries(
                        st.sampled_from(("url", "host", "port", "path", "password", "api_key", "collection_name", "x")),
                        strange,
                        max_size=3,
                    ),
                ),
                "x": strange,
            },
        ),
        any_documents,
    ),
    max_size=3,
)


@make_settings("configurations")
@given(config=any_settings, form=st.sampled_from(("dict", "dict", "dict", "toml", "json", "yaml")))
def test_configurations_are_refused_or_usable(config, form, tmp_path_factory):
    try:
        if form == "dict":
            configuration = Settings.from_dict(config)
        else:
            file = tmp_path_factory.getbasetemp() / f"c.{form}"
            file.write_bytes(str(config).encode(errors="replace"))
            configuration = Settings.from_file(file)
        configuration.check_available()
    except ConfigError as error:
        event("refused")
        assert str(error)
        return
    event("usable")
    assert (
        "SecretStr" not in repr(configuration) or "**" in repr(configuration) or "SecretStr('')" in repr(configuration)
    )


@make_settings("variables")
@given(
    environ=st.dictionaries(
        st.lists(
            st.sampled_from(("HOME", "LLM", "VECTOR_STORE", "CONFIG", "PATH", "LIMITS", "", "X", "'")), max_size=4
        ).map(lambda steps: "GRAPHMEM_" + "__".join(steps)),
        any_texts,
        max_size=3,
    )
)
def test_environment_variables_are_refused_or_usable(environ):
    with suppress(ConfigError):
        Settings.from_env(environ).check_available()


# --- command lines ----------------------------------------------------------------------------------------------------

words = st.one_of(
    injections, st.sampled_from(("u", "Ann met Bob", "{}", "[]", "-", "--", "auto", "5", "json", "2024-01-01"))
)
options = st.lists(
    st.tuples(
        st.sampled_from(
            ("--user", "--agent", "--run", "--metadata", "--filters", "--top-k", "--as-of", "--kinds", "--around",
             "--format", "--name", "--role", "--timestamp", "--limit", "--max-chars", "--hops", "--threshold")
        ),
        words,
    ),
    max_size=3,
)  # fmt: skip
commands = st.sampled_from(
    ("add", "search", "context", "list", "show", "history", "explain", "update", "delete", "graph")
)


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    shared = Path("/dev/shm")
    with (
        TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name,
        pytest.MonkeyPatch.context() as p,
    ):
        p.setattr(graphmem.wiring, "_extractor", lambda _: WordExtractor())
        p.setattr(graphmem.wiring, "_embedder", lambda _: HashEmbedder(DIMS))
        p.chdir(name)
        Memory(f"{name}/home").close()  # commands that read refuse a folder without one
        yield f"{name}/home"
        assert sorted(os.listdir(name)) == ["home"]


@make_settings("command lines")
@given(command=commands, arguments=st.lists(words, max_size=2), more=options, as_json=st.booleans())
def test_command_lines_end_in_an_answer_or_a_one_line_error(command, arguments, more, as_json, home):
    line = [command, "--user", "u", "--home", home, *(["--json"] if as_json else [])]
    line += [*(word for pair in more for word in pair), "--", *arguments]
    result = CliRunner().invoke(app, line)
    event(f"{command}: {result.exit_code}")
    assert result.exit_code in {0, 1, 2}, (line, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.stderr
    assert "\x1b]" not in result.stdout + result.stderr
    if result.exit_code == 1:
        assert result.stderr.strip().count("\n") == 0, result.stderr


# --- default models ---------------------------------------------------------------------------------------------------


def test_default_models_read_any_text(tmp_path):
    messages = [*INJECTIONS, *(text * 50 for text in INJECTIONS[::3])]
    with listening() as logs, Memory(":memory:", settings=Settings()) as memory:
        results = memory.add(messages, user_id="u")["results"]
        assert [one["memory"] for one in results] == messages
        for text in INJECTIONS:
            response = memory.search(text, user_id="u", explain=True)
            assert "degraded" not in response
        assert memory.verify()["ok"]
        assert memory.stats()["jobs"] == 0
    assert logs.lines == []
    assert math.isfinite(sum(hit["score"] for hit in response["results"]))
