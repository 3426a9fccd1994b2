"""No user sees anything of another user's memories: a stranger's calls are answered as if the victim did not exist.

Two memories hold the same, except for one user, the victim, who is in the first only. A stranger makes every call (with
the victim's ids, entities, runs, filters, texts, or similar ids) to both, and the answers, errors included, have to be
identical: so a foreign id reads as an absent one, and no count, score, order or hint reveals another user. Besides, no
answer, error, cause of an error or log may hold a word of the victim's.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize
from uuid import UUID

import networkx as nx
import pytest
from support.databases import postgres
from support.fakes import fake_models
from support.log_guard import listening
from typer.testing import CliRunner

import graphmem.commands.memories
import graphmem.commands.unit_of_work
import graphmem.wiring
from graphmem import AsyncMemory, Memory, Settings
from graphmem.boundary.filters import text_hash
from graphmem.cli.app import app
from graphmem.errors import GraphmemError
from graphmem.testing import HashEmbedder, WordExtractor

VICTIM, STRANGER, AGENT, RUN = "ánna", "mallory", "helper", "run-1"
VICTIM_SCOPE, STRANGER_SCOPE = {"user_id": VICTIM, "agent_id": AGENT, "run_id": RUN}, {"user_id": STRANGER}
# Words of the victim alone. The stranger knows other things of hers: ids, a place, a whole sentence.
SECRETS = ("zyxwoc", "quillonbar", "ombergris", "thrallium", "brumalheim", "fernwehr", "gossamerine")
GUESSED = "Ann lives in Vostokgrad."
THEN, LATER = "2024-03-01T10:00:00+00:00", "2024-03-01T10:05:00+00:00"


# --- two worlds -----------------------------------------------------------------------------------------------------


def add_victim(memory: Memory) -> list[str]:
    """Adds the victim's memories: corrected, erased and expired ones, an alias, a name. Returns their ids."""
    messages = [
        {"role": "user", "name": "Quillonbar", "content": "Zyxwoc met Ann in Vostokgrad.", "id": "m1"},
        {"role": "user", "content": GUESSED, "id": "m2"},
        {"role": "assistant", "content": "Zyxwoc likes gossamerine tea. Ann likes Zyxwoc."},
        {"role": "user", "content": "Fernwehr hired Ann."},
        {"role": "user", "content": "Gossamerine hired Bob.", "id": "m5"},
    ]
    metadata = {"colour": "red", "ombergris": "thrallium", "tags": ["thrallium", "x"]}
    results = memory.add(messages, **VICTIM_SCOPE, metadata=metadata, timestamp=THEN)["results"]
    ids = [str(one["id"]) for one in results]
    memory.update(ids[3], "Ann hired Bob in Vostokgrad.")
    memory.delete(ids[4])
    ids += [
        str(one["id"]) for one in memory.add("Zyxwoc was ill.", **VICTIM_SCOPE, expiration_date="2024-04-01")["results"]
    ]
    memory.alias("Ann", "Zyxwoc", user_id=VICTIM)
    memory.rename_entity("Vostokgrad", "Brumalheim", user_id=VICTIM)
    return ids


def add_stranger(memory: Memory) -> None:
    """Adds the stranger's memories: some of the same agent as the victim's, and in a run of the same name."""
    memory.add(
        ["Ann met Bob in Bergen.", "Bob likes tea."], **STRANGER_SCOPE, metadata={"colour": "red"}, timestamp=THEN
    )
    memory.add("Bergen has a harbour.", **STRANGER_SCOPE, agent_id=AGENT, timestamp=LATER)
    memory.add(
        {"role": "user", "content": "Dora visited Ann.", "id": "m9"}, **STRANGER_SCOPE, run_id=RUN, timestamp=LATER
    )


@dataclass(frozen=True)
class Worlds:
    with_victim: Memory
    without_victim: Memory
    ids: list[str]
    before: str
    generators: tuple[Random, Random]

    def each(self, call: Callable[[Memory], Any]) -> Iterator[Callable[[], Any]]:
        """Yields a call for each memory. Both make the same new ids, so that no order depends on them."""
        for memory, generator in zip((self.with_victim, self.without_victim), self.generators, strict=True):
            with patch_uuids(generator):
                yield partial(call, memory)


@contextmanager
def patch_uuids(generator: Random) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (graphmem.commands.memories, graphmem.commands.unit_of_work):
            patch.setattr(module, "uuid4", lambda: UUID(int=generator.getrandbits(128), version=4))
        yield


@contextmanager
def make_home() -> Iterator[str]:
    """Makes a home folder, in memory where possible: no test here depends on the disk."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name:
        yield str(Path(name) / "home")


STORES = [
    "nowhere",
    pytest.param("folder", marks=pytest.mark.thorough),
    pytest.param("networkx", marks=pytest.mark.thorough),
    pytest.param("servers", marks=pytest.mark.server),
]


@contextmanager
def use_word_extractor() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphmem.wiring, "_extractor", lambda _: WordExtractor())
        yield


@pytest.fixture(scope="module", params=STORES)
def worlds(request, servers) -> Iterator[Worlds]:
    with ExitStack() as stack, use_word_extractor():

        def open_memory() -> Memory:
            path, config = ":memory:", fake_models()
            if request.param == "networkx":
                config["graph_store"] = {"provider": "networkx"}
            if request.param in {"folder", "servers"}:
                path = stack.enter_context(make_home())
            if request.param == "servers":
                config = servers.with_stores({**config, "ledger_url": stack.enter_context(postgres())})
            memory = stack.enter_context(Memory(path, settings=Settings.from_dict(config)))
            servers.note(memory)
            return memory

        with_victim, without_victim = open_memory(), open_memory()
        ids = add_victim(with_victim)
        worlds = Worlds(with_victim, without_victim, ids, snapshot_victim(with_victim), (Random(1), Random(1)))
        for add in worlds.each(add_stranger):
            add()
        yield worlds


def snapshot_victim(memory: Memory) -> str:
    """All data of the victim, as JSON, to compare before and after a stranger's calls."""
    listing = memory.get_all(user_id=VICTIM, show_expired=True)
    return json.dumps(
        [
            listing,
            [memory.history(one["id"]) for one in listing["results"]],
            memory.entities(user_id=VICTIM),
            nx.node_link_data(memory.graph(user_id=VICTIM), edges="edges"),
            memory.verify()["ok"],
        ],
        sort_keys=True,
    )


# --- a stranger's calls ----------------------------------------------------------------------------------------------

Attempt = tuple[tuple[Any, ...], dict[str, Any]]
FILTERS: list[dict[str, Any]] = [
    {"colour": "red"},
    {"colour": {"ne": "blue"}},
    {"tags": {"contains": "x"}},
    {"actor_id": {"icontains": "q"}},
    {"role": "assistant"},
    {"created_at": {"gte": "1970-01-01"}},
    {"at": {"lte": "9999-01-01"}},
    {"hash": text_hash(GUESSED)},
    {"NOT": [{"colour": "none"}]},
    {"OR": [{"colour": "red"}, {"colour": {"ne": "red"}}, {"id": {"ne": ""}}]},
    {"partition": f"user:{VICTIM}"},
    {"scope": {"in": [VICTIM]}},
    {"user_id": VICTIM},
    {"user_id": {"ne": STRANGER}},
    {"user_id": {"in": [VICTIM, STRANGER]}},
    {"user_id": "*"},
    {"AND": [{"user_id": VICTIM}]},
    {"OR": [{"colour": "red"}, {"user_id": VICTIM}]},
    {"NOT": {"user_id": STRANGER}},
    {"colour": {"in": [{"user_id": VICTIM}]}},
    {"agent_id": AGENT},
    {"run_id": RUN},
]
QUESTIONS = ["Who lives in Vostokgrad?", GUESSED, "Ann", "tea", "*", "%", "user:ánna OR 1=1", f"user_id={VICTIM}"]


def list_attempts(ids: list[str]) -> dict[str, list[Attempt]]:
    """For each method the arguments of its calls, without a scope. `ids` are the victim's."""
    all_ids = [*ids, "00000000-0000-4000-8000-000000000000", *(f"{ids[0]}{end}" for end in ("*", "%", "'", " "))]
    by_id: list[Attempt] = [((uid,), {}) for uid in all_ids]
    keys = ["Vostokgrad", "vostokgrad", "entity:vostokgrad", "Ann", "Vostokgra_", "Vostok%", "*", f"user:{VICTIM}"]
    return {
        "search": [
            *(((text,), {"explain": True, "top_k": 1000, "threshold": -1}) for text in QUESTIONS),
            *(((GUESSED,), {"filters": one, "explain": True, "show_expired": True}) for one in FILTERS),
            ((GUESSED,), {"as_of": LATER, "top_k": "auto"}),
            ((GUESSED,), {"kinds": ["episode", "fact", "summary"]}),
        ],
        "context": [((text,), {"max_chars": 100_000}) for text in QUESTIONS],
        "get": by_id,
        "get_all": [
            *(((), {"filters": one, "show_expired": True}) for one in FILTERS),
            *(((), {"limit": 100_000, "offset": offset}) for offset in (0, 1, 4, 5, 1000)),
            ((), {"as_of": LATER, "kinds": ["episode", "fact", "summary"]}),
        ],
        "history": by_id,
        "explain": by_id,
        "entities": [((), {}), *(((), {"query": key}) for key in keys), ((), {"type": "Other"}), ((), {"limit": 1})],
        "entity": [((key,), {}) for key in keys],
        "graph": [((), {"hops": 10, "around": around}) for around in (None, *keys, *ids)],
        "export": [((), {}), ((), {"run_id": "run-"})],
        "alias": [((key, "Bob"), {}) for key in keys] + [(("Vostokgrad", "Zanzibar"), {})],
        "unalias": [((key, "Bob"), {}) for key in keys] + [(("Ann", "Vostokgrad"), {})],
        "rename_entity": [((key, "Mine"), {}) for key in keys],
        "add": [
            ((GUESSED,), {"timestamp": THEN}),
            (([{"role": "user", "content": GUESSED, "id": "m2"}],), {}),
            (([{"role": "user", "content": "Something else.", "id": "m2"}],), {"run_id": RUN, "agent_id": AGENT}),
            (("Ann left Vostokgrad.",), {"run_id": RUN, "wait": False}),
        ],
        "update": [((uid, "Taken over."), {"metadata": {"owner": STRANGER}}) for uid in all_ids],
        "delete": by_id,
        "undo": by_id,
        "delete_all": [((), {"run_id": RUN, "agent_id": AGENT}), ((), {"run_id": "run-"}), ((), {})],
    }


# Methods without a scope, for whoever operates the memory.
OPERATOR_METHODS = {
    "from_config",
    "from_file",
    "import_",
    "flush",
    "retry_failed",
    "stats",
    "verify",
    "repair",
    "rebuild",
    "reset",
    "close",
}
SCOPES = [
    STRANGER_SCOPE,
    {**STRANGER_SCOPE, "agent_id": AGENT},
    {**STRANGER_SCOPE, "run_id": RUN},
    {**STRANGER_SCOPE, "agent_id": AGENT, "run_id": RUN},
]
# Ids similar to the victim's: parts of them, another case or normal form, patterns, her ids as another argument.
SIMILAR_SCOPES: list[dict[str, str]] = [
    *({"user_id": name} for name in ("ánn", "ánna2", "Ánna", "ÁNNA", "anna", normalize("NFD", VICTIM), "ánnа")),
    *({"user_id": name} for name in ("ánn%", "ánn*", "ánn_", "%", "_" * 4, "á.*", "ánna'", 'ánna"', "ánna\\")),
    *({"user_id": name} for name in ("ánna' OR '1'='1", "ánna\u200b", "ánna\u2060", "user:ánna", "None", "null")),
    *({name: VICTIM} for name in ("agent_id", "run_id")),
    *({name: f"user:{VICTIM}"} for name in ("agent_id", "run_id")),
    {"user_id": AGENT},
    {"user_id": RUN},
    {"agent_id": "helpe"},
    {"run_id": "run-"},
    {"run_id": "RUN-1"},
    {"user_id": VICTIM, "agent_id": "other"},
    {"user_id": VICTIM, "run_id": "run_1"},
]
READ_METHODS = ("search", "context", "get", "get_all", "history", "explain", "entities", "entity", "graph", "export")


def test_there_is_a_row_for_every_method():
    methods = {name for name in vars(Memory) if not name.startswith("_")}
    assert methods == set(list_attempts(["x"])) | OPERATOR_METHODS


# --- comparing both memories -----------------------------------------------------------------------------------------


def render_error(error: BaseException | None) -> str:
    """An error with its causes, as an error reporter might show it."""
    if error is None:
        return ""
    chain = render_error(error.__cause__) + render_error(error.__context__)
    return f"{type(error).__name__} {error} {error!r} {error.args} {getattr(error, '__notes__', '')}\n{chain}"


def render_answer(call: Callable[[], Any]) -> str:
    """The answer or the error of a call, as text."""
    try:
        answer = call()
    except GraphmemError as error:
        return render_error(error)
    if isinstance(answer, nx.Graph):
        answer = nx.node_link_data(answer, edges="edges")
    return json.dumps(answer, sort_keys=True, ensure_ascii=False)


ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32,64}")
LONG_FRACTION = re.compile(r"(\d\.\d{5})\d+(e-\d+)?")
CURRENT_TIME = re.compile(r"20(?!24)\d\d-\d\d-\d\d(T[\d:.]+(\+00:00)?)?")


def normalise_answer(answer: str) -> str:
    """Replaces the parts that differ between any two memories: ids, by their order of appearance, and times."""
    numbers: dict[str, str] = {}
    answer = ID.sub(lambda match: numbers.setdefault(match[0], f"#{len(numbers)}"), answer)
    return CURRENT_TIME.sub("now", LONG_FRACTION.sub(r"\1", answer))


def call_method(memory: Memory, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Calls a method. Returns its result, of an export also the text."""
    if method != "export":
        return getattr(memory, method)(*arguments, **options)
    file = StringIO()
    return memory.export(file, **options), file.getvalue()


def compare(worlds: Worlds, call: Callable[[Memory], Any]) -> str:
    with listening() as logs:
        first, second = (render_answer(call_world) for call_world in worlds.each(call))
    assert normalise_answer(first) == normalise_answer(second)
    assert_no_secret(first, *logs.lines)
    return first


def assert_no_secret(*texts: str) -> None:
    for text in texts:
        assert not [word for word in SECRETS if word in text.casefold()], text


@pytest.mark.parametrize("method", list(list_attempts(["x"])))
def test_a_strangers_calls_are_answered_as_if_the_victim_did_not_exist(worlds, method):
    for arguments, options in list_attempts(worlds.ids)[method]:
        for scope in SCOPES:
            compare(worlds, lambda memory: call_method(memory, method, arguments, {**scope, **options}))
    assert snapshot_victim(worlds.with_victim) == worlds.before


@pytest.mark.parametrize("scope", SIMILAR_SCOPES, ids=repr)
def test_ids_similar_to_the_victims_match_nothing(worlds, scope):
    for method in READ_METHODS:
        for arguments, options in list_attempts(worlds.ids)[method][:3]:
            answer = compare(worlds, lambda memory: call_method(memory, method, arguments, {**options, **scope}))
            assert not any(uid in answer.replace(repr(arguments), "") for uid in worlds.ids) or method == "explain"
    for method in ("update", "delete", "delete_all", "alias", "rename_entity"):
        arguments, _ = list_attempts(worlds.ids)[method][0]
        compare(worlds, lambda memory: getattr(memory, method)(*arguments, **scope))
    assert snapshot_victim(worlds.with_victim) == worlds.before


def test_ids_in_filters_are_compared_exactly(worlds):
    for scope in SIMILAR_SCOPES:
        compare(worlds, lambda memory: memory.get_all(filters=scope))
        compare(worlds, lambda memory: memory.search(GUESSED, filters={**scope, "colour": "red"}, explain=True))


def test_an_agent_and_a_run_see_their_memories_and_no_names_of_others(worlds):
    """With only an agent or a run, a call sees the memories of several users: those with that id, and no others."""
    memory = worlds.with_victim
    for scope in ({"agent_id": AGENT}, {"run_id": RUN}):
        expected = {one["id"] for one in memory.get_all(**scope, show_expired=True)["results"]}
        assert expected.isdisjoint(one["id"] for one in memory.get_all(user_id="mallory")["results"][-2:])
        graph = memory.graph(**scope)
        assert {node for node, data in graph.nodes(data=True) if data["node"] == "memory"} <= expected
        # The names and aliases that the victim gave to entities stay in her partition.
        assert "brumalheim" not in render_answer(lambda scope=scope: memory.entities(**scope)).casefold()
        assert all(not one["aliases"] for one in memory.entities(**scope))


def test_reports_for_operators_hold_no_words_of_the_victim(worlds):
    for world in (worlds.with_victim, worlds.without_victim):
        with listening() as logs:
            reports = [world.flush(), world.stats(), world.verify(), world.verify(repair=True), world.repair()]
            reports += [world.rebuild(name) for name in ("vectors", "graph")]
            assert_no_secret(json.dumps(reports), *logs.lines)
        assert reports[-1]["ok"]
    assert snapshot_victim(worlds.with_victim) == worlds.before


def test_async_calls_are_answered_alike(worlds):
    """AsyncMemory wraps every method of Memory, and answers a stranger in the same way."""
    names = {name for name in vars(AsyncMemory) if not name.startswith("_")}
    assert names >= set(list_attempts(["x"]))
    for name in list_attempts(["x"]):
        assert inspect.unwrap(getattr(AsyncMemory, name)) is getattr(Memory, name)

    async def call_async(memory: Memory, method: str, arguments: Any, options: Any) -> Any:
        return await getattr(AsyncMemory._wrapping(memory), method)(*arguments, **options)

    for method in set(READ_METHODS) - {"export"}:
        for arguments, options in list_attempts(worlds.ids)[method][:2]:
            compare(
                worlds, lambda memory: asyncio.run(call_async(memory, method, arguments, {**options, **STRANGER_SCOPE}))
            )


# --- command line -----------------------------------------------------------------------------------------------------

runner = CliRunner()


@pytest.fixture(scope="module")
def homes() -> Iterator[tuple[str, str, list[str]]]:
    with (
        use_word_extractor(),
        pytest.MonkeyPatch.context() as patch,
        make_home() as with_victim,
        make_home() as without_victim,
    ):
        patch.setattr(graphmem.wiring, "_embedder", lambda _: HashEmbedder())
        folders = [with_victim, without_victim]
        with Memory(folders[0], settings=Settings()) as memory:
            ids = add_victim(memory)
        for home in folders:
            with patch_uuids(Random(1)), Memory(home, settings=Settings()) as memory:
                add_stranger(memory)
        yield folders[0], folders[1], ids


def list_command_lines(ids: list[str]) -> dict[str, list[list[str]]]:
    """For each command the arguments of its calls, without `--user mallory`."""
    by_id = [[ids[0]], [ids[4]], ["nobody"]]
    everything = '{"NOT": [{"colour": "none"}]}'
    return {
        "add": [[GUESSED, "--timestamp", THEN], [GUESSED, "--format", "text"]],
        "search": [[GUESSED, "--explain"], [GUESSED, "--filters", everything], [GUESSED, "--as-of", LATER]],
        "context": [[GUESSED]],
        "list": [[], ["--filters", everything], ["--filters", f'{{"user_id": "{VICTIM}"}}'], ["--offset", "4"]],
        "show": by_id,
        "history": by_id,
        "explain": by_id,
        "update": [[uid, "Taken over."] for uid in (ids[0], "nobody")],
        "undo": by_id,
        "delete": [*by_id, [*ids], ["--all", "--yes"]],
        "export": [["-"]],
        "graph": [
            [],
            ["--around", "Vostokgrad"],
            ["--around", ids[0]],
            *(["--format", form] for form in ("html", "graphml", "json", "cypher")),
        ],
    }


OPERATOR_COMMANDS = {
    "demo", "import", "migrate", "verify", "repair", "rebuild", "retry-failed", "stats", "bench", "keys",
    "mcp", "serve",  # tests/service has their strangers
}  # fmt: skip


def test_there_is_a_row_for_every_command():
    commands = {str(one.name) for one in [*app.registered_commands, *app.registered_groups]}
    assert commands == set(list_command_lines(["x"] * 6)) | OPERATOR_COMMANDS


@pytest.mark.parametrize("command", list(list_command_lines(["x"] * 6)))
def test_a_strangers_commands_are_answered_as_if_the_victim_did_not_exist(homes, command):
    *folders, ids = homes
    for line in list_command_lines(ids)[command]:
        for more in ([], ["--json"]):
            if "--format" in line and more:
                continue
            results = []
            for home in folders:
                # The same new ids in both homes: memories with the same text are ranked by id.
                with patch_uuids(Random(repr((command, line, more)))):
                    results.append(runner.invoke(app, [command, *line, *more, "--user", STRANGER, "--home", home]))
            first, second = (
                normalise_answer(f"{one.exit_code} {one.stdout} {one.stderr} {one.exception!r}") for one in results
            )
            assert first.replace(folders[0], "") == second.replace(folders[1], "")
            assert_no_secret(results[0].stdout, results[0].stderr, repr(results[0].exception))
    with Memory(folders[0], settings=Settings()) as memory:
        assert memory.get_all(user_id=VICTIM, show_expired=True)["total"] == 5
