"""A word that somebody types in another spelling finds what was said, wherever words are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from support.fakes import DIMS, fake_models
from support.spellings import DIGRAPHS, SAME, WITHOUT_MARKS

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


@pytest.mark.parametrize(("written", "typed"), [*DIGRAPHS, *((typed, written) for written, typed in DIGRAPHS)])
def test_a_name_is_found_by_the_two_letters_for_an_umlaut(memory: Memory, written: str, typed: str) -> None:
    user = {"user_id": f"{written} {typed}"}
    memory.add({"role": "user", "name": "Bo", "content": "It rains."}, **user)
    memory.add({"role": "user", "name": written, "content": "Good morning."}, **user)
    found = memory.search(typed, explain=True, **user)["results"]
    assert [hit["memory"] for hit in found if "keyword" in hit["explain"]["arms"]] == ["Good morning."]
    assert written in memory.context(typed, **user)
    entity = memory.entity(typed, **user)
    assert entity is not None
    assert entity["name"] == written
    assert [one["name"] for one in memory.entities(query=typed, **user)] == [written]


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
