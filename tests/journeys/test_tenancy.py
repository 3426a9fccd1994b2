"""Nobody learns anything of another user's memories: a stranger's calls are answered as if the victim did not exist.

Two memories are made alike, but for one user who is in the first only. Whatever a stranger then asks (by the victim's
ids, entities, runs, filters, words, by ids that look like hers) is asked of both, and the answers, errors included,
have to be the same to the letter: so a foreign id reads as an absent one, and no count, score, order or hint tells
that there is somebody else. Besides, no word of the victim's may be in an answer, an error or its causes, or a log.
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
HER, MINE = {"user_id": VICTIM, "agent_id": AGENT, "run_id": RUN}, {"user_id": STRANGER}
# What only the victim says. The stranger has guessed some other things: her ids, a place, a whole sentence.
SECRETS = ("zyxwoc", "quillonbar", "ombergris", "thrallium", "brumalheim", "fernwehr", "gossamerine")
GUESSED = "Ann lives in Vostokgrad."
THEN, LATER = "2024-03-01T10:00:00+00:00", "2024-03-01T10:05:00+00:00"


# --- two worlds -----------------------------------------------------------------------------------------------------


def victim(memory: Memory) -> list[str]:
    """She says something, corrects, erases, lets expire, names. Returns her memories' ids."""
    told = [
        {"role": "user", "name": "Quillonbar", "content": "Zyxwoc met Ann in Vostokgrad.", "id": "m1"},
        {"role": "user", "content": GUESSED, "id": "m2"},
        {"role": "assistant", "content": "Zyxwoc likes gossamerine tea. Ann likes Zyxwoc."},
        {"role": "user", "content": "Fernwehr hired Ann."},
        {"role": "user", "content": "Gossamerine hired Bob.", "id": "m5"},
    ]
    metadata = {"colour": "red", "ombergris": "thrallium", "tags": ["thrallium", "x"]}
    added = memory.add(told, **HER, metadata=metadata, timestamp=THEN)["results"]
    ids = [str(one["id"]) for one in added]
    memory.update(ids[3], "Ann hired Bob in Vostokgrad.")
    memory.delete(ids[4])
    ids += [str(one["id"]) for one in memory.add("Zyxwoc was ill.", **HER, expiration_date="2024-04-01")["results"]]
    memory.alias("Ann", "Zyxwoc", user_id=VICTIM)
    memory.rename_entity("Vostokgrad", "Brumalheim", user_id=VICTIM)
    return ids


def stranger(memory: Memory) -> None:
    """Who lives in both worlds; some of what is said there is said by the same agent, and in a run of the same name."""
    memory.add(["Ann met Bob in Bergen.", "Bob likes tea."], **MINE, metadata={"colour": "red"}, timestamp=THEN)
    memory.add("Bergen has a harbour.", **MINE, agent_id=AGENT, timestamp=LATER)
    memory.add({"role": "user", "content": "Dora visited Ann.", "id": "m9"}, **MINE, run_id=RUN, timestamp=LATER)


@dataclass(frozen=True)
class Worlds:
    inhabited: Memory
    empty: Memory
    ids: list[str]
    before: str
    chances: tuple[Random, Random]

    def each(self, ask: Callable[[Memory], Any]) -> Iterator[Callable[[], Any]]:
        """The same question to both; ids that are made meanwhile are the same, so that no order hangs on them."""
        for memory, chance in zip((self.inhabited, self.empty), self.chances, strict=True):
            with made_up_by(chance):
                yield partial(ask, memory)


@contextmanager
def made_up_by(chance: Random) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (graphmem.commands.memories, graphmem.commands.unit_of_work):
            patch.setattr(module, "uuid4", lambda: UUID(int=chance.getrandbits(128), version=4))
        yield


@contextmanager
def folder() -> Iterator[str]:
    """A home in memory where there is one: none of this is about the disk."""
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
def word_extractor() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphmem.wiring, "_extractor", lambda _: WordExtractor())
        yield


@pytest.fixture(scope="module", params=STORES)
def worlds(request, servers) -> Iterator[Worlds]:
    with ExitStack() as things, word_extractor():

        def opened() -> Memory:
            place, config = ":memory:", fake_models()
            if request.param == "networkx":
                config["graph_store"] = {"provider": "networkx"}
            if request.param in {"folder", "servers"}:
                place = things.enter_context(folder())
            if request.param == "servers":
                config = servers.laid_under({**config, "ledger_url": things.enter_context(postgres())})
            memory = things.enter_context(Memory(place, settings=Settings.from_dict(config)))
            servers.note(memory)
            return memory

        inhabited, empty = opened(), opened()
        ids = victim(inhabited)
        worlds = Worlds(inhabited, empty, ids, hers(inhabited), (Random(1), Random(1)))
        for begin in worlds.each(stranger):
            begin()
        yield worlds


def hers(memory: Memory) -> str:
    """All that she would notice if somebody changed it."""
    listed = memory.get_all(user_id=VICTIM, show_expired=True)
    return json.dumps(
        [
            listed,
            [memory.history(one["id"]) for one in listed["results"]],
            memory.entities(user_id=VICTIM),
            nx.node_link_data(memory.graph(user_id=VICTIM), edges="edges"),
            memory.verify()["ok"],
        ],
        sort_keys=True,
    )


# --- what a stranger tries -------------------------------------------------------------------------------------------

Try = tuple[tuple[Any, ...], dict[str, Any]]
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


def tries(ids: list[str]) -> dict[str, list[Try]]:
    """For each method what is tried, beyond whose memories it is about. `ids` are the victim's."""
    all_ids = [*ids, "00000000-0000-4000-8000-000000000000", *(f"{ids[0]}{end}" for end in ("*", "%", "'", " "))]
    by_id: list[Try] = [((uid,), {}) for uid in all_ids]
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


# These are about a memory as a whole, for whoever runs it: there is no scope that they could keep to.
OPERATORS = {
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
SCOPES = [MINE, {**MINE, "agent_id": AGENT}, {**MINE, "run_id": RUN}, {**MINE, "agent_id": AGENT, "run_id": RUN}]
# Other ids, as alike as they may be: in part, in another case or normal form, as patterns, in another place.
ALIKE: list[dict[str, str]] = [
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
READING = ("search", "context", "get", "get_all", "history", "explain", "entities", "entity", "graph", "export")


def test_there_is_a_row_for_every_method():
    methods = {name for name in vars(Memory) if not name.startswith("_")}
    assert methods == set(tries(["x"])) | OPERATORS


# --- asking both -----------------------------------------------------------------------------------------------------


def told(error: BaseException | None) -> str:
    """An error with all that led to it, as any reporter of errors might show it."""
    if error is None:
        return ""
    chain = told(error.__cause__) + told(error.__context__)
    return f"{type(error).__name__} {error} {error!r} {error.args} {getattr(error, '__notes__', '')}\n{chain}"


def answered(ask: Callable[[], Any]) -> str:
    """What a caller gets to see."""
    try:
        found = ask()
    except GraphmemError as error:
        return told(error)
    if isinstance(found, nx.Graph):
        found = nx.node_link_data(found, edges="edges")
    return json.dumps(found, sort_keys=True, ensure_ascii=False)


MADE_UP = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32,64}")
FRACTION = re.compile(r"(\d\.\d{5})\d+(e-\d+)?")
NOW = re.compile(r"20(?!24)\d\d-\d\d-\d\d(T[\d:.]+(\+00:00)?)?")


def plain(answer: str) -> str:
    """Without what differs between any two memories: made up ids, by the order of their appearance, and clocks."""
    seen: dict[str, str] = {}
    answer = MADE_UP.sub(lambda found: seen.setdefault(found[0], f"#{len(seen)}"), answer)
    return NOW.sub("now", FRACTION.sub(r"\1", answer))


def call(memory: Memory, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What a method gives back, or what it writes."""
    if method != "export":
        return getattr(memory, method)(*arguments, **options)
    file = StringIO()
    return memory.export(file, **options), file.getvalue()


def compare(worlds: Worlds, ask: Callable[[Memory], Any]) -> str:
    with listening() as logs:
        first, second = (answered(asked) for asked in worlds.each(ask))
    assert plain(first) == plain(second)
    silent(first, *logs.lines)
    return first


def silent(*texts: str) -> None:
    for text in texts:
        assert not [word for word in SECRETS if word in text.casefold()], text


@pytest.mark.parametrize("method", list(tries(["x"])))
def test_a_strangers_calls_are_answered_as_if_she_did_not_exist(worlds, method):
    for arguments, options in tries(worlds.ids)[method]:
        for scope in SCOPES:
            compare(worlds, lambda memory: call(memory, method, arguments, {**scope, **options}))
    assert hers(worlds.inhabited) == worlds.before


@pytest.mark.parametrize("scope", ALIKE, ids=repr)
def test_an_id_that_looks_like_hers_is_nobodys(worlds, scope):
    for method in READING:
        for arguments, options in tries(worlds.ids)[method][:3]:
            answer = compare(worlds, lambda memory: call(memory, method, arguments, {**options, **scope}))
            assert not any(uid in answer.replace(repr(arguments), "") for uid in worlds.ids) or method == "explain"
    for method in ("update", "delete", "delete_all", "alias", "rename_entity"):
        arguments, _ = tries(worlds.ids)[method][0]
        compare(worlds, lambda memory: getattr(memory, method)(*arguments, **scope))
    assert hers(worlds.inhabited) == worlds.before


def test_ids_in_filters_are_as_exact(worlds):
    for scope in ALIKE:
        compare(worlds, lambda memory: memory.get_all(filters=scope))
        compare(worlds, lambda memory: memory.search(GUESSED, filters={**scope, "colour": "red"}, explain=True))


def test_an_agent_and_a_run_see_what_they_were_told_and_no_names_of_others(worlds):
    """By agent or run alone a call sees the memories of several users: those that carry it, and nothing else."""
    memory = worlds.inhabited
    for scope in ({"agent_id": AGENT}, {"run_id": RUN}):
        expected = {one["id"] for one in memory.get_all(**scope, show_expired=True)["results"]}
        assert expected.isdisjoint(one["id"] for one in memory.get_all(user_id="mallory")["results"][-2:])
        drawn = memory.graph(**scope)
        assert {node for node, data in drawn.nodes(data=True) if data["node"] == "memory"} <= expected
        # What she calls things, and which names she has said to mean one, is hers.
        assert "brumalheim" not in answered(lambda scope=scope: memory.entities(**scope)).casefold()
        assert all(not one["aliases"] for one in memory.entities(**scope))


def test_the_operators_reports_hold_no_words(worlds):
    for world in (worlds.inhabited, worlds.empty):
        with listening() as logs:
            reports = [world.flush(), world.stats(), world.verify(), world.verify(repair=True), world.repair()]
            reports += [world.rebuild(name) for name in ("vectors", "graph")]
            silent(json.dumps(reports), *logs.lines)
        assert reports[-1]["ok"]
    assert hers(worlds.inhabited) == worlds.before


def test_the_awaited_door_is_the_same(worlds):
    """It has every method, and whatever is tried there is tried at the very same place."""
    names = {name for name in vars(AsyncMemory) if not name.startswith("_")}
    assert names >= set(tries(["x"]))
    for name in tries(["x"]):
        assert inspect.unwrap(getattr(AsyncMemory, name)) is getattr(Memory, name)

    async def ask(memory: Memory, method: str, arguments: Any, options: Any) -> Any:
        return await getattr(AsyncMemory._wrapping(memory), method)(*arguments, **options)

    for method in set(READING) - {"export"}:
        for arguments, options in tries(worlds.ids)[method][:2]:
            compare(worlds, lambda memory: asyncio.run(ask(memory, method, arguments, {**options, **MINE})))


# --- at the command line ----------------------------------------------------------------------------------------------

runner = CliRunner()


@pytest.fixture(scope="module")
def homes() -> Iterator[tuple[str, str, list[str]]]:
    with word_extractor(), pytest.MonkeyPatch.context() as patch, folder() as inhabited, folder() as empty:
        patch.setattr(graphmem.wiring, "_embedder", lambda _: HashEmbedder())
        folders = [inhabited, empty]
        with Memory(folders[0], settings=Settings()) as memory:
            ids = victim(memory)
        for home in folders:
            with made_up_by(Random(1)), Memory(home, settings=Settings()) as memory:
                stranger(memory)
        yield folders[0], folders[1], ids


def lines(ids: list[str]) -> dict[str, list[list[str]]]:
    """For each command what is tried with `--user mallory`."""
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


AS_A_WHOLE = {"demo", "import", "migrate", "verify", "repair", "rebuild", "retry-failed", "stats", "bench"}


def test_there_is_a_row_for_every_command():
    commands = {str(one.name) for one in [*app.registered_commands, *app.registered_groups]}
    assert commands == set(lines(["x"] * 6)) | AS_A_WHOLE


@pytest.mark.parametrize("command", list(lines(["x"] * 6)))
def test_a_stranger_at_the_command_line(homes, command):
    *folders, ids = homes
    for line in lines(ids)[command]:
        for more in ([], ["--json"]):
            if "--format" in line and more:
                continue
            done = []
            for home in folders:
                # The same ids in both homes: what is said twice in the same words is ranked by id.
                with made_up_by(Random(repr((command, line, more)))):
                    done.append(runner.invoke(app, [command, *line, *more, "--user", STRANGER, "--home", home]))
            first, second = (plain(f"{one.exit_code} {one.stdout} {one.stderr} {one.exception!r}") for one in done)
            assert first.replace(folders[0], "") == second.replace(folders[1], "")
            silent(done[0].stdout, done[0].stderr, repr(done[0].exception))
    with Memory(folders[0], settings=Settings()) as memory:
        assert memory.get_all(user_id=VICTIM, show_expired=True)["total"] == 5
