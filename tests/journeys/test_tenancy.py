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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import StringIO
from random import Random
from typing import Any
from unicodedata import normalize

import networkx as nx
import pytest
from support.databases import postgres
from support.fakes import fake_models
from support.log_guard import listening
from support.tenancy import (
    AGENT,
    FILTERS,
    GUESSED,
    KEYS,
    LATER,
    QUESTIONS,
    RUN,
    SCOPES,
    SIMILAR_SCOPES,
    STRANGER,
    STRANGER_SCOPE,
    THEN,
    VICTIM,
    Worlds,
    add_stranger,
    add_victim,
    assert_no_secret,
    like_ids,
    make_home,
    normalise_answer,
    patch_uuids,
    populate,
    snapshot_victim,
    use_word_extractor,
)
from typer.testing import CliRunner

import graphmem.wiring
from graphmem import AsyncMemory, Memory, Settings
from graphmem.cli.app import app
from graphmem.errors import GraphmemError
from graphmem.service.auth import Caller
from graphmem.testing import HashEmbedder

# --- two worlds -----------------------------------------------------------------------------------------------------


STORES = [
    "nowhere",
    pytest.param("folder", marks=pytest.mark.thorough),
    pytest.param("networkx", marks=pytest.mark.thorough),
    pytest.param("servers", marks=pytest.mark.server),
]


@pytest.fixture(scope="module", params=STORES)
def worlds(request, servers) -> Iterator[Worlds]:
    with ExitStack() as stack, use_word_extractor():

        def open_memory() -> Memory:
            path, config = ":memory:", fake_models()
            if request.param == "networkx":
                config["graph_store"] = {"provider": "networkx"}
            if request.param in {"folder", "servers"}:
                path = stack.enter_context(make_home())
                config["lifecycle"] = {"enabled": True}
            if request.param == "servers":
                config = servers.with_stores({**config, "ledger_url": stack.enter_context(postgres())})
            memory = stack.enter_context(Memory(path, settings=Settings.from_dict(config)))
            servers.note(memory)
            return memory

        yield populate(open_memory(), open_memory())


# --- a stranger's calls ----------------------------------------------------------------------------------------------

Attempt = tuple[tuple[Any, ...], dict[str, Any]]


def list_attempts(ids: list[str]) -> dict[str, list[Attempt]]:
    """For each method the arguments of its calls, without a scope. `ids` are the victim's."""
    by_id: list[Attempt] = [((uid,), {}) for uid in like_ids(ids)]
    return {
        "search": [
            *(((text,), {"explain": True, "top_k": 1000, "threshold": -1}) for text in QUESTIONS),
            *(((GUESSED,), {"filters": one, "explain": True, "show_expired": True}) for one in FILTERS),
            ((GUESSED,), {"as_of": LATER, "top_k": "auto"}),
            ((GUESSED,), {"kinds": ["episode", "fact", "summary"]}),
        ],
        "context": [
            *(((text,), {"max_chars": 100_000, "profile": True}) for text in QUESTIONS),
            ((QUESTIONS[0],), {"filters": {"NOT": [{"project": "*"}]}}),
        ],
        "profile": [((), {}), ((), {"run_id": RUN}), ((), {"max_tokens": 100_000})],
        "get": by_id,
        "get_all": [
            *(((), {"filters": one, "show_expired": True}) for one in FILTERS),
            *(((), {"limit": 100_000, "offset": offset}) for offset in (0, 1, 4, 5, 1000)),
            ((), {"as_of": LATER, "kinds": ["episode", "fact", "summary"]}),
        ],
        "history": by_id,
        "explain": by_id,
        "why_not": [((text, uid), {}) for uid in like_ids(ids) for text in QUESTIONS[:2]],
        "judge": [((GUESSED, uid, verdict), {}) for uid in like_ids(ids) for verdict in ("wrong", None)],
        "judgements": [((), {}), ((), {"run_id": RUN, "agent_id": AGENT}), ((), {"run_id": "run-"})],
        "entities": [((), {}), *(((), {"query": key}) for key in KEYS), ((), {"type": "Other"}), ((), {"limit": 1})],
        "entity": [((key,), more) for key in KEYS for more in ({}, {"as_of": LATER})],
        "graph": [
            *(((), {"hops": 10, "around": around}) for around in (None, *KEYS, *ids)),
            ((), {"as_of": LATER}),
        ],
        "count_by_day": [((), {}), ((), {"utc_offset": 60})],
        "end_session": [((), {}), ((), {"run_id": RUN, "agent_id": AGENT}), ((), {"run_id": "run-"})],
        "export": [((), {}), ((), {"run_id": "run-"})],
        "alias": [((key, "Bob"), {}) for key in KEYS] + [(("Vostokgrad", "Zanzibar"), {})],
        "unalias": [((key, "Bob"), {}) for key in KEYS] + [(("Ann", "Vostokgrad"), {})],
        "rename_entity": [((key, "Mine"), {}) for key in KEYS],
        "add": [
            ((GUESSED,), {"timestamp": THEN}),
            (([{"role": "user", "content": GUESSED, "id": "m2"}],), {}),
            (([{"role": "user", "content": "Something else.", "id": "m2"}],), {"run_id": RUN, "agent_id": AGENT}),
            (("Ann left Vostokgrad.",), {"run_id": RUN, "wait": False}),
        ],
        "update": [((uid, "Taken over."), {"metadata": {"owner": STRANGER}}) for uid in like_ids(ids)],
        "delete": by_id,
        "undo": by_id,
        "forget": by_id,
        "pin": by_id,
        "unpin": by_id,
        "tend": [((), {"dry_run": True}), ((), {"dry_run": True, "now": "2999-01-01"}), ((), {"force": True})],
        "abstract": [*((([uid],), {}) for uid in like_ids(ids)), ((), {"run_id": RUN})],
        "undo_cycle": by_id,
        "lifecycle_status": [((), {}), ((), {"run_id": RUN}), ((), {"limit": 1})],
        "pending_deletion": [((), {}), ((), {"run_id": RUN})],
        "purge": [((), {"confirm": True}), ((), {"confirm": True, "run_id": "run-"})],
        "delete_all": [((), {"run_id": RUN, "agent_id": AGENT}), ((), {"run_id": "run-"}), ((), {})],
    }


# Methods without a scope, for whoever operates the memory.
OPERATOR_METHODS = {
    "from_config",
    "from_file",
    "import_",
    "flush",
    "on",
    "forget_subscriber",
    "dead_letters",
    "retry_dead_letter",
    "drop_dead_letter",
    "retry_failed",
    "stats",
    "verify",
    "repair",
    "rebuild",
    "reset",
    "close",
}
READ_METHODS = (
    "search",
    "context",
    "profile",
    "get",
    "get_all",
    "history",
    "explain",
    "judgements",
    "entities",
    "entity",
    "graph",
    "export",
)


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


@pytest.mark.parametrize("method", list(list_attempts(["x"])))
def test_a_strangers_calls_are_answered_as_if_the_victim_did_not_exist(worlds, method):
    for arguments, options in list_attempts(worlds.ids)[method]:
        for scope in SCOPES:
            compare(worlds, lambda memory: call_method(memory, method, arguments, {**scope, **options}))
    assert snapshot_victim(worlds.with_victim) == worlds.before


@pytest.mark.parametrize(
    "scope",  # of all of them filters, below, and requests (service/test_tenancy_http.py) are tried in the default run
    [*SIMILAR_SCOPES[::2], *(pytest.param(scope, marks=pytest.mark.thorough) for scope in SIMILAR_SCOPES[1::2])],
    ids=repr,
)
def test_ids_similar_to_the_victims_match_nothing(worlds, scope):
    for method in READ_METHODS:
        for arguments, options in list_attempts(worlds.ids)[method][:3]:
            answer = compare(worlds, lambda memory: call_method(memory, method, arguments, {**options, **scope}))
            assert not any(uid in answer.replace(repr(arguments), "") for uid in worlds.ids) or method == "explain"
    for method in ("update", "delete", "delete_all", "alias", "rename_entity"):
        arguments, _ = list_attempts(worlds.ids)[method][0]
        compare(worlds, lambda memory: getattr(memory, method)(*arguments, **scope))
    assert snapshot_victim(worlds.with_victim) == worlds.before


def test_a_name_in_either_normal_form_is_one_user(worlds):
    memory = worlds.with_victim
    for name in (VICTIM, normalize("NFD", VICTIM)):
        assert memory.get_all(user_id=name) == memory.get_all(filters={"user_id": VICTIM})
    bound = Caller("key", "user", VICTIM)
    assert bound.scope({"user_id": normalize("NFD", VICTIM)}) == {"user_id": VICTIM}


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
        return await getattr(AsyncMemory(sync=memory), method)(*arguments, **options)

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
        "context": [[GUESSED], [GUESSED, "--profile"]],
        "profile": [[]],
        "list": [[], ["--filters", everything], ["--filters", f'{{"user_id": "{VICTIM}"}}'], ["--offset", "4"]],
        "show": by_id,
        "history": by_id,
        "explain": by_id,
        "why-not": [[GUESSED, *one] for one in by_id],
        "judge": [[GUESSED, *one, "wrong"] for one in by_id],
        "judgements": [[]],
        "update": [[uid, "Taken over."] for uid in (ids[0], "nobody")],
        "undo": by_id,
        "forget": by_id,
        "pin": [*by_id, [ids[0], "--remove"]],
        "lifecycle": [
            ["run"],
            ["run", "--dry-run", "--now", "2999-01-01"],
            ["status"],
            ["pending"],
            ["purge", "--yes"],
            *(["undo", *one] for one in by_id),
            ["abstract"],
            *(["abstract", *one] for one in by_id),
        ],
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
    "demo", "backup", "import", "migrate", "verify", "repair", "rebuild", "retry-failed", "stats", "bench", "keys",
    "mcp", "serve",  # tests/service has their strangers
    "worker",
    "install", "uninstall", "hook",  # the service that hooks ask has its strangers there too
}  # fmt: skip


def test_there_is_a_row_for_every_command():
    commands = {str(one.name) for one in [*app.registered_commands, *app.registered_groups]}
    assert commands == set(list_command_lines(["x"] * 6)) | OPERATOR_COMMANDS


@pytest.mark.thorough
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
