"""More than 10,000 generated inputs through every door: each is refused by an error of ours, or kept faithfully.

The generators know what the doors take: messages with roles, parts, ids and times, filters with operators and logic,
metadata of any depth and size, configurations, command lines; and what they put in is made to be misunderstood.
"""

from __future__ import annotations

import json
import math
import os
import re
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
# What is tried at each door. The same inputs in every run, so that a failure is the change's.
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


def tried(door: str, at_once: int = 1) -> settings:
    return settings(
        max_examples=INPUTS[door] // at_once,
        deadline=None,
        derandomize=True,
        print_blob=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def test_they_are_more_than_ten_thousand():
    assert sum(INPUTS.values()) > 10_000


# --- what is put in ---------------------------------------------------------------------------------------------------

# By number: hypothesis writes down what its strategies are made of.
injections = st.integers(0, len(INJECTIONS) - 1).map(INJECTIONS.__getitem__)
letters = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)
# All that a store can hold.
texts = st.one_of(
    injections,
    letters,
    st.lists(st.one_of(injections, letters), min_size=2, max_size=4).map("".join),
    st.builds(lambda part, times: part * times, st.one_of(injections, letters), st.sampled_from((2, 20, 200))),
)
# And what none can.
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
plain = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), texts)
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
def opened() -> Iterator[Memory]:
    """With an extractor that finds names in anything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphmem.wiring, "_extractor", lambda _: WordExtractor())
        with Memory(":memory:", settings=Settings.from_dict(fake_models())) as made:
            made.add("Ann met Bob in Bergen", user_id="u", metadata={"a": 1, "b": ["x"], "c": {"d": "e"}})
            yield made
            assert made.verify()["ok"]


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    """One for all."""
    with opened() as made:
        yield made


@pytest.fixture(scope="module")
def untouched() -> Iterator[Memory]:
    """One to which nothing is added: in the other one odd ids, too, may have memories by now."""
    with opened() as made:
        yield made


def count(memory: Memory) -> int:
    with memory._engine.ledger.read() as connection:
        return int(connection.scalar(select(func.count()).select_from(memories)))


def storable(value: Any) -> bool:
    return not re.search("[\x00\ud800-\udfff]", value)


# --- messages ---------------------------------------------------------------------------------------------------------

good_times = st.one_of(st.none(), st.datetimes(timezones=st.just(UTC)), st.integers(-(10**9), 10**10))
good_names = st.one_of(st.none(), st.sampled_from(("Ann", "Mr. O'Neil", "a*b", "%", "_", "北京", "a`b", "-x")))
good_messages = st.fixed_dictionaries({"role": roles, "content": texts, "name": good_names, "timestamp": good_times})


@tried("messages kept", BATCH)
@given(said=st.lists(good_messages, min_size=BATCH, max_size=BATCH), metadata=documents)
def test_what_a_store_can_hold_is_kept_to_the_character(said, metadata, memory):
    user = uuid4().hex
    added = memory.add(said, user_id=user, metadata=metadata)["results"]
    kept = [one for one in said if one["role"] not in {"system", "developer"} and one["content"].strip()]
    assert [one["memory"] for one in added] == [one["content"] for one in kept]
    listed = {one["id"]: one for one in memory.get_all(user_id=user, limit=BATCH)["results"]}
    assert len(listed) == len(kept)
    for result, message in zip(added, kept, strict=True):
        one = listed[result["id"]]
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


@tried("messages")
@given(
    said=st.one_of(any_messages, st.lists(any_messages, max_size=3)),
    options=st.fixed_dictionaries({}, optional={
        "timestamp": times, "expiration_date": times, "memory_type": strange, "prompt": strange, "infer": strange,
        "wait": strange, "agent_id": strange, "run_id": strange,
    }),
)  # fmt: skip
def test_a_message_is_refused_as_a_whole_or_kept(said, options, memory):
    before, user = count(memory), uuid4().hex
    try:
        added = memory.add(said, user_id=user, **options)["results"]
    except GraphmemError as error:
        event(type(error).__name__)
        assert isinstance(error, ValidationError | ConfigError)
        assert count(memory) == before
        return
    event("kept" if added else "nothing to keep")
    listed = memory.get_all(user_id=user, show_expired=True)["results"]
    assert sorted(one["memory"] for one in listed) == sorted({one["id"]: one["memory"] for one in added}.values())


@tried("metadata")
@given(
    metadata=st.one_of(
        any_documents,
        st.builds(deep, st.integers(MAX_DOCUMENT_DEPTH - 3, MAX_DOCUMENT_DEPTH + 3), plain),
        st.builds(lambda text, n: {"a": text[:20] * (n // 20)}, texts, st.sampled_from((20, 1000, 100_000, 300_000))),
    ),
    by=st.sampled_from(("add", "update")),
)
def test_metadata_is_refused_or_kept(metadata, by, memory):
    user, before = uuid4().hex, count(memory)
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
            assert count(memory) == before
        else:
            assert memory.get(uid)["metadata"] == {}
        return
    event(f"kept by {by}")
    assert same(memory.get(uid)["metadata"], metadata or {})


def same(kept: Any, given_: Any) -> bool:
    """Equal but for what the documentation says: tuples become lists, dates and times ISO 8601 texts."""
    if isinstance(given_, dict):
        return kept.keys() == given_.keys() and all(same(kept[key], given_[key]) for key in given_)
    if isinstance(given_, list | tuple):
        return len(kept) == len(given_) and all(map(same, kept, given_))
    if isinstance(given_, datetime):
        return moment(kept, "") == moment(given_, "")
    if isinstance(given_, date):
        return bool(kept == given_.isoformat())
    return type(kept) is type(given_) and (kept == given_ or (kept != kept and given_ != given_))


# --- questions and filters --------------------------------------------------------------------------------------------

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


@tried("filters")
@given(wanted=filters)
def test_a_filter_is_refused_or_chooses_among_ones_own(wanted, memory):
    try:
        found = memory.get_all(user_id="u", filters=wanted)
    except ValidationError as error:
        event("refused")
        assert len(str(error)) < 1000
        with suppress(UnicodeEncodeError):
            str(error).encode()
        return
    event("chooses")
    assert {one["memory"] for one in found["results"]} <= {"Ann met Bob in Bergen"}


@tried("questions")
@given(
    text=st.one_of(any_texts, strange),
    options=st.fixed_dictionaries({}, optional={
        "top_k": strange, "limit": strange, "threshold": strange, "kinds": strange, "as_of": times,
        "reference_date": times, "show_expired": strange, "filters": filters, "rerank": strange,
    }),
)  # fmt: skip
def test_a_question_is_refused_or_answered(text, options, memory):
    try:
        found = memory.search(text, user_id="u", explain=True, **options)
    except GraphmemError as error:
        event(type(error).__name__)
        assert isinstance(error, ValidationError | ConfigError)
        return
    event("answered")
    assert "degraded" not in found
    assert {one["memory"] for one in found["results"]} <= {"Ann met Bob in Bergen"}
    block = memory.context(text, user_id="u")
    assert block.count("</memories>") == (1 if block else 0)


# --- ids and names ----------------------------------------------------------------------------------------------------


@tried("ids")
@given(
    uid=st.one_of(any_texts, strange),
    call=st.sampled_from(("get", "history", "explain", "update", "delete", "delete_all", "get_all")),
    who=st.fixed_dictionaries({}, optional={name: st.one_of(any_texts, strange) for name in ("user_id", "run_id")}),
)
def test_an_id_is_refused_or_nobodys(uid, call, who, untouched):
    before = count(untouched)
    arguments = {"delete_all": (), "get_all": (), "update": (uid, "x")}.get(call, (uid,))
    try:
        found = getattr(untouched, call)(*arguments, **who)
    except (ValidationError, NotFoundError) as error:
        event(type(error).__name__)
        assert len(str(error)) < 1000
    else:
        event("nothing")
        assert not found or not (found.get("deleted") or found.get("results"))
    assert count(untouched) == before


@tried("names")
@given(
    name=st.one_of(any_texts, strange),
    other=st.one_of(any_texts, st.just("Bob")),
    call=st.sampled_from(("entity", "entities", "alias", "unalias", "rename_entity", "graph", "renamed")),
)
def test_a_name_is_refused_or_kept(name, other, call, memory):
    who = {"user_id": "u"}
    try:
        if call == "entities":
            memory.entities(query=name, **who)
        elif call == "graph":
            assert len(memory.graph(around=name, **who)) in {0, 4}
        elif call == "renamed":
            shown = memory.rename_entity("Bob", name, **who)
            assert shown["name"] == name.strip()
            assert memory.entity("Bob", **who)["name"] == name.strip()
            assert memory.graph(**who).nodes["entity:bob"]["name"] == name.strip()
        else:
            getattr(memory, call)(*((name,) if call == "entity" else (name, other)), **who)
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


@tried("configurations")
@given(config=any_settings, form=st.sampled_from(("dict", "dict", "dict", "toml", "json", "yaml")))
def test_a_configuration_is_refused_or_usable(config, form, tmp_path_factory):
    try:
        if form == "dict":
            made = Settings.from_dict(config)
        else:
            file = tmp_path_factory.getbasetemp() / f"c.{form}"
            file.write_bytes(str(config).encode(errors="replace"))
            made = Settings.from_file(file)
        made.check_available()
    except ConfigError as error:
        event("refused")
        assert str(error)
        return
    event("usable")
    assert "SecretStr" not in repr(made) or "**" in repr(made) or "SecretStr('')" in repr(made)


@tried("variables")
@given(
    environ=st.dictionaries(
        st.lists(
            st.sampled_from(("HOME", "LLM", "VECTOR_STORE", "CONFIG", "PATH", "LIMITS", "", "X", "'")), max_size=4
        ).map(lambda steps: "GRAPHMEM_" + "__".join(steps)),
        any_texts,
        max_size=3,
    )
)
def test_variables_are_refused_or_usable(environ):
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
        yield f"{name}/home"
        assert sorted(os.listdir(name)) == ["home"]


@tried("command lines")
@given(command=commands, given_=st.lists(words, max_size=2), more=options, as_json=st.booleans())
def test_a_command_line_ends_in_an_answer_or_one_line(command, given_, more, as_json, home):
    line = [command, "--user", "u", "--home", home, *(["--json"] if as_json else [])]
    line += [*(word for pair in more for word in pair), "--", *given_]
    done = CliRunner().invoke(app, line)
    event(f"{command}: {done.exit_code}")
    assert done.exit_code in {0, 1, 2}, (line, done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "Traceback" not in done.stderr
    assert "\x1b]" not in done.stdout + done.stderr
    if done.exit_code == 1:
        assert done.stderr.strip().count("\n") == 0, done.stderr


# --- with the models that come along ----------------------------------------------------------------------------------


def test_the_models_read_anything(tmp_path):
    said = [*INJECTIONS, *(text * 50 for text in INJECTIONS[::3])]
    with listening() as logs, Memory(":memory:", settings=Settings()) as memory:
        added = memory.add(said, user_id="u")["results"]
        assert [one["memory"] for one in added] == said
        for text in INJECTIONS:
            found = memory.search(text, user_id="u", explain=True)
            assert "degraded" not in found
        assert memory.verify()["ok"]
        assert memory.stats()["tasks"] == 0
    assert logs.lines == []
    assert math.isfinite(sum(hit["score"] for hit in found["results"]))
