"""Calls as mem0's documentation writes them, 1.x and 2.x, made to us; those of 2.x are made to a real mem0 2.x, too.

A row is: the versions that document a call, the call, what comes of it (where it differs on purpose: our error), and
the page of docs.mem0.ai (or of mem0ai's own docstrings) that has it. Whatever 2.x answers with, we answer with as well.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, NamedTuple

import pytest
from support import mem0_fixture
from support.databases import SQLITE
from support.fakes import fake_models

from graphmem import AsyncMemory, Memory, Settings
from graphmem.errors import ConfigError, NotFoundError, ValidationError
from graphmem.testing import ModelEndpoint


@pytest.fixture
def database() -> str:
    """Arguments and shapes: no store sees a difference."""
    return SQLITE


QUICKSTART = "open-source/python-quickstart"
ASYNC = "open-source/features/async-memory"
FILTERS = "open-source/features/metadata-filtering"
ADD, SEARCH = "core-concepts/memory-operations/add", "core-concepts/memory-operations/search"
UPDATE, DELETE = "core-concepts/memory-operations/update", "core-concepts/memory-operations/delete"
TO_1, TO_2 = "migration/api-changes", "migration/oss-v2-to-v3"
CODE = "mem0ai's docstrings"

MESSAGES = [
    {"role": "user", "content": "I'm planning to watch a movie tonight."},
    {"role": "assistant", "content": "How about a thriller?"},
]
ITEM = {"id", "memory", "hash", "metadata", "created_at", "updated_at", "user_id"}
HIT = ITEM | {"score"}
NEW = {"id", "memory", "event"}
LINE = {
    "id", "memory_id", "old_memory", "new_memory", "event", "created_at", "updated_at", "is_deleted", "actor_id",
    "role",
}  # fmt: skip
OURS = {"is_retired"}  # beside these
DONE = {"message"}
CONFIG = {"version": "v1.1"}


class Found(NamedTuple):
    """So many results, each with these keys."""

    count: int
    keys: set[str]


class Call(NamedTuple):
    versions: str
    call: str
    expected: Any
    source: str

    def __str__(self) -> str:
        return self.call


# `m` is a memory in which alice has said "I love sci-fi" to a bot and "I like tea"; `uid` is the first of these.
CALLS = [
    # --- add
    Call("1 2", "m.add('I love pizza', user_id='alice', infer=False)", Found(1, NEW), CODE),
    Call("1", "m.add('I love pizza', user_id='alice')", Found(1, NEW), TO_1),
    Call("1", "m.add(MESSAGES, user_id='alice', metadata={'category': 'movies'})", Found(2, NEW), QUICKSTART),
    Call("1 2", "m.add(MESSAGES, user_id='alice', metadata={'c': 1}, infer=False)", Found(2, NEW), QUICKSTART),
    Call("1 2", "m.add(messages=MESSAGES, user_id='alice', infer=False)", Found(2, NEW), ASYNC),
    Call("1 2", "m.add(MESSAGES[0], user_id='alice', infer=False)", Found(1, NEW), CODE),
    Call("1 2", "m.add(MESSAGES, agent_id='bot', run_id='r', infer=False)", Found(2, NEW), CODE),
    Call("1 2", "m.add(MESSAGES, user_id='alice', prompt='Only films.', infer=False)", Found(2, NEW), CODE),
    Call("2", "m.add('x', user_id='alice', expiration_date='2031-12-31', infer=False)", Found(1, NEW), CODE),
    Call("1", "m.add('Step 1.', agent_id='bot', memory_type='procedural_memory')", Found(1, NEW), CODE),
    Call("1", "m.add('x', user_id='alice', infer=True)", ConfigError, ADD),  # no model is configured
    Call("1 2", "m.add(MESSAGES)", ValidationError, CODE),
    Call("1 2", "m.add(7, user_id='alice')", ValidationError, CODE),
    Call("1 2", "m.add('x', user_id=' ')", ValidationError, CODE),
    # --- get, get_all
    Call("1 2", "m.get(uid)", ITEM | {"agent_id", "role"}, QUICKSTART),
    Call("1 2", "m.get(memory_id=uid)", ITEM, ASYNC),
    Call("1 2", "m.get('892db2ae-06d9-49e5-8b3e-585ef9b85b8e')", None, QUICKSTART),
    Call("1", "m.get_all(user_id='alice')", Found(2, ITEM), QUICKSTART),
    Call("1", "m.get_all(user_id='alice', agent_id='bot')", Found(1, ITEM), CODE),
    Call("1", "m.get_all(user_id='alice', limit=1)", Found(1, ITEM), CODE),
    Call("1", "m.get_all(user_id='alice', filters={'category': 'movies'})", Found(1, ITEM), TO_1),
    Call("2", "m.get_all(filters={'user_id': 'alice'})", Found(2, ITEM), TO_2),
    Call("2", "m.get_all(filters={'user_id': 'alice', 'agent_id': 'bot'})", Found(1, ITEM), CODE),
    Call("2", "m.get_all(filters={'user_id': 'alice'}, top_k=1, show_expired=True)", Found(1, ITEM), CODE),
    Call("1 2", "m.get_all()", ValidationError, CODE),
    # --- search
    Call("1", "m.search(query='What do you know?', user_id='alice')", Found(2, HIT), QUICKSTART),
    Call("1", "m.search('What do you know?', user_id='alice', limit=1)", Found(1, HIT), TO_1),
    Call("1", "m.search('sci-fi', user_id='alice', threshold=None, rerank=False)", Found(2, HIT), CODE),
    Call("1", "m.search('x', user_id='alice', filters={'category': 'movies'})", Found(1, HIT), FILTERS),
    Call("2", "m.search('What do I love?', filters={'user_id': 'alice'})", Found(2, HIT), SEARCH),
    Call("2", "m.search('x', filters={'user_id': 'alice', 'category': 'movies'})", Found(1, HIT), SEARCH),
    Call("2", "m.search('x', filters={'user_id': 'alice', 'category': {'contains': 'movies'}})", Found(1, HIT), SEARCH),
    Call("2", "m.search('x', filters={'user_id': 'alice', 'agent_id': 'bot'}, top_k=20)", Found(1, HIT), SEARCH),
    Call(
        "2", "m.search('x', filters={'user_id': 'alice'}, top_k=20, threshold=0.0, rerank=False)", Found(2, HIT), TO_2
    ),
    Call("2", "m.search('x', filters={'user_id': 'alice'}, explain=True)", Found(2, HIT), SEARCH),
    Call("1 2", "m.search('x')", ValidationError, CODE),
    Call("1 2", "m.search(' ', filters={'user_id': 'alice'})", ValidationError, CODE),
    Call("1", "m.search('x', user_id='alice', rerank=True)", ConfigError, TO_1),  # no reranker is configured
    *[
        Call("1 2", f"m.search('x', filters={{'user_id': 'alice', {condition}}})", Found(count, HIT), FILTERS)
        for condition, count in [
            ("'n': {'gt': 6}", 1),
            ("'n': {'gte': 5, 'lt': 7}", 0),
            ("'n': {'lte': 7}", 1),
            ("'category': {'eq': 'movies'}", 1),
            ("'category': {'in': ['food', 'movies']}", 1),
            ("'category': {'icontains': 'movies'}", 1),
            ("'AND': [{'category': 'movies'}, {'n': {'gte': 7}}]", 1),
            ("'OR': [{'category': 'urgent'}, {'n': {'gte': 7}}]", 1),
            ("'NOT': [{'category': 'movies'}]", 1),
            ("'AND': [{'OR': [{'category': 'movies'}, {'category': 'work'}]}, {'NOT': [{'n': 3}]}]", 1),
        ]
    ],
    Call("1 2", "m.search('x', filters={'user_id': 'alice', 'n': {'unknown': 1}})", ValidationError, FILTERS),
    # --- update
    Call("1 2", "m.update(memory_id=uid, data='I love India')", DONE, QUICKSTART),
    Call("1 2", "m.update(uid, 'I love India')", DONE, CODE),
    Call("2", "m.update(memory_id=uid, text='Likes tennis')", DONE, CODE),
    Call("2", "m.update(memory_id=uid, text='Likes tennis', metadata={'category': 'sport'})", DONE, UPDATE),
    Call("2", "m.update(uid, 'Likes tennis', {'category': 'sport'})", DONE, CODE),
    Call("2", "m.update(uid, metadata={'category': 'sport'})", DONE, CODE),
    Call("2", "m.update(uid, expiration_date='2031-12-31')", DONE, CODE),
    Call("2", "m.update(uid, expiration_date=None)", DONE, CODE),
    Call("2", "m.update(uid)", ValidationError, CODE),
    Call("1 2", "m.update('892db2ae-06d9-49e5-8b3e-585ef9b85b8e', 'x')", NotFoundError, CODE),
    # --- history, delete, delete_all, reset, close
    Call("1 2", "m.history(memory_id=uid)", [LINE], QUICKSTART),
    Call("1 2", "m.history(uid)", [LINE], CODE),
    Call("1 2", "m.history('892db2ae-06d9-49e5-8b3e-585ef9b85b8e')", [], CODE),
    Call("1 2", "m.delete(memory_id=uid)", DONE, QUICKSTART),
    Call("1 2", "m.delete(uid)", DONE, CODE),
    Call("1 2", "m.delete('892db2ae-06d9-49e5-8b3e-585ef9b85b8e')", NotFoundError, CODE),
    Call("1 2", "m.delete_all(user_id='alice')", DONE, QUICKSTART),
    Call("1 2", "m.delete_all(user_id='alice', agent_id='bot', run_id='r')", DONE, CODE),
    Call("1 2", "m.delete_all()", ValidationError, CODE),
]

# What mem0 takes and we refuse, or take in another way: on purpose.
DIFFERENT = [
    # A scope is who asks, not a condition: nothing in a filter may widen it.
    Call(
        "1", "m.search('x', filters={'AND': [{'user_id': 'alice'}, {'category': 'movies'}]})", ValidationError, FILTERS
    ),
    Call("1", "m.delete_all(user_id='*')", ValidationError, TO_1),
    # "*" in metadata is a text, not a wildcard.
    Call("1", "m.search('x', user_id='alice', filters={'category': '*'})", Found(0, HIT), FILTERS),
    # Ids by keyword only; a positional one is too easily another's.
    Call("1", "m.delete_all('alice')", TypeError, CODE),
]


def asked(call: Call, m: Any, uid: str) -> Any:
    return eval(call.call, {"m": m, "uid": uid, "MESSAGES": MESSAGES})  # noqa: S307  (our own table)


def begun(m: Any) -> str:
    said = {"user_id": "alice", "agent_id": "bot", "metadata": {"category": "movies", "n": 7}, "infer": False}
    (one,) = m.add("I love sci-fi", **said)["results"]
    m.add("I like tea", user_id="alice", infer=False)
    return one["id"]


def check(found: Any, expected: Any) -> None:
    if isinstance(expected, Found):
        assert len(found["results"]) == expected.count
        assert all(expected.keys <= one.keys() for one in found["results"])
    elif isinstance(expected, set):
        assert expected <= found.keys()
    elif expected and isinstance(expected, list):
        assert [line.keys() - OURS for line in found] == expected
    else:
        assert found == expected


@pytest.mark.parametrize("call", CALLS + DIFFERENT, ids=str)
def test_a_call_of_mem0s_documentation(memory: Memory, call: Call) -> None:
    uid = begun(memory)
    if inspect.isclass(call.expected):
        with pytest.raises(call.expected):
            asked(call, memory, uid)
    else:
        check(asked(call, memory, uid), call.expected)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    memory = mem0_fixture.opened(tmp_path_factory.mktemp("mem0"))
    yield memory
    mem0_fixture.closed(memory)


# What we call `explain`, and a score that `get` always gives as None.
OTHERWISE = {"score_details", "score"}


@pytest.mark.parametrize("call", [call for call in CALLS if "2" in call.versions], ids=str)
def test_mem0_itself_answers_with_nothing_more(memory: Memory, theirs: Any, call: Call) -> None:
    """So that the table says what is so, and not what we believe of it."""
    theirs.delete_all(user_id="alice")
    theirs.delete_all(agent_id="bot")
    uid = begun(theirs)
    if inspect.isclass(call.expected):
        with pytest.raises(Exception):
            asked(call, theirs, uid)
        return
    found = asked(call, theirs, uid)
    check(found, call.expected)
    assert keys(found) - OTHERWISE <= keys(asked(call, memory, begun(memory)))


def keys(found: Any) -> set[str]:
    """The keys of an answer and of what it lists."""
    listed = found if isinstance(found, list) else (found or {}).get("results", [])
    return set().union(
        *(one.keys() for one in listed), () if isinstance(found, list) or found is None else found.keys()
    )


def test_every_method_of_mem0_2_is_here_with_its_arguments() -> None:
    from mem0 import Memory as Theirs

    missing = {"chat", "project", "entity_store"}
    for name in {name for name in dir(Theirs) if not name.startswith("_")} - missing:
        parameters = inspect.signature(getattr(Theirs, name)).parameters.values()
        ours = inspect.signature(getattr(Memory, name)).parameters
        assert {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} <= ours.keys(), name


def test_an_async_memory_takes_the_same_calls() -> None:
    """open-source/features/async-memory."""

    async def live() -> None:
        memory = AsyncMemory(":memory:", settings=Settings.from_dict(fake_models()))
        check(await memory.add(messages=MESSAGES, user_id="alice"), Found(2, NEW))
        check(await memory.search(query="What am I planning?", user_id="alice"), Found(2, HIT))
        check(await memory.search("x", filters={"user_id": "alice"}, top_k=1), Found(1, HIT))
        uid = (await memory.get_all(user_id="alice"))["results"][0]["id"]
        check(await memory.get(memory_id=uid), ITEM)
        check(await memory.update(memory_id=uid, data="I'm travelling to Seattle"), DONE)
        check(await memory.history(memory_id=uid), [LINE, LINE])
        updated = await memory.update(uid, "I'm travelling to Oslo", {"category": "travel"})
        assert (updated["memory"], updated["metadata"]) == ("I'm travelling to Oslo", {"category": "travel"})
        check(await memory.delete(memory_id=uid), DONE)
        check(await memory.delete_all(user_id="alice"), DONE)
        await memory.close()

    asyncio.run(live())


def test_configurations_of_mem0_are_read(tmp_path: Any) -> None:
    config = {
        "vector_store": {
            "provider": "qdrant",
            "config": {
                "path": str(tmp_path / "q"),
                "collection_name": "mem0",
                "embedding_model_dims": 64,
                "on_disk": True,
            },
        },
        "history_db_path": str(tmp_path / "history.db"),
        "version": "v1.1",
        "custom_fact_extraction_prompt": "Films only.",
        "custom_update_memory_prompt": "Be brief.",
        "custom_instructions": "Films only.",
        **fake_models(),
    }
    for make in (
        lambda: Memory.from_config(config),
        lambda: Memory.from_config(config_dict=config),
        lambda: Memory(config=config),
        lambda: Memory(config),
        lambda: AsyncMemory(config=config).sync,
    ):
        with pytest.warns(UserWarning, match="custom_fact_extraction_prompt, custom_instructions"), make() as memory:
            check(memory.add("I love pizza", user_id="alice", infer=False), Found(1, NEW))
    with pytest.raises(ConfigError, match="reranker"):
        Memory.from_config({**config, "reranker": {"provider": "cohere"}})
    key = {"api_key": "k", "model": "gpt-4o", "temperature": 0.1, "max_tokens": 2000}
    Memory.from_config({**config, "llm": {"provider": "openai", "config": key}}).close()


def test_objects_of_mem0s_configuration_are_read(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was set in them counts: what mem0 puts there by itself are its own collection and history."""
    from mem0.configs.base import MemoryConfig

    monkeypatch.setenv("GRAPHMEM_HOME", str(tmp_path / "home"))
    with ModelEndpoint(default='{"facts": ["Loves pizza"]}', dims=64) as endpoint:
        config = {"openai_base_url": endpoint.url, "api_key": "k", "model": "any"}
        theirs = MemoryConfig(
            llm={"config": {**config, "temperature": 0.1, "max_tokens": 2000, "top_p": 0.1}},
            embedder={"config": {**config, "embedding_dims": 64}},
            vector_store={"config": {"collection_name": "mine", "embedding_model_dims": 64}},
            history_db_path=str(tmp_path / "history.db"),
        )
        for make in (lambda: Memory(theirs), lambda: Memory(config=theirs), lambda: Memory.from_config(theirs)):
            with make() as memory:
                check(memory.add("I love pizza", user_id="alice", infer=False), Found(1, NEW))
        with Memory(theirs) as memory:
            assert [one["memory"] for one in memory.add("Pizza!", user_id="alice")["results"]] == ["Loves pizza"]
        assert endpoint.requests[-1].headers["authorization"] == "Bearer k"
    assert (tmp_path / "history.db").exists()
    assert {one.name.partition("-")[0] for one in (tmp_path / "home" / "vectors").iterdir()} == {"mine"}
    for wrong in (MemoryConfig(reranker={"provider": "cohere", "config": {}}), MemoryConfig(llm={"provider": "groq"})):
        with pytest.raises(ConfigError, match=r"reranker|api\.groq\.com"):
            Memory(wrong)


def test_a_configuration_is_given_once() -> None:
    for arguments in (((CONFIG,), {"config": CONFIG}), ((), {"config": CONFIG, "settings": Settings()})):
        with pytest.raises(ConfigError, match="config: "):
            Memory(*arguments[0], **arguments[1])
    with pytest.raises(ConfigError, match="must be a dict of settings, not int"):
        Memory(config=5)  # type: ignore[arg-type]


def test_reset_leaves_nothing(memory: Memory) -> None:
    uid = begun(memory)
    memory.reset()
    assert memory.get(uid) is None
    assert memory.get_all(user_id="alice")["results"] == []
