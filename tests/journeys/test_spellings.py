"""A word that somebody types in another spelling finds what was said, wherever words are compared."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.databases import SQLITE_ONLY
from support.fakes import DIMS, fake_models
from support.spellings import SAME, WITHOUT_MARKS

from graphmem import Memory, Settings, wiring
from graphmem.service.listing import list_memories
from graphmem.testing import HashEmbedder, WordExtractor
from graphmem.text import display_form

Make = Callable[..., Memory]


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    """A memory whose fakes find words and names, for all spellings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "_embedder", lambda _: HashEmbedder(DIMS))
        patch.setattr(wiring, "_extractor", lambda _: WordExtractor())
        with closing(Memory(":memory:", settings=Settings.from_dict(fake_models()))) as memory:
            yield memory


@pytest.mark.parametrize(("written", "typed"), [*SAME, *WITHOUT_MARKS])
def test_a_word_is_found_as_people_type_it(memory: Memory, written: str, typed: str) -> None:
    user = {"user_id": f"{written} {typed}"}
    said = [{"role": "user", "name": "Bo", "content": text} for text in ("It rains.", "We met again.")]
    memory.add([*said, {"role": "user", "name": "Bo", "content": f"1 {written} 2"}], **user)
    named = memory.add({"role": "user", "name": written, "content": "Good morning."}, **user)["results"][0]["id"]

    hits = memory.search(typed, explain=True, **user)["results"]
    by_words = {hit["memory"] for hit in hits if "keyword" in hit["explain"]["arms"]}
    assert by_words == {f"1 {written} 2", "Good morning."}
    assert written in memory.context(typed, **user)

    entity = memory.entity(typed, **user)
    assert entity is not None
    assert entity["name"] == display_form(written)
    assert named in {one["id"] for one in entity["memories"]}
    assert [one["name"] for one in memory.entities(query=typed, **user)] == [display_form(written)]
    assert named in memory.graph(around=typed, hops=1, **user)
    listed = list_memories(memory, user, None, limit=9, q=typed)
    assert {one["memory"] for one in listed.results} == {f"1 {written} 2", "Good morning."}


def test_the_exact_spelling_comes_first(memory: Memory) -> None:
    user = {"user_id": "exact"}
    for word in ("Dũng", "Dung"):
        memory.add({"role": "user", "name": word, "content": f"ok {word}."}, **user)
    for word in ("Dũng", "Dung"):
        assert memory.search(word, top_k=1, **user)["results"][0]["memory"] == f"ok {word}."
        entity = memory.entity(word, **user)
        assert entity is not None
        assert entity["name"] == word


def test_a_chosen_name_and_an_alias_are_found_in_another_spelling(memory: Memory) -> None:
    user = {"user_id": "chosen"}
    for name in ("Пётр", "Łucja", "Анна"):
        memory.add({"role": "user", "name": name, "content": "Hello."}, **user)
    memory.rename_entity("Петр", "Петя Чёрный", **user)
    assert {*memory.alias("Lucja", "Анна", **user)["aliases"][0].values()} & {"łucja", "анна"}
    renamed = memory.entity("петя черный", **user)
    assert renamed is not None
    assert (renamed["key"], renamed["name"]) == ("петр", "Петя Чёрный")


@SQLITE_ONLY
def test_keys_of_an_older_ledger_are_folded_once_with_their_aliases_and_names(make: Make, tmp_path: Path) -> None:
    home, user = tmp_path / "home", {"user_id": "ana"}
    with closing(make(home)) as memory:
        for name in ("Пётр", "Петр", "Łucja"):
            memory.add({"role": "user", "name": name, "content": "I met Clara."}, **user)
        memory.flush()
    with closing(sqlite3.connect(home / "ledger.sqlite")) as old, old:
        old.executescript(_AS_OF_SCHEMA_0005)
    with closing(make(home)) as memory:
        entity = memory.entity("Пётр", **user)
        assert entity is not None
        assert (entity["key"], entity["name"]) == ("петр", "Петя")
        assert [one["actor_id"] for one in entity["memories"]] == ["Łucja", "Петр", "Пётр"]
        assert [(one["key"], one["origin"]) for one in entity["aliases"]] == [("clara", "user")]
        assert sorted(relation["source"] for relation in entity["relations"]) == ["Łucja", "Петя"]
        found = memory.entity("lucja", **user)
        assert found is not None
        assert found["name"] == "Łucja"
        assert memory.search("Петр", top_k=1, **user)["results"]
        memory.flush()
        assert memory.verify()["ok"], memory.verify()
    with closing(sqlite3.connect(home / "ledger.sqlite")) as ledger:
        supports = ledger.execute("SELECT count(*) FROM supports GROUP BY relation ORDER BY 1").fetchall()
    assert supports == [(1,), (2,)]  # of Łucja and of both spellings


# "Пётр" and "Петр" were two entities, whose relations to Clara were two; one had an alias, each a chosen name.
_AS_OF_SCHEMA_0005 = """
INSERT INTO entities (partition, key, name, type, mentions)
    SELECT partition, 'пётр', 'Пётр', type, 1 FROM entities WHERE key = 'петр';
UPDATE mentions SET entity = (SELECT id FROM entities WHERE key = 'пётр')
    WHERE entity = (SELECT id FROM entities WHERE key = 'петр') AND memory = (SELECT min(id) FROM memories);
UPDATE entities SET mentions = 1 WHERE key = 'петр';
INSERT INTO relations (uid, partition, subject, predicate, object, at, seq)
    SELECT '00000000-0000-4000-8000-000000000001', partition, (SELECT id FROM entities WHERE key = 'пётр'), predicate,
        object, at, -1
    FROM relations WHERE subject = (SELECT id FROM entities WHERE key = 'петр');
UPDATE supports SET relation = (SELECT max(id) FROM relations) WHERE memory = (SELECT min(id) FROM memories);
INSERT INTO aliases SELECT partition, 'пётр', 'clara', 'user', 0, 5 FROM entities WHERE key = 'петр';
INSERT INTO aliases SELECT partition, 'clara', 'пётр', 'user', 0, 5 FROM entities WHERE key = 'петр';
INSERT INTO aliases SELECT partition, 'петр', 'clara', 'first name', 0, 7 FROM entities WHERE key = 'петр';
INSERT INTO aliases SELECT partition, 'clara', 'петр', 'first name', 0, 7 FROM entities WHERE key = 'петр';
INSERT INTO names SELECT partition, 'петр', 'Петруша', 5 FROM entities WHERE key = 'петр';
INSERT INTO names SELECT partition, 'пётр', 'Петя', 6 FROM entities WHERE key = 'петр';
DELETE FROM terms;
DROP INDEX entities_bare_key;
ALTER TABLE entities DROP COLUMN bare_key;
UPDATE alembic_version SET version_num = '0005';
"""


def test_an_export_of_an_older_release_is_imported_under_todays_keys(memory: Memory) -> None:
    user = {"user_id": "imported"}
    mentions = [
        {"key": "пётр", "name": "Пётр", "kind": "noun_phrase"},
        {"key": "петр", "name": "Петр"},
        {"key": "clara"},
    ]
    statements = [
        {"subject": "пётр", "predicate": "meet", "object": "clara", "fact": "Пётр met Clara."},
        {"subject": "пётр", "predicate": "be", "object": "петр", "fact": "Пётр is Петр."},
    ]
    record = {"type": "memory", "id": "0b7c8f2e-6a5d-4c3b-9e1f-2d4a6b8c0e1f", "text": "Пётр met Clara.", **user}
    memory.import_(
        [
            {**record, "at": "2024-06-01T12:00:00+00:00", "mentions": mentions, "statements": statements},
            {"type": "alias", **user, "key": "пётр", "other": "петр"},
            {"type": "alias", **user, "key": "пётр", "other": "clara"},
            {"type": "name", **user, "key": "пётр", "name": "Петя"},
        ]
    )
    entity = memory.entity("Петр", **user)
    assert entity is not None
    assert (entity["key"], entity["name"], [one["key"] for one in entity["aliases"]]) == ("петр", "Петя", ["clara"])
    assert [relation["relationship"] for relation in memory.get_all(**user)["relations"]] == ["meet"]
