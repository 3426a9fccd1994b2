"""Aliases through the public interface: set by users, found by rules, removed, erased."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.databases import SQLITE_ONLY
from support.fakes import fake_models

from graphmem import AsyncMemory, Memory, Settings
from graphmem.errors import NotFoundError, ValidationError
from graphmem.stores.ledger import entity_names
from graphmem.stores.ledger.entity_names import MAX_KEPT_LINKS

Make = Callable[..., Memory]
SPACY = {"extractor": {"provider": "spacy"}}


@pytest.fixture(params=["memory", pytest.param("folder", marks=pytest.mark.thorough)])
def memory(request: pytest.FixtureRequest, make_memory: Make, tmp_path: Path) -> Memory:
    """A memory whose extractor finds names: in memory and in a folder."""
    return make_memory(None if request.param == "memory" else tmp_path / "home", **SPACY)


def add_message(memory: Memory, text: str, name: str | None = None, **scope: Any) -> str:
    message = {"role": "user", "content": text} | ({} if name is None else {"name": name})
    (result,) = memory.add(message, **(scope or {"user_id": "u1"}))["results"]
    return str(result["id"])


def get_alias_origins(entity: Any) -> dict[str, str]:
    return {alias["key"]: alias["origin"] for alias in entity["aliases"]}


def list_links(memory: Memory, **scope: Any) -> set[tuple[str, ...]]:
    """The pairs of entity keys that the graph joins by SAME_AS."""
    graph = memory.graph(**(scope or {"user_id": "u1"}))
    same_as_edges = [(s, t) for s, t, data in graph.edges(data=True) if data["relationship"] == "SAME_AS"]
    return {tuple(sorted(end.removeprefix("entity:") for end in pair)) for pair in same_as_edges}


def list_names(memory: Memory, user: str) -> list[str]:
    return [entity["name"].casefold() for entity in memory.entities(user_id=user)]


def dump_names(memory: Memory) -> str:
    """All rows about aliases and chosen names, as one text."""
    with memory.engine.ledger.read() as connection:
        return str([connection.exec_driver_sql(f"SELECT * FROM {table}").all() for table in ("aliases", "names")])


# --- set by users -----------------------------------------------------------------------------------------------------


def test_two_names_become_one_entity_and_two_again(memory: Memory) -> None:
    first = add_message(memory, "Nordlicht is building a lab in Bergen.")
    second = add_message(memory, "Acme bought a ship. Acme works with Nordlicht.")
    entity = memory.alias("Nordlicht", "the Acme", user_id="u1")
    assert {one["id"] for one in entity["memories"]} == {first, second}
    assert len(entity["memories"]) == 2
    assert (entity["key"], entity["name"]) == ("nordlicht", "Nordlicht")
    assert entity["aliases"] == [{"key": "acme", "name": "Acme", "origin": "user"}]
    assert {one["source"] for one in entity["relations"]} >= {"Nordlicht", "Acme"}
    assert memory.entity("acme", user_id="u1") == memory.entity("Nordlicht", user_id="u1") == entity
    entities = [one for one in memory.entities(user_id="u1") if one["key"] in {"acme", "nordlicht"}]
    assert [(one["key"], one["memories"], get_alias_origins(one)) for one in entities] == [
        ("nordlicht", 2, {"acme": "user"})
    ]
    assert list_links(memory) == {("acme", "nordlicht")}

    unlinked_entity = memory.unalias("acme", "nordlicht", user_id="u1")
    assert (unlinked_entity["key"], unlinked_entity["aliases"], [one["id"] for one in unlinked_entity["memories"]]) == (
        "acme",
        [],
        [second],
    )
    assert {one["key"] for one in memory.entities(user_id="u1")} >= {"acme", "nordlicht"}
    assert list_links(memory) == set()
    assert get_alias_origins(memory.alias("acme", "nordlicht", user_id="u1")) == {"acme": "user"}
    assert memory.verify()["ok"]


def test_links_make_groups(memory: Memory) -> None:
    add_message(memory, "Alpha met Beta. Beta met Gamma. Delta slept.")
    memory.alias("alpha", "beta", user_id="u1")
    assert set(get_alias_origins(memory.alias("beta", "gamma", user_id="u1"))) == {"alpha", "beta"}
    with pytest.raises(NotFoundError, match="'alpha' and 'gamma' are not linked to each other.*'beta'"):
        memory.unalias("alpha", "gamma", user_id="u1")
    memory.unalias("alpha", "beta", user_id="u1")
    assert memory.entity("alpha", user_id="u1")["aliases"] == []
    assert set(get_alias_origins(memory.entity("gamma", user_id="u1"))) == {"beta"}


def test_an_entity_has_the_name_its_users_choose(memory: Memory) -> None:
    add_message(memory, "Nordlicht is building a lab in Bergen.")
    entity = memory.rename_entity("Nordlicht", " Project Falcon ", user_id="u1")
    assert (entity["key"], entity["name"], entity["aliases"]) == ("nordlicht", "Project Falcon", [])
    assert "Project Falcon" in {one["source"] for one in entity["relations"]}
    assert memory.entity("project falcon", user_id="u1") == memory.entity("nordlicht", user_id="u1") == entity
    assert [one["key"] for one in memory.entities(user_id="u1", query="falcon")] == ["nordlicht"]
    assert memory.graph(user_id="u1").nodes["entity:nordlicht"]["name"] == "Project Falcon"
    assert "entity:nordlicht" in memory.graph(user_id="u1", around="Project Falcon", hops=0)
    assert memory.rename_entity("project falcon", "Nord", user_id="u1")["name"] == "Nord"
    assert memory.get_all(user_id="u1")["results"][0]["memory"].startswith("Nordlicht")


def test_a_group_has_the_name_chosen_last(memory: Memory) -> None:
    add_message(memory, "Alpha met Beta.")
    memory.rename_entity("alpha", "One", user_id="u1")
    memory.rename_entity("beta", "Two", user_id="u1")
    assert memory.alias("alpha", "beta", user_id="u1")["name"] == "Two"
    assert memory.rename_entity("alpha", "Three", user_id="u1")["name"] == "Three"
    assert memory.unalias("alpha", "beta", user_id="u1")["name"] == "Three"
    assert memory.entity("beta", user_id="u1")["name"] == "Two"


def test_every_node_of_a_renamed_entity_has_the_new_name(memory: Memory) -> None:
    add_message(memory, "Nordlicht is building a lab in Bergen.")
    add_message(memory, "Acme works with Siemens.")
    memory.alias("nordlicht", "acme", user_id="u1")
    entity = memory.rename_entity("nordlicht", "Falcon", user_id="u1")
    assert {one["source"] for one in entity["relations"]} == {"Falcon"}
    nodes = memory.graph(user_id="u1").nodes
    assert nodes["entity:nordlicht"]["name"] == nodes["entity:acme"]["name"] == "Falcon"
    found = memory.search("Who works with Siemens?", user_id="u1")["relations"]
    assert [one["source"] for one in found if one["target"] == "Siemens"] == ["Falcon"]
    memory.unalias("nordlicht", "acme", user_id="u1")
    assert memory.graph(user_id="u1").nodes["entity:acme"]["name"] == "Acme"


def test_impossible_aliases_and_names_are_refused_with_reasons(memory: Memory) -> None:
    add_message(memory, "Nordlicht is building a lab in Bergen.")
    with pytest.raises(NotFoundError, match="user_id='u1' mentions 'nordlich'.*'nordlicht'"):
        memory.alias("nordlich", "bergen", user_id="u1")
    with pytest.raises(NotFoundError, match="entities"):
        memory.rename_entity("qqq", "Q", user_id="u1")
    with pytest.raises(NotFoundError, match="'building' stands in memories.*'u1'.*is no entity there"):
        memory.alias("building", "bergen", user_id="u1")
    with pytest.raises(NotFoundError, match="not linked"):
        memory.unalias("nordlicht", "bergen", user_id="u1")
    with pytest.raises(ValidationError, match="b='the Bergen'.*same"):
        memory.alias("bergen", "the Bergen", user_id="u1")
    for bad in ("", "  ", "a\nb", "x" * 300, None, 3):
        with pytest.raises(ValidationError, match="name"):
            memory.rename_entity("bergen", bad, user_id="u1")
    for bad in ("", None, 3):
        with pytest.raises(ValidationError, match="a="):
            memory.alias(bad, "bergen", user_id="u1")
    with pytest.raises(ValidationError, match="user_id"):
        memory.alias("a", "b")
    assert dump_names(memory) == "[[], []]"


def test_what_a_german_family_calls_somebody_is_an_alias(memory: Memory) -> None:
    for text in ("Meine Oma hat Katzen.", "Meine Großmutter wohnt in Ulm.", "Meine Oma Gerda ist müde."):
        add_message(memory, text)
    entity = memory.alias("Oma", "Großmutter", user_id="u1")
    assert [len(entity["memories"]), "gerda" in list_names(memory, "u1")] == [2, True]


# --- capitals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "phrase", "shown"),
    [
        ("Data Structures is hard.", "I study data structures.", "data structures"),
        ("Ida emailed Human Resources.", "Tom works in human resources.", "human resources"),
        ("I drive a Mercedes.", "My mercedes broke down.", "mercedes"),
        ("Kubernetes is complex.", "Tom works with kubernetes.", "kubernetes"),
    ],
)
def test_a_name_in_lower_case_is_the_same_entity(memory: Memory, name: str, phrase: str, shown: str) -> None:
    for user, texts in (("u1", (name, phrase)), ("u2", (phrase, name))):
        for text in texts:
            add_message(memory, text, user_id=user)
        assert list_names(memory, user).count(shown) == 1
    entity = memory.entity(shown, user_id="u1")
    assert len(entity["memories"]) == 2
    assert set(get_alias_origins(entity).values()) == {"spelling"}


def test_a_common_noun_is_not_the_name_written_like_its_plural(memory: Memory) -> None:
    add_message(memory, "I prefer Windows.")
    add_message(memory, "I cleaned the windows.")
    assert list_links(memory) == set()


def test_a_place_with_a_hyphen_is_the_same_entity(memory: Memory) -> None:
    for text in ("New York is big.", "new-york is big.", "I moved to New-York."):
        add_message(memory, text)
    assert [name for name in list_names(memory, "u1") if "york" in name] in (["new york"], ["new-york"])


# --- ids --------------------------------------------------------------------------------------------------------------


def test_an_id_becomes_a_person_once_a_text_has_it_as_a_name(memory: Memory) -> None:
    add_message(memory, "My sister Clara sings.", user_id="grace")
    assert "grace" not in list_names(memory, "grace")
    add_message(memory, "Call me Grace.", user_id="grace")
    add_message(memory, "My brother Otto sings.", user_id="grace")
    relations = memory.get_all(user_id="grace")["relations"]
    assert ("Grace", "brother", "Otto") in {(r["source"], r["relationship"], r["target"]) for r in relations}


@pytest.mark.parametrize(
    "speaker", [{"user_id": "production"}, {"user_id": "None"}, {"user_id": "telegram"}, {"user_id": "客户"}]
)
def test_an_id_that_is_no_name_is_no_person(memory: Memory, speaker: dict[str, str]) -> None:
    add_message(memory, "My sister Clara lives in Riga.", **speaker)
    assert sorted(list_names(memory, speaker["user_id"])) == ["clara", "riga"]


def test_an_id_with_capitals_and_a_name_are_persons(memory: Memory) -> None:
    add_message(memory, "My sister Clara sings.", user_id="Grace")
    assert "grace" in list_names(memory, "Grace")
    add_message(memory, "My sister Clara sings.", name="Grace", user_id="grace")
    assert list_names(memory, "grace").count("clara") == 1


# --- found by rules ---------------------------------------------------------------------------------------------------


def test_a_first_name_belongs_to_the_only_full_name(memory: Memory) -> None:
    add_message(memory, "My sister Anna likes tea.", "Tom")
    assert memory.entity("anna", user_id="u1")["aliases"] == []
    add_message(memory, "Anna Berg moved to Bergen.", "Tom")
    entity = memory.entity("anna", user_id="u1")
    assert (entity["name"], get_alias_origins(entity), len(entity["memories"])) == (
        "Anna Berg",
        {"anna": "first name"},
        2,
    )
    add_message(memory, "Anna Roth moved to Lisbon.", "Tom")
    assert memory.entity("anna", user_id="u1")["aliases"] == []
    assert list_links(memory) == set()


def test_the_full_name_may_come_first(memory: Memory) -> None:
    add_message(memory, "Anna Berg moved to Bergen.", "Tom")
    add_message(memory, "My sister Anna likes tea.", "Tom")
    assert list_links(memory) == {("anna", "anna berg")}


def test_a_users_link_outlives_a_second_full_name(memory: Memory) -> None:
    add_message(memory, "Anna Berg moved to Bergen. My sister Anna likes tea.", "Tom")
    memory.alias("anna", "anna berg", user_id="u1")
    add_message(memory, "Anna Roth moved to Lisbon.", "Tom")
    assert list_links(memory) == {("anna", "anna berg")}


def test_a_stated_nickname_is_linked(memory: Memory) -> None:
    uid = add_message(memory, "Call me Bo.", "Robert")
    add_message(memory, "Bo plays chess.", "Tom")
    assert list_links(memory) == {("bo", "robert")}
    assert get_alias_origins(memory.entity("bo", user_id="u1")) == {"bo": "said"}
    add_message(memory, "I like tea.", "Robert")
    memory.delete(uid, user_id="u1")
    assert list_links(memory) == set()  # the memory that states the alias is deleted; others still mention both names
    assert memory.entity("bo", user_id="u1") is not None


@pytest.mark.parametrize(
    ("text", "speaker", "link"),
    [
        ("Nennt mich Bo.", "Robert", ("bo", "robert")),
        ("Bitte nenn mich einfach Bo!", "Robert", ("bo", "robert")),
        ("Robert Özer wird von allen Bo genannt.", "Tom", ("bo", "robert özer")),
        ("Roberts Spitzname ist Bo.", "Tom", ("bo", "robert")),
        ("叫我阿远就行", "李志远", ("李志远", "阿远")),
        ("王磊的外号叫小王。", "李志远", ("小王", "王磊")),
        ("Niemand nannte mich Bo.", "Robert", None),
        ("Mein Chef nennt mich nie beim Namen.", "Robert", None),
        ("别叫我阿远就好。", "李志远", None),
        ("早上七点叫我起床就行", "李志远", None),
        ("他叫我回家。", "李志远", None),
    ],
)
def test_a_nickname_stated_in_german_and_chinese_is_linked(
    memory: Memory, text: str, speaker: str, link: tuple[str, str] | None
) -> None:
    add_message(memory, text, speaker)
    assert list_links(memory) == ({link} if link else set())


def test_two_spellings_of_a_name_are_linked(memory: Memory) -> None:
    add_message(memory, "Katherine Berg lives in Lisbon.", "Tom")
    add_message(memory, "My colleague Kathrine Berg likes tea.", "Tom")
    assert list_links(memory) == {("katherine berg", "kathrine berg")}


def test_a_removed_link_is_not_found_again(memory: Memory) -> None:
    add_message(memory, "Call me Bo.", "Robert")
    memory.unalias("Robert", "Bo", user_id="u1")
    add_message(memory, "As I said, call me Bo.", "Robert")
    assert list_links(memory) == set()
    memory.alias("Robert", "Bo", user_id="u1")
    memory.unalias("Robert", "Bo", user_id="u1")
    add_message(memory, "Everybody calls me Bo.", "Robert")
    assert list_links(memory) == set()


def test_an_update_replaces_found_links_and_keeps_those_of_users(memory: Memory) -> None:
    uid = add_message(memory, "Call me Bo.", "Robert")
    add_message(memory, "Bo met Zoe.", "Tom")
    memory.alias("robert", "zoe", user_id="u1")
    memory.update(uid, "Everybody calls me Rob.", user_id="u1")
    assert list_links(memory) == {("rob", "robert"), ("robert", "zoe")}
    memory.rebuild()
    assert list_links(memory) == {("rob", "robert"), ("robert", "zoe")}


# --- scopes -----------------------------------------------------------------------------------------------------------


def test_a_link_belongs_to_one_user(memory: Memory) -> None:
    for user in ("u1", "u2"):
        add_message(memory, "Alpha met Beta.", user_id=user)
    memory.alias("alpha", "beta", user_id="u1")
    memory.rename_entity("beta", "Secret", user_id="u1")
    assert memory.entity("alpha", user_id="u2")["aliases"] == []
    assert "Secret" not in str([memory.entities(user_id="u2"), memory.graph(user_id="u2").nodes(data=True)])
    assert list_links(memory, user_id="u2") == set()


def test_a_view_without_a_mention_shows_no_aliases_of_it(memory: Memory) -> None:
    add_message(memory, "Alpha met Tom.", user_id="u1", agent_id="a")
    add_message(memory, "Beta met Alphabet.", user_id="u1", agent_id="b")
    memory.alias("alpha", "beta", user_id="u1")
    memory.rename_entity("beta", "Secret", user_id="u1")
    scope = {"user_id": "u1", "agent_id": "a"}
    answers = [memory.entities(**scope), memory.entity("alpha", **scope), list(memory.graph(**scope).nodes(data=True))]
    answers += [memory.search("Whom did Alpha meet?", explain=True, **scope), memory.context("Alpha", **scope)]
    assert "beta" not in str(answers).casefold()
    assert "Secret" not in str(answers)
    assert memory.entity("alpha", **scope)["aliases"] == []
    assert memory.entity("beta", **scope) is None
    assert memory.entity("secret", **scope) is None
    for call in (memory.alias, memory.unalias):
        with pytest.raises(NotFoundError) as error:
            call("alpha", "beta", **scope)
        assert "alphabet" not in str(error.value)
    with pytest.raises(NotFoundError):
        memory.rename_entity("beta", "B", **scope)


def test_links_of_one_user_join_nothing_in_the_view_of_a_shared_agent(memory: Memory) -> None:
    add_message(memory, "Alpha met Beta.", user_id="u1", agent_id="a")
    add_message(memory, "Alpha met Beta.", user_id="u2", agent_id="a")
    memory.alias("alpha", "beta", user_id="u1")
    assert memory.entity("alpha", agent_id="a")["aliases"] == []
    with pytest.raises(NotFoundError, match="under agent_id='a'"):
        memory.alias("alpha", "beta", agent_id="a")
    add_message(memory, "Alpha met Beta.", agent_id="a")
    assert get_alias_origins(memory.alias("alpha", "beta", agent_id="a")) == {"beta": "user"}
    assert len(memory.entity("beta", agent_id="a")["memories"]) == 3


# --- erasing ----------------------------------------------------------------------------------------------------------


def test_an_erased_name_is_in_no_alias_and_no_chosen_name(memory: Memory, tmp_path: Path) -> None:
    add_message(memory, "Alpha slept.")
    uid = add_message(memory, "Betavulgaris slept.")
    memory.alias("alpha", "betavulgaris", user_id="u1")
    memory.rename_entity("betavulgaris", "Gammastrahl", user_id="u1")
    memory.delete(uid, user_id="u1")
    assert dump_names(memory) == "[[], []]"
    memory.close()
    for path in (tmp_path / "home").rglob("*"):
        if path.is_file():
            assert b"etavulgaris" not in path.read_bytes(), path
            assert b"ammastrahl" not in path.read_bytes(), path


def test_a_name_removed_by_an_update_is_erased_with_its_memory(memory: Memory) -> None:
    uid = add_message(memory, "Betavulgaris met Alpha.")
    add_message(memory, "Alpha slept.")
    memory.alias("alpha", "betavulgaris", user_id="u1")
    memory.update(uid, "Someone met Alpha.", user_id="u1")
    memory.delete(uid, user_id="u1")
    assert dump_names(memory) == "[[], []]"


def test_entities_that_other_memories_mention_keep_their_names(memory: Memory) -> None:
    uid = add_message(memory, "Alpha met Beta.")
    add_message(memory, "Alpha likes Beta.")
    memory.alias("alpha", "beta", user_id="u1")
    memory.rename_entity("beta", "Bee", user_id="u1")
    memory.delete(uid, user_id="u1")
    assert memory.entity("alpha", user_id="u1")["name"] == "Bee"


def test_delete_all_and_reset_leave_no_names(memory: Memory) -> None:
    for user in ("u1", "u2"):
        add_message(memory, "Call me Bo. Alpha met Beta.", "Robert", user_id=user)
        memory.alias("alpha", "beta", user_id=user)
        memory.rename_entity("beta", "Bee", user_id=user)
    memory.delete_all(user_id="u1")
    assert memory.entity("alpha", user_id="u2")["name"] == "Bee"
    assert dump_names(memory).count("'Bee'") == 1
    assert dump_names(memory).count("alpha") == 2
    memory.reset()
    assert dump_names(memory) == "[[], []]"


# --- searching, async, restarting -------------------------------------------------------------------------------------


@pytest.fixture
def ship_memory(make_memory: Make) -> Iterator[Memory]:
    """Acme's ship, Nordlicht's office and noise. Linked, the ship is two steps from a question about Nordlicht."""
    memory = make_memory(**SPACY)
    add_message(memory, "Acme built a ship in Bergen.")
    add_message(memory, "Nordlicht has an office.")
    for place in ("Lisbon", "Malmö", "Oslo", "Turin", "Porto", "Genoa", "Kiel", "Nantes", "Riga", "Bari"):
        add_message(memory, f"Somebody saw a train near {place} yesterday evening.")
    yield memory


@pytest.mark.parametrize("kept", [MAX_KEPT_LINKS, 0])
def test_a_search_follows_all_names_of_an_entity(
    ship_memory: Memory, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the columns keep all links of the partition, or those that are asked for."""
    monkeypatch.setattr(entity_names, "MAX_KEPT_LINKS", kept)

    def find_path() -> list[dict[str, Any]]:
        hits = ship_memory.search("What does Nordlicht own?", user_id="u1", explain=True, top_k=1000)["results"]
        return next(hit["explain"]["path"] for hit in hits if "Acme" in hit["memory"])

    assert not any(step["type"] == "entity" for step in find_path())
    ship_memory.alias("nordlicht", "acme", user_id="u1")
    assert [step["name"] for step in find_path() if step["type"] == "entity"] == ["Acme"]
    ship_memory.unalias("nordlicht", "acme", user_id="u1")
    assert not any(step["type"] == "entity" for step in find_path())


def test_async_memory_has_the_same_alias_methods() -> None:
    async def use_aliases() -> None:
        async with AsyncMemory(":memory:", settings=Settings.from_dict({**fake_models(), **SPACY})) as memory:
            await memory.add("Alpha met Beta.", user_id="u1")
            assert get_alias_origins(await memory.alias("alpha", "beta", user_id="u1")) == {"beta": "user"}
            assert (await memory.rename_entity("beta", "Bee", user_id="u1"))["name"] == "Bee"
            assert (await memory.unalias("alpha", "beta", user_id="u1"))["aliases"] == []

    asyncio.run(use_aliases())


@SQLITE_ONLY
def test_aliases_and_names_persist_in_the_folder(make_memory: Make, tmp_path: Path) -> None:
    memory = make_memory(tmp_path / "home", **SPACY)
    add_message(memory, "Alpha met Beta.")
    memory.alias("alpha", "beta", user_id="u1")
    memory.rename_entity("alpha", "First", user_id="u1")
    memory.close()
    reopened = make_memory(tmp_path / "home", **SPACY)
    assert reopened.entity("beta", user_id="u1")["name"] == "First"
    reopened.close()
    with closing(sqlite3.connect(tmp_path / "home" / "ledger.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM aliases").fetchone() == (2,)  # one row for each direction


def test_names_chosen_by_a_user_are_invisible_in_a_view_by_agent() -> None:
    with Memory(":memory:") as memory:
        for text in ("Quinny works at Nordlicht.", "The Skipper owns a red boat.", "Tom paid the rent."):
            message = {"role": "user", "name": "Al", "content": text}
            memory.add(message, user_id="a", agent_id="bot", timestamp="2024-01-01")
        memory.add({"role": "user", "name": "Bo", "content": "Quinny sold a car."}, user_id="b", agent_id="bot")
        question = "What does Quinny own?"
        before = memory.search(question, agent_id="bot", explain=True)
        memory.rename_entity("Quinny", "Secret Xylophant", user_id="a")
        memory.alias("Quinny", "Skipper", user_id="a")
        after = memory.search(question, agent_id="bot", explain=True)
        assert after == before
        one = next(each for each in memory.get_all(agent_id="bot")["results"] if "Nordlicht" in each["memory"])
        graph = memory.graph(agent_id="bot")
        answers = [
            memory.entity("Quinny", agent_id="bot"), memory.get_all(agent_id="bot"), memory.entities(agent_id="bot"),
            memory.explain(one["id"], agent_id="bot"), list(graph.nodes(data=True)), list(graph.edges(data=True)),
        ]  # fmt: skip
        assert "Xylophant" not in repr(answers)
        assert "SAME_AS" not in repr(answers)
        assert "Xylophant" in repr(memory.explain(one["id"], user_id="a"))
