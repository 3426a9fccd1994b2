"""Erasure: deleted text is in no store, file, index or answer; the record of the deletion stays."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select
from support.databases import SQLITE_ONLY
from support.fakes import merging
from support.stored_content import stored_content
from support.waiting import TIMEOUT

from graphmem import ChatLink, Memory
from graphmem.digests import Digests
from graphmem.errors import NotFoundError
from graphmem.model import Message, Scope, micros
from graphmem.stores.ledger import schema
from graphmem.text import entity_id

Make = Callable[..., Memory]
# Words and names that only the memories to erase contain.
SECRETS = ("xylophone", "zarathustra", "quetzalcoatl", "pumpernickel", "marmaduke")
# The first byte of a page that is a leaf of an index or of a table.
LEAF_PAGES = (0x0A, 0x0D)
ERASED_MESSAGES = [
    {"role": "user", "name": "Ana", "content": "Zarathustra Brandt plays the xylophone in Quetzalcoatl Orchestra."},
    {"role": "user", "name": "Ana", "content": "My cousin Marmaduke met Zarathustra Brandt in Lisbon."},
]
OTHER_MESSAGE = {"role": "user", "name": "Ana", "content": "Bruno Costa works at Nordlicht in Bergen."}


def add_memories(memory: Memory) -> list[str]:
    """Adds two memories to erase, with everything derived from them, and one to keep. Returns the ids of the two."""
    results = memory.add(ERASED_MESSAGES, user_id="ana", metadata={"with": "pumpernickel"}, timestamp="2024-03-01")[
        "results"
    ]
    memory.add(OTHER_MESSAGE, user_id="ana", timestamp="2024-03-02")
    memory.alias("Marmaduke", "Zarathustra Brandt", user_id="ana")
    memory.rename_entity("Zarathustra Brandt", "Zarathustra the Xylophone", user_id="ana")
    memory.update(results[1]["id"], "My cousin Marmaduke met Zarathustra Brandt in Bergen.")
    assert memory.search("who plays the xylophone?", user_id="ana")["results"]
    return [one["id"] for one in results]


def find_traces(memory: Memory) -> list[str]:
    """Every secret in any store, with its place."""
    stored = stored_content(memory)
    return [f"{word} in {where}" for where, content in stored.items() for word in SECRETS if word in content]


def read_answers(memory: Memory, ids: list[str]) -> str:
    """The answers of all reading methods that could still reveal a secret, as one text."""
    responses: list[Any] = [
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
    return repr(responses).lower()


def assert_erased(memory: Memory, ids: list[str]) -> None:
    assert find_traces(memory) == []
    text = read_answers(memory, ids)
    assert [word for word in SECRETS if word in text] == []
    for uid in ids:
        with pytest.raises(NotFoundError):
            memory.explain(uid)
        events = memory.history(uid)
        assert [one["event"] for one in events][-1] == "DELETE"
        assert all(one["old_memory"] is None and one["new_memory"] is None for one in events)
    assert "bruno costa" in text
    assert memory.verify()["ok"]


@pytest.fixture
def config() -> dict[str, Any]:
    """Settings with the parser that finds names: entities have to be erased too."""
    return {"extractor": {"provider": "spacy"}}


def delete_by_id(memory: Memory, ids: list[str]) -> None:
    for uid in ids:
        assert memory.delete(uid)["deleted"] == [uid]


def delete_what_stands_for_them(memory: Memory, ids: list[str]) -> None:
    """Merges one into the other, and that into a third, which has no secret."""
    third = memory.add("Somebody plays in an orchestra.", user_id="ana", timestamp="2024-03-03")["results"][0]["id"]
    memory.engine.commit([*merging(ids[0], ids[1]), *merging(ids[1], third)])
    memory.flush()
    receipt = memory.delete(third)
    assert set(receipt["deleted"]) == {third, *ids}
    assert receipt["erased"]["ledger"] == 3


def delete_by_scope(memory: Memory, ids: list[str]) -> None:
    memory.add(OTHER_MESSAGE, user_id="bert", timestamp="2024-03-02")
    assert set(memory.delete_all(user_id="ana")["deleted"]) >= set(ids)
    memory.add(OTHER_MESSAGE, user_id="ana")


def purge_forgotten(memory: Memory, ids: list[str]) -> None:
    for uid in ids:
        memory.forget(uid)
    assert set(memory.purge(user_id="ana", confirm=True)["deleted"]) == set(ids)


WAYS = [
    pytest.param(delete_by_id, id="delete"),
    pytest.param(delete_by_scope, id="delete_all"),
    pytest.param(delete_what_stands_for_them, id="delete of what stands for them"),
    pytest.param(purge_forgotten, id="purge", marks=pytest.mark.thorough),
]


@pytest.mark.parametrize("erase", WAYS)
def test_deleted_text_is_in_no_store_and_no_answer(
    erase: Callable[..., None], make_memory: Make, tmp_path: Path, config: dict[str, Any]
) -> None:
    memory = make_memory(tmp_path / "home", **config)
    ids = add_memories(memory)
    assert find_traces(memory)
    erase(memory, ids)
    assert_erased(memory, ids)
    memory.repair()
    assert_erased(memory, ids)
    memory.rebuild()
    assert_erased(memory, ids)


@pytest.mark.thorough
@SQLITE_ONLY
@pytest.mark.parametrize("erase", WAYS)
def test_deleted_text_is_in_no_file_once_all_have_closed_the_folder(
    erase: Callable[..., None], make_memory: Make, tmp_path: Path, config: dict[str, Any]
) -> None:
    """Neither its words nor its vectors; the vectors of other memories stay."""
    home = tmp_path / "home"
    memory = make_memory(home, **config)
    ids = add_memories(memory)
    vectors = read_vectors(memory)
    second = make_memory(home, **config)  # searches in memory: the first one has the vector index locked
    assert second.search("xylophone", user_id="ana")["results"]
    erase(second, ids)
    memory.search("xylophone", user_id="ana")
    memory.close()
    second.close()
    for word in SECRETS:
        for spelt in (word, word.title(), word.upper()):
            assert find_in_files(home, spelt.encode()) == [], word
    for uid, vector in vectors.items():
        assert bool(find_in_files(home, vector)) == (uid not in ids)


def read_vectors(memory: Memory) -> dict[str, bytes]:
    """Eight values of each memory's vector, from the first that is not 0: bytes as the vector index stores them."""
    joined = schema.memories.join(schema.embeddings, schema.embeddings.c.hash == schema.memories.c.embedding)
    with memory.engine.ledger.read() as connection:
        rows = connection.execute(select(schema.memories.c.uid, schema.embeddings.c.data).select_from(joined)).all()
    vectors = {}
    for uid, data in rows:
        vector = np.frombuffer(data, "<f4")
        first = int(np.flatnonzero(vector)[0])
        vectors[uid] = vector[first : first + 8].tobytes()
    return vectors


def find_in_files(home: Path, content: bytes) -> list[str]:
    return [str(path) for path in home.rglob("*") if path.is_file() and content in path.read_bytes()]


@pytest.mark.thorough
@SQLITE_ONLY
def test_copies_of_rows_in_unused_space_of_pages_leave_the_file_at_close_after_an_erasure(
    make_memory: Make, tmp_path: Path
) -> None:
    """SQLite leaves such copies, now and then, when it moves rows to a neighbouring page."""
    file = tmp_path / "ledger.sqlite"
    with make_memory(tmp_path) as memory:
        uid = memory.add("The ferry leaves at noon.", user_id="ana", infer=False)["results"][0]["id"]
        memory.add("The lighthouse is white.", user_id="ana", infer=False)
    write_into_unused_space(file, b"zarathustra")
    with make_memory(tmp_path) as memory:
        memory.add("The harbour is small.", user_id="ana", infer=False)
    assert b"zarathustra" in file.read_bytes()
    with make_memory(tmp_path) as memory:
        memory.delete(uid)
    assert b"zarathustra" not in file.read_bytes()
    write_into_unused_space(file, b"quetzalcoatl")
    with make_memory(tmp_path) as memory:  # nothing was erased since
        memory.add("The pier is long.", user_id="ana", infer=False)
    assert b"quetzalcoatl" in file.read_bytes()


def write_into_unused_space(file: Path, word: bytes) -> None:
    """Writes a word between the cell pointers and the cells of a leaf page that is less than half full.

    See https://www.sqlite.org/fileformat2.html#b_tree_pages. SQLite does not read these bytes.
    """
    content, page_size = bytearray(file.read_bytes()), 4096
    for start in range(page_size, len(content), page_size):
        cells, first_cell = (int.from_bytes(content[start + at : start + at + 2], "big") for at in (3, 5))
        end_of_pointers = 8 + 2 * cells
        if content[start] in LEAF_PAGES and cells and first_cell - end_of_pointers > page_size // 2:
            middle = start + (end_of_pointers + first_cell) // 2
            content[middle : middle + len(word)] = word
            file.write_bytes(content)
            return
    pytest.fail("no page with unused space")


@SQLITE_ONLY
def test_a_crash_after_a_delete_leaves_nothing_once_the_folder_is_reopened(
    make_memory: Make, tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever process opens the folder next delivers the deletion."""
    home = tmp_path / "home"
    memory = make_memory(home, **config)
    ids = add_memories(memory)
    monkeypatch.setattr(type(memory.engine), "deliver", lambda *_: ["vectors"])
    assert memory.delete(ids[0])["pending"] == ["vectors"]
    monkeypatch.undo()
    memory.close()
    with make_memory(home, **config) as reopened:
        reopened.delete(ids[1])
        assert_erased(reopened, ids)
    assert [word for word in SECRETS if find_in_files(home, word.encode())] == []


# --- reset ----------------------------------------------------------------------------------------------------------


def test_a_reset_during_a_delivery_names_the_index_and_empties_it_after_the_delivery(
    make_memory: Make, tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"graph_store": {"provider": "networkx"}, **config}
    memory = make_memory(tmp_path / "home", delivery_wait=0.05, **config)
    memory.add(OTHER_MESSAGE, user_id="ana")
    memory.search("Who works in Bergen?", user_id="ana")  # from now on its partition is in the graph of this process
    index = memory.engine.backends.graph
    waits, may_go_on, upsert = Event(), Event(), index.upsert

    def wait_and_write(*states: Any) -> None:
        waits.set()
        assert may_go_on.wait(TIMEOUT)
        upsert(*states)

    monkeypatch.setattr(index, "upsert", wait_and_write)
    assert "graph" in memory.add(ERASED_MESSAGES, user_id="ana")["pending"]
    assert waits.wait(TIMEOUT)
    assert "graph" in memory.reset()["pending"]
    may_go_on.set()
    assert memory.flush() == {"pending": []}
    assert memory.search("Who works in Bergen?", user_id="ana")["results"] == []
    assert list(index.list_held()) == []
    assert memory.verify()["ok"]
    assert find_traces(memory) == []


@pytest.mark.thorough
def test_resets_during_background_work_leave_nothing(make_memory: Make, tmp_path: Path) -> None:
    """Each reset comes at another moment of the enrichment and delivery of ten memories."""
    memory = make_memory(tmp_path / "home")
    for _ in range(20):
        for number in range(10):
            memory.add(f"Zarathustra plays {number} xylophones.", user_id="ana", wait=False)
        memory.reset()
        assert memory.flush() == {"pending": []}
        assert memory.search("xylophones", user_id="ana")["results"] == []
    assert memory.verify()["ok"]


# --- guessing erased text -------------------------------------------------------------------------------------------

PIN = "4711"
MESSAGE_TIME = "2024-03-01T09:30:00+00:00"


def make_unkeyed_digest(uuid: str, *parts: Any) -> str:
    """A digest keyed by the ledger's UUID, which is in the same file."""
    return blake2b(json.dumps(parts, sort_keys=True).encode(), key=uuid.encode(), digest_size=16).hexdigest()


def make_unkeyed_guesses(uuid: str, text: str) -> Iterator[str]:
    """The digests that a message with this text would leave without a secret key."""
    scope, at = {"user_id": "ana"}, micros(datetime.fromisoformat(MESSAGE_TIME))
    fingerprint = make_unkeyed_digest(uuid, scope, "said", "user", text, at)
    yield from (fingerprint, make_unkeyed_digest(uuid, fingerprint, 1), make_unkeyed_digest(uuid, text))


def make_keyed_guesses(digests: Digests, text: str) -> Iterator[str]:
    """The digests that a message with this text leaves with a secret key."""
    message, scope = Message("user", text, datetime.fromisoformat(MESSAGE_TIME)), Scope("ana")
    yield from (digests.message_fingerprint(message, scope), digests.key_by_content(message, scope, 1))
    yield digests.content_digest(text)


def find_confirmed(ledger: Path, candidates: Iterable[str]) -> list[str]:
    """The candidates that somebody who has the ledger's file and our source can confirm as messages."""
    with closing(sqlite3.connect(ledger)) as connection:
        (row,) = connection.execute("SELECT * FROM ledger")
        keys = {key for (key,) in connection.execute("SELECT key FROM messages")}
    values = [str(value) for value in row]
    uuid = values[1]
    # Every value in the file may be tried as a secret key.
    secrets = [
        bytes(32),
        uuid.encode(),
        *(part.encode()[:64] for value in values for part in (value, *value.split(":"))),
    ]
    digests = [Digests(uuid, key) for key in secrets if key]
    return [
        text
        for text in candidates
        if keys.intersection(make_unkeyed_guesses(uuid, text))
        or any(keys.intersection(make_keyed_guesses(one, text)) for one in digests)
    ]


@SQLITE_ONLY
def test_an_erased_pin_cannot_be_confirmed_from_the_ledgers_file(make_memory: Make, tmp_path: Path) -> None:
    home = tmp_path / "home"
    message = {"role": "user", "content": PIN, "timestamp": MESSAGE_TIME}
    with make_memory(home) as memory:
        memory.delete(memory.add(message, user_id="ana")["results"][0]["id"])
    # The rest of all pins would be hashed like these, which takes six seconds.
    candidates = [f"{number:04}" for number in range(4_500, 5_000)]
    assert find_confirmed(home / "ledger.sqlite", candidates) == []
    with make_memory(home) as memory:  # the folder has the secret key: whoever has it can confirm guesses
        assert memory.add(message, user_id="ana")["results"][0]["reason"] == "erased"
        digests = memory.engine.ledger.digests
        with memory.engine.ledger.read() as connection:
            keys = set(connection.scalars(select(schema.messages.c.key)))
    confirmed_texts = {text for text in candidates if keys.intersection(make_keyed_guesses(digests, text))}
    assert confirmed_texts == {PIN}


@SQLITE_ONLY
def test_ids_of_saved_messages_do_not_reveal_earlier_messages(make_memory: Make, tmp_path: Path) -> None:
    """A message's id depends on the messages before it and outlives them."""
    messages = [{"role": "user", "content": PIN}, {"role": "assistant", "content": "Thank you."}]
    with make_memory(tmp_path / "home") as memory:
        with ChatLink(memory, user_id="ana") as link:
            link.saved(messages)
            link.flush()
        pin = next(one for one in memory.get_all(user_id="ana")["results"] if one["memory"] == PIN)
        memory.delete(pin["id"])
        (reply,) = memory.get_all(user_id="ana")["results"]
        (message,) = memory.explain(reply["id"])["messages"]

    def make_digest(value: Any) -> str:
        return blake2b(json.dumps(value, default=str).encode(), digest_size=16).hexdigest()

    fingerprints = [make_digest([one["role"], None, one["content"]]) for one in messages]
    with make_memory(tmp_path / "home") as memory:  # the id is this digest, of guessable words, but a keyed one
        assert message["id"] == memory.engine.ledger.digests.keyed("", "", *fingerprints, 1)
    assert message["id"] != make_digest(["", "", *fingerprints, 1])


@pytest.mark.thorough
@SQLITE_ONLY
def test_an_erased_name_cannot_be_confirmed_from_the_folder(make: Make, tmp_path: Path) -> None:
    """Once the projections have dropped an erased entity, the ledger keeps no tombstone of it."""
    home = tmp_path / "home"
    memory = make(home)
    uid = memory.add("Zarathustra sleeps", user_id="ana")["results"][0]["id"]
    memory.rename_entity("zarathustra", "Z.", user_id="ana")
    memory.delete(uid)
    memory.close()
    assert find_in_files(home, entity_id("user:ana", "zarathustra").encode()) == []
    with closing(sqlite3.connect(home / "ledger.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM tombstones WHERE kind = 'entity'").fetchone() == (0,)
