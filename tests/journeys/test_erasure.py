"""The receipt is true: what was deleted is in no store, file, index or answer; that it was stays."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select
from support.databases import SQLITE_ONLY

from graphmem import ChatLink, Memory
from graphmem.digests import Digests
from graphmem.errors import NotFoundError
from graphmem.model import Message, Scope, micros
from graphmem.stores.ledger import schema
from graphmem.text import entity_id

Make = Callable[..., Memory]
# Words, names and numbers that nothing else here says.
SECRETS = ("xylophone", "zarathustra", "quetzalcoatl", "pumpernickel", "marmaduke")
TOLD = [
    {"role": "user", "name": "Ana", "content": "Zarathustra Brandt plays the xylophone in Quetzalcoatl Orchestra."},
    {"role": "user", "name": "Ana", "content": "My cousin Marmaduke met Zarathustra Brandt in Lisbon."},
]
KEPT = {"role": "user", "name": "Ana", "content": "Bruno Costa works at Nordlicht in Bergen."}


def remembered(memory: Memory) -> list[str]:
    """Two memories to erase, with all that can be made of them, and one to keep."""
    added = memory.add(TOLD, user_id="ana", metadata={"with": "pumpernickel"}, timestamp="2024-03-01")["results"]
    memory.add(KEPT, user_id="ana", timestamp="2024-03-02")
    memory.alias("Marmaduke", "Zarathustra Brandt", user_id="ana")
    memory.rename_entity("Zarathustra Brandt", "Zarathustra the Xylophone", user_id="ana")
    memory.update(added[1]["id"], "My cousin Marmaduke met Zarathustra Brandt in Bergen.")
    assert memory.search("who plays the xylophone?", user_id="ana")["results"]
    return [one["id"] for one in added]


def traces(memory: Memory) -> list[str]:
    """Where any of the secrets still is, in whatever store."""
    house = memory._engine
    with house.ledger.read() as connection:
        held = [
            (table.name, repr(row).lower())
            for table in schema.metadata.sorted_tables
            for row in connection.execute(select(table))
        ]
    index, graph = house._backends.vector_index, house._backends.graph
    if hasattr(index, "_payloads"):
        from qdrant_client import models

        mine = models.Filter(must=[index._own_points()])
        held += [("qdrant", repr(told).lower()) for told in index._payloads(mine)]
    if hasattr(graph, "_server"):
        things = "MATCH (n {ledger: $ledger}) OPTIONAL MATCH (n)-[r]->() RETURN n {.*} AS n, collect(r {.*}) AS r"
        held += [
            ("neo4j", repr(found.data()).lower())
            for found in graph._server.stream(things, {"ledger": house.ledger.uuid})
        ]
    return [f"{word} in {where}" for where, told in held for word in SECRETS if word in told]


def answers(memory: Memory, ids: list[str]) -> str:
    """All that a user can ask for that might still know something."""
    asked: list[Any] = [
        memory.search("who plays the xylophone?", user_id="ana", explain=True, show_expired=True),
        memory.search("Marmaduke", user_id="ana", as_of="2024-06-01", top_k=50),
        memory.context("Zarathustra", user_id="ana"),
        memory.get_all(user_id="ana", show_expired=True),
        memory.entities(user_id="ana"),
        memory.entity("Marmaduke", user_id="ana"),
        list(memory.graph(user_id="ana").nodes(data=True)),
        list(memory.graph(user_id="ana").edges(data=True)),
        *(memory.get(uid) for uid in ids),
        *(memory.history(uid) for uid in ids),
        memory.stats(),
        memory.verify(),
    ]
    return repr(asked).lower()


def clean(memory: Memory, ids: list[str]) -> None:
    assert traces(memory) == []
    told = answers(memory, ids)
    assert [word for word in SECRETS if word in told] == []
    for uid in ids:
        with pytest.raises(NotFoundError):
            memory.explain(uid)
        events = memory.history(uid)
        assert [one["event"] for one in events][-1] == "DELETE"
        assert all(one["old_memory"] is None and one["new_memory"] is None for one in events)
    assert "bruno costa" in told
    assert memory.verify()["ok"]


@pytest.fixture
def config() -> dict[str, Any]:
    """The parser that finds names: what it finds has to go too."""
    return {"extractor": {"provider": "spacy"}}


def by_id(memory: Memory, ids: list[str]) -> None:
    for uid in ids:
        assert memory.delete(uid)["deleted"] == [uid]


def all_of_it(memory: Memory, ids: list[str]) -> None:
    memory.add(KEPT, user_id="bert", timestamp="2024-03-02")
    assert set(memory.delete_all(user_id="ana")["deleted"]) >= set(ids)
    memory.add(KEPT, user_id="ana")


WAYS = [pytest.param(by_id, id="delete"), pytest.param(all_of_it, id="delete_all")]


@pytest.mark.parametrize("erase", WAYS)
def test_what_was_deleted_is_in_no_store_and_no_answer(
    erase: Callable[..., None], make_memory: Make, tmp_path: Path, config: dict[str, Any]
) -> None:
    memory = make_memory(tmp_path / "home", **config)
    ids = remembered(memory)
    assert traces(memory)
    erase(memory, ids)
    clean(memory, ids)
    memory.repair()
    clean(memory, ids)
    memory.rebuild()
    clean(memory, ids)


@pytest.mark.thorough
@SQLITE_ONLY
@pytest.mark.parametrize("erase", WAYS)
def test_once_all_have_closed_the_folder_it_is_in_no_file(
    erase: Callable[..., None], make_memory: Make, tmp_path: Path, config: dict[str, Any]
) -> None:
    """Neither the words nor the numbers that were made of them; other memories' are where they were."""
    home = tmp_path / "home"
    memory = make_memory(home, **config)
    ids = remembered(memory)
    vectors = vectors_of(memory)
    second = make_memory(home, **config)  # which has no part in the engine's files
    assert second.search("xylophone", user_id="ana")["results"]
    erase(second, ids)
    memory.search("xylophone", user_id="ana")
    memory.close()
    second.close()
    for word in SECRETS:
        for spelt in (word, word.title(), word.upper()):
            assert in_files(home, spelt.encode()) == [], word
    for uid, vector in vectors.items():
        assert bool(in_files(home, vector)) == (uid not in ids)


def vectors_of(memory: Memory) -> dict[str, bytes]:
    """A telling part of each memory's vector, at unit length, as the engine keeps it."""
    joined = schema.memories.join(schema.embeddings, schema.embeddings.c.hash == schema.memories.c.embedding)
    with memory._engine.ledger.read() as connection:
        rows = connection.execute(select(schema.memories.c.uid, schema.embeddings.c.data).select_from(joined)).all()
    found = {}
    for uid, data in rows:
        vector = np.frombuffer(data, "<f4")
        first = int(np.flatnonzero(vector)[0])
        found[uid] = vector[first : first + 8].tobytes()
    return found


def in_files(home: Path, told: bytes) -> list[str]:
    return [str(path) for path in home.rglob("*") if path.is_file() and told in path.read_bytes()]


@pytest.mark.thorough
@SQLITE_ONLY
def test_a_crash_after_the_delete_leaves_nothing_once_it_was_opened_again(
    make_memory: Make, tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivered by whoever opens the folder next; nothing says that it has to be the one who deleted."""
    home = tmp_path / "home"
    memory = make_memory(home, **config)
    ids = remembered(memory)
    monkeypatch.setattr(type(memory._engine), "deliver", lambda *_: ["vectors"])
    assert memory.delete(ids[0])["pending"] == ["vectors"]
    monkeypatch.undo()
    memory.close()
    with make_memory(home, **config) as again:
        again.delete(ids[1])
        clean(again, ids)
    assert [word for word in SECRETS if in_files(home, word.encode())] == []


# --- what can still be guessed --------------------------------------------------------------------------------------

PIN = "4711"
SAID = "2024-03-01T09:30:00+00:00"


def without_a_secret(uuid: str, *parts: Any) -> str:
    """A digest keyed by what lies in the same file."""
    return blake2b(json.dumps(parts, sort_keys=True).encode(), key=uuid.encode(), digest_size=16).hexdigest()


def unkeyed_guesses(uuid: str, text: str) -> Iterator[str]:
    """What a message with these words would leave if its digests had no secret."""
    scope, at = {"user_id": "ana"}, micros(datetime.fromisoformat(SAID))
    said = without_a_secret(uuid, scope, "said", "user", text, at)
    yield from (said, without_a_secret(uuid, said, 1), without_a_secret(uuid, text))


def keyed_guesses(digests: Digests, text: str) -> Iterator[str]:
    """What a message with these words leaves by a secret."""
    message, scope = Message("user", text, datetime.fromisoformat(SAID)), Scope("ana")
    yield from (digests.message_fingerprint(message, scope), digests.key_by_content(message, scope, 1))
    yield digests.content_digest(text)


def confirmed(ledger: Path, candidates: Iterable[str]) -> list[str]:
    """Which of the candidates somebody can tell to have been said who has this file, and all of our source."""
    with closing(sqlite3.connect(ledger)) as connection:
        (row,) = connection.execute("SELECT * FROM ledger")
        kept = {key for (key,) in connection.execute("SELECT key FROM messages")}
    told = [str(value) for value in row]
    uuid = told[1]
    # Whatever stands in the file may be tried as a secret.
    secrets = [bytes(32), uuid.encode(), *(part.encode()[:64] for value in told for part in (value, *value.split(":")))]
    digests = [Digests(uuid, key) for key in secrets if key]
    return [
        text
        for text in candidates
        if kept.intersection(unkeyed_guesses(uuid, text))
        or any(kept.intersection(keyed_guesses(one, text)) for one in digests)
    ]


@SQLITE_ONLY
def test_an_erased_pin_cannot_be_confirmed_from_the_ledgers_file(make_memory: Make, tmp_path: Path) -> None:
    home = tmp_path / "home"
    message = {"role": "user", "content": PIN, "timestamp": SAID}
    with make_memory(home) as memory:
        memory.delete(memory.add(message, user_id="ana")["results"][0]["id"])
    candidates = [f"{number:04}" for number in range(10_000)]
    assert confirmed(home / "ledger.sqlite", candidates) == []
    with make_memory(home) as memory:  # which has the secret, and so had somebody with the whole folder
        assert memory.add(message, user_id="ana")["results"][0]["reason"] == "erased"
        digests = memory._engine.ledger.digests
        with memory._engine.ledger.read() as connection:
            kept = set(connection.scalars(select(schema.messages.c.key)))
    found = {text for text in candidates if kept.intersection(keyed_guesses(digests, text))}
    assert found == {PIN}


@SQLITE_ONLY
def test_the_ids_of_a_saved_chat_do_not_tell_what_was_said_before(make_memory: Make, tmp_path: Path) -> None:
    """A message's id is made of the one before it as well, and outlives it."""
    chats = [{"role": "user", "content": PIN}, {"role": "assistant", "content": "Thank you."}]
    with make_memory(tmp_path / "home") as memory:
        with ChatLink(memory, user_id="ana") as link:
            link.saved(chats)
            link.flush()
        pin = next(one for one in memory.get_all(user_id="ana")["results"] if one["memory"] == PIN)
        memory.delete(pin["id"])
        (kept,) = memory.get_all(user_id="ana")["results"]
        (message,) = memory.explain(kept["id"])["messages"]

    def digest(value: Any) -> str:
        return blake2b(json.dumps(value, default=str).encode(), digest_size=16).hexdigest()

    signs = [digest([one["role"], None, one["content"], None]) for one in chats]
    assert message["id"] is not None
    assert message["id"] != digest([*signs, 1])


@pytest.mark.thorough
@SQLITE_ONLY
def test_an_erased_name_cannot_be_confirmed_from_the_folder(make: Make, tmp_path: Path) -> None:
    """Once what was said of it is gone from the projections, nothing of it has to be kept."""
    home = tmp_path / "home"
    memory = make(home)
    uid = memory.add("Zarathustra sleeps", user_id="ana")["results"][0]["id"]
    memory.rename_entity("zarathustra", "Z.", user_id="ana")
    memory.delete(uid)
    memory.close()
    assert in_files(home, entity_id("user:ana", "zarathustra").encode()) == []
    with closing(sqlite3.connect(home / "ledger.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM tombstones WHERE kind = 'entity'").fetchone() == (0,)
