"""The calls of mem0's documentation, 1.x and 2.x, made to graphmem; those of 2.x also to a real mem0 2.x.

A row holds the versions that document a call, the call, the expected answer (or our error, where it differs on
purpose), and the page of docs.mem0.ai (or mem0ai's own docstrings) that shows it. Our answers have all keys of 2.x.
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
    """SQLite only: arguments and shapes of answers do not depend on the store."""
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
OUR_KEYS = {"is_retired"}  # beside those of mem0
RECEIPT = {"message"}
CONFIG = {"version": "v1.1"}


class ResultList(NamedTuple):
    """An answer with `count` results, each with at least these keys."""

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
    Call("1 2", "m.add('I love pizza', user_id='alice', infer=False)", ResultList(1, NEW), CODE),
    Call("1", "m.add('I love pizza', user_id='alice')", ResultList(1, NEW), TO_1),
    Call("1", "m.add(MESSAGES, user_id='alice', metadata={'category': 'movies'})", ResultList(2, NEW), QUICKSTART),
    Call("1 2", "m.add(MESSAGES, user_id='alice', metadata={'c': 1}, infer=False)", ResultList(2, NEW), QUICKSTART),
    Call("1 2", "m.add(messages=MESSAGES, user_id='alice', infer=False)", ResultList(2, NEW), ASYNC),
    Call("1 2", "m.add(MESSAGES[0], user_id='alice', infer=False)", ResultList(1, NEW), CODE),
    Call("1 2", "m.add(MESSAGES, agent_id='bot', run_id='r', infer=False)", ResultList(2, NEW), CODE),
    Call("1 2", "m.add(MESSAGES, user_id='alice', prompt='Only films.', infer=False)", ResultList(2, NEW), CODE),
    Call("2", "m.add('x', user_id='alice', expiration_date='2031-12-31', infer=False)", ResultList(1, NEW), CODE),
    Call("1", "m.add('Step 1.', agent_id='bot', memory_type='procedural_memory')", ResultList(1, NEW), CODE),
    Call("1", "m.add('x', user_id='alice', infer=True)", ConfigError, ADD),  # no model is configured
    Call("1 2", "m.add(MESSAGES)", ValidationError, CODE),
    Call("1 2", "m.add(7, user_id='alice')", ValidationError, CODE),
    Call("1 2", "m.add('x', user_id=' ')", ValidationError, CODE),
    # --- get, get_all
    Call("1 2", "m.get(uid)", ITEM | {"agent_id", "role"}, QUICKSTART),
    Call("1 2", "m.get(memory_id=uid)", ITEM, ASYNC),
    Call("1 2", "m.get('892db2ae-06d9-49e5-8b3e-585ef9b85b8e')", None, QUICKSTART),
    Call("1", "m.get_all(user_id='alice')", ResultList(2, ITEM), QUICKSTART),
    Call("1", "m.get_all(user_id='alice', agent_id='bot')", ResultList(1, ITEM), CODE),
    Call("1", "m.get_all(user_id='alice', limit=1)", ResultList(1, ITEM), CODE),
    Call("1", "m.get_all(user_id='alice', filters={'category': 'movies'})", ResultList(1, ITEM), TO_1),
    Call("2", "m.get_all(filters={'user_id': 'alice'})", ResultList(2, ITEM), TO_2),
    Call("2", "m.get_all(filters={'user_id': 'alice', 'agent_id': 'bot'})", ResultList(1, ITEM), CODE),
    Call("2", "m.get_all(filters={'user_id': 'alice'}, top_k=1, show_expired=True)", ResultList(1, ITEM), CODE),
    Call("1 2", "m.get_all()", ValidationError, CODE),
    # --- search
    Call("1", "m.search(query='What do you know?', user_id='alice')", ResultList(2, HIT), QUICKSTART),
    Call("1", "m.search('What do you know?', user_id='alice', limit=1)", ResultList(1, HIT), TO_1),
    Call("1", "m.search('sci-fi', user_id='alice', threshold=None, rerank=False)", ResultList(2, HIT), CODE),
    Call("1", "m.search('x', user_id='alice', filters={'category': 'movies'})", ResultList(1, HIT), FILTERS),
    Call("2", "m.search('What do I love?', filters={'user_id': 'alice'})", ResultList(2, HIT), SEARCH),
    Call("2", "m.search('x', filters={'user_id': 'alice', 'category': 'movies'})", ResultList(1, HIT), SEARCH),
    Call(
        "2",
        "m.search('x', filters={'user_id': 'alice', 'category': {'contains': 'movies'}})",
        ResultList(1, HIT),
        SEARCH,
    ),
    Call("2", "m.search('x', filters={'user_id': 'alice', 'agent_id': 'bot'}, top_k=20)", ResultList(1, HIT), SEARCH),
    Call(
        "2",
        "m.search('x', filters={'user_id': 'alice'}, top_k=20, threshold=0.0, rerank=False)",
        ResultList(2, HIT),
        TO_2,
    ),
    Call("2", "m.search('x', filters={'user_id': 'alice'}, explain=True)", ResultList(2, HIT), SEARCH),
    Call("1 2", "m.search('x')", ValidationError, CODE),
    Call("1 2", "m.search(' ', filters={'user_id': 'alice'})", ValidationError, CODE),
    Call("1", "m.search('x', user_id='alice', rerank=True)", ConfigError, TO_1),  # no reranker is configured
    *[
        Call("1 2", f"m.search('x', filters={{'user_id': 'alice', {condition}}})", ResultList(count, HIT), FILTERS)
        for condition, count in [
            ("'n': {'gt': 6}", 1),
            ("'n': {'gte': 5, 'lt': 7}", 0),
            ("'n': {'lte': 7}", 1),
            ("'category': {'eq': 'movies'}", 1),
            ("'AND': [{'agent_id': 'bot', 'category': 'movies'}]", 1),
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
    Call("1 2", "m.update(memory_id=uid, data='I love India')", RECEIPT, QUICKSTART),
    Call("1 2", "m.update(uid, 'I love India')", RECEIPT, CODE),
    Call("2", "m.update(memory_id=uid, text='Likes tennis')", RECEIPT, CODE),
    Call("2", "m.update(memory_id=uid, text='Likes tennis', metadata={'category': 'sport'})", RECEIPT, UPDATE),
    Call("2", "m.update(uid, 'Likes tennis', {'category': 'sport'})", RECEIPT, CODE),
    Call("2", "m.update(uid, metadata={'category': 'sport'})", RECEIPT, CODE),
    Call("2", "m.update(uid, expiration_date='2031-12-31')", RECEIPT, CODE),
    Call("2", "m.update(uid, expiration_date=None)", RECEIPT, CODE),
    Call("2", "m.update(uid)", ValidationError, CODE),
    Call("1 2", "m.update('892db2ae-06d9-49e5-8b3e-585ef9b85b8e', 'x')", NotFoundError, CODE),
    # --- history, delete, delete_all, reset, close
    Call("1 2", "m.history(memory_id=uid)", [LINE], QUICKSTART),
    Call("1 2", "m.history(uid)", [LINE], CODE),
    Call("1 2", "m.history('892db2ae-06d9-49e5-8b3e-585ef9b85b8e')", [], CODE),
    Call("1 2", "m.delete(memory_id=uid)", RECEIPT, QUICKSTART),
    Call("1 2", "m.delete(uid)", RECEIPT, CODE),
    Call("1 2", "m.delete('892db2ae-06d9-49e5-8b3e-585ef9b85b8e')", NotFoundError, CODE),
    Call("1 2", "m.delete_all(user_id='alice')", RECEIPT, QUICKSTART),
    Call("1 2", "m.delete_all(user_id='alice', agent_id='bot', run_id='r')", RECEIPT, CODE),
    Call("1 2", "m.delete_all()", ValidationError, CODE),
]

# Calls that mem0 accepts and we refuse or answer differently, on purpose.
DIFFERENCES = [
    # Ids are no alternatives: no filter may widen the scope of a call.
    Call(
        "1", "m.search('x', filters={'OR': [{'user_id': 'alice'}, {'category': 'movies'}]})", ValidationError, FILTERS
    ),
    Call("1", "m.delete_all(user_id='*')", ValidationError, TO_1),
    # "*" means any value of a key that is there; mem0's store for Qdrant leaves the condition out.
    Call("1", "m.search('x', user_id='alice', filters={'category': '*'})", ResultList(1, HIT), FILTERS),
    # Ids are keyword arguments only: by position, one kind is easily mistaken for another.
    Call("1", "m.delete_all('alice')", TypeError, CODE),
]


def evaluate(call: Call, m: Any, uid: str) -> Any:
    return eval(call.call, {"m": m, "uid": uid, "MESSAGES": MESSAGES})  # noqa: S307  (our own table)


def add_memories(m: Any) -> str:
    options = {"user_id": "alice", "agent_id": "bot", "metadata": {"category": "movies", "n": 7}, "infer": False}
    (one,) = m.add("I love sci-fi", **options)["results"]
    m.add("I like tea", user_id="alice", infer=False)
    return one["id"]


def check(answer: Any, expected: Any) -> None:
    if isinstance(expected, ResultList):
        assert len(answer["results"]) == expected.count
        assert all(expected.keys <= one.keys() for one in answer["results"])
    elif isinstance(expected, set):
        assert expected <= answer.keys()
    elif expected and isinstance(expected, list):
        assert [line.keys() - OUR_KEYS for line in answer] == expected
    else:
        assert answer == expected


@pytest.mark.parametrize("call", CALLS + DIFFERENCES, ids=str)
def test_documented_calls_of_mem0_are_accepted(memory: Memory, call: Call) -> None:
    uid = add_memories(memory)
    if inspect.isclass(call.expected):
        with pytest.raises(call.expected):
            evaluate(call, memory, uid)
    else:
        check(evaluate(call, memory, uid), call.expected)


@pytest.fixture(scope="module")
def mem0_memory(tmp_path_factory: pytest.TempPathFactory) -> Any:
    memory = mem0_fixture.opened(tmp_path_factory.mktemp("mem0"))
    yield memory
    mem0_fixture.closed(memory)


# Keys of mem0 alone: `score_details` (`explain` here), and the `score` of `get`, which is always None.
MEM0_KEYS = {"score_details", "score"}


@pytest.mark.parametrize("call", [call for call in CALLS if "2" in call.versions], ids=str)
def test_mem0_itself_answers_with_no_further_keys(memory: Memory, mem0_memory: Any, call: Call) -> None:
    """Checks the table itself: its expectations hold for mem0."""
    mem0_memory.delete_all(user_id="alice")
    mem0_memory.delete_all(agent_id="bot")
    uid = add_memories(mem0_memory)
    if inspect.isclass(call.expected):
        with pytest.raises(Exception):
            evaluate(call, mem0_memory, uid)
        return
    answer = evaluate(call, mem0_memory, uid)
    check(answer, call.expected)
    assert collect_keys(answer) - MEM0_KEYS <= collect_keys(evaluate(call, memory, add_memories(memory)))


def collect_keys(answer: Any) -> set[str]:
    """The keys of an answer and of its results."""
    results = answer if isinstance(answer, list) else (answer or {}).get("results", [])
    return set().union(
        *(one.keys() for one in results), () if isinstance(answer, list) or answer is None else answer.keys()
    )


def test_every_method_of_mem0_2_is_here_with_its_arguments() -> None:
    from mem0 import Memory as Mem0Memory

    missing = {"chat", "project", "entity_store"}
    for name in {name for name in dir(Mem0Memory) if not name.startswith("_")} - missing:
        parameters = inspect.signature(getattr(Mem0Memory, name)).parameters.values()
        our_parameters = inspect.signature(getattr(Memory, name)).parameters
        assert {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} <= our_parameters.keys(), name


def test_an_async_memory_takes_the_same_calls() -> None:
    """open-source/features/async-memory."""

    async def run_calls() -> None:
        memory = AsyncMemory(":memory:", settings=Settings.from_dict(fake_models()))
        check(await memory.add(messages=MESSAGES, user_id="alice"), ResultList(2, NEW))
        check(await memory.search(query="What am I planning?", user_id="alice"), ResultList(2, HIT))
        check(await memory.search("x", filters={"user_id": "alice"}, top_k=1), ResultList(1, HIT))
        uid = (await memory.get_all(user_id="alice"))["results"][0]["id"]
        check(await memory.get(memory_id=uid), ITEM)
        check(await memory.update(memory_id=uid, data="I'm travelling to Seattle"), RECEIPT)
        check(await memory.history(memory_id=uid), [LINE, LINE])
        result = await memory.update(uid, "I'm travelling to Oslo", {"category": "travel"})
        assert (result["memory"], result["metadata"]) == ("I'm travelling to Oslo", {"category": "travel"})
        check(await memory.delete(memory_id=uid), RECEIPT)
        check(await memory.delete_all(user_id="alice"), RECEIPT)
        await memory.close()

    asyncio.run(run_calls())


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
            check(memory.add("I love pizza", user_id="alice", infer=False), ResultList(1, NEW))
    with pytest.raises(ConfigError, match="reranker"):
        Memory.from_config({**config, "reranker": {"provider": "cohere"}})
    key = {"api_key": "k", "model": "gpt-4o", "temperature": 0.1, "max_tokens": 2000}
    Memory.from_config({**config, "llm": {"provider": "openai", "config": key}}).close()


def test_objects_of_mem0s_configuration_are_read(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values set by the caller are used; mem0's own defaults for the collection and the history are not."""
    from mem0.configs.base import MemoryConfig

    monkeypatch.setenv("GRAPHMEM_HOME", str(tmp_path / "home"))
    with ModelEndpoint(default='{"facts": ["Loves pizza"]}', dims=64) as endpoint:
        config = {"openai_base_url": endpoint.url, "api_key": "k", "model": "any"}
        mem0_config = MemoryConfig(
            llm={"config": {**config, "temperature": 0.1, "max_tokens": 2000, "top_p": 0.1}},
            embedder={"config": {**config, "embedding_dims": 64}},
            vector_store={"config": {"collection_name": "mine", "embedding_model_dims": 64}},
            history_db_path=str(tmp_path / "history.db"),
        )
        for make in (
            lambda: Memory(mem0_config),
            lambda: Memory(config=mem0_config),
            lambda: Memory.from_config(mem0_config),
        ):
            with make() as memory:
                check(memory.add("I love pizza", user_id="alice", infer=False), ResultList(1, NEW))
        with Memory(mem0_config) as memory:
            assert [one["memory"] for one in memory.add("Pizza!", user_id="alice")["results"]] == ["Loves pizza"]
        assert endpoint.requests[-1].headers["authorization"] == "Bearer k"
    assert (tmp_path / "history.db").exists()
    for wrong in (MemoryConfig(reranker={"provider": "cohere", "config": {}}), MemoryConfig(llm={"provider": "groq"})):
        with pytest.raises(ConfigError, match=r"reranker|api\.groq\.com"):
            Memory(wrong)


def test_two_configurations_and_values_of_other_types_are_refused() -> None:
    for arguments in (((CONFIG,), {"config": CONFIG}), ((), {"config": CONFIG, "settings": Settings()})):
        with pytest.raises(ConfigError, match="config: "):
            Memory(*arguments[0], **arguments[1])
    with pytest.raises(ConfigError, match="must be a dict of settings, not int"):
        Memory(config=5)  # type: ignore[arg-type]


def test_reset_removes_all_memories(memory: Memory) -> None:
    uid = add_memories(memory)
    memory.reset()
    assert memory.get(uid) is None
    assert memory.get_all(user_id="alice")["results"] == []
