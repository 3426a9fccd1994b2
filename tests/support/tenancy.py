"""Two memories that hold the same, but for one user, the victim, who is in the first alone; a stranger is in both."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import networkx as nx
import pytest

import graphmem.commands.messages
import graphmem.commands.unit_of_work
import graphmem.wiring
from graphmem import Memory
from graphmem.boundary.filters import text_hash
from graphmem.testing import WordExtractor

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
    memory.judge("Does Zyxwoc like gossamerine tea?", ids[2], "right", **VICTIM_SCOPE)
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
        for module in (graphmem.commands.messages, graphmem.commands.unit_of_work):
            patch.setattr(module, "uuid4", lambda: UUID(int=generator.getrandbits(128), version=4))
        yield


@contextmanager
def make_home() -> Iterator[str]:
    """Makes a home folder, in memory where possible: no test here depends on the disk."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name:
        yield str(Path(name) / "home")


@contextmanager
def use_word_extractor() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphmem.wiring, "_extractor", lambda _: WordExtractor())
        yield


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


def populate(with_victim: Memory, without_victim: Memory) -> Worlds:
    """Adds the victim to the first memory, and the stranger to both."""
    ids = add_victim(with_victim)
    worlds = Worlds(with_victim, without_victim, ids, snapshot_victim(with_victim), (Random(1), Random(1)))
    for add in worlds.each(add_stranger):
        add()
    return worlds


# --- a stranger's calls ----------------------------------------------------------------------------------------------

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


KEYS = ["Vostokgrad", "vostokgrad", "entity:vostokgrad", "Ann", "Vostokgra_", "Vostok%", "*", f"user:{VICTIM}"]
SCOPES = [
    STRANGER_SCOPE,
    {**STRANGER_SCOPE, "agent_id": AGENT},
    {**STRANGER_SCOPE, "run_id": RUN},
    {**STRANGER_SCOPE, "agent_id": AGENT, "run_id": RUN},
]
# Ids similar to the victim's: parts of them, another case, patterns, her ids as another argument.
SIMILAR_SCOPES: list[dict[str, str]] = [
    *({"user_id": name} for name in ("ánn", "ánna2", "Ánna", "ÁNNA", "anna", "ánnа")),
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


def like_ids(ids: list[str]) -> list[str]:
    """Ids, an unknown one, and some that are similar to the first."""
    return [*ids, "00000000-0000-4000-8000-000000000000", *(f"{ids[0]}{end}" for end in ("*", "%", "'", " "))]


# --- comparing both memories -----------------------------------------------------------------------------------------

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32,64}")
LONG_FRACTION = re.compile(r"(\d\.\d{5})\d+(e-\d+)?")
CURRENT_TIME = re.compile(r"20(?!24)\d\d-\d\d-\d\d(T[\d:.]+(\+00:00)?)?")


def normalise_answer(answer: str) -> str:
    """Replaces the parts that differ between any two memories: ids, by their order of appearance, and times."""
    numbers: dict[str, str] = {}
    answer = ID.sub(lambda match: numbers.setdefault(match[0], f"#{len(numbers)}"), answer)
    return CURRENT_TIME.sub("now", LONG_FRACTION.sub(r"\1", answer))


def assert_no_secret(*texts: str) -> None:
    for text in texts:
        assert not [word for word in SECRETS if word in text.casefold()], text
